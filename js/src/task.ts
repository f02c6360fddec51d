/** Fetch a task from its collector, with the ETag of the last time. */
import { configure, type Configuration } from "./configuration.js";
import { must } from "./errors.js";
import { change } from "./memo.js";

/** The browser's `fetch`, or what stands in for it. */
export type Fetch = (address: string, init: RequestInit) => Promise<Response>;

export interface FetchOptions {
  /** The database in IndexedDB, where the last answer is kept. */
  readonly state?: string;
  /** In place of the browser's own. */
  readonly fetch?: Fetch;
}

interface Kept {
  readonly etag: string | null;
  readonly text: string;
}

/** Nothing that could name a client goes along with a request, no cache between answers it, and it goes nowhere else. */
export const SHY = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" } as const satisfies RequestInit;

/** The address of a task at a collector. */
export function taskAddress(server: string, id: string): string {
  return `${server}/v1/tasks/${id}`;
}

/**
 * Fetch a task and check it: its id, its domain, and that its mechanism loses no more than its epsilon.
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
  const key = taskAddress(server, id);
  const kept = await change<Kept, Kept | undefined>(state, key, (entry) => [entry, entry]);
  let fresh: Kept | undefined;
  let status = 0;
  try {
    const response = await ask(key, { ...SHY, headers: kept?.etag ? { "If-None-Match": kept.etag } : {} });
    status = response.status;
    if (response.ok) fresh = { etag: response.headers.get("ETag"), text: await response.text() };
  } catch {
    // Nobody answered.
  }
  const found = fresh ?? (status === 304 && kept);
  must(found, "Unavailable", `status ${status}`);
  const configuration = await configure(found.text, id);
  if (fresh) await change<Kept, void>(state, key, () => [fresh]);
  return configuration;
}
