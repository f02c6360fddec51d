/**
 * What a device must not forget, in IndexedDB. A client is one entry: its secret and what it has lost, its permanent
 * answers under keys that only the secret makes, and the reports of each period, sent or not. No value is in it.
 *
 * A change is one transaction. The browser lets one transaction at a time write, over all tabs, and its end means that
 * everything is on the disk; only then is anything handed out.
 */
import type { Bytes } from "./bytes.js";
import { HushqueryError } from "./errors.js";
import type { ReportFields } from "./report.js";

/** All that is remembered of a client. The names of these parts are on people's disks: they can't change. */
export interface ClientEntry {
  readonly secret: Bytes;
  /** What was lost, and the smallest lifetime of the tasks answered (empty before the first), as `n/d`. */
  spent: string;
  cap: string;
  /** The permanent answers, by memo key. */
  readonly memo: Record<string, MemoEntry>;
  /** By task, period and slot. */
  readonly reports: Record<string, ReportEntry>;
}

/** A permanent answer. */
export interface MemoEntry {
  readonly task: string;
  readonly period: number;
  readonly cost: string;
  readonly payload: Bytes;
}

/** A report; `sent` is 0 while it waits in the outbox, 1 when acknowledged, 2 when refused for good. */
export interface ReportEntry extends ReportFields {
  sent: 0 | 1 | 2;
}

const STORE = "state";

/**
 * Change one entry, alone; what was written is on the disk when this ends.
 *
 * @param name The database.
 * @param key The entry.
 * @param work Gets the entry, undefined if there is none, and gives the new one (none deletes it) and a result. If
 *   it throws, nothing has changed.
 */
export async function change<E, T>(
  name: string,
  key: string,
  work: (entry: E | undefined) => readonly [entry?: E | undefined, result?: T],
): Promise<T> {
  let failure: unknown;
  try {
    const open = indexedDB.open(name, 1);
    open.onupgradeneeded = () => open.result.createObjectStore(STORE);
    await new Promise((resolve, reject) => {
      open.onsuccess = resolve;
      open.onerror = reject;
    });
    const transaction = open.result.transaction(STORE, "readwrite", { durability: "strict" });
    // It stays open until the transaction has ended, and then keeps no other tab from anything.
    open.result.close();
    const store = transaction.objectStore(STORE);
    const found = store.get(key);
    let result: T | undefined;
    found.onsuccess = () => {
      try {
        const [entry, value] = work(found.result as E | undefined);
        result = value;
        if (entry) store.put(entry, key);
        else store.delete(key);
      } catch (error) {
        failure = error;
        transaction.abort();
      }
    };
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = reject;
    });
    return result as T;
  } catch {
    throw failure ?? new HushqueryError("Unavailable", "storage");
  }
}
