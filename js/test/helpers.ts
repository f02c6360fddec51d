/** What several tests share: given and seeded bits, the golden vectors, a collector that is a function. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Bits } from "../src/bits.js";
import { type Configuration, configure, type Served, type Task } from "../src/configuration.js";
import { canonical, sha256 } from "../src/hash.js";
import type { Listed } from "../src/domain.js";
import { HushqueryError } from "../src/errors.js";
import { ratio } from "../src/exact.js";
import { hex as asHex, utf8 } from "../src/bytes.js";
import type { ClientEntry } from "../src/memo.js";
import { mechanismOf, ORACLES } from "../src/mechanisms.js";
import type { Description, Oracle } from "../src/oracle.js";
import { twoStage } from "../src/two_stage.js";

export function fixture<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`fixtures/${name}`, import.meta.url), "utf8")) as T;
}

export interface TaskVectors {
  readonly task: { readonly served: Task; readonly canonical: string; readonly id: string };
  readonly configuration: { readonly canonical: string; readonly hash: string };
  readonly reports: readonly { readonly answer: unknown; readonly bytes: string; readonly json: Record<string, unknown> }[];
}

export interface Vectors {
  readonly tasks: readonly TaskVectors[];
  readonly refused: readonly { readonly bytes: string; readonly error: string }[];
  readonly macs: {
    readonly secret: string;
    readonly task: string;
    readonly configuration: string;
    readonly memo: readonly { readonly slot: number; readonly cell: number; readonly key: string }[];
    readonly sampling: readonly { readonly period: number; readonly number: string }[];
  };
  readonly clients: readonly ClientVectors[];
}

export interface ClientVectors {
  readonly task: string;
  readonly configuration: string;
  readonly secret: string;
  readonly values: readonly {
    readonly value: readonly [string | number, string?];
    readonly class: number | string;
    readonly memo_key: string;
    readonly words: readonly string[];
    readonly kept: string;
    readonly reports: readonly { readonly payload: string; readonly words: readonly string[] }[];
  }[];
}

export function vectors(): Vectors {
  return JSON.parse(readFileSync(new URL("../../vectors/report_v1.json", import.meta.url), "utf8")) as Vectors;
}

export function unhex(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text.match(/../g) ?? [], (two) => Number.parseInt(two, 16));
}

/** Words that were written down, 16 hexadecimal digits each; asking for more is an error. */
export class GivenBits implements Bits {
  readonly #left: bigint[];

  constructor(words: string | readonly bigint[]) {
    this.#left = typeof words === "string" ? (words.match(/.{16}/g) ?? []).map((one) => BigInt(`0x${one}`)) : [...words];
  }

  get left(): number {
    return this.#left.length;
  }

  words(n: number): BigUint64Array<ArrayBuffer> {
    if (n > this.#left.length) throw new Error("no words are left");
    return BigUint64Array.from(this.#left.splice(0, n));
  }
}

/** Repeatable bits for tests: splitmix64. */
export class SeededBits implements Bits {
  #state: bigint;

  constructor(seed: number) {
    this.#state = BigInt(seed) * 0x1234567n;
  }

  words(n: number): BigUint64Array<ArrayBuffer> {
    return BigUint64Array.from({ length: n }, () => {
      this.#state = BigInt.asUintN(64, this.#state + 0x9e3779b97f4a7c15n);
      let z = this.#state;
      z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
      z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
      return z ^ (z >> 31n);
    });
  }
}

/** What a collector serves for one of the golden tasks, with changes. */
export function served(vector: TaskVectors, client: object = {}, task: object = {}): Served {
  const plain = vector.task.served;
  return {
    task: { ...plain, client: { ...plain.client, ...client }, task: { ...plain.task, ...task } },
    configuration: JSON.parse(vector.configuration.canonical) as object,
  } as unknown as Served;
}

/** The keys that are no part of a task's id, and no others. */
export const UNHASHED = [
  ["client", "enabled"],
  ["collect", "clock_skew"],
  ["collect", "max_body"],
  ["collect", "min_batch"],
  ["collect", "origins"],
  ["collect", "retention"],
] as const;

/** Give the one text of a served task that is hashed. */
export function hashedText(task: Task): string {
  const left = structuredClone(task) as unknown as Record<string, Record<string, unknown>>;
  for (const [part, key] of UNHASHED) delete left[part]![key];
  return canonical(left);
}

/** Give a changed task its own id, in the configuration too. */
export async function renamed(given: Served): Promise<{ readonly served: Served; readonly id: string }> {
  const id = asHex(await sha256(utf8(hashedText(given.task))));
  return { id, served: { ...given, configuration: given.configuration && { ...given.configuration, task: id } } };
}

/** Return a changed task with the mechanism that an honest collector would serve for it. */
async function recalibrated(given: Served): Promise<Served> {
  const { records_per_user: slots, epsilon, unknown } = given.task.client;
  const [n, d] = ratio(epsilon);
  const { records = [] } = given.configuration!.domain as Partial<Listed>;
  const { description_: oracle } = await mechanismOf(given.task, records.length + Number(unknown === "wildcard"), [n, d * BigInt(slots)], records);
  return { ...given, configuration: { ...given.configuration!, oracle } };
}

/** Make a mechanism over a list. */
export function oracleOf(description: Description): Oracle {
  return (ORACLES[description.name] ?? twoStage)(description);
}

/** Two chances of one outcome under two values, for each kind of outcome of a mechanism over a list. */
export function oddsOf({ name, k = 2, g, omega, truth, lie, urls, query_lie, url_lies }: Description): (readonly [bigint, bigint])[] {
  const response = (answers: number, each: number) => [2n ** 53n - BigInt(answers - 1) * BigInt(each), BigInt(each)] as const;
  if (name === "krr") return [response(k, lie)];
  if (name === "olh") return [response(g, lie)];
  // A given set has p / C(k-1, omega-1) if it holds the true cell, else (1-p) / C(k-1, omega).
  if (name === "subset") return [[BigInt(truth) * BigInt(k - omega), (2n ** 53n - BigInt(truth)) * BigInt(omega)]];
  if (name !== "two-stage") return [response(2, lie)];
  const [query, elsewhere] = response(urls.length + 1, query_lie);
  return [...new Set<number>([1, ...urls.map((count: number) => count + 1)])].flatMap((size) => {
    // The ways to one cell, times the URLs of its query: itself, another URL of the query, or from another query.
    const [own, beside] = size > 1 ? response(size, new Map<number, number>(url_lies).get(size)!) : [2n ** 53n, 2n ** 53n];
    const ways = [query * own * BigInt(size), query * beside * BigInt(size), elsewhere * 2n ** 53n];
    return [[ways[0]!, ways[1]!], [ways[0]!, ways[2]!], [ways[1]!, ways[2]!]] as const;
  });
}

/** Configure a golden task with changes. */
export async function configured(vector: TaskVectors, client: object = {}, task: object = {}): Promise<Configuration> {
  const { served: changed, id } = await renamed(await recalibrated(served(vector, client, task)));
  return configure(changed, id);
}

/** Give the code of the error that something throws. */
export async function codeOf(work: () => unknown): Promise<string> {
  try {
    await work();
  } catch (error) {
    if (error instanceof HushqueryError) return error.code;
    throw error;
  }
  return "";
}

// biome-ignore lint: a document to be broken
export type Loose = any;

/** A device of vectors/state_v1.json: its task as it is served, what it reported, and what it kept. */
export interface Device {
  readonly id: string;
  readonly task: Task;
  readonly configuration: Loose;
  readonly head: readonly (readonly string[])[] | null;
  readonly value: readonly (string | number)[];
  readonly time: number;
  readonly js: Loose;
}

export function devices(): readonly Device[] {
  return (JSON.parse(readFileSync(new URL("../../vectors/state_v1.json", import.meta.url), "utf8")) as { devices: Device[] }).devices;
}

/** Return what a device had kept, as IndexedDB has it. */
export function entryOf(device: Device): ClientEntry {
  const bytes = (part: Loose): Loose =>
    part && typeof part === "object" ? ("hex" in part ? unhex(part.hex) : Object.fromEntries(Object.entries(part).map(([key, one]) => [key, bytes(one)]))) : part;
  return bytes(device.js) as ClientEntry;
}

/** Return what an honest collector serves for a device's task, so many periods after its report. */
export function honest(device: Device, after = 0): Loose {
  const { id, task, configuration } = device;
  const hash = createHash("sha256").update(canonical(configuration)).digest("hex");
  const epoch = Math.floor(device.time / 86_400);
  const phase = { number: epoch + after, phase: "reports_open", takes_records: false, takes_reports: true };
  // One list was there before; the present one stays for as long as it takes.
  const lists = device.head ? [[epoch - 9, "0".repeat(64)], ...Array.from({ length: after + 1 }, (_, i) => [epoch + i, hash])] : [];
  return structuredClone({ id, task, epoch: phase, configuration, configuration_hash: hash, optin: null, releases: [], lists });
}
