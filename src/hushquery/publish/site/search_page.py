"""The search page and the data it searches in: the released queries with their pages, as one JSON file."""

from __future__ import annotations

import json
from typing import Any

from hushquery.publish.site.layout import Shell
from hushquery.publish.tables import PER, queries_of, row_numbers
from hushquery.release import Release

__all__ = ["search_data", "search_page"]


def search_data(release: Release, most: int) -> bytes:
    """Give what the search knows: ``[query, value, low, high, [[url, value], ...]]``, the most frequent first.

    Args:
        release: The release.
        most: How many queries at most.
    """
    queries = queries_of(release)
    pages = _pages(release)
    rows = []
    for place, name in enumerate(queries.names[:most]):
        count, low, high = queries.numbers(place)
        rows.append([name, count if count is not None else queries.share(place), low, high, pages.get(name, [])])
    data: dict[str, Any] = {
        "format": "hushquery-index",
        "version": 1,
        "created": release.manifest["created"],
        "measure": queries.measure,
        "per": PER if queries.measure == "share" else 1,
        "all": len(queries.names),
        "queries": rows,
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _pages(release: Release) -> dict[str, list[list[Any]]]:
    table = release.tables.get("clicks")
    found: dict[str, list[list[Any]]] = {}
    if table is not None:
        numbers = row_numbers(table)
        whole = numbers.measure == "count"
        keys = zip(table["query"].to_pylist(), table["url"].to_pylist(), numbers.value.tolist(), strict=True)
        for query, url, value in keys:
            found.setdefault(query, []).append([url, int(value) if whole else value])
    return found


def _told(measure: str | None) -> str:
    """Say what the order and the numbers of the found pages are."""
    order = "The order weighs how near each query is to yours."
    if measure is None:
        return order
    return f"The number of a page is the sum of its {measure}s after all near queries, with the noise of each. {order}"


def search_page(shell: Shell, measure: str | None) -> bytes:
    """Write the page; all it finds is put there by its script.

    Args:
        shell: What all pages share.
        measure: What the numbers of clicks are, ``count`` or ``share``; None where there are none.
    """
    form = (
        '<p id="needs-script" class="soft">The search runs in this page, by a script that this browser has not '
        "started: it is switched off, or the page was opened as a file instead of from a server.</p>"
        '<form id="search" role="search" hidden><label for="search-text">Search for</label>'
        '<input id="search-text" type="search" autocomplete="off" autocapitalize="off" spellcheck="false" '
        'maxlength="200" aria-describedby="search-about" enterkeyhint="search">'
        '<p id="search-about" class="soft">Mistakes and unfinished words are fine.'
        '<span class="keys"> <kbd>/</kbd> jumps here.</span></p>'
        '<p id="search-status" role="status"></p></form>'
        '<div class="found" id="found" hidden>'
        '<section aria-labelledby="pages-found"><h2 id="pages-found">Pages</h2>'
        f'<p class="soft">{_told(measure)}</p><ol id="pages"></ol></section>'
        '<section aria-labelledby="queries-found"><h2 id="queries-found">Similar queries</h2>'
        '<ol id="queries"></ol></section>'
        '</div><p id="offline" class="soft" role="status"></p>'
    )
    lead = (
        "Type, and get the pages that others chose and the queries near to yours. It is answered in this page: what "
        "you type is sent to nobody."
    )
    return shell.page("search.html", "Search what many searched for", lead, [form], "search-page.mjs")
