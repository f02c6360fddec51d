/** Optimised unary encoding: a bit per cell; the own one is a fair coin, every other one is rarely set. */
import { coin, manyCoins, ONE } from "./chance.js";
import { type Description, type Oracle, packBits } from "./oracle.js";

export function oue({ k, lie }: Description): Oracle {
  const each = BigInt(lie);
  return {
    k_: k,
    length_: Math.ceil(k / 8),
    chances_: [ONE / 2n, each, ONE],
    randomize_(cell, bits) {
      const vector = manyCoins(each, k, bits);
      vector[cell] = coin(ONE / 2n, bits);
      return packBits(vector);
    },
  };
}
