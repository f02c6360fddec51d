/** k-ary randomised response: the true cell with chance ONE - (k-1) lie, each other one with chance lie. */
import { little } from "./bytes.js";
import { ONE, respond } from "./chance.js";
import { bytesFor, type Description, type Oracle } from "./oracle.js";

export function krr({ k, lie }: Description): Oracle {
  const [length, each] = [bytesFor(k), BigInt(lie)];
  return {
    k_: k,
    length_: length,
    chances_: [ONE - BigInt(k - 1) * each, each, ONE],
    randomize_: (cell, bits) => little(respond(cell, k, each, bits), length),
  };
}
