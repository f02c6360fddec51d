/** Exact fractions, and a logarithm that is certainly not below the true one. */
import { wants } from "./errors.js";

/** A fraction of two integers, n/d with d > 0. */
export type Ratio = readonly [n: bigint, d: bigint];

/** Read `n` or `n/d`, as the canonical form of a task writes numbers. */
export function ratio(text: unknown): Ratio {
  wants(typeof text === "string" && /^\d+(\/0*[1-9]\d*)?$/.test(text), "number");
  const [n, d = 1] = text.split("/");
  return [BigInt(n as string), BigInt(d)];
}

/** Give n/d in lowest terms. */
export function reduced(n: bigint, d: bigint): Ratio {
  let [a, b] = [n, d];
  while (b) [a, b] = [b, a % b];
  return [n / a, d / a];
}

/** Add two fractions. */
export function sum(a: Ratio, b: Ratio): Ratio {
  return reduced(a[0] * b[1] + b[0] * a[1], a[1] * b[1]);
}

/** Say whether a <= b. */
export function atMost(a: Ratio, b: Ratio): boolean {
  return a[0] * b[1] <= b[0] * a[1];
}

/** Give the decimal with nine places that is next above a fraction. */
export function roundUp([n, d]: Ratio): number {
  return Number((n * 1_000_000_000n + d - 1n) / d) / 1e9;
}

// The logarithm is computed with so many binary digits behind the point.
const DIGITS = 200n;
// Each of a few hundred steps loses less than one unit, times the power of two, which is below 2^13.
const SLACK = 1n << 24n;
// What is lost is a multiple of 10^-30, rounded up, with a ten-billionth of that to spare: as Python states it.
const GRID = 10n ** 30n;
const SPARE = (1n << DIGITS) / 10n ** 10n;

const HALF_LN2 = artanh(1n, 3n);

/** Compute |ln(a/b)| of two chances of one outcome, rounded up to 30 decimal places, certainly not too small; 1/0 is infinite. */
export function loss(a: bigint, b: bigint): Ratio {
  if (a < b) [a, b] = [b, a];
  if (b <= 0n) return [1n, 0n];
  if (a === b) return [0n, 1n];
  // a/b = 2^power * y with 1 <= y < 2, and ln y = 2 artanh((y - 1)/(y + 1)).
  let power = 0n;
  for (; b << 1n <= a; b <<= 1n) power++;
  const ln = 2n * (artanh(a - b, a + b) + power * HALF_LN2) + SLACK;
  return [-(-(ln * GRID + SPARE) >> DIGITS), GRID];
}

/** artanh(n/d) for n/d <= 1/3, rounded down a little: z + z^3/3 + z^5/5 + ...; (1/9)^70 is below 2^-220. */
function artanh(n: bigint, d: bigint): bigint {
  const z = (n << DIGITS) / d;
  let total = 0n;
  for (let [term, i] = [z, 1n]; i < 141n; i += 2n) {
    total += term / i;
    term = (term * z * z) >> (2n * DIGITS);
  }
  return total;
}

/** Return a fraction as a double, near enough to begin a search with. */
export function near([n, d]: Ratio): number {
  return Number((n << 64n) / d) / 2 ** 64;
}

/** Return whether the first of two chances of one outcome is at most e^epsilon times the second. */
export function within(a: bigint, b: bigint, epsilon: Ratio): boolean {
  return a <= b || atMost(loss(a, b), epsilon);
}

/** Find the smallest integer at which a condition holds that goes on to hold, looking near a guess first. */
export function smallest(guess: number, holds: (n: bigint) => boolean): bigint {
  let [low, high] = [BigInt(Math.round(guess)) - 1n, BigInt(Math.round(guess))];
  for (let step = 1n; holds(low); step *= 2n) [low, high] = [low - step, low];
  for (let step = 1n; !holds(high); step *= 2n) [low, high] = [high, high + step];
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (holds(middle)) high = middle;
    else low = middle;
  }
  return high;
}
