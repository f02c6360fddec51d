"""``hushquery look``: see what a log is, how to read it and what to publish, before anything is spent."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import (
    JsonFlag,
    LogFiles,
    LogOptions,
    at_a_terminal,
    emit,
    flag,
    option,
    progress,
    takes_options,
    warn,
    write_secret,
)
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.curator.advice import Advice
    from hushquery.log import Look

_DATA_FREE = (
    "The parameters of a release are public. So that they give nothing about the log away, they are chosen from two "
    "round numbers that you type or accept, never from the rows."
)
#: Above this share of lines left out there is no command to publish with, but what to try.
_TOO_MANY = 0.1
#: Above this share of users with a single row the column is hardly that of a person.
_STRANGERS = 0.97
_TRY = {
    "no user": "another column for the user: --columns user=PLACE",
    "no query": "another column for the query (--columns query=PLACE); or leave what is no search out of the file",
    "too few columns": "another separator (--separator ';'), or --no-header if the first line is a row",
    "too many columns": "another separator (--separator tab), or quotes around cells that hold it",
    "unclosed quote": "an export in which every cell with a quote is quoted",
    "bad encoding": "another encoding: --encoding cp1252, gb18030, utf-16, ...",
    "bad JSON": "another format: --format csv or tsv",
}


@takes_options
def look(
    log: LogFiles,
    *,
    users: Annotated[int | None, option("N", "About how many users there are, if you know: 10000.", min=1)] = None,
    rows: Annotated[int | None, option("N", "About how many searches they made: 200000.", min=1)] = None,
    epsilon: Annotated[str, option("E", "What one user may lose by the release to plan.")] = "1",
    yes: Annotated[bool, flag("--yes", "Accept the order of magnitude of users and rows that the log has.")] = False,
    html: Annotated[Path | None, option("FILE", "Also write a page to look at; secret, for your eyes.")] = None,
    reading: LogOptions,
    as_json: JsonFlag = False,
) -> None:
    r"""See what a log is, how to read it and what to publish, before anything is spent. Secret: for the steward's eyes.

        hushquery look searches.csv
        hushquery look 'logs/*.gz' --users 10000 --rows 200000 --html look.html

    What you do not say is guessed from a sample spread over the files: format, encoding, separator, columns. Nothing
    is spent and nothing published. The command that it prints has the guesses as options: release never guesses.
    """
    from hushquery import log as logs

    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError("--html writes a page", fix="Name a file that ends in .html")
    with progress("starting", 1.0) as show:
        seen = logs.look(log[0] if len(log) == 1 else log, progress=show, **reading.arguments())
    plan = None if seen.problem or not seen.users else _planned(seen, users, rows, epsilon, yes=yes, ask=not as_json)
    command = None if plan is None or to_try(seen) else release_command(log, seen, plan)
    clicks = None if command is None or plan is None or "url: none" in seen.columns else _with_clicks(plan)
    if reading.private_report is not None:
        defects = {"private": logs.SECRET, "defects": seen.to_json()["defects"]}
        write_secret(reading.private_report, json.dumps(defects, indent=2) + "\n")
    if html is not None:
        from hushquery.templates import render

        write_secret(html, render("look.html", **page_values(seen, plan, command)))
    data = seen.to_json() | {"advice": None if plan is None else asdict(plan) | {"command": command}}
    if clicks is not None:
        data["advice"]["with_clicks"] = asdict(clicks) | {"command": release_command(log, seen, clicks)}
    emit(data, "\n".join([str(seen), "", *_advice(log, seen, plan, command, clicks)]), as_json)
    if seen.share_left_out > logs.MANY:
        warn(f"{seen.share_left_out:.1%} of the lines would be left out")
    if html is not None:
        typer.echo(f"secret, never publish it: open {html}", err=True)
    if seen.problem:
        raise typer.Exit(4)


def _planned(seen: Look, users: int | None, rows: int | None, epsilon: str, *, yes: bool, ask: bool) -> Advice | None:
    """Return advice for the orders of magnitude that the steward types or accepts; None where nobody does."""
    from hushquery.curator.advice import advise, magnitude

    known = {"users": users, "rows": rows}
    asks = ask and not yes and None in known.values() and at_a_terminal()
    if asks:
        typer.echo(_DATA_FREE, err=True)
    for name, count in (("users", seen.users), ("rows", seen.rows)):
        if known[name] is None and yes:
            known[name] = magnitude(count)
        elif known[name] is None and asks:
            known[name] = typer.prompt(f"About how many {name}?", default=magnitude(count), type=int, err=True)
    people, searches = known["users"], known["rows"]
    if people is None or searches is None:
        return None
    return advise(people, max(people, searches), epsilon=epsilon)


def release_command(log: list[str], seen: Look, plan: Advice) -> str:
    """Write the command that publishes the log so."""
    from hushquery.curator.advice import WHOSE

    files = " ".join(map(shlex.quote, log))
    keep = "--keep random" if seen.undated else ""
    options = " ".join(filter(None, (seen.options, plan.options, keep)))
    return f"hushquery release {files} {options} {WHOSE} --out release"


def _with_clicks(plan: Advice) -> Advice:
    from hushquery.curator.advice import advise

    return advise(plan.users, plan.rows, epsilon=plan.epsilon, clicks=True)


def to_try(seen: Look) -> list[str]:
    """Return what to fix before publishing, if a release would waste the budget or protect rows instead of people."""
    again = "Then look again. Nothing was spent."
    if seen.users and not seen.queries:
        why = f": {seen.why_private}" if seen.private_by else ""
        return [f"DO NOT PUBLISH YET: no row has a query that may be counted{why}.", again]
    if seen.share_of_one_row > _STRANGERS:
        return [
            f"DO NOT PUBLISH YET: {seen.share_of_one_row:.0%} of the users have a single row. Does the column of users "
            "name people, or rows, visits or times? A release protects one value of that column.",
            "  try another column for the user: --columns user=PLACE",
            again,
        ]
    if seen.share_left_out <= _TOO_MANY:
        return []
    tries = [f"  {kind} ({count:,} lines): try {_TRY[kind]}" for kind, count in seen.left_out.items() if kind in _TRY]
    lost = f"DO NOT PUBLISH YET: {seen.share_left_out:.1%} of the lines would be left out"
    return [f"{lost}, and the budget spent on the rest.", *tries, again]


def _advice(log: list[str], seen: Look, plan: Advice | None, command: str | None, clicks: Advice | None) -> list[str]:
    from hushquery.curator.advice import magnitude

    if seen.problem:
        return ["Then look again. Nothing was spent."]
    if not seen.users:
        return ["There is no row to publish. Nothing was spent."]
    if tries := to_try(seen):
        return tries
    if plan is None:
        known = f"--users {magnitude(seen.users)} --rows {magnitude(seen.rows)}"
        again = " ".join(filter(None, ("hushquery look", *map(shlex.quote, log), seen.options, known)))
        return ["Next: say about how many users and rows there are (or --yes).", _DATA_FREE, f"  {again}"]
    lines = ["Next: publish it.", str(plan), plan.why, *doubts(seen, plan), _DATA_FREE, f"  {command}"]
    lines += [plan.longer] if plan.longer else []
    if clicks is not None:
        lines += ["", "Or with clicks, which take a part of the budget.", str(clicks)]
        lines.append(f"  {release_command(log, seen, clicks)}")
    return lines


def doubts(seen: Look, plan: Advice) -> list[str]:
    """Return a warning if few queries will be released, by the forecast or because the log has few popular ones."""
    if plan.released_high <= 10:
        return ["Few or none: too few users share a query at this epsilon."]
    near = max((users for users in seen.popular if users <= plan.threshold), default=None)
    if near is None or seen.popular[near] >= plan.released_low:
        return []
    return [
        f"WARNING: expect fewer. Only {seen.popular[near]:,} queries of this log have at least {near} users; "
        "the range is for an ordinary log of this size."
    ]


def page_values(seen: Look, plan: Advice | None, command: str | None) -> dict[str, Any]:
    """Return what the page shows: bars are shares of the largest."""

    def bars(counts: Mapping[str, int], unit: str = "", lost: Collection[str] = ()) -> list[dict[str, Any]]:
        shown = dict(counts)
        while shown and not list(shown.values())[-1]:  # an empty end says nothing
            shown.popitem()
        most = max([1, *shown.values()])
        return [
            {
                "label": f"{name} {plural(2 - (name == '1'), unit)}",
                "count": count,
                "width": 100 * count / most,
                "lost": name in lost,
            }
            for name, count in shown.items()
        ]

    from hushquery.log import MANY, SECRET, first_places
    from hushquery.log.look import NOT_TO_CHOOSE
    from hushquery.templates import plural

    return {
        "secret": SECRET,
        "seen": seen,
        "many": MANY,
        "plan": plan,
        "doubts": [] if plan is None else doubts(seen, plan),
        "command": command or "",
        "tries": to_try(seen),
        "not_to_choose": NOT_TO_CHOOSE,
        "data_free": _DATA_FREE,
        "defects": [first_places(defect) for defect in seen.defects],
        "left": bars({"rows": seen.lines - sum(seen.left_out.values()), **seen.left_out}, lost=seen.left_out),
        "rows_per_user": bars(seen.rows_per_user, "rows"),
        "users_per_query": bars(seen.users_per_query, "users"),
        "popular": bars({f"{users} or more users": count for users, count in seen.popular.items()}),
    }
