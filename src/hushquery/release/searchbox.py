"""A search box for the page of a release: it works from a file, without a network, over the public tables alone.

The page embeds the most frequent rows as data and this one script, whose hash is in the page's policy: the browser runs
nothing else. Text reaches the page as text nodes only, never as markup. The matching is ``matching.mjs``, which ranks
as :mod:`hushquery.publish.search` does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import pyarrow as pa

from hushquery.release.markup import shown
from hushquery.release.tables import measure_of

__all__ = ["SCRIPT", "matching_module", "script_policy", "search_box"]

# A page is looked at on telephones too; whoever wants more rows has the tables.
_MOST_QUERIES = 2000
_PAGES_EACH = 5

# The box itself, behind the matching. ``Index`` is the matching's.
_BOX = """
  const box = document.getElementById("search"), field = document.getElementById("search-text");
  const status = document.getElementById("search-status"), list = document.getElementById("search-found");
  const data = JSON.parse(document.getElementById("search-data").textContent);
  const index = new Index(data.rows.map(([query, value]) => [query, value, []]), data.per);
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
    list.replaceChildren();
    if (!field.value.trim()) { status.textContent = ""; return; }
    const found = index.near(field.value.slice(0, 200)).slice(0, 8);
    for (const { place } of found) {
      const [query, , said, known] = data.rows[place];
      const item = document.createElement("li"), head = document.createElement("p");
      head.append(key(query), part("span", said, "much"));
      item.append(head);
      if (known.length) {
        const pages = document.createElement("ul");
        for (const [page, said] of known) {
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
      : "No listed query is near to this text; not everything that people search for is listed.";
  };

  field.addEventListener("input", answer);
  field.form.addEventListener("submit", (event) => event.preventDefault());
  box.hidden = false;
  answer();
"""


def matching_module() -> str:
    """Give the matching as the text of an ES module: the one source of this box and of the site's search."""
    return resources.files("hushquery.release").joinpath("matching.mjs").read_text("utf-8")


def _script() -> str:
    """Put matching and box into one script; a script in a page can't be given a module of another file."""
    matching = re.sub("(?m)^export ", "", matching_module())
    return f'\n"use strict";\n(() => {{\n{matching}{_BOX}}})();\n'


#: The script of the box.
SCRIPT = _script()


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
