/** Subset selection: omega cells that hold the true one with chance truth, in ascending order. */
import { below } from "./bits.js";
import { join, little } from "./bytes.js";
import { coin, ONE } from "./chance.js";
import { bytesFor, cells, type Description, lieChance, type Oracle, packBits, whole } from "./oracle.js";

export function subset(description: Description): Oracle {
  const k = cells(description);
  const omega = whole(description.omega, 1, k - 1);
  const truth = lieChance(description.truth);
  const width = bytesFor(k);
  const length = Math.min(Math.ceil(k / 8), omega * width);
  return {
    k_: k,
    length_: length,
    // A given set has p / C(k-1, omega-1) if it holds the true cell, else (1-p) / C(k-1, omega).
    odds_: [[truth * BigInt(k - omega), (ONE - truth) * BigInt(omega)]],
    randomize_(cell, bits) {
      const kept = coin(truth, bits);
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
