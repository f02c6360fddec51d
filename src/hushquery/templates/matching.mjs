/**
 * How well released queries answer to a typed text: publish/search.py, match.py, distance.py and text.py, line by line.
 *
 * The one difference: of queries that have words or letters in common with the text, Python compares the most likely of
 * each kind, this all. It is a module of the site, and (without the word that makes it one) the first half of the
 * script of a release's own page.
 */

// Marks that readers leave out, and what can't be seen at all; vowel signs of Indic and Thai writing stay.
const DROPPED =
  /[\u00ad\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]/gu;
const UNSPACED =
  "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u2e80-\\u2fdf\\u3005-\\u3007\\u3040-\\u312f\\u31a0-\\u31bf\\u31f0-\\u31ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const IS_UNSPACED = new RegExp(`^[${UNSPACED}]`, "u");
const RUN = new RegExp(
  `[${UNSPACED}]+|(?:(?![${UNSPACED}])[\\p{L}\\p{N}_\\u0900-\\u0dff])+|[\\u2190-\\u2bff\\u{1f000}-\\u{1faff}]`,
  "gu",
);
const SAME = { "ى": "ي", "ة": "ه", "ı": "i", "ø": "o", "ł": "l", "đ": "d", "’": "'" };
const SAME_LETTERS = new RegExp(`[${Object.keys(SAME).join("")}]`, "gu");
const BLANKS = /[\s\x1c-\x1f\x85]+/gu;

const LONGEST = 256;
const MOST_WORDS = 24;
// The kinds of a match; publish/match.py says what they are.
const [SAME_TEXT, ALL, BEGUN, MISTAKEN, SOME, SOME_MISTAKEN] = [6, 5, 4, 3, 2, 1];
const WHICH = {
  [ALL]: "has the word",
  [BEGUN]: "has the word",
  [MISTAKEN]: "has the near word",
  [SOME]: "has some of the words",
  [SOME_MISTAKEN]: "has some near words",
};
const LEAST_PIECE = 6;
// A query less than half as good as the best match has no say about URLs.
const VOTES = 0.5;

// Python counts letters, this language counts halves of some; a list of letters is made only where they differ.
const letters = (text) => (/[\ud800-\udfff]/.test(text) ? Array.from(text) : text);
const ahead = (one, other) => {
  const [a, b] = [letters(one), letters(other)];
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i].codePointAt(0) - b[i].codePointAt(0);
  return a.length - b.length;
};

const plain = (text) => text.normalize("NFKD").replace(DROPPED, "").replace(SAME_LETTERS, (one) => SAME[one]);
const caseless = (text) => text.toLowerCase().toUpperCase().toLowerCase().replace(/ς/g, "σ");

/** Give the form of a text in which texts are compared: without case, accents, widths and runs of blanks. */
export function fold(text) {
  return plain(caseless(plain(text.toWellFormed?.() ?? text))).normalize("NFC").replace(BLANKS, " ").replace(/^ | $/g, "");
}

/** Give the runs of a folded text with single blanks between: words, runs of unspaced script, symbols. */
export function keyOf(folded) {
  return (folded.replace(/['׳״]/gu, "").match(RUN) ?? []).join(" ") || folded;
}

/** Cut a key into what is matched: words, or pairs of letters where a script has no blanks. */
export function tokens(key) {
  return key.split(" ").filter(Boolean).flatMap((run) => {
    const all = Array.from(run);
    return all.length > 2 && IS_UNSPACED.test(run) ? all.slice(1).map((letter, i) => all[i] + letter) : [run];
  });
}

/** Give the distinct character n-grams of a key: three letters of a word, its ends being blanks; two of unspaced script. */
export function grams(key) {
  const all = Array.from(` ${key} `);
  const found = new Set();
  for (let i = 1; i < all.length - 1; i++) {
    const [before, here, after] = [all[i - 1], all[i], all[i + 1]];
    if (here === " ") continue;
    if (!IS_UNSPACED.test(here)) found.add(before + here + after);
    else if (after !== " " || before === " ") found.add(here + after);
  }
  return found;
}

/** Say how many mistakes are forgiven in a text: more in a longer one. */
export function allowedEdits(text) {
  const { length } = letters(text);
  return length < 3 ? 0 : length < 6 ? 1 : length < 13 ? 2 : 3;
}

/** Count the typing mistakes between two texts (exchanged neighbours are one), or give null above the limit. */
export function edits(one, other, limit) {
  if (one === other) return 0;
  // A mistake changes the length by one letter, which is at most two of its units.
  if (Math.abs(one.length - other.length) > 2 * limit) return null;
  let [a, b] = [letters(one), letters(other)];
  if (a.length > b.length) [a, b] = [b, a];
  if (limit <= 0 || b.length - a.length > limit) return null;
  const tooMany = limit + 1;
  let older = [];
  let old = Array.from(b, (_, j) => Math.min(j, tooMany));
  old.push(Math.min(b.length, tooMany));
  let before = 0;
  for (let i = 1; i <= a.length; i++) {
    const now = new Array(b.length + 1).fill(tooMany);
    if (i <= limit) now[0] = i;
    let smallest = now[0];
    for (let j = Math.max(1, i - limit); j <= Math.min(b.length, i + limit); j++) {
      let cost = old[j - 1];
      if (a[i - 1] !== b[j - 1]) {
        cost = 1 + Math.min(cost, old[j], now[j - 1]);
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) cost = Math.min(cost, older[j - 2] + 1);
      }
      now[j] = cost;
      smallest = Math.min(smallest, cost);
    }
    // An exchange reaches back two rows, so both must be beyond the limit before giving up.
    if (smallest > limit && before > limit) return null;
    [older, old, before] = [old, now, smallest];
  }
  return old[b.length] <= limit ? old[b.length] : null;
}

/** Tell whether one text lies in the other and is too short to be the same with a letter missing. */
function isPiece(one, other) {
  const [short, long] = letters(one).length < letters(other).length ? [one, other] : [other, one];
  return letters(short).length < LEAST_PIECE && long.includes(short);
}

/** Tell whether a typed word is the unfinished beginning of another one. */
const begins = ({ unfinished }, word, other) => word === unfinished && word !== other && other.startsWith(word);

/** Give those of a sorted list whose text begins so. */
function* beginningWith(sorted, textOf, start) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (textOf(sorted[middle]) < start) low = middle + 1;
    else high = middle;
  }
  for (; low < sorted.length && textOf(sorted[low]).startsWith(start); low++) yield sorted[low];
}

/** The queries of a release in memory. */
export class Index {
  /** @param rows `[query, value, pages]` each; pages are `[url, value]`. @param per What makes a value a weight. */
  constructor(rows, per = 1) {
    this.rows = rows.map(([query, value, pages], place) => {
      const folded = fold(query);
      const key = keyOf(folded);
      const words = [...new Set(tokens(key))];
      const popularity = Math.log(2 + (value === null ? 1 : Math.max(0, value) * per));
      return { query, value, pages: pages.filter(([url, clicks]) => url && clicks > 0), folded, key, words, popularity, place };
    });
    this.per = per;
    this.highest = this.rows.reduce((most, row) => Math.max(most, row.popularity), 0);
    this.holders = new Map();
    for (const row of this.rows) {
      for (const word of row.words) {
        const holders = this.holders.get(word);
        if (holders) holders.push(row);
        else this.holders.set(word, [row]);
      }
    }
    this.vocabulary = [...this.holders.keys()].sort();
    // The rarer a word, the heavier.
    const weight = (count) => Math.log(1 + (rows.length + 1) / (count + 1));
    this.unknown = weight(0);
    this.weights = new Map(Array.from(this.holders, ([word, holders]) => [word, weight(holders.length)]));
    this.owners = new Map();
    this.sorted = [...this.rows].sort((a, b) => (a.folded < b.folded ? -1 : Number(a.folded > b.folded)));
    for (const row of this.rows) {
      for (const gram of grams(row.key)) {
        const owners = this.owners.get(gram);
        if (owners) owners.push(row);
        else this.owners.set(gram, [row]);
      }
    }
    for (const row of this.rows) row.weight = row.words.reduce((sum, word) => sum + this.weights.get(word), 0);
  }

  /**
   * Find pages and queries for a text.
   *
   * @returns `queries`, each with `query, value, quality, score, why, place` (its row), and `urls`, each with `url, value,
   *   queries, score, why`; the best first. `moreQueries` and `moreUrls` say how many were found beyond the limit.
   */
  search(text, limit = 10) {
    const hits = this.near(text);
    const best = hits.reduce((most, hit) => Math.max(most, hit.quality), 0);
    const urls = this.#pages(hits.filter((hit) => hit.quality >= VOTES * best));
    const more = (list) => Math.max(0, list.length - limit);
    return { urls: urls.slice(0, limit), queries: hits.slice(0, limit), moreUrls: more(urls), moreQueries: more(hits) };
  }

  /** Give all queries near to a text, the best first. */
  near(text) {
    const whole = fold(text);
    if (!whole) return [];
    const typed = this.#typed(whole);
    const found = [];
    for (const row of this.#candidates(typed)) {
      const same = { kind: SAME_TEXT, share: 1, quality: 1, why: "the same text" };
      const { kind, share, quality, why } = row.folded === whole ? same : this.#match(typed, row);
      const { query, value, place, popularity } = row;
      if (kind) found.push({ query, value, place, quality, score: kind + (0.9 * share * popularity) / this.highest, why });
    }
    return found.sort((a, b) => b.score - a.score || ahead(a.query, b.query));
  }

  /** Give the queries that hold a word of the text, begin with it, or have a gram in common with it. */
  #candidates({ text, key, words, unfinished }) {
    const found = new Set();
    const add = (rows) => { for (const row of rows ?? []) found.add(row); };
    for (const word of words) add(this.holders.get(word));
    for (const gram of grams(key)) add(this.owners.get(gram));
    add(beginningWith(this.sorted, (row) => row.folded, text));
    if (unfinished) for (const word of beginningWith(this.vocabulary, (one) => one, unfinished)) add(this.holders.get(word));
    return found;
  }

  #typed(whole) {
    const cut = letters(whole).slice(0, LONGEST);
    const text = typeof cut === "string" ? cut : cut.join("");
    const key = keyOf(text);
    const words = [...new Set(tokens(key))].slice(0, MOST_WORDS);
    const last = words.at(-1) ?? "";
    return { text, key, edits: allowedEdits(text), words, unfinished: text.endsWith(last) ? last : "", known: new Map() };
  }

  #match(typed, row) {
    let [best, kind, share, common] = this.#sharedWords(typed, row);
    let why = kind ? `${WHICH[kind]}${kind > SOME && common.length > 1 ? "s" : ""}: ${common.join(", ")}` : "";
    const length = Math.max(letters(typed.text).length, letters(row.folded).length);
    const distance = edits(typed.text, row.folded, typed.edits);
    // A known word is no mistake for a longer one around it.
    if (distance && !(isPiece(typed.text, row.folded) && this.weights.has(typed.text))) {
      const near = 0.8 * (1 - distance / length);
      best = Math.max(best, near);
      if (kind <= MISTAKEN) {
        share = kind === MISTAKEN ? Math.max(near, share) : near;
        [kind, why] = [MISTAKEN, `${distance} typing mistake${distance > 1 ? "s" : ""} away`];
      }
    }
    if (row.folded.startsWith(typed.text)) {
      const part = letters(typed.text).length / length;
      best = Math.max(best, 0.5 + 0.3 * part);
      if (kind < BEGUN) [kind, share] = [BEGUN, 0.5 + 0.5 * part];
      why = "starts with the text";
    }
    return { kind, share, quality: best, why };
  }

  /** Compare words by weight: give the quality, the kind, the share of the text's words, and the words. */
  #sharedWords(typed, row) {
    const left = new Set(row.words);
    // One word answers to one word; those that are there come before those that are only near.
    const answers = new Map(typed.words.filter((word) => left.has(word)).map((word) => [word, [word, 1]]));
    const exact = answers.size;
    for (const word of answers.keys()) left.delete(word);
    for (const word of typed.words) {
      if (answers.has(word)) continue;
      const [same, value] = this.#nearest(word, [...left].slice(0, MOST_WORDS), typed);
      if (!same) continue;
      answers.set(word, [same, value]);
      left.delete(same);
    }
    const begun = Array.from(answers).filter(([word, [same]]) => begins(typed, word, same)).length;
    // Of several words, the beginning of the last one alone says nothing.
    if (!answers.size || (begun && answers.size === 1 && typed.words.length > 1)) return [0, 0, 0, []];
    let [both, ours] = [0, 0];
    const common = [];
    for (const word of typed.words) {
      const [same, value] = answers.get(word) ?? [word, 0];
      // A mistyped word weighs as much as the word it stands for.
      const weight = this.weights.get(same) ?? this.unknown;
      both += value * weight;
      ours += weight;
      if (answers.has(word)) common.push(same);
    }
    let kind = exact ? SOME : SOME_MISTAKEN;
    if (answers.size === typed.words.length) kind = exact === answers.size ? ALL : exact + begun === answers.size ? BEGUN : MISTAKEN;
    return [0.8 * ((2 * both) / (ours + row.weight)) ** 2, kind, both / ours, common];
  }

  #nearest(word, others, typed) {
    let [best, value] = ["", 0];
    for (const other of others) {
      const pair = `${word} ${other}`;
      let near = typed.known.get(pair);
      if (near === undefined) typed.known.set(pair, (near = this.#nearness(word, other, typed)));
      if (near > value) [best, value] = [other, near];
    }
    return [best, value];
  }

  #nearness(word, other, typed) {
    const [length, reach] = [letters(word).length, letters(other).length];
    if (begins(typed, word, other)) return 0.5 + (0.5 * length) / reach;
    if (isPiece(word, other)) return 0;
    const distance = edits(word, other, Math.min(2, allowedEdits(word)));
    return distance === null ? 0 : 0.8 * (1 - distance / Math.max(length, reach));
  }

  /** Add up what the matched queries say of each URL. */
  #pages(hits) {
    const votes = new Map();
    for (const hit of hits) {
      for (const [url, value] of this.rows[hit.place].pages) {
        const cast = votes.get(url) ?? [];
        votes.set(url, cast);
        cast.push({ score: hit.quality ** 2 * value * this.per, value, hit });
      }
    }
    const found = Array.from(votes, ([url, cast]) => {
      cast.sort((a, b) => b.score - a.score || ahead(a.hit.query, b.hit.query));
      const sum = (name) => cast.reduce((all, vote) => all + vote[name], 0);
      return { url, score: sum("score"), value: sum("value"), queries: cast.map((vote) => vote.hit.query), why: cast[0].hit.why };
    });
    return found.sort((a, b) => b.score - a.score || ahead(a.url, b.url));
  }
}
