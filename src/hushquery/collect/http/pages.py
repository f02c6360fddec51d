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
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import TYPE_CHECKING, Any

from hushquery.collect.collector import Collector
from hushquery.collect.epochs.epochs import CLOSED, Epoch, epochs_of
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.databases import within
from hushquery.core.budget import format_epsilon
from hushquery.errors import DataError, HushqueryError
from hushquery.task import Task
from hushquery.templates import STYLE, lasting, number, plural, render

if TYPE_CHECKING:
    from hushquery.release import Release

_MOST_RELEASES = 12  # how many blended releases, the latest, are compared with each other
_MOST_PERIODS = 400  # how many periods of clients' estimates, the latest, are one series
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
    static = resources.files(_SITE).joinpath("static")
    if name == "site.css":
        parts = [STYLE, *(static.joinpath(part).read_text("utf-8") for part in ("site.css", "estimates.css"))]
        return PageFile.of("".join(parts).encode(), _STYLE)
    return PageFile.of(static.joinpath(name).read_bytes(), _SCRIPT)


class Pages:
    """The sites of a collector's tasks."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._locks = {task_row: asyncio.Lock() for task_row in collector.cache.tasks}
        self._sites: dict[int, tuple[object, dict[str, PageFile]]] = {}

    async def file(self, task_row: int, name: str) -> PageFile:
        """Return a file of a task's site, an empty name for its first page, or refuse with 404."""
        name = name or "index.html"
        await self._collector.refresh()
        most = _MOST_PERIODS if self._collector.cache.tasks[task_row].head is None else _MOST_RELEASES
        releases = self._collector.cache.releases(task_row)[-most:]
        if not releases:
            if name in _BESIDE:  # other pages may load the client from here before there is anything to see
                return _beside(name)
            if name != "index.html":
                raise refuse("not-found")
            return PageFile.of(self._nothing_yet(task_row))
        async with self._locks[task_row]:
            known, missing = self._sites.get(task_row), self._missing(task_row)
            if known is None or known[0] != (releases, missing):
                built = await asyncio.to_thread(self._build, task_row, releases, missing)
                known = self._sites[task_row] = ((releases, missing), built)
        if name not in known[1]:
            raise refuse("not-found")
        return known[1][name]

    def entrance(self) -> PageFile | str:
        """Return the page that lists the tasks, or the address of the site if there is one task only."""
        tasks = self._collector.cache.tasks.values()
        if len(tasks) == 1:
            return f"sites/{next(iter(tasks)).id}/"
        return PageFile.of(render("collector/tasks.html", tasks=tasks).encode())

    def _missing(self, task_row: int) -> dict[int, str]:
        """Return why there is no release of an epoch that takes no more reports."""
        cache = self._collector.cache
        closed = [one for one in cache.epochs() if one.task_row == task_row and one.phase == CLOSED]
        return {one.number: _too_few(one) or "not released yet" for one in closed}

    def _build(self, task_row: int, releases: list[tuple[int, str]], missing: dict[int, str]) -> dict[str, PageFile]:
        # A server that only takes reports does not load tables and pages.
        from hushquery.publish.site import build_site, media_type

        task = self._collector.cache.tasks[task_row]
        documents = [json.loads(self._collector.release(release)) for _, release in releases]
        built = [read_release(document) for document in documents]
        if task.head is None:  # clients paid before they sent, and the release has what they ran
            files = build_site(built, missing=missing)
            return {name: PageFile.of(data, media_type(name)) for name, data in files.items()}
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
        closed = [one for one in self._collector.cache.epochs() if one.task_row == task_row and one is not epoch]
        short = [(period_name(task, one.number), few) for one in closed if (few := _too_few(one))]
        if epoch is not None and (few := _too_few(epoch)):
            short.append((period_name(task, epoch.number), few))
        return render("collector/waiting.html", task=task, epoch=epoch, short=short, **_asked(task, epoch)).encode()


def period_name(task: Task, number: int) -> str:
    """Name a period by the times at which it begins and ends, in UTC; a task without periods has one."""
    if task.task.period is None:
        return "the only period"
    return " to ".join(_time((number + ahead) * task.task.period) for ahead in (0, 1))


def _time(seconds: int) -> str:
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{when:%Y-%m-%d}" if seconds % 86400 == 0 else f"{when:%Y-%m-%d %H:%M}"


def _too_few(epoch: Epoch) -> str:
    """Return what is said of an epoch that ended with too few reports to be released; empty for any other."""
    if epoch.phase != CLOSED or epoch.reports is None:
        return ""
    least = (epoch.counts or {}).get("min_batch", epoch.task.collect.min_batch)
    if epoch.reports >= least:
        return ""
    return f"{number(epoch.reports)} {plural(epoch.reports, 'reports')}, fewer than {number(least)}"


_PHASES = {
    "optin_open": "People who opted in send what they search for now; the list for everybody is made of it.",
    "head_published": "The list that everybody is asked about is published. Devices report next.",
    "reports_open": "Devices are reporting now.",
    "closed": "The reports are counted, and no more are taken.",
    "expired": "It ended without a list that devices can be asked about.",
}


def _asked(task: Task, epoch: Epoch | None) -> dict[str, Any]:
    """Return what a task asks, in words, and how far it is."""
    part, listed = task.task, task.task.domain
    what = {
        "searches": f"which of {len(listed):,} searches"
        if listed
        else "what they search for, and which page they choose",
        "setting": f"which of {len(listed or ()):,} values",
        "number": f"a number from 0 to {part.highest or 0:,}",
        "text": "a text",
    }
    ends = ""
    if (
        epoch is not None
        and part.period is not None
        and epoch.phase in ("optin_open", "head_published", "reports_open")
    ):
        ends = f"{_time((epoch.number + 1) * part.period)} UTC"
    return {
        "state": _PHASES.get(epoch.phase, "") if epoch else "It has not begun.",
        "what": what[part.kind],
        "values": [one if isinstance(one, str) else " ".join(filter(None, one)) for one in (listed or ())[:20]],
        "often": f"every {lasting(part.period)}" if part.period else "once",
        "ends": ends,
        "answer": format_epsilon(task.client.epsilon),
        "lifetime": format_epsilon(task.client.lifetime_epsilon),
    }


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
