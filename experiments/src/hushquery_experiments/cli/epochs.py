"""``hushquery experiment epochs``: a task over many epochs, and what it costs people in all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushquery.cli.common import JsonFlag, emit, progress
from hushquery.errors import UsageError

__all__ = ["epochs"]

_PAGE, _RESULTS = "index.html", "results.json"


def epochs(
    users: Annotated[
        int, typer.Option(metavar="N", help="How many invented people there are in each epoch.")
    ] = 300_000,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="How many epochs.")] = 12,
    moving: Annotated[
        float,
        typer.Option(metavar="P", help="The chance that an opt-in user becomes a client; as many clients opt in."),
    ] = 0.05,
    changing: Annotated[
        float, typer.Option(metavar="P", help="The chance that somebody has another record than in the last epoch.")
    ] = 0.2,
    runs: Annotated[
        int, typer.Option(metavar="N", help="How many histories the intervals of changes are measured on.")
    ] = 40,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Of the people and their noise.")] = 1,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the page and results.json.")] = Path(
        "experiment-epochs"
    ),
    as_json: JsonFlag = False,
) -> None:
    r"""Follow a task over many epochs: what a typical and a worst client lose in all, and how good each epoch is.

        hushquery experiment epochs
        hushquery experiment epochs --users 50000 --epochs 6 --runs 4 --out quick/

    People join, leave, move between the groups and change what they search for. The same people are followed with a
    head list that is made anew each period, kept for four periods, and kept all the time. Real plans, ledger and
    randomizers; all people are invented, so the results may be published. Takes about three minutes.
    """
    import json

    from hushquery_experiments.epochs.page import as_page, as_text
    from hushquery_experiments.epochs.study import epochs as run

    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or not there <= {_PAGE, _RESULTS}:
        raise UsageError(f"{out} exists and is not what an experiment made", fix="Give another --out")
    with progress("experiment epochs", 1.0) as (bar, line):
        found = run(
            users=users,
            epochs=epochs,
            moving=moving,
            changing=changing,
            runs=runs,
            seed=seed,
            progress=lambda what, done: bar.update(line, completed=done, description=what),
        )
    data = found.to_json()
    files = {_PAGE: as_page(data), _RESULTS: json.dumps(data, indent=1) + "\n"}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the results can't be written to {out}",
            why=error.strerror or type(error).__name__,
            fix="Give a folder where you may write",
        ) from None
    emit(data | {"page": str(out / _PAGE)}, f"{as_text(data)}\n\nopen {out / _PAGE}", as_json=as_json)
