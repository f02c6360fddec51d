"""A search box for the page of a release: it works from a file, without a network, over the public tables alone.

The page embeds the most frequent rows as data and this one script, whose hash is in the page's policy: the browser runs
nothing else. Text reaches the page as text nodes only, never as markup. The matching is ``matching.mjs``, which ranks
as :mod:`hushquery.publish.search` does.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from hushquery.release.tables import measure_of
from hushquery.templates import asset, percent

__all__ = ["SCRIPT", "SCRIPT_HASH", "search_box"]

# A page is looked at on telephones too; whoever wants more rows has the tables.
_MOST_QUERIES = 2000
_PAGES_EACH = 5

# A share is ranked as if so many records had been counted.
_PER = 100_000

#: The script of the box; a script in a page can't be given a module of another file.
SCRIPT = Markup(  # noqa: S704 -- two files of ours
    str(asset("searchbox.js")).replace("/* matching.mjs */", re.sub("(?m)^export ", "", asset("matching.mjs")))
)

#: The name by which a content security policy lets this script run, and no other.
SCRIPT_HASH = f"sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}"


def search_box(tables: Mapping[str, pa.Table]) -> dict[str, Any] | None:
    """Return what the macro ``search_box`` shows; None for a release without shares of queries.

    Args:
        tables: The tables of a release.
    """
    queries = tables.get("queries")
    if queries is None or measure_of(queries) != "share" or not queries.num_rows:
        return None
    pages: dict[str, list[list[str]]] = {}
    if "clicks" in tables:
        columns = (tables["clicks"][name].to_pylist() for name in ("query", "url", "share"))
        for query, url, share in zip(*columns, strict=True):
            known = pages.setdefault(query, [])
            if len(known) < _PAGES_EACH:
                known.append([url, percent(share)])
    first = queries.slice(0, _MOST_QUERIES)
    numbered = zip(first["query"].to_pylist(), first["share"].to_pylist(), strict=True)
    rows = [[query, share, percent(share), pages.get(query, [])] for query, share in numbered]
    return {"per": _PER, "rows": rows, "all": queries.num_rows, "script": SCRIPT, "hash": SCRIPT_HASH}
