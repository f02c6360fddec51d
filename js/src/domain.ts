/** The domain: the public list of what can be reported, one cell each, and a last cell for everything else. */
import { must } from "./errors.js";
import { normalQuery, normalUrl, normalValue } from "./normalise.js";

/** What a configuration says about its domain. */
export interface Listed {
  readonly kind: "searches" | "setting";
  readonly records: readonly (readonly string[])[];
  readonly wildcard: boolean;
}

/** Say which cell a value falls into; null is "nothing to report" and falls into the wildcard. */
export type CellOf = (value: string | null, url?: string | null) => number;

const LONGEST = 4096;

/** Number the values of a list. */
export function cellsOf({ kind, records, wildcard }: Listed): CellOf {
  const searches = kind === "searches";
  const listed = new Map(records.map((record, cell) => [record.join("\0"), cell]));
  return (value, url) => {
    must(value === null || typeof value === "string", "Usage", "a value is text or null");
    must(url == null || (searches && typeof url === "string"), "Usage", "only searches have a URL, a text");
    const found =
      value !== null && short(value) && short(url ?? "")
        ? listed.get(searches ? `${normalQuery(value)}\0${normalUrl(url ?? "")}` : normalValue(value))
        : undefined;
    must(found !== undefined || wildcard, "UnknownValue", "nothing is reported");
    return found ?? records.length;
  };
}

// Longer texts are unknown values without being looked at. Python counts a letter beyond the first 65,536 as one.
function short(text: string): boolean {
  return text.length <= 2 * LONGEST && [...text].length <= LONGEST;
}
