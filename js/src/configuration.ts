/** Configuration: a task with its domain and the integers its clients run with, all checked, and its hashes. */
import { type Bytes, hex } from "./bytes.js";
import { type CellOf, cellsOf, type Listed } from "./domain.js";
import { must, wants } from "./errors.js";
import { lossWithin, ratio, type Ratio, reduced } from "./exact.js";
import { canonical, sha256 } from "./hash.js";
import { oracleOf } from "./mechanisms.js";
import type { Description, Oracle } from "./oracle.js";
import { MOST_PAYLOAD } from "./report.js";

/** The task as a collector serves it; numbers such as epsilon are texts `n` or `n/d`, times are seconds. */
export interface Task {
  readonly task: {
    readonly name: string;
    readonly population: string;
    readonly kind: "searches" | "setting";
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
  };
  readonly collect: { readonly time_precision: number; readonly max_body: number };
}

/** What a collector serves for a task: the task, and its configuration once the domain is known. */
export interface Served {
  readonly task: Task;
  readonly configuration: {
    readonly version: number;
    readonly task: string;
    readonly domain: Listed;
    readonly oracle: Description;
  } | null;
}

/** What every client of a task runs. Make it with `configure` or `fetchTask`. */
export interface Configuration {
  readonly task: Task;
  /** The task id: the SHA-256 of the task's canonical form, in hexadecimal digits. */
  readonly id: string;
  /** What can be reported. */
  readonly listed: Listed;
  /** The mechanism: its name and its integers. */
  readonly description: Description;
  /** @internal */ readonly taskId_: Bytes;
  /** The configuration hash. @internal */
  readonly digest_: Bytes;
  /** @internal */ readonly cell_: CellOf;
  /** @internal */ readonly oracle_: Oracle;
  /** What one report may cost. @internal */
  readonly epsilon_: Ratio;
  /** @internal */ readonly lifetime_: Ratio;
  /** The chance of taking part in a period, over 2^53. @internal */
  readonly sampling_: bigint;
}

/**
 * Check what a collector served. The task must have the id that the page trusts; domain and mechanism must be the
 * task's; and the mechanism's integers must lose no more than the task's epsilon, whoever computed them.
 */
export async function configure(served: unknown, id: string): Promise<Configuration> {
  try {
    return await checked(served as Served, id);
  } catch (error) {
    // A part that is missing or no object.
    wants(!(error instanceof TypeError), "a part is missing");
    throw error;
  }
}

async function checked({ task, configuration }: Served, id: string): Promise<Configuration> {
  const { enabled, ...client } = task.client;
  const taskId = await sha256(canonical({ ...task, client }));
  wants(hex(taskId) === id && typeof enabled === "boolean", "it has another id");
  must(configuration !== null, "NotReady", "there is no head list yet");

  // The id vouches for the task; domain and mechanism are the collector's word.
  const { version, task: of, domain: listed, oracle: description } = configuration;
  const { kind, domain } = task.task;
  const { records, wildcard } = listed;
  const share = ratio(client.sampling);
  const [n, d] = ratio(client.epsilon);
  const epsilon = reduced(n, d * BigInt(client.records_per_user));
  wants(version === 1 && of === id && listed.kind === kind && wildcard === (client.unknown === "wildcard"), "domain");
  wants(!domain || canonical(domain) === canonical(kind === "setting" ? records.flat() : records), "domain");
  const oracle = oracleOf(description);
  wants(client.oracle === "auto" || client.oracle === description.name, "mechanism");
  wants(oracle.k_ === records.length + Number(wildcard) && oracle.length_ <= MOST_PAYLOAD, "mechanism");
  wants(oracle.odds_.every(([one, other]) => lossWithin(one, other, epsilon)), "the mechanism loses too much");
  return {
    task,
    id,
    listed,
    description,
    taskId_: taskId,
    digest_: await sha256(canonical(configuration)),
    cell_: cellsOf(listed),
    oracle_: oracle,
    epsilon_: epsilon,
    lifetime_: ratio(client.lifetime_epsilon),
    sampling_: (share[0] << 53n) / share[1],
  };
}
