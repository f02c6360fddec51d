"""Find keywords and classify queries by an absorbing random walk on the click graph.

A walker steps with probability proportional to clicks (negative ones are zero) and stops at a seed. Before each step it
is lost with probability alpha, so that far seeds, or busy nodes that belong to everybody, count for little::

    P(q) = (1 - alpha) sum_u w(q, u) / W(q) P(u)
    P(u) = (1 - alpha) sum_q w(q, u) / W(u) P(q)        P(seed) = 1

References:
    A. Fuxman, P. Tsaparas, K. Achan, R. Agrawal, Using the wisdom of the crowds for keyword generation, WWW 2008.
    A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas, Releasing search queries and clicks privately, WWW 2009.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushquery.errors import DataError, UsageError
from hushquery.publish.tables import ClickGraph, Rows, Shown, checked_limit, click_graph, queries_of

if TYPE_CHECKING:
    import os

    from hushquery.release import Release

__all__ = ["Classes", "Classified", "Keyword", "Keywords", "classify", "keywords", "read_labels"]

# Below this the walk takes too many steps to be worth waiting for.
_LEAST_ALPHA = 0.001
_TOLERANCE = 1e-9

_HEADERS = {"item", "query", "url", "seed"}


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
class Keywords(Shown):
    """The keywords, the most probable first, and unknown seeds; a gamma above ``highest`` finds no keywords."""

    keywords: Rows[Keyword]
    unknown: tuple[str, ...] = ()
    highest: float = 0.0


def keywords(
    release: Release, seeds: str | Sequence[str], *, alpha: float = 0.1, gamma: float = 0.5, limit: int = 50
) -> Keywords:
    """Find queries that lead where the seeds (queries or URLs) lead, with a probability of at least ``gamma``.

    The larger ``alpha``, the probability of being lost before a step, the closer to the seeds the keywords stay.

    >>> from hushquery.publish.example import tiny_release
    >>> result = keywords(tiny_release(), "https://football.example.org/leeds")
    >>> [(k.query, round(k.probability, 2)) for k in result.keywords]
    [('leeds united', 0.9), ('leeds united tickets', 0.9)]
    """
    items = [seeds] if isinstance(seeds, str) else list(seeds)
    if not items:
        raise UsageError("keywords need a seed", fix="Give a query or a URL of the topic")
    gamma, limit = checked_share(gamma, "gamma"), checked_limit(limit)
    graph = click_graph(release, "there is no graph to walk on")
    places = {item: (graph.query(item), graph.url(item)) for item in items}
    queries = {query: 0 for query, _ in places.values() if query is not None}
    urls = {url: 0 for _, url in places.values() if url is not None}
    unknown = tuple(item for item, place in places.items() if place == (None, None))
    probability = absorbing_walk(graph, queries, urls, alpha)[:, 0]
    listed = queries_of(release) if "queries" in release.tables else None
    rows = []
    for index in np.flatnonzero((probability >= gamma) & (probability > 0)).tolist():
        name = graph.queries[index]
        place = listed.by_name.get(name) if listed is not None else None
        numbers = listed.numbers(place) if listed is not None and place is not None else (None, None, None)
        share = listed.share(place) if listed is not None and place is not None else None
        if index not in queries:
            rows.append(Keyword(name, float(probability[index]), *numbers, share))
    # Probabilities that differ by less than the walk's tolerance are the same; the count or share decides.
    rows.sort(key=lambda row: (-round(row.probability, 6), -(row.count or row.share or 0), row.query))
    others = np.delete(probability, list(queries))
    return Keywords(Rows(rows[:limit]), unknown, float(np.max(others, initial=0.0)))


@dataclass(frozen=True)
class Classified:
    """A query and its likeliest class, a guess if the ``margin`` to the next is near 0; ``given`` if it was a label."""

    query: str
    label: str
    probability: float
    margin: float
    given: bool


@dataclass(frozen=True)
class Classes(Shown):
    """The classified queries, the surest first, and the labelled items that the release does not know."""

    queries: Rows[Classified]
    unknown: tuple[str, ...] = ()


def classify(
    release: Release, labels: Mapping[str, str], *, alpha: float = 0.1, least: float = 0.0, limit: int | None = None
) -> Classes:
    """Classify each query by the labelled queries or URLs that a random walk from it reaches most often.

    A seed is fixed at 1 for its own class and at 0 for all others. Queries from which no walk reaches a seed, or none
    with probability ``least``, are left out. ``alpha`` is as in :func:`keywords`.

    >>> from hushquery.publish.example import tiny_release
    >>> result = classify(tiny_release(), {"weather": "sky", "leeds united": "sport"})
    >>> [(c.query, c.label) for c in result.queries if not c.given]
    [('leeds united tickets', 'sport'), ('weather london', 'sky'), ('weather leeds', 'sky'), ('waether leeds', 'sky')]
    """
    if not labels:
        raise UsageError("there are no labels", fix="Give the class of at least one query or URL")
    least = checked_share(least, "least")
    names = sorted(set(labels.values()))
    graph = click_graph(release, "there is no graph to walk on")
    queries: dict[int, int] = {}
    urls: dict[int, int] = {}
    unknown = []
    for item, label in labels.items():
        query, url = graph.query(item), graph.url(item)
        for seeds, place in ((queries, query), (urls, url)):
            if place is not None and seeds.setdefault(place, names.index(label)) != names.index(label):
                raise UsageError(f"{item!r} has two labels", fix="Give every query and URL one label")
        if query is None and url is None:
            unknown.append(item)
    reached = absorbing_walk(graph, queries, urls, alpha, classes=len(names))
    best = np.argmax(reached, axis=1).tolist()
    ordered = np.sort(reached, axis=1)
    second = ordered[:, -2] if len(names) > 1 else np.zeros(len(ordered))
    rows = [
        Classified(graph.queries[index], names[best[index]], highest, highest - float(second[index]), index in queries)
        for index, highest in enumerate(ordered[:, -1].tolist())
        if highest > 0 and highest >= least
    ]
    rows.sort(key=lambda row: (-round(row.margin, 6), -round(row.probability, 6), row.query))
    return Classes(Rows(rows if limit is None else rows[: checked_limit(limit)]), tuple(unknown))


def read_labels(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read an item and its label per row of a CSV or ``.tsv`` file; a first row such as ``item,label`` is a header."""
    file = Path(path)
    where = f"the label file {file.name}"
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{where} can't be read", why=error.strerror or "", fix="Give a readable file") from None
    except UnicodeDecodeError:
        raise DataError(f"{where} is not UTF-8", fix="Save it as UTF-8 text") from None
    labels: dict[str, str] = {}
    reader = csv.reader(text.splitlines(keepends=True), delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) != 2 or not all(cells):
                fix = 'Write two columns, as in: weather leeds,sky (quote an item that has a comma: "a, b",sky)'
                raise DataError(f"line {reader.line_num} of {where} is not an item and a label", fix=fix)
            if not labels and cells[0].lower() in _HEADERS and cells[1].lower() == "label":
                continue
            if labels.setdefault(cells[0], cells[1]) != cells[1]:
                what = f"line {reader.line_num} of {where} gives an item a second label"
                raise DataError(what, fix="Give every item one label")
    except csv.Error as error:
        raise DataError(f"{where} is not CSV", why=str(error), fix="Write one item and one label per line") from None
    if not labels:
        raise DataError(f"{where} has no labels", fix="Write one item and one label per line")
    return labels


def absorbing_walk(
    graph: ClickGraph, queries: Mapping[int, int], urls: Mapping[int, int], alpha: float, *, classes: int = 1
) -> npt.NDArray[np.float64]:
    """Return for every query (row) the probability that a walk from it ends at a seed of each class (column).

    Each round shrinks any error by (1 - alpha)^2, until none can exceed 1e-9; the mappings number the seeds' classes.
    """
    alpha = checked_share(alpha, "alpha")
    if not _LEAST_ALPHA <= alpha < 1:
        raise UsageError("alpha is too close to 0 or 1", fix=f"Use a number from {_LEAST_ALPHA} to 0.999")
    to_urls = _steps(graph.weights) * (1 - alpha)
    to_queries = _steps(graph.weights.T.tocsr()) * (1 - alpha)
    shrinks = (1 - alpha) ** 2
    query_seeds, fixed_queries = _fixed(queries, classes)
    url_seeds, fixed_urls = _fixed(urls, classes)
    at_queries: npt.NDArray[np.float64] = np.zeros((len(graph.queries), classes))
    at_queries[query_seeds] = fixed_queries
    while True:
        at_urls = to_queries @ at_queries
        at_urls[url_seeds] = fixed_urls
        new: npt.NDArray[np.float64] = to_urls @ at_urls
        new[query_seeds] = fixed_queries
        change = float(np.max(np.abs(new - at_queries), initial=0.0))
        at_queries = new
        if change * shrinks <= _TOLERANCE * (1 - shrinks):
            return at_queries


def checked_share(value: float, name: str) -> float:
    """Refuse what is no number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 1:
        raise UsageError(f"{name} must be a number from 0 to 1", fix=f"Use a value such as {name}=0.1")
    return float(value)


def _steps(weights: sparse.csr_array) -> sparse.csr_array:
    """Turn weights into probabilities, row by row; a row without weight stays empty: the walk is lost there."""
    totals = np.asarray(weights.sum(axis=1)).ravel()
    scale = np.divide(1.0, totals, out=np.zeros_like(totals, dtype=np.float64), where=totals > 0)
    return sparse.csr_array(sparse.diags_array(scale) @ weights)


def _fixed(seeds: Mapping[int, int], classes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    places = np.fromiter(seeds, dtype=np.int64, count=len(seeds))
    values = np.zeros((len(seeds), classes))
    values[np.arange(len(seeds)), np.fromiter(seeds.values(), dtype=np.int64, count=len(seeds))] = 1.0
    return places, values
