"""``hushquery estimate``: from the reports of clients to a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hushquery.cli.common import JsonFlag, emit, progress
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["estimate"]

# More digits than the number of any period has.
_MOST_DIGITS = 15


def estimate(
    reports: Annotated[
        list[str],
        typer.Argument(
            metavar="REPORTS...",
            help="Files with a report on each line (base64url or JSON, also .gz), or Parquet with a binary column "
            "called report. On Spark also addresses that it reads, such as s3a://bucket/reports/.",
        ),
    ],
    task: Annotated[Path, typer.Option(metavar="FILE", help="The task file.", show_default=False)],
    head: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The head list, for a task without a domain: a JSON list of lists of a query and a URL, or the folder "
            "of the published list.",
            show_default=False,
        ),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For a task of texts: what to look for, one per line.", show_default=False),
    ] = None,
    post: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="clip: cut at what can't be. norm-sub: shift all shares alike and cut at zero so that they sum to 1; "
            "intervals are cut at 0 and 1. simplex: the nearest shares that sum to 1, which is the same. Without it "
            "estimates are raw and unbiased.",
            show_default=False,
        ),
    ] = None,
    epoch: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="For a task with a period: the number of the one to count, time / period rounded down; others are "
            "refused. By default the one that most reports are from. all: every one, at the sum of their epsilons.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Count Parquet on Spark: spark (a local session) or spark://host:port. Here by default; the numbers "
            "are the same. Every worker must be able to read the files and needs hushquery in its Python.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="The coverage of each interval.")] = 0.95,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse everything if one report is bad.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also write estimates.parquet and estimates.json into a new folder.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Estimate from the reports of clients how many of them hold what.

    Each report is checked and counted once. Bad ones are counted by kind and left out, and nothing is estimated from
    fewer good ones than the task's min_batch. Raw estimates may be negative; sums and averages should start from them.
    Of a task with a period one period is counted, so the guarantee is that of one period's answers.

        hushquery estimate reports.txt --task task.toml --epoch 2940
        hushquery estimate reports.parquet --task task.toml --head head/ --post norm-sub --out est/
        hushquery estimate reports.txt.gz --task names.toml --candidates names.txt --json
        hushquery estimate reports/*.parquet --task task.toml --head head/ --engine spark://master:7077
    """
    from hushquery.local.configuration import read_head
    from hushquery.local.server.estimate import check_post, new_folder
    from hushquery.local.server.estimate import estimate as estimated
    from hushquery.task import Task

    if out is not None:
        new_folder(out)
    asked = Task.load(task)
    texts: Iterable[str] | None = None
    if candidates is not None:
        from hushquery.local.rappor.files import read_lines

        texts = [line for line in read_lines(candidates) if line]
    with progress("counting reports") as (bar, counting):
        found = estimated(
            asked,
            [Path(name) for name in reports] if engine is None else reports,
            head=None if head is None else read_head(head),
            period=_period(epoch),
            level=level,
            post=None if post is None else check_post(post),
            candidates=texts,
            strict=strict,
            engine=engine,
            progress=lambda read: bar.update(counting, description=f"counting reports: {read:,}"),
        )
    if out is not None:
        found.save(out)
    emit(found.to_json(), str(found), as_json=as_json)


def _period(text: str | None) -> int | Literal["all"] | None:
    if text is None:
        return None
    if text == "all":
        return "all"
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise UsageError("--epoch is the number of a period, or all", fix="Leave it out to count the fullest one")
    return int(text)
