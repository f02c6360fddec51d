/** The one call of a page: nothing for a collector that lies, one answer per period, the same bytes until they are taken. */
import { beforeEach, expect, test } from "vitest";
import { report, type Reported, type ReportOptions } from "../src/index.js";
import { base64url } from "../src/bytes.js";
import { reportToBytes } from "../src/reading.js";
import { Collector } from "./collector.js";
import { codeOf, type Loose, renamed, served, vectors } from "./helpers.js";

const [wild] = vectors().tasks;
const DAY = 86_400;
const SERVER = "https://collect.example.org";

let now = 0;
let number = 0;
let collector = new Collector();
let document: Loose;
let options: ReportOptions;
const asked: string[] = [];

beforeEach(async () => {
  now = 20_000 * DAY;
  collector = new Collector();
  asked.length = 0;
  const made = await renamed(served(wild!, {}, { period: DAY }));
  document = { ...made.served, epoch: { takes_reports: true } };
  const fetch = (address: string, init: RequestInit): Promise<Response> => {
    asked.push(address);
    expect(init).toMatchObject({ redirect: "error", credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
    return init.method ? collector.fetch(address, init) : Promise.resolve(Response.json(document));
  };
  options = { task: made.id, state: `reporting ${number++}`, clock: () => now, fetch };
});

const say = (value: string, more: Partial<ReportOptions> = {}) => report(SERVER, value, { ...options, ...more });

const plain = (done: Reported): unknown => JSON.parse(JSON.stringify(done));

test("one call draws once and sends; the first value of a period decides", async () => {
  const done = await say("dark");
  expect([done.outcome, done.account.entries.length]).toEqual(["stored", 1]);
  expect([...collector.stored.values()]).toEqual([base64url(reportToBytes(done.reports[0]!))]);
  for (const value of ["dark", "light"]) expect(plain(await say(value))).toEqual(plain({ ...done, outcome: "before" }));
  expect(collector.requests).toHaveLength(1);
  now += DAY;
  expect((await say("dark")).account).toEqual(done.account); // a value that comes back is free
  now += DAY;
  const other = await say("light");
  expect([other.outcome, other.account.spent]).toEqual(["stored", expect.closeTo(2 * done.account.spent, 8)]);
});

test("without the id of a task, or with half of it, nobody is asked", async () => {
  const { task } = options;
  for (const half of [undefined, "", task.slice(0, 12), task.toUpperCase(), `${task}/..`]) expect(await codeOf(() => say("dark", { task: half as Loose }))).toBe("Usage");
  expect(asked).toEqual([]);
});

test("a collector that serves something else, or takes nothing, gets nothing and costs nothing", async () => {
  const lies: [change: (document: Loose) => void, code: string][] = [
    [(one) => (one.task.client.epsilon = "2"), "TaskInvalid"],
    [(one) => (one.configuration.oracle.lie -= 1), "TaskInvalid"],
    [(one) => (one.configuration = null), "NotReady"],
    [(one) => (one.epoch = null), "NotReady"],
    [(one) => (one.epoch.takes_reports = false), "NotReady"],
  ];
  const honest = structuredClone(document);
  for (const [lie, code] of lies) {
    document = structuredClone(honest);
    lie(document);
    expect(await codeOf(() => say("dark"))).toBe(code);
  }
  expect(collector.requests).toEqual([]);
  document = honest;
  expect((await say("light")).account.entries).toHaveLength(1);
});

test("a collector that fails gets the same bytes by a later call, after a pause", async () => {
  collector.instead.push([500], "silence");
  const first = await say("dark");
  expect(first.outcome).toBe("later");
  now += 299;
  expect((await say("light")).outcome).toBe("later");
  expect(collector.requests).toHaveLength(1);
  now += 1;
  expect((await say("dark")).outcome).toBe("later");
  now += 900;
  expect(plain(await say("dark"))).toEqual(plain({ ...first, outcome: "stored" }));
  expect(new Set(collector.requests.map((one) => one.body)).size).toBe(1);
  expect(collector.requests).toHaveLength(3);
});

test("a report that is refused for good is not sent again", async () => {
  collector.instead.push([422]);
  expect((await say("dark")).outcome).toBe("refused");
  expect((await say("dark")).outcome).toBe("before");
});

test("many calls at once give one report", async () => {
  const made = await Promise.all(["dark", "light", "dark", "light"].map((value) => say(value)));
  expect(new Set(made.map((one) => JSON.stringify(one.reports))).size).toBe(1);
  expect(collector.stored.size).toBe(1);
  expect(made.at(-1)!.account.entries).toHaveLength(1);
});

test("a task that is switched off is not answered", async () => {
  document.task.client.enabled = false;
  expect(await say("dark")).toMatchObject({ outcome: "none", reports: [] });
  expect(collector.requests).toEqual([]);
});
