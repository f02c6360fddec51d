/** k-ary randomised response: the true cell with chance ONE - (k-1) lie, each other one with chance lie. */
import { little } from "./bytes.js";
import { ONE, respond } from "./chance.js";
import { bytesFor, cells, type Description, lieChance, type Oracle } from "./oracle.js";

export function krr(description: Description): Oracle {
  const k = cells(description);
  const lie = lieChance(description.lie, k - 1);
  const length = bytesFor(k);
  return {
    k_: k,
    length_: length,
    odds_: [[ONE - BigInt(k - 1) * lie, lie]],
    randomize_: (cell, bits) => little(respond(cell, k, lie, bits), length),
  };
}
