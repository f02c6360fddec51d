/** Optimised unary encoding: a bit per cell; the own one is a fair coin, every other one is rarely set. */
import { coin, manyCoins, ONE } from "./chance.js";
import { cells, type Description, lieChance, type Oracle, packBits } from "./oracle.js";

export function oue(description: Description): Oracle {
  const k = cells(description);
  const lie = lieChance(description.lie);
  return {
    k_: k,
    length_: Math.ceil(k / 8),
    // Two bits differ between two values: p (1 - q) against (1 - p) q with p = 1/2.
    odds_: [[ONE - lie, lie]],
    randomize_(cell, bits) {
      const vector = manyCoins(lie, k, bits);
      vector[cell] = coin(ONE / 2n, bits);
      return packBits(vector);
    },
  };
}
