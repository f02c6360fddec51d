/** Fractions and the logarithm that decides whether a mechanism may be run. */
import { expect, test } from "vitest";
import { atMost, loss, ratio, type Ratio, reduced, roundUp, sum } from "../src/exact.js";
import { codeOf, fixture } from "./helpers.js";

const lossWithin = (a: bigint, b: bigint, epsilon: Ratio) => atMost(loss(a, b), epsilon);

interface Numbers {
  readonly losses: readonly { readonly a: string; readonly b: string; readonly below: string; readonly loss: string }[];
  readonly sums: readonly { readonly a: string; readonly b: string; readonly sum: string }[];
}

const { losses, sums } = fixture<Numbers>("draws.json");

test("a loss is the one that Python states, and not below the true one", () => {
  expect(losses.length).toBeGreaterThan(50);
  for (const { a, b, below, loss: stated } of losses) {
    for (const [one, other] of [[BigInt(a), BigInt(b)], [BigInt(b), BigInt(a)]] as const) {
      expect(reduced(...loss(one, other))).toEqual(ratio(stated));
      expect(lossWithin(one, other, ratio(below))).toBe(false);
    }
  }
});

test("no loss is nearly 0, and what is impossible for one value is infinite", () => {
  expect(lossWithin(7n, 7n, [1n, 10n ** 50n])).toBe(true);
  expect(lossWithin(7n, 0n, [10n ** 9n, 1n])).toBe(false);
  expect(lossWithin(0n, 0n, [10n ** 9n, 1n])).toBe(false);
  expect(lossWithin(-1n, 7n, [10n ** 9n, 1n])).toBe(false);
});

test("sums are those of Python", () => {
  for (const one of sums) expect(sum(ratio(one.a), ratio(one.b)).join("/").replace(/\/1$/, "")).toBe(one.sum);
});

test("fractions are read in the form in which tasks write them", async () => {
  expect(ratio("4")).toEqual([4n, 1n]);
  expect(ratio("1/3")).toEqual([1n, 3n]);
  for (const bad of ["", "-1", "1/0", "1/", "0.5", "1e3", " 1", "1/2/3", 4, null, undefined])
    expect(await codeOf(() => ratio(bad))).toBe("TaskInvalid");
});

test("what is shown is never below what was spent", () => {
  expect(roundUp([22n, 5n])).toBe(4.4);
  expect(roundUp([1n, 3n])).toBe(0.333333334);
  expect(roundUp([0n, 1n])).toBe(0);
  expect(roundUp([2473854946935173n, 2251799813685248n])).toBe(1.098612289);
  expect(atMost([1n, 3n], [333333334n, 10n ** 9n])).toBe(true);
});
