/** Optimised local hashing: an exactly pairwise independent hash into g buckets, then k-ary response over these. */
import { uniform } from "./bits.js";
import { join, little } from "./bytes.js";
import { ONE, respond } from "./chance.js";
import { bytesFor, type Description, type Oracle } from "./oracle.js";

/** The modulus of the hash. */
export const PRIME = 2n ** 31n - 1n;

/** Give the bucket of a cell under the seed a * PRIME + b: floor(((a cell + b) mod PRIME) g / PRIME). */
export function bucketOf(seed: bigint, cell: number, g: number): number {
  return Number(((((seed / PRIME) * BigInt(cell) + seed) % PRIME) * BigInt(g)) / PRIME);
}

export function olh({ k, g, lie }: Description): Oracle {
  const [width, each, whole] = [bytesFor(g), BigInt(lie), PRIME * PRIME];
  const [buckets, truth] = [BigInt(g), ONE - BigInt(g - 1) * each];
  // Of PRIME hashes so many buckets have one more than the others; how often two cells share a bucket.
  const [full, wide] = [PRIME / buckets, PRIME % buckets];
  const same = wide * (full + 1n) ** 2n + (buckets - wide) * full ** 2n;
  return {
    k_: k,
    length_: 8 + width,
    // The seed is uniform whatever the value is, so all of the loss is in the bucket.
    chances_: [truth * whole, same * truth + (whole - same) * each, ONE * whole],
    randomize_(cell, bits) {
      const seed = uniform(bits, whole);
      return join(little(seed, 8), little(respond(bucketOf(seed, cell, g), g, each, bits), width));
    },
  };
}
