"""Look at a log before anything is spent: what it is, how it is read, what is wrong with it; for the steward alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from hushquery.engine import as_table, connect, engine_table, fetch
from hushquery.errors import DataError, HushqueryError
from hushquery.log.columns import COLUMNS, option_for
from hushquery.log.defects import Defect, left_out
from hushquery.log.detect import Column, Guess, guess_layout, guess_notes, places_of
from hushquery.log.files import find_files
from hushquery.log.formats import ENDINGS, FORMATS
from hushquery.log.normalise import LONGEST
from hushquery.log.read import Log, names_files, names_table, read_log

#: What every file and every output of a look begins with.
SECRET = "SECRET: exact facts about a log, for the steward's eyes; do not publish"  # noqa: S105
#: What is said above exact numbers of users and queries.
NOT_TO_CHOOSE = "Do not choose parameters by these numbers; use the proposal below."
_UNDATED = (
    "times have no dates: if the log covers several days, 'first by time' mixes them. Use --keep random, name the days "
    "with --period, and do not use --since and --until"
)
# So many users should come again now and then.
_MANY_USERS = 100
#: The numbers of users that popular queries are counted for.
POPULAR = (10, 20, 50, 100)
#: Above this share of lines left out a look is loud.
MANY = 0.05
_ROWS = (1, 2, 6, 11, 21, 51, 101, 1001)
_USERS = (1, 2, 10, 20, 50, 100)

# The arguments of read_log that are texts, in the order of their options.
_TEXTS = ("format", "encoding", "separator", "unwrap", "time_format", "time_unit", "since", "until", "engine")

Progress = Callable[[str, float], None]


@dataclass(frozen=True, repr=False)
class Look:
    """What a look at a log shows: secret, and so not in its ``repr``; ``print`` shows it.

    ``problem`` is what keeps the log from being read, with the way out; all that needs its rows is then empty.
    """

    data: tuple[str, ...]  # the files, or what else the log is
    arguments: Mapping[str, Any]  # how :func:`hushquery.read_log` reads it
    format: str  # which format, in words
    why: tuple[str, ...]
    columns: str = ""  # which column is which of ours
    seen: tuple[Column, ...] = ()  # what each column of the file looks like
    hints: tuple[str, ...] = ()  # columns that are not used, and what else to think of
    problem: str = ""
    lines: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)  # lines that are no rows, by kind
    defects: tuple[Defect, ...] = ()
    rows: int = 0
    private: int = 0  # rows left out for what their query looks like, a deny list or a range of times
    private_by: Mapping[str, int] = field(default_factory=dict)  # how many of them, by why
    users: int = 0
    queries: int = 0  # different ones
    rows_per_user: Mapping[str, int] = field(default_factory=dict)  # users, by how many rows they have
    users_per_query: Mapping[str, int] = field(default_factory=dict)  # queries, by how many users they have
    popular: Mapping[int, int] = field(default_factory=dict)  # queries with at least so many users
    since: str = ""
    until: str = ""

    @property
    def share_left_out(self) -> float:
        """The share of lines that are no rows."""
        return sum(self.left_out.values()) / max(1, self.lines)

    @property
    def share_of_one_row(self) -> float:
        """The share of users with a single row; 0 for a log of few users."""
        return self.rows_per_user.get("1", 0) / self.users if self.users >= _MANY_USERS else 0.0

    @property
    def why_private(self) -> str:
        """Why rows have no query that may be counted, with numbers."""
        return ", ".join(f"{why}: {count:,}" for why, count in self.private_by.items())

    @property
    def undated(self) -> str:
        """What times of day without a date mean; empty where there are dates."""
        return _UNDATED if re.fullmatch(r"\d\d:\d\d", self.until) else ""

    @property
    def options(self) -> str:
        """The options that make a command read the log so, as a shell takes them."""
        given = {key: value for key, value in self.arguments.items() if value not in (None, {}, "", False)}
        words = []
        if self.arguments.get("header") is not None:
            words.append("--header" if self.arguments["header"] else "--no-header")
        endings = (Path(name.removesuffix(".gz")).suffix.lower() for name in self.data)
        if {ENDINGS.get(ending) for ending in endings} == {given.get("format")}:
            given.pop("format", None)
        for key in _TEXTS:
            if isinstance(given.get(key), str) and (key, given[key]) != ("encoding", "utf-8"):
                value = {"\t": "tab", "\x01": "\\x01"}.get(given[key], given[key])
                value = re.sub(r"(?<=://)([^:@/]*):[^/]*@", r"\1@", value) if key == "engine" else value  # no password
                words.append(f"--{key.replace('_', '-')} {shlex.quote(value)}")
        if columns := given.get("columns"):
            words.append(option_for({ours: columns[ours] or "" for ours in COLUMNS if ours in columns}))
        for key in ("drop", "exclude_users"):
            if isinstance(given.get(key), str | Path):
                words.append(f"--{key.replace('_', '-')} {shlex.quote(str(given[key]))}")
        words += ["--no-patterns"] if self.arguments.get("patterns") is False else []
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data, marked as secret."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["seen"] = [asdict(column) for column in self.seen]
        plain["defects"] = [defect.to_json() for defect in self.defects]
        given = {key: value for key, value in self.arguments.items() if value is not None and key != "engine"}
        plain["arguments"] = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
        plain["popular"] = {str(users): count for users, count in self.popular.items()}
        return {"secret": SECRET} | plain | {"share_left_out": self.share_left_out, "options": self.options}

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Look holds secret facts and can't be pickled or copied")

    def __repr__(self) -> str:
        return "Look(secret; print it to see what is in the log)"

    def __str__(self) -> str:
        lines = [SECRET, "", f"format: {self.format} ({'; '.join(self.why)})"]
        lines += [f"read with: {self.options}"] if self.options else []
        lines += [f"columns: {self.columns}"] if self.columns else []
        lines += [f"  {line}" for line in self.described()]
        lines += [f"hint: {hint}" for hint in self.hints]
        if self.problem:
            return "\n".join([*lines, "", f"It can't be read yet: {self.problem}"])
        lines.append("")
        if self.share_left_out > MANY:
            lines.append(f"WARNING: {self.share_left_out:.1%} OF THE LINES WOULD BE LEFT OUT, see below")
        lines.append(f"lines: {self.lines:,}; left out: {sum(self.left_out.values()):,} ({self.share_left_out:.1%})")
        lines += [f"  {first_places(defect)}" for defect in self.defects]
        lines += [
            f"rows: {self.rows:,}; {self.private:,} of them without a query that may be counted"
            + (f" ({self.why_private})" if self.private_by else ""),
            f"users: {self.users:,}; different queries: {self.queries:,}",
            f"times: {self.since} to {self.until}" if self.since else "times: none",
            *([f"hint: {self.undated}"] if self.undated else []),
            NOT_TO_CHOOSE,
            f"users by rows: {_counted(self.rows_per_user)}",
            f"queries by users: {_counted(self.users_per_query)}",
            *(f"queries with at least {users} users: {count:,}" for users, count in self.popular.items()),
        ]
        return "\n".join(lines)

    def described(self) -> list[str]:
        """Describe the columns of the file: place, name and what is in them, but no cell."""
        return [
            f"column {one.place}{f' ({one.name[:60]})' if one.name else ''}"
            + (f": {one.what}, {one.distinct:.0%} of a sample different" if one.what else "")
            + (f", {one.empty:.0%} empty" if one.empty >= 0.005 else "")
            for one in self.seen
        ]


def _counted(buckets: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in buckets.items() if count)


def first_places(defect: Defect) -> str:
    """Write a kind of defect, how often it is there and its first five places."""
    places = ", ".join(f"{Path(file).name} line {line}" for file, line in defect.lines[:5])
    return f"{defect.kind}: {defect.count:,}" + (f" (first: {places})" if places else "")


def look(data: Any, *, progress: Progress | None = None, **reading: Any) -> Look:
    """Look at a log: which format and why, which columns, what is wrong, how many users and queries.

    Reads the whole log, spends nothing and publishes nothing: the result is **secret**, for the steward's eyes. What
    is not given is guessed from a sample that is spread over the files; a release never guesses.

    Args:
        data: As for :func:`hushquery.read_log`.
        progress: Called with what is done next, and the share of work that is done.
        **reading: The arguments of :func:`hushquery.read_log` that are known already.

    >>> seen = look({"user": ["a", "b", "b"], "query": ["tea", "tea", "milk"], "when": [1, 2, 3]})
    >>> seen
    Look(secret; print it to see what is in the log)
    >>> seen.users, seen.queries, seen.popular[10]
    (2, 2, 0)
    >>> seen.hints
    ('when is not used: --columns time=when (this look and the command below use it)',)
    """
    tell = progress or (lambda *_: None)
    tell("looking at a sample", 0.0)
    guess = _guess(data, reading)
    arguments = reading | guess.arguments
    kind = str(arguments.get("format") or "a table")
    seen: dict[str, Any] = {
        "data": tuple(map(str, data if isinstance(data, list | tuple) else [data]))
        if names_files(data)
        else ("a table",),
        "arguments": arguments,
        "format": f"{kind}: {FORMATS[kind]}" if kind in FORMATS else kind,
        "why": guess.why,
        "seen": guess.columns,
    }
    try:
        log = read_log(data, **arguments)
    except HushqueryError as error:
        if not isinstance(error, DataError) and not guess.columns:
            raise
        fix = ". ".join(part for part in error.fix.split(". ") if "hushquery look" not in part)
        problem = ". ".join(part.rstrip(".") for part in (error.what, error.why, fix) if part)
        return Look(**seen, hints=guess.notes, problem=problem)
    hints = [*_hints(log, guess), *guess.notes]
    seen["format"] = log.steps[0].removeprefix("read as ").partition(";")[0]
    columns = log.explained[1]
    if guess.rival:
        columns = columns.replace(";", f" (or column {guess.rival}?);", 1)
    facts = _facts(log, _size(data), tell)
    facts["private_by"] = _why_private(data, arguments, facts)
    return Look(**seen, columns=columns, hints=tuple(hints), **facts)


def _why_private(data: Any, arguments: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, int]:
    """Count the rows without a query by why: each rule is left out in turn, where there is anything to explain."""
    left, found, reading = int(facts["private"]), dict[str, int](), dict(arguments)
    rules: dict[str, dict[str, Any]] = {
        "deny list": {"drop": None},
        "looks like personal data (mail, phone, long numbers)": {"patterns": False},
        "outside the range of times": {"since": None, "until": None},
    }
    for why, rule in rules.items():
        if not left or all(reading.get(name, not off) in (None, off) for name, off in rule.items()):
            continue
        reading |= rule
        rows = read_log(data, **reading).rows
        [[still]] = [row.values() for row in fetch(rows.agg(n=rows.query.isnull().sum())).to_pylist()]
        found[why] = left - int(still or 0)
        left = int(still or 0)
    empty = min(left, facts["left_out"].get("no query", 0))
    found |= {"empty": empty, f"over {LONGEST:,} characters, or nothing but signs": left - empty}
    return {why: count for why, count in found.items() if count > 0}


def _size(data: Any) -> int:
    """Return about how many bytes a log has, for a progress bar."""
    try:
        found = find_files(data) if names_files(data) else []
    except HushqueryError:
        return 0
    return sum(path.stat().st_size * (5 if path.suffix == ".gz" else 1) for path in found)


def _guess(data: Any, reading: Mapping[str, Any]) -> Guess:
    """Guess what is not given: of files from a sample, of tables from the names of their columns."""
    engine = reading.get("engine")
    engine = connect(engine) if isinstance(engine, str) else engine
    if names_files(data) and not names_table(data, engine):
        guess = guess_layout(find_files(data), reading)
        if guess.arguments.get("format") != "parquet":
            return guess
        import pyarrow.parquet as pq

        try:
            names = pq.read_schema(find_files(data)[0]).names
        except Exception:
            return guess  # reading it tells what is wrong
        return _by_name(names, guess.arguments, guess.why)
    table = engine_table(data, engine) if isinstance(data, str) else as_table(data)
    return _by_name(list(table.columns), reading, ("it is a table",))


def _by_name(names: list[str], reading: Mapping[str, Any], why: tuple[str, ...]) -> Guess:
    """Find columns of a table by the names that such columns go by."""
    said = dict(reading.get("columns") or {})
    columns = tuple(Column(place, name, "", 0.0) for place, name in enumerate(names, 1))
    chosen: dict[str, str | int] = {ours: names[place] for ours, place in places_of(columns, said, names).items()}
    found = {ours: name for ours, name in chosen.items() if ours not in said and name != ours}
    notes = guess_notes(chosen, said, named=True)
    return Guess({**reading, "columns": said | found or None}, why, columns, tuple(notes))


def _hints(log: Log, guess: Guess) -> list[str]:
    """Name the columns that nothing uses."""
    used = {str(theirs).lower() for theirs in (guess.arguments.get("columns") or {}).values()} | set(log.rows.columns)
    unused = [column for column in guess.columns if column.name and column.name.lower() not in used]
    return [f"{column.name} is not used" for column in unused if str(column.place) not in used]


def _facts(log: Log, size: int, tell: Progress) -> dict[str, Any]:
    """Count in the engine; of the tail nothing is fetched but numbers."""
    read = 0

    def more(count: int) -> None:
        nonlocal read
        read += count
        tell("checking every line", 0.1 + 0.4 * min(1.0, read / max(1, size)))

    more(0)
    defects = log.describe_defects(more)
    bad = left_out({defect.kind: defect.count for defect in defects.kinds if defect.kind != "damaged file"})
    tell("counting users", 0.5)
    rows = log.rows
    aggregates = {"rows": rows.count(), "queries": rows.query.nunique(), "private": rows.query.isnull().sum()}
    if log.has_time:
        aggregates |= {"first": rows.time.min(), "last": rows.time.max()}
    [whole] = fetch(rows.agg(**aggregates)).to_pylist()
    per_user = rows.group_by("user").agg(n=rows.count())
    by_rows = _buckets(per_user, _ROWS)
    tell("counting users of queries", 0.75)
    kept = rows.filter(rows.query.notnull()).select("user", "query").distinct()
    per_query = kept.group_by("query").agg(n=kept.count())
    by_users = _buckets(per_query, _USERS)
    at_least = {n: sum(count for edge, count in by_users.items() if edge >= n) for n in POPULAR}
    tell("done", 1.0)
    return {
        "lines": defects.lines,
        "left_out": bad,
        "defects": defects.kinds,
        "rows": whole["rows"],
        "private": (whole["private"] or 0),
        "users": sum(by_rows.values()),
        "queries": whole["queries"],
        "rows_per_user": {_between(_ROWS, edge): count for edge, count in by_rows.items()},
        "users_per_query": {_between(_USERS, edge): count for edge, count in by_users.items()},
        "popular": at_least,
        "since": _moment(whole.get("first"), whole.get("last")),
        "until": _moment(whole.get("last"), whole.get("last")),
    }


def _buckets(counted: Any, edges: tuple[int, ...]) -> dict[int, int]:
    """Count the rows of a table of numbers ``n`` by the largest edge that is not above them."""
    import ibis

    edge = ibis.cases(*((counted.n >= low, low) for low in reversed(edges)), else_=edges[0])
    found = fetch(counted.select(edge=edge).group_by("edge").agg(n=lambda t: t.count())).to_pylist()
    counts = {row["edge"]: row["n"] for row in found}
    return {low: counts.get(low, 0) for low in edges}


def _between(edges: tuple[int, ...], low: int) -> str:
    """Name a bucket of numbers.

    >>> _between((1, 2, 10), 1), _between((1, 2, 10), 2), _between((1, 2, 10), 10)
    ('1', '2 to 9', '10 or more')
    """
    above = [edge for edge in edges if edge > low]
    return f"{low:,} or more" if not above else f"{low:,}" if above[0] == low + 1 else f"{low:,} to {above[0] - 1:,}"


def _moment(micros: int | None, last: int | None) -> str:
    """Write a time; where the last is within the first day of 1970, times of day are all there is."""
    if micros is None or last is None:
        return ""
    form = "%H:%M" if 0 <= last < 86_400_000_000 else "%Y-%m-%d %H:%M"
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).strftime(form)
    except (OverflowError, ValueError):
        return "a time beyond the calendar"
