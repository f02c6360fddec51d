/** Fetch a task from its collector, and check what it says of its head lists against what it said before. */
import { utf8, hex } from "./bytes.js";
import { configure, type Configuration } from "./configuration.js";
import { must, wants } from "./errors.js";
import { sha256 } from "./hash.js";
import { change } from "./memo.js";

/** The browser's `fetch`, or what stands in for it. */
export type Fetch = (address: string, init: RequestInit) => Promise<Response>;

export interface FetchOptions {
  /** The database in IndexedDB, where the log of head lists that was seen last is kept. */
  readonly state?: string;
  /** In place of the browser's own. */
  readonly fetch?: Fetch;
}

/** How many head lists a device has seen in the log, and the hash of them all. */
interface Seen {
  readonly count: number;
  readonly log: string;
}

/**
 * Nothing that could name a client goes along with a request, no cache between answers it, and it goes nowhere else. There
 * is no conditional request: a collector would choose the validator, and know the device by it.
 */
export const SHY = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" } as const satisfies RequestInit;

// A hash in hexadecimal digits.
const HASH = /^[0-9a-f]{64}$/;

/** The address of a task at a collector. */
export function taskAddress(server: string, id: string): string {
  return `${server}/v1/tasks/${id}`;
}

/**
 * Fetch a task, check its id, and compute what its clients run.
 *
 * A head list must be the last one of the log that comes with it, and the log must go on from where it was.
 *
 * @param server The collector, such as https://collect.example.org
 * @param id The task id in hexadecimal digits. It is the hash of all that the task promises, so put it into your page:
 *   a collector can't change the promise then.
 */
export async function fetchTask(
  server: string,
  id: string,
  { state = "hushquery", fetch: ask = fetch }: FetchOptions = {},
): Promise<Configuration> {
  must(HASH.test(id), "Usage", "task");
  let text: string | undefined;
  let status = 0;
  try {
    const response = await ask(taskAddress(server, id), SHY);
    status = response.status;
    if (response.ok) text = await response.text();
  } catch {
    // Nobody answered.
  }
  must(text !== undefined, "Unavailable", `status ${status}`);
  const configuration = await configure(text, id);
  if (!configuration.task.head) return configuration;
  const key = `lists ${id}`;
  const seen = await change<Seen, Seen | undefined>(state, key, (entry) => [entry, entry]);
  const now = await logged((JSON.parse(text) as { lists?: unknown }).lists, configuration, seen);
  // Another tab may have seen more meanwhile.
  await change<Seen, void>(state, key, (entry) => [entry && entry.count > now.count ? entry : now]);
  return { ...configuration, log: now.log };
}

/** Follow the log of head lists, [epoch, configuration hash] pairs, past what was seen to the list that is served. */
async function logged(lists: unknown, { id, hash }: Configuration, seen?: Seen): Promise<Seen> {
  wants(Array.isArray(lists) && lists.length, "log");
  let [log, last, known] = [id, -1, !seen];
  for (const [i, entry] of lists.entries()) {
    const [epoch, of] = Array.isArray(entry) && entry.length === 2 ? entry : [];
    wants(Number.isSafeInteger(epoch) && epoch > last && HASH.test(of), "log");
    log = hex(await sha256(utf8(`hushquery-v1 list ${log} ${epoch} ${of}`)));
    known ||= i + 1 === seen!.count && log === seen!.log;
    last = epoch;
  }
  wants(known && lists.at(-1)[1] === hash, "log");
  return { count: lists.length, log };
}
