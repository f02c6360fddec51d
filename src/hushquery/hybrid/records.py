"""Records: from the log of the opt-in users to at most m_O distinct (query, url) records of each, inside the engine.

A search without a click is the record (query, ""). What no client could ever report is no record: a text that is longer
than a domain holds, or the wildcard's own name. Which records of a user count is decided from that user's rows
alone. The number of users counts everybody in the log, those without any usable record too: they stand for the
wildcard, and when one user's data is exchanged for other data the number stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hushquery.core.rounding import Number, exact
from hushquery.curator.bound import Bound
from hushquery.engine import execute, md5
from hushquery.errors import DataError, UsageError
from hushquery.log.read import Log
from hushquery.noise.bits import Bits
from hushquery.task.domain import LONGEST, WILDCARD

__all__ = ["NO_CLICK", "RECORD", "Parts", "fresh_key", "number_of_users", "records_of", "split_users"]

#: The columns of a record.
RECORD = ["query", "url"]
#: The URL of a search that led to no click.
NO_CLICK = ""

# Users are counted by so many hexadecimal digits of their digest, to find where to split them.
_BORDER_DIGITS = 3


def fresh_key(bits: Bits) -> str:
    """Draw the key of a digest; choices by it are new for each head list, and privacy does not rest on its secrecy."""
    return "".join(f"{word:016x}" for word in bits.words(2).tolist())


def records_of(log: Log, bound: Bound, most: int, part: Any = None) -> Any:
    """Give each user's distinct records, each once and at most ``most`` of them, as rows of (user, query, url).

    Args:
        log: The secret log of the opt-in users.
        bound: Which records of a user are kept.
        most: m_O, the most distinct records one user may have.
        part: A table with a column ``user``; only these users' records are given.

    >>> from hushquery.log import read_log
    >>> log = read_log({"user": ["ann"] * 3, "query": ["leeds"] * 3, "url": [None, "a.example", "a.example"]})
    >>> sorted(records_of(log, Bound("random"), 2).url.to_list())
    ['', 'a.example']
    """
    if type(most) is not int or most < 1:
        raise UsageError("the number of records per user must be a whole number of at least 1", fix="Give, say, 1")
    rows = record_rows(log)
    return bound.rows(rows if part is None else rows.semi_join(part, "user"), RECORD, most)


def record_rows(log: Log) -> Any:
    """Give the rows that a client's domain can hold, with a URL on each: "" where the search led to no click."""
    import ibis

    table = log.table
    rows = table.mutate(url=table.url.fill_null(NO_CLICK) if "url" in table.columns else ibis.literal(NO_CLICK))
    query, url = rows["query"], rows.url
    return rows.filter(
        query.length().between(1, LONGEST) & (url.length() <= LONGEST) & (query != WILDCARD) & (url != WILDCARD)
    )


def number_of_users(log: Log) -> int:
    """Count every user of a log, those whose queries were all left out too.

    Constant under replace-one, where it may be published; secret under add-remove.
    """
    return int(execute(log.rows.aggregate(users=log.rows.user.nunique()))["users"][0].as_py())


@dataclass(frozen=True)
class Parts:
    """The opt-in users in two disjoint parts: S finds the head list, T measures it.

    Args:
        finders: The users of S, as a table of the engine with the column ``user``.
        measurers: The users of T.
        finding: ``|S|``, public under replace-one.
        measuring: ``|T|``, public under replace-one.
    """

    finders: Any
    measurers: Any
    finding: int
    measuring: int

    def __repr__(self) -> str:
        return f"Parts({self.finding} finders, {self.measuring} measurers; who is secret)"


def split_users(log: Log, share: Number, key: str) -> Parts:
    """Split the users of a log, ``|S| = f_O |O|`` rounded to the nearest whole number, by a keyed digest of their ids.

    Only for replace-one. The exact size makes a user's part depend on the other users' ids, though never on anybody's
    records: under add-remove a user who arrives would push another from S to T and change both. What replace-one
    exchanges is a user's data; the ids stay.

    Args:
        log: The secret log of the opt-in users.
        share: f_O, above 0 and below 1.
        key: The key of the digest.
    """
    import ibis

    part = exact(share, "the share of users who find the head list")
    if not 0 < part < 1:
        raise UsageError("the share of users who find the head list must be above 0 and below 1", fix="Give, say, 0.95")
    users = log.rows.select("user").distinct()
    users = users.mutate(order=md5(ibis.literal(key) + "|" + users.user.cast("string")))
    # Everybody's place in one order would take one worker to sort everybody: the groups tell where the border is.
    group = users["order"].substr(0, _BORDER_DIGITS)
    sizes = dict(zip(*execute(users.group_by(group=group).agg(n=users.count())).to_pydict().values(), strict=True))
    total = sum(sizes.values())
    finding = (total * part + Fraction(1, 2)).__floor__()
    if not 0 < finding < total:
        raise DataError(
            "one of the two parts of the opt-in users would be empty",
            why=f"{finding} of {total} users would find the head list",
            fix="Let more users opt in, choose another share, or reuse the counts (mode best needs no parts)",
        )
    before = 0
    for name in sorted(sizes):
        if before + sizes[name] > finding:
            break
        before += sizes[name]
    near = users.filter(group == name)
    # Ibis counts rows from zero.
    placed = near.mutate(place=ibis.row_number().over(ibis.window(order_by=near["order"])))
    border = execute(placed.filter(placed.place == finding - before).select("order"))["order"][0].as_py()
    finders, measurers = (users.filter(c).select("user") for c in (users["order"] < border, users["order"] >= border))
    return Parts(finders, measurers, finding, total - finding)
