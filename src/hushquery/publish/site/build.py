"""Build the site: pages, style, scripts, data, and a worker that keeps them for when there is no network."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hushquery.errors import UsageError
from hushquery.publish.periods import is_of_clients, period_series
from hushquery.publish.site.downloads import feed, program_index, releases_page
from hushquery.publish.site.estimates import (
    comparisons,
    costs_page,
    estimates_page,
    period_names,
    released,
    served_task,
)
from hushquery.publish.site.history import as_script, history
from hushquery.publish.site.pages import checked_task, privacy_page, trends_page
from hushquery.publish.tables import checked_limit, need_table, queries_of
from hushquery.release.intervals import published
from hushquery.release.manifest import KINDS, SHARE_SCALE, release_measure
from hushquery.release.page import nothing_promised, populations
from hushquery.release.release import MANIFEST, manifest_bytes, write_folder
from hushquery.release.series import check_same_people, in_order, series_names, spoken
from hushquery.templates import STYLE, asset, bundled, render

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
_STATIC = ("icon.svg", "privacy.mjs", "demonstration.mjs", "keep.mjs", "client.mjs", "more.js", "reading.js")
# Those that pages share with a release's own page.
_SHARED = ("matching.mjs", "pages.mjs")
# What the script of all pages but one is made of, each after those it imports.
_SCRIPT = ("keep.mjs", "data.mjs", "search.mjs", "trends.mjs", "search-page.mjs", "query.mjs", "start.mjs")
_ESTIMATES_SCRIPT = ("keep.mjs", "data.mjs", "trends.mjs", "compare.mjs")

_FIXED = frozenset(
    {
        *_STATIC,
        *_SHARED,
        "search.mjs",
        "unlisted.mjs",
        "index.html",
        "query.html",
        "search.html",
        "releases.html",
        "privacy.html",
        "site.css",
    }
    | {"site.js", "index.js", "index.json", "feed.xml", "task.json", "sw.js", MANIFEST}
)
_MADE = re.compile(
    r"history-[0-9]+\.js|(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|undated)(?:-[0-9]+)?-"
    rf"(?:manifest\.json|(?:{'|'.join(KINDS)})\.(?:csv|parquet))"
)
# A browser keeps these when they are asked for, not all at the first visit.
_KEPT_LATER = re.compile(r"history-.*|.*\.(?:csv|parquet|xml)")


class _SiteFiles:
    """The names that the files of a site may have."""

    def __contains__(self, name: object) -> bool:
        return name in _FIXED or (isinstance(name, str) and bool(_MADE.fullmatch(name)))


#: Every file that a site may hold.
SITE_FILES: Container[str] = _SiteFiles()

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".xml": "application/atom+xml; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".parquet": "application/vnd.apache.parquet",
}

# What the foot of every page says of the last release.
_ABOUT = {"publisher": "published by", "licence": "licence", "contact": "contact"}


def build_site(
    releases: Sequence[Release],
    *,
    privacy: Mapping[str, Any] | None = None,
    title: str | None = None,
    rows: int = 200,
    searched: int = 10_000,
    missing: Mapping[int, str] | None = None,
    same_devices: float = 0.0,
) -> dict[str, bytes]:
    """Build a site from releases: every file by its name, the same bytes for the same releases.

    Releases are ordered by the dates of their data, else by those of publishing; of one day, as they are given.
    ``privacy`` is what the privacy page shows besides, all public and optional: ``task``, as a collector serves it,
    with which the page randomises what its reader types; ``ledger``, the rows of
    :meth:`hushquery.core.ledger.ledger.Ledger.over_time`; and ``accounts`` as JSON. ``title`` is whom the site speaks
    of. The trends page shows ``rows`` queries and records; the search knows ``searched`` queries. Releases of a task's
    periods, as clients reported them, have pages made for what was asked; ``missing`` is why there is none of a period,
    by its number, and ``same_devices`` what :func:`hushquery.publish.periods.period_series` takes.
    """
    if not releases:
        raise UsageError("a site needs a release", fix="Use one or more releases")
    privacy = privacy or {}
    if strange := set(privacy) - {"task", "ledger", "accounts"}:
        what = f"a site shows nothing called {', '.join(sorted(strange))}"
        raise UsageError(what, fix="Give task, ledger or accounts")
    several = in_order(releases)
    if any(map(is_of_clients, several)):
        return _estimates_site(several, privacy, title, rows, missing or {}, same_devices)
    last = several[-1]
    for release in several:
        need_table(release, "queries", "there are no pages to make")
    names, task = series_names(several), checked_task(privacy)
    whom = title or (str(task["task"]["task"]["population"]) if task else populations(last.guarantees))
    pages = {"index.html": "Most searched" if len(several) == 1 else "Trends", "query.html": "Compare"}
    site = _frame(several, names, whom, {**pages, "search.html": "Search"}, bare=not title)
    shown, shards = trends_page(several, names, checked_limit(rows)), history(several)
    check_same_people(several)
    measure, meaning = {"measure": release_measure(last.tables)}, last.manifest["meanings"]["queries"]
    files = {
        "index.html": render("trends.html", site=site, **shown).encode(),
        "query.html": render("query.html", site=site, level=shown["level"], meaning=meaning, **measure).encode(),
        "search.html": render("search.html", site=site, **measure).encode(),
        "privacy.html": render("privacy.html", site=site, **privacy_page(several, names, privacy)).encode(),
        "site.js": bundled(*map(asset, _SHARED), *(_static(name).decode() for name in _SCRIPT)).encode(),
        "matching.mjs": asset("matching.mjs").encode(),
        "search.mjs": _static("search.mjs"),
        **{f"history-{place}.js": as_script(f"history-{place}.js", shard) for place, shard in enumerate(shards)},
    }
    index = _search_data(last, checked_limit(searched)) | {"history": {"shards": len(shards)}}
    return _whole(files, several, names, site, site["heading"] or f"Searches of {whom}", index, task)


def _estimates_site(
    releases: Sequence[Release],
    privacy: Mapping[str, Any],
    title: str | None,
    rows: int,
    missing: Mapping[int, str],
    same_devices: float,
) -> dict[str, bytes]:
    """Build the site of a task's periods, as clients reported them."""
    if "task" in privacy:
        raise UsageError("releases of clients' estimates hold their task", fix="Leave the task out")
    series = period_series(releases, same_devices)
    several, names = [released(period) for one in series for period in one.present], period_names(series)
    task = served_task(several[-1])
    shown = estimates_page(series, names, missing, checked_limit(rows))
    site = _frame(several, names, title or shown["people"], {"index.html": "Results"}, bare=not title)
    told = {**privacy_page(several, names, {**privacy, "task": task}), "costs": costs_page(several)}
    files = {
        "index.html": render("results.html", site=site, **shown).encode(),
        "privacy.html": render("privacy.html", site=site, **told).encode(),
        "site.js": bundled(*map(asset, _SHARED), *(_static(name).decode() for name in _ESTIMATES_SCRIPT)).encode(),
        "unlisted.mjs": _static("unlisted.mjs"),
    }
    index = {"format": "hushquery-estimates", "version": 1, "created": several[-1].manifest["created"]}
    index |= {name: shown[name] for name in ("name", "kind", "measure")} | comparisons(series, names)
    return _whole(files, several, names, site, site["heading"] or shown["name"], index, task, _static("estimates.css"))


def _frame(
    releases: Sequence[Release], names: Sequence[str], whom: str, pages: Mapping[str, str], *, bare: bool
) -> dict[str, Any]:
    """Return what every page of a site says; without a title of the caller's, that of the last release."""
    last = releases[-1]
    name, day, about = spoken(names[-1]), str(last.manifest["created"]), dict(last.description.facts())
    return {
        "whom": whom,
        "heading": about.pop("title", "") if bare else "",
        "about": {label: about[name] for name, label in _ABOUT.items() if name in about},
        "version": last.manifest["hushquery"],
        "release": name if day in name else f"{name}, published {day}",
        "warning": next(filter(None, (nothing_promised(release.guarantees) for release in releases)), ""),
        "policy": _POLICY,
        "single": len(releases) == 1,
        "pages": {**pages, "releases.html": "Downloads", "privacy.html": "Privacy"},
    }


def _whole(
    files: Mapping[str, bytes],
    releases: Sequence[Release],
    names: Sequence[str],
    site: Mapping[str, Any],
    title: str,
    index: Mapping[str, Any],
    task: Mapping[str, Any] | None,
    style: bytes = b"",
) -> dict[str, bytes]:
    """Add to the pages of a site what all sites have: downloads, feed, index, style, the client, and the worker."""
    downloads, tables = releases_page(releases, names)
    described = {**index, **program_index(releases, names, downloads)}
    whole = {
        **files,
        "releases.html": render("releases.html", site=site, releases=downloads).encode(),
        "feed.xml": render("feed.xml", **feed(releases, downloads, title)).encode(),
        "site.css": STYLE.encode() + _static("site.css") + style,
        "index.json": json.dumps(described, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
            "utf-8", "replace"
        ),
        "index.js": as_script("index.js", described),
        MANIFEST: manifest_bytes(releases[-1].manifest),
        "pages.mjs": asset("pages.mjs").encode(),
        **{name: _static(name) for name in _STATIC},
        **tables,
    }
    if task is not None:
        served = {name: task[name] for name in ("id", "task", "configuration")}
        whole["task.json"] = json.dumps(served, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    whole["sw.js"] = _worker(whole)
    return dict(sorted(whole.items()))


def write_site(files: Mapping[str, bytes], folder: Path | str, force: bool = False) -> Path:
    """Write the files of a site into a new folder, whole or not at all; ``force`` replaces only an older site."""
    return write_folder(folder, files, force, known=SITE_FILES)


def media_type(name: str) -> str:
    """Return the type with which a file of a site is served; browsers run no module of another type."""
    return _TYPES[Path(name).suffix]


def _search_data(release: Release, most: int) -> dict[str, Any]:
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
    return data


def _worker(files: Mapping[str, bytes]) -> bytes:
    """Complete the worker: which files it keeps, and a version that changes whenever one of them does."""
    code = _static("sw.js")
    whole = hashlib.sha256(code)
    for name, data in sorted(files.items()):
        whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(data).digest())
    kept = sorted(name for name in files if not _KEPT_LATER.fullmatch(name))
    names = json.dumps(kept, separators=(",", ":"))
    return code.replace(b'"VERSION"', f'"{whole.hexdigest()[:16]}"'.encode()).replace(b'["FILES"]', names.encode())


def _static(name: str) -> bytes:
    return resources.files("hushquery.publish.site").joinpath("static", name).read_bytes()
