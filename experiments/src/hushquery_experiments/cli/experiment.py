"""``hushquery experiment``: the experiments of the papers, measured again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit, progress, write_secret
from hushquery.cli.log_options import Columns, Format, TimeFormat, columns_of
from hushquery.errors import UsageError
from hushquery_experiments.cli.epochs import epochs

if TYPE_CHECKING:
    from hushquery_experiments.blender.law import Population

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


app.command()(epochs)


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
    time_format: TimeFormat = None,
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

    from hushquery.log import read_log
    from hushquery_experiments.korolova2009.page import as_page, as_text
    from hushquery_experiments.korolova2009.study import korolova2009 as run

    if log and (users is not None or seed is not None):
        raise UsageError("--users and --seed are of the synthetic log", fix="Leave them out, or leave out --log")
    if not log:
        _refuse_how_to_read(format, columns, time_format)
    values = _values_of_d(d)
    _check_folder(out)
    read = None
    if log:
        files: Any = log[0] if len(log) == 1 else log
        read = read_log(files, format=format, columns=columns_of(columns), time_format=time_format)
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

    from hushquery_experiments.local.page import as_page, as_text
    from hushquery_experiments.local.study import local as run

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


@app.command()
def blender(
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="F",
            help="8 to 16, fo, mc, m, ablation or all; may be repeated. By default all.",
        ),
    ] = None,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="The table of what each improvement brings; as --figure ablation.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(metavar="P", help="aol or yandex: whose law and parameters. By default both; with a log, aol."),
    ] = None,
    synth: Annotated[
        str | None, typer.Option(metavar="P", help="Measure on a synthetic log of this profile: aol, yandex, tiny.")
    ] = None,
    users: Annotated[int | None, typer.Option(metavar="N", help="How many users --synth makes.")] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="FILE", help="Measure on this log, one record of each user; may be repeated."),
    ] = None,
    format: Format = None,
    columns: Columns = None,
    time_format: TimeFormat = None,
    point: Annotated[bool, typer.Option("--point", help="One setting instead of figures; writes no files.")] = False,
    optin: Annotated[float | None, typer.Option(metavar="SHARE", help="With --point: who opts in.")] = None,
    epsilon: Annotated[float | None, typer.Option(metavar="E", help="With --point: of every user.")] = None,
    delta: Annotated[float | None, typer.Option(metavar="D", help="With --point: of every opt-in user.")] = None,
    head_size: Annotated[
        int | None, typer.Option("--head-size", metavar="M", help="With --point: records on the list.")
    ] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help="With --point: best, paper or printed.")] = None,
    through: Annotated[
        str | None,
        typer.Option(
            metavar="WAY",
            help="With --point: counts draws the counts of reports from their law, randomizers runs every client.",
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(metavar="N", help="Populations per setting; 8 for figures, 5 for a point.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of populations and noise.")] = _SEED,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to put page, data and results.json; experiment-blender by default."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Repeat the evaluation of BLENDER: some users opt in, everyone else reports privately, and both are blended.

        hushquery experiment blender
        hushquery experiment blender --figure 12 --profile aol --runs 4 --out quick/
        hushquery experiment blender --point --profile aol --optin 0.05 --epsilon 4 --delta 1e-5 --head-size 50

    Every figure and table of the paper and its parameter sweeps, the paper's algorithm and ours (best) side by side,
    against LDPMiner and PEM, with what the paper states beside what was measured; as a page with charts, and a CSV file
    for each figure. What a setting leaves out is taken from the paper's figure 10. Takes about ten minutes. Computed
    against the true records and marked NOT PUBLISHABLE. The default populations are laws that nobody is in; with --log
    the files are for your eyes only.
    """
    import json

    from hushquery_experiments.blender import study
    from hushquery_experiments.blender.page import as_page, as_text, point_text

    source = _Source(profile, synth, users, log, format, columns, time_format, seed)
    source.check()
    study.check_runs(8 if runs is None else runs, seed)
    own = {"optin": optin, "epsilon": epsilon, "delta": delta, "head_size": head_size, "mode": mode, "through": through}
    given = {name: value for name, value in own.items() if value is not None}
    if point:
        if figure or ablation or out is not None:
            raise UsageError("--point is one setting, without figures and files", fix="Leave out --figure and --out")
        setting = study.whole_setting(profile or "aol", given)
        found = study.blender_point(source.population(), runs=5 if runs is None else runs, seed=seed, **setting)
        result = found.to_json()
        emit(result, point_text(result), as_json=as_json)
        return
    if given:
        name = next(iter(given)).replace("_", "-")
        raise UsageError(
            f"--{name} is of one setting", why="figures have their own", fix="Give --point, or no such option"
        )
    wanted = [*(figure or ()), *(["ablation"] if ablation else [])] or ["all"]
    study.chosen_figures(wanted, log=source.is_log)
    folder = out or Path("experiment-blender")
    _check_folder(folder, study.CSV_FILES.values())
    with progress("experiment blender", 1.0) as (bar, task):
        measured = study.blender(
            figures=wanted,
            profile=profile,
            population=source.population() if source.is_log else None,
            synthetic=synth is not None,
            runs=8 if runs is None else runs,
            seed=seed,
            progress=lambda what, done: bar.update(task, completed=done, description=what),
        )
    data = measured.to_json()
    texts = {_PAGE: as_page(data), _RESULTS: json.dumps(data, indent=1) + "\n", **study.csv_files(data)}
    page = _write(folder, texts, secret=bool(log))
    emit(data | {"page": str(page)}, f"{as_text(data)}\n\nopen {page}", as_json=as_json)


def _refuse_how_to_read(*how: Any) -> None:
    if any(one is not None for one in how):
        raise UsageError(
            "--format, --columns and --time-format say how to read --log", fix="Give --log, or leave them out"
        )


@dataclass(frozen=True)
class _Source:
    """Whose searches are measured: a profile's law, a synthetic log, or a log."""

    profile: str | None
    synth: str | None
    users: int | None
    log: list[str] | None
    format: str | None
    columns: list[str] | None
    time_format: str | None
    seed: int

    @property
    def is_log(self) -> bool:
        return bool(self.synth or self.log)

    def check(self) -> None:
        """Refuse what can't be read, before anything long is done."""
        from hushquery.log.synthetic.logs import MOST_USERS, PROFILE_NAMES
        from hushquery_experiments.blender.law import PROFILES

        for option, name, known in (("--profile", self.profile, PROFILES), ("--synth", self.synth, PROFILE_NAMES)):
            if name is not None and name not in known:
                raise UsageError(f"{option} has no profile {name!r}", fix=f"Give one of {', '.join(known)}")
        if self.synth and self.log:
            raise UsageError("--synth and --log are two populations", fix="Give one of them")
        if self.users is not None and (not self.synth or not 100 <= self.users <= MOST_USERS):
            raise UsageError(
                "--users is the size of a --synth log", fix=f"Give --synth, and a number from 100 to {MOST_USERS:,}"
            )
        if not self.log:
            _refuse_how_to_read(self.format, self.columns, self.time_format)

    def population(self) -> Population:
        from hushquery.log import read_log
        from hushquery_experiments.blender.law import PROFILES, LogPopulation

        if self.synth:
            users = self.users or PROFILES.get(self.synth, PROFILES["aol"]).users
            return LogPopulation.synthetic(self.synth, users, self.seed)
        if self.log:
            files: Any = self.log[0] if len(self.log) == 1 else self.log
            names = columns_of(self.columns)
            read = read_log(files, format=self.format, columns=names, time_format=self.time_format)
            read.check_files()
            return LogPopulation.of_log(read, "the log that was given", self.seed)
        return PROFILES[self.profile or "aol"]


def _values_of_d(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError("--d is no list of whole numbers", fix="Write it like --d 1,5,20") from None


def _check_folder(out: Path, more: Collection[str] = ()) -> None:
    """Refuse to write among files that an experiment did not make; ``more`` are files of this one."""
    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or not there <= {_PAGE, _RESULTS, *more}:
        raise UsageError(f"{out} exists and is not what an experiment made", fix="Give another --out")


def _write(out: Path, files: dict[str, Any], *, secret: bool) -> Path:
    """Write the files; those of a real log for their owner only."""
    try:
        out.mkdir(mode=0o700 if secret else 0o777, parents=True, exist_ok=True)
        if secret:
            out.chmod(0o700)  # it may have been there
        for name, text in files.items():
            if secret:
                write_secret(out / name, text)
            else:
                (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the results can't be written to {out}",
            why=error.strerror or type(error).__name__,
            fix="Give a folder where you may write",
        ) from None
    return out / _PAGE
