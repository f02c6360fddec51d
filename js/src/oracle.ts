/**
 * What every mechanism has in common: checked integers, and a channel from the cells 0..k-1 to payloads.
 *
 * Names that end in `_` are shortened in the bundle.
 */
import type { Bits } from "./bits.js";
import type { Bytes } from "./bytes.js";
import { ONE } from "./chance.js";
import { wants } from "./errors.js";

/** Two chances of one outcome under two values, over the same whole. */
export type Odds = readonly [bigint, bigint];

/** A mechanism with its integers. */
export interface Oracle {
  /** The number of cells. */
  readonly k_: number;
  /** How long every payload is. */
  readonly length_: number;
  /** For each kind of outcome the largest and the smallest chance; epsilon is the largest |ln| of their ratios. */
  readonly odds_: readonly Odds[];
  /** Randomise a cell and give the payload. */
  readonly randomize_: (cell: number, bits: Bits) => Bytes;
}

/** The plain data of a mechanism: its name, its number of cells, its integers. */
// biome-ignore lint: what a collector serves has any type until it is checked
export type Description = Readonly<Record<string, any>>;

/** Read one whole number of a description. */
export function whole(value: unknown, least: number, most: number): number {
  wants(Number.isInteger(value) && (value as number) >= least && (value as number) <= most, "integers");
  return value as number;
}

/** Read the chance of each of so many lies; what remains for the truth must be above 0. */
export function lieChance(value: unknown, lies: number): bigint {
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

/** Write a set of cells as a bit per cell: bit i mod 8 of byte i div 8. */
export function packBits(k: number, set: readonly number[]): Bytes {
  const out = new Uint8Array(Math.ceil(k / 8));
  for (const cell of set) out[cell >> 3]! |= 1 << (cell & 7);
  return out;
}
