"""The options with which commands read a search log, and how they open one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery.cli.common import write_secret
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.log import Log

__all__ = [
    "Columns",
    "Drop",
    "Encoding",
    "Engine",
    "ExcludeUsers",
    "Format",
    "LogFiles",
    "NoNormalise",
    "NoPatterns",
    "PrivateReport",
    "Since",
    "Strict",
    "TimeFormat",
    "TimeUnit",
    "Until",
    "columns_of",
    "open_log",
    "pairs",
]

#: The log itself.
LogFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="The log: files or a quoted pattern such as 'logs/*.tsv.gz'; with --engine the name of its table.",
    ),
]
#: Where it is counted.
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        envvar="HUSHQUERY_ENGINE",
        metavar="URL",
        help="Where to count: spark (this machine), spark://host:port, or postgresql://user@host/database. LOG is then "
        "one of its tables, or for Spark Parquet files that all its machines see. By default DuckDB counts here. "
        "Leave a password to PGPASSWORD or a password file; it is never shown.",
    ),
]
#: How it is written.
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="aol, sogou, yandex, excite, csv, tsv, parquet or jsonl; by default what the ending says, "
        "with columns user, time, query, url, rank.",
    ),
]
#: Other names for our columns.
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OURS=THEIRS,...",
        help='Their names for our columns: "user=Customer ID,query=Query"; time= does without that column. May be '
        "repeated. One user is one value of the column for user.",
    ),
]
#: The deny list.
Drop = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A deny list: queries that hold one of its lines are left out.")
]
#: People who objected.
ExcludeUsers = Annotated[
    Path | None, typer.Option("--exclude-users", metavar="FILE", help="Users who objected, one id a line.")
]
#: Switch off the built-in patterns.
NoPatterns = Annotated[
    bool,
    typer.Option("--no-patterns", help="Do not leave out queries with e-mail, phone, card or identity numbers."),
]
#: Switch off normalisation.
NoNormalise = Annotated[bool, typer.Option("--no-normalise", help="Take queries and URLs exactly as they are.")]
#: From when on.
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only rows from this time on (ISO, or a number).")]
#: Until when.
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only rows before this time.")]
#: Defects are fatal.
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a log with malformed rows (costs a second pass).")]
#: Where the steward's own report goes.
PrivateReport = Annotated[
    Path | None,
    typer.Option(
        "--private-report",
        metavar="FILE",
        help="Write what is wrong with the log, by kind with line numbers. For your eyes only: never publish it.",
    ),
]
#: How the bytes are to be read.
Encoding = Annotated[str, typer.Option(metavar="NAME", help="The encoding of text files; SogouQ has gb18030.")]
#: How times that are text are written.
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        metavar="FORM",
        help="How times are written that are neither ISO nor numbers: '%d.%m.%Y %H:%M', '%m/%d/%Y %I:%M %p'.",
    ),
]
#: What a number of time counts.
TimeUnit = Annotated[str | None, typer.Option("--time-unit", metavar="s|ms", help="What times that are numbers count.")]


def pairs(text: str | None, option: str, *, empty: bool = False) -> dict[str, str] | None:
    """Read ``a=b,c=d``; with ``empty`` also ``a=``."""
    if text is None:
        return None
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    if not parts or any(not name.strip() or not (value.strip() or (empty and mark)) for name, mark, value in parts):
        raise UsageError(f"{option} can't be read", fix=f"Write it like {option} a=b,c=d")
    found = {name.strip(): value.strip() for name, _, value in parts}
    if len(found) < len(parts):
        raise UsageError(f"{option} names something twice", fix="Name each once")
    return found


def columns_of(texts: list[str] | None) -> dict[str, str] | None:
    """Add up what every ``--columns`` says; refuse two names for one column."""
    found: dict[str, str] = {}
    for text in texts or ():
        for ours, theirs in (pairs(text, "--columns", empty=True) or {}).items():
            if found.setdefault(ours, theirs) != theirs:
                raise UsageError(f"--columns names two columns for {ours}", fix="Name one, or nothing to do without it")
    return found or None


def open_log(
    files: list[str],
    *,
    format: str | None,
    columns: list[str] | None,
    drop: Path | None,
    exclude_users: Path | None,
    no_patterns: bool,
    no_normalise: bool,
    since: str | None,
    until: str | None,
    strict: bool,
    private_report: Path | None,
    encoding: str,
    time_unit: str | None,
    time_format: str | None,
    engine: str | None = None,
) -> Log:
    """Open a log as the options say; the steward's report, if asked for, is written before anything is spent.

    What was taken for a user is told where it is not obvious: it is whom the guarantee protects.
    """
    import json

    from hushquery.log import read_log
    from hushquery.log.formats import quote_name

    names = columns_of(columns)

    log = read_log(
        files[0] if len(files) == 1 else files,
        format=format,
        columns=names,
        engine=engine,
        normalise=not no_normalise,
        patterns=not no_patterns,
        drop=drop,
        exclude_users=exclude_users,
        since=since,
        until=until,
        strict=strict,
        encoding=encoding,
        time_unit=time_unit,
        time_format=time_format,
    )
    user = (names or {}).get("user", "user")
    if user.lower() != "user":
        typer.secho(f"note: one user is one value of the column {quote_name(user)}", err=True, fg=typer.colors.YELLOW)
    if private_report is not None:
        defects = log.describe_defects()
        write_secret(private_report, json.dumps(defects.to_json(), indent=2) + "\n")
        typer.echo(f"private report (never publish it): {private_report}: {defects.in_short()}", err=True)
    if strict:
        log.refuse_defects()
    return log
