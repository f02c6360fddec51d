"""``hushquery report``, ``randomize`` and ``estimate``: send a client's value, only randomise it, and estimate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hushquery.cli.common import JsonFlag, argument, emit, flag, note, option, progress, read_texts
from hushquery.errors import DataError, NotReady, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushquery.local.device.client import Client, Reportable
    from hushquery.task import Task

TaskFile = Annotated[Path, option("FILE", "The task file.")]
HeadFile = Annotated[
    Path | None,
    option(
        "PATH",
        "The head list, for a task without a domain: a JSON list of lists of a query and a URL, or the folder "
        "of the published list.",
    ),
]
# More digits than the number of any period, or than any bound of a task has.
_DIGITS_OF_PERIOD, _DIGITS_OF_VALUE = 15, 20


def randomize(
    task: TaskFile,
    value: Annotated[
        list[str] | None,
        argument(
            "VALUE...",
            "The query, the value of the setting, the number or the text; as many as the task has "
            "records_per_user, or fewer. - reads a line of standard input, where other users of the machine can't see "
            "it.",
        ),
    ] = None,
    state: Annotated[Path, option("FILE", "What the clients remember.")] = Path("client.db"),
    client: Annotated[str, option("ID", "Which client of the state file; never sent.")] = "default",
    url: Annotated[
        list[str] | None,
        option("URL", 'The clicked URL, for searches. With several values one for each, in their order; "" for none.'),
    ] = None,
    head: HeadFile = None,
    nothing: Annotated[bool, flag("--nothing", "Report that there is nothing to report.")] = False,
    outbox: Annotated[bool, flag("--outbox", "List the reports that were not sent yet.")] = False,
    account: Annotated[bool, flag("--account", "Show what the client has lost so far.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Randomise a value and print the report, the only thing that may leave the device.

    The first report of a period is kept in the state file; asking again prints the same bytes. A new value costs the
    task's epsilon, a repeated one nothing, and after the lifetime budget reports say nothing. A task with several
    records per user gets all its reports at once: how many values there are is private, so the rest say nothing.

        hushquery task new --kind setting --out task.toml
        hushquery randomize --task task.toml --state client.db --client laptop dark
        hushquery randomize --task task.toml --state client.db --client laptop --outbox
        hushquery randomize --task searches.toml --head head/ news --url https://news.example maps --url ""
    """
    from hushquery.local.configuration import read_head
    from hushquery.local.device.client import Client
    from hushquery.task import Task

    if sum((bool(value), nothing, outbox, account)) != 1:
        raise UsageError("give a VALUE, or one of --nothing, --outbox and --account")
    one = Client(Task.load(task), state, client, head=None if head is None else read_head(head))
    if outbox:
        waiting = one.outbox()
        texts = "\n".join(report.to_text() for report in waiting)
        emit({"outbox": [report.to_json() for report in waiting]}, texts or "nothing waits to be sent", as_json)
    elif account:
        lost = one.account()
        spent = f"epsilon {float(lost.spent):.4g} of {float(lost.lifetime):.4g} spent on {len(lost.entries)} answers"
        emit(lost.to_json(), f"{spent}; it {lost.claim}.", as_json)
    else:
        values = [_read(_line() if text == "-" else text, one.task) for text in value or []]
        _report(one, _records(values, url or []), as_json)


def report(
    server: Annotated[str, argument("SERVER", "The collector's address, such as https://collect.example.org.")],
    value: Annotated[
        str,
        argument("VALUE", "The query, the value of the setting, the number or the text; - reads a line of input."),
    ],
    task: Annotated[str, option("ID", "The task's id: `hushquery task id FILE` prints it.")] = "",
    url: Annotated[str | None, option("URL", "The clicked URL, for searches.")] = None,
    state: Annotated[
        Path | None, option("FILE", "What the client remembers; by default a file of this person.")
    ] = None,
    client: Annotated[str, option("ID", "Which client of the state file; never sent.")] = "default",
    wait: Annotated[float, option("SECONDS", "Keep trying for so long, where the collector does not answer.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    r"""Randomise a value and send it to a collector: one answer per period, the same bytes until they are taken.

    The task is fetched and must be the one of this id. Other users of the machine can see the words of a command: give
    a value that is private as -, and on standard input.

        hushquery report https://collect.example.org dark --task "$(hushquery task id task.toml)"
        hushquery report https://collect.example.org - --task 63caf... < value.txt
    """
    from hushquery.local.device.reporting import report as send

    text = _line() if value == "-" else value
    done = send(
        server, text if url is None else (text, url), task=task or None, state=state, client_id=client, wait=wait
    )
    cost, left = float(done.cost), float(done.left)
    spent = f"this call cost epsilon {cost:.4g}; {left:.4g} of {float(done.lifetime):.4g} are left for this device"
    emit(done.to_json(), f"{_OUTCOMES[done.outcome]}\n{spent}", as_json)
    if done.outcome in ("later", "refused"):
        raise typer.Exit(NotReady.exit_code if done.outcome == "later" else DataError.exit_code)


_OUTCOMES = {
    "stored": "sent, and on the collector's disk",
    "before": "nothing to send: the report of this period was delivered before, and the first value decides",
    "later": "the collector did not take it; it is kept, and the next call sends the same bytes",
    "refused": "the collector refused it for good; ask the operator",
    "none": "nothing to send: the task is switched off, or its sampling leaves this device out",
}


def _line() -> str:
    # What is no UTF-8, or longer than any value, is just an unknown value.
    return sys.stdin.buffer.readline(1 << 16).decode("utf-8", "replace").rstrip("\r\n")


def _records(values: Sequence[str | int], urls: Sequence[str]) -> list[Reportable]:
    if not urls:
        return list(values)
    if len(urls) != len(values):
        fix = 'Give one for each, in their order, and --url "" for none'
        raise UsageError("there are not as many --url as values", fix=fix)
    return list(zip(values, urls, strict=True))


def _read(value: str, task: Task) -> str | int:
    """Return a value as its task wants it: digits are a number where one is collected."""
    if task.task.kind != "number":
        return value
    digits = value.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_OF_VALUE:
        raise UsageError("the value is no whole number from 0 on", fix="Round it on the device, and give its digits")
    return int(digits)


def _report(client: Client, records: Sequence[Reportable], as_json: bool) -> None:
    """Print the reports of some records; note what became of these, only of what was typed, never of what is kept."""
    from hushquery.task.domain import WILDCARD, Domain

    enabled = client.task.client.enabled
    again = enabled and client.has_reported()
    reports = client.reports(records)
    if not reports:
        why = "the task's sampling leaves this client out in this period" if enabled else "the task is switched off"
        if as_json:
            emit({"reports": [], "why": why}, "", as_json)
        else:
            note(f"nothing to send, {why}")
        return
    space = client.configuration.space
    pairs = [record if isinstance(record, tuple) else (record, None) for record in records]
    if isinstance(space, Domain) and not all(space.lists(str(value), url) for value, url in pairs):
        which = "the value is" if len(pairs) == 1 else "some of the values are"
        # A first report of a value that the task refuses has failed before.
        then = "" if again else f", and reported as {WILDCARD}, everything else"
        note(f"{which} not on the task's list{then}")
    if again:
        once = "this task" if client.task.task.period is None else "this period of the task"
        note(
            f"this client has reported in {once} before, and the first value decides: "
            "this is the same report again, whatever was given now"
        )
    data = {"reports": [{"report": report.to_json(), "bytes": report.to_text()} for report in reports]}
    emit(data, "\n".join(report.to_text() for report in reports), as_json)


def estimate(
    reports: Annotated[
        list[str],
        argument(
            "REPORTS...",
            "Files with a report on each line (base64url or JSON, also .gz), or Parquet with a binary column "
            "called report. On Spark also addresses that it reads, such as s3a://bucket/reports/.",
        ),
    ],
    task: TaskFile,
    head: HeadFile = None,
    candidates: Annotated[Path | None, option("FILE", "For a task of texts: what to look for, one per line.")] = None,
    post: Annotated[
        str | None,
        option(
            "NAME",
            "clip: cut at what can't be. norm-sub: shift all shares alike and cut at zero so that they sum to 1; "
            "intervals are cut at 0 and 1. simplex: the nearest shares that sum to 1, which is the same. Without it "
            "estimates are raw and unbiased.",
        ),
    ] = None,
    epoch: Annotated[
        str | None,
        option(
            "N",
            "For a task with a period: the number of the one to count, time / period rounded down; others are "
            "refused. By default the one that most reports are from. all: every one, at the sum of their epsilons.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        option(
            "URL",
            "Count Parquet on Spark: spark (a local session) or spark://host:port. Here by default; the numbers "
            "are the same. Every worker must be able to read the files and needs hushquery in its Python.",
        ),
    ] = None,
    level: Annotated[float, option("P", "The coverage of each interval.")] = 0.95,
    strict: Annotated[bool, flag("--strict", "Refuse everything if one report is bad.")] = False,
    out: Annotated[
        Path | None, option("DIR", "Also save a release: tables, guarantee, data card and page in a new folder.")
    ] = None,
    force: Annotated[bool, flag("--force", "Replace an older release at --out.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Estimate from the reports of clients how many of them hold what.

    Each report is checked and counted once. Bad ones are counted by kind and left out, and nothing is estimated from
    fewer good ones than the task's min_batch. Raw estimates may be negative; sums and averages should start from them.
    Of a task with a period one period is counted, so the guarantee is that of one period's answers. The folder of --out
    is a release: `hushquery show`, `verify` and `export` read it.

        hushquery estimate reports.txt --task task.toml --epoch 2940
        hushquery estimate reports.parquet --task task.toml --head head/ --post norm-sub --out est/
        hushquery estimate reports.txt.gz --task names.toml --candidates names.txt --json
        hushquery estimate reports/*.parquet --task task.toml --head head/ --engine spark://master:7077
    """
    from hushquery.local.configuration import read_head
    from hushquery.local.server.estimate import check_post
    from hushquery.local.server.estimate import estimate as estimated
    from hushquery.release import check_target
    from hushquery.task import Task

    if out is not None:
        check_target(out, force)
    agreed, texts = Task.load(task), read_texts(candidates)
    with progress("counting reports") as show:
        result = estimated(
            agreed,
            [Path(name) for name in reports] if engine is None else reports,
            head=None if head is None else read_head(head),
            period=_period(epoch),
            level=level,
            post=None if post is None else check_post(post),
            candidates=texts,
            strict=strict,
            engine=engine,
            progress=lambda read: show(f"counting reports: {read:,}"),
        )
    lines = [str(result)]
    if out is not None:
        lines.append(f"open {result.save(out, force) / 'report.html'}")
    emit(result.to_json(), "\n".join(lines), as_json)


def _period(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return None if text is None else "all"
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_OF_PERIOD:
        raise UsageError("--epoch is the number of a period, or all", fix="Leave it out to count the fullest one")
    return int(text)
