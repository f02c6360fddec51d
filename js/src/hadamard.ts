/** Hadamard response: a uniform row of a Hadamard matrix, and the bit of the cell in it, flipped with chance lie. */
import { below } from "./bits.js";
import { little } from "./bytes.js";
import { coin, ONE } from "./chance.js";
import { bytesFor, cells, type Description, lieChance, type Oracle } from "./oracle.js";

export function hadamard(description: Description): Oracle {
  const k = cells(description);
  const lie = lieChance(description.lie);
  const order = 2 ** (k - 1).toString(2).length;
  const length = bytesFor(2 * order);
  return {
    k_: k,
    length_: length,
    odds_: [[ONE - lie, lie]],
    randomize_(cell, bits) {
      const row = below(bits, order);
      let bit = Number(coin(lie, bits));
      for (let both = row & cell; both; both &= both - 1) bit ^= 1;
      return little(2 * row + bit, length);
    },
  };
}
