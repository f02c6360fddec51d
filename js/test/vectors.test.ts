/** The golden vectors, byte for byte, and draws from the words that Python drew with. */
import { describe, expect, test } from "vitest";
import { base64url, big, hex } from "../src/bytes.js";
import { configure } from "../src/configuration.js";
import { atMost, loss, ratio, type Ratio } from "../src/exact.js";
import { macOf, memoKey, samplingNumber } from "../src/hash.js";
import type { Description } from "../src/oracle.js";
import { openReport, reportFromBytes, reportFromJson, reportFromText, reportToBytes, unpack } from "../src/reading.js";
import { codeOf, fixture, GivenBits, hashedText, oddsOf, oracleOf, served, unhex, vectors } from "./helpers.js";

const lossWithin = (a: bigint, b: bigint, epsilon: Ratio) => atMost(loss(a, b), epsilon);

const golden = vectors();

interface Draws {
  readonly draws: readonly {
    readonly oracle: Description;
    readonly epsilon: string;
    readonly draws: readonly { readonly cell: number; readonly words: string; readonly answer: unknown; readonly payload: string }[];
  }[];
}

describe.each(golden.tasks)("task $task.id", (vector) => {
  test("has this id and this configuration hash", async () => {
    const configuration = await configure(served(vector), vector.task.id);
    expect(hex(configuration.taskId_)).toBe(vector.task.id);
    expect(hex(configuration.digest_)).toBe(vector.configuration.hash);
    expect(hashedText(vector.task.served)).toBe(vector.task.canonical);
  });

  test("has these reports in every form", async () => {
    const configuration = await configure(served(vector), vector.task.id);
    expect(vector.reports.length).toBeGreaterThan(0);
    for (const { answer, bytes, json } of vector.reports) {
      const report = reportFromBytes(unhex(bytes));
      expect(hex(reportToBytes(report))).toBe(bytes);
      expect(report.toJSON()).toEqual(json);
      expect(hex(reportToBytes(reportFromJson(json)))).toBe(bytes);
      expect(hex(reportToBytes(reportFromJson(JSON.stringify(json, null, 2))))).toBe(bytes);
      expect(hex(reportToBytes(reportFromText(base64url(unhex(bytes)))))).toBe(bytes);
      expect(plain(openReport(report, configuration))).toEqual(plain(answer));
      expect(report.payload.length).toBe(configuration.channel_.length_);
    }
  });
});

test("what is no report of the first task is refused for the same reason", async () => {
  const [vector] = golden.tasks;
  const configuration = await configure(served(vector!), vector!.task.id);
  for (const { bytes, error } of golden.refused)
    expect(await codeOf(() => openReport(reportFromBytes(unhex(bytes)), configuration))).toBe(error);
});

test("a report of another period is refused where one is asked for", async () => {
  const weekly = golden.tasks.find((one) => one.task.served.task.period)!;
  for (const vector of [golden.tasks[0]!, weekly]) {
    const configuration = await configure(served(vector), vector.task.id);
    const report = reportFromBytes(unhex(vector.reports[0]!.bytes));
    const { period } = vector.task.served.task;
    const own = period ? Math.floor(report.time / period) : 0;
    expect(await codeOf(() => openReport(report, configuration, own))).toBe("");
    for (const other of [own - 1, own + 1]) expect(await codeOf(() => openReport(report, configuration, other))).toBe("ReportOfAnotherPeriod");
  }
});

test("the memo keys and sampling numbers", async () => {
  const { secret, task, configuration, memo, sampling } = golden.macs;
  const [mac, of, digest] = [await macOf(unhex(secret)), unhex(task), unhex(configuration)];
  for (const one of memo) expect(await memoKey(mac, of, digest, one.slot, big(one.cell, 4))).toBe(one.key);
  for (const one of sampling) expect(await samplingNumber(mac, of, one.period)).toBe(BigInt(one.number));
});

describe.each(fixture<Draws>("draws.json").draws)("$oracle.name over $oracle.k cells", ({ oracle: description, epsilon, draws }) => {
  test("the same words give the same payload as in Python", async () => {
    const oracle = oracleOf(description);
    for (const { cell, words, answer, payload } of draws) {
      const bits = new GivenBits(words);
      const made = oracle.randomize_(cell, bits);
      expect(hex(made)).toBe(payload);
      expect(bits.left).toBe(0);
      expect(made.length).toBe(oracle.length_);
      expect(plain(unpack(description, made))).toEqual(plain(answer));
    }
  });

  test("its integers are within the epsilon that Python claims, and not within a billionth less", () => {
    const [n, d] = ratio(epsilon);
    expect(oddsOf(description).every(([a, b]) => lossWithin(a, b, [n, d]))).toBe(true);
    expect(oddsOf(description).every(([a, b]) => lossWithin(a, b, [n * 999_999_999n, d * 1_000_000_000n]))).toBe(false);
  });
});

test("two-stage: the loss is that of the two most different ways to a cell, even if lies are likelier than the truth", async () => {
  const [query_lie, url_lie] = [2 ** 53 / 128, (2 ** 53 / 8) * 7];
  const odds = oddsOf({ name: "two-stage", k: 3, urls: [1], query_lie, url_lies: [[2, url_lie]] });
  // Another URL of the query, 2 * 127/128 * 7/8, against another query, 1/128: ln 222.25.
  expect(odds.every(([a, b]) => lossWithin(a, b, [54040n, 10_000n]))).toBe(true);
  expect(odds.every(([a, b]) => lossWithin(a, b, [54036n, 10_000n]))).toBe(false);
});

/** One spelling for both sides: numbers as text, bytes in hexadecimal digits. */
function plain(answer: unknown): unknown {
  if (answer instanceof Uint8Array) return hex(answer);
  return Array.isArray(answer) ? answer.map(String) : answer;
}
