"""``hushquery experiment``: the experiments of the papers, measured again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.common import (
    Columns,
    Format,
    JsonFlag,
    TimeFormat,
    columns_of,
    emit,
    flag,
    group,
    option,
    progress,
    takes_options,
    write_secret,
    writing,
)
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.log import Log
    from hushquery_experiments.blender.law import Population

#: The commands under ``hushquery experiment``.
app = group(
    "experiment",
    "Repeat the experiments of the papers. Never publish the results on a real log: they are computed against it.",
)

_PAGE, _RESULTS = "index.html", "results.json"
_USERS, _SEED = 65_000, 1


@app.callback()
def root() -> None:
    """Repeat the experiments of the papers."""


@dataclass(frozen=True)
class GivenLog:
    """The log that an experiment is measured on, where one is given."""

    log: Annotated[
        list[str] | None, option("FILE", "Measure on this log instead of a synthetic one; may be repeated.")
    ] = None
    format: Format = None
    columns: Columns = None
    time_format: TimeFormat = None

    def check(self) -> None:
        """Refuse how to read a log where there is none."""
        if not self.log and any(how is not None for how in (self.format, self.columns, self.time_format)):
            what = "--format, --columns and --time-format say how to read --log"
            raise UsageError(what, fix="Give --log, or leave them out")

    def read(self) -> Log | None:
        """Read the log, where there is one."""
        from hushquery.log import read_log

        if not self.log:
            return None
        files: Any = self.log[0] if len(self.log) == 1 else self.log
        log = read_log(files, format=self.format, columns=columns_of(self.columns), time_format=self.time_format)
        log.check_files()
        return log


@app.command()
def epochs(
    users: Annotated[int, option("N", "How many invented people there are in each epoch.")] = 300_000,
    epochs: Annotated[int, option("N", "How many epochs.", "--epochs")] = 12,
    moving: Annotated[
        float, option("P", "The chance that an opt-in user becomes a client; as many clients opt in.")
    ] = 0.05,
    changing: Annotated[
        float, option("P", "The chance that somebody has another record than in the last epoch.")
    ] = 0.2,
    runs: Annotated[int, option("N", "How many histories the intervals of changes are measured on.")] = 40,
    seed: Annotated[int, option("S", "Of the people and their noise.", min=0)] = 1,
    out: Annotated[Path, option("DIR", "Where to put the page and results.json.")] = Path("experiment-epochs"),
    as_json: JsonFlag = False,
) -> None:
    r"""Follow a task over many epochs: what a typical and a worst client lose in all, and how good each epoch is.

        hushquery experiment epochs
        hushquery experiment epochs --users 50000 --epochs 6 --runs 4 --out quick/

    People join, leave, move between the groups and change what they search for. The same people are followed with a
    head list that is made anew each period, kept for four periods, and kept all the time. Real plans, ledger and
    randomizers; all people are invented, so the results may be published. Takes about three minutes.
    """
    from hushquery_experiments.epochs import page
    from hushquery_experiments.epochs.study import epochs as run

    _check_folder(out)
    settings: dict[str, Any] = {"users": users, "epochs": epochs, "moving": moving, "changing": changing}
    with progress("experiment epochs", 1.0) as show:
        results = run(**settings, runs=runs, seed=seed, progress=show)
    _emit(page, results.to_json(), out, as_json)


@app.command()
@takes_options
def korolova2009(
    *,
    users: Annotated[int | None, option("N", f"How many synthetic users; {_USERS:,} by default.")] = None,
    seed: Annotated[int | None, option("S", f"Of the synthetic log and its noise; {_SEED} by default.")] = None,
    runs: Annotated[int, option("N", "How often each setting draws its noise.")] = 2,
    d: Annotated[
        str, option("D,...", "Queries per user; by default the values of the paper's slides.", "--d")
    ] = "1,5,10,20,40,80,160",
    given: GivenLog,
    out: Annotated[Path, option("DIR", "Where to put the page and results.json.")] = Path("experiment-korolova2009"),
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
    from hushquery_experiments.korolova2009 import page
    from hushquery_experiments.korolova2009.study import korolova2009 as run

    if given.log and (users is not None or seed is not None):
        raise UsageError("--users and --seed are of the synthetic log", fix="Leave them out, or leave out --log")
    given.check()
    values = _values_of_d(d)
    _check_folder(out)
    log, users, seed = given.read(), _USERS if users is None else users, _SEED if seed is None else seed
    with progress("experiment korolova2009", 1.0) as show:
        results = run(log, users=users, seed=seed, runs=runs, queries_per_user=values, progress=show)
    _emit(page, results.to_json(), out, as_json, secret=not results.synthetic)


@app.command()
def local(
    clients: Annotated[int, option("N", "How many invented clients report in each run.")] = 20_000,
    seed: Annotated[int, option("S", "Of the clients and their noise.")] = _SEED,
    runs: Annotated[int, option("N", "How often each setting is measured.")] = 20,
    out: Annotated[Path, option("DIR", "Where to put the page and results.json.")] = Path("experiment-local"),
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
    from hushquery_experiments.local import page
    from hushquery_experiments.local.study import local as run

    _check_folder(out)
    with progress("experiment local", 1.0) as show:
        results = run(clients=clients, seed=seed, runs=runs, progress=show)
    _emit(page, results.to_json(), out, as_json)


@dataclass(frozen=True)
class Invented:
    """The invented people whose searches are measured: a profile's law, or a synthetic log."""

    profile: Annotated[
        str | None, option("P", "aol or yandex: whose law and parameters. By default both; with a log, aol.")
    ] = None
    synth: Annotated[str | None, option("P", "Measure on a synthetic log of this profile: aol, yandex, tiny.")] = None
    users: Annotated[int | None, option("N", "How many users --synth makes.")] = None

    def check(self, given: GivenLog) -> None:
        """Refuse what can't be read, before anything long is done."""
        from hushquery.log.synthetic.logs import MOST_USERS, PROFILE_NAMES
        from hushquery_experiments.blender.law import PROFILES

        for which, name, known in (("--profile", self.profile, PROFILES), ("--synth", self.synth, PROFILE_NAMES)):
            if name is not None and name not in known:
                raise UsageError(f"{which} has no profile {name!r}", fix=f"Give one of {', '.join(known)}")
        if self.synth and given.log:
            raise UsageError("--synth and --log are two populations", fix="Give one of them")
        if self.users is not None and (not self.synth or not 100 <= self.users <= MOST_USERS):
            fix = f"Give --synth, and a number from 100 to {MOST_USERS:,}"
            raise UsageError("--users is the size of a --synth log", fix=fix)
        given.check()

    def population(self, given: GivenLog, seed: int) -> Population:
        """Return whose searches are measured: those of the log that is given, else invented ones."""
        from hushquery_experiments.blender.law import PROFILES, LogPopulation

        if self.synth:
            users = self.users or PROFILES.get(self.synth, PROFILES["aol"]).users
            return LogPopulation.synthetic(self.synth, users, seed)
        log = given.read()
        if log is not None:
            return LogPopulation.of_log(log, "the log that was given", seed)
        return PROFILES[self.profile or "aol"]


@dataclass(frozen=True)
class Setting:
    """One setting of BLENDER; what is left out is taken from the paper's figure 10."""

    optin: Annotated[float | None, option("SHARE", "With --point: who opts in.")] = None
    epsilon: Annotated[float | None, option("E", "With --point: of every user.")] = None
    delta: Annotated[float | None, option("D", "With --point: of every opt-in user.")] = None
    head_size: Annotated[int | None, option("M", "With --point: records on the list.", "--head-size")] = None
    mode: Annotated[str | None, option("MODE", "With --point: best, paper or printed.")] = None
    through: Annotated[
        str | None,
        option(
            "WAY", "With --point: counts draws the counts of reports from their law, randomizers runs every client."
        ),
    ] = None


@app.command()
@takes_options
def blender(
    *,
    figure: Annotated[
        list[str] | None,
        option("F", "8 to 16, fo, mc, m, ablation or all; may be repeated. By default all.", "--figure"),
    ] = None,
    ablation: Annotated[
        bool, flag("--ablation", "The table of what each improvement brings; as --figure ablation.")
    ] = False,
    invented: Invented,
    given: GivenLog,
    point: Annotated[bool, flag("--point", "One setting instead of figures; writes no files.")] = False,
    setting: Setting,
    runs: Annotated[int | None, option("N", "Populations per setting; 8 for figures, 5 for a point.")] = None,
    seed: Annotated[int, option("S", "Of populations and noise.")] = _SEED,
    out: Annotated[
        Path | None, option("DIR", "Where to put page, data and results.json; experiment-blender by default.")
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
    from hushquery_experiments.blender import page, study

    invented.check(given)
    study.check_runs(8 if runs is None else runs, seed)
    is_log = bool(invented.synth or given.log)
    chosen = {name: value for name, value in vars(setting).items() if value is not None}
    if point:
        if figure or ablation or out is not None:
            raise UsageError("--point is one setting, without figures and files", fix="Leave out --figure and --out")
        whole = study.whole_setting(invented.profile or "aol", chosen)
        people = invented.population(given, seed)
        result = study.blender_point(people, runs=5 if runs is None else runs, seed=seed, **whole).to_json()
        emit(result, page.point_text(result), as_json)
        return
    if chosen:
        what = f"--{next(iter(chosen)).replace('_', '-')} is of one setting"
        raise UsageError(what, why="figures have their own", fix="Give --point, or no such option")
    wanted = [*(figure or ()), *(["ablation"] if ablation else [])] or ["all"]
    study.chosen_figures(wanted, log=is_log)
    folder = out or Path("experiment-blender")
    _check_folder(folder, study.CSV_FILES.values())
    with progress("experiment blender", 1.0) as show:
        results = study.blender(
            figures=wanted,
            profile=invented.profile,
            population=invented.population(given, seed) if is_log else None,
            synthetic=invented.synth is not None,
            runs=8 if runs is None else runs,
            seed=seed,
            progress=show,
        )
    data = results.to_json()
    _emit(page, data, folder, as_json, secret=bool(given.log), more=study.csv_files(data))


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


def _emit(
    page: ModuleType,
    data: dict[str, Any],
    out: Path,
    as_json: bool,
    *,
    secret: bool = False,
    more: Mapping[str, str] | None = None,
) -> None:
    """Write an experiment's page, results and other files, and print its tables."""
    import json

    from hushquery_experiments.page import as_html

    files = {_PAGE: as_html(page.page(data)), _RESULTS: json.dumps(data, indent=1) + "\n", **(more or {})}
    path = _write(out, files, secret=secret)
    emit(data | {"page": str(path)}, f"{page.as_text(data)}\n\nopen {path}", as_json)


def _write(out: Path, files: Mapping[str, str], *, secret: bool) -> Path:
    """Write the files; those of a real log for their owner only."""
    with writing(out):
        out.mkdir(mode=0o700 if secret else 0o777, parents=True, exist_ok=True)
        if secret:
            out.chmod(0o700)  # it may have been there
        for name, text in files.items():
            if secret:
                write_secret(out / name, text)
            else:
                (out / name).write_text(text, encoding="utf-8")
    return out / _PAGE
