/**
 * What every mechanism has in common: checked integers, and what a client asks of it.
 *
 * Names that end in `_` are shortened in the bundle.
 */
import type { Bits } from "./bits.js";
import type { Bytes } from "./bytes.js";
import { ONE } from "./chance.js";
import { wants } from "./errors.js";
import type { Mac } from "./hash.js";

/** Two chances of one outcome under two values, over the same whole. */
export type Odds = readonly [bigint, bigint];

/** What is known of a mechanism's privacy and size. */
export interface Sized {
  /** How long every payload is. */
  readonly length_: number;
  /** For each kind of outcome chances of it; epsilon is the largest |ln| of their ratios. */
  readonly odds_: readonly Odds[];
}

/** A mechanism over a list of cells. */
export interface Oracle extends Sized {
  /** The number of cells. */
  readonly k_: number;
  /** Randomise a cell and give the payload. */
  readonly randomize_: (cell: number, bits: Bits) => Bytes;
}

/** Answers of one value on one device. */
export interface Answers {
  /** Names the permanent answer: values of one class share it. */
  readonly class_: Bytes;
  /** Draw the permanent answer. */
  readonly answer_: () => Bytes;
  /** Draw the answer that says nothing: its law is the same whatever the device's values are. */
  readonly empty_: () => Bytes;
}

/** A mechanism as a client uses it. */
export interface Channel<V = unknown> extends Sized {
  /** Check a value; the errors never show it. */
  value_(value: unknown, url: unknown): V;
  /** Do all that takes time; what it gives answers at once. `mac` is keyed with the device's secret. */
  prepare_(value: V, mac: Mac, task: Bytes, bits: Bits): Promise<Answers>;
  /** Make the payload of one report from a kept answer; absent: it is the payload. */
  payload_?(kept: Bytes, bits: Bits): Bytes;
}

/** The plain data of a mechanism: its name, its integers. What a collector serves has any type until it is checked. */
export type Description = Readonly<Record<string, any>>;

/** Read one whole number of a description. */
export function whole(value: unknown, least: number, most: number): number {
  wants(Number.isInteger(value) && (value as number) >= least && (value as number) <= most, "integers");
  return value as number;
}

/** Read the chance of each of so many lies; what remains for the truth must be above 0. */
export function lieChance(value: unknown, lies = 1): bigint {
  return BigInt(whole(value, 1, (Number(ONE) - 1) / lies));
}

/** The largest domain. */
export const MOST_CELLS = 2 ** 24;

/** Read the number of cells. */
export function cells(description: Description): number {
  return whole(description.k, 2, MOST_CELLS);
}

/** Say how many bytes hold every integer below a limit. */
export function bytesFor(limit: number | bigint): number {
  return Math.ceil((BigInt(limit) - 1n).toString(2).length / 8);
}

/** Write bits: bit i in bit i mod 8 of byte i div 8. */
export function packBits(bits: readonly boolean[]): Bytes {
  const out = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((set, i) => (out[i >> 3]! |= Number(set) << (i & 7)));
  return out;
}
