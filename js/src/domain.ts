/** What can be reported from a public list: one cell for each value, and a last one for everything else. */
import { below } from "./bits.js";
import { big } from "./bytes.js";
import { must, wants } from "./errors.js";
import { normalQuery, normalUrl, normalValue } from "./normalise.js";
import type { Channel, Oracle } from "./oracle.js";

/** A list as a configuration has it. */
export interface Listed {
  readonly kind: "searches" | "setting";
  readonly records: readonly (readonly string[])[];
  readonly wildcard: boolean;
}

const LONGEST = 4096;

/** Read a head list: [query, URL] pairs in normal form, each once, and none called like everything else. */
export function checkedHead(domain: unknown): Listed["records"] {
  const { records } = domain as Listed;
  for (const record of records) {
    const [query, url] = record as [string, string];
    const good = short(query) && short(url) && query && normalQuery(query) === query && normalUrl(url) === url;
    wants(good && record.length === 2, "list");
  }
  wants(new Set(records.map((record) => record.join("\0"))).size === records.length, "list");
  return records;
}

/**
 * Let a mechanism answer for a list.
 *
 * @param grouped Whether each query has one more cell, for its other URLs, as two-stage has them.
 */
export function listChannel({ kind, records, wildcard }: Listed, oracle: Oracle, grouped: boolean): Channel<number> {
  const searches = kind === "searches";
  const listed = new Map<string, number>();
  let k = 0;
  records.forEach((record, i) => {
    listed.set(record.join("\0"), k++);
    if (grouped && record[0] !== records[i + 1]?.[0]) listed.set(record[0]!, k++);
  });
  if (wildcard) k++;
  // No record is called like everything else.
  wants(!records.flat().includes("*"), "domain");
  return {
    ...oracle,
    value_(value, url) {
      const text = value === null || typeof value === "string";
      must(text && (url == null || (searches && typeof url === "string")), "Usage", "value");
      const keys: string[] = [];
      if (value !== null && short(value)) {
        if (searches) {
          const query = normalQuery(value);
          if (short(url ?? "")) keys.push(`${query}\0${normalUrl(url ?? "")}`);
          keys.push(query);
        } else keys.push(normalValue(value));
      }
      const found = keys.map((key) => listed.get(key)).find((cell) => cell !== undefined);
      must(found !== undefined || wildcard, "UnknownValue");
      return found ?? k - 1;
    },
    prepare_: async (cell, _mac, _coins, _task, bits) => ({
      class_: big(cell, 4),
      answer_: () => oracle.randomize_(cell, bits),
      empty_: () => oracle.randomize_(wildcard ? k - 1 : below(bits, k), bits),
    }),
  };
}

// Longer texts are unknown values without being looked at. Python counts a letter beyond the first 65,536 as one.
export function short(text: string): boolean {
  return text.length <= 2 * LONGEST && [...text].length <= LONGEST;
}
