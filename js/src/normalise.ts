/** The normal form of queries, URLs and values, in which the domain is written: the same as in Python, to the letter. */

// Unicode's blanks and control characters, as logs are read.
const BLANKS = /[\0-\x20\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]+/g;
// What Python strips from the ends of a text.
const SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const ENDS = new RegExp(`^${SPACE}|${SPACE}$`, "g");

const NO_URL = /^[ \t\r\n]*(?:-[ \t\r\n]*)?(?:#[^\n]*)?$/;
const HOST = /^[ \t\r\n]*(?:[A-Za-z][A-Za-z0-9+.-]*:\/\/[^/?#]*|[A-Za-z0-9-]+(?:[.][A-Za-z0-9-]+)*[.][A-Za-z]{2,}(?:$|[:/?#]))/;
const URL_CHANGES: readonly (readonly [RegExp, string])[] = [
  [/#[^\n]*$/, ""],
  [/^[ \t\r\n]+|[ \t\r\n]+$/g, ""],
  [/[ \t\r\n]+/g, "%20"],
  [/^([a-z][a-z0-9+.-]*:\/\/)[^/?]*@/, "$1"],
  [/^(http:\/\/(?:\[[^\]/?]*\]|[^:/?]*)):80([/?]|$)/, "$1$2"],
  [/^(https:\/\/(?:\[[^\]/?]*\]|[^:/?]*)):443([/?]|$)/, "$1$2"],
  [/^((?:[a-z][a-z0-9+.-]*:\/\/)?[^/?]+)\/$/, "$1"],
];

/** Give a query in lower case and Unicode NFC, with single blanks inside and none at the ends. */
export function normalQuery(text: string): string {
  // Letter by letter, and one letter each: a whole text would write a capital sigma in two ways.
  const lower = Array.from(text, (letter) => String.fromCodePoint(letter.toLowerCase().codePointAt(0) as number));
  return lower.join("").replace(BLANKS, " ").normalize("NFC").replace(/^ +| +$/g, "");
}

/** Give a URL with scheme and host in lower case, without password, default port and fragment; empty for none. */
export function normalUrl(text: string): string {
  if (NO_URL.test(text)) return "";
  const host = HOST.exec(text)?.[0] ?? "";
  return URL_CHANGES.reduce(
    (changed, [pattern, replacement]) => changed.replace(pattern, replacement),
    host.toLowerCase() + text.slice(host.length),
  );
}

/** Give a value of a setting in Unicode NFC, without blanks at the ends. */
export function normalValue(text: string): string {
  return text.normalize("NFC").replace(ENDS, "");
}
