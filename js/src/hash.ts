/** SHA-256 and HMAC-SHA256 of the browser, and the one text that is hashed. */
import { big, type Bytes, fromBig, join, utf8 } from "./bytes.js";
import { wants } from "./errors.js";

/** Write plain data as canonical JSON: keys sorted, no spaces, ASCII only. */
export function canonical(data: unknown): string {
  if (Array.isArray(data)) return `[${data.map(canonical)}]`;
  if (data && typeof data === "object") {
    const entries = Object.entries(data).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([key, value]) => `${canonical(key)}:${canonical(value)}`)}}`;
  }
  // Every number in a task is whole; the largest is the chance 2^53.
  wants(typeof data !== "number" || (Number.isInteger(data) && Math.abs(data) <= 2 ** 53), "number");
  return JSON.stringify(data).replace(/[^ -~]/g, (unit) => `\\u${hex4(unit.charCodeAt(0))}`);
}

function hex4(unit: number): string {
  return (unit + 65536).toString(16).slice(1);
}

/** Hash a text. */
export async function sha256(text: string): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", utf8(text)));
}

/** Name an answer without storing what it answers. Cell 2^32 - 1 stands for the empty answer after the cap. */
export function memoKey(secret: Bytes, task: Bytes, configuration: Bytes, slot: number, cell: number): Promise<Bytes> {
  return mac(secret, "memo", task, configuration, big(slot, 4), big(cell, 4));
}

/** Give the number below 2^53 that decides on a client's sampling in a period. */
export async function samplingNumber(secret: Bytes, task: Bytes, period: number): Promise<bigint> {
  return fromBig((await mac(secret, "sampling", task, big(period, 8))).subarray(0, 8)) >> 11n;
}

async function mac(secret: Bytes, purpose: string, ...rest: Bytes[]): Promise<Bytes> {
  const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, join(utf8(`hushquery-v1 ${purpose}\0`), ...rest)));
}
