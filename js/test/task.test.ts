/** Fetching a task: the ETag of the last time, and what is not taken for an answer. */
import { beforeEach, expect, test } from "vitest";
import { fetchTask } from "../src/task.js";
import { codeOf, served, vectors } from "./helpers.js";

const [vector, other] = vectors().tasks;
const { id } = vector!.task;
const SERVER = "https://collect.example.org";

let state = "";
let number = 0;
beforeEach(() => {
  state = `task ${number++}`;
});

/** A server with one document; gives what it was asked. */
function server(text: string, etag: string | null = '"1"') {
  const asked: { address: string; tag: string | undefined; init: RequestInit }[] = [];
  const fetch = async (address: string, init: RequestInit) => {
    const tag = (init.headers as Record<string, string>)["If-None-Match"];
    asked.push({ address, tag, init });
    if (etag && tag === etag) return new Response(null, { status: 304 });
    return new Response(text, { headers: etag ? { ETag: etag } : {} });
  };
  return { asked, fetch };
}

const document = JSON.stringify(served(vector!));

test("the second time asks whether it has changed", async () => {
  const { asked, fetch } = server(document);
  for (let turn = 0; turn < 2; turn++) expect((await fetchTask(SERVER, id, { state, fetch })).id).toBe(id);
  expect(asked.map((one) => one.tag)).toEqual([undefined, '"1"']);
  expect(asked[0]!.address).toBe(`${SERVER}/v1/tasks/${id}`);
  expect(asked[0]!.init).toMatchObject({ credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error" });
});

test("a change replaces what was kept, the off-switch for example", async () => {
  await fetchTask(SERVER, id, { state, ...server(document) });
  const off = JSON.stringify(served(vector!, { enabled: false }));
  const second = server(off, '"2"');
  expect((await fetchTask(SERVER, id, { state, ...second })).task.client.enabled).toBe(false);
  expect((await fetchTask(SERVER, id, { state, ...second })).task.client.enabled).toBe(false);
  expect(second.asked.map((one) => one.tag)).toEqual(['"1"', '"2"']);
});

test("what was kept stands in for no other answer than that it has not changed", async () => {
  await fetchTask(SERVER, id, { state, ...server(document) });
  const failing = async () => new Response("", { status: 503 });
  expect(await codeOf(() => fetchTask(SERVER, id, { state, fetch: failing }))).toBe("Unavailable");
  expect(await codeOf(() => fetchTask(SERVER, id, { state, fetch: () => Promise.reject(new TypeError("network")) }))).toBe("Unavailable");
});

test("without an ETag it is fetched anew", async () => {
  const { asked, fetch } = server(document, null);
  for (let turn = 0; turn < 2; turn++) await fetchTask(SERVER, id, { state, fetch });
  expect(asked.map((one) => one.tag)).toEqual([undefined, undefined]);
});

test("a document that is refused is not kept", async () => {
  expect(await codeOf(() => fetchTask(SERVER, id, { state, ...server(JSON.stringify(served(other!)), '"x"') }))).toBe("TaskInvalid");
  const { asked, fetch } = server(document);
  await fetchTask(SERVER, id, { state, fetch });
  expect(asked.map((one) => one.tag)).toEqual([undefined]);
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
