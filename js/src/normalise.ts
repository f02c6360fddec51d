/** The normal form of queries, URLs and values, in which the domain is written: the same as in Python, to the letter. */

// Unicode's blanks and control characters, as logs are read.
const BLANKS = /[\0-\x20\x7f-\xa0\u200b\s]+/g;
// What Python strips from the ends of a text.
const SPACE = "([^\\S\\ufeff]|[\\x1c-\\x1f\\x85])+";
const ENDS = new RegExp(`^${SPACE}|${SPACE}$`, "g");

// Scheme and host. Without a scheme a host is all there is, or goes before : / or ?
const HOST = /^[ \t\r\n]*(?:[a-z][a-z0-9+.-]*:\/\/[^/?#]*|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?:[:/?]|[ \t\r\n]*(?:#|$)))/i;
// In this order; a dash stands for no URL.
const URL_CHANGES: readonly (readonly [RegExp, string])[] = [
  [/#.*/s, ""],
  [/^[ \t\r\n]+|[ \t\r\n]+$/g, ""],
  [/[ \t\r\n]+/g, "%20"],
  [/^([a-z][a-z0-9+.-]*:\/\/)[^/?]*@/, "$1"],
  [/^(http:\/\/(?:\[[^\]/?]*\]|[^:/?]*)):80([/?]|$)/, "$1$2"],
  [/^(https:\/\/(?:\[[^\]/?]*\]|[^:/?]*)):443([/?]|$)/, "$1$2"],
  [/^((?:[a-z][a-z0-9+.-]*:\/\/)?[^/?]+)\/$/, "$1"],
  [/^-$/, ""],
];

/** Write in lower case, letter by letter and one letter each: a whole text would write a capital sigma in two ways. */
function lower(text: string): string {
  return Array.from(text, (letter) => [...letter.toLowerCase()][0]).join("");
}

/** Give a query in lower case and Unicode NFC, with single blanks inside and none at the ends. */
export function normalQuery(text: string): string {
  return lower(text).replace(BLANKS, " ").normalize("NFC").trim();
}

/** Give a URL with scheme and host in lower case, without password, default port and fragment; empty for none. */
export function normalUrl(text: string): string {
  const changed = text.replace(HOST, lower);
  return URL_CHANGES.reduce((url, [pattern, replacement]) => url.replace(pattern, replacement), changed);
}

/** Give a value of a setting in Unicode NFC, without blanks at the ends. */
export function normalValue(text: string): string {
  return text.normalize("NFC").replace(ENDS, "");
}
