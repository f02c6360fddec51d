"""What a search log is once it is read: secret rows with fixed columns, behind a type that never shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from hushquery.errors import DataError, UsageError
from hushquery.log.report import Defects

__all__ = ["COLUMNS", "OPTIONAL", "Log"]

#: The columns a log can have, in their order, with the type each has once the log is read. Users who are whole numbers
#: in the source stay so.
COLUMNS = {"user": "string", "query": "string", "time": "int64", "url": "string", "rank": "int64"}

#: The columns a source may lack.
OPTIONAL = ("time", "url", "rank")


class Log:
    """A search log: rows of (user, query) and, where the source has them, time, url and rank.

    The rows are secret. A log shows its schema and nothing else, can't be pickled, and has neither length nor iterator.
    Everything that may be published is made from :attr:`table` by a plan that pays for it.

    Made by :func:`hushquery.log.read_log`, not by hand.
    """

    __slots__ = (
        "__weakref__",
        "_check_files",
        "_count_defects",
        "_finish_urls",
        "_normalises",
        "_rows",
        "_steps",
        "_table",
    )

    def __init__(
        self,
        rows: Any,
        steps: list[str],
        count_defects: Callable[[], Defects],
        check_files: Callable[[], None],
        finish_urls: Callable[[Any], Any] = lambda rows: rows,
        *,
        normalises: bool = False,
    ) -> None:
        if "query" not in rows.columns:
            raise UsageError("a Log needs the canonical columns", fix="Make it with hushquery.log.read_log")
        table = finish_urls(rows.filter(rows["query"].notnull()))
        kinds = table.schema()
        columns = {name: str(kinds[name]).lstrip("!") for name in table.columns}
        expected = {name: COLUMNS[name] for name in COLUMNS if name in columns}
        if "user" in columns and kinds["user"].is_integer():
            expected["user"] = columns["user"]
        if list(columns.items()) != list(expected.items()) or not {"user", "query"} <= set(columns):
            raise UsageError("a Log needs the canonical columns", fix="Make it with hushquery.log.read_log")
        put = object.__setattr__
        put(self, "_table", table)
        put(self, "_rows", rows)
        put(self, "_finish_urls", finish_urls)
        put(self, "_normalises", normalises)
        put(self, "_steps", tuple(steps))
        put(self, "_count_defects", count_defects)
        put(self, "_check_files", check_files)

    @property
    def table(self) -> Any:
        """The rows as an Ibis expression.

        ``user`` (text, or a whole number where the source has it so) and ``query`` (text) are never missing, never
        empty. ``time`` is in whole microseconds since any origin,
        missing where it could not be read. ``url`` is missing where nothing was clicked.
        """
        return self._get("_table")

    @property
    def rows(self) -> Any:
        """The same rows, but those left out for their query or their time are still there, with a missing query.

        For counting users, of whom none may vanish by what they searched for; and for plans that can drop such rows at
        no cost: filtering early makes an engine look at each query twice. The URLs are
        as in the source; :meth:`clicks_of` gives them in their final form.
        """
        return self._get("_rows")

    def clicks_of(self, queries: Any) -> Any:
        """Give the rows with a URL of some queries; no other URL is looked at.

        A URL that was removed is missing.

        Args:
            queries: A table with the column ``query``, each once. What other columns it has, the rows get too.
        """
        clicked = self.rows.filter(self.rows.url.notnull())
        joined = clicked.inner_join(queries, "query")
        return self._get("_finish_urls")(joined.select(*clicked.columns, *(set(queries.columns) - {"query"})))

    def part(self, keeps: Callable[[Any], Any], step: str) -> Log:
        """Give the log of some of its users.

        Args:
            keeps: Says of the rows which to keep, as an Ibis condition on the column ``user`` alone.
            step: What that does, in words that may be published.
        """
        part = self.rows.filter(keeps(self.rows.user))
        return Log(
            part,
            [*self.steps, step],
            self._get("_count_defects"),
            self._get("_check_files"),
            self._get("_finish_urls"),
            normalises=self.normalises,
        )

    @property
    def normalises(self) -> bool:
        """Whether queries and URLs are brought into one form each."""
        return bool(self._get("_normalises"))

    @property
    def has_time(self) -> bool:
        """Whether the source has times, so that "first" and "session" mean something."""
        return "time" in self.table.columns

    @property
    def has_url(self) -> bool:
        """Whether the source has clicked URLs."""
        return "url" in self.table.columns

    @property
    def steps(self) -> list[str]:
        """What was done to each row, in words that may be published: nothing in them is computed from rows."""
        return list(self._get("_steps"))

    def describe_defects(self) -> Defects:
        """Read the source once more and count what is wrong with it, for the steward's eyes only.

        Nothing in the answer may be published. It costs a pass over the source, so nobody runs it unasked.
        """
        answer: Defects = self._get("_count_defects")()
        return answer

    def refuse_defects(self) -> None:
        """Raise unless the source is flawless: what ``strict`` means. Reads the source once."""
        defects = self.describe_defects()
        if defects:
            raise DataError(
                f"the log has defects: {defects.in_short()}",
                why="With strict reading every defect is fatal",
                fix="Mend the rows (the private report has the line numbers) or read without strict",
            )

    def check_files(self) -> None:
        """Raise if a compressed file is cut off or damaged; the engine would read the front half and say nothing.

        Reads compressed files to their end and nothing else, so it is free for all other sources.
        """
        self._get("_check_files")()

    def _get(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Log can't be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Log can't be changed")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Log holds secret rows and can't be pickled or copied; publish a release instead")

    def __repr__(self) -> str:
        kinds = self.table.schema()
        columns = ", ".join(f"{name}: {str(kinds[name]).lstrip('!')}" for name in kinds)
        return f"Log({columns}; rows are secret)"

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        return render("notebook/log.html", text=repr(self))
