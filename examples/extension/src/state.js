// All that the extension remembers, in its own storage on this device. (The client's secret, permanent answers and
// outbox are in IndexedDB, where the hushquery client keeps them.)

export const api = globalThis.browser ?? chrome;

const KEY = "state";

/** As installed: off, and nothing known. */
const INITIAL = {
  on: false,
  /** The collector, the task and what it promises, the site; null: not set up. */
  settings: null,
  /** The search kept of the running period, and that of the period before, which is to be reported. */
  running: null,
  ended: null,
  /** The period whose report comes next, and the second at which it is made. */
  next: null,
  due: null,
  /** What was reported, newest first. */
  history: [],
  /** What the client has lost, and may lose. */
  account: null,
  /** Why the last try did not succeed. */
  trouble: null,
};

/** How many reports are shown again. */
const MOST_HISTORY = 50;

export async function read() {
  return { ...INITIAL, ...(await api.storage.local.get(KEY))[KEY] };
}

let last = Promise.resolve();

/** Change the state, one change after the other: `work` gets it and gives what is different. */
export function change(work) {
  const done = last.then(async () => {
    const before = await read();
    const after = { ...before, ...work(before) };
    after.history = after.history.slice(0, MOST_HISTORY);
    await api.storage.local.set({ [KEY]: after });
    return after;
  });
  last = done.catch(() => {});
  return done;
}

/** Forget everything: settings, searches, history, and the client with its secret and its account. */
export async function forget() {
  await change(() => INITIAL);
  await new Promise((resolve, reject) => {
    const gone = indexedDB.deleteDatabase("hushquery");
    gone.onsuccess = resolve;
    gone.onerror = () => reject(gone.error);
  });
}

/** Number the period that a second is in. */
export function periodAt(settings, now) {
  return Math.floor(now / settings.period);
}

/** Let go of what belongs to the past: a period's search is of use in the period after it, and then no more. */
export function rolled({ running, ended }, period) {
  const kept = [running, ended].filter(Boolean);
  const of = (wanted) => kept.find((one) => one.period === wanted) ?? null;
  return { running: of(period), ended: of(period - 1) };
}
