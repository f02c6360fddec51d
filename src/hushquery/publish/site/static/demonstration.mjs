/**
 * What leaves a device, many times over: the real client randomises one value as a hundred new devices would, and the law of
 * the mechanism, from the same integers, says how often each answer should come out.
 */
import { Client, configure, normalQuery, normalUrl, normalValue } from "./client.mjs";
import { openReport } from "./reading.js";

const ONE = 2 ** 53;
// A database of its own: nobody's real answers are near it.
const STATE = "hushquery-demonstration";

/** What can be reported, cell by cell, and which cell a value is. */
export class Cells {
  constructor({ domain, description, task }) {
    this.searches = task.task.kind === "searches";
    this.names = [];
    const grouped = description.name === "two-stage";
    this.places = new Map();
    domain.records.forEach((record, i) => {
      this.places.set(record.join("\0"), this.names.push(record) - 1);
      const [query] = record;
      if (grouped && query !== domain.records[i + 1]?.[0]) this.places.set(query, this.names.push([query, null]) - 1);
    });
    if (domain.wildcard) this.names.push(null);
    this.wildcard = domain.wildcard ? this.names.length - 1 : undefined;
  }

  /** Give the cell that the client randomises for a value; undefined where the task refuses it. */
  of(value, url = "") {
    const keys = this.searches ? [`${normalQuery(value)}\0${normalUrl(url)}`, normalQuery(value)] : [normalValue(value)];
    return keys.map((key) => this.places.get(key)).find((cell) => cell !== undefined) ?? this.wildcard;
  }
}

/** Say of a mechanism which cells an answer speaks for, and with which chance it speaks for one when another is true. */
export function law({ name, k, lie, truth, omega, g, urls, url_lies: urlLies, query_lie: queryLie }) {
  const all = Array.from({ length: k }, (_, cell) => cell);
  const two = (own, other) => (cell, at) => (cell === at ? own : other);
  switch (name) {
    case "krr":
      return { speaks: (answer) => [answer], chance: two(1 - ((k - 1) * lie) / ONE, lie / ONE) };
    case "oue":
      return { speaks: (bits) => all.filter((cell) => (bits[cell >> 3] >> (cell & 7)) & 1), chance: two(0.5, lie / ONE) };
    case "subset": {
      const p = truth / ONE;
      return { speaks: (set) => [...set], chance: two(p, (p * (omega - 1) + (1 - p) * omega) / (k - 1)) };
    }
    case "olh": {
      const [p, q] = [1 - ((g - 1) * lie) / ONE, lie / ONE];
      const prime = 2n ** 31n - 1n;
      const bucket = (seed, cell) => Number(((((seed / prime) * BigInt(cell) + seed) % prime) * BigInt(g)) / prime);
      return { speaks: ([seed, sent]) => all.filter((cell) => bucket(seed, cell) === sent), chance: two(p, p / g + (1 - 1 / g) * q) };
    }
    case "hadamard": {
      const odd = (both) => { let bit = 0; for (; both; both &= both - 1) bit ^= 1; return bit; };
      return { speaks: ([row, bit]) => all.filter((cell) => odd(row & cell) === bit), chance: two(1 - lie / ONE, 0.5) };
    }
    case "two-stage": {
      const sizes = [...urls.map((count) => count + 1), 1];
      const group = sizes.flatMap((size, i) => Array(size).fill(i));
      const queryTruth = 1 - (urls.length * queryLie) / ONE;
      const each = new Map(urlLies.map(([size, one]) => [size, one / ONE]));
      const chance = (cell, at) => {
        const size = sizes[group[at]];
        if (group[cell] !== group[at]) return queryLie / ONE / size;
        const wrong = each.get(size) ?? 0;
        return queryTruth * (cell === at ? 1 - (size - 1) * wrong : wrong);
      };
      return { speaks: (answer) => [answer], chance };
    }
    default:
      return undefined;
  }
}

/** Check the task that came with the site. */
export async function loadTask(address) {
  const response = await fetch(address);
  const served = await response.json();
  return configure(served, served.id);
}

/**
 * Randomise a value as so many new devices would.
 *
 * @returns How often an answer spoke for each cell and should on average, how many took no part (by the task's sampling),
 *   the cell of the value, one report, and the answers as the mechanism gave them.
 */
export async function randomise(configuration, value, url, times, { cells, speaks, chance }, progress = () => {}) {
  const counts = new Array(cells.names.length).fill(0);
  const answers = [];
  let [absent, report] = [0, null];
  for (let done = 0; done < times; done++) {
    const client = new Client(configuration, { state: STATE, clientId: crypto.randomUUID() });
    const made = await client.report(value, cells.searches ? url : undefined);
    await client.forget();
    if (made === null) absent += 1;
    else {
      report = made;
      answers.push(openReport(made, configuration));
      for (const cell of speaks(answers.at(-1))) counts[cell] += 1;
    }
    progress(done + 1);
  }
  const cell = cells.of(value, url);
  return { counts, expected: (at) => (times - absent) * chance(cell ?? value, at), absent, report, answers, cell };
}
