/**
 * Search in a released list, wherever you want it:
 *
 *     import { load } from "./search.mjs";
 *     const index = await load("./index.json");
 *     index.search("wether leds");   // { urls: [...], queries: [...] }, the best first
 *
 * Loading is one request; searching is none.
 */
import { Index } from "./matching.mjs";

/** Load what `hushquery site` wrote as index.json. */
export async function load(address, options) {
  const response = await fetch(address, options);
  if (!response.ok) throw new Error(`the search index can't be loaded: status ${response.status}`);
  return new SearchIndex(await response.json());
}

/** The released queries, and how to search in them. */
export class SearchIndex {
  #index;
  #rows;

  /** @param data What index.json holds. */
  constructor(data) {
    if (data?.format !== "hushquery-index" || data.version !== 1) throw new Error("this is no search index of hushquery, version 1");
    /** "count", "share", or null where only a list was released. */
    this.measure = data.measure;
    /** The day of the release. */
    this.created = data.created;
    /** How many queries it knows, and how many were released. */
    this.size = data.queries.length;
    this.released = data.all;
    this.#rows = data.queries;
    this.#index = new Index(data.queries.map(([query, value, , , pages]) => [query, value, pages]), data.per);
  }

  /** Give the first queries of the list: the most frequent ones, where it has numbers. */
  frequent(limit = 10) {
    return this.#rows.slice(0, limit).map(([query, value, low, high]) => ({ query, value, low, high }));
  }

  /**
   * Find pages and queries for a text; mistakes and unfinished words are fine.
   *
   * @returns `urls` (`url, value, queries, score, why`) and `queries` (`query, value, low, high, quality, score, why`);
   *   `value` is a noisy count or share, and null where only a list was released; `moreUrls` and `moreQueries` say how
   *   many were found beyond the limit.
   */
  search(text, limit = 10) {
    const { queries, ...others } = this.#index.search(String(text), limit);
    return {
      ...others,
      queries: queries.map(({ place, ...hit }) => ({ ...hit, low: this.#rows[place][2], high: this.#rows[place][3] })),
    };
  }
}
