// The only door to the network. Every request of the extension goes through here, and only to the collector's task.
import { read } from "./state.js";

const PATIENCE = 30_000;

/**
 * Make the `fetch` that the client uses.
 *
 * @param whenOff Whether it may be used while the extension is off: only to look at a task that the user asks for.
 */
export function doorTo({ collector, task }, whenOff = false) {
  const allowed = `${collector}/v1/tasks/${task}`;
  return async (address, init) => {
    if (address !== allowed && !address.startsWith(`${allowed}/reports`)) throw new Error("not the collector");
    if (!whenOff && !(await read()).on) throw new Error("switched off");
    return fetch(address, { ...init, redirect: "error", signal: AbortSignal.timeout(PATIENCE) });
  };
}
