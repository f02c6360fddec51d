/** Tasks of numbers and texts: what they take, what they cost, how often each answer comes out. */
import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { hex, utf8 } from "../src/bytes.js";
import { Client } from "../src/client.js";
import { type Configuration, configure } from "../src/configuration.js";
import { coinsOf, macOf } from "../src/hash.js";
import { openReport } from "../src/reading.js";
import { codeOf, configured, renamed, SeededBits, served, vectors } from "./helpers.js";

const golden = vectors();
const of = (name: string) => golden.tasks.find((one) => one.configuration.canonical.includes(`"name":"${name}"`))!;
const DAY = 86_400;

let number = 0;
const secretOf = (i: number) => Uint8Array.from({ length: 32 }, (_, j) => (i >> (8 * (j % 4))) & 255);

/** Let a device prepare its answers to a value. */
async function prepared({ channel_: channel, taskId_: task, digest_: digest }: Configuration, value: unknown, secret: Uint8Array<ArrayBuffer>, bits: SeededBits) {
  const mac = await macOf(secret);
  return channel.prepare_(value, mac, await coinsOf(mac, task, digest), task, bits);
}

/** Six standard deviations: a chance of less than 1e-9 each way. */
function expectCount(count: number, n: number, chance: number): void {
  expect(Math.abs(count - n * chance)).toBeLessThan(6.2 * Math.sqrt(n * chance * (1 - chance)));
}

describe("values", () => {
  test.each([-1, 101, 2 ** 60])("the number %d is out of range", async (value) => {
    for (const name of ["onebit", "dbitflip"])
      expect(await codeOf(async () => (await configured(of(name))).channel_.value_(value, undefined))).toBe("UnknownValue");
  });

  test.each([1.5, Number.NaN, "7", null, undefined, true, 7n])("%s is no whole number", async (value) => {
    for (const name of ["onebit", "dbitflip"])
      expect(await codeOf(async () => (await configured(of(name))).channel_.value_(value, undefined))).toBe("Usage");
  });

  test("texts are in Unicode NFC without blanks at their ends, and not too long", async () => {
    const { channel_: channel } = await configured(of("rappor"));
    expect(channel.value_(" cafe\u0301 ", null)).toEqual(utf8("café"));
    for (const text of ["", "  ", "x".repeat(4097), "\ud800"])
      expect(await codeOf(() => channel.value_(text, null))).toBe("UnknownValue");
    for (const text of [null, 7]) expect(await codeOf(() => channel.value_(text, null))).toBe("Usage");
    expect(await codeOf(() => channel.value_("a", "https://example.org"))).toBe("Usage");
  });
});

describe("integers that lose more than the task allows, or are another task's, are refused", () => {
  // biome-ignore lint: a document to be broken
  test.each<[string, string, (oracle: any) => void]>([
    ["onebit", "a larger unit", (one) => (one.unit += 1)],
    ["onebit", "a lower end", (one) => (one.low -= 1e6)],
    ["onebit", "another bound", (one) => (one.most = 50)],
    ["onebit", "another grid", (one) => (one.step = 50)],
    ["onebit", "a chance above one", (one) => (one.low = 2 ** 52)],
    ["dbitflip", "more of the truth", (one) => (one.keep += 1)],
    ["dbitflip", "other buckets", (one) => (one.k = 11)],
    ["dbitflip", "other bits", (one) => (one.d = 1)],
    ["dbitflip", "another bound", (one) => (one.most = 99)],
    ["rappor", "less noise", (one) => (one.flip -= 2 ** 47)],
    ["rappor", "no noise", (one) => (one.flip = 0)],
    ["rappor", "nearly all bits flipped", (one) => (one.flip = 2 ** 53 - 1)],
    ["rappor", "a little more noise", (one) => (one.flip += 1)],
    ["rappor", "a permanent response without fresh noise", (one) => Object.assign(one, { p: 0, q: 2 ** 53 })],
    ["rappor", "less fresh noise where the bit is 0", (one) => (one.p -= 1)],
    ["rappor", "less fresh noise where the bit is 1", (one) => (one.q += 1)],
    ["rappor", "another filter", (one) => (one.k = 24)],
    ["rappor", "more hashes", (one) => (one.h = 3)],
    ["rappor", "other cohorts", (one) => (one.m = 3)],
    ["rappor", "another variant", (one) => (one.variant = "google-python")],
    ["two-stage", "a rarer query", (one) => (one.query_lie -= 1e6)],
    ["two-stage", "a rarer URL", (one) => (one.url_lies[0][1] -= 1e13)],
    ["two-stage", "other URLs", (one) => (one.urls = [2, 2])],
    ["two-stage", "a missing chance", (one) => one.url_lies.pop()],
    ["two-stage", "no list", (one) => (one.urls = "31")],
  ])("%s: %s", async (name, _, change) => {
    const document = structuredClone(served(of(name))) as unknown as { configuration: { oracle: object } };
    expect(await codeOf(async () => configure(document, of(name).task.id))).toBe("");
    change(document.configuration.oracle);
    expect(await codeOf(async () => configure(document, of(name).task.id))).toBe("TaskInvalid");
  });

  test("a mechanism over a list can't answer for numbers, nor the other way round", async () => {
    const [list, numbers] = [served(of("krr"), { oracle: "auto" }), served(of("onebit"), { oracle: "auto" })];
    for (const [task, other] of [[list, numbers], [numbers, list]] as const) {
      const mixed = { ...task, configuration: { ...task.configuration!, oracle: other.configuration!.oracle } };
      const { served: document, id } = await renamed(mixed);
      expect(await codeOf(() => configure(document, id))).toBe("TaskInvalid");
    }
  });
});

describe("the grid of onebit", () => {
  test("must divide the bound, or a grid point could lie beyond it", async () => {
    expect(await codeOf(() => configured(of("onebit"), { step: 25 }))).toBe("");
    for (const step of [30, 0, 101]) expect(await codeOf(() => configured(of("onebit"), { step }))).toBe("TaskInvalid");
  });

  test("a number goes up where it and the device's offset reach the next point, and no later", async () => {
    const configuration = await configured(of("onebit"));
    const { taskId_: task } = configuration;
    for (let device = 0; device < 8; device++) {
      const framed = Buffer.concat([Buffer.from([0, 0, 0, 32]), task, Buffer.from([0, 0, 0, 5]), Buffer.from("alpha"), Buffer.alloc(8)]);
      const digest = createHmac("sha256", secretOf(device)).update(framed).digest();
      const alpha = Number((digest.readBigUInt64BE(0) >> 11n) % 25n);
      for (let value = 0; value <= 100; value++) {
        const { class_: name } = await prepared(configuration, value, secretOf(device), new SeededBits(1));
        expect(name[3]).toBe(Math.floor((value + alpha) / 25));
      }
    }
  });
});

describe("rates over devices", () => {
  test("onebit: the share of ones is that of the number, over offsets and bits", async () => {
    const configuration = await configured(of("onebit"));
    const { description } = configuration;
    const devices = 3000;
    for (const value of [0, 37, 100]) {
      let ones = 0;
      for (let i = 0; i < devices; i++)
        ones += (await prepared(configuration, value, secretOf(1000 * value + i), new SeededBits(i))).answer_()[0]!;
      expectCount(ones, devices, (description.low + description.unit * value) / 2 ** 53);
    }
  });

  test("dbitflip: each bucket is sampled by d of k devices, and its bit kept with its chance", async () => {
    const configuration = await configured(of("dbitflip"));
    const { description } = configuration;
    const [devices, keep] = [2500, description.keep / 2 ** 53];
    let [sampled, own, others, ones] = [0, 0, 0, 0];
    for (let i = 0; i < devices; i++) {
      const answers = await prepared(configuration, 37, secretOf(i), new SeededBits(i));
      const said = unpacked(configuration, answers.answer_());
      const place = said.indexOf(3);
      if (place >= 0 && place < 4) {
        sampled++;
        own += said[4 + place]!;
      } else {
        others += 4;
        ones += said.slice(4).reduce((a, b) => a + b, 0);
      }
    }
    expectCount(sampled, devices, 4 / 10);
    expectCount(own, sampled, keep);
    expectCount(ones, others, 1 - keep);
  });

  test("rappor: permanent bits are flipped with f/2, fresh ones have the chances p and q", async () => {
    const configuration = await configured(of("rappor"));
    const { channel_: channel } = configuration;
    const [devices, bits] = [400, new SeededBits(11)];
    let [flipped, of1, ones1, of0, ones0] = [0, 0, 0, 0, 0];
    for (let i = 0; i < devices; i++) {
      const answers = await prepared(configuration, utf8("https://example.org"), secretOf(i), bits);
      const kept = answers.answer_();
      const fresh = channel.payload_!(kept, bits);
      expect(fresh.subarray(0, 2)).toEqual(kept.subarray(0, 2));
      for (let bit = 0; bit < 20; bit++) {
        const on = (kept[2 + (bit >> 3)]! >> (bit & 7)) & 1;
        const sent = (fresh[2 + (bit >> 3)]! >> (bit & 7)) & 1;
        flipped += on;
        if (on) [of1, ones1] = [of1 + 1, ones1 + sent];
        else [of0, ones0] = [of0 + 1, ones0 + sent];
      }
    }
    expectCount(ones1, of1, 3 / 4);
    expectCount(ones0, of0, 1 / 4);
    // Two hashes fill 2 - 1/20 bits of 20 on average; a bit is then on with chance 3/4, else 1/4.
    expectCount(flipped, 20 * devices, 1 / 4 + ((2 - 1 / 20) / 20) / 2);
  });

  test("rappor: the answer that says nothing is not what the device would tell of any text", async () => {
    const configuration = await configured(of("rappor"));
    for (let i = 0; i < 20; i++) {
      const nobodys = new Uint8Array(new SeededBits(i).words(4).buffer);
      const empty = (await prepared(configuration, utf8("a"), secretOf(i), new SeededBits(i))).empty_();
      const own = (await prepared(configuration, nobodys, secretOf(i), new SeededBits(99))).answer_();
      expect(empty.subarray(0, 2)).toEqual(own.subarray(0, 2)); // the cohort is the device's
      expect(hex(empty)).not.toBe(hex(own));
    }
  });
});

function unpacked(configuration: Awaited<ReturnType<typeof configured>>, payload: Uint8Array<ArrayBuffer>): readonly number[] {
  const report = { id: new Uint8Array(16), task: configuration.taskId_, configuration: configuration.digest_, time: 0, payload };
  return openReport(report as Parameters<typeof openReport>[0], configuration) as readonly number[];
}

describe("a client", () => {
  test("of a text draws a fresh response in each period, and pays once", async () => {
    let now = 20_000 * DAY;
    const client = new Client(await configured(of("rappor"), { lifetime_epsilon: "9" }), { state: `unlisted ${number++}`, clock: () => now });
    const told = new Set<string>();
    for (let day = 0; day < 8; day++, now += DAY) {
      const report = (await client.report("https://example.org"))!;
      expect(hex((await client.report("https://example.com"))!.payload)).toBe(hex(report.payload));
      told.add(hex(report.payload));
    }
    expect(told.size).toBeGreaterThan(4);
    expect(new Set([...told].map((payload) => payload.slice(0, 4))).size).toBe(1);
    // Eps infinity, 4 ln 3, of the integers, not the task's epsilon of 4.5.
    expect(await client.account()).toMatchObject({ spent: 4.394449155, lifetime: 9 });
    for (const text of ["https://example.com", "https://example.net"]) {
      await client.report(text);
      now += DAY;
    }
    const { spent, entries } = await client.account();
    expect([spent, entries.length]).toEqual([8.78889831, 2]);
  });

  test("of a number gives the same bit near the same grid point", async () => {
    let now = 20_000 * DAY;
    const configuration = await configured(of("onebit"), {}, { period: DAY });
    const client = new Client(configuration, { state: `unlisted ${number++}`, clock: () => now });
    const first = (await client.report(50))!;
    now += DAY;
    expect((await client.report(50))!.payload).toEqual(first.payload);
    expect((await client.account()).entries).toHaveLength(1);
    expect([0, 1]).toContain(openReport(first, configuration));
    for (const value of [0, 25, 75, 100]) {
      now += DAY;
      await client.report(value);
    }
    // Four answers were paid for; the fifth grid point gets one that says nothing.
    expect(await client.account()).toMatchObject({ spent: 4, lifetime: 4 });
    expect((await client.outbox()).length).toBe(6);
  });
});
