"""The experiments of Korolova, Kenthapadi, Mishra and Ntoulas 2009, with the selectors of today beside theirs.

How many queries come out and how much of the search volume they are, against d, epsilon and delta; how well keywords
and human fears from a release agree with those from the log. Everything is computed against the true log, so nothing
of it may be published, unless the log is the synthetic one that is made here by default: nobody is in it.

Reference: A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas, Releasing search queries and clicks privately, WWW 2009.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hushquery.core.budget import Budget
from hushquery.curator.counting import Bound
from hushquery.curator.plan import ReleaseSpec, SelectorName, calibrate
from hushquery.curator.selectors import Selector
from hushquery.engine import execute, materialize
from hushquery.errors import UsageError
from hushquery.log import Log, read_log
from hushquery.noise.sampler import Bits, SeededBits, SystemBits
from hushquery.release import Release
from hushquery_experiments.coverage import SearchVolume, search_volume, searches_of
from hushquery_experiments.korolova2009.agreement import (
    FearsAgreement,
    KeywordAgreement,
    fears_agreement,
    keyword_agreement,
)
from hushquery_experiments.page import made_at
from hushquery_experiments.unpublishable import NotPublishable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DELTA",
    "EPSILON",
    "QUERIES_PER_USER",
    "SELECTORS",
    "Claim",
    "Experiment",
    "Point",
    "check_claims",
    "korolova2009",
]

#: The values of d on the slides of the paper.
QUERIES_PER_USER = (1, 5, 10, 20, 40, 80, 160)
#: The paper's epsilon, e^epsilon = 10, and its delta.
EPSILON, DELTA = "ln 10", 1e-5
#: Every selector, the paper's own first.
SELECTORS: tuple[SelectorName, ...] = ("korolova2009", "laplace", "optimal", "gaussian", "weighted", "guided")

# The curves against epsilon and delta, at one d.
_EPSILONS = ("1", EPSILON, "4")
_DELTAS = (1e-7, 1e-6, DELTA)
_COMPARED: tuple[SelectorName, ...] = ("korolova2009", "gaussian", "guided")
_D = 20
# The release whose keywords and fears are compared with the log's.
_CLICKS_PER_USER = 5
_TOPICS = 8

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Point:
    """One setting of a selector and how much it released, on average over the runs.

    Attributes:
        selector: Its name.
        queries_per_user: d.
        epsilon: As a number.
        delta: As a number.
        with_counts: Whether the same budget also paid for noisy counts.
        threshold: In users (searches for korolova2009; weights of users for weighted and guided).
        runs: How many runs were averaged.
        queries: Queries released.
        least: In the run that released fewest.
        most: In the run that released most.
        distinct_share: Share of the log's distinct queries.
        volume_share: Share of the log's searches.
    """

    selector: str
    queries_per_user: int
    epsilon: float
    delta: float
    with_counts: bool
    threshold: float
    runs: int
    queries: float
    least: int
    most: int
    distinct_share: float
    volume_share: float


@dataclass(frozen=True)
class Claim:
    """A ratio that has to be reached; ``ratio`` and ``holds`` are None where its settings were not run."""

    what: str
    at_least: float
    ratio: float | None
    holds: bool | None


@dataclass(frozen=True, repr=False)
class Experiment(NotPublishable):
    """Everything that was measured.

    Attributes:
        settings: What was asked for, and when.
        log: The size of the log.
        coverage: One point for each setting of a selector.
        keywords: Agreement of keywords; None for a log without URLs.
        fears: Agreement of fears.
        claims: The ratios.
    """

    settings: Mapping[str, Any]
    log: Mapping[str, float]
    coverage: tuple[Point, ...]
    keywords: KeywordAgreement | None
    fears: FearsAgreement
    claims: tuple[Claim, ...]

    @property
    def synthetic(self) -> bool:
        """Whether nobody is in the log, so that the mark is a matter of principle."""
        return bool(self.settings["log"] == "synthetic")


@dataclass(frozen=True)
class _Setting:
    """One cell of the experiment, before it has run."""

    selector: SelectorName
    queries_per_user: int
    epsilon: str = EPSILON
    delta: float = DELTA
    with_counts: bool = False

    def request(self) -> ReleaseSpec:
        return ReleaseSpec(
            Budget(self.epsilon, self.delta),
            self.queries_per_user,
            selector=self.selector,
            select_only=not self.with_counts,
        )


@dataclass(frozen=True)
class _HeldBound(Bound):
    """The plain bound, with each user's distinct queries put in order once for all runs; the releases are the same."""

    firsts: Any = None
    placed: Any = None

    def rows(self, table: Any, columns: list[str], most: int) -> Any:
        if table is not self.firsts or self.placed is None:
            return super().rows(table, columns, most)
        return self.placed.filter(self.placed.place < most).select("user", *columns)


@dataclass(frozen=True)
class _Tables:
    """The log in the forms that the runs share; each gives the same release as the whole log, and gives it sooner."""

    rows: Any
    searches: Any
    bound: _HeldBound
    volume: SearchVolume

    def run(self, selector: Selector, bits: Bits) -> pa.Table:
        """Run a selector. Algorithm 1 counts searches; every other one looks at a user's distinct queries only."""
        table = self.searches if selector.name == "korolova2009" else self.bound.firsts
        return selector.run(table, self.bound, bits)


def korolova2009(
    log: Any = None,
    *,
    users: int = 65_000,
    seed: int = 1,
    runs: int = 2,
    queries_per_user: Sequence[int] = QUERIES_PER_USER,
    progress: Progress | None = None,
) -> Experiment:
    """Run the experiment. Its result must not be published unless the log is synthetic.

    Args:
        log: A log, or anything that :func:`hushquery.log.read_log` reads; by default one is made that nobody is in.
        users: How many synthetic users.
        seed: Of the synthetic log and of the noise on it. On a log of yours the noise is the operating system's.
        runs: How often each setting draws its noise.
        queries_per_user: The values of d.
        progress: Called with what is done next and the fraction that is done.
    """
    if runs < 1:
        raise UsageError("the number of runs must be at least 1", fix="Give --runs 1")
    if not queries_per_user:
        raise UsageError("there is no value of d", fix="Give --d 1,5,20")
    tell, began = progress or (lambda *_: None), datetime.now(UTC)
    cells = _settings(sorted(set(queries_per_user)))
    calibrated = [(cell, calibrate(cell.request())) for cell in cells]  # what can't be done is refused now
    with ExitStack() as stack:
        tell("making the log", 0.0)
        source = stack.enter_context(_synthetic(users, seed)) if log is None else log
        tables = stack.enter_context(_tables(source if isinstance(source, Log) else read_log(source)))

        def bits(*what: object) -> Bits:
            return SystemBits() if log is not None else SeededBits(f"korolova2009 {seed} {what}")

        points = []
        for place, (cell, steps) in enumerate(calibrated):
            tell(f"{cell.selector}, d = {cell.queries_per_user}", 0.05 + 0.75 * place / len(cells))
            covered = [tables.volume.coverage(tables.run(steps.selector, bits(cell, run))) for run in range(runs)]
            points.append(_point(cell, steps.selector.threshold, covered))
        tell("comparing keywords and fears", 0.8)
        release = _release(tables, bits("release"))
        keywords = None
        if "url" in tables.rows.columns:
            topics = _synthetic_topics() if log is None else _busiest_hosts(release)
            keywords = keyword_agreement(tables.rows, release, topics) if topics else None
        fears = fears_agreement(tables.rows, release)
        size = _size(tables)
    settings = {
        "experiment": "korolova2009",
        "log": "synthetic" if log is None else "given",
        "profile": "aol" if log is None else None,
        "users": users if log is None else None,
        "seed": seed if log is None else None,
        "runs": runs,
        "queries_per_user": sorted(set(queries_per_user)),
        "release": {"selector": "gaussian", "queries_per_user": _D, "clicks_per_user": _CLICKS_PER_USER},
        **made_at(began),
    }
    tell("done", 1.0)
    return Experiment(settings, size, tuple(points), keywords, fears, check_claims(points))


def check_claims(points: Sequence[Point]) -> tuple[Claim, ...]:
    """Compare what must be reached at 65,000 users with what was measured."""
    found = {
        (p.selector, p.queries_per_user): p.queries
        for p in points
        if not p.with_counts and p.delta == DELTA and p.epsilon == _number(EPSILON)
    }
    theirs, gaussian, guided = (found.get(key) for key in (("korolova2009", 20), ("gaussian", 20), ("guided", 40)))
    best = max((queries for (name, _), queries in found.items() if name == "korolova2009"), default=None)
    asked = (
        ("gaussian at d = 20 over korolova2009 at d = 20", 3.0, gaussian, theirs),
        ("guided at d = 40 over korolova2009 at d = 20", 7.0, guided, theirs),
        ("guided at d = 40 over korolova2009 at its best d", 2.5, guided, best),
    )
    claims = []
    for what, at_least, ours, other in asked:
        ratio = None if ours is None or not other else ours / other
        claims.append(Claim(what, at_least, ratio, None if ratio is None else ratio >= at_least))
    return tuple(claims)


def _settings(queries_per_user: Sequence[int]) -> list[_Setting]:
    """Return every cell once, in the order in which they run."""
    cells = [_Setting(name, d) for name in SELECTORS for d in queries_per_user]
    cells += [_Setting(name, _D, epsilon=epsilon) for name in _COMPARED for epsilon in _EPSILONS]
    cells += [_Setting(name, _D, delta=delta) for name in _COMPARED for delta in _DELTAS]
    cells += [_Setting(name, _D, with_counts=True) for name in SELECTORS]
    return list(dict.fromkeys(cells))


def _point(cell: _Setting, threshold: float, found: Sequence[Any]) -> Point:
    return Point(
        cell.selector,
        cell.queries_per_user,
        _number(cell.epsilon),
        cell.delta,
        cell.with_counts,
        threshold,
        len(found),
        queries=fmean(one.queries for one in found),
        least=min(one.queries for one in found),
        most=max(one.queries for one in found),
        distinct_share=fmean(one.distinct_share for one in found),
        volume_share=fmean(one.volume_share for one in found),
    )


def _number(epsilon: str) -> float:
    return float(Budget(epsilon).epsilon)


@contextmanager
def _synthetic(users: int, seed: int) -> Iterator[Path]:
    from hushquery.log.synthetic.logs import write_log

    with tempfile.TemporaryDirectory(prefix="hushquery-") as folder:
        yield write_log(Path(folder) / "log.parquet", "aol", users, seed)


@contextmanager
def _tables(log: Log) -> Iterator[_Tables]:
    import ibis

    with ExitStack() as stack:
        wanted = [column for column in log.table.columns if column != "rank"]
        rows = stack.enter_context(materialize(log.table.select(*wanted)))
        searches = stack.enter_context(materialize(searches_of(rows)))
        firsts, placed = searches, None
        if log.has_time:
            each = searches.group_by("user", "query").agg(time=searches.time.min())
            firsts = stack.enter_context(materialize(each))
            order = [ibis.asc(firsts.time, nulls_first=False), firsts["query"]]
            place = ibis.row_number().over(ibis.window(group_by="user", order_by=order))
            placed = stack.enter_context(materialize(firsts.select("user", "query", place=place)))
        yield _Tables(
            rows, searches, _HeldBound(firsts=firsts, placed=placed), stack.enter_context(search_volume(rows))
        )


def _release(tables: _Tables, bits: Bits) -> Release:
    """Make the release that keywords and fears come from. No ledger: it is compared, never published."""
    request = ReleaseSpec(
        Budget(EPSILON, DELTA), _D, _CLICKS_PER_USER if "url" in tables.rows.columns else None, selector="gaussian"
    )
    steps = calibrate(request)
    released = {"queries": tables.run(steps.selector, bits)}
    if steps.clicks:
        released["clicks"] = steps.clicks.run(tables.rows, tables.bound, released["queries"], bits)
    return Release(released, (), {})


def _synthetic_topics() -> dict[str, list[str]]:
    """Return the first themes of the synthetic language, each as the hosts of its sites."""
    from hushquery.log.synthetic.language import THEMES

    chosen = list(THEMES)[:_TOPICS]
    return {theme: [f"{name}.example.com" for name in (theme, *THEMES[theme])] for theme in chosen}


def _busiest_hosts(release: Release) -> dict[str, list[str]]:
    """Return the hosts that most released queries lead to, each a topic; they are public, being in the release."""
    from urllib.parse import urlsplit

    queries: dict[str, set[str]] = {}
    clicks = release.tables["clicks"]
    for query, url in zip(clicks["query"].to_pylist(), clicks["url"].to_pylist(), strict=True):
        queries.setdefault(urlsplit(url if "//" in url else f"//{url}").hostname or "", set()).add(query)
    queries.pop("", None)
    return {host: [host] for host in sorted(queries, key=lambda one: (-len(queries[one]), one))[:_TOPICS]}


def _size(tables: _Tables) -> dict[str, float]:
    rows, volume = tables.rows, tables.volume
    found = execute(rows.agg(rows=rows.count(), users=rows.user.nunique())).to_pylist()[0]
    once = execute(volume.table.filter(volume.table.n == 1).agg(once=volume.table.n.count())).to_pylist()[0]["once"]
    return {
        "rows": found["rows"],
        "users": found["users"],
        "searches": volume.searches,
        "distinct_queries": volume.distinct,
        "searched_once_share": once / volume.distinct,
    }
