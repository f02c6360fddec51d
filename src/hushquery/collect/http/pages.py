"""The pages of a collector: for each task the site of its releases, rebuilt when one is published.

The files are kept in memory by name, so no path leads anywhere else; everything in them is public already.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from hushquery.collect.collector import Collector
from hushquery.collect.epochs.epochs import epochs_of
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.databases import within
from hushquery.errors import DataError, HushqueryError
from hushquery.templates import STYLE, render

if TYPE_CHECKING:
    from hushquery.release import Release

_MOST_RELEASES = 12  # how many releases, the latest, are compared with each other
_HTML, _STYLE, _SCRIPT = (f"text/{kind}; charset=utf-8" for kind in ("html", "css", "javascript"))
_SITE = "hushquery.publish.site"
_BESIDE = ("client.mjs", "more.js", "site.css")  # the browser client and the style, which every site has

_log = logging.getLogger("hushquery.collect")


@dataclass(frozen=True)
class PageFile:
    """A file of a site with its ETag, the hash of its bytes."""

    data: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, data: bytes, media_type: str = _HTML) -> PageFile:
        """Return a file with its tag."""
        return cls(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')


def _beside(name: str) -> PageFile:
    """Return a file that pages load, before and beside a whole site."""
    if name == "site.css":
        return PageFile.of(STYLE.encode(), _STYLE)
    return PageFile.of(resources.files(_SITE).joinpath("static", name).read_bytes(), _SCRIPT)


class Pages:
    """The sites of a collector's tasks."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._locks = {task_row: asyncio.Lock() for task_row in collector.cache.tasks}
        self._sites: dict[int, tuple[list[tuple[int, str]], dict[str, PageFile]]] = {}

    async def file(self, task_row: int, name: str) -> PageFile:
        """Return a file of a task's site, an empty name for its first page, or refuse with 404."""
        name = name or "index.html"
        await self._collector.refresh()
        releases = self._collector.cache.releases(task_row)[-_MOST_RELEASES:]
        if not releases:
            if name in _BESIDE:  # other pages may load the client from here before there is anything to see
                return _beside(name)
            if name != "index.html":
                raise refuse("not-found")
            return PageFile.of(self._nothing_yet(task_row))
        async with self._locks[task_row]:
            known = self._sites.get(task_row)
            if known is None or known[0] != releases:
                known = (releases, await asyncio.to_thread(self._build, task_row, releases))
                self._sites[task_row] = known
        if name not in known[1]:
            raise refuse("not-found")
        return known[1][name]

    def entrance(self) -> PageFile | str:
        """Return the page that lists the tasks, or the address of the site if there is one task only."""
        tasks = self._collector.cache.tasks.values()
        if len(tasks) == 1:
            return f"sites/{next(iter(tasks)).id}/"
        return PageFile.of(render("collector/tasks.html", tasks=tasks).encode())

    def _build(self, task_row: int, releases: list[tuple[int, str]]) -> dict[str, PageFile]:
        # A server that only takes reports does not load tables and pages.
        from hushquery.publish.site import build_site, media_type
        from hushquery.release.estimates_page import page as estimates_page

        task = self._collector.cache.tasks[task_row]
        documents = [json.loads(self._collector.release(release)) for _, release in releases]
        built = [read_release(document) for document in documents]
        if task.head is None:
            page = estimates_page(built[-1], served=f"../../v1/releases/{releases[-1][1]}")
            return {"index.html": PageFile.of(page.encode()), **{name: _beside(name) for name in _BESIDE}}
        with within(self._collector.settings.store_seconds):
            epochs = epochs_of(self._collector.store, task, task_row)
        last = next(one for one in epochs if one.number == releases[-1][0])
        configuration = None if last.configuration is None else json.loads(last.configuration.canonical())
        described = {"id": task.id, "task": task.for_devices(), "configuration": configuration}
        files = build_site(built, privacy={"task": described, **self._spends(built)})
        return {name: PageFile.of(data, media_type(name)) for name, data in files.items()}

    def _spends(self, releases: list[Release]) -> dict[str, Any]:
        """Return the ledger's entries of the populations in the releases, and of nobody else."""
        from hushquery.core.ledger.ledger import Ledger

        people = sorted({guarantee.population for release in releases for guarantee in release.guarantees})
        try:
            book = Ledger.open(self._collector.settings.ledger, create=False)
            accounts = [account.to_json() for who in people for account in book.accounts(who)]
            return {"ledger": [row for who in people for row in book.over_time(who)], "accounts": accounts}
        except HushqueryError as error:  # pages without it are better than no pages
            _log.error("the pages lack the ledger: %s", error.what)
            return {}

    def _nothing_yet(self, task_row: int) -> bytes:
        task, epoch = self._collector.cache.tasks[task_row], self._collector.cache.current(task_row)
        return render("collector/waiting.html", task=task, epoch=epoch).encode()


def read_release(document: Mapping[str, Any]) -> Release:
    """Return the release of a document that a collector serves."""
    import pyarrow as pa

    from hushquery.release import Release
    from hushquery.release.manifest import KINDS, checked_table, guarantee_from_json

    if "tables" not in document:
        raise DataError("this release is of an earlier hushquery", fix="Get its JSON from /v1/releases")
    found, known = document["tables"], list(KINDS)
    names = sorted(found, key=lambda name: known.index(name) if name in known else len(known))  # as a release has them
    tables = {name: checked_table(name, pa.table(found[name])) for name in names}
    guarantees = tuple(guarantee_from_json(one) for one in document["guarantees"])
    return Release(tables, guarantees, document["manifest"])
