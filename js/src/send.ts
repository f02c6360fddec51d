/**
 * Send what is in the outbox. A report leaves with the bytes it was made with, as often as needed: the collector
 * counts it once. What is not acknowledged stays in the outbox, over closed tabs and restarts.
 */
import { base64url, hex } from "./bytes.js";
import type { Client } from "./client.js";
import { change } from "./memo.js";
import type { Report } from "./report.js";
import { type Fetch, SHY, taskAddress } from "./task.js";

/** What became of a report: counted, refused for good, or to be tried again later. */
export interface Delivery {
  readonly report: Report;
  readonly outcome: "stored" | "refused" | "later";
  /** The HTTP status; 0 if the collector was not reached. */
  readonly status: number;
}

export interface SendOptions {
  /** Send each report by itself, rather than many in one request. */
  readonly single?: boolean;
  /** In place of the browser's own. */
  readonly fetch?: Fetch;
}

// How many seconds a collector that took nothing is left alone if it does not say: 5 minutes, then 15 each time.
const PAUSES = [300, 900] as const;
// A longer Retry-After than a day is a slip.
const MOST_PAUSE = 86_400;
// Malformed, other bytes under this id, phase over, too large, not of this task: trying again changes nothing.
const REFUSED = [400, 409, 410, 413, 422];

interface Pause {
  readonly until: number;
  readonly failures: number;
}

/**
 * Send the reports of the client's task that wait in the outbox. Call it when the page loads and now and then.
 *
 * A collector that asked for a pause, or took nothing, is left alone until the time has come, in every tab.
 *
 * @returns What became of each; empty if there is nothing to send, it is too early, or the task is switched off.
 */
export async function send(
  client: Client,
  server: string,
  { single = false, fetch: ask = fetch }: SendOptions = {},
): Promise<Delivery[]> {
  const { configuration, state_: state } = client;
  const { id, task } = configuration;
  const address = `${taskAddress(server, id)}/reports`;
  const pause = await change<Pause, Pause | undefined>(state, address, (entry) => [entry, entry]);
  if (!task.client.enabled || client.clock_() < (pause?.until ?? 0)) return [];
  const waiting = (await client.outbox()).filter((report) => hex(report.task) === id);
  const queue = batches(waiting, single ? 0 : task.collect.max_body);
  const done: Delivery[] = [];
  for (let batch = queue.shift(); batch; batch = queue.shift()) {
    const { status, statuses, wait } = await request(batch, address, ask);
    if (batch.length > 1 && REFUSED.includes(status)) {
      // A refusal of the whole says nothing about one report.
      queue.unshift(...batch.map((report) => [report]));
      continue;
    }
    let later = false;
    for (const [i, report] of batch.entries()) {
      const found = statuses[i] ?? 0;
      const outcome = found === 200 || found === 201 ? "stored" : REFUSED.includes(found) ? "refused" : "later";
      if (outcome === "later") later = true;
      else await client.sent(report.id, outcome === "refused");
      done.push({ report, outcome, status: found || status });
    }
    const failures = later ? (pause?.failures ?? 0) + 1 : 0;
    const seconds = later ? Math.min(wait || PAUSES[failures - 1] || PAUSES[1], MOST_PAUSE) : 0;
    await change<Pause, void>(state, address, () => [{ failures, until: client.clock_() + seconds }, undefined]);
    // The next ones would be turned away too.
    if (later) break;
  }
  return done;
}

/** Cut the outbox into requests: one report each, or as many as fit into a body. */
function batches(reports: readonly Report[], most: number): Report[][] {
  const all: Report[][] = [];
  for (const report of reports) {
    const last = all.at(-1);
    if (last && JSON.stringify({ reports: [...last, report] }).length <= most) last.push(report);
    else all.push([report]);
  }
  return all;
}

interface Reply {
  /** Of the request, 0 if nobody answered. */
  readonly status: number;
  /** Of each report. */
  readonly statuses: readonly number[];
  /** What Retry-After says, in seconds. */
  readonly wait: number;
}

async function request(batch: readonly Report[], address: string, ask: Fetch): Promise<Reply> {
  const one = batch.length < 2 && batch[0];
  let [status, statuses, wait]: [number, number[], number] = [0, [], 0];
  try {
    const response = await ask(one ? `${address}/${base64url(one.id)}` : address, {
      ...SHY,
      method: one ? "PUT" : "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(one || { reports: batch }),
    });
    status = response.status;
    const after = response.headers.get("Retry-After") ?? "";
    wait = Math.max(0, Number(after) || (Date.parse(after) - Date.now()) / 1000 || 0);
    if (one) statuses = [status];
    else if (response.ok) statuses = ((await response.json()) as Results).results.map((result) => result.status);
  } catch {
    // Nobody answered, or nothing that can be read: all of it goes again, with the same bytes.
  }
  return { status, statuses, wait };
}

/** The answer to a batch: a status for each report, in their order. */
interface Results {
  readonly results: readonly { readonly status: number }[];
}
