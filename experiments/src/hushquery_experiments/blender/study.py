"""The evaluation of BLENDER (Avent et al. 2017), measured again: every figure, its sweeps, and what ``best`` adds.

A population of searches and clicks is divided into opt-in users and clients, the whole pipeline runs on it, and the
list that comes out is compared with the truth. Everything is computed against the true records and marked so. The
profiles are laws that nobody is in; with a log of one's own, the same figures are about that log.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

from hushquery.errors import UsageError
from hushquery_experiments.blender.figures import FIGURES, LISTS_OF_12, Measurer, Study, jobs_of
from hushquery_experiments.blender.law import PROFILES, Population, PowerLaw
from hushquery_experiments.blender.paper import PARAMETERS, Row, beside, reached, where
from hushquery_experiments.blender.reports import Through
from hushquery_experiments.blender.run import Mode, PointMeans, run_points
from hushquery_experiments.page import Claim, made_at
from hushquery_experiments.unpublishable import NotPublishable

__all__ = [
    "CSV_FILES",
    "MOST_RUNS",
    "BlenderExperiment",
    "blender",
    "blender_point",
    "check_claims",
    "check_point",
    "check_runs",
    "chosen_figures",
    "csv_files",
    "whole_setting",
]

#: The file that holds the data of each figure.
CSV_FILES = {name: "ablation.csv" if name == "ablation" else f"figure-{name}.csv" for name in FIGURES}
#: The most runs of a setting.
MOST_RUNS = 1000

_LEAST_EPSILON, _MOST_EPSILON = 0.001, 100.0
_LEAST_NDCG, _MOST_L1, _TIMES_BETTER = 0.99, 0.01, 3.0

Progress = Callable[[str, float], None]


@dataclass(frozen=True, repr=False)
class BlenderExperiment(NotPublishable):
    """Everything that was measured.

    Attributes:
        settings: What was asked for, and when.
        figures: The rows of each figure.
        paper: What the paper states, and what was measured here.
        claims: What had to be shown.
    """

    settings: Mapping[str, Any]
    figures: Mapping[str, Sequence[Row]]
    paper: Sequence[Mapping[str, str]]
    claims: tuple[Claim, ...]

    def __repr__(self) -> str:
        return f"BlenderExperiment(figures {', '.join(self.figures)}; not publishable)"


def blender(
    *,
    figures: Sequence[str] = ("all",),
    profile: str | None = None,
    population: Population | None = None,
    synthetic: bool = False,
    runs: int = 5,
    seed: int = 1,
    progress: Progress | None = None,
) -> BlenderExperiment:
    """Measure figures.

    Args:
        figures: Their names, or ``all``.
        profile: ``aol`` or ``yandex``; both by default. For another population: whose parameters to use.
        population: A log, or another law, instead of the profile's.
        synthetic: Whether that log is synthetic, so that nobody is in it.
        runs: How many populations are drawn for each setting; twice as many in figure 12.
        seed: Of populations and noise.
        progress: Called with what is done next and the fraction that is done.
    """
    check_runs(runs, seed)
    names = chosen_figures(figures, log=population is not None and not isinstance(population, PowerLaw))
    if profile is not None and profile not in PROFILES:
        raise UsageError(f"no profile is called {profile!r}", fix=f"Give one of {', '.join(PROFILES)}")
    studies = [Study(name, PROFILES[name]) for name in ([profile] if profile else PROFILES)]
    if population is not None:
        studies = [Study(profile or "aol", population)]
    tell, began = progress or (lambda *_: None), datetime.now(UTC)
    tell("drawing populations", 0.0)
    measurer = Measurer(runs, seed)
    jobs = [job for name in names for study in studies for job in jobs_of(name, study, measurer)]
    found = measurer.run(jobs, tell)
    law = isinstance(studies[0].population, PowerLaw)  # nobody is in it
    settings = {
        "experiment": "blender",
        "log": "synthetic" if law or synthetic else "given",
        "figures": list(names),
        "profiles": [study.profile for study in studies],
        "populations": [study.population.name for study in studies],
        "users": [study.population.users for study in studies],
        "law": law,
        "runs": runs,
        "seed": seed,
        **made_at(began),
    }
    return BlenderExperiment(settings, found, beside(found), check_claims(found) if population is None else ())


def blender_point(
    population: Population,
    *,
    optin: float,
    epsilon: float,
    delta: float,
    head_size: int,
    mode: Mode = "best",
    runs: int = 5,
    seed: int = 1,
    through: Through = "counts",
    **ways: Any,
) -> PointMeans:
    """Measure one setting.

    Args:
        population: A profile's law, or a log.
        optin: The share of users who opt in.
        epsilon: Of each opt-in user and of each client.
        delta: Of each opt-in user.
        head_size: M.
        mode: ``best``, ``paper`` or ``printed``.
        runs: How many populations are drawn.
        seed: Of populations and noise.
        through: ``counts`` draws the counts of reports from their exact law, ``randomizers`` runs every client.
        **ways: ``f_o``, ``f_c``, ``m_c`` or ``oracle``, as :func:`~hushquery_experiments.blender.run.run_point` takes
            them.
    """
    check_runs(runs, seed)
    check_point(optin=optin, epsilon=epsilon, delta=delta, head_size=head_size)
    setting = {"optin": optin, "epsilon": epsilon, "delta": delta, "head_size": head_size, **ways}
    return run_points(population, runs=runs, seed=seed, mode=mode, through=through, **setting)


def whole_setting(profile: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill a setting up with the parameters of figure 10, and refuse one that can't be measured.

    >>> whole_setting("aol", {"epsilon": 1.0})["head_size"]
    50
    """
    own = PARAMETERS[profile]
    setting: dict[str, Any] = {"mode": "best", "through": "counts"}
    setting |= {name: getattr(own, name) for name in ("optin", "epsilon", "delta", "head_size")} | dict(given)
    check_point(**{name: setting[name] for name in ("optin", "epsilon", "delta", "head_size")})
    for name, known in (("mode", get_args(Mode)), ("through", get_args(Through))):
        if setting[name] not in known:
            raise UsageError(f"--{name} can't be {setting[name]!r}", fix=f"Give one of {', '.join(known)}")
    return setting


def check_point(*, optin: float, epsilon: float, delta: float, head_size: int) -> None:
    """Refuse a setting that can't be measured, before anything long is done."""
    if not 0 < optin < 1:  # NaN is refused too
        raise UsageError("the share of users who opt in lies between 0 and 1", fix="Give for example --optin 0.05")
    if not _LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        raise UsageError(
            f"epsilon lies between {_LEAST_EPSILON:g} and {_MOST_EPSILON:g} here",
            why="below, no list comes out; above, nothing is protected",
            fix="Give for example --epsilon 4",
        )
    if not 0 < delta < 1:
        raise UsageError("delta lies between 0 and 1", fix="Give for example --delta 1e-5")
    if type(head_size) is not int or head_size < 1:
        raise UsageError("a head list has at least one record", fix="Give for example --head-size 50")


def check_runs(runs: int, seed: int) -> None:
    """Refuse a number of runs or a seed that can't be used."""
    if type(runs) is not int or not 1 <= runs <= MOST_RUNS:
        raise UsageError(f"runs are a whole number from 1 to {MOST_RUNS}", fix="Give for example --runs 5")
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise UsageError("a seed is a whole number from 0 on", fix="Give for example --seed 1")


def chosen_figures(given: Sequence[str], *, log: bool) -> tuple[str, ...]:
    """Return the figures that were asked for, in the paper's order.

    Args:
        given: Names, or ``all``.
        log: Whether the population is a log, whose users have one record each, so that m_C can't be swept.

    >>> chosen_figures(["fo", "9"], log=False)
    ('9', 'fo')
    """
    unknown = [name for name in given if name not in (*FIGURES, "all")]
    if unknown or not given:
        raise UsageError(
            f"no figure is called {unknown[0] if unknown else ''!r}", fix=f"Give {', '.join(FIGURES)}, all"
        )
    if log and "mc" in given:
        raise UsageError(
            "m_C can't be swept on a log", why="one record of each user is used", fix="Leave out --log and --synth"
        )
    return tuple(name for name in FIGURES if name in given or ("all" in given and not (log and name == "mc")))


def check_claims(figures: Mapping[str, Sequence[Row]]) -> tuple[Claim, ...]:
    """Compare what must be shown with what was measured."""
    points = figures.get("15") or figures.get("16") or ()
    aol = {row["mode"]: row for row in where(points, profile="aol", epsilon=4.0, head_size=50) if reached(row)}
    yandex = where(points, profile="yandex", mode="best", epsilon=1.0, head_size=100)
    here = "AOL profile, 5% opt-in, epsilon 4, M = 50"
    there = "Yandex profile, 2.5% opt-in, epsilon 1, M = 100"
    claims = [
        _at_least(f"{here}: NDCG of `best` is at least {_LEAST_NDCG}", [aol["best"]] if "best" in aol else []),
        _times_better(f"{here}: L1 of `best` is at most a third of `paper`'s", aol),
        _at_least(f"{there}: NDCG of `best` is at least {_LEAST_NDCG}", yandex),
        Claim(
            f"{there}: L1 of `best` is at most {_MOST_L1}",
            f"{yandex[0]['l1']:.4f} ± {yandex[0]['l1_stderr']:.4f}" if yandex else "",
            bool(yandex[0]["l1"] <= _MOST_L1) if yandex else None,
        ),
    ]
    for profile in PARAMETERS:
        for measure, rule in (("ndcg", "true shares"), ("ndcg_rank_based", "ranks")):
            rows = where(figures.get("12", ()), profile=profile)
            claims.append(_above_baselines(rows, profile, measure, rule))
    return tuple(claims)


def _at_least(what: str, rows: Sequence[Row]) -> Claim:
    if not rows:
        return Claim(what, "", None)
    return Claim(what, f"{rows[0]['ndcg']:.4f} ± {rows[0]['ndcg_stderr']:.4f}", bool(rows[0]["ndcg"] >= _LEAST_NDCG))


def _times_better(what: str, rows: Mapping[str, Row]) -> Claim:
    if not {"best", "paper"} <= set(rows):
        return Claim(what, "", None)
    best, paper = rows["best"]["l1"], rows["paper"]["l1"]
    return Claim(what, f"{best:.4f} to {paper:.4f}, {paper / best:.1f} times", bool(_TIMES_BETTER * best <= paper))


def _above_baselines(rows: Sequence[Row], profile: str, measure: str, rule: str) -> Claim:
    size = LISTS_OF_12[profile][-1]
    who = {"aol": "AOL", "yandex": "Yandex"}[profile]
    what = (
        f"{who} profile, epsilon 1 to 5: the first ten queries of `best` (M = {size}) score above LDPMiner's and "
        f"PEM's, by {rule}"
    )
    if not rows:
        return Claim(what, "", None)
    margins = []
    for row in where(rows, mode="best", head_size=size):
        other = max(
            (r for r in where(rows, epsilon=row["epsilon"]) if r["head_size"] is None), key=lambda r: r[measure]
        )
        margins.append((row[measure] - other[measure], row, other))
    least, row, other = min(margins, key=lambda margin: margin[0])
    ours, theirs = (f"{r[measure]:.4f} ± {r[f'{measure}_stderr']:.4f}" for r in (row, other))
    measured = f"least margin {least:+.4f}, at epsilon {row['epsilon']:g}: {ours} to {theirs} ({other['mode']})"
    return Claim(what, measured, bool(least > 0))


def csv_files(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the data of each figure as a CSV file, by file name."""
    files = {}
    for name, rows in data["figures"].items():
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files[CSV_FILES[name]] = text.getvalue()
    return files
