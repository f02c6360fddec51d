"""``hushquery search, find, suggest, similar, correct, keywords, classify``: look up a text in a release."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from hushquery.cli.common import JsonFlag, argument, emit, option, sizes_in_words
from hushquery.cli.listing import (
    Folder,
    Limit,
    Words,
    amount,
    as_rows,
    joined,
    listing,
    measured,
    measures,
    number,
    open_release,
    rare_missing,
    take_note,
)

if TYPE_CHECKING:
    from hushquery.publish.keywords import Keywords

Alpha = Annotated[
    float, option("A", "The chance of losing the way before each step; larger stays closer to the seeds.")
]
_NEAR = "`hushquery search` finds queries near to a text"


def search(folder: Folder, text: Words, limit: Limit = 10, as_json: JsonFlag = False) -> None:
    r"""Search a release: the pages people clicked on, and queries near to the text. Mistakes are forgiven.

        hushquery search release/ waether leeds

    Every query that holds a word of the text is found; what is beyond the
    limit is counted. Queries are ordered by their match, whose whole number
    says how they match:

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

    typed, release = joined(text), open_release(folder)
    hits = SearchIndex(release).search(typed, limit)
    take_note(hits.notes, as_json)
    head = "clicks" if not hits.urls or hits.urls[0].share is None else "share"
    pages = [(h.url, amount(h.clicks, h.share), f"{h.score:.1f}", h.queries[0], h.why) for h in hits.urls]
    queries = [(h.query, *measured(h), f"{h.score:.2f}", h.why) for h in hits.queries]
    right = (*measures(hits.queries), "match")
    parts = [
        listing(("page", head, "score", "from the query", "which"), pages, (head, "score")),
        listing(("query", *right, "which"), queries, right),
    ]
    if hits.more_urls or hits.more_queries:
        more = (("pages", hits.more_urls), ("queries", hits.more_queries))
        beyond = " and ".join(sizes_in_words({name: count}) for name, count in more if count)
        parts.append(f"{beyond} more: --limit {limit + max(hits.more_urls, hits.more_queries)}")
    data = {
        "text": typed,
        "urls": as_rows(hits.urls),
        "queries": as_rows(hits.queries),
        "more_urls": hits.more_urls,
        "more_queries": hits.more_queries,
        "notes": list(hits.notes),
    }
    nothing = "; ".join(filter(None, ("nothing found: no released query is near to this text", rare_missing(release))))
    emit(data, "\n\n".join(filter(None, parts)) or nothing, as_json)


def find(
    folder: Folder,
    pattern: Annotated[list[str], argument("PATTERN", "* is any text, ? any one character.")],
    limit: Limit = 50,
    as_json: JsonFlag = False,
) -> None:
    r"""List the queries that fit a pattern, or one of several, ranked by count or share.

    hushquery find release/ "fear of *" "* phobia"
    """
    from hushquery import publish

    patterns, release = [joined([item]) for item in pattern], open_release(folder)
    hits = publish.find(release, patterns, limit)
    rows = [(number(row.rank), row.query, *measured(row), _ranks(row.best_rank, row.worst_rank)) for row in hits]
    right = (*measures(hits), "possible ranks")
    wider = next((f"*{item}*" for item in patterns if not {"*", "?"} & set(item)), "")
    if wider:
        take_note([f"without a * only this very query is found; {wider!r} finds all that hold it"], as_json)
    reasons = ("nothing found: no released query fits", rare_missing(release), "put the pattern in quotes")
    text = listing(("rank", "query", *right), rows, ("rank", *right)) or "; ".join(filter(None, reasons))
    emit({"patterns": patterns, "queries": as_rows(hits)}, text, as_json)


def suggest(folder: Folder, text: Words, limit: Limit = 10, as_json: JsonFlag = False) -> None:
    r"""Suggest what to search for after a query: what people went on to, then what shares clicks with it.

    hushquery suggest release/ weather leeds
    """
    from hushquery import publish

    typed, release = joined(text), open_release(folder)
    hits = publish.suggest(release, typed, limit)
    notes = [
        f"this release has no {name}, so suggestions come from {other} alone"
        for name, other in (("reformulations", "clicks"), ("clicks", "reformulations"))
        if name not in release.tables
    ]
    take_note(notes, as_json)
    rows = [(row.query, number(row.count), "" if row.cosine is None else f"{row.cosine:.2f}", row.why) for row in hits]
    shown = listing(("query", "went on to it", "alike", "why"), rows, ("went on to it", "alike"))
    nothing = f"nothing found: the release knows no query like this, or nothing that follows it. {_NEAR}"
    emit({"query": typed, "suggestions": as_rows(hits), "notes": notes}, shown or nothing, as_json)


def similar(folder: Folder, text: Words, limit: Limit = 10, as_json: JsonFlag = False) -> None:
    r"""Find queries whose searchers clicked on the same pages.

    hushquery similar release/ weather leeds
    """
    from hushquery import publish

    typed = joined(text)
    hits = publish.similar(open_release(folder), typed, limit)
    rows = [(row.query, f"{row.cosine:.2f}", ", ".join(row.shared)) for row in hits]
    shown = listing(("query", "alike", "shared pages"), rows, ("alike",))
    nothing = f"nothing found: the release knows no query like this, or no click that it shares. {_NEAR}"
    emit({"query": typed, "similar": as_rows(hits)}, shown or nothing, as_json)


def correct(folder: Folder, text: Words, as_json: JsonFlag = False) -> None:
    r"""Correct the spelling of a text by what the crowd searches for.

    hushquery correct release/ waether leeds
    """
    from hushquery import publish

    typed = joined(text)
    correction = publish.correct(open_release(folder), typed)
    shown = "nothing to correct: no released query is more probable than this text"
    if correction:
        shown = listing(("query", "because"), [(correction.query, "; ".join(correction.reasons))])
    emit({"text": typed, "correction": asdict(correction) if correction else None}, shown, as_json)


def keywords(
    folder: Folder,
    seed: Annotated[list[str], option("QUERY_OR_URL", "A query or page of the topic; may be repeated.")],
    alpha: Alpha = 0.1,
    gamma: Annotated[float, option("G", "The least probability of a keyword, 0 to 1.")] = 0.5,
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
    topic = publish.keywords(open_release(folder), seeds, alpha=alpha, gamma=gamma, limit=limit)
    notes = [f"the release has no query or page {item!r}" for item in topic.unknown]
    take_note(notes, as_json)
    right = ("probability", *measures(topic.keywords))
    shown = listing(("query", *right), [(k.query, f"{k.probability:.3f}", *measured(k)) for k in topic.keywords], right)
    data = {"seeds": seeds, "alpha": alpha, "gamma": gamma, "keywords": as_rows(topic.keywords), "notes": notes}
    emit(data | {"highest": topic.highest}, shown or _no_keywords(folder, seeds, gamma, topic), as_json)


def _no_keywords(folder: str, seeds: list[str], gamma: float, topic: Keywords) -> str:
    """Explain why there are no keywords, and what would give some."""
    if len(topic.unknown) == len(seeds):
        return (
            "nothing found: the release knows none of the seeds. `hushquery search` finds queries and pages near to one"
        )
    why = f"no other query reaches the seeds with probability {gamma:g}"
    if topic.highest > 0:
        at = math.floor(1000 * topic.highest) / 1000 or topic.highest
        why += f"; the nearest does with {topic.highest:.3g}: --gamma {at:g} finds it"
    else:
        why += "; none shares a clicked page with them"
    query = next((seed for seed in seeds if seed not in topic.unknown and "/" not in seed), "")
    if query:
        why += (
            ".\nA page of the topic is a better seed than a query. The pages clicked after this one: "
            f"hushquery show {shlex.quote(folder)} --query {shlex.quote(query)}"
        )
    return f"nothing found: {why}"


def classify(
    folder: Folder,
    labels: Annotated[str, option("FILE", "A CSV or .tsv file with a query or page and its label per row.")],
    alpha: Alpha = 0.1,
    least: Annotated[float, option("P", "The least probability that makes a class, 0 to 1.")] = 0.0,
    limit: Annotated[int | None, option("N", "How many rows to show at most; all by default.", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Put queries into classes, from a file that gives the class of a few.

    hushquery classify release/ --labels topics.csv
    """
    from hushquery import publish
    from hushquery.publish.keywords import read_labels

    release = open_release(folder)
    classes = publish.classify(release, read_labels(labels), alpha=alpha, least=least, limit=limit)
    notes = [f"the release has no query or page {item!r}" for item in classes.unknown]
    take_note(notes, as_json)
    rows = [
        (row.query, row.label, f"{row.probability:.3f}", f"{row.margin:.3f}", "given" if row.given else "")
        for row in classes.queries
    ]
    shown = listing(("query", "class", "probability", "margin", ""), rows, ("probability", "margin"))
    nothing = "nothing found: no query shares clicks with the labelled ones"
    emit({"queries": as_rows(classes.queries), "notes": notes}, shown or nothing, as_json)


def _ranks(best: int | None, worst: int | None) -> str:
    return "" if best is None or worst is None else f"{best}" if best == worst else f"{best} to {worst}"
