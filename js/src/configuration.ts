/** Configuration: a task with its domain and the integers its clients run with, all checked, and its hashes. */
import { type Bytes, hex, utf8 } from "./bytes.js";
import { listChannel, type Listed } from "./domain.js";
import { HushqueryError, must, wants } from "./errors.js";
import { atMost, loss, ratio, type Ratio, reduced } from "./exact.js";
import { canonical, sha256 } from "./hash.js";
import { made } from "./mechanisms.js";
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
  /** @internal */ readonly taskId_: Bytes;
  /** @internal */ readonly digest_: Bytes;
  /** @internal */ readonly channel_: Channel;
  /** What a new permanent answer costs. @internal */
  readonly cost_: Ratio;
  /** @internal */ readonly lifetime_: Ratio;
  /** The chance of taking part in a period, over 2^53. @internal */
  readonly sampling_: bigint;
}

/**
 * Check what a collector served, as text or as plain data. The task must have the id that the page trusts; domain and mechanism must be the
 * task's; and the mechanism's integers must lose no more than the task's epsilon, whoever computed them.
 */
export async function configure(served: unknown, id: string): Promise<Configuration> {
  try {
    return await checked((typeof served === "string" ? JSON.parse(served) : served) as Served, id);
  } catch (error) {
    if (error instanceof HushqueryError) throw error;
    // Something is missing, or of another type.
    throw new HushqueryError("TaskInvalid", "format");
  }
}

async function checked({ task, configuration }: Served, id: string): Promise<Configuration> {
  // Browsers offer it to pages over https and on localhost.
  must(crypto.subtle, "Unavailable", "https");
  // The off-switch and what only a collector uses are no part of the id: it may change them.
  const { enabled, ...client } = task.client;
  const { clock_skew, max_body, min_batch, origins, retention, ...collect } = task.collect;
  const taskId = await sha256(utf8(canonical({ ...task, client, collect })));
  wants(hex(taskId) === id && typeof enabled === "boolean", "id");
  must(configuration !== null, "NotReady");

  // The id vouches for the task; domain and mechanism are the collector's word.
  const { version, task: of, domain, oracle: description } = configuration;
  const { kind, domain: own } = task.task;
  const { name } = description;
  const share = ratio(client.sampling);
  const [n, d] = ratio(client.epsilon);
  wants(version === 1 && of === id && domain.kind === kind, "task");
  // Where the task leaves the choice, its head list still says whether it is two-stage.
  const grouped = name === "two-stage";
  const chosen = client.oracle === "auto" && grouped === (task.head?.mode === "paper");
  wants(chosen || client.oracle === name, "mechanism");
  const mechanism = await made(description, task, domain);
  let channel: Channel;
  if (mechanism.randomize_) {
    const { records, wildcard } = domain as Listed;
    // Two-stage has the list in another order, and compares it itself.
    const same = !own || grouped || canonical(own) === canonical(kind === "setting" ? records.flat() : records);
    wants(same && wildcard === (client.unknown === "wildcard"), "domain");
    channel = listChannel(domain as Listed, mechanism, grouped);
  } else channel = mechanism;

  const most = channel.odds_.map(([one, other]) => loss(one, other)).reduce((a, b) => (atMost(a, b) ? b : a));
  const epsilon = reduced(n, d * BigInt(client.records_per_user));
  wants(atMost(most, epsilon) && channel.length_ <= MOST_PAYLOAD, "loss");
  const digest = await sha256(utf8(canonical(configuration)));
  return {
    task,
    id,
    domain,
    description,
    hash: hex(digest),
    taskId_: taskId,
    digest_: digest,
    channel_: channel,
    // RAPPOR's chances are given and not calibrated to epsilon.
    cost_: name === "rappor" ? most : epsilon,
    lifetime_: ratio(client.lifetime_epsilon),
    sampling_: (share[0] << 53n) / share[1],
  };
}
