/** The client: once drawn, always the same; its budget, its sampling, its off-switch; and that nothing else is kept. */
import { beforeEach, describe, expect, test } from "vitest";
import { base64url, big, hex } from "../src/bytes.js";
import { Client, type ClientOptions } from "../src/client.js";
import type { Configuration } from "../src/configuration.js";
import { ONE } from "../src/chance.js";
import { macOf, memoKey, samplingNumber } from "../src/hash.js";
import { openReport, reportToBytes } from "../src/reading.js";
import { change, type ClientEntry } from "../src/memo.js";
import { codeOf, configured, SeededBits, vectors } from "./helpers.js";

const golden = vectors();
const [wild, refusing] = golden.tasks;
const searches = golden.tasks.find((one) => one.task.canonical.includes('"kind":"searches"'))!;
const DAY = 86_400;
const BEGIN = 20_000 * DAY;

let state = "";
let number = 0;
beforeEach(() => {
  state = `test ${number++}`;
});

let now = BEGIN;
function client(configuration: Configuration, options: ClientOptions = {}): Client {
  now = BEGIN;
  return new Client(configuration, { state, bits: new SeededBits(number), clock: () => now, ...options });
}

const entryOf = (id = "default") => change<ClientEntry, ClientEntry | undefined>(state, `client ${id}`, (e) => [e, e]);

describe("one report", () => {
  test("is for this task, this configuration and a truncated time", async () => {
    const configuration = await configured(wild!);
    now = BEGIN;
    const report = (await new Client(configuration, { state, clock: () => BEGIN + 1799.9 }).report("dark"))!;
    expect(openReport(report, configuration)).toBeTypeOf("number");
    expect(report.time).toBe(BEGIN);
    expect(hex(report.task)).toBe(configuration.id);
  });

  test("is the same whatever it is asked with, and after a restart", async () => {
    const configuration = await configured(wild!);
    const first = (await client(configuration).report("dark"))!;
    for (const value of ["dark", "light", "never heard of", null])
      expect(reportToBytes((await client(configuration).report(value))!)).toEqual(reportToBytes(first));
    const other = (await client(configuration, { clientId: "another" }).report("dark"))!;
    expect(other.id).not.toEqual(first.id);
  });

  test("is the same also for a value that the task refuses: a refusal would tell about the second value", async () => {
    const configuration = await configured(refusing!, {}, { period: DAY });
    const first = (await client(configuration).report("dark"))!;
    for (const [value, url] of [["never heard of"], [null], [7], ["dark", "https://example.org"]] as [string, string?][])
      expect(reportToBytes((await client(configuration).report(value, url))!)).toEqual(reportToBytes(first));
    const later = client(configuration);
    now += DAY;
    expect(await codeOf(() => later.report("never heard of"))).toBe("UnknownValue");
  });

  test("of many calls at once is one report", async () => {
    const configuration = await configured(wild!, {}, { period: DAY });
    const tabs = Array.from({ length: 20 }, () => client(configuration));
    const made = await Promise.all(tabs.map((tab, i) => tab.report(i % 2 ? "dark" : "light")));
    expect(new Set(made.map((report) => base64url(reportToBytes(report!)))).size).toBe(1);
    expect((await tabs[0]!.account()).entries).toHaveLength(1);
  });

  test("is told what it can't say", async () => {
    const strict = client(await configured(refusing!));
    expect(await codeOf(() => strict.report("never heard of"))).toBe("UnknownValue");
    expect(await codeOf(() => strict.report(null))).toBe("UnknownValue");
    expect(await codeOf(() => strict.report("dark", "https://example.org"))).toBe("Usage");
    expect(await codeOf(() => strict.report(7 as unknown as string))).toBe("Usage");
    expect(await codeOf(() => strict.report("dark", null, 1))).toBe("Usage");
    expect(await codeOf(() => strict.report("dark", null, 0.5))).toBe("Usage");
    expect(await entryOf()).toBeUndefined();
    for (const time of [Number.NaN, -1, 2 ** 40, Number.POSITIVE_INFINITY])
      expect(await codeOf(() => new Client(strict.configuration, { state, clock: () => time }).report("dark"))).toBe("Usage");
  });

  test("of a failed draw leaves nothing behind", async () => {
    const broken = { words: () => { throw new Error("no bits"); } };
    const configuration = await configured(wild!);
    await expect(client(configuration, { bits: broken }).report("dark")).rejects.toThrow("no bits");
    expect(Object.keys((await entryOf())!.memo)).toEqual([]);
    expect((await entryOf())!.spent).toBe("0");
    expect(await client(configuration).outbox()).toEqual([]);
  });
});

describe("over time", () => {
  test("a value that comes back has the same answer under a new id", async () => {
    const one = client(await configured(searches, { lifetime_epsilon: "1000" }));
    const reports = [];
    for (let week = 0; week < 6; week++) {
      now = BEGIN + 7 * DAY * week;
      reports.push((await one.report(week % 2 ? "news" : " Weather  LEEDS ", week % 2 ? null : "https://weather.example/"))!);
    }
    expect(new Set(reports.map((report) => hex(report.id))).size).toBe(6);
    for (let week = 2; week < 6; week++) expect(reports[week]!.payload).toEqual(reports[week - 2]!.payload);
    expect(await one.account()).toMatchObject({ spent: 8, lifetime: 1000, claim: "given the change times" });
    expect((await one.account()).entries.map((entry) => entry.epsilon)).toEqual([4, 4]);
    expect((await one.outbox()).map((report) => hex(report.id))).toEqual(reports.map((report) => hex(report.id)));
  });

  test("after the cap the answer is one that looks at no value, and old answers stay", async () => {
    const one = client(await configured(wild!, { lifetime_epsilon: "11/5" }, { period: DAY }));
    const told: string[] = [];
    for (const [day, value] of ["dark", "light", "café", "dark", "unheard of", "light"].entries()) {
      now = BEGIN + DAY * day;
      told.push(hex((await one.report(value))!.payload));
    }
    const { spent, lifetime, entries } = await one.account();
    expect(entries).toHaveLength(2);
    expect(spent).toBeLessThanOrEqual(lifetime);
    expect(told[3]).toBe(told[0]);
    expect(told[5]).toBe(told[1]);
    expect(told[4]).toBe(told[2]);
    // One more entry, which cost nothing: the empty answer.
    expect(Object.values((await entryOf())!.memo).map((memo) => memo.cost === "0")).toEqual(expect.arrayContaining([true]));
    expect(Object.keys((await entryOf())!.memo)).toHaveLength(3);
  });

  test("the empty answer has the law of the wildcard, or of a uniform cell", async () => {
    const lie = 1_501_199_875_790_166 / 2 ** 53;
    for (const [vector, values] of [[wild!, ["light", "dark"]], [refusing!, ["light", "dark"]]] as const) {
      const configuration = await configured(vector, { lifetime_epsilon: JSON.parse(vector.task.canonical).client.epsilon }, { period: DAY });
      const counts = [0, 0, 0, 0];
      const devices = 1500;
      for (let i = 0; i < devices; i++) {
        const one = client(configuration, { clientId: `${i}`, bits: new SeededBits(5000 + i) });
        await one.report(values[0]);
        now += DAY;
        counts[(await one.report(values[1]))!.payload[0]!]!++;
      }
      const k = (configuration.description.k as number);
      const expected = k === 4 ? [lie, lie, lie, 1 - 3 * lie] : [1 / 3, 1 / 3, 1 / 3, 0];
      // Six standard deviations each way.
      for (const [cell, chance] of expected.entries())
        expect(Math.abs(counts[cell]! - devices * chance)).toBeLessThanOrEqual(6.2 * Math.sqrt(devices * chance * (1 - chance)));
    }
  }, 120_000);

  test("the smallest lifetime of all tasks is the cap, and they share what was spent", async () => {
    const small = client(await configured(wild!, { lifetime_epsilon: "2473854946935173/2251799813685248" }));
    const large = client(await configured(searches, { lifetime_epsilon: "16" }));
    await large.report("news");
    expect(await large.account()).toMatchObject({ spent: 4, lifetime: 16 });
    await small.report("dark");
    expect(await small.account()).toMatchObject({ spent: 4, lifetime: 1.098612289 });
    expect((await large.outbox()).length).toBe(2);
    const fresh = client(await configured(wild!, { lifetime_epsilon: "3" }), { clientId: "b" });
    await fresh.report("dark");
    const after = client(await configured(searches, { lifetime_epsilon: "16" }), { clientId: "b" });
    await after.report("news");
    expect(await after.account()).toMatchObject({ spent: 1.098612289, lifetime: 3 });
  });

  test("a task's lifetime counts from its first report on, also if that costs nothing", async () => {
    const epsilon = wild!.task.served.client.epsilon;
    const [tight, wide] = [await configured(wild!, { lifetime_epsilon: epsilon }), await configured(searches, { lifetime_epsilon: "16" })];
    // A task with a smaller lifetime than what another one has spent gets an answer that says nothing.
    await client(wide).report("news");
    await client(tight).report("dark");
    expect(await client(tight).account()).toMatchObject({ spent: 4, lifetime: 1.098612289 });
    expect(await client(wide).account()).toMatchObject({ spent: 4, lifetime: 1.098612289 });
    now = BEGIN + 7 * DAY;
    await new Client(wide, { state, clock: () => now }).report("weather leeds", "https://weather.example");
    expect((await client(wide).account()).spent).toBe(4);
  });

  test("a second head list in one period is refused", async () => {
    const before = await configured(searches);
    await client(before).report("news");
    const after = { ...before, digest_: new Uint8Array(32), hash: "00".repeat(32) };
    expect(await codeOf(() => client(after).report("news"))).toBe("AnotherHeadList");
  });
});

describe("several records", () => {
  test("all slots are filled, each with its own answer and share of epsilon", async () => {
    const configuration = await configured(wild!, { epsilon: "4", lifetime_epsilon: "4", records_per_user: 3 });
    const one = client(configuration);
    const made = await one.reports(["dark", null]);
    expect(made).toHaveLength(3);
    expect((await one.account()).entries.map((entry) => entry.epsilon)).toEqual([1.333333334, 1.333333334, 1.333333334]);
    expect((await one.account()).spent).toBe(4);
    expect((await one.reports(["light", "light", "light"])).map((r) => hex(r.id))).toEqual(made.map((r) => hex(r.id)));
    expect(await codeOf(() => one.reports(["a", "b", "c", "d"]))).toBe("Usage");
    expect(await codeOf(() => one.reports("abc" as unknown as string[]))).toBe("Usage");
  });

  test("all are made or none: nothing is spent if one value is refused", async () => {
    const one = client(await configured(refusing!, { epsilon: "4", lifetime_epsilon: "16", records_per_user: 3 }));
    for (const values of [["dark", "light", "never heard of"], ["dark", "light"], ["dark", 7, "light"]] as string[][])
      expect(await codeOf(() => one.reports(values))).toMatch(/UnknownValue|Usage/);
    expect(await entryOf()).toBeUndefined();
    await one.report("dark", null, 1);
    expect(await codeOf(() => one.reports(["dark", "anything", "never heard of"]))).toBe("UnknownValue");
    expect((await one.outbox()).length).toBe(1);
    expect((await one.account()).spent).toBe(1.333333334);
    expect(await one.reports(["dark", "never heard of", "light"])).toHaveLength(3);
    expect((await one.account()).spent).toBe(4);
  });

  test("none are made if one slot was answered for another head list", async () => {
    const before = await configured(wild!, { epsilon: "4", lifetime_epsilon: "16", records_per_user: 2 });
    await client(before).report("dark", null, 1);
    const after = { ...before, digest_: new Uint8Array(32), hash: "00".repeat(32) };
    expect(await codeOf(() => client(after).reports(["dark", "light"]))).toBe("AnotherHeadList");
    expect(await client(before).account()).toMatchObject({ spent: 2 });
    expect((await client(before).outbox()).length).toBe(1);
  });

  test("searches are pairs", async () => {
    const one = client(await configured(searches));
    expect(await one.reports([["weather leeds", "https://weather.example"]])).toHaveLength(1);
  });
});

describe("taking part", () => {
  test("the secret decides on a period, by the rate", async () => {
    const configuration = await configured(wild!, { sampling: "1/3" }, { period: DAY });
    const one = client(configuration);
    let taken = 0;
    for (let day = 0; day < 60; day++) {
      now = BEGIN + day * DAY;
      const report = await one.report("dark");
      const drawn = await samplingNumber(await macOf((await entryOf())!.secret), configuration.taskId_, 20_000 + day);
      expect(report !== null).toBe(drawn < ONE / 3n);
      taken += Number(report !== null);
    }
    expect(taken).toBeGreaterThan(3);
    expect(taken).toBeLessThan(45);
  });

  test("a task that is switched off reports nothing and remembers nothing", async () => {
    expect(await client(await configured(wild!, { enabled: false })).report("dark")).toBeNull();
    expect(await entryOf()).toBeUndefined();
  });
});

describe("the outbox", () => {
  test("holds a report until it was acknowledged", async () => {
    const one = client(await configured(wild!, {}, { period: DAY }));
    const first = (await one.report("dark"))!;
    now += DAY;
    const second = (await one.report("light"))!;
    expect((await one.outbox()).map((report) => hex(reportToBytes(report)))).toEqual([first, second].map((r) => hex(reportToBytes(r))));
    await one.sent(first.id);
    expect((await one.outbox()).map((report) => hex(report.id))).toEqual([hex(second.id)]);
    expect(await codeOf(() => one.sent(new Uint8Array(16)))).toBe("Usage");
    now = BEGIN;
    expect(reportToBytes((await one.report("light"))!)).toEqual(reportToBytes(first));
  });

  test("is empty after forgetting, and the next client is a new one", async () => {
    const one = client(await configured(wild!));
    const first = (await one.report("dark"))!;
    const { secret } = (await entryOf())!;
    await one.forget();
    expect(await entryOf()).toBeUndefined();
    expect(await one.outbox()).toEqual([]);
    expect((await one.account()).spent).toBe(0);
    expect((await one.report("dark"))!.id).not.toEqual(first.id);
    expect((await entryOf())!.secret).not.toEqual(secret);
  });

  test("a report that was begun before forgetting is one of the new client", async () => {
    const configuration = await configured(wild!);
    const { channel_: channel, taskId_: taskId, digest_: digest } = configuration;
    let forgotten = 0;
    const slow: typeof channel = {
      ...channel,
      async prepare_(...given) {
        if (!forgotten++) await client(configuration).forget();
        return channel.prepare_(...given);
      },
    };
    await client({ ...configuration, channel_: slow }).report("light");
    const { secret, memo } = (await entryOf())!;
    expect(forgotten).toBe(2);
    expect(Object.keys(memo)).toEqual([await memoKey(await macOf(secret), taskId, digest, 0, big(1, 4))]);
  });

  test("forgetting while a report is made never leaves a report of a secret that is gone", async () => {
    const configuration = await configured(wild!);
    const one = client(configuration);
    const [report] = await Promise.all([one.report("dark"), one.forget(), one.forget()]);
    expect(report).not.toBeNull();
    expect((await one.report("dark"))!.payload).toBeDefined();
  });
});

test("no value is kept, in whatever form", async () => {
  const one = client(await configured(searches));
  await one.report("news", "https://very-secret.example");
  const kept = JSON.stringify(await entryOf(), (_, value) => (value instanceof Uint8Array ? String.fromCharCode(...value) : value));
  expect(kept).not.toMatch(/news|secret.example/);
});
