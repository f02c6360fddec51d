/** Normal forms and canonical JSON, as Python writes them. */
import { expect, test } from "vitest";
import { canonical } from "../src/hash.js";
import { normalQuery, normalUrl, normalValue } from "../src/normalise.js";
import { fixture } from "./helpers.js";

interface Texts {
  readonly texts: readonly (readonly [string, string, string, string])[];
  readonly letters: { readonly ranges: readonly (readonly [number, number])[]; readonly changed: Readonly<Record<string, string>> };
  readonly canonical: readonly (readonly [unknown, string])[];
}

const { texts, letters, canonical: data } = fixture<Texts>("texts.json");

test("queries, URLs and values take the form that they take in Python", () => {
  expect(texts.length).toBeGreaterThan(500);
  for (const [text, query, url, value] of texts)
    expect([text, normalQuery(text), normalUrl(text), normalValue(text)]).toEqual([text, query, url, value]);
});

test("every letter that Python knows is written alike", () => {
  const wrong: string[] = [];
  for (const [first, last] of letters.ranges)
    for (let code = first; code <= last; code++) {
      const letter = String.fromCodePoint(code);
      if (normalQuery(letter) !== (letters.changed[code.toString(16)] ?? letter)) wrong.push(code.toString(16));
    }
  expect(wrong).toEqual([]);
});

test("the text that is hashed", () => {
  for (const [plain, text] of data) expect(canonical(plain)).toBe(text);
});
