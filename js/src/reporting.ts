/** A page's one call: fetch a task, check it, answer once per period, and send what waits. */
import { type Account, Client, type ClientOptions, type Value } from "./client.js";
import { hex } from "./bytes.js";
import { must } from "./errors.js";
import type { Report } from "./report.js";
import { type Delivery, send, type SendOptions } from "./send.js";
import { fetchTask } from "./task.js";

export interface ReportOptions extends ClientOptions, SendOptions {
  /** The task's id, 64 hexadecimal digits, which the page carries: without it a collector could ask anything. */
  readonly task: string;
}

/** What a call of `report` did. */
export interface Reported {
  /**
   * Taken now; delivered by an earlier call; to be sent again, with the same bytes, by the next call; refused for good;
   * or none made, because the task is switched off or its sampling leaves this client out.
   */
  readonly outcome: Delivery["outcome"] | "before" | "none";
  /** This period's reports: all that leaves the device. */
  readonly reports: readonly Report[];
  /** What this client has lost in all its tasks, and may lose. */
  readonly account: Account;
}

/**
 * Report a value; call it on every page load, and when the value changes. The first call of a period decides, and a
 * collector that serves another task than the one of this id, or that takes no reports now, gets nothing.
 */
export async function report(server: string, value: Value, options: ReportOptions): Promise<Reported> {
  const configuration = await fetchTask(server, options.task, options);
  must(configuration.open_, "NotReady");
  const client = new Client(configuration, options);
  const reports = await client.reports([value]);
  const sent = await send(client, server, options);
  // Where nothing was tried, either all of it was delivered before, or a collector that failed is left alone.
  const waits = (await client.outbox()).some((one) => hex(one.task) === options.task);
  return {
    outcome: reports[0] ? (waits ? "later" : (sent.at(-1)?.outcome ?? "before")) : "none",
    reports,
    account: await client.account(),
  };
}
