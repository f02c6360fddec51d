/** What several tests share: given and seeded bits, the golden vectors, a collector that is a function. */
import { readFileSync } from "node:fs";
import type { Bits } from "../src/bits.js";
import { type Configuration, configure, type Served, type Task, type Unlisted } from "../src/configuration.js";
import { canonical, sha256 } from "../src/hash.js";
import { HushqueryError } from "../src/errors.js";
import { hex as asHex, utf8 } from "../src/bytes.js";
import { made } from "../src/mechanisms.js";
import type { Description, Oracle } from "../src/oracle.js";

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

/** Make a mechanism over a list. */
export async function oracleOf(description: Description): Promise<Oracle> {
  return (await made(description, { task: {} } as Task, {} as Unlisted)) as Oracle;
}

/** Configure a golden task with changes. */
export async function configured(vector: TaskVectors, client: object = {}, task: object = {}): Promise<Configuration> {
  const { served: changed, id } = await renamed(served(vector, client, task));
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
