/**
 * A hostile collector: it serves every device what it likes, over 30 periods in which the device's value stays the same.
 *
 * Whatever it serves, a device refuses it and spends nothing, or sends what it would have sent to an honest collector,
 * byte for byte; and all answers of a device together tell no more than its account says, by their exact law.
 */
import { describe, expect, test } from "vitest";
import { hex } from "../src/bytes.js";
import { Client } from "../src/client.js";
import { change, type ClientEntry } from "../src/memo.js";
import { fetchTask } from "../src/task.js";
import { codeOf, type Device, devices, entryOf, honest, type Loose, SeededBits } from "./helpers.js";

const DAY = 86_400;
const DAYS = 30;
const ONE = 2 ** 53;
const SERVER = "https://collect.example.org";
const named = (name: string): Device => devices().find((one) => one.configuration.oracle.name === name)!;

let number = 0;

/** A device of a hostile collector: what it is served, what it sent, what it lost. */
class Victim {
  readonly state = `victim ${number++}`;
  readonly sent: (Record<string, unknown> | null)[] = [];
  readonly refused: string[] = [];
  readonly tags: (string | null)[] = [];
  client: Client | undefined;

  constructor(
    readonly device: Device,
    readonly secret: Uint8Array<ArrayBuffer>,
  ) {}

  /** Let a period pass with one document; its coins are those of the period, so that two victims can be compared. */
  async period(day: number, document: unknown, headers: Record<string, string> = {}): Promise<void> {
    const { id, value, time } = this.device;
    if (!day) await change(this.state, "client default", () => [{ secret: this.secret, spent: "0", cap: "", memo: {}, reports: {} }]);
    const before = JSON.stringify(await this.entry());
    const fetch = async (_: string, init: RequestInit) => {
      this.tags.push(...Object.values((init.headers ?? {}) as Record<string, string>));
      return new Response(JSON.stringify(document), { headers });
    };
    const code = await codeOf(async () => {
      const configuration = await fetchTask(SERVER, id, { state: this.state, fetch });
      const now = time + day * DAY;
      this.client = new Client(configuration, { state: this.state, clock: () => now, bits: new SeededBits(day + 1) });
      const report = await this.client.report(...(value as [string, string?]));
      this.sent[day] = report && { ...report.toJSON(), id: "" };
    });
    if (!code) return;
    this.refused.push(code);
    // What was refused has cost nothing and changed nothing.
    expect(JSON.stringify(await this.entry())).toBe(before);
  }

  async entry(): Promise<ClientEntry> {
    return change<ClientEntry, ClientEntry>(this.state, "client default", (entry) => [entry, entry!]);
  }

  async spent(): Promise<number> {
    return (await this.client!.account()).spent;
  }
}

function secretOf(i: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: 32 }, (_, j) => (i >> (8 * (j % 4))) & 255);
}

/** Every document that differs from another in one place, with a name that says how. */
function* mutants(document: Loose, path: readonly (string | number)[] = []): Generator<[string, Loose]> {
  const part = path.reduce((found, key) => found[key], document);
  const put = (how: string, value: unknown): [string, Loose] => {
    const changed = structuredClone(document);
    if (!path.length) return [how, value];
    path.slice(0, -1).reduce((found, key) => found[key], changed)[path.at(-1)!] = value;
    return [`${path.join(".")} ${how}`, changed];
  };
  if (typeof part === "number")
    for (const [how, value] of [["+1", part + 1], ["-1", part - 1], ["doubled", part * 2], ["zero", 0], ["huge", ONE - 1], ["half", part / 2], ["a text", `${part}`]] as const)
      if (value !== part) yield put(how, value);
  if (typeof part === "string") for (const [how, value] of [["longer", `1${part}`], ["empty", ""], ["a number", 7]] as const) yield put(how, value);
  if (typeof part === "boolean") yield put("negated", !part);
  if (part === null) yield put("one", 1);
  else if (typeof part !== "string") yield put("null", null);
  if (Array.isArray(part) && part.length) {
    yield put("shorter", part.slice(0, -1));
    yield put("longer", [...part, part[0]]);
    yield put("reversed", [...part].reverse());
  } else if (part && typeof part === "object") {
    yield put("with one more key", { ...part, more: 1 });
    for (const key of Object.keys(part)) {
      const { [key]: _, ...rest } = part;
      yield put(`without ${key}`, rest);
    }
  }
  if (part && typeof part === "object") for (const key of Object.keys(part)) yield* mutants(document, [...path, Array.isArray(part) ? Number(key) : key]);
}

/** Mechanisms with other integers, all within a small epsilon. */
function others(k: number): object[] {
  return [
    { name: "krr", k, lie: Math.floor(ONE / k) - 2 ** 30 },
    { name: "oue", k, lie: 2 ** 52 - 2 ** 40 },
    { name: "hadamard", k, lie: 2 ** 52 - 2 ** 40 },
    { name: "subset", k, omega: 1, truth: Math.floor(ONE / k) + 2 ** 30 },
    { name: "olh", k, g: 2, lie: 2 ** 52 - 2 ** 40, prime: 2 ** 31 - 1 },
  ];
}

/** What a hostile collector tries on one device. */
function tried(device: Device): [string, Loose][] {
  const document = honest(device);
  const { oracle } = document.configuration;
  return [
    ...mutants(document),
    ...others(oracle.k ?? 2).map((other): [string, Loose] => ["another oracle", { ...document, configuration: { ...document.configuration, oracle: other } }]),
    ...devices().filter((one) => one.id !== device.id).map((one): [string, Loose] => ["another task", honest(one)]),
    ["an older document", honest(device, -1)],
  ];
}

describe.each(devices().map((device) => [`${device.configuration.oracle.name}, ${device.task.client.oracle}`, device] as const))("%s", (_, device) => {
  test("sends the same bytes or nothing, whatever is served, and loses what one answer costs", async () => {
    const plain = new Victim(device, secretOf(7));
    for (let day = 0; day < DAYS; day++) await plain.period(day, honest(device));
    expect(plain.sent.filter(Boolean)).toHaveLength(DAYS);
    const documents = tried(device);
    let [accepted, refused] = [0, 0];
    for (let at = 0; at < documents.length; at += DAYS - 1) {
      const victim = new Victim(device, secretOf(7));
      await victim.period(0, honest(device));
      for (const [i, [how, document]] of documents.slice(at, at + DAYS - 1).entries()) {
        const before = victim.refused.length;
        await victim.period(i + 1, document, { ETag: `"device ${i}"`, "Set-Cookie": "name=device" });
        const sent = victim.sent[i + 1];
        if (victim.refused.length > before) refused++;
        else if (sent) {
          accepted++;
          expect([how, sent]).toEqual([how, plain.sent[i + 1]]);
        }
      }
      expect(victim.tags).toEqual([]);
      expect(await victim.spent()).toBe(await plain.spent());
    }
    expect(refused).toBeGreaterThan(60);
    // What no client uses may change without anybody noticing.
    expect(accepted).toBeGreaterThan(5);
  });
});

describe("what was told before a device computed its mechanism itself", () => {
  test("onebit: thresholds around a kept coin", async () => {
    const device = named("onebit");
    const { oracle } = honest(device).configuration;
    // Two thresholds that are nearly the same for every value say where the coin is; the honest one then tells the value.
    const at = (share: number) => ({ ...oracle, low: Math.floor(ONE * share), unit: 1 });
    const [low, high] = [oracle.low / ONE, (oracle.low + oracle.unit * oracle.most) / ONE];
    let revealed = 0;
    for (let i = 0; i < 200; i++) {
      const victim = new Victim({ ...device, value: [i % 2 ? 100 : 0] }, secretOf(i));
      for (const [day, served] of [oracle, at(low), at(high)].entries()) {
        const document = honest(device);
        await victim.period(day, { ...document, configuration: { ...document.configuration, oracle: served } });
      }
      const bits = victim.sent.map((one) => one?.payload);
      if (bits[1] === "AA" && bits[2] === "AQ") revealed++;
    }
    expect(revealed).toBe(0);
  });

  test("dbitflip: two chances for the same coins", async () => {
    const device = named("dbitflip");
    const document = honest(device);
    const { oracle } = document.configuration;
    let revealed = 0;
    for (let i = 0; i < 200; i++) {
      const victim = new Victim(device, secretOf(i));
      for (const [day, keep] of [oracle.keep, ONE - oracle.keep].entries())
        await victim.period(day, { ...document, configuration: { ...document.configuration, oracle: { ...oracle, keep } } });
      if (victim.sent.length < 2) continue;
      const [a, b] = victim.sent.map((one) => Buffer.from(`${one!.payload}`, "base64url").at(-1)!);
      // A bit that differs is the truth in one answer and a lie in the other, and it is known in which.
      revealed += (a! ^ b!).toString(2).replaceAll("0", "").length;
    }
    expect(revealed).toBe(0);
  });

  test.each(["krr", "oue", "hadamard", "subset"])("%s: a chance that is one unit off is no reason to draw anew", async (name) => {
    const device = named(name);
    const document = honest(device);
    let drawn = 0;
    for (let i = 0; i < 60; i++) {
      const victim = new Victim(device, secretOf(i));
      for (let day = 0; day < 3; day++) {
        const oracle = structuredClone(document.configuration.oracle);
        if (name === "subset") oracle.truth -= day;
        else oracle.lie += day;
        await victim.period(day, { ...document, configuration: { ...document.configuration, oracle } });
      }
      if (new Set(victim.sent.filter(Boolean).map((one) => one!.payload)).size > 1) drawn++;
    }
    expect(drawn).toBe(0);
  });
});

test("a device that upgrades finds and repeats the answers it has kept", async () => {
  for (const device of devices()) {
    const state = `upgraded ${number++}`;
    const kept = entryOf(device);
    await change(state, "client default", () => [kept]);
    const fetch = async () => Response.json(honest(device));
    const client = new Client(await fetchTask(SERVER, device.id, { state, fetch }), { state, clock: () => device.time + DAY });
    const spent = (await client.account()).spent;
    const report = (await client.report(...(device.value as [string, string?])))!;
    const [answer] = Object.values(kept.memo).map((one) => hex(one.payload));
    // RAPPOR draws a fresh response from the kept one, in the kept cohort.
    if (device.configuration.oracle.name === "rappor") expect(hex(report.payload).slice(0, 4)).toBe(answer!.slice(0, 4));
    else expect(hex(report.payload)).toBe(answer);
    const after = await change<ClientEntry, ClientEntry>(state, "client default", (entry) => [entry, entry!]);
    expect(Object.keys(after.memo)).toEqual(Object.keys(kept.memo));
    expect((await client.account()).spent).toBe(spent);
  }
});
