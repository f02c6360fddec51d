// What a report means, in words.
import { normalQuery, normalUrl, openReport } from "./lib/hushquery-client.js";

const WHOLE = 2 ** 53;
const MOST_NAMED = 6;

/** Read a number that a task has as text, `n` or `n/d`. */
export function number(text) {
  const [n, d = "1"] = String(text).split("/");
  return Number(n) / Number(d);
}

/** Write a number for people, with at most so many digits after the point; privacy losses are rounded up. */
export function upTo(value, digits = 2) {
  const scale = 10 ** digits;
  return (Math.ceil(value * scale - 1e-9) / scale).toLocaleString("en");
}

/** Write a chance. */
export function percent(chance) {
  const value = 100 * chance;
  return `${value >= 10 ? value.toFixed(0) : value.toPrecision(2)}%`;
}

/** Write how long a period is. */
export function duration(seconds) {
  const units = [["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [unit, length] = units.find(([, one]) => seconds % one === 0);
  const count = seconds / length;
  return count === 1 ? unit : `${count} ${unit}s`;
}

/** The cells that can be reported, in their order, each with its key, and as [query, URL] or [words]. */
function cellsOf({ domain, description }) {
  const { records, wildcard } = domain;
  const cells = [];
  records.forEach(([query, url], i) => {
    cells.push({ key: `${query}\0${url}`, name: [query, url] });
    if (description.name === "two-stage" && query !== records[i + 1]?.[0]) {
      cells.push({ key: query, name: [query, "another page"] });
    }
  });
  if (wildcard) cells.push({ key: null, name: ["everything else, or no search"] });
  return cells;
}

/** Which cell a search counts as. */
function ownCell(cells, record) {
  const query = record && normalQuery(record.query);
  const keys = record ? [`${query}\0${normalUrl(record.url ?? "")}`, query] : [];
  const place = keys.map((key) => cells.findIndex((cell) => cell.key === key)).find((found) => found >= 0);
  return place ?? cells.findIndex((cell) => cell.key === null);
}

/** What the mechanism's answer names, and how it came about. */
function reading({ name, k, lie, omega, truth, g }, answer) {
  if (name === "krr") {
    const said = `It names one entry of ${k}: the true one with a chance of ${percent(1 - ((k - 1) * lie) / WHOLE)}, each other one with ${percent(lie / WHOLE)}.`;
    return [[answer], said];
  }
  if (name === "two-stage") return [[answer], `It names one entry of ${k}: first the query is drawn by chance, then the page.`];
  if (name === "subset") {
    const p = truth / WHOLE;
    const q = (p * (omega - 1) + (1 - p) * omega) / (k - 1);
    return [answer, `It names ${omega} entries of ${k}: the true one is among them with a chance of ${percent(p)}, each other one with ${percent(q)}.`];
  }
  if (name === "oue") {
    const set = Array.from({ length: k }, (_, i) => i).filter((i) => (answer[i >> 3] >> (i & 7)) & 1);
    return [set, `A coin decided for each of ${k} entries whether it is named: the true one with a chance of 50%, each other one with ${percent(lie / WHOLE)}.`];
  }
  if (name === "olh") {
    return [null, `It puts all ${k} entries into ${g} groups by chance and names one group: that of the true entry with a chance of ${percent(1 - ((g - 1) * lie) / WHOLE)}.`];
  }
  return [null, `It is an answer of the mechanism “${name}” about ${k} entries.`];
}

/**
 * Describe a report to the one whose device made it.
 *
 * @param paid Whether this report has cost something: if not, it repeats an answer or, after the lifetime, says nothing.
 */
export function described(configuration, report, record, paid) {
  const { client } = configuration.task;
  const cells = cellsOf(configuration);
  const own = ownCell(cells, record);
  const [named, how] = reading(configuration.description, openReport(report, configuration));
  const factor = upTo(Math.exp(number(client.epsilon)), 1);
  return {
    counts: cells[own].name,
    names: named?.slice(0, MOST_NAMED).map((cell) => cells[cell].name) ?? [],
    more: Math.max(0, (named?.length ?? 0) - MOST_NAMED),
    truthful: named && named.includes(own),
    how,
    bound: `This very report could have come from any search. It is at most ${factor} times as likely with one as with any other (ε = ${upTo(number(client.epsilon))}).`,
    paid,
  };
}
