"""``hushquery blend``: one release out of what opt-in users and clients say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, NewPopulation, emit, may_be_new, named, progress, sizes_in_words
from hushquery.cli.head import Epoch, LedgerOption
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.release import Release
    from hushquery.task import Task

__all__ = ["blend"]


def blend(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the release. It must not exist.")],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="HEAD EST", help="What `hushquery head` and `hushquery estimate --out` wrote."),
    ] = None,
    robust: Annotated[
        bool, typer.Option("--robust", help="Where opt-in users search differently, fall back toward the clients.")
    ] = False,
    level: Annotated[float, typer.Option(metavar="P", help="The coverage of the intervals.")] = 0.95,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="LOG",
            help="Instead of folders: a log whose users are split, all clients simulated.",
            show_default=False,
        ),
    ] = None,
    optin: Annotated[
        str, typer.Option(metavar="SHARE", help="With --simulate: the share of users who opt in.")
    ] = "0.05",
    task: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --simulate: the task; else one of the next options.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="E", help="With --simulate: of both populations, each; 4 by default.")
    ] = None,
    delta: Annotated[
        str | None, typer.Option(metavar="D", help="With --simulate: of the opt-in users; 1e-5 by default.")
    ] = None,
    head_size: Annotated[
        int | None, typer.Option(min=1, metavar="M", help="With --simulate: the most records; 50 by default.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="With --simulate: best, or paper; best by default.")
    ] = None,
    population: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --simulate and without a task: whose log it is, and whose budget."),
    ] = None,
    new_population: NewPopulation = False,
    epoch: Epoch = None,
    ledger: LedgerOption = "ledger.db",
    force: Annotated[bool, typer.Option("--force", help="Replace an older release at --out.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Blend the opt-in users' and the clients' estimates of a head list into one release.

        hushquery blend head/ est/ --out release/
        hushquery blend --simulate log.parquet --optin 0.05 --epsilon 4 --delta 1e-5 --head-size 50 \
            --population readers --out release/

    Each record's two shares are weighted by how little they vary. Blending only looks at what is public, so it costs
    nothing; the release states what each of the two populations was promised.
    """
    from hushquery.release import check_target

    check_target(out, force)
    if not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Give for example 0.95")
    if (simulate is None) == (not folders):
        raise UsageError("give the folders HEAD and EST, or --simulate LOG", fix="See `hushquery blend --help`")
    if simulate is not None:
        given = {"epsilon": epsilon, "delta": delta, "head-size": head_size, "mode": mode, "population": population}
        asked = _asked(task, given, ledger)
        release = _simulated(simulate, asked, optin, ledger, epoch or 0, new=new_population, robust=robust, level=level)
    else:
        if len(folders or []) != 2:
            raise UsageError("give two folders: of the head list, and of the clients' estimate")
        release = _blended(*(folders or []), robust=robust, level=level)
    folder = release.save(out, force)
    sizes = {name: table.num_rows for name, table in release.tables.items()}
    emit(
        {
            "release": str(folder),
            "tables": sizes,
            "rest": release.manifest["parameters"]["rest"],
            "shift_p_value": release.manifest["parameters"]["shift_p_value"],
            "guarantees": [guarantee.to_json() for guarantee in release.guarantees],
        },
        "\n".join(
            [
                f"{folder}: " + sizes_in_words(sizes),
                *(guarantee.summary() for guarantee in release.guarantees),
                *release.manifest["notes"],
                f"open {folder / 'report.html'}",
            ]
        ),
        as_json=as_json,
    )


def _blended(head: Path, estimate: Path, *, robust: bool, level: float) -> Release:
    from hushquery.hybrid.published import PublishedHead
    from hushquery.hybrid.published import blend as blend_both
    from hushquery.local.server.estimate import ClientEstimate

    return blend_both(PublishedHead.load(head), ClientEstimate.load(estimate), robust=robust, level=level)


def _simulated(
    log: str, task: Task, optin: str, ledger: str, epoch: int, *, new: bool, robust: bool, level: float
) -> Release:
    from hushquery.hybrid.simulate import simulate
    from hushquery.log import read_log

    new = may_be_new(ledger, task.task.population, new=new)
    with progress("starting", 1.0) as (bar, line):
        made = simulate(
            read_log(log),
            task,
            optin,
            ledger,
            epoch=epoch,
            new_population=new,
            robust=robust,
            level=level,
            progress=lambda what, done: bar.update(line, description=what, completed=done),
        )
    return made.release


def _asked(path: Path | None, options: Mapping[str, Any], ledger: str) -> Task:
    """Read the task, or make one of the options."""
    from hushquery.task import Task

    given = [name for name, value in options.items() if value is not None]
    if path is not None:
        if given:
            raise UsageError(f"--{given[0]} and --task can't both be given", fix="The task says it: change it there")
        return Task.load(path)
    epsilon = options["epsilon"] or "4"
    return Task.make(
        {
            "task": {"name": "simulated", "population": named(options["population"], ledger)},
            "optin": {"epsilon": epsilon, "delta": options["delta"] or "1e-5"},
            "client": {"epsilon": epsilon, "lifetime_epsilon": epsilon, **_oracle(options["mode"])},
            "head": {"size": options["head-size"] or 50, "mode": options["mode"] or "best"},
        },
        source="what the options say",
    )


def _oracle(mode: str | None) -> dict[str, str]:
    """Paper mode has two-stage reports, of which the query gets the paper's 85% of epsilon."""
    return {"oracle": "two-stage", "query_share": "0.85"} if mode == "paper" else {}
