/**
 * Every randomizer, held to its integers: words at the boundary of every chance decide exactly as the integers say.
 * Expected answers are computed here from the integers alone; tests/local/test_exact_words.py does the same for Python.
 */
import { describe, expect, test, vi } from "vitest";
import { randomBytes, systemBits } from "../src/bits.js";
import { hex } from "../src/bytes.js";
import { coin, manyCoins, ONE } from "../src/chance.js";
import { PRIME } from "../src/olh.js";
import type { Description } from "../src/oracle.js";
import { unpack } from "../src/reading.js";
import { GivenBits, oracleOf } from "./helpers.js";

const MOST = ONE - 1n;
const SPARE = [0n, 2n ** 11n - 1n];
const zeros = (n: number): bigint[] => Array.from({ length: n }, () => 0n);
const word = (fraction: bigint, spare = 0n): bigint => (fraction << 11n) | spare;

/** The integers just below and just at every threshold, and both ends. */
function around(...thresholds: readonly bigint[]): bigint[] {
  const near = thresholds.flatMap((one) => [one - 1n, one]);
  return [...new Set([0n, MOST, ...near.filter((one) => one >= 0n && one <= MOST)])];
}

/** What k-RR answers: every `lie` integers are one of the other cells, in order; the rest the own one. */
function says(k: number, lie: bigint, cell: number, fraction: bigint): number {
  const others = Array.from({ length: k - 1 }, (_, i) => (cell + 1 + i) % k);
  return others[Number(fraction / lie)] ?? cell;
}

const steps = (k: number, lie: bigint): bigint[] => Array.from({ length: k - 1 }, (_, i) => BigInt(i + 1) * lie);

/** Randomise with exactly these words, and give the answer as text. */
async function answer(description: Description, cell: number, ...words: readonly bigint[]): Promise<string> {
  const bits = new GivenBits(words);
  const told = unpack(description, (await oracleOf(description)).randomize_(cell, bits));
  expect(bits.left).toBe(0);
  return told instanceof Uint8Array ? hex(told) : String(told);
}

describe("coins", () => {
  test.each([0n, 1n, 12345n, ONE / 3n, ONE / 2n, MOST, ONE])("of chance %s show heads below it", (chance) => {
    for (const fraction of around(chance))
      for (const spare of SPARE) expect(coin(chance, new GivenBits([word(fraction, spare)]))).toBe(fraction < chance);
  });

  test.each([1n, 2n ** 45n - 1n, 2n ** 45n, (3n << 45n) + 9n, ONE / 3n, ONE / 2n, MOST])("many, of chance %s", (chance) => {
    for (const fraction of around(chance, chance + 1n)) {
      const first = fraction >> 45n;
      const more = first === chance >> 45n ? [BigInt.asUintN(45, fraction) << 19n] : [];
      const bits = new GivenBits([first | 0xff00n, ...more]);
      expect(manyCoins(chance, 1, bits)).toEqual([fraction < chance]);
      expect(bits.left).toBe(0);
    }
  });
});

test.each([[2, 2n ** 51n + 1n], [7, 2n ** 50n - 3n], [40, 20358528620243n]])("krr over %i cells", async (k, lie) => {
  const description = { name: "krr", k, lie: Number(lie) };
  for (const fraction of around(...steps(k, lie)))
    for (const cell of new Set([0, 1, k - 1]))
      for (const spare of SPARE)
        expect(await answer(description, cell, word(fraction, spare))).toBe(String(says(k, lie, cell, fraction)));
});

test("oue sets every bit exactly as often as its integer says", async () => {
  const [k, q] = [5, 162005376966167n];
  const first = q >> 45n;
  const fractions = around(q, first << 45n, (first + 1n) << 45n);
  for (let cell = 0; cell < k; cell++)
    for (const own of around(ONE / 2n))
      for (let turn = 0; turn < fractions.length; turn++) {
        const drawn = Array.from({ length: k }, (_, i) => fractions[(turn + i) % fractions.length]!);
        const eights = drawn.reduce((sum, one, i) => sum | ((one >> 45n) << BigInt(8 * i)), 0n);
        const ties = drawn.filter((one) => one >> 45n === first).map((one) => BigInt.asUintN(45, one) << 19n);
        let expected = 0;
        drawn.forEach((one, i) => (expected |= Number(i === cell ? own < ONE / 2n : one < q) << i));
        const told = await answer({ name: "oue", k, lie: Number(q) }, cell, eights, ...ties, word(own));
        expect(told).toBe(hex(Uint8Array.of(expected)));
      }
});

test("olh hashes and lies exactly as its integers say", async () => {
  const [k, g, lie] = [50, 4, 1575158329887396n];
  const edges = [1n, 2n, 3n].flatMap((i) => [(i * PRIME + 3n) / 4n - 1n, (i * PRIME + 3n) / 4n]);
  for (const cell of [0, 1, k - 1])
    for (const wanted of [0n, PRIME - 1n, ...edges]) {
      const a = 1_234_567_890n;
      const b = (((wanted - a * BigInt(cell)) % PRIME) + PRIME) % PRIME;
      const seed = a * PRIME + b;
      const bucket = [3, 2, 1, 0].find((i) => BigInt(i) * PRIME <= wanted * 4n)!;
      for (const fraction of around(...steps(g, lie))) {
        const told = await answer({ name: "olh", k, g, lie: Number(lie), prime: Number(PRIME) }, cell, seed, ...zeros(8), word(fraction));
        expect(told).toBe(`${seed},${says(g, lie, bucket, fraction)}`);
      }
    }
});

test("subset keeps the own cell exactly as often as its integer says", async () => {
  const [k, omega, truth] = [6, 2, 5189199575106477n];
  for (let cell = 0; cell < k; cell++)
    for (const fraction of around(truth)) {
      const kept = fraction < truth;
      const lasts = kept ? [k - 2] : [k - 3, k - 2];
      for (const draws of kept ? [[0], [2], [4]] : [[0, 0], [0, 4], [3, 3], [1, 2]]) {
        const chosen: number[] = [];
        lasts.forEach((last, i) => chosen.push(chosen.includes(draws[i]!) ? last : draws[i]!));
        const set = chosen.map((one) => one + Number(one >= cell));
        if (kept) set.push(cell);
        const words = draws.flatMap((draw) => [BigInt(draw), ...zeros(8)]);
        const told = await answer({ name: "subset", k, omega, truth: Number(truth) }, cell, word(fraction), ...words);
        expect(told).toBe(String(set.sort((a, b) => a - b)));
        expect(set.length).toBe(omega);
      }
    }
});

test("hadamard flips its bit exactly as often as its integer says", async () => {
  const [k, order, lie] = [5, 8, 2422408970132804n];
  for (let cell = 0; cell < k; cell++)
    for (let row = 0; row < order; row++)
      for (const fraction of around(lie)) {
        const bit = ((row & cell).toString(2).replace(/0/g, "").length % 2) ^ Number(fraction < lie);
        const told = await answer({ name: "hadamard", k, lie: Number(lie) }, cell, BigInt(row), ...zeros(8), word(fraction));
        expect(told).toBe(`${row},${bit}`);
      }
});

test("two-stage lies exactly as often as its integers say", async () => {
  const [sizes, starts] = [[3, 2, 1, 1], [0, 3, 5, 6]] as const;
  const [queryLie, lies] = [2n ** 50n - 7n, new Map([[2, 2n ** 51n - 1n], [3, 2n ** 50n + 5n]])];
  const url_lies = [...lies].map(([size, lie]) => [size, Number(lie)]);
  const description = { name: "two-stage", k: 7, urls: [2, 1, 0], query_lie: Number(queryLie), url_lies };
  for (const [query, own] of sizes.entries())
    for (const fraction of around(...steps(4, queryLie))) {
      const sent = says(4, queryLie, query, fraction);
      const size = sizes[sent]!;
      for (let url = 0; url < own; url++) {
        if (sent !== query) {
          for (let draw = 0; draw < size; draw++)
            expect(await answer(description, starts[query]! + url, word(fraction), BigInt(draw), ...zeros(8))).toBe(String(starts[sent]! + draw));
          continue;
        }
        const lie = lies.get(size);
        for (const second of lie ? around(...steps(size, lie)) : [undefined]) {
          const landed = lie && second !== undefined ? says(size, lie, url, second) : 0;
          const words = second === undefined ? [] : [word(second)];
          expect(await answer(description, starts[query]! + url, word(fraction), ...words)).toBe(String(starts[sent]! + landed));
        }
      }
    }
});

test("every random word and byte is the browser's generator's, unchanged, and nobody asks Math.random", () => {
  const asked: number[] = [];
  const generator = vi.spyOn(crypto, "getRandomValues").mockImplementation(((array: Uint8Array | BigUint64Array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    bytes.forEach((_, i) => (bytes[i] = (7 * i + 3) % 256));
    asked.push(bytes.length);
    return array;
  }) as typeof crypto.getRandomValues);
  const guess = vi.spyOn(Math, "random").mockImplementation(() => {
    throw new Error("guessable");
  });
  try {
    const told = new Uint8Array(systemBits.words(20).buffer);
    expect([...told]).toEqual(Array.from({ length: 160 }, (_, i) => (7 * i + 3) % 256));
    expect([...randomBytes(32)]).toEqual(Array.from({ length: 32 }, (_, i) => (7 * i + 3) % 256));
    expect(asked).toEqual([160, 32]);
  } finally {
    generator.mockRestore();
    guess.mockRestore();
  }
});
