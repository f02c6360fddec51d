/** Bytes with a buffer of their own, as browsers' interfaces want them. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Give bytes one behind the other. */
export function join(...parts: readonly Iterable<number>[]): Bytes {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

/** Write a number little-endian. */
export function little(value: number | bigint, length: number): Bytes {
  return Uint8Array.from({ length }, (_, i) => Number((BigInt(value) >> BigInt(8 * i)) & 255n));
}

/** Write a number big-endian. */
export function big(value: number, length: number): Bytes {
  return little(value, length).reverse();
}

/** Read a big-endian number. */
export function fromBig(bytes: Uint8Array): bigint {
  return bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
}

/** Write bytes as hexadecimal digits. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => (byte + 256).toString(16).slice(1)).join("");
}

/** Write bytes as base64url without padding. */
export function base64url(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replace(/[=+/]/g, (sign) => "-_"["+/".indexOf(sign)] ?? "");
}

/** Give the bytes of a text in UTF-8. */
export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}
