"""``hushquery experiment``: the experiments of the papers, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit, progress
from hushquery.cli.log_options import Columns, Format, pairs
from hushquery.errors import UsageError

__all__ = ["app"]

#: The commands under ``hushquery experiment``.
app = typer.Typer(
    name="experiment",
    help="Repeat the experiments of the papers. Never publish the results on a real log: they are computed against it.",
    no_args_is_help=True,
)

_PAGE, _RESULTS = "index.html", "results.json"
_USERS, _SEED = 65_000, 1


@app.callback()
def root() -> None:
    """Repeat the experiments of the papers."""


@app.command()
def korolova2009(
    users: Annotated[
        int | None, typer.Option(metavar="N", help=f"How many synthetic users; {_USERS:,} by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help=f"Of the synthetic log and its noise; {_SEED} by default.")
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", help="How often each setting draws its noise.")] = 2,
    d: Annotated[
        str, typer.Option("--d", metavar="D,...", help="Queries per user; by default the values of the paper's slides.")
    ] = "1,5,10,20,40,80,160",
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="FILE", help="Measure on this log instead of a synthetic one; may be repeated."),
    ] = None,
    format: Format = None,
    columns: Columns = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the page and results.json.")] = Path(
        "experiment-korolova2009"
    ),
    as_json: JsonFlag = False,
) -> None:
    r"""Measure how much of a log each selector publishes, and whether a release says what the log would have said.

        hushquery experiment korolova2009
        hushquery experiment korolova2009 --users 5000 --runs 1 --d 1,20,40 --out quick/

    Coverage against d, epsilon and delta for every selector, agreement of keywords and of human fears, as a table and a
    page with plots. Everything is computed against the true log and marked NOT PUBLISHABLE. On the synthetic log, which
    is the default, that harms nobody. On a log of yours (--log) the files are for your eyes only, and no budget is
    spent because nothing is released.
    """
    import json

    from hushquery.evaluate.experiments.korolova2009 import korolova2009 as run
    from hushquery.evaluate.experiments.korolova2009_page import as_page, as_text
    from hushquery.log import read_log

    if log and (users is not None or seed is not None):
        raise UsageError("--users and --seed are of the synthetic log", fix="Leave them out, or leave out --log")
    if not log and (format is not None or columns is not None):
        raise UsageError("--format and --columns say how to read --log", fix="Give --log, or leave them out")
    values = _values_of_d(d)
    _check_folder(out)
    read = None
    if log:
        read = read_log(log[0] if len(log) == 1 else log, format=format, columns=pairs(columns, "--columns"))
        read.check_files()
    with progress("experiment korolova2009", 1.0) as (bar, task):
        found = run(
            read,
            users=_USERS if users is None else users,
            seed=_SEED if seed is None else seed,
            runs=runs,
            queries_per_user=values,
            progress=lambda what, done: bar.update(task, completed=done, description=what),
        )
    data = found.to_json()
    page = _write(out, {_PAGE: as_page(data), _RESULTS: json.dumps(data, indent=1) + "\n"}, secret=not found.synthetic)
    emit(data | {"page": str(page)}, f"{as_text(data)}\n\nopen {page}", as_json=as_json)


@app.command()
def local(
    clients: Annotated[int, typer.Option(metavar="N", help="How many invented clients report in each run.")] = 20_000,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the clients and their noise.")] = _SEED,
    runs: Annotated[int, typer.Option(metavar="N", help="How often each setting is measured.")] = 20,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the page and results.json.")] = Path(
        "experiment-local"
    ),
    as_json: JsonFlag = False,
) -> None:
    r"""Measure the randomizers that clients run: their errors against theory, and attacks on what they send.

        hushquery experiment local
        hushquery experiment local --clients 2000 --runs 4 --out quick/

    Mean squared error of every frequency oracle for k = 51, 501 and 5001 and epsilon = 1 to 5; 1BitMean and dBitFlip
    against their bounds; averaging attacks on responses that are redrawn and on those that are kept; how many of the
    most frequent values PEM and LDPMiner find. As a table and a page with plots. All clients are invented, so the
    results may be published. Takes about a minute.
    """
    import json

    from hushquery.evaluate.experiments.local import local as run
    from hushquery.evaluate.experiments.local_page import as_page, as_text

    _check_folder(out)
    with progress("experiment local", 1.0) as (bar, task):
        found = run(
            clients=clients,
            seed=seed,
            runs=runs,
            progress=lambda what, done: bar.update(task, completed=done, description=what),
        )
    data = found.to_json()
    page = _write(out, {_PAGE: as_page(data), _RESULTS: json.dumps(data, indent=1) + "\n"}, secret=False)
    emit(data | {"page": str(page)}, f"{as_text(data)}\n\nopen {page}", as_json=as_json)


def _values_of_d(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError("--d is no list of whole numbers", fix="Write it like --d 1,5,20") from None


def _check_folder(out: Path) -> None:
    """Refuse to write among files that an experiment did not make."""
    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or not there <= {_PAGE, _RESULTS}:
        raise UsageError(f"{out} exists and is not what an experiment made", fix="Give another --out")


def _write(out: Path, files: dict[str, Any], *, secret: bool) -> Path:
    """Write the files; those of a real log for their owner only."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if secret:
            out.chmod(0o700)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the results can't be written to {out}",
            why=error.strerror or type(error).__name__,
            fix="Give a folder where you may write",
        ) from None
    return out / _PAGE
