/** Two-stage response over (query, URL) records: k-ary response over the queries, then over the URLs of the query. */
import { below } from "./bits.js";
import { little } from "./bytes.js";
import { ONE, respond } from "./chance.js";
import { wants } from "./errors.js";
import { bytesFor, cells, type Description, lieChance, MOST_CELLS, type Odds, type Oracle, whole } from "./oracle.js";

/** Cells are numbered query by query: its URLs, then its `*`; `<*, *>` is the last one. */
export function twoStage(description: Description): Oracle {
  const k = cells(description);
  const { urls, url_lies, query_lie } = description;
  // How many cells each query has, and where they begin.
  const sizes: number[] = [...urls.map((count: unknown) => whole(count, 0, MOST_CELLS) + 1), 1];
  let end = 0;
  const starts = sizes.map((size) => (end += size) - size);
  wants(end === k, "URLs");
  const others = urls.length;
  const lie = lieChance(query_lie, others);
  const truth = ONE - BigInt(others) * lie;
  const urlLies = new Map<number, bigint>(
    url_lies.map(([size, each]: [number, number]) => [size, lieChance(each, whole(size, 2, MOST_CELLS) - 1)]),
  );
  const length = bytesFor(k);
  return {
    k_: k,
    length_: length,
    odds_: [...new Set(sizes)].flatMap((size): Odds[] => {
      // The ways to one cell, times the URLs of its query: from another query, itself, or another URL of the query.
      const each = urlLies.get(size) ?? 0n;
      const elsewhere = lie * ONE;
      const own = truth * (ONE - BigInt(size - 1) * each) * BigInt(size);
      const beside = size > 1 ? truth * each * BigInt(size) : own;
      return [[own, elsewhere], [own, beside], [beside, elsewhere]];
    }),
    randomize_(cell, bits) {
      const query = starts.findLastIndex((start) => start <= cell);
      const sent = respond(query, others + 1, lie, bits);
      const [start, size] = [starts[sent]!, sizes[sent]!];
      const url =
        sent !== query ? below(bits, size) : size > 1 ? respond(cell - start, size, urlLies.get(size)!, bits) : 0;
      return little(start + url, length);
    },
  };
}
