"""Classes of queries from a few labelled ones, by the same walk that finds keywords."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushquery.errors import DataError, UsageError
from hushquery.publish.keywords import ALPHA, absorbing_walk, checked_share, find_seeds
from hushquery.publish.tables import checked_limit, click_graph

if TYPE_CHECKING:
    import os

    from hushquery.release import Release

__all__ = ["Classes", "Classified", "classify", "read_labels"]

_HEADERS = {"item", "query", "url", "seed"}


@dataclass(frozen=True)
class Classified:
    """A query and its class.

    Attributes:
        query: The query.
        label: The class in which a walk from the query ends most often.
        probability: How often it does.
        margin: How much more often than in the next class; near 0 the class is a guess.
        given: Whether the label was given, not found.
    """

    query: str
    label: str
    probability: float
    margin: float
    given: bool


@dataclass(frozen=True)
class Classes:
    """The classified queries, the surest first, and the labelled items that the release does not know."""

    queries: tuple[Classified, ...]
    unknown: tuple[str, ...] = ()


def classify(
    release: Release,
    labels: Mapping[str, str],
    *,
    alpha: float = ALPHA,
    least: float = 0.0,
    limit: int | None = None,
) -> Classes:
    """Give each query the class whose labelled seeds a random walk from it reaches most often.

    A seed is fixed at 1 for its own class and at 0 for all others; :mod:`hushquery.publish.keywords` has the equations.
    Queries from which no walk reaches a seed are left out: nothing is known of them.

    Args:
        release: A release with clicks.
        labels: The class of some queries or URLs.
        alpha: The probability of being lost before a step.
        least: The least probability that makes a class.
        limit: How many to give at most; all by default.

    >>> from hushquery.publish.example import tiny_release
    >>> found = classify(tiny_release(), {"weather": "sky", "leeds united": "sport"})
    >>> [(c.query, c.label) for c in found.queries if not c.given]
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
        query, url = find_seeds(graph, item)
        for seeds, place in ((queries, query), (urls, url)):
            if place is not None and seeds.setdefault(place, names.index(label)) != names.index(label):
                raise UsageError(f"{item!r} has two labels", fix="Give every query and URL one label")
        if query is None and url is None:
            unknown.append(item)
    reached = absorbing_walk(graph, queries, urls, alpha, classes=len(names))
    best = np.argmax(reached, axis=1)
    ordered = np.sort(reached, axis=1)
    second = ordered[:, -2] if len(names) > 1 else np.zeros(len(ordered))
    rows = [
        Classified(
            graph.queries[index],
            names[int(best[index])],
            float(ordered[index, -1]),
            float(ordered[index, -1] - second[index]),
            index in queries,
        )
        for index in range(len(ordered))
        if ordered[index, -1] > 0 and ordered[index, -1] >= least
    ]
    rows.sort(key=lambda row: (-round(row.margin, 6), -round(row.probability, 6), row.query))
    return Classes(tuple(rows if limit is None else rows[: checked_limit(limit)]), tuple(unknown))


def read_labels(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read labels from a CSV file, or a tab separated one by its ending ``.tsv``: an item and its label per row.

    A first row that says ``item,label`` (or ``query,label``, ``url,label``) is taken as a header.
    """
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
                raise DataError(
                    f"line {reader.line_num} of {where} is not an item and a label",
                    fix='Write two columns, as in: weather leeds,sky (quote an item that has a comma: "a, b",sky)',
                )
            if not labels and cells[0].lower() in _HEADERS and cells[1].lower() == "label":
                continue
            if labels.setdefault(cells[0], cells[1]) != cells[1]:
                raise DataError(
                    f"line {reader.line_num} of {where} gives an item a second label", fix="Give every item one label"
                )
    except csv.Error as error:
        raise DataError(f"{where} is not CSV", why=str(error), fix="Write one item and one label per line") from None
    if not labels:
        raise DataError(f"{where} has no labels", fix="Write one item and one label per line")
    return labels
