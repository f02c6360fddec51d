/** SHAKE-256 (FIPS 202), which browsers do not offer. Slow and short: it hashes one text per report. */
import { type Bytes, join } from "./bytes.js";

const RATE = 136;

/** Give the first bytes of SHAKE-256 of a message. */
export function shake256(message: Bytes, length: number): Bytes {
  const lanes = new BigUint64Array(25);
  const state = new Uint8Array(lanes.buffer);
  const padded = join(message, [31], new Uint8Array(RATE - 1 - (message.length % RATE)));
  padded[padded.length - 1]! ^= 128;
  for (let at = 0; at < padded.length; at += RATE) {
    for (let i = 0; i < RATE; i++) state[i]! ^= padded[at + i]!;
    permute(lanes);
  }
  let out = state.slice(0, RATE);
  while (out.length < length) {
    permute(lanes);
    out = join(out, state.subarray(0, RATE));
  }
  return out.slice(0, length);
}

function turned(lane: bigint, by: number): bigint {
  return BigInt.asUintN(64, (lane << BigInt(by)) | (lane >> BigInt(64 - by)));
}

function permute(a: BigUint64Array): void {
  for (let round = 0, r = 1; round < 24; round++) {
    // Theta.
    const c = [0, 1, 2, 3, 4].map((x) => a[x]! ^ a[x + 5]! ^ a[x + 10]! ^ a[x + 15]! ^ a[x + 20]!);
    for (let i = 0; i < 25; i++) a[i]! ^= c[(i + 4) % 5]! ^ turned(c[(i + 1) % 5]!, 1);
    // Rho and pi.
    for (let t = 1, by = 0, at = 1, lane = a[1]!; t < 25; t++) {
      at = Math.floor(at / 5) + 5 * ((2 * (at % 5) + 3 * Math.floor(at / 5)) % 5);
      by = (by + t) % 64;
      [lane, a[at]] = [a[at]!, turned(lane, by)];
    }
    // Chi.
    for (let y = 0; y < 25; y += 5) {
      const row = a.slice(y, y + 5);
      for (let x = 0; x < 5; x++) a[y + x]! ^= BigInt.asUintN(64, ~row[(x + 1) % 5]!) & row[(x + 2) % 5]!;
    }
    // Iota.
    for (let j = 0; j < 7; j++) {
      r = ((r << 1) ^ ((r >> 7) * 0x71)) % 256;
      if (r & 2) a[0]! ^= 1n << BigInt(2 ** j - 1);
    }
  }
}
