/** What leaves a device that is asked for a number or a text: the law of these mechanisms, and their answers in words. */
import { drawn, part } from "./pages.mjs";

const ONE = 2 ** 53;
const ACROSS = 64;

/** What an answer can say, cell by cell; only a number that is asked for by ranges has a cell of its own. */
export class Cells {
  constructor({ name, k, most }) {
    const start = (bucket) => Math.ceil((bucket * (most + 1)) / k);
    const range = (bucket) => (start(bucket + 1) - start(bucket) > 1 ? `${start(bucket)}..${start(bucket + 1) - 1}` : `${start(bucket)}`);
    const cell = name === "dbitflip" ? range : (bit) => (name === "onebit" ? `${bit}` : `bit ${bit}`);
    this.names = Array.from({ length: name === "onebit" ? 2 : k }, (_, place) => [cell(place)]);
    this.of = (value) => (name === "dbitflip" ? Number((BigInt(value) * BigInt(k)) / BigInt(most + 1)) : undefined);
  }
}

/** Say which cells an answer speaks for, and with which chance; of a text's bits only those with and without it are known. */
export function law({ name, k, d, keep, low, unit, p, q, flip }) {
  if (name === "onebit") return { speaks: (bit) => [bit], chance: (value, at) => Math.abs(1 - at - (low + unit * value) / ONE) };
  if (name === "dbitflip") {
    const chance = (cell, at) => (d / k) * (cell === at ? keep / ONE : 1 - keep / ONE);
    return { speaks: (answer) => answer.slice(0, d).filter((_, i) => answer[d + i]), chance };
  }
  const on = (one, other) => ((1 - flip / ONE) * one + (flip / ONE) * other) / ONE;
  const all = Array.from({ length: k }, (_, bit) => bit);
  return { speaks: ([, bits]) => all.filter((bit) => (bits >> BigInt(bit)) & 1n), chance: () => NaN, set: on(q, p), unset: on(p, q) };
}

/** Say in words what a device would send: what is in bold, and what follows. */
export function said(answer, { name, d, m, k }, { names }) {
  if (name === "onebit") return [`${answer}`, ": a single bit, which is 1 the more often the larger the number is."];
  if (name === "rappor") return [`group ${answer[0] + 1} of ${m}`, ` and the ${k} bits of the first strip below.`];
  const bits = answer.slice(0, d).map((bucket, i) => `${names[bucket][0]}: ${answer[d + i] ? "yes" : "no"}`);
  return [bits.join(", "), ". The device drew these ranges once, whatever its number is."];
}

/** Say what many devices would send. */
export function summary({ counts, expected, cell, absent }, times) {
  const took = times - absent;
  if (cell === undefined) return `${counts[1]} of ${took} devices with your number would send 1 (${expected(1).toFixed(1)} are expected).`;
  const others = counts.reduce((sum, one) => sum + one, 0) - counts[cell];
  return `Your range was named by ${counts[cell]} of ${took} answers (${expected(cell).toFixed(1)} are expected); other ranges were named ${others} times.`;
}

/** Draw answers to a text as strips of bits, beside those to a text that nobody typed. */
export function strips(own, other, { k }) {
  return [["Your text, from three devices", own], ["Another text, from three devices", other]].map(([title, answers]) => {
    const made = part("figure");
    made.append(part("figcaption", title), ...answers.slice(0, 3).map(([, bits]) => strip(bits, k)));
    return made;
  });
}

function strip(bits, k) {
  const across = Math.min(k, ACROSS);
  const svg = drawn("svg", { class: "strip", viewBox: `0 0 ${across} ${Math.ceil(k / across)}`, "aria-hidden": "true" });
  for (let bit = 0; bit < k; bit++) {
    const state = (bits >> BigInt(bit)) & 1n ? "on" : "off";
    svg.append(drawn("rect", { class: state, x: (bit % across) + 0.08, y: Math.floor(bit / across) + 0.08, width: 0.84, height: 0.84 }));
  }
  return svg;
}

/** Say how often bits are on: the count of a text's answers, its expectation, and the chances in words. */
export function bitsOn({ counts, absent }, times, { k, h }, { set, unset }) {
  const on = counts.reduce((sum, one) => sum + one, 0) / Math.max(1, times - absent);
  const expected = k * unset + k * (1 - (1 - 1 / k) ** h) * (set - unset);
  const words = `Your text sets ${h === 1 ? "one bit" : `up to ${h} bits`} of ${k}. A bit that it sets is sent as on with a chance of ${set.toFixed(3)}, every other bit with ${unset.toFixed(3)}. Only counts over many devices show which bits are on more often.`;
  return { on: Math.round(100 * on) / 100, expected, words };
}
