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

// How many seconds a collector that took nothing is left alone: 5 minutes, then 15 each time. What it says about it
// (Retry-After) is not followed: a device would be known by when it comes back.
const enum Pauses {
  FIRST = 300,
  NEXT = 900,
}
// The most characters of a batch. A collector that takes less refuses it, and gets its reports one by one.
const enum Most {
  BODY = 65_536,
}
// Malformed, other bytes under this id, phase over, too large, not of this task: trying again changes nothing.
const REFUSED = [400, 409, 410, 413, 422];

/** Kept while the last try failed. */
interface Pause {
  readonly until: number;
}

/** The answer to a batch: a status for each report, in their order. */
interface Results {
  readonly results: readonly { readonly status: number }[];
}

/**
 * Send the reports of the client's task that wait in the outbox. Call it when the page loads and now and then.
 *
 * A collector that took nothing is left alone for a while, in every tab.
 *
 * @returns What became of each; empty if there is nothing to send, it is too early, or the task is switched off.
 */
export async function send(
  client: Client,
  server: string,
  { single = false, fetch: ask = fetch }: SendOptions = {},
): Promise<Delivery[]> {
  const { configuration: { id, task }, state_: state, clock_: clock } = client;
  const address = `${taskAddress(server, id)}/reports`;
  const pause = await change<Pause, Pause | undefined>(state, address, (entry) => [entry, entry]);
  if (!task.client.enabled || clock() < (pause?.until ?? 0)) return [];
  // One report each, or as many as fit into a body.
  const queue: Report[][] = [];
  for (const report of await client.outbox()) {
    if (hex(report.task) !== id) continue;
    const last = queue.at(-1);
    if (!single && last && JSON.stringify({ reports: [...last, report] }).length <= Most.BODY) last.push(report);
    else queue.push([report]);
  }
  const done: Delivery[] = [];
  for (const batch of queue) {
    const one = batch.length < 2 && batch[0];
    let status = 0;
    let statuses: readonly number[] = [];
    try {
      const response = await ask(one ? `${address}/${base64url(one.id)}` : address, {
        ...SHY,
        method: one ? "PUT" : "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(one || { reports: batch }),
      });
      status = response.status;
      statuses = one ? [status] : ((await response.json()) as Results).results.map((result) => result.status);
    } catch {
      // Nobody answered, or nothing that can be read: all of it goes again, with the same bytes.
    }
    if (!one && REFUSED.includes(status)) {
      // A refusal of the whole says nothing about one report.
      queue.push(...batch.map((report) => [report]));
      continue;
    }
    let later = false;
    for (const [i, report] of batch.entries()) {
      const found = statuses[i] ?? 0;
      const refused = REFUSED.includes(found);
      const ended = refused || found === 200 || found === 201;
      later ||= !ended;
      if (ended) await client.sent(report.id, refused);
      done.push({ report, outcome: refused ? "refused" : ended ? "stored" : "later", status: found || status });
    }
    const until = clock() + (pause ? Pauses.NEXT : Pauses.FIRST);
    await change<Pause, void>(state, address, () => [later ? { until } : undefined]);
    // The next ones would be turned away too.
    if (later) break;
  }
  return done;
}
