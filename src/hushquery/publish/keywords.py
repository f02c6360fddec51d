"""Keywords: queries that lead where the seeds lead, found by an absorbing random walk on the click graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushquery.errors import UsageError
from hushquery.publish.keywords import ALPHA, absorbing_walk, checked_share, find_seeds
from hushquery.publish.tables import checked_limit, click_graph, queries_of

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["GAMMA", "Keyword", "Keywords", "keywords"]

#: The least probability of a keyword, where nobody says otherwise.
GAMMA = 0.5


@dataclass(frozen=True)
class Keyword:
    """A query, the probability that a walk from it ends at a seed, and its noisy count or share (None if not there)."""

    query: str
    probability: float
    count: int | None
    low: float | None
    high: float | None
    share: float | None = None


@dataclass(frozen=True)
class Keywords:
    """The keywords, the most probable first, and the seeds that the release does not know.

    ``highest`` is the largest probability of any query but the seeds: with a gamma above it there are no keywords.
    """

    keywords: tuple[Keyword, ...]
    unknown: tuple[str, ...] = ()
    highest: float = 0.0


def keywords(
    release: Release, seeds: str | Sequence[str], *, alpha: float = ALPHA, gamma: float = GAMMA, limit: int = 50
) -> Keywords:
    """Find keywords for a topic given by some of its queries or URLs.

    The walk and its references are in :mod:`hushquery.publish.keywords`. Negative clicks are taken as zero.

    Args:
        release: A release with clicks.
        seeds: One query or URL, or several. An item that is both seeds both.
        alpha: The probability of being lost before a step; the larger, the closer to the seeds the keywords stay.
        gamma: The least probability of a keyword.
        limit: How many to give at most.

    >>> from hushquery.publish.example import tiny_release
    >>> found = keywords(tiny_release(), "https://football.example.org/leeds")
    >>> [(k.query, round(k.probability, 2)) for k in found.keywords]
    [('leeds united', 0.9), ('leeds united tickets', 0.9)]
    """
    items = [seeds] if isinstance(seeds, str) else list(seeds)
    if not items:
        raise UsageError("keywords need a seed", fix="Give a query or a URL of the topic")
    gamma, limit = checked_share(gamma, "gamma"), checked_limit(limit)
    graph = click_graph(release, "there is no graph to walk on")
    found = {item: find_seeds(graph, item) for item in items}
    queries = {query: 0 for query, _ in found.values() if query is not None}
    urls = {url: 0 for _, url in found.values() if url is not None}
    unknown = tuple(item for item, places in found.items() if places == (None, None))
    probability = absorbing_walk(graph, queries, urls, alpha)[:, 0]
    listed = queries_of(release) if "queries" in release.tables else None
    kept = [
        int(index) for index in np.flatnonzero((probability >= gamma) & (probability > 0)) if int(index) not in queries
    ]
    rows = []
    for index in kept:
        name = graph.queries[index]
        place = listed.by_name.get(name) if listed is not None else None
        numbers = listed.numbers(place) if listed is not None and place is not None else (None, None, None)
        share = listed.share(place) if listed is not None and place is not None else None
        rows.append(Keyword(name, float(probability[index]), *numbers, share))
    # Probabilities that differ by less than the walk's tolerance are the same; the count or share decides.
    rows.sort(key=lambda row: (-round(row.probability, 6), -(row.count or row.share or 0), row.query))
    others = np.delete(probability, list(queries))
    return Keywords(tuple(rows[:limit]), unknown, float(np.max(others, initial=0.0)))
