"""Build the site: pages, style, scripts, data, and a worker that keeps them for when there is no network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hushquery.errors import UsageError
from hushquery.publish.site.pages import checked_task, privacy_page, trends_page
from hushquery.publish.tables import checked_limit, need_table, queries_of
from hushquery.release.intervals import published
from hushquery.release.manifest import SHARE_SCALE, release_measure
from hushquery.release.page import nothing_promised, populations
from hushquery.release.release import MANIFEST, manifest_bytes, write_folder
from hushquery.templates import STYLE, asset, render

if TYPE_CHECKING:
    from hushquery.release import Release

# What a page may do: load its own files, and nothing else from anywhere.
_POLICY = Markup(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)

#: The headers with which a server should serve every file of a site.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

# Files that are the same in every site; style and worker are completed below.
_STATIC = (
    *("icon.svg", "trends.mjs", "search.mjs", "search-page.mjs", "privacy.mjs", "demonstration.mjs", "pages.mjs"),
    *("client.mjs", "more.js", "reading.js"),
)

#: Every file that a site may hold.
SITE_FILES = frozenset(
    {*_STATIC, "index.html", "search.html", "privacy.html", "site.css", "matching.mjs"}
    | {"index.json", "task.json", "sw.js", MANIFEST}
)

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


def build_site(
    releases: Sequence[Release],
    *,
    privacy: Mapping[str, Any] | None = None,
    title: str | None = None,
    rows: int = 200,
    searched: int = 10_000,
) -> dict[str, bytes]:
    """Build a site from releases, oldest first: every file by its name, the same bytes for the same releases.

    ``privacy`` is what the privacy page shows besides, all public and optional: ``task``, as a collector serves it,
    with which the page randomises what its reader types; ``ledger``, the rows of
    :meth:`hushquery.core.ledger.ledger.Ledger.over_time`; and ``accounts`` as JSON. ``title`` is whom the site speaks
    of. The trends page shows ``rows`` queries and records; the search knows ``searched`` queries.
    """
    several = list(releases)
    if not several:
        raise UsageError("a site needs a release", fix="Give one, or several with the oldest first")
    last, privacy = several[-1], privacy or {}
    if strange := set(privacy) - {"task", "ledger", "accounts"}:
        what = f"a site shows nothing called {', '.join(sorted(strange))}"
        raise UsageError(what, fix="Give task, ledger or accounts")
    for release in several:
        need_table(release, "queries", "there are no pages to make")
    names, task = _names(several), checked_task(privacy)
    name, day = names[-1], str(last.manifest["created"])
    site = {
        "whom": title or (str(task["task"]["task"]["population"]) if task else populations(last.guarantees)),
        "version": last.manifest["hushquery"],
        "release": name if day in name else f"{name}, published {day}",
        "warning": next(filter(None, (nothing_promised(release.guarantees) for release in several)), ""),
        "policy": _POLICY,
    }
    shown = trends_page(several, names, checked_limit(rows))
    files = {
        "index.html": render("trends.html", site=site, **shown).encode(),
        "search.html": render("search.html", site=site, measure=release_measure(last.tables)).encode(),
        "privacy.html": render("privacy.html", site=site, **privacy_page(several, names, privacy)).encode(),
        "site.css": STYLE.encode() + _static("site.css"),
        "matching.mjs": asset("matching.mjs").encode(),
        "index.json": _search_data(last, checked_limit(searched)),
        MANIFEST: manifest_bytes(last.manifest),
        **{name: _static(name) for name in _STATIC},
    }
    if task is not None:
        served = {name: task[name] for name in ("id", "task", "configuration")}
        files["task.json"] = json.dumps(served, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    files["sw.js"] = _worker(files)
    return dict(sorted(files.items()))


def write_site(files: Mapping[str, bytes], folder: Path | str, force: bool = False) -> Path:
    """Write the files of a site into a new folder, whole or not at all; ``force`` replaces only an older site."""
    return write_folder(folder, files, force, known=SITE_FILES)


def media_type(name: str) -> str:
    """Return the type with which a file of a site is served; browsers run no module of another type."""
    return _TYPES[Path(name).suffix]


def _search_data(release: Release, most: int) -> bytes:
    """Return what the search knows: ``[query, value, low, high, [[url, value], ...]]``, the most frequent first."""
    queries = queries_of(release)
    pages: dict[str, list[list[Any]]] = {}
    if (table := release.tables.get("clicks")) is not None:
        numbers = published(table)
        values = numbers.value.tolist() if numbers.measure == "share" else map(int, numbers.value)
        for query, url, value in zip(table["query"].to_pylist(), table["url"].to_pylist(), values, strict=True):
            pages.setdefault(query, []).append([url, value])
    rows = []
    for place, name in enumerate(queries.names[:most]):
        count, low, high = queries.numbers(place)
        rows.append([name, count if count is not None else queries.share(place), low, high, pages.get(name, [])])
    per = SHARE_SCALE if queries.measure == "share" else 1
    data = {"format": "hushquery-index", "version": 1, "created": release.manifest["created"]}
    data |= {"measure": queries.measure, "per": per, "all": len(queries.names), "queries": rows}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _names(releases: Sequence[Release]) -> list[str]:
    """Name a release by its epoch, else by its day; number those of one day."""
    epochs = [release.manifest["parameters"].get("epoch") for release in releases]
    if all(type(epoch) is int for epoch in epochs) and len(set(epochs)) == len(epochs):
        return [f"epoch {epoch}" for epoch in epochs]
    days = [str(release.manifest["created"]) for release in releases]
    if len(set(days)) == len(days):
        return [f"the release of {day}" for day in days]
    return [f"release {place}" for place in range(1, len(days) + 1)]


def _worker(files: Mapping[str, bytes]) -> bytes:
    """Complete the worker: which files it keeps, and a version that changes whenever one of them does."""
    code = _static("sw.js")
    whole = hashlib.sha256(code)
    for name, data in sorted(files.items()):
        whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(data).digest())
    names = json.dumps(sorted(files), separators=(",", ":"))
    return code.replace(b'"VERSION"', f'"{whole.hexdigest()[:16]}"'.encode()).replace(b'["FILES"]', names.encode())


def _static(name: str) -> bytes:
    return resources.files("hushquery.publish.site").joinpath("static", name).read_bytes()
