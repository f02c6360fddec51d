/** Subset selection: omega cells that hold the true one with chance truth, in ascending order. */
import { below } from "./bits.js";
import { join, little } from "./bytes.js";
import { coin, ONE } from "./chance.js";
import { bytesFor, type Description, type Oracle, packBits } from "./oracle.js";

export function subset({ k, omega, truth }: Description): Oracle {
  const [width, p, size, others] = [bytesFor(k), BigInt(truth), BigInt(omega), BigInt(k - 1)];
  const length = Math.min(Math.ceil(k / 8), omega * width);
  return {
    k_: k,
    length_: length,
    chances_: [p * others, p * (size - 1n) + (ONE - p) * size, ONE * others],
    randomize_(cell, bits) {
      const kept = coin(p, bits);
      // Floyd's algorithm over the other cells: every set of them is equally likely.
      const taken = new Set<number>();
      for (let last = k - 1 - omega + Number(kept); last < k - 1; last++) {
        const draw = below(bits, last + 1);
        taken.add(taken.has(draw) ? last : draw);
      }
      const set = Array.from(taken, (other) => other + Number(other >= cell));
      if (kept) set.push(cell);
      // Any order that depends on the true cell would give it away.
      set.sort((a, b) => a - b);
      return length < omega * width
        ? packBits(Array.from({ length: k }, (_, i) => set.includes(i)))
        : join(...set.map((one) => little(one, width)));
    },
  };
}
