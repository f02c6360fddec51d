/** The integers of every mechanism are those that Python computes, from the number of cells and epsilon alone. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { canonical } from "../src/hash.js";
import { type Ratio, ratio, smallest } from "../src/exact.js";
import { calibrated, chosen, ORACLES } from "../src/mechanisms.js";
import { calibrateFlip, calibrateOnebit } from "../src/onebit.js";
import { calibrateTwoStage } from "../src/two_stage.js";
import { codeOf } from "./helpers.js";

type Integers = Readonly<Record<string, unknown>> | null;

interface Calibrations {
  readonly lists: readonly { readonly k: number; readonly epsilon: string; readonly auto: string | null; readonly oracles: Readonly<Record<string, Integers>> }[];
  readonly two_stage: readonly { readonly urls: readonly number[]; readonly epsilon: string; readonly tight: Integers; readonly paper: Integers }[];
  readonly numbers: readonly { readonly highest: number; readonly buckets: number; readonly bits: number; readonly epsilon: string; readonly onebit: Integers; readonly dbitflip: Integers }[];
}

const golden = JSON.parse(readFileSync(new URL("../../vectors/calibrations_v1.json", import.meta.url), "utf8")) as Calibrations;

/** Return what is calibrated as text, "null" where it is refused as too coarse. */
async function told(make: () => object): Promise<string> {
  let made: object | null = null;
  const code = await codeOf(() => void (made = make()));
  expect(["", "TaskInvalid"]).toContain(code);
  return canonical(made);
}

test("lists, mechanism by mechanism", async () => {
  expect(golden.lists.length).toBeGreaterThan(200);
  expect(Object.keys(golden.lists[0]!.oracles)).toEqual(Object.keys(ORACLES));
  for (const { k, epsilon, oracles } of golden.lists)
    for (const [name, integers] of Object.entries(oracles))
      expect([k, epsilon, await told(() => calibrated(name, k, ratio(epsilon)).description_)]).toEqual([k, epsilon, canonical(integers)]);
});

test("the choice among them", async () => {
  for (const { k, epsilon, auto, oracles } of golden.lists)
    expect([k, epsilon, await told(() => chosen(k, ratio(epsilon)).description_)]).toEqual([k, epsilon, canonical(auto && oracles[auto])]);
  expect(new Set(golden.lists.map((one) => one.auto))).toEqual(new Set(["krr", "subset"]));
  // Some are too coarse for one mechanism and not for another.
  const coarse = golden.lists.filter((one) => Object.values(one.oracles).includes(null));
  expect(coarse.length).toBeGreaterThan(5);
});

test("two stages, with a share that is fixed and without", async () => {
  for (const { urls, epsilon, tight, paper } of golden.two_stage)
    for (const [share, integers] of [[undefined, tight], [[17n, 20n], paper]] as const) {
      const made = () => {
        const { urls: same, ...rest } = calibrateTwoStage(urls, ratio(epsilon), share as Ratio | undefined);
        expect(same).toEqual(urls);
        return { name: "two-stage", ...rest };
      };
      expect([urls.length, epsilon, await told(made)]).toEqual([urls.length, epsilon, canonical(integers)]);
    }
});

test("numbers", async () => {
  for (const { highest, buckets, bits, epsilon, onebit, dbitflip } of golden.numbers) {
    const keep = (): object => ({ keep: calibrateFlip(buckets, bits, ratio(epsilon)).keep });
    const mean = (): object => {
      const { low, unit } = calibrateOnebit(highest, ratio(epsilon));
      return { low, unit };
    };
    expect([highest, epsilon, await told(mean)]).toEqual([highest, epsilon, canonical(onebit)]);
    expect([buckets, epsilon, await told(keep)]).toEqual([buckets, epsilon, canonical(dbitflip)]);
  }
});

test("an epsilon of 0 or above 20, and a list of one cell or too many, are refused", async () => {
  for (const epsilon of [[0n, 1n], [2001n, 100n]] as const) expect(await codeOf(() => chosen(5, epsilon))).toBe("TaskInvalid");
  for (const epsilon of [[0n, 1n], [2001n, 100n]] as const)
    for (const make of [() => calibrateFlip(10, 4, epsilon), () => calibrateOnebit(100, epsilon), () => calibrateTwoStage([1, 2], epsilon)])
      expect(await codeOf(make)).toBe("TaskInvalid");
  for (const k of [0, 1, 2 ** 24 + 1]) expect(await codeOf(() => chosen(k, [1n, 1n]))).toBe("TaskInvalid");
});

test("a search ends at the first integer, wherever it begins", () => {
  for (const first of [-70n, 0n, 3n, 1000n])
    for (const guess of [-300, -70.4, 0, 3, 4.5, 999, 5000]) expect(smallest(guess, (n) => n >= first)).toBe(first);
});
