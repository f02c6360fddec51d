/** SHA-256 and HMAC-SHA256 of the browser, and the one text that is hashed. */
import { big, type Bytes, fromBig, hex, join, utf8 } from "./bytes.js";

/** Write plain data as canonical JSON: keys sorted, no spaces, ASCII only. Numbers in tasks are whole, up to 2^53. */
export function canonical(data: unknown): string {
  if (Array.isArray(data)) return `[${data.map(canonical)}]`;
  if (data && typeof data === "object") {
    const entries = Object.entries(data).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([key, value]) => `${canonical(key)}:${canonical(value)}`)}}`;
  }
  return JSON.stringify(data).replace(/[^ -~]/g, (unit) => `\\u${(unit.charCodeAt(0) + 65536).toString(16).slice(1)}`);
}

/** Hash bytes. */
export async function sha256(data: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

/** HMAC-SHA256 under a device's secret, of texts and bytes one behind the other. */
export type Mac = (...parts: readonly (string | Bytes)[]) => Promise<Bytes>;

/** Make the MAC of a secret. */
export async function macOf(secret: Bytes): Promise<Mac> {
  const { subtle } = crypto;
  const key = await subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return async (...parts) => {
    const message = join(...parts.map((part) => (typeof part === "string" ? utf8(part) : part)));
    return new Uint8Array(await subtle.sign("HMAC", key, message));
  };
}

/** Name an answer without storing what it answers. */
export async function memoKey(mac: Mac, task: Bytes, configuration: Bytes, slot: number, name: Bytes): Promise<string> {
  return hex(await mac("hushquery-v1 memo\0", task, configuration, big(slot, 4), name));
}

/** Make the MAC of the coins that are kept for one configuration: another one, with other chances, has other coins. */
export async function coinsOf(mac: Mac, task: Bytes, configuration: Bytes): Promise<Mac> {
  return macOf(await mac("hushquery-v1 coins\0", task, configuration));
}

/** Give the number below 2^53 that decides on a client's sampling in a period. */
export async function samplingNumber(mac: Mac, task: Bytes, period: number): Promise<bigint> {
  return upper(await mac("hushquery-v1 sampling\0", task, big(period, 8)));
}

/** Give the upper 53 bits of a MAC. */
export function upper(mac: Bytes): bigint {
  return fromBig(mac.subarray(0, 8)) >> 11n;
}
