// One report per period: made of the search that was chosen in the period before, sent until the collector has it.
import { Client, fetchTask, send } from "./lib/hushquery-client.js";
import { below } from "./choice.js";
import { doorTo } from "./door.js";
import { api, change, periodAt, read, rolled } from "./state.js";
import { described } from "./words.js";

const ALARM = "report";
const HOUR = 3600;
const GRAIN = 2 ** 20;

/**
 * Draw the moment of a period's report: in the first quarter of the period, or its first hour.
 *
 * It has nothing to do with when its user searches, so when a report arrives says nothing about that.
 */
export function momentIn({ period: seconds }, period) {
  const share = 0.25 + (0.75 * below(GRAIN)) / GRAIN;
  return period * seconds + share * Math.min(seconds / 4, HOUR);
}

/** What is different once the extension is switched on: the first report is made when the running period is over. */
export function started(settings, now) {
  const next = periodAt(settings, now) + 1;
  return { next, due: momentIn(settings, next), running: null, ended: null, trouble: null };
}

/** Set the alarm for the next thing to do. */
export async function schedule(now = Date.now() / 1000) {
  const { on, settings, due, history, trouble } = await read();
  await api.alarms.clear(ALARM);
  if (!on || !settings) return;
  const again = trouble || history.some((entry) => entry.outcome === "waiting");
  const retry = now + Math.min(settings.period / 10, 300);
  const when = !again ? due : due > now ? Math.min(due, retry) : retry;
  await api.alarms.create(ALARM, { when: 1000 * when });
}

/** Set the alarm if there is none: browsers may lose it when they end. */
export async function ensureScheduled() {
  if (!(await api.alarms.get(ALARM))) await schedule();
}

let busy = null;

/** Do what is due: make this period's report, and send what waits. Called twice at once, it does it once. */
export function work(now = Date.now() / 1000) {
  busy ??= attempt(now).finally(() => {
    busy = null;
  });
  return busy;
}

/** Wait until nothing is under way. */
export async function settled() {
  await busy;
}

async function attempt(now) {
  const { on, settings, next, due, history } = await read();
  if (!on || !settings) return;
  const period = periodAt(settings, now);
  const isDue = now >= due && period >= next;
  if (isDue || history.some((entry) => entry.outcome === "waiting")) {
    try {
      const door = doorTo(settings);
      const client = new Client(await fetchTask(settings.collector, settings.task, { fetch: door }), { clock: () => now });
      if (isDue) await make(client, settings, period, now);
      const deliveries = await send(client, settings.collector, { single: true, fetch: door });
      const left = (await client.outbox()).map((report) => JSON.stringify(report));
      await change(({ history: entries }) => ({ history: entries.map((entry) => delivered(entry, deliveries, left, now)), trouble: null }));
    } catch (error) {
      await change(() => ({ trouble: error.code ?? "Unavailable" }));
    }
  }
  await schedule(now);
}

async function make(client, settings, period, now) {
  const { on, ended: record } = await change((state) => rolled(state, period));
  if (!on) return;
  const entry = { period, made: now, record, report: null, meaning: null, outcome: "none" };
  const before = await client.account();
  try {
    // Without a search it reports "nothing to report": whether there was one is nobody's business either.
    const report = await client.report(record?.query ?? null, record?.url);
    if (report) {
      const { spent } = await client.account();
      entry.report = JSON.stringify(report);
      entry.outcome = "waiting";
      entry.meaning = described(client.configuration, report, record, spent > before.spent);
    }
  } catch (error) {
    if (error.code !== "UnknownValue" && error.code !== "AnotherHeadList") throw error;
    entry.outcome = error.code;
  }
  const account = await client.account();
  // If a crash comes before this, the same search gives the same bytes again.
  await change(({ history }) => ({
    history: [entry, ...history],
    account: { spent: account.spent, lifetime: account.lifetime },
    ended: null,
    next: period + 1,
    due: momentIn(settings, period + 1),
  }));
}

function delivered(entry, deliveries, left, now) {
  const found = deliveries.find(({ report }) => JSON.stringify(report) === entry.report);
  if (found && found.outcome !== "later") return { ...entry, outcome: found.outcome, status: found.status, sent: now };
  // The worker ended between the collector's answer and its being noted here.
  return entry.outcome === "waiting" && !left.includes(entry.report) ? { ...entry, outcome: "answered" } : entry;
}
