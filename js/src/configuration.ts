/** Configuration: a task with its domain and the integers its clients run with, computed on the device, and its hashes. */
import { type Bytes, hex, utf8 } from "./bytes.js";
import { checkedHead, listChannel, type Listed } from "./domain.js";
import { HushqueryError, must, wants } from "./errors.js";
import { ratio, type Ratio, reduced } from "./exact.js";
import { canonical, sha256 } from "./hash.js";
import { mechanismOf } from "./mechanisms.js";
import type { Channel, Description } from "./oracle.js";
import { MOST_PAYLOAD } from "./report.js";

/** The task as a collector serves it; numbers such as epsilon are texts `n` or `n/d`, times are seconds. */
export interface Task {
  readonly task: {
    readonly name: string;
    readonly population: string;
    readonly kind: "searches" | "setting" | "number" | "text";
    /** For numbers: the largest there can be. */
    readonly highest?: number;
    readonly period: number | null;
    readonly domain: readonly (string | readonly string[])[] | null;
  };
  readonly client: {
    readonly epsilon: string;
    readonly lifetime_epsilon: string;
    readonly records_per_user: number;
    readonly oracle: string;
    readonly unknown: "wildcard" | "refuse";
    readonly sampling: string;
    readonly enabled: boolean;
    /** For two-stage: the query's share of epsilon. */
    readonly query_share?: string;
    /** For numbers and texts: the grid, the buckets and bits of each device, the filter. */
    readonly step?: number;
    readonly buckets?: number;
    readonly bits?: number;
    readonly rappor?: {
      readonly k: number;
      readonly h: number;
      readonly m: number;
      readonly p: string;
      readonly q: string;
      readonly f: string;
    };
  };
  /** The list that is to come, and whether clients answer query by query for it. */
  readonly head: { readonly mode: "best" | "paper" } | null;
  readonly collect: {
    readonly time_precision: number;
    readonly clock_skew: number;
    readonly max_body: number;
    readonly min_batch: number;
    readonly origins: readonly string[];
    readonly retention: number;
  };
}

/** What can be reported without a list. */
export type Unlisted = { readonly kind: "number"; readonly highest: number } | { readonly kind: "text" };

/** What a collector serves for a task: the task, and its configuration once the domain is known. */
export interface Served {
  readonly task: Task;
  readonly configuration: {
    readonly version: number;
    readonly task: string;
    readonly domain: Listed | Unlisted;
    readonly oracle: Description;
  } | null;
  /** The log of head lists: each epoch that published one, with its configuration hash. */
  readonly lists?: readonly (readonly [epoch: number, configuration: string])[];
  /** The epoch of now, if there is one. */
  readonly epoch?: { readonly takes_reports: boolean } | null;
}

/** What every client of a task runs. Make it with `configure` or `fetchTask`. */
export interface Configuration {
  readonly task: Task;
  /** The task id: the SHA-256 of what clients use of the task, in hexadecimal digits. */
  readonly id: string;
  /** What can be reported. */
  readonly domain: Listed | Unlisted;
  /** The mechanism: its name and its integers. */
  readonly description: Description;
  /** The configuration hash, in hexadecimal digits. */
  readonly hash: string;
  /** With a head list that was fetched, the hash of the log of all lists: the same for everybody, if nobody is singled out. */
  readonly log?: string;
  /** @internal */ readonly taskId_: Bytes;
  /** @internal */ readonly digest_: Bytes;
  /** @internal */ readonly channel_: Channel;
  /** What a new permanent answer costs. @internal */
  readonly cost_: Ratio;
  /** @internal */ readonly lifetime_: Ratio;
  /** The chance of taking part in a period, over 2^53. @internal */
  readonly sampling_: bigint;
  /** Whether reports are taken now. @internal */
  readonly open_: boolean | undefined;
}

/**
 * Compute what a task's clients run, from what a collector served, as text or as plain data.
 *
 * The task must have the id that the page trusts. Its mechanism with all integers follows from the task and, where it has
 * no list of its own, from the head list; what the collector says of it is only compared with that, and refused if unequal.
 */
export async function configure(served: unknown, id: string): Promise<Configuration> {
  try {
    return await computed((typeof served === "string" ? JSON.parse(served) : served) as Served, id);
  } catch (error) {
    if (error instanceof HushqueryError) throw error;
    // Something is missing, or of another type.
    throw new HushqueryError("TaskInvalid", "format");
  }
}

async function computed({ task, configuration, epoch }: Served, id: string): Promise<Configuration> {
  // Browsers offer it to pages over https and on localhost.
  must(crypto.subtle, "Unavailable", "https");
  // The off-switch and what only a collector uses are no part of the id: it may change them.
  const { enabled, ...client } = task.client;
  const { clock_skew, max_body, min_batch, origins, retention, ...collect } = task.collect;
  const taskId = await sha256(utf8(canonical({ ...task, client, collect })));
  wants(hex(taskId) === id && typeof enabled === "boolean", "id");
  must(configuration !== null, "NotReady");

  const { kind, domain: own, highest } = task.task;
  const [n, d] = ratio(client.epsilon);
  const epsilon = reduced(n, d * BigInt(client.records_per_user));
  const wildcard = client.unknown === "wildcard";
  const listed = kind === "searches" || kind === "setting";
  // Only a head list is the collector's to give.
  const given = own?.map((one) => [one].flat()) ?? (listed ? checkedHead(configuration.domain) : []);
  const { description_: description, oracle_: oracle, channel_, cost_, records_: records = given } = await mechanismOf(
    task,
    given.length + Number(wildcard),
    epsilon,
    given,
  );
  const domain: Listed | Unlisted = listed ? { kind, records, wildcard } : kind === "number" ? { kind, highest: highest! } : { kind };
  const channel = channel_ ?? listChannel(domain as Listed, oracle!, description.name === "two-stage");
  const text = canonical({ version: 1, task: id, domain, oracle: description });
  wants(canonical(configuration) === text, "mechanism");
  wants(channel.length_ <= MOST_PAYLOAD, "length");
  const digest = await sha256(utf8(text));
  const share = ratio(client.sampling);
  return {
    task,
    id,
    domain,
    description,
    hash: hex(digest),
    taskId_: taskId,
    digest_: digest,
    channel_: channel,
    cost_: cost_ ?? epsilon,
    lifetime_: ratio(client.lifetime_epsilon),
    sampling_: (share[0] << 53n) / share[1],
    open_: epoch?.takes_reports,
  };
}
