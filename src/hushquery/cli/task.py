"""``hushquery task``: write and check the file that clients and collector agree on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, argument, emit, flag, group, option, takes_options, writing
from hushquery.errors import DataError, UsageError

if TYPE_CHECKING:
    from hushquery.task import Answers, Task


app = group(
    "task",
    """The file on which clients and collector agree: what is collected, from whom, at what cost in privacy.

    A hash of what clients use is the task's id, and each report carries it. Comments, the order of keys and how a
    number is spelled do not change it, nor do the off-switch and what only the collector uses (its collect table
    but for time_precision). Everything else does, because a change is a new task.
    """,
)


@dataclass(frozen=True)
class Asked:
    """The five answers."""

    kind: Annotated[
        str, option("KIND", "What is asked: searches (query and URL), setting (of a public list), number or text.")
    ] = "searches"
    name: Annotated[str | None, option("NAME", "What to call it, for people.")] = None
    value: Annotated[
        list[str] | None,
        option("VALUE", 'A value of a setting, or of searches, where nobody opts in: "QUERY URL". May be repeated.'),
    ] = None
    highest: Annotated[str | None, option("N", "The largest number there can be, a public bound.")] = None
    population: Annotated[str | None, option("NAME", "Of whom: whose budget it is.")] = None
    period: Annotated[str | None, option("TIME", "How often each client reports: 1d, 7d, or once.")] = None
    epsilon: Annotated[str | None, option("E", "How private: the loss of one period's report.")] = None
    lifetime: Annotated[str | None, option("E", "What a device may lose in its life, in all tasks together.")] = None
    optin_epsilon: Annotated[
        str | None, option("E", "Who opts in, to searches without values: what each of them may lose in a period.")
    ] = None
    optin_delta: Annotated[str | None, option("D", "And with what probability the promise to them may fail.")] = None

    def answers(self) -> Answers:
        """Return them as answers."""
        from hushquery.task import Answers

        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "value"}
        return Answers(**given, values=tuple(self.value) if self.value else None)


@app.command()
@takes_options
def new(
    asked: Asked,
    *,
    out: Annotated[Path | None, option("FILE", "Where to; by default the text is printed.")] = None,
    force: Annotated[bool, flag("--force", "Replace the file if it exists.")] = False,
) -> None:
    r"""Write a task file: every key, with what it means. What is not given is what such a task usually has.

    hushquery task new --kind setting --out task.toml
    hushquery task new --kind setting --name theme --value light --value dark --population "app users" --out theme.toml
    hushquery task new --kind number --name minutes --highest 1440 --period once --epsilon 0.5 --out minutes.toml

    `hushquery serve` in an empty folder asks the same on a page.
    """
    from hushquery.collect.forecast import refused
    from hushquery.task.answers import write_task

    answers = asked.answers()
    text = answers.to_toml()
    problems = refused(answers)
    if problems:
        names = {"values": "--value", "": "the answers"}
        told = (f"{names.get(name, '--' + name.replace('_', '-'))}: {words}" for name, words in problems.items())
        raise UsageError(
            "these answers make no task", why="; ".join(told), fix="Change them; --help says what they are"
        )
    if out is None:
        typer.echo(text, nl=False)
        return
    with writing(out.name):
        if force:
            out.write_text(text, "utf-8")
        else:
            write_task(out, text)
    typer.echo(f"wrote {out}; check it with: hushquery task check {out}", err=True)


@app.command("forecast")
def show_forecast(
    file: Annotated[Path, argument("FILE", "The task file.")],
    clients: Annotated[
        list[int] | None,
        option("N", "With so many clients in a period; may be repeated. By default 1,000, 10,000, 100,000.", min=2),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Forecast what a task will be able to say: 95% intervals by the number of clients. Nothing is asked or spent.

    hushquery task forecast task.toml
    hushquery task forecast task.toml --clients 5000
    """
    from hushquery.collect.forecast import SIZES, cells, forecast_task, notes
    from hushquery.task import Task

    task = Task.load(file)
    made = [forecast_task(task, number) for number in clients or SIZES]
    heads = ("clients", *cells(task, made[0]))
    rows = [(f"{one['clients']:,}", *cells(task, one).values()) for one in made]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)]
    data = {"id": task.id, "forecasts": made, "notes": notes(task)}
    emit(data, "\n".join([*lines, *notes(task)]), as_json)


@app.command()
def check(
    file: Annotated[Path, argument("FILE", "The task file.")],
    head: Annotated[
        Path | None,
        option(
            "PATH", "The head list, once it is published: a JSON list of lists of a query and a URL, or its folder."
        ),
    ] = None,
    clients: Annotated[
        int | None, option("N", "Also forecast the error with so many clients in a period.", min=2)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Check a task file, and say what it asks of clients, what a report costs and what its id is.

    hushquery task check task.toml
    hushquery task check task.toml --clients 100000
    """
    from hushquery.local.configuration import read_head
    from hushquery.task import Task

    task = Task.load(file)
    listed = None if head is None else read_head(head)
    mechanism = _mechanism(task, listed)
    data = {"id": task.id, "task": task.to_json(), "canonical": task.canonical(), **mechanism}
    if clients is not None:
        from hushquery.collect.forecast import forecast_task

        made = forecast_task(task, clients, listed)
        of = "the average, at most" if made["of"] == "mean" else "the share of a rare value"
        data["error"] = {name: made[name] for name in ("reports", "stderr", "stderr_most")} | {"of": of}
    emit(data, "\n".join(f"{name:<12} {words}" for name, words in _words(task, data)), as_json)


@app.command("id")
def print_id(file: Annotated[Path, argument("FILE", "The task file.")]) -> None:
    r"""Print the id of a task, which every program and page that reports to it carries.

    hushquery task id task.toml
    """
    from hushquery.task import Task

    typer.echo(Task.load(file).id)


@app.command()
def schema() -> None:
    r"""Print the JSON Schema of task files, for editors.

    hushquery task schema > task.schema.json
    """
    from hushquery.task import Task

    emit(Task.json_schema(), "", as_json=True)


@app.command()
def lists(
    server: Annotated[str, argument("SERVER", "The collector's address.")],
    task: Annotated[str, argument("ID", "The task's id: 64 hexadecimal digits.")],
    expect: Annotated[
        str | None, option("HASH", "The hash of the log that somebody else was shown, now or earlier.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Print a collector's log of head lists and its hash, to compare with what other devices were shown.

    hushquery task lists https://collect.example.org 63caf...
    hushquery task lists https://collect.example.org 63caf... --expect 1d0be...
    """
    from hushquery.local.device.fetch import chained, fetch_task

    served = fetch_task(server, task)
    hashes = chained(served.task.id, served.lists)
    if expect is not None and expect not in hashes:
        raise DataError(
            "the collector showed two different logs of head lists",
            why="the hash that was expected is not on the way to the one of this log",
            fix="Do not report to it; ask the operator, and compare with more devices",
        )
    rows = [
        {"epoch": epoch, "configuration": configuration, "log": log}
        for (epoch, configuration), log in zip(served.lists, hashes[1:], strict=True)
    ]
    words = [f"{row['epoch']:>8}  {row['configuration']}" for row in rows]
    emit({"log": served.log, "lists": rows}, "\n".join([*words, f"{'log':>8}  {served.log}"]), as_json)


def _mechanism(task: Task, head: list[Any] | None) -> dict[str, Any]:
    """Return which mechanism clients will run, what it costs and why it is this one, where that is known already."""
    if task.is_listed and task.task.domain is None and head is None:
        return {"configuration": None, "oracle": None, "cost": None, "why": None}
    from hushquery.core.budget import round_up
    from hushquery.local.configuration import Configuration

    fixed = Configuration.of(task, head)
    return {
        "configuration": fixed.digest.hex(),
        "oracle": fixed.channel.describe(),
        "cost": round_up(fixed.cost),
        "why": fixed.why,
    }


def _words(task: Task, data: dict[str, Any]) -> list[tuple[str, str]]:
    from hushquery.core.budget import format_epsilon
    from hushquery.task.model import spelled

    client, seconds = task.client, task.task.period
    times = "one report" if client.records_per_user == 1 else f"{client.records_per_user} reports"
    times += " per client" if seconds is None else f" per client every {spelled(seconds)}"
    if not client.enabled:
        times = "nothing: the task is switched off"
    elif client.sampling < 1:
        times += f", by {float(client.sampling):.3g} of the clients"
    cost = task.record_epsilon if data["cost"] is None else data["cost"]
    each = "" if client.records_per_user == 1 else f", {format_epsilon(client.epsilon)} for all of a period"
    rows = [
        ("name", task.task.name),
        ("id", task.id),
        ("population", task.task.population),
        ("collects", f"{task.task.kind}, {times}"),
        ("costs", f"epsilon {format_epsilon(cost)} for a new value{each}, nothing for a repeated one"),
        ("lifetime", f"epsilon {format_epsilon(client.lifetime_epsilon)} per device, given the change times"),
        ("domain", _domain(task, data)),
        ("mechanism", data["why"] or "fixed when the head list is published"),
    ]
    if task.is_listed:
        rows.append(("unknown", "reported as *" if client.unknown == "wildcard" else "refused"))
    if "error" in data:
        rows.append(("error", _error_in_words(**data["error"])))
    return rows


def _error_in_words(reports: int, of: str, stderr: float, stderr_most: float | None) -> str:
    error, reach = f"with {reports:,} reports a standard error of {stderr:.2g} ({of})", f"about {1.96 * stderr:.2g}"
    if stderr_most is None:
        return f"{error}: a 95% interval reaches {reach} to each side"
    if "at most" in of:
        return f"{error}: a 95% interval reaches at most {reach} to each side"
    most = f"at most {stderr_most:.2g} (of any value)"
    return f"{error}, {most}: 95% intervals reach {reach} to {1.96 * stderr_most:.2g} to each side"


def _domain(task: Task, data: dict[str, Any]) -> str:
    if task.task.kind == "number":
        return f"whole numbers from 0 to {task.task.highest:,}; others are refused"
    if task.task.kind == "text":
        return "any text; candidates are needed to decode"
    if not data["oracle"]:
        return "the head list, once it is published"
    return f"{data['oracle']['k']} cells, {data['oracle']['name']}"
