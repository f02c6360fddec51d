/** The exact law of what devices send, up to factors that are the same for all values: for attacks. */
import type { Configuration } from "../src/configuration.js";
import { bucketOf } from "../src/olh.js";
import { unpack } from "../src/reading.js";
import { unhex } from "./helpers.js";

const ONE = 2n ** 53n;

/** What a device told under one configuration. */
export interface Told {
  readonly configuration: Configuration;
  /** The payloads of its reports, in hexadecimal digits. */
  readonly payloads: readonly string[];
}

/** How likely a value makes the one answer that was drawn, times something that is the same for all values. */
export function weights({ configuration: { description, channel_: channel }, payloads }: Told, value: readonly (string | number)[]): bigint {
  const { name, k, g, lie, omega, truth, low, unit, keep, d, most, urls, query_lie, url_lies } = description;
  const answer = unpack(description, unhex(payloads[0]!)) as any;
  const cell = channel.value_(value[0], value[1]) as number;
  const response = (answers: number, each: number, same: boolean) => (same ? ONE - BigInt(answers - 1) * BigInt(each) : BigInt(each));
  switch (name) {
    case "krr":
      return response(k, lie, answer === cell);
    case "olh":
      return response(g, lie, bucketOf(answer[0], cell, g) === answer[1]);
    case "hadamard":
      return response(2, lie, (answer[0] & cell).toString(2).replaceAll("0", "").length % 2 === answer[1]);
    case "subset":
      return answer.includes(cell) ? BigInt(truth) * BigInt(k - omega) : (ONE - BigInt(truth)) * BigInt(omega);
    case "oue":
      return product(k, (i) => (i === cell ? ONE / 2n : response(2, lie, !((answer[i >> 3] >> (i & 7)) & 1))));
    case "two-stage": {
      const sizes: number[] = [...urls.map((count: number) => count + 1), 1];
      const query = sizes.flatMap((size, i) => Array.from({ length: size }, () => i));
      // Each way to a cell, times the same for all cells of its query.
      const size = sizes[query[answer]!]!;
      const url = new Map<number, number>(url_lies).get(size) ?? 0;
      if (query[answer] !== query[cell]) return BigInt(query_lie) * ONE;
      return response(urls.length + 1, query_lie, true) * BigInt(size) * response(size, url, answer === cell);
    }
    case "onebit":
      // Over the device's offset the chance is exactly linear in the number.
      return response(2, low + unit * cell, answer === 0);
    case "dbitflip": {
      const bucket = Math.floor((cell * k) / (most + 1));
      return product(d, (i) => ((answer[i] === bucket) === !!answer[d + i] ? BigInt(keep) : ONE - BigInt(keep)));
    }
    default:
      throw new Error(name);
  }
}

/** The likelihoods of all reports of one text under the two Bloom filters that they tell apart best. */
export function worstTexts({ configuration: { description }, payloads }: Told): readonly [bigint, bigint] {
  const { k, h, p, q, flip } = description;
  const reports = payloads.map((payload) => (unpack(description, unhex(payload)) as [number, bigint])[1]);
  const ratios = Array.from({ length: k }, (_, i): [bigint, bigint] => {
    const ones = reports.filter((report) => (report >> BigInt(i)) & 1n).length;
    const seen = (chance: number) => BigInt(chance) ** BigInt(ones) * (ONE - BigInt(chance)) ** BigInt(reports.length - ones);
    const [on, off] = [seen(q), seen(p)];
    return [(ONE - BigInt(flip)) * on + BigInt(flip) * off, BigInt(flip) * on + (ONE - BigInt(flip)) * off];
  });
  // One text has h bits that the other has not, and the other way round.
  ratios.sort(([a, b], [c, d]) => (a * d > c * b ? -1 : 1));
  const both = [...ratios.slice(0, h), ...ratios.slice(-h).map(([a, b]) => [b, a] as const)];
  return [both.reduce((all, [a]) => all * a, 1n), both.reduce((all, [, b]) => all * b, 1n)];
}

function product(n: number, factor: (i: number) => bigint): bigint {
  return Array.from({ length: n }, (_, i) => factor(i)).reduce((all, one) => all * one, 1n);
}
