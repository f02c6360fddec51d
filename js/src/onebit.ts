/** Numbers: one bit for their average (1BitMean), or a few for a histogram (dBitFlip); both kept by the secret. */
import { below, type Bits } from "./bits.js";
import { big, type Bytes, fromBig, join, little } from "./bytes.js";
import { coin, fraction, ONE } from "./chance.js";
import { must, wants } from "./errors.js";
import { type Mac, macOf, upper } from "./hash.js";
import { bytesFor, cells, type Channel, type Description, lieChance, packBits, whole } from "./oracle.js";

const LENGTH = big(32, 4);

function numbers(highest: number): (value: unknown, url: unknown) => number {
  return (value, url) => {
    must(Number.isInteger(value) && url == null, "Usage", "a value is a whole number");
    must((value as number) >= 0 && (value as number) <= highest, "UnknownValue", "out of range, nothing is reported");
    return value as number;
  };
}

/** 1BitMean: a number is rounded to a grid by the device's own offset; the grid point has a bit for good. */
export function onebit(description: Description, highest: number): Channel<number> {
  const most = whole(description.most, highest, highest);
  const step = whole(description.step, 1, most);
  const [low, unit] = [lieChance(description.low), lieChance(description.unit, most)];
  const high = low + unit * BigInt(most);
  wants(most % step === 0 && high < ONE, "integers");
  return {
    length_: 1,
    odds_: [
      [high, low],
      [ONE - low, ONE - high],
    ],
    value_: numbers(most),
    async prepare_(value, mac, task, bits) {
      const kept = async (what: string, i: number) =>
        upper(await mac(LENGTH, task, big(what.length, 4), what, big(i, 8)));
      const steps = BigInt(step);
      let alpha = ONE;
      for (let i = 0; alpha >= (ONE / steps) * steps; i++) alpha = await kept("alpha", i);
      const left = value - (value % step);
      const point = value + Number(alpha % steps) >= left + step ? left + step : left;
      const bit = (await kept("bit", point)) < low + unit * BigInt(point);
      return {
        class_: big(point / step, 4),
        answer_: () => Uint8Array.of(Number(bit)),
        empty_: () => Uint8Array.of(Number(coin(ONE / 2n, bits))),
      };
    },
  };
}

/** dBitFlip: the device answers for d of k buckets, the same for good; the answer depends on which of them it is in. */
export function dbitflip(description: Description, highest: number): Channel<number> {
  const k = cells(description);
  const d = whole(description.d, 1, k);
  const most = whole(description.most, Math.max(highest, k - 1), highest);
  const keep = lieChance(description.keep);
  // Two values change at most two bits, and one if there is only one.
  const power = d === 1 ? 1n : 2n;
  const width = bytesFor(k);
  const packed = (sampled: readonly number[], own: number | undefined, fractions: readonly bigint[]): Bytes =>
    join(
      ...sampled.map((bucket) => little(bucket, width)),
      packBits(sampled.map((bucket, j) => (bucket === own) === fractions[j]! < keep)),
    );
  return {
    length_: d * width + Math.ceil(d / 8),
    odds_: [[keep ** power, (ONE - keep) ** power]],
    value_: numbers(most),
    async prepare_(value, mac, task, bits) {
      const drawn = await stream(mac, task, "sample", k);
      const order = (a: number, b: number) => (drawn[a]! < drawn[b]! ? -1 : 1);
      const sampled = [...drawn.keys()].sort(order).slice(0, d).sort((a, b) => a - b);
      const bucket = Number((BigInt(value) * BigInt(k)) / BigInt(most + 1));
      const place = sampled.indexOf(bucket);
      const coins = (await stream(mac, task, `bits:${place}`, d)).map((word) => word >> 11n);
      return {
        class_: big(place < 0 ? d : place, 4),
        answer_: () => packed(sampled, bucket, coins),
        empty_: () => packed(sampled, below(bits, k), fresh(d, bits)),
      };
    },
  };
}

function fresh(n: number, bits: Bits): bigint[] {
  return Array.from({ length: n }, () => fraction(bits));
}

/** Words that only the device can compute, the same each time. */
async function stream(mac: Mac, task: Bytes, what: string, n: number): Promise<bigint[]> {
  const inner = await macOf(await mac(LENGTH, task, what));
  const words: bigint[] = [];
  for (let block = 0; words.length < n; block++) {
    const four = await inner(big(block, 8));
    for (let at = 0; at < 32; at += 8) words.push(fromBig(four.subarray(at, at + 8)));
  }
  return words.slice(0, n);
}
