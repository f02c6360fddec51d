/** Hadamard response: a uniform row of a Hadamard matrix, and the bit of the cell in it, flipped with chance lie. */
import { below } from "./bits.js";
import { little } from "./bytes.js";
import { coin, ONE } from "./chance.js";
import { bytesFor, type Description, type Oracle } from "./oracle.js";

export function hadamard({ k, lie }: Description): Oracle {
  const [each, order] = [BigInt(lie), 2 ** (k - 1).toString(2).length];
  const length = bytesFor(2 * order);
  return {
    k_: k,
    length_: length,
    // Another cell has the same bit in exactly half of the rows.
    chances_: [ONE - each, ONE / 2n, ONE],
    randomize_(cell, bits) {
      const row = below(bits, order);
      let bit = Number(coin(each, bits));
      for (let both = row & cell; both; both &= both - 1) bit ^= 1;
      return little(2 * row + bit, length);
    },
  };
}
