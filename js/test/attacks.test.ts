/**
 * A hostile collector: it serves every device what it likes, over 30 periods in which the device's value stays the same.
 *
 * Whatever it serves, a device refuses it and spends nothing, or sends what it would have sent to an honest collector,
 * byte for byte; and all answers of a device together tell no more than its account says, by their exact law.
 */
import { describe, expect, test } from "vitest";
import { hex } from "../src/bytes.js";
import { Client } from "../src/client.js";
import type { Configuration } from "../src/configuration.js";
import { atMost, loss, type Ratio, ratio } from "../src/exact.js";
import { mechanismOf } from "../src/mechanisms.js";
import { change, type ClientEntry } from "../src/memo.js";
import { send } from "../src/send.js";
import { fetchTask } from "../src/task.js";
import { codeOf, type Device, devices, entryOf, honest, type Loose, SeededBits } from "./helpers.js";
import { type Told, weights, worstTexts } from "./likelihood.js";

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
  /** What its requests said beside their address. */
  readonly said: unknown[] = [];
  /** Each answer that was drawn, and whether it was paid for. */
  readonly told = new Map<string, Told & { readonly paid: boolean }>();
  client: Client | undefined;

  constructor(
    readonly device: Device,
    readonly seed: number,
  ) {}

  /** Let a period pass with one document; its coins are those of the period, so that two victims can be compared. */
  async period(day: number, document: unknown, headers: Record<string, string> = {}): Promise<void> {
    const { id, value, time } = this.device;
    if (!day) await change(this.state, "client default", () => [{ secret: secretOf(this.seed), spent: "0", cap: "", memo: {}, reports: {} }]);
    const before = JSON.stringify(await this.entry());
    const fetch = async (_: string, { headers: given, body, ...init }: RequestInit) => {
      this.said.push([given, body, init]);
      return new Response(JSON.stringify(document), { headers });
    };
    const code = await codeOf(async () => {
      const configuration = await fetchTask(SERVER, id, { state: this.state, fetch });
      const now = time + day * DAY;
      this.client = new Client(configuration, { state: this.state, clock: () => now, bits: new SeededBits(1000 * this.seed + day + 1) });
      const { spent } = await this.client.account();
      const report = await this.client.report(...(value as [string, string?]));
      this.sent[day] = report && { ...report.toJSON(), id: "" };
      if (report) this.#tell(configuration, hex(report.payload), (await this.client.account()).spent > spent);
    });
    if (!code) return;
    this.refused.push(code);
    // What was refused has cost nothing and changed nothing.
    expect(JSON.stringify(await this.entry())).toBe(before);
  }

  #tell(configuration: Configuration, payload: string, paid: boolean): void {
    const { hash, description } = configuration;
    const known = this.told.get(hash);
    // The same configuration gets the same answer; RAPPOR draws fresh ones from it.
    if (known && description.name !== "rappor") expect(payload).toBe(known.payloads[0]);
    this.told.set(hash, known ? { ...known, payloads: [...known.payloads, payload] } : { configuration, payloads: [payload], paid });
  }

  async entry(): Promise<ClientEntry> {
    return change<ClientEntry, ClientEntry>(this.state, "client default", (entry) => [entry, entry!]);
  }

  /** Check that everything that was told, taken together, tells any two values apart by no more than the account says. */
  async expectWithinAccount(): Promise<void> {
    const { spent } = await this.entry();
    expect(atMost(this.lost(), ratio(spent))).toBe(true);
  }

  /** Compute the largest |ln| of the likelihoods of everything that was told, over all pairs of values; exactly. */
  lost(values = valuesOf(this.device)): Ratio {
    const paid = [...this.told.values()].filter((one) => one.paid);
    expect(paid.length).toBeGreaterThan(0);
    if (paid[0]!.configuration.description.name === "rappor") return loss(...worstTexts(paid[0]!));
    const likelihoods = values.map((value) => paid.reduce((product, one) => product * weights(one, value), 1n));
    return loss(likelihoods.reduce((a, b) => (a > b ? a : b)), likelihoods.reduce((a, b) => (a < b ? a : b)));
  }
}

/** Find a device whose first answer tells nearly as much as it may, so that one more would be seen. */
async function talkative(device: Device): Promise<number> {
  const [n, d] = ratio(device.task.client.epsilon);
  for (let seed = 1; ; seed++) {
    const victim = new Victim(device, seed);
    for (let day = 0; day < (device.task.client.rappor ? DAYS : 1); day++) await victim.period(day, honest(device));
    if (atMost([n * 3n, d * 5n], victim.lost())) return seed;
  }
}

/** The values that an attacker wants to tell apart. */
function valuesOf({ task, configuration: { domain } }: Device): (readonly (string | number)[])[] {
  if (task.task.highest) return Array.from({ length: task.task.highest + 1 }, (_, i) => [i]);
  return [...(domain.records ?? []), ["never heard of"]];
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
    const seed = await talkative(device);
    const plain = new Victim(device, seed);
    for (let day = 0; day < DAYS; day++) await plain.period(day, honest(device));
    expect(plain.sent.filter(Boolean)).toHaveLength(DAYS);
    await plain.expectWithinAccount();
    const documents = tried(device);
    let [accepted, refused] = [0, 0];
    for (let at = 0; at < documents.length; at += DAYS - 1) {
      const victim = new Victim(device, seed);
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
      // Every request is the same, so that nothing links two of them.
      expect(new Set(victim.said.map((one) => JSON.stringify(one))).size).toBe(1);
      expect(victim.said[0]).toMatchObject([undefined, undefined, { credentials: "omit", redirect: "error" }]);
      expect((await victim.entry()).spent).toBe((await plain.entry()).spent);
      await victim.expectWithinAccount();
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
      const victim = new Victim({ ...device, value: [i % 2 ? 100 : 0] }, i);
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
      const victim = new Victim(device, i);
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
      const victim = new Victim(device, i);
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

/** Return what a collector serves in a period in which it has published a list, after others. */
async function listed(device: Device, records: readonly (readonly string[])[], before: readonly (readonly [number, string])[]): Promise<Loose> {
  const { id, task } = device;
  const { description_: oracle, records_: ordered = records } = await mechanismOf(task, records.length + 1, ratio(task.client.epsilon), records);
  const configuration = { version: 1, task: id, domain: { kind: "searches", records: ordered, wildcard: true }, oracle };
  const made = honest({ ...device, configuration });
  return { ...made, lists: [...before, [(before.at(-1)?.[0] ?? 0) + 1, made.configuration_hash]] };
}

describe.each(devices().filter((one) => one.head).map((device) => [`${device.configuration.oracle.name}, ${device.task.client.oracle}`, device] as const))("head lists: %s", (_, device) => {
  const records = (day: number) => [...Array.from({ length: 2 + (day % 3) }, (_, i) => [`query ${day} ${i}`, ""]), [...device.value, ""].slice(0, 2) as string[]];

  test("a new list in every period is a new answer, paid for, until the budget is spent", async () => {
    const victim = new Victim(device, 3);
    let lists: [number, string][] = [];
    const seen: (readonly (string | number)[])[] = [device.value, ["never heard of"]];
    for (let day = 0; day < DAYS; day++) {
      const document = await listed(device, records(day), lists);
      ({ lists } = document);
      seen.push(...records(day).slice(0, 1));
      await victim.period(day, document);
    }
    expect(victim.refused).toEqual([]);
    expect(victim.told.size).toBe(DAYS);
    const { spent, cap } = await victim.entry();
    const cost = ratio(device.task.client.epsilon);
    const answers = [...victim.told.values()].filter((one) => one.paid).length;
    expect(ratio(spent)).toEqual([cost[0] * BigInt(answers), cost[1]].map((n) => n / gcd(cost[0] * BigInt(answers), cost[1])));
    expect(atMost(ratio(spent), ratio(cap))).toBe(true);
    expect(atMost(victim.lost(seen), ratio(spent))).toBe(true);
  });

  test("a list for one device alone needs a log for it alone, from the first time on, and its hash shows it", async () => {
    const [everybodys, own] = [await listed(device, records(0), []), await listed(device, records(1), [])];
    const log = async (document: Loose, state = `log ${number++}`) =>
      (await fetchTask(SERVER, device.id, { state, fetch: async () => Response.json(document) })).log;
    const state = `log ${number++}`;
    expect(await log(everybodys, state)).toBe(await log(everybodys));
    expect(await codeOf(() => log(own, state))).toBe("TaskInvalid");
    expect(await log(own)).not.toBe(await log(everybodys));
  });
});

function gcd(a: bigint, b: bigint): bigint {
  return b ? gcd(b, a % b) : a;
}

test("whatever a collector answers to uploads, a device sends the bytes it made, and comes back when it likes", async () => {
  const device = named("krr");
  const state = `uploads ${number++}`;
  const configuration = await fetchTask(SERVER, device.id, { state, fetch: async () => Response.json(honest(device)) });
  let now = device.time;
  const client = new Client(configuration, { state, clock: () => now });
  const answers: Response[] = [];
  for (const status of [200, 201, 400, 401, 404, 409, 410, 413, 422, 425, 429, 500, 503])
    for (const after of ["", "1", "77", "86399", "Mon, 21 Sep 2026 14:15:00 GMT"])
      answers.push(new Response('{"results":[{"status":201},7,{}]}', { status, headers: { "Retry-After": after, ETag: `"${after}"`, "Set-Cookie": `name=${after}` } }));
  const made = new Map<string, string>();
  const tries: number[] = [];
  const fetch = async (address: string, { body, ...init }: RequestInit) => {
    tries.push(now);
    const plain = JSON.parse(body as string) as { reports?: Loose[] };
    expect(init).toEqual({ cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", method: plain.reports ? "POST" : "PUT", headers: { "Content-Type": "application/json" } });
    expect(address.startsWith(`${SERVER}/v1/tasks/${device.id}/reports`)).toBe(true);
    for (const one of plain.reports ?? [plain as Loose]) expect(JSON.stringify(one)).toBe(made.get(one.id));
    return answers.shift()!;
  };
  const gaps = new Set<number>();
  for (let [day, failed] = [1, 0]; answers.length > 5; ) {
    const report = (await client.report("light"))!.toJSON();
    made.set(report.id, JSON.stringify(report));
    const before = tries.at(-1);
    await send(client, SERVER, { fetch });
    if (failed && tries.at(-1) !== before) gaps.add(tries.at(-1)! - before!);
    failed = (await client.outbox()).length;
    now = failed ? now + 100 : device.time + day++ * DAY;
  }
  expect(made.size).toBeGreaterThan(2);
  expect(new Set([...made.values()].map((text) => (JSON.parse(text) as { payload: string }).payload)).size).toBe(1);
  // When it comes back depends on how often it failed, and on nothing else.
  expect([...gaps].sort()).toEqual([300, 900]);
  expect((await client.account()).entries).toHaveLength(1);
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
