"""A search box for the page of a release: it works from a file, without a network, over the public tables alone.

The page embeds the most frequent rows as data and this one script, whose hash is in the page's policy: the browser runs
nothing else. Text reaches the page as text nodes only, never as markup. The matching is a short form of
:mod:`hushquery.publish.search`: the same text first, then beginnings, words, and words with typing mistakes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from hushquery.release.markup import shown
from hushquery.release.tables import measure_of

__all__ = ["SCRIPT", "script_policy", "search_box"]

# A page is looked at on telephones too; whoever wants more rows has the tables.
_MOST_QUERIES = 2000
_PAGES_EACH = 5

#: The script of the box.
SCRIPT = """
"use strict";
(() => {
  const box = document.getElementById("search"), field = document.getElementById("search-text");
  const status = document.getElementById("search-status"), list = document.getElementById("search-found");
  const data = JSON.parse(document.getElementById("search-data").textContent);
  const fold = (text) => text.normalize("NFKD").replace(/\\p{M}/gu, "").toLowerCase().replace(/\\s+/g, " ").trim();
  const rows = data.rows.map(([query, value, said, pages]) => ({ query, value, said, pages, key: fold(query) }));
  const allowed = (text) => (text.length < 3 ? 0 : text.length < 6 ? 1 : text.length < 13 ? 2 : 3);

  // How many typing mistakes lie between two texts; one exchange of neighbours is one mistake.
  const mistakes = (a, b, most) => {
    if (Math.abs(a.length - b.length) > most) return Infinity;
    let older = [], old = Array.from({ length: b.length + 1 }, (_, j) => j);
    for (let i = 1; i <= a.length; i++) {
      const now = [i];
      for (let j = 1; j <= b.length; j++) {
        const same = a[i - 1] === b[j - 1];
        now[j] = Math.min(old[j] + 1, now[j - 1] + 1, old[j - 1] + (same ? 0 : 1));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
          now[j] = Math.min(now[j], older[j - 2] + 1);
      }
      if (Math.min(...now) > most && Math.min(...old) > most) return Infinity;
      [older, old] = [old, now];
    }
    return old[b.length] <= most ? old[b.length] : Infinity;
  };

  // From 0 (nothing in common) to 1 (the same text).
  const quality = (typed, key) => {
    if (typed === key) return 1;
    let best = key.startsWith(typed) ? 0.6 + (0.3 * typed.length) / key.length : 0;
    const whole = mistakes(typed, key, allowed(typed));
    if (whole < Infinity) best = Math.max(best, 0.9 * (1 - whole / Math.max(typed.length, key.length)));
    const wanted = typed.split(" "), words = key.split(" ");
    let shared = 0;
    for (const [place, word] of wanted.entries()) {
      shared += Math.max(...words.map((other) => {
        if (word === other) return 1;
        if (place === wanted.length - 1 && other.startsWith(word)) return 0.5 + (0.5 * word.length) / other.length;
        const wrong = mistakes(word, other, Math.min(2, allowed(word)));
        return wrong < Infinity ? 0.8 * (1 - wrong / Math.max(word.length, other.length)) : 0;
      }));
    }
    const dice = (2 * shared) / (wanted.length + words.length);
    return Math.max(best, dice >= 0.3 ? 0.8 * dice * dice : 0);
  };

  const score = ({ row, fit }) => fit * Math.log(2 + Math.max(0, row.value) * data.per);
  const part = (name, text, kind) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const key = (text) => {
    const made = part("bdi", text);
    made.dir = "auto";
    return made;
  };

  const answer = () => {
    const typed = fold(field.value).slice(0, 200);
    list.replaceChildren();
    if (!typed) { status.textContent = ""; return; }
    const found = rows.map((row) => ({ row, fit: quality(typed, row.key) })).filter(({ fit }) => fit > 0)
      .sort((a, b) => (b.fit === 1) - (a.fit === 1) || score(b) - score(a)).slice(0, 8);
    for (const { row } of found) {
      const item = document.createElement("li"), head = document.createElement("p");
      head.append(key(row.query), part("span", row.said, "much"));
      item.append(head);
      if (row.pages.length) {
        const pages = document.createElement("ul");
        for (const [page, said] of row.pages) {
          const line = document.createElement("li");
          line.append(page ? key(page) : part("i", "no click"), part("span", said, "much"));
          pages.append(line);
        }
        item.append(pages);
      }
      list.append(item);
    }
    const many = found.length;
    status.textContent = many ? many + (many === 1 ? " query found" : " queries found")
      : "No listed query is near to this text; what few people search for is not listed.";
  };

  field.addEventListener("input", answer);
  field.form.addEventListener("submit", (event) => event.preventDefault());
  box.hidden = false;
  answer();
})();
"""


def script_policy() -> str:
    """Give the part of a content security policy that lets this script run, and no other.

    >>> script_policy().startswith("script-src 'sha256-")
    True
    """
    return f"script-src 'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"


def search_box(tables: Mapping[str, pa.Table], say: Callable[[float], str], per: float = 1.0) -> str:
    """Give the box, its data and its script as HTML; without a script it says so.

    Args:
        tables: The tables of a release; ``queries`` among them, with numbers.
        say: How a number of theirs is printed.
        per: What a number is multiplied with to rank it like a count.
    """
    queries = tables["queries"]
    measure = measure_of(queries)
    pages = _pages(tables, say)
    kept = queries.slice(0, _MOST_QUERIES)
    numbered = zip(kept["query"].to_pylist(), kept[measure].to_pylist(), strict=True)
    rows = [[query, value, say(value), pages.get(query, [])] for query, value in numbered]
    cut = "" if len(rows) == queries.num_rows else f" It knows the {len(rows):,} most frequent of {queries.num_rows:,}."
    about = (
        "Type a query: mistakes and unfinished words are fine. The search runs in this page; nothing you type leaves "
        f"it.{cut}"
    )
    return (
        '<noscript><p class="soft">The search box needs a script, and this browser runs none.</p></noscript>'
        '<form id="search" role="search" hidden><label for="search-text">Search the list</label>'
        '<input id="search-text" type="search" autocomplete="off" spellcheck="false" maxlength="200" '
        'aria-describedby="search-about">'
        f'<p id="search-about" class="soft">{shown(about)}</p>'
        '<p id="search-status" role="status"></p><ol id="search-found"></ol></form>'
        f'<script type="application/json" id="search-data">{_data({"per": per, "rows": rows})}</script>'
        f"<script>{SCRIPT}</script>"
    )


def _pages(tables: Mapping[str, pa.Table], say: Callable[[float], str]) -> dict[str, list[list[str]]]:
    """Give the most frequent pages of each query, with their numbers in print."""
    table = tables.get("clicks")
    found: dict[str, list[list[str]]] = {}
    if table is not None:
        columns = (table[name].to_pylist() for name in ("query", "url", measure_of(table)))
        for query, url, value in zip(*columns, strict=True):
            pages = found.setdefault(query, [])
            if len(pages) < _PAGES_EACH:
                pages.append([url, say(value)])
    return found


def _data(value: dict[str, Any]) -> str:
    """Write JSON that can't end the element it stands in."""
    said = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029\x7f":
        said = said.replace(character, f"\\u{ord(character):04x}")
    return said
