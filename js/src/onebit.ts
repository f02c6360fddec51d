/** Numbers: one bit for their average (1BitMean), or a few for a histogram (dBitFlip); both kept by the secret. */
import { below, type Bits } from "./bits.js";
import { big, type Bytes, fromBig, join, little } from "./bytes.js";
import { cells, grown } from "./calibrate.js";
import { coin, fraction, ONE } from "./chance.js";
import { must, wants } from "./errors.js";
import { type Ratio, smallest, within } from "./exact.js";
import { type Mac, macOf, upper } from "./hash.js";
import { bytesFor, type Channel, type Description, packBits } from "./oracle.js";

const LENGTH = big(32, 4);

function numbers(highest: number): (value: unknown, url: unknown) => number {
  return (value, url) => {
    must(Number.isInteger(value) && url == null, "Usage", "a value is a whole number");
    must((value as number) >= 0 && (value as number) <= highest, "UnknownValue", "out of range, nothing is reported");
    return value as number;
  };
}

/** Choose how much a step of 1 raises the chance of a 1: as much as epsilon allows, the same at both ends. */
export function calibrateOnebit(most: number, epsilon: Ratio): Description {
  const [e, m] = [grown(epsilon), BigInt(most)];
  const lowOf = (unit: bigint) => (ONE - unit * m) / 2n;
  const unit = -smallest((-(2 ** 53) * (e - 1)) / (e + 1) / most, (less) => {
    const low = lowOf(-less);
    const high = low - less * m;
    return within(high, low, epsilon) && within(ONE - low, ONE - high, epsilon);
  });
  wants(unit > 0n, "too coarse");
  return { most, low: Number(lowOf(unit)), unit: Number(unit) };
}

/** 1BitMean: a number is rounded to a grid by the device's own offset; the grid point has a bit for good. */
export function onebit({ most, step, ...integers }: Description): Channel<number> {
  const [low, unit] = [BigInt(integers.low), BigInt(integers.unit)];
  return {
    length_: 1,
    value_: numbers(most),
    async prepare_(value, mac, coins, task, bits) {
      const kept = async (by: Mac, what: string, i: number) =>
        upper(await by(LENGTH, task, big(what.length, 4), what, big(i, 8)));
      const steps = BigInt(step);
      let alpha = ONE;
      for (let i = 0; alpha >= (ONE / steps) * steps; i++) alpha = await kept(mac, "alpha", i);
      const left = value - (value % step);
      const point = value + Number(alpha % steps) >= left + step ? left + step : left;
      const bit = (await kept(coins, "bit", point)) < low + unit * BigInt(point);
      return {
        class_: big(point / step, 4),
        answer_: () => Uint8Array.of(Number(bit)),
        empty_: () => Uint8Array.of(Number(coin(ONE / 2n, bits))),
      };
    },
  };
}

/** Choose the chance that a bit is sent as it is. Two values change at most two bits, and one if there is only one. */
export function calibrateFlip(k: number, d: number, epsilon: Ratio): Description {
  const bits = Math.min(d, 2);
  const each: Ratio = [epsilon[0], epsilon[1] * BigInt(bits)];
  const flip = smallest(2 ** 53 / (grown(epsilon) ** (1 / bits) + 1), (one) => within(ONE - one, one, each));
  return { k: cells(k), d, keep: Number(ONE - flip) };
}

/** dBitFlip: the device answers for d of k buckets, the same for good; the answer depends on which of them it is in. */
export function dbitflip({ k, d, most, ...integers }: Description): Channel<number> {
  const keep = BigInt(integers.keep);
  const width = bytesFor(k);
  const packed = (sampled: readonly number[], own: number | undefined, fractions: readonly bigint[]): Bytes =>
    join(
      ...sampled.map((bucket) => little(bucket, width)),
      packBits(sampled.map((bucket, j) => (bucket === own) === fractions[j]! < keep)),
    );
  return {
    length_: d * width + Math.ceil(d / 8),
    value_: numbers(most),
    async prepare_(value, mac, coins, task, bits) {
      const drawn = await stream(mac, task, "sample", k);
      const order = (a: number, b: number) => (drawn[a]! < drawn[b]! ? -1 : 1);
      const sampled = [...drawn.keys()].sort(order).slice(0, d).sort((a, b) => a - b);
      const bucket = Number((BigInt(value) * BigInt(k)) / BigInt(most + 1));
      const place = sampled.indexOf(bucket);
      const tossed = (await stream(coins, task, `bits:${place}`, d)).map((word) => word >> 11n);
      return {
        class_: big(place < 0 ? d : place, 4),
        answer_: () => packed(sampled, bucket, tossed),
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
