/** What a collector may serve, and what is refused. */
import { describe, expect, test, vi } from "vitest";
import { configure, type Served } from "../src/configuration.js";
import { codeOf, renamed, served, UNHASHED, vectors } from "./helpers.js";

const golden = vectors();
const [wild] = golden.tasks;
const searches = golden.tasks.find((one) => one.task.canonical.includes('"kind":"searches"'))!;

// biome-ignore lint: a document to be broken
type Loose = any;

/** Break a served document, give it its right id, and say what becomes of it. */
async function broken(change: (document: Loose) => void, vector = wild!): Promise<string> {
  const document = structuredClone(served(vector)) as Loose;
  change(document);
  const { served: changed, id } = await renamed(document as Served).catch(() => ({ served: document, id: vector.task.id }));
  if (document.configuration?.task === "kept") changed.configuration.task = golden.tasks[1]!.task.id;
  return codeOf(() => configure(changed, id));
}

test("nothing is wrong with the golden tasks", async () => {
  for (const vector of golden.tasks) expect(await broken(() => undefined, vector)).toBe("");
});

test("the id that the page trusts binds the task", async () => {
  expect(await codeOf(() => configure(served(wild!), golden.tasks[1]!.task.id))).toBe("TaskInvalid");
  for (const change of [{ epsilon: "5" }, { lifetime_epsilon: "100" }, { sampling: "1/2" }, { unknown: "refuse" }, { records_per_user: 2 }, { oracle: "auto" }])
    expect(await codeOf(() => configure(served(wild!, change), wild!.task.id))).toBe("TaskInvalid");
});

test("the off-switch is not part of the id", async () => {
  expect((await configure(served(wild!, { enabled: false }), wild!.task.id)).task.client.enabled).toBe(false);
  expect(await codeOf(() => configure(served(wild!, { enabled: "yes" }), wild!.task.id))).toBe("TaskInvalid");
});

test("what only a collector uses is not part of the id, and all else is", async () => {
  const collect = { clock_skew: 1, max_body: 1, min_batch: 2, origins: ["https://b.example"], retention: 1 };
  for (const [key, value] of Object.entries(collect)) {
    expect(await collected({ [key]: value })).toBe("");
    expect(await collected({ [key]: undefined })).toBe("");
  }
  expect(await collected(collect)).toBe("");
  expect(UNHASHED.map(([, key]) => key)).toEqual(["enabled", ...Object.keys(collect)]);
  expect(await collected({ time_precision: 60 })).toBe("TaskInvalid");
  expect(await collected({ another: 1 })).toBe("TaskInvalid");
  for (const part of ["task", "optin", "client", "head"] as const) {
    const document = structuredClone(served(searches)) as Loose;
    // In these parts even the names that are left out of [collect] count.
    document.task[part] = { ...document.task[part], max_body: 1 };
    expect(await codeOf(() => configure(document, searches.task.id))).toBe("TaskInvalid");
  }
});

/** Say what becomes of a golden task under its own id when its [collect] is changed. */
function collected(changes: object): Promise<string> {
  const document = structuredClone(served(wild!)) as Loose;
  Object.assign(document.task.collect, changes);
  return codeOf(() => configure(JSON.stringify(document), wild!.task.id));
}

test("two collectors that serve the same promise have the same task", () => {
  const ids = golden.tasks.map((one) => one.task.id);
  const again = golden.tasks.filter((one, i) => ids.indexOf(one.task.id) < i);
  expect(again).toHaveLength(1);
  expect(again[0]!.task.served.collect.origins).toEqual(["https://a.example"]);
});

test("a task without its head list is not ready", async () => {
  expect(await broken((one) => (one.configuration = null), searches)).toBe("NotReady");
});

describe("integers that lose more than the task allows are refused", () => {
  test.each<[string, (oracle: Loose) => void, string?]>([
    ["one unit less of a lie", (oracle) => (oracle.lie -= 1)],
    ["no lie", (oracle) => (oracle.lie = 0)],
    ["lies that leave nothing for the truth", (oracle) => (oracle.lie = 2 ** 53 / 2)],
    ["lies that make the truth rare", (oracle) => (oracle.lie = Math.floor((2 ** 53 - 1) / 3))],
    ["half a unit", (oracle) => (oracle.lie += 0.5)],
    ["a text", (oracle) => (oracle.lie = `${oracle.lie}`)],
    ["too few cells", (oracle) => (oracle.k -= 1)],
    ["too many cells", (oracle) => (oracle.k += 1)],
    ["another mechanism", (oracle) => (oracle.name = "oue")],
    ["an unknown mechanism", (oracle) => (oracle.name = "plain")],
    ["an inherited name", (oracle) => (oracle.name = "constructor")],
    ["one more integer", (oracle) => (oracle.more = 1)],
    ["a missing integer", (oracle) => delete oracle.lie],
    ["one unit more of the truth", (oracle) => (oracle.truth += 1), "subset"],
    ["a truth that is nearly impossible", (oracle) => (oracle.truth = 1), "subset"],
    ["a larger set", (oracle) => (oracle.omega -= 1), "subset"],
    ["every cell", (oracle) => (oracle.omega = oracle.k), "subset"],
    ["one unit less of a bit", (oracle) => (oracle.lie -= 1), "oue"],
    ["bits that are nearly always set", (oracle) => (oracle.lie = 2 ** 53 - 9), "oue"],
    ["one unit less of a bucket", (oracle) => (oracle.lie -= 1), "olh"],
    ["one bucket", (oracle) => (oracle.g = 1), "olh"],
    ["another modulus", (oracle) => (oracle.prime = 7), "olh"],
    ["one unit less of a flip", (oracle) => (oracle.lie -= 1), "hadamard"],
  ])("%s", async (_, change, name = "krr") => {
    const vector = golden.tasks.find((one) => one.configuration.canonical.includes(`"name":"${name}"`))!;
    expect(await broken((one) => change(one.configuration.oracle), vector)).toBe("TaskInvalid");
  });
});

test("a mechanism's own choice needs a task that says auto", async () => {
  expect(await broken((one) => (one.task.client.oracle = "auto"))).toBe("");
  expect(await broken((one) => (one.task.client.oracle = "olh"))).toBe("TaskInvalid");
});

test("where the task leaves the choice, its head list says whether it is two-stage", async () => {
  const paper = golden.tasks.find(({ task: { served: { client, head } } }) => client.oracle === "auto" && head?.mode === "paper")!;
  const twoStage = golden.tasks.find((one) => one.task.served.client.oracle === "two-stage")!;
  expect(await broken(() => undefined, paper)).toBe("");
  expect(await broken((one) => (one.task.head.mode = "best"), paper)).toBe("TaskInvalid");
  expect(await broken((one) => (one.task.head = null), paper)).toBe("TaskInvalid");
  // There auto gives the query a share, and two-stage by name all that the URL leaves.
  expect(await broken((one) => (one.task.client.oracle = "auto"), twoStage)).toBe("TaskInvalid");
  expect(await broken((one) => Object.assign(one.task.client, { oracle: "auto", query_share: "17/20" }), paper)).toBe("");
  const best = golden.tasks.find((one) => one.task.served.client.oracle === "olh")!;
  // The choice is the device's own, and over few cells it is another.
  expect(await broken((one) => (one.task.client.oracle = "auto"), best)).toBe("TaskInvalid");
  expect(await broken((one) => Object.assign(one.task, { client: { ...one.task.client, oracle: "auto" }, head: { mode: "paper", size: 3 } }), best)).toBe("TaskInvalid");
});

test("two-stage, too, has the list of the task, query by query in the order of their first appearance", async () => {
  const twoStage = golden.tasks.find((one) => one.task.served.client.oracle === "two-stage")!;
  const own = (change: (records: Loose) => void) => (one: Loose) => {
    const { records } = one.configuration.domain;
    // The second query comes between the records of the first.
    one.task.task.domain = [records[0], records[3], records[1], records[2]].map((record) => [...record]);
    one.task.head = null;
    change(records);
  };
  expect(await broken(own((records) => records.reverse()), twoStage)).toBe("TaskInvalid");
  expect(await broken(own(() => undefined), twoStage)).toBe("");
  expect(await broken(own((records) => (records[0][0] = records[1][0] = records[2][0] = "another query")), twoStage)).toBe("TaskInvalid");
  expect(await broken(own((records) => (records.at(-1)[1] = "https://another.example")), twoStage)).toBe("TaskInvalid");
});

test("keys of the head list that came later are part of the id", async () => {
  for (const later of [{ keep: 2 }, { algorithm: "guided" }, { algorithm: "guided", weighed: 20 }]) {
    expect(await broken((one) => Object.assign(one.task.head, later), searches)).toBe("");
    const document = structuredClone(served(searches)) as Loose;
    Object.assign(document.task.head, later);
    expect(await codeOf(() => configure(document, searches.task.id))).toBe("TaskInvalid");
  }
});

test("no list holds the name of everything else", async () => {
  const change = (one: Loose) => {
    one.task.task.domain[1] = "*";
    one.configuration.domain.records[1] = ["*"];
  };
  for (const vector of golden.tasks.filter((one) => one.task.served.task.kind === "setting").slice(0, 2))
    expect(await broken(change, vector)).toBe("TaskInvalid");
  for (const vector of golden.tasks.filter((one) => one.task.served.task.kind === "searches"))
    for (const part of [0, 1]) expect(await broken((one) => (one.configuration.domain.records.at(-1)[part] = "*"), vector)).toBe("TaskInvalid");
  expect(await broken((one) => (one.configuration.domain.records[0][1] = "**"), searches)).toBe("");
});

test("a head list without the wildcard that the task promises is refused", async () => {
  const change = (one: Loose) => {
    one.configuration.domain.records.push(["maps", ""]);
    one.configuration.domain.wildcard = false;
  };
  expect(await broken(change, searches)).toBe("TaskInvalid");
});

test("each record has its share of epsilon", async () => {
  expect(await broken((one) => (one.task.client.records_per_user = 2))).toBe("TaskInvalid");
});

test.each<[string, (document: Loose) => void]>([
  ["another order of the domain", (one) => one.configuration.domain.records.reverse()],
  ["another value", (one) => (one.configuration.domain.records[0] = ["sepia"])],
  ["no wildcard", (one) => (one.configuration.domain.wildcard = false)],
  ["another kind", (one) => (one.configuration.domain.kind = "searches")],
  ["another version", (one) => (one.configuration.version = 2)],
  ["another task's configuration", (one) => (one.configuration.task = "kept")],
  ["no domain", (one) => delete one.configuration.domain],
  ["no mechanism", (one) => delete one.configuration.oracle],
  ["no client part", (one) => delete one.task.client],
  ["no task part", (one) => delete one.task.task],
  ["no task", (one) => delete one.task],
  ["an epsilon that is no number", (one) => (one.task.client.epsilon = "lots")],
])("refuses %s", async (_, change) => {
  expect(await broken(change)).toBe("TaskInvalid");
});

test("a page without https is told so", async () => {
  vi.stubGlobal("crypto", { getRandomValues: crypto.getRandomValues });
  expect(await codeOf(() => configure(served(wild!), wild!.task.id))).toBe("Unavailable");
  vi.unstubAllGlobals();
});

test.each([null, undefined, 7, "task", [], {}])("refuses %o", async (document) => {
  expect(await codeOf(() => configure(document, wild!.task.id))).toBe("TaskInvalid");
});
