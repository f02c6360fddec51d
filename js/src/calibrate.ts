/**
 * The integers that a mechanism over a list runs with, from the number of cells and epsilon alone: the same as in Python.
 *
 * A chance is the integer over 2^53 next to the ideal one at which the exact loss is within epsilon. So nobody has to be
 * believed: what a collector serves is compared with this.
 */
import { ONE } from "./chance.js";
import { wants } from "./errors.js";
import { atMost, loss, near, type Ratio, smallest, within } from "./exact.js";
import { PRIME } from "./olh.js";
import { type Description, MOST_CELLS } from "./oracle.js";

/** Compute the smallest chance of each other answer at which the true one is at most e^epsilon times as likely. */
export function lieChance(answers: number, epsilon: Ratio): number {
  const truth = (lie: bigint) => ONE - BigInt(answers - 1) * lie;
  const lie = smallest(2 ** 53 / (grown(epsilon) + answers - 1), (one) => within(truth(one), one, epsilon));
  return spent(lie, truth(lie), lie, epsilon);
}

/** Refuse an epsilon of 0, and one above 20, which is no privacy. */
export function checkedEpsilon(epsilon: Ratio): Ratio {
  wants(epsilon[0] && atMost(epsilon, [20n, 1n]), "epsilon");
  return epsilon;
}

/** Compute e^epsilon, nearly. */
export function grown(epsilon: Ratio): number {
  return Math.exp(near(checkedEpsilon(epsilon)));
}

/** Return a chance if no more than a hundredth of epsilon is left unused, else refuse it as too coarse. */
function spent(chance: bigint, a: bigint, b: bigint, [n, d]: Ratio): number {
  wants(a > b && atMost([99n * n, 100n * d], loss(a, b)), "coarse");
  return Number(chance);
}

/** The integers of a mechanism that turns each of its bits with one chance. */
const coin = (k: number, epsilon: Ratio) => ({ k, lie: lieChance(2, epsilon) });

/** The integers of each mechanism, the simplest first. */
export const CALIBRATED: Readonly<Record<string, (k: number, epsilon: Ratio) => Description>> = {
  krr: (k, epsilon) => ({ k, lie: lieChance(k, epsilon) }),
  hadamard: coin,
  olh(k, epsilon) {
    // e^epsilon to the next whole number, and one more.
    const e = Math.min(grown(epsilon), 65535);
    const g = e < 65535 ? Number(smallest(e, (n) => !within(2n * n + 1n, 2n, epsilon))) + 1 : 65536;
    return { k, g, lie: lieChance(g, epsilon), prime: Number(PRIME) };
  },
  oue: coin,
  subset(k, epsilon) {
    const [cells, e] = [BigInt(k), grown(epsilon)];
    // k/(e^epsilon + 1) to the next whole number, at least 1.
    const size = smallest(k / (e + 1), (n) => within(2n * (cells - n) - 1n, 2n * n + 1n, epsilon)) || 1n;
    const [omega, rest] = [Number(size), cells - size];
    const odds = (lie: bigint) => [(ONE - lie) * rest, lie * size] as const;
    const lie = smallest(2 ** 53 * (1 - (omega * e) / (omega * e + k - omega)), (one) => within(...odds(one), epsilon));
    return { k, omega, truth: spent(ONE - lie, ...odds(lie), epsilon) };
  },
};

/** Refuse what is no number of cells. */
export function cells(k: number): number {
  wants(k >= 2 && k <= MOST_CELLS, "domain");
  return k;
}
