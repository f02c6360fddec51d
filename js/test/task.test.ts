/** Fetching a task: nothing that names a device goes along, and the log of head lists goes on from where it was. */
import { beforeEach, expect, test } from "vitest";
import { hex, utf8 } from "../src/bytes.js";
import { sha256 } from "../src/hash.js";
import { fetchTask } from "../src/task.js";
import { codeOf, devices, honest, type Loose, served, vectors } from "./helpers.js";

const [vector] = vectors().tasks;
const { id } = vector!.task;
const SERVER = "https://collect.example.org";

let state = "";
let number = 0;
beforeEach(() => {
  state = `task ${number++}`;
});

const document = JSON.stringify(served(vector!));

test("every time it is fetched anew, and the request says nothing of the last time", async () => {
  const asked: [string, RequestInit][] = [];
  const fetch = async (address: string, init: RequestInit) => {
    asked.push([address, init]);
    return new Response(document, { headers: { ETag: '"device 17"', "Set-Cookie": "device=17" } });
  };
  for (let turn = 0; turn < 2; turn++) expect((await fetchTask(SERVER, id, { state, fetch })).id).toBe(id);
  const shy = { credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error" };
  for (const one of asked) expect(one).toEqual([`${SERVER}/v1/tasks/${id}`, shy]);
});

test("the off-switch works at once", async () => {
  const at = (enabled: boolean) => async () => Response.json(served(vector!, { enabled }));
  for (const enabled of [true, false, true])
    expect((await fetchTask(SERVER, id, { state, fetch: at(enabled) })).task.client.enabled).toBe(enabled);
});

test("what was fetched before stands in for no answer", async () => {
  await fetchTask(SERVER, id, { state, fetch: async () => new Response(document) });
  for (const status of [304, 503]) {
    const failing = async () => new Response(null, { status });
    expect(await codeOf(() => fetchTask(SERVER, id, { state, fetch: failing }))).toBe("Unavailable");
  }
});

const headed = devices().find((one) => one.head)!;
const other = "ab".repeat(32);

/** Fetch the task with a head list, with a log that is changed. */
function withLists(change: (lists: Loose) => Loose): Promise<string> {
  const one = honest(headed);
  one.lists = change(one.lists);
  return codeOf(() => fetchTask(SERVER, headed.id, { state, fetch: async () => Response.json(one) }));
}

test("the log of head lists goes on from where it was, and ends with the list that is served", async () => {
  const [[epoch, before], [now, hash]] = honest(headed).lists;
  expect(await withLists((lists) => lists)).toBe("");
  expect(await withLists((lists) => lists)).toBe("");
  expect(await withLists((lists) => [...lists, [now + 1, hash]])).toBe("");
  const wrong: Loose[] = [
    undefined,
    null,
    [],
    "lists",
    [[now, hash]],
    [[epoch, before]],
    [[epoch, before], [now, hash]],
    [[epoch, other], [now, hash], [now + 1, hash]],
    [[epoch, before], [now, other], [now + 1, hash]],
    [[epoch, before], [now, hash], [now + 1, hash], [now + 2, other]],
    [[epoch, before], [now, hash], [now + 1, hash], [now + 1, hash]],
    [[epoch, before], [now, hash], [now + 1, hash], [now + 1.5, hash]],
    [[epoch, before], [now, hash], [now + 1, hash], [now + 2, hash.toUpperCase()]],
    [[epoch, before], [now, hash], [now + 1, hash], 7],
  ];
  for (const lists of wrong) expect([lists, await withLists(() => lists)]).toEqual([lists, "TaskInvalid"]);
  expect(await withLists((lists) => [...lists, [now + 1, hash], [now + 3, other], [now + 4, hash]])).toBe("");
});

test("the hash of the log is that of its text, entry by entry", async () => {
  const one = honest(headed);
  const { log } = await fetchTask(SERVER, headed.id, { state, fetch: async () => Response.json(one) });
  let chain = headed.id;
  for (const [epoch, hash] of one.lists) chain = hex(await sha256(utf8(`hushquery-v1 list ${chain} ${epoch} ${hash}`)));
  expect(log).toBe(chain);
});

test.each([
  ["no JSON", async () => new Response("<html>"), "TaskInvalid"],
  ["no network", async () => Promise.reject(new TypeError("network")), "Unavailable"],
  ["an error", async () => new Response(document, { status: 500 }), "Unavailable"],
  ["no such task", async () => new Response("{}", { status: 404 }), "Unavailable"],
  ["not modified, but nothing is kept", async () => new Response(null, { status: 304 }), "Unavailable"],
  ["no head list yet", async () => Response.json({ ...served(vector!), configuration: null }), "NotReady"],
])("%s", async (_, fetch, code) => {
  expect(await codeOf(() => fetchTask(SERVER, id, { state, fetch }))).toBe(code);
});
