// The background worker: what comes in from pages and from the popup, the clock, and the switch.
import { fetchTask, normalQuery } from "./lib/hushquery-client.js";
import { chosen, withClick } from "./choice.js";
import { doorTo } from "./door.js";
import { ensureScheduled, schedule, settled, started, work } from "./reporting.js";
import { api, change, forget, periodAt, read, rolled } from "./state.js";

const SCRIPT = "search";
const LONGEST = 4096;

let last = Promise.resolve();

/** Watch the site if the extension is on, and nothing if it is off; one call after the other. */
function applySwitch() {
  last = last.then(async () => {
    const { on, settings } = await read();
    const wanted = on && settings ? [settings.site] : [];
    const [there] = await api.scripting.getRegisteredContentScripts({ ids: [SCRIPT] });
    await api.action.setBadgeText({ text: on ? "" : "off" });
    if (String(there?.matches ?? []) === String(wanted)) return;
    if (there) await api.scripting.unregisterContentScripts({ ids: [SCRIPT] });
    if (wanted.length) await api.scripting.registerContentScripts([{ id: SCRIPT, matches: wanted, js: ["content.js"], runAt: "document_start" }]);
  });
  return last;
}

// What was typed and submitted in each tab, until its next page is there. It is never stored.
const submitted = new Map();
const SUBMITTED = 60_000;

/** Take what was submitted in a tab; say whether this query is it. */
function isOwn(tab, query) {
  const { words = [], until = 0 } = submitted.get(tab) ?? {};
  submitted.delete(tab);
  return Date.now() < until && words.some((one) => normalQuery(one) === normalQuery(query));
}

async function noteSearch({ search, clicked }, { url: address, tab }) {
  const now = Date.now() / 1000;
  const { settings: known } = await read();
  const asked = clicked === undefined && known ? new URL(address).searchParams.get(known.parameter)?.trim() : "";
  const query = asked && asked.length <= LONGEST && isOwn(tab?.id, asked) ? asked : "";
  await change((state) => {
    const { on, settings } = state;
    if (!on || !settings) return {};
    const period = periodAt(settings, now);
    const { running, ended } = rolled(state, period);
    if (clicked !== undefined) return { running: withClick(running, search, clicked), ended: withClick(ended, search, clicked) };
    if (!query) return { running, ended };
    return { running: chosen(running, period, { id: search, query, url: "" }), ended };
  });
}

/** Look at a task, and keep it if this extension can take part in it. */
async function configure({ collector, task: id, site, parameter }) {
  const { task, description } = await fetchTask(collector, id, { fetch: doorTo({ collector, task: id }, true) });
  const { kind, period, name, population } = task.task;
  if (kind !== "searches") return "OtherKind";
  if (!period) return "NoPeriod";
  if (task.client.records_per_user !== 1) return "SeveralRecords";
  const promise = { name, population, period, epsilon: task.client.epsilon, lifetime: task.client.lifetime_epsilon, mechanism: description.name };
  const settings = { collector, task: id, site, parameter, ...promise };
  await settled();
  await change((state) => {
    const stays = state.settings?.task === id;
    const history = state.history.map((entry) => (entry.outcome === "waiting" && !stays ? { ...entry, outcome: "dropped" } : entry));
    return { settings, history, ...(state.on ? started(settings, Date.now() / 1000) : {}) };
  });
  await applySwitch();
  await schedule();
  return null;
}

/** Switch off: at once the door is shut, then what was under way ends, and the kept search goes. */
async function stop() {
  await change(() => ({ on: false }));
  await settled();
  await change(() => ({ running: null, ended: null }));
}

const ACTIONS = {
  configure,
  async switch({ on }) {
    if (on) await change(({ settings }) => (settings ? { on, ...started(settings, Date.now() / 1000) } : {}));
    else await stop();
    await applySwitch();
    await schedule();
    return null;
  },
  async forget() {
    await stop();
    await forget();
    await applySwitch();
    await schedule();
    return null;
  },
};

async function answer(message, sender) {
  // Pages of the extension may give orders; web pages, through the content script, may only tell of a search.
  if (sender.url?.startsWith(api.runtime.getURL(""))) {
    return { problem: await ACTIONS[message.action](message) };
  }
  if (Array.isArray(message.typed)) submitted.set(sender.tab?.id, { words: message.typed, until: Date.now() + SUBMITTED });
  if (typeof message.search === "string" && sender.url) await noteSearch(message, sender);
  return {};
}

api.runtime.onMessage.addListener((message, sender, respond) => {
  answer(message, sender).then(respond, (error) => respond({ problem: error.code ?? "Unavailable" }));
  return true;
});
api.alarms.onAlarm.addListener(() => work());
api.runtime.onStartup.addListener(() => work());

/** Whenever the worker wakes up: what the browser may have lost is made again. */
async function wake() {
  // Web pages, content scripts included, can't read what is stored. (Firefox has no such call.)
  await api.storage.local.setAccessLevel?.({ accessLevel: "TRUSTED_CONTEXTS" });
  await applySwitch();
  await ensureScheduled();
}
wake();
