/** The state: one transaction, all or nothing, and no hanging when the browser's storage fails. */
import { IDBFactory } from "fake-indexeddb";
import { afterEach, expect, test, vi } from "vitest";
import { change } from "../src/memo.js";
import { codeOf } from "./helpers.js";

afterEach(() => vi.unstubAllGlobals());

const read = (name: string) => change<object, object | undefined>(name, "key", (entry) => [entry, entry]);

test("a change that throws changes nothing, and what it threw comes out", async () => {
  await change<object, void>("memo", "key", () => [{ a: 1 }, undefined]);
  const failed = change<object, void>("memo", "key", () => {
    throw new RangeError("mine");
  });
  await expect(failed).rejects.toThrow("mine");
  expect(await read("memo")).toEqual({ a: 1 });
  // What can't be stored is not stored by half.
  expect(await change("memo", "key", () => [{ a: () => 1 }, 1]).catch((error: Error) => error.name)).toBe("DataCloneError");
  expect(await read("memo")).toEqual({ a: 1 });
});

test("changes at the same time come one after the other", async () => {
  const more = () => change<{ n: number }, number>("memo count", "key", (entry) => [{ n: (entry?.n ?? 0) + 1 }, entry?.n ?? 0]);
  expect((await Promise.all(Array.from({ length: 50 }, more))).sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i));
});

test("an entry can be deleted", async () => {
  await change<object, void>("memo gone", "key", () => [{}, undefined]);
  await change<object, void>("memo gone", "key", () => [undefined, undefined]);
  expect(await read("memo gone")).toBeUndefined();
});

test("the result is there only when the transaction has ended", async () => {
  const events: string[] = [];
  await read("memo durable");
  const { transaction } = IDBDatabase.prototype;
  const spy = vi.spyOn(IDBDatabase.prototype, "transaction").mockImplementation(function (this: IDBDatabase, ...args) {
    const made = transaction.apply(this, args);
    events.push(JSON.stringify(args.slice(1)));
    made.addEventListener("complete", () => events.push("complete"));
    return made;
  });
  await change<object, void>("memo durable", "key", () => [{}, undefined]);
  events.push("handed out");
  spy.mockRestore();
  expect(events).toEqual(['["readwrite",{"durability":"strict"}]', "complete", "handed out"]);
});

test("storage that can't be used is an error, not a wait", async () => {
  const newer = indexedDB.open("memo newer", 2);
  await new Promise((resolve) => (newer.onsuccess = resolve));
  newer.result.close();
  expect(await codeOf(() => read("memo newer"))).toBe("Unavailable");
  const foreign = indexedDB.open("memo foreign", 1);
  await new Promise((resolve) => (foreign.onsuccess = resolve));
  foreign.result.close();
  expect(await codeOf(() => read("memo foreign"))).toBe("Unavailable");
  vi.stubGlobal("indexedDB", undefined);
  expect(await codeOf(() => read("memo none"))).toBe("Unavailable");
  const refusing = new IDBFactory();
  refusing.open = () => {
    throw new DOMException("denied", "SecurityError");
  };
  vi.stubGlobal("indexedDB", refusing);
  expect(await codeOf(() => read("memo denied"))).toBe("Unavailable");
});
