/**
 * What every mechanism has in common: its size, and what a client asks of it.
 *
 * Names that end in `_` are shortened in the bundle.
 */
import type { Bits } from "./bits.js";
import type { Bytes } from "./bytes.js";
import type { Mac } from "./hash.js";

/** What is known of a mechanism's size. */
export interface Sized {
  /** How long every payload is. */
  readonly length_: number;
}

/** A mechanism over a list of cells. */
export interface Oracle extends Sized {
  /** The number of cells. */
  readonly k_: number;
  /** The chance that a report speaks for its own cell, for another given one, and the whole of both. */
  readonly chances_?: readonly [own: bigint, other: bigint, whole: bigint];
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
  /**
   * Do all that takes time; what it gives answers at once. `mac` is keyed with the device's secret, `coins` with what
   * the secret gives for this configuration: a coin is never compared with the chances of another one.
   */
  prepare_(value: V, mac: Mac, coins: Mac, task: Bytes, bits: Bits): Promise<Answers>;
  /** Make the payload of one report from a kept answer; absent: it is the payload. */
  payload_?(kept: Bytes, bits: Bits): Bytes;
}

/** The plain data of a mechanism: its name, its integers. */
export type Description = Readonly<Record<string, any>>;

/** The largest domain. */
export const MOST_CELLS = 2 ** 24;

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
