"""Agreement: does a release say what the true log would have said? Not publishable.

The two uses that Korolova et al. 2009 try a release on: keywords for a topic, found by a walk on the click graph, and
the study of human fears, ranked by how often they are searched. Each runs twice with the same code of
:mod:`hushquery.publish`, once on the release and once on the whole log without bound, threshold and noise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from scipy import stats

from hushquery.engine import execute
from hushquery.errors import DataError, UsageError
from hushquery.publish import find
from hushquery.publish.keywords import absorbing_walk, checked_share
from hushquery.publish.tables import ClickGraph, checked_limit, click_graph
from hushquery.publish.text import fold
from hushquery.release import Release
from hushquery_experiments.coverage import rows_of
from hushquery_experiments.unpublishable import NotPublishable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FEARS",
    "GAMMAS",
    "WALK_ALPHA",
    "Fear",
    "FearsAgreement",
    "KeywordAgreement",
    "KeywordScore",
    "fears_agreement",
    "keyword_agreement",
    "raw_click_graph",
]

#: The least probabilities of a keyword at which the two sides are compared.
GAMMAS = (0.5, 0.7, 0.8, 0.9, 0.95)
#: The probability of being lost before a step: small enough that a query all of whose clicks lead to the topic reaches
#: the largest of the probabilities above.
WALK_ALPHA = 0.03
#: How people search for a fear.
FEARS = ("fear of *", "* phobia")

_FEAR = re.compile(r"fear of (?P<of>.+)|(?P<phobia>.+) phobia")


@dataclass(frozen=True)
class KeywordScore:
    """How the keywords of a release agree with those of the log; a share is None where it would divide by zero.

    Attributes:
        topic: The topic, or ``all`` for the topics together.
        gamma: The least probability of a keyword.
        private: Keywords found in the release.
        raw: Keywords found in the log.
        raw_released: Those of them that the release has at all, as queries.
        both: Keywords found in both.
        precision: Of the release's keywords, the share that the log has too.
        recall: Of the log's keywords, the share that the release has too.
        recall_released: The same, of those keywords that the release has as queries.
        jaccard: The share of both among all.
    """

    topic: str
    gamma: float
    private: int
    raw: int
    raw_released: int
    both: int
    precision: float | None
    recall: float | None
    recall_released: float | None
    jaccard: float | None


@dataclass(frozen=True, repr=False)
class KeywordAgreement(NotPublishable):
    """Agreement of keywords, for each topic and gamma, and for all topics together (their sets added up)."""

    alpha: float
    topics: tuple[KeywordScore, ...]
    together: tuple[KeywordScore, ...]


@dataclass(frozen=True)
class Fear:
    """A fear that the release names: its place there and in the log (None: nobody searches it in the log)."""

    fear: str
    rank: int
    count: int
    raw_rank: int | None
    raw_count: int


@dataclass(frozen=True, repr=False)
class FearsAgreement(NotPublishable):
    """Agreement of the most searched fears.

    Attributes:
        top: How many of the most searched fears are compared.
        private: Fears in the release.
        raw: Fears in the log.
        overlap: Fears among the top of both.
        overlap_share: Their share of the log's top.
        kendall_tau: Agreement of the order of the fears that both have, from -1 to 1; None for fewer than two.
        ranking: The release's top. Fears that only the log has are counted above and never named.
    """

    top: int
    private: int
    raw: int
    overlap: int
    overlap_share: float | None
    kendall_tau: float | None
    ranking: tuple[Fear, ...]


def keyword_agreement(
    log: Any,
    release: Release,
    topics: Mapping[str, Sequence[str]],
    *,
    gammas: Sequence[float] = GAMMAS,
    alpha: float = WALK_ALPHA,
) -> KeywordAgreement:
    """Compare the keywords for some topics in a release with those in the whole log. The answer must not be published.

    Args:
        log: The true log, or its :func:`raw_click_graph` where many releases are compared with it.
        release: A release of it, with clicks.
        topics: Names of topics, each with its seeds: queries, URLs, or hosts, which stand for all URLs on them. Each
            side starts from those seeds that it knows.
        gammas: The least probability of a keyword.
        alpha: The probability of being lost before a step of the walk.
    """
    if not topics or not all(topics.values()):
        raise UsageError("keywords need topics with seeds", fix="Give a mapping from a name to queries, URLs or hosts")
    levels = [checked_share(gamma, "gamma") for gamma in gammas]
    private = click_graph(release, "there is no graph to walk on")
    raw = log if isinstance(log, ClickGraph) else raw_click_graph(log)
    released, hosts = set(private.queries), (_by_host(private), _by_host(raw))
    sizes: dict[float, list[tuple[int, int, int, int]]] = {gamma: [] for gamma in levels}
    scores = []
    for topic, items in topics.items():
        near, far = (_walk(graph, items, by_host, alpha) for graph, by_host in zip((private, raw), hosts, strict=True))
        for gamma in levels:
            ours, theirs = _at_least(private, near, gamma), _at_least(raw, far, gamma)
            size = (len(ours), len(theirs), len(theirs & released), len(ours & theirs))
            sizes[gamma].append(size)
            scores.append(_score(topic, gamma, *size))
    together = [_score("all", gamma, *np.sum(sizes[gamma], axis=0).tolist()) for gamma in levels]
    return KeywordAgreement(alpha, tuple(scores), tuple(together))


def raw_click_graph(log: Any) -> ClickGraph:
    """Give the click graph of the whole log: an edge weighs the users who clicked. It is as secret as the log."""
    rows = rows_of(log)
    if "url" not in rows.columns:
        raise DataError(
            "the log has no URLs", why="there is no click graph to compare with", fix="Give a log with URLs"
        )
    clicks = rows.filter(rows.url.notnull()).select("user", "query", "url").distinct()
    counted = execute(clicks.group_by("query", "url").agg(count=clicks.count()).order_by("query", "url"))
    return click_graph(Release({"clicks": _without_noise(counted)}, (), {}), "")


def fears_agreement(log: Any, release: Release, *, top: int = 10) -> FearsAgreement:
    """Compare the most searched fears in a release with those in the whole log. The answer must not be published.

    A fear X is searched as ``fear of X`` or ``X phobia``; the counts of both (users per query) are added up.

    Args:
        log: The true log.
        release: A release of it, with counts.
        top: How many of the most searched fears to compare.
    """
    top = checked_limit(top)
    found = find(release, FEARS)
    if any(row.count is None for row in found):
        raise DataError("this release has no counts", why="fears are ranked by them", fix="Release without select-only")
    private = _ranked((row.query, row.count or 0) for row in found)
    raw = _ranked(_raw_fears(rows_of(log)))
    places, raw_counts = {fear: place for place, (fear, _) in enumerate(raw, 1)}, dict(raw)
    shared = [fear for fear, _ in private if fear in places]
    overlap = len({fear for fear, _ in private[:top]} & {fear for fear, _ in raw[:top]})
    counts = dict(private)
    tau = stats.kendalltau([counts[f] for f in shared], [raw_counts[f] for f in shared])[0] if len(shared) > 1 else None
    return FearsAgreement(
        top,
        len(private),
        len(raw),
        overlap,
        _share(overlap, min(top, len(raw))),
        None if tau is None or math.isnan(tau) else float(tau),
        tuple(
            Fear(fear, rank, count, places.get(fear), raw_counts.get(fear, 0))
            for rank, (fear, count) in enumerate(private[:top], 1)
        ),
    )


def _walk(graph: ClickGraph, items: Sequence[str], by_host: Mapping[str, list[int]], alpha: float) -> Any:
    """Give each query's probability of ending at a seed; the seeds themselves are no keywords."""
    queries = {place: 0 for item in items if (place := graph.query(item)) is not None}
    urls = {place: 0 for item in items if (place := graph.url(item)) is not None}
    urls |= {place: 0 for item in items for place in by_host.get(item.strip().lower(), ())}
    probability = absorbing_walk(graph, queries, urls, alpha)[:, 0]
    probability[list(queries)] = 0.0
    return probability


def _at_least(graph: ClickGraph, probability: Any, gamma: float) -> set[str]:
    return {graph.queries[place] for place in np.flatnonzero((probability >= gamma) & (probability > 0)).tolist()}


def _by_host(graph: ClickGraph) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, url in enumerate(graph.urls):
        places.setdefault(_host(url), []).append(place)
    return places


def _host(url: str) -> str:
    try:
        return urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:  # what a log calls a URL need not be one
        return ""


def _score(topic: str, gamma: float, private: int, raw: int, raw_released: int, both: int) -> KeywordScore:
    return KeywordScore(
        topic,
        gamma,
        private,
        raw,
        raw_released,
        both,
        precision=_share(both, private),
        recall=_share(both, raw),
        recall_released=_share(both, raw_released),
        jaccard=_share(both, private + raw - both),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _raw_fears(rows: Any) -> list[tuple[str, int]]:
    """Give the queries that name a fear with the number of users who searched each."""
    # The engine throws out nearly everything; the pattern below decides.
    each = rows.filter(rows["query"].contains("fear of ") | rows["query"].contains(" phobia"))
    each = each.select("user", "query").distinct()
    counted = execute(each.group_by("query").agg(n=each.count())).to_pydict()
    return list(zip(counted["query"], counted["n"], strict=True))


def _ranked(queries: Any) -> list[tuple[str, int]]:
    """Add up the counts of each fear over the ways to search for it, and rank."""
    totals: dict[str, int] = {}
    for query, count in queries:
        named = _FEAR.fullmatch(fold(query))
        if named:
            fear = (named["of"] or named["phobia"]).strip()
            totals[fear] = totals.get(fear, 0) + count
    return sorted(totals.items(), key=lambda one: (-one[1], one[0]))


def _without_noise(counted: pa.Table) -> pa.Table:
    """Give exact counts the columns of a release's table, so that the same code reads both."""
    import pyarrow as pa

    exact = counted["count"].cast(pa.float64())
    nothing = pa.array(np.zeros(counted.num_rows))
    return counted.append_column("stderr", nothing).append_column("low", exact).append_column("high", exact)
