/** Chances as integers over 2^53: a coin shows heads when the upper 53 bits of a word are below its chance. */
import type { Bits } from "./bits.js";

/** The whole. */
export const ONE = 2n ** 53n;

/** Toss a coin that shows heads with a chance of `numerator` over 2^53. */
export function coin(numerator: bigint, bits: Bits): boolean {
  return fraction(bits) < numerator;
}

/** Toss many coins of one chance: 8 bits decide all but one in 256, and 45 more the rest. */
export function manyCoins(numerator: bigint, n: number, bits: Bits): boolean[] {
  const first = Number(numerator >> 45n);
  const drawn = [...new Uint8Array(bits.words(Math.ceil(n / 8)).buffer)].slice(0, n);
  const more = bits.words(drawn.filter((byte) => byte === first).length).values();
  return drawn.map((byte) =>
    byte === first ? (more.next().value as bigint) >> 19n < BigInt.asUintN(45, numerator) : byte < first,
  );
}

/** Give another of k cells with chance `lie` over 2^53 each, else the cell itself. */
export function respond(cell: number, k: number, lie: bigint, bits: Bits): number {
  // Every `lie` integers stand for one step to another cell; all that remain, for the k-th step, back to the own one.
  return (cell + 1 + Math.min(Number(fraction(bits) / lie), k - 1)) % k;
}

/** Give an integer uniform below 2^53: the upper bits of one word. */
export function fraction(bits: Bits): bigint {
  return (bits.words(1)[0] as bigint) >> 11n;
}
