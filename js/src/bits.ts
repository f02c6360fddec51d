/** Where random bits come from: the browser's secure generator, or in tests a stream that is given. */
import type { Bytes } from "./bytes.js";

/** A source of independent, uniformly random 64-bit words. */
export interface Bits {
  words(n: number): BigUint64Array<ArrayBuffer>;
}

// getRandomValues gives at most 65,536 bytes at once.
const MOST_WORDS = 8192;

/** What every report that leaves a device is made with. */
export const systemBits: Bits = {
  words(n) {
    const out = new BigUint64Array(n);
    for (let at = 0; at < n; at += MOST_WORDS) crypto.getRandomValues(out.subarray(at, at + MOST_WORDS));
    return out;
  },
};

/** Give a few fresh random bytes. */
export function randomBytes(n: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(n));
}

/** Give an integer uniform on 0..limit-1, without modulo bias. */
export function uniform(bits: Bits, limit: bigint): bigint {
  for (;;) {
    // Nine at a time, as Python draws them, so that the same words give the same report in both.
    for (const word of bits.words(9)) if (word < 2n ** 64n - (2n ** 64n % limit)) return word % limit;
  }
}

/** The same for small numbers. */
export function below(bits: Bits, limit: number): number {
  return Number(uniform(bits, BigInt(limit)));
}
