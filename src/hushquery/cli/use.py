"""``hushquery search, suggest, similar, correct, keywords, classify, find``: what a release is good for."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery.cli.common import JsonFlag, emit
from hushquery.cli.listing import (
    Folder,
    Limit,
    Words,
    as_rows,
    joined,
    listing,
    number,
    open_release,
    rare_missing,
    take_note,
)
from hushquery.cli.measure import amount, between, measured_rows

if TYPE_CHECKING:
    from hushquery.publish.keywords import Keywords

__all__ = ["classify", "correct", "find", "keywords", "search", "similar", "suggest"]

Alpha = Annotated[
    float,
    typer.Option(metavar="A", help="The chance of losing the way before each step; larger stays closer to the seeds."),
]

_NEAR = "`hushquery search` finds queries near to a text"


def search(folder: Folder, text: Words, limit: Limit = 10, as_json: JsonFlag = False) -> None:
    r"""Search a release: the pages people clicked on, and queries near to the text. Mistakes are forgiven.

        hushquery search release/ waether leeds

    Every query that holds a word of the text is found; what is beyond the
    limit is counted. The score orders them. For a query, the whole number says
    how it matches:

        6  it is the text
        5  it has all words of the text
        4  it has all words, the last one unfinished
        3  it has all words, or is the text, with typing mistakes
        2  it has some of the words
        1  it has some of the words, with typing mistakes

    and the fraction grows with its count and with how much of the text it has.
    The score of a page adds up the clicks on it after the queries that match
    at least half as well as the best; the better the match, the more they weigh.
    """
    from hushquery.publish.search import SearchIndex

    typed = joined(text)
    release = open_release(folder)
    found = SearchIndex(release).search(typed, limit)
    take_note(found.notes, as_json=as_json)
    parts = []
    if found.urls:
        rows = [(h.url, amount(h.clicks, h.share), f"{h.score:.1f}", h.queries[0], h.why) for h in found.urls]
        head = "clicks" if found.urls[0].share is None else "share"
        parts.append(listing(("page", head, "score", "from the query", "which"), rows, (head, "score")))
    if found.queries:
        rows = [
            (h.query, amount(h.count, h.share), between(h.low, h.high, h.share), f"{h.score:.2f}", h.why)
            for h in found.queries
        ]
        right = (_head(found.queries[0].share), "interval", "score")
        parts.append(listing(("query", *right, "which"), rows, right))
    if found.more_urls or found.more_queries:
        more = [_many(found.more_urls, "page", "pages"), _many(found.more_queries, "query", "queries")]
        parts.append(
            f"{' and '.join(filter(None, more))} more: --limit {limit + max(found.more_urls, found.more_queries)}"
        )
    data = {
        "text": typed,
        "urls": measured_rows(found.urls),
        "queries": measured_rows(found.queries),
        "more_urls": found.more_urls,
        "more_queries": found.more_queries,
        "notes": list(found.notes),
    }
    nothing = "; ".join(filter(None, ("nothing found: no released query is near to this text", rare_missing(release))))
    emit(data, "\n\n".join(parts) or nothing, as_json=as_json)


def suggest(folder: Folder, text: Words, limit: Limit = 10, as_json: JsonFlag = False) -> None:
    r"""Suggest what to search for after a query: what people went on to, then what shares clicks with it.

    hushquery suggest release/ weather leeds
    """
    from hushquery import publish

    typed = joined(text)
    release = open_release(folder)
    found = publish.suggest(release, typed, limit)
    notes = [
        f"this release has no {name}, so suggestions come from {other} alone"
        for name, other in (("reformulations", "clicks"), ("clicks", "reformulations"))
        if name not in release.tables
    ]
    take_note(notes, as_json=as_json)
    rows = [(row.query, number(row.count), "" if row.cosine is None else f"{row.cosine:.2f}", row.why) for row in found]
    text_ = listing(("query", "went on to it", "alike", "why"), rows, ("went on to it", "alike")) if rows else ""
    nothing = f"nothing found: the release knows no query like this, or nothing that follows it. {_NEAR}"
    emit({"query": typed, "suggestions": as_rows(found), "notes": notes}, text_ or nothing, as_json=as_json)


def similar(folder: Folder, text: Words, limit: Limit = 10, as_json: JsonFlag = False) -> None:
    r"""Find queries whose searchers clicked on the same pages.

    hushquery similar release/ weather leeds
    """
    from hushquery import publish

    typed = joined(text)
    found = publish.similar(open_release(folder), typed, limit)
    rows = [(row.query, f"{row.cosine:.2f}", ", ".join(row.shared)) for row in found]
    shown = listing(("query", "alike", "shared pages"), rows, ("alike",)) if rows else ""
    nothing = f"nothing found: the release knows no query like this, or no click that it shares. {_NEAR}"
    emit({"query": typed, "similar": as_rows(found)}, shown or nothing, as_json=as_json)


def correct(folder: Folder, text: Words, as_json: JsonFlag = False) -> None:
    r"""Correct the spelling of a text by what the crowd searches for.

    hushquery correct release/ waether leeds
    """
    from hushquery import publish

    typed = joined(text)
    found = publish.correct(open_release(folder), typed)
    shown = listing(("query", "because"), [(found.query, "; ".join(found.reasons))]) if found else ""
    nothing = "nothing to correct: no released query is more probable than this text"
    emit({"text": typed, "correction": asdict(found) if found else None}, shown or nothing, as_json=as_json)


def keywords(
    folder: Folder,
    seed: Annotated[
        list[str], typer.Option("--seed", metavar="QUERY_OR_URL", help="A query or page of the topic; may be repeated.")
    ],
    alpha: Alpha = 0.1,
    gamma: Annotated[float, typer.Option(metavar="G", help="The least probability of a keyword, 0 to 1.")] = 0.5,
    limit: Limit = 50,
    as_json: JsonFlag = False,
) -> None:
    r"""Find keywords for a topic: queries from which a random walk over clicks ends at the seeds.

        hushquery keywords release/ --seed https://weather.example.org/ --gamma 0.7

    Pages are better seeds than queries: a walk reaches a page in one step, and
    another query only among all that share its pages. The pages of a query:

        hushquery show release/ --query weather
    """
    from hushquery import publish

    seeds = [joined([item]) for item in seed]
    found = publish.keywords(open_release(folder), seeds, alpha=alpha, gamma=gamma, limit=limit)
    notes = [f"the release has no query or page {item!r}" for item in found.unknown]
    take_note(notes, as_json=as_json)
    rows = [
        (k.query, f"{k.probability:.3f}", amount(k.count, k.share), between(k.low, k.high, k.share))
        for k in found.keywords
    ]
    right = ("probability", _head(found.keywords[0].share if found.keywords else None), "interval")
    shown = listing(("query", *right), rows, right) if rows else ""
    nothing = _no_keywords(folder, seeds, gamma, found)
    data = {"seeds": seeds, "alpha": alpha, "gamma": gamma, "keywords": measured_rows(found.keywords), "notes": notes}
    data["highest"] = found.highest
    emit(data, shown or nothing, as_json=as_json)


def classify(
    folder: Folder,
    labels: Annotated[
        str, typer.Option(metavar="FILE", help="A CSV or .tsv file with a query or page and its label per row.")
    ],
    alpha: Alpha = 0.1,
    least: Annotated[float, typer.Option(metavar="P", help="The least probability that makes a class, 0 to 1.")] = 0.0,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many rows to show at most; all by default.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Put queries into classes, from a file that gives the class of a few.

    hushquery classify release/ --labels topics.csv
    """
    from hushquery import publish
    from hushquery.publish.keywords import read_labels

    release = open_release(folder)
    found = publish.classify(release, read_labels(labels), alpha=alpha, least=least, limit=limit)
    notes = [f"the release has no query or page {item!r}" for item in found.unknown]
    take_note(notes, as_json=as_json)
    rows = [
        (row.query, row.label, f"{row.probability:.3f}", f"{row.margin:.3f}", "given" if row.given else "")
        for row in found.queries
    ]
    shown = listing(("query", "class", "probability", "margin", ""), rows, ("probability", "margin")) if rows else ""
    nothing = "nothing found: no query shares clicks with the labelled ones"
    emit({"queries": as_rows(found.queries), "notes": notes}, shown or nothing, as_json=as_json)


def find(
    folder: Folder,
    pattern: Annotated[list[str], typer.Argument(metavar="PATTERN", help="* is any text, ? any one character.")],
    limit: Limit = 50,
    as_json: JsonFlag = False,
) -> None:
    r"""List the queries that fit a pattern, or one of several, ranked by count or share.

    hushquery find release/ "fear of *" "* phobia"
    """
    from hushquery import publish

    patterns = [joined([item]) for item in pattern]
    release = open_release(folder)
    found = publish.find(release, patterns, limit)
    rows = [
        (
            number(row.rank),
            row.query,
            amount(row.count, row.share),
            between(row.low, row.high, row.share),
            _ranks(row.best_rank, row.worst_rank),
        )
        for row in found
    ]
    measure = _head(found[0].share if found else None)
    head = ("rank", "query", measure, "interval", "possible ranks")
    shown = listing(head, rows, ("rank", measure, "interval", "possible ranks")) if rows else ""
    wider = next((f"*{item}*" for item in patterns if not {"*", "?"} & set(item)), "")
    if wider:
        take_note([f"without a * only this very query is found; {wider!r} finds all that hold it"], as_json=as_json)
    reasons = filter(
        None, ("nothing found: no released query fits", rare_missing(release), "put the pattern in quotes")
    )
    nothing = "; ".join(reasons)
    emit({"patterns": patterns, "queries": measured_rows(found)}, shown or nothing, as_json=as_json)


def _no_keywords(folder: str, seeds: list[str], gamma: float, found: Keywords) -> str:
    """Say why there are no keywords, and what would give some."""
    if len(found.unknown) == len(seeds):
        return (
            "nothing found: the release knows none of the seeds. `hushquery search` finds queries and pages near to one"
        )
    why = f"no other query reaches the seeds with probability {gamma:g}"
    if found.highest > 0:
        at = math.floor(1000 * found.highest) / 1000 or found.highest
        why += f"; the nearest does with {found.highest:.3g}: --gamma {at:g} finds it"
    else:
        why += "; none shares a clicked page with them"
    query = next((seed for seed in seeds if seed not in found.unknown and "/" not in seed), "")
    if query:
        why += (
            ".\nA page of the topic is a better seed than a query. The pages clicked after this one: "
            f"hushquery show {shlex.quote(folder)} --query {shlex.quote(query)}"
        )
    return f"nothing found: {why}"


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}" if count else ""


def _head(share: float | None) -> str:
    return "count" if share is None else "share"


def _ranks(best: int | None, worst: int | None) -> str:
    return "" if best is None or worst is None else f"{best}" if best == worst else f"{best} to {worst}"
