/** Two-stage response over (query, URL) records: k-ary response over the queries, then over the URLs of the query. */
import { below } from "./bits.js";
import { little } from "./bytes.js";
import { cells, checkedEpsilon, lieChance } from "./calibrate.js";
import { ONE, respond } from "./chance.js";
import { wants } from "./errors.js";
import { atMost, loss, type Ratio, within } from "./exact.js";
import { bytesFor, type Description, type Oracle } from "./oracle.js";

// The URL stage's epsilon is one of so many parts of the whole, where the task does not fix it.
const PARTS = 64n;

/** Group records query by query, in the order of their first appearance. */
export function grouped(records: readonly (readonly string[])[]): (readonly string[])[][] {
  const queries = new Map<string, (readonly string[])[]>();
  for (const record of records) queries.set(record[0]!, queries.get(record[0]!) ?? []).get(record[0]!)!.push(record);
  return [...queries.values()];
}

/**
 * Choose the chances of both stages.
 *
 * @param urls How many URLs each query has.
 * @param share The query's share of epsilon; without it the URL's epsilon is that of the smallest variance, and the query
 *   gets all that it leaves.
 */
export function calibrateTwoStage(urls: readonly number[], epsilon: Ratio, share?: Ratio): Description {
  const [n, d] = epsilon;
  checkedEpsilon(epsilon);
  const k = cells(urls.reduce((sum, count) => sum + count + 1, 1));
  const sizes = [...new Set(urls)].sort((a, b) => a - b).map((count) => count + 1);
  const lies = (each: Ratio) => sizes.map((size) => [size, lieChance(size, each)] as const);
  const made = (query_lie: number, url_lies: readonly (readonly [number, number])[]) => ({ k, urls, query_lie, url_lies });
  const queries = urls.length + 1;
  if (share) {
    const [of, parts] = share;
    return made(lieChance(queries, [n * of, d * parts]), lies([n * (parts - of), d * parts]));
  }
  let best: readonly [Ratio, Description] | undefined;
  for (let part = 1n; part <= PARTS; part++) {
    try {
      const url = lies([n * part, d * PARTS]);
      // Of each number of URLs: how much likelier its true URL is than a uniform one.
      const truths = url.map(([size, lie]) => BigInt(size) * (ONE - BigInt((size - 1) * lie)));
      const largest = truths.reduce((a, b) => (a > b ? a : b), ONE);
      const [m, grid] = loss(largest, ONE);
      const left: Ratio = [n * grid - m * d, d * grid];
      wants(left[0] > 0n, "too coarse");
      let query = BigInt(lieChance(queries, left));
      const truth = () => ONE - BigInt(queries - 1) * query;
      while (!within(truth() * largest, query * ONE, epsilon)) query++;
      const variance = spread(truth(), query, ...url.at(-1)!);
      if (!best || !atMost(best[0], variance)) best = [variance, made(Number(query), url)];
    } catch {
      // This split leaves nothing for the query, or chances that are too coarse.
    }
  }
  wants(best, "epsilon");
  return best[1];
}

/** Compute the variance for a rare record of a query with so many cells, times what all splits have in common. */
function spread(t: bigint, lie: bigint, cells: number, urlLie: number): Ratio {
  const [s, l] = [BigInt(cells), BigInt(urlLie)];
  const a = t - lie;
  const d = t * (ONE - s * l);
  const c = lie * ONE - t * l * s;
  const rest = ONE - lie;
  return [lie * ((ONE * s - lie) * (ONE * a) ** 2n + c * c * rest + 2n * c * rest * ONE * a), (a * d) ** 2n];
}

/** Cells are numbered query by query: its URLs, then its `*`; `<*, *>` is the last one. */
export function twoStage({ k, urls, url_lies, query_lie }: Description): Oracle {
  // How many cells each query has, and where they begin.
  const sizes: number[] = [...urls.map((count: number) => count + 1), 1];
  let end = 0;
  const starts = sizes.map((size) => (end += size) - size);
  const others = urls.length;
  const lie = BigInt(query_lie);
  const urlLies = new Map<number, bigint>(url_lies.map(([size, each]: [number, number]) => [size, BigInt(each)]));
  const length = bytesFor(k);
  return {
    k_: k,
    length_: length,
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
