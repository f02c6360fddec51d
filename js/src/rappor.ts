/** RAPPOR, native: a text's Bloom filter, its permanent response by the secret, and a fresh response per report. */
import type { Bits } from "./bits.js";
import { big, type Bytes, fromBig, join, little, utf8 } from "./bytes.js";
import { coin } from "./chance.js";
import { short } from "./domain.js";
import { must } from "./errors.js";
import { type Mac, macOf, sha256, upper } from "./hash.js";
import { normalValue } from "./normalise.js";
import { bytesFor, type Channel, type Description, packBits } from "./oracle.js";
import { shake256 } from "./shake.js";

export function rappor({ k, h, m, ...integers }: Description): Channel<Bytes> {
  const [p, q, flip] = [BigInt(integers.p), BigInt(integers.q), BigInt(integers.flip)];
  const cut = bytesFor(m);
  const length = Math.ceil(k / 8);

  /** Give the filter of a text, and the device's cohort with the permanent response to it; `coins` is whose flips. */
  async function permanent(text: Bytes, mac: Mac, coins: Mac, task: Bytes): Promise<[filter: Bytes, kept: Bytes]> {
    const framed = join(big(32, 4), task);
    const group = (await mac("hushquery rappor cohort v1\0", framed)).subarray(0, 16);
    const cohort = Number(fromBig(group) % BigInt(m));
    const hashes = shake256(join(utf8("hushquery rappor bloom v1\0"), big(cohort, 4), text), 8 * h);
    const on = Array.from({ length: k }, () => false);
    for (let j = 0; j < 8 * h; j += 8) on[Number(fromBig(hashes.subarray(j, j + 8)) % BigInt(k))] = true;
    const filter = packBits(on);
    for (let i = 0; i < k; ) {
      const block = await coins("hushquery rappor permanent v1\0", framed, big(k, 4), filter.slice().reverse(), big(i / 4, 4));
      for (let at = 0; at < 32 && i < k; at += 8, i++) if (upper(block.subarray(at)) < flip) on[i] = !on[i];
    }
    return [filter, join(little(cohort, cut), packBits(on))];
  }

  return {
    length_: cut + length,
    value_(value, url) {
      must(typeof value === "string" && url == null, "Usage", "a value is text");
      const text = short(value) ? normalValue(value) : "";
      // Half a letter would become another text on its way into bytes.
      must(text && text.isWellFormed(), "UnknownValue", "too short, too long or no text: nothing is reported");
      return utf8(text);
    },
    async prepare_(text, mac, coins, task, bits: Bits) {
      const [filter, kept] = await permanent(text, mac, coins, task);
      // The answer of a new device to a text that nobody has. This device's own coins would repeat what it has told.
      const drawn = new Uint8Array(bits.words(4).buffer);
      const [, nobodys] = await permanent(drawn, mac, await macOf(drawn), task);
      return { class_: await sha256(filter), answer_: () => kept, empty_: () => nobodys };
    },
    payload_(kept, bits) {
      const tossed = [p, q].map((chance) => Array.from({ length: k }, () => coin(chance, bits)));
      const response = tossed[0]!.map((one, i) => ((kept[cut + (i >> 3)]! >> (i & 7)) & 1 ? tossed[1]![i]! : one));
      return join(kept.subarray(0, cut), packBits(response));
    },
  };
}
