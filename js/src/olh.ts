/** Optimised local hashing: an exactly pairwise independent hash into g buckets, then k-ary response over these. */
import { uniform } from "./bits.js";
import { join, little } from "./bytes.js";
import { ONE, respond } from "./chance.js";
import { bytesFor, cells, type Description, lieChance, type Oracle, whole } from "./oracle.js";

/** The modulus of the hash. */
export const PRIME = 2n ** 31n - 1n;

/** Give the bucket of a cell under the seed a * PRIME + b: floor(((a cell + b) mod PRIME) g / PRIME). */
export function bucketOf(seed: bigint, cell: number, g: number): number {
  return Number(((((seed / PRIME) * BigInt(cell) + seed) % PRIME) * BigInt(g)) / PRIME);
}

export function olh(description: Description): Oracle {
  const k = cells(description);
  const g = whole(description.g, 2, 65536);
  const lie = lieChance(description.lie, g - 1);
  whole(description.prime, Number(PRIME), Number(PRIME));
  const width = bytesFor(g);
  return {
    k_: k,
    length_: 8 + width,
    // The seed is uniform whatever the value is, so all of the loss is in the bucket.
    odds_: [[ONE - BigInt(g - 1) * lie, lie]],
    randomize_(cell, bits) {
      const seed = uniform(bits, PRIME * PRIME);
      return join(little(seed, 8), little(respond(bucketOf(seed, cell, g), g, lie, bits), width));
    },
  };
}
