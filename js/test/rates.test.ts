/** Conformance: how often each payload comes out, against the closed form of its chance. */
import { describe, expect, test } from "vitest";
import { below, systemBits } from "../src/bits.js";
import { hex } from "../src/bytes.js";
import { coin, manyCoins, ONE } from "../src/chance.js";
import { bucketOf } from "../src/olh.js";
import type { Description } from "../src/oracle.js";
import { unpack } from "../src/reading.js";
import { GivenBits, oracleOf, SeededBits } from "./helpers.js";

const DRAWS = 40_000;

/** The share of a whole that a chance is. */
const share = (chance: number | bigint): number => Number(chance) / Number(ONE);

/** Pearson's statistic, minus what it exceeds with a chance of at most 1e-9 (Laurent and Massart 2000, Lemma 1). */
function excess(counts: ReadonlyMap<string, number>, law: ReadonlyMap<string, number>): number {
  const n = [...counts.values()].reduce((sum, count) => sum + count, 0);
  let statistic = [...counts.keys()].every((outcome) => law.has(outcome)) ? 0 : Number.POSITIVE_INFINITY;
  for (const [outcome, chance] of law) statistic += ((counts.get(outcome) ?? 0) - n * chance) ** 2 / (n * chance);
  const [freedom, t] = [law.size - 1, Math.log(1e9)];
  return statistic - (freedom + 2 * Math.sqrt(freedom * t) + 2 * t);
}

function counted(n: number, draw: () => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (let i = 0; i < n; i++) {
    const outcome = draw();
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  }
  return counts;
}

type Law = (description: Description, cell: number) => Map<string, number>;

const cellLaw: Law = ({ k, lie }, cell) =>
  new Map(Array.from({ length: k }, (_, i) => [`${i}`, i === cell ? 1 - (k - 1) * share(lie) : share(lie)]));

const oueLaw: Law = ({ k, lie }, cell) =>
  new Map(
    Array.from({ length: 2 ** k }, (_, vector) => {
      let chance = 1;
      for (let i = 0; i < k; i++) {
        const rate = i === cell ? 0.5 : share(lie);
        chance *= (vector >> i) & 1 ? rate : 1 - rate;
      }
      return [hex(Uint8Array.of(vector)), chance];
    }),
  );

const hadamardLaw: Law = ({ k, lie }, cell) => {
  const order = 2 ** Math.ceil(Math.log2(k));
  const law = new Map<string, number>();
  for (let row = 0; row < order; row++)
    for (const bit of [0, 1]) {
      const true_ = (row & cell).toString(2).replace(/0/g, "").length % 2;
      law.set(`${row},${bit}`, (bit === true_ ? 1 - share(lie) : share(lie)) / order);
    }
  return law;
};

const pairLaw: Law = ({ k, truth }, cell) => {
  const law = new Map<string, number>();
  for (let a = 0; a < k; a++)
    for (let b = a + 1; b < k; b++) {
      const holds = a === cell || b === cell;
      law.set(`${a},${b}`, holds ? share(truth) / (k - 1) : (1 - share(truth)) / (((k - 1) * (k - 2)) / 2));
    }
  return law;
};

const twoStageLaw: Law = ({ urls, query_lie, url_lies }, cell) => {
  const law = new Map<string, number>();
  const lies = new Map<number, number>(url_lies);
  const sizes = [...urls.map((count: number) => count + 1), 1] as number[];
  let start = 0;
  for (const size of sizes) {
    const lie = share(lies.get(size) ?? 0);
    const own = cell >= start && cell < start + size;
    for (let i = start; i < start + size; i++) {
      const inside = i === cell ? 1 - (size - 1) * lie : lie;
      law.set(`${i}`, own ? (1 - (sizes.length - 1) * share(query_lie)) * inside : share(query_lie) / size);
    }
    start += size;
  }
  return law;
};

const eighth = 2 ** 50;
const CASES: readonly (readonly [Description, Law, string])[] = [
  [{ name: "krr", k: 5, lie: eighth }, cellLaw, "lie"],
  [{ name: "oue", k: 4, lie: eighth + 2 ** 44 }, oueLaw, "lie"],
  [{ name: "hadamard", k: 3, lie: eighth }, hadamardLaw, "lie"],
  [{ name: "subset", k: 6, omega: 2, truth: 6 * eighth }, pairLaw, "truth"],
  [{ name: "two-stage", k: 7, urls: [2, 1, 0], query_lie: eighth, url_lies: [[2, 2 * eighth], [3, eighth]] }, twoStageLaw, "query_lie"],
];

describe.each(CASES)("%o", (description, law, integer) => {
  test.each(Array.from({ length: description.k as number }, (_, cell) => cell))("the law of cell %i", async (cell) => {
    const oracle = await oracleOf(description);
    const bits = new SeededBits(100 + cell);
    const counts = counted(DRAWS, () => {
      const answer = unpack(description, oracle.randomize_(cell, bits));
      return answer instanceof Uint8Array ? hex(answer) : String(answer);
    });
    expect(law(description, cell).size).toBeGreaterThan(oracle.k_ - 1);
    expect(excess(counts, law(description, cell))).toBeLessThan(0);
    // An integer that is a fifth off would be found.
    const off = { ...description, [integer]: (description[integer] as number) * 1.2 };
    expect(excess(counts, law(off, cell))).toBeGreaterThan(0);
  });
});

describe("olh", async () => {
  const description = { name: "olh", k: 100, g: 4, lie: eighth, prime: 2 ** 31 - 1 };
  const oracle = await oracleOf(description);
  const bits = new SeededBits(7);
  const drawn = Array.from({ length: DRAWS }, () => unpack(description, oracle.randomize_(12, bits)) as [bigint, number]);

  test("the bucket is that of the cell, or another one", () => {
    const steps = drawn.values();
    const counts = counted(DRAWS, () => {
      const [seed, bucket] = steps.next().value!;
      return `${(bucket - bucketOf(seed, 12, 4) + 4) % 4}`;
    });
    expect(excess(counts, cellLaw({ k: 4, lie: eighth }, 0))).toBeLessThan(0);
    expect(excess(counts, cellLaw({ k: 4, lie: eighth * 1.2 }, 0))).toBeGreaterThan(0);
  });

  test("seeds are uniform, and the buckets of two cells independent", () => {
    const seeds = drawn.values();
    const counts = counted(DRAWS, () => {
      const [seed] = seeds.next().value!;
      return `${seed >> 59n} ${bucketOf(seed, 12, 4)} ${bucketOf(seed, 99, 4)}`;
    });
    const law = new Map<string, number>();
    // PRIME^2 is 2^62 - 2^32 + 1, and PRIME no multiple of 4: what is ignored here is below 1e-9 of a chance.
    for (let a = 0; a < 8; a++) for (let b = 0; b < 4; b++) for (let c = 0; c < 4; c++) law.set(`${a} ${b} ${c}`, 1 / 128);
    expect(excess(counts, law)).toBeLessThan(0);
  });

  test("the example of the documentation", () => {
    expect(bucketOf(5n * (2n ** 31n - 1n) + 7n, 12, 4)).toBe(0);
    // Where the second bucket begins: 4 b >= PRIME.
    expect([536_870_911n, 536_870_912n].map((b) => bucketOf(b, 12, 4))).toEqual([0, 1]);
    expect(bucketOf((2n ** 31n - 1n) ** 2n - 1n, 99, 4)).toBe(Number(((2147483646n * 99n + 2147483646n) % 2147483647n) * 4n / 2147483647n));
  });
});

describe("coins", () => {
  test("heads if the upper 53 bits are below the chance, to the last unit", () => {
    const chance = 1_234_567n;
    expect(coin(chance, new GivenBits([(chance << 11n) - 1n]))).toBe(true);
    expect(coin(chance, new GivenBits([chance << 11n]))).toBe(false);
    expect(coin(ONE, new GivenBits([2n ** 64n - 1n]))).toBe(true);
    expect(coin(0n, new GivenBits([0n]))).toBe(false);
  });

  test("a lie ends at its last unit", async () => {
    const { randomize_: randomize } = await oracleOf({ name: "krr", k: 3, lie: eighth });
    const after = (fraction: bigint) => randomize(1, new GivenBits([fraction << 11n]))[0];
    const lie = BigInt(eighth);
    expect([0n, lie - 1n, lie, 2n * lie - 1n, 2n * lie, ONE - 1n].map(after)).toEqual([2, 2, 0, 0, 1, 1]);
  });

  test("many coins decide ties by 45 more bits", () => {
    const chance = (3n << 45n) + 9n;
    const first = 0x0304020003030303n; // little-endian bytes: 3 3 3 3 0 2 4 3
    const more = [9n, 8n, 0n, 10n, 2n ** 45n - 1n].map((rest) => rest << 19n);
    expect(manyCoins(chance, 8, new GivenBits([first, ...more]))).toEqual([false, true, true, false, true, true, false, false]);
  });

  test("uniform draws leave out the words that would favour small numbers", () => {
    const most = 2n ** 64n - (2n ** 64n % 3n);
    expect(below(new GivenBits([most, most - 1n, 0n, 0n, 0n, 0n, 0n, 0n, 0n]), 3)).toBe(2);
    expect(excess(counted(DRAWS, ((bits) => () => `${below(bits, 3)}`)(new SeededBits(5))), new Map([["0", 1 / 3], ["1", 1 / 3], ["2", 1 / 3]]))).toBeLessThan(0);
  });

  test("the browser's generator gives as many words as asked for", () => {
    const words = systemBits.words(20_000);
    expect(new Set(words).size).toBe(20_000);
  });
});
