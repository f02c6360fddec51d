"""Bound: how much of one user's log may count.

Every table of a release bounds anew, on the columns it counts: a bound on queries says nothing about clicks. Which rows
of a user are kept is decided from that user's rows alone, so adding a person moves nobody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hushquery.engine import md5
from hushquery.errors import UsageError

__all__ = ["Bound", "Keep", "first_rows", "searches"]

#: Which of a user's keys are kept: the first by time, or random ones.
Keep = Literal["first", "random"]


# Times of a log are within 2^62 microseconds of their origin.
_AFTER_ALL_TIMES = 2**62


@dataclass(frozen=True)
class Bound:
    """Keep at most so many distinct keys of each user.

    Args:
        keep: ``first`` (the earliest by time, ties by the key itself) or ``random`` (by a keyed digest).
        key: The key of the digest. Drawn anew for each release; privacy does not rest on its secrecy.
    """

    keep: Keep = "first"
    key: str = ""

    def __post_init__(self) -> None:
        if self.keep not in ("first", "random"):
            raise UsageError(f"no rule to keep rows is called {self.keep!r}", fix="Give first or random")

    def order(self, table: Any) -> Keep:
        """Say which rule applies to a table: without times there is no first."""
        return self.keep if "time" in table.columns else "random"

    def words(self, table: Any) -> str:
        """Say the rule in words."""
        return "the first by time" if self.order(table) == "first" else "chosen at random"

    def rows(self, table: Any, columns: list[str], most: int) -> Any:
        """Give each user's distinct ``columns``, each once and at most ``most`` of them.

        Args:
            table: Rows with ``user``, the columns, and ``time`` where the log has it.
            columns: What counts as one key.
            most: d.
        """
        return first_rows(self.each(table, columns), columns, most).select("user", *columns)

    def each(self, table: Any, columns: list[str]) -> Any:
        """Give each user's distinct ``columns``, all of them, with what they are chosen by in a column ``order``."""
        import ibis

        if self.order(table) == "first":
            return table.group_by("user", *columns).agg(order=_time_or_last(table, columns).min())
        each = table.select("user", *columns).distinct()
        text = ibis.literal(self.key) + "|" + each.user.cast("string")
        for column in columns:
            text = text + "|" + each[column].cast("string")
        return each.mutate(order=md5(text))


def searches(table: Any, bound: Bound, most: int) -> Any:
    """Give each user's first ``most`` searches, as Korolova et al. count them: a repeated search counts again.

    A search with several clicks repeats its row and is still one search: the same user, time and query. Without times
    repeated searches can't be told from repeated clicks, and each query counts once.
    """
    import ibis

    if "time" not in table.columns:
        return bound.rows(table, ["query"], most)
    each = table.select("user", "time", "query").distinct()
    if bound.order(table) == "first":
        order = _time_or_last(each, ["query"])
    else:
        when = each.time.cast("string").fill_null("")
        order = md5(ibis.literal(bound.key) + "|" + each.user.cast("string") + "|" + when + "|" + each["query"])
    return first_rows(each.mutate(order=order), ["query"], most).select("user", "query")


def first_rows(each: Any, columns: list[str], most: int) -> Any:
    """Give each user's first rows by ``order``, ties by the columns; rows with a missing column come last and go.

    They go after their place is known and not before: an engine would compute a column twice to filter by it early.

    Args:
        each: Each user's distinct keys; those with a missing column have no ``order``.
        columns: What counts as one key.
        most: d.
    """
    import ibis

    # Without an order comes last, on every engine: what is missing a column takes nobody's place.
    order = [ibis.asc(each[column], nulls_first=False) for column in ("order", *columns)]
    # Ibis counts rows from zero.
    placed = each.mutate(place=ibis.row_number().over(ibis.window(group_by="user", order_by=order)))
    return placed.filter((placed.place < most) & _complete(placed, columns))


def _time_or_last(rows: Any, columns: list[str]) -> Any:
    """Give the time, after all times where there is none, and nothing where a column is missing.

    Said before rows are sorted and not where they are: sorting by an expression costs an engine a sixth of the count.
    """
    import ibis

    return ibis.ifelse(_complete(rows, columns), rows.time.fill_null(_AFTER_ALL_TIMES), ibis.null("int64"))


def _complete(rows: Any, columns: list[str]) -> Any:
    complete = rows[columns[0]].notnull()
    for column in columns[1:]:
        complete = complete & rows[column].notnull()
    return complete
