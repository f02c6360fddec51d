"""The figures of BLENDER's evaluation as data: which settings each of them shows, and what came of them.

A figure is a list of rows. Most are sweeps: one parameter moves, all others are those of the paper's figure 10, and a
row is one setting. Points that figures share are measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from hushquery_experiments.blender.baselines import BASELINES, run_baseline, standard_error
from hushquery_experiments.blender.law import Population, PowerLaw
from hushquery_experiments.blender.paper import PARAMETERS, UNIQUE_QUERIES, Parameters
from hushquery_experiments.blender.run import (
    ABLATION,
    MEASURES,
    Improvements,
    Mode,
    PointMeans,
    PointResult,
    run_points,
)

__all__ = [
    "ABLATION_SETTINGS",
    "COLUMNS_OF_9",
    "EPSILONS",
    "FIGURES",
    "LISTS_OF_12",
    "SIZES",
    "SWEEPS",
    "Measurer",
    "Study",
    "Sweep",
    "jobs_of",
]

#: The values of epsilon.
EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0)
#: The sizes of head lists.
SIZES = (10, 50, 100, 500)
#: The estimates of figure 9: the blend, opt-in users' sums over URLs, clients' direct estimates, clients' sums.
COLUMNS_OF_9 = ("blended", "optin", "direct", "client")
#: The head lists that are judged by their ten first queries in figure 12.
LISTS_OF_12: Mapping[str, tuple[int, ...]] = {"aol": (50,), "yandex": (50, 100)}

_MODES: tuple[Mode, ...] = ("paper", "best")
_TOP = 10
# So many settings are measured at the same time.
_WORKERS = 2
# Figure 12 compares with small margins, so it draws more populations.
_MORE_RUNS = 2

Row = dict[str, Any]
Job = Callable[[], Iterable[Row]]
Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Sweep:
    """One parameter that moves.

    Args:
        name: Of the parameter.
        values: Its values.
        modes: What is run at each value; ``best`` does not use f_O and f_C and is run once there.
        sizes: The sizes of the head list; those of figure 10 by default.
    """

    name: Literal["f_o", "f_c", "m_c", "optin", "epsilon", "head_size"]
    values: tuple[float, ...]
    modes: tuple[Mode, ...] = ("paper", "best")
    sizes: tuple[int, ...] = ()


_BY_OPTIN = Sweep("optin", (0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.045, 0.05, 0.075, 0.1), sizes=SIZES)
_BY_EPSILON = Sweep("epsilon", EPSILONS, sizes=SIZES)

#: The figures that are sweeps.
SWEEPS: Mapping[str, Sweep] = {
    "11": Sweep("f_c", (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95), ("paper", "printed", "best")),
    "13": _BY_OPTIN,
    "14": _BY_OPTIN,
    "15": _BY_EPSILON,
    "16": _BY_EPSILON,
    "fo": Sweep("f_o", (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99), sizes=(10, 50)),
    "mc": Sweep("m_c", (1, 2, 3, 5, 10), sizes=(50,)),
    "m": Sweep("head_size", (5, 10, 20, 50, 100, 200, 500)),
}
#: Every figure and table by name.
FIGURES = ("8", "9", "10", "11", "12", "13", "14", "15", "16", "fo", "mc", "m", "ablation")
#: Where the ablation is made: what differs from figure 10, by profile.
ABLATION_SETTINGS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "aol": ({}, {"epsilon": 2.0, "head_size": 10}, {"optin": 0.01, "head_size": 10}),
    "yandex": ({}, {"epsilon": 1.0, "head_size": 100}),
}


@dataclass(frozen=True)
class Study:
    """A population and the profile whose parameters are used on it."""

    profile: str
    population: Population

    @property
    def parameters(self) -> Parameters:
        """The parameters of figure 10."""
        return PARAMETERS[self.profile]


@dataclass
class Measurer:
    """Measures settings, each once.

    Args:
        runs: How many populations are drawn for each.
        seed: Of all of them.
    """

    runs: int
    seed: int
    _rows: dict[Any, Row] = field(default_factory=dict)

    def row(self, study: Study, parameters: Parameters, mode: Mode, improvements: Improvements | None = None) -> Row:
        """Measure one setting."""
        key = (study.profile, parameters, mode, improvements)
        if key not in self._rows:
            means = self.means(study, parameters, mode, improvements=improvements)
            self._rows[key] = _row(study, parameters, mode, means)
        return dict(self._rows[key])

    def means(self, study: Study, parameters: Parameters, mode: Mode, more: int = 1, **ways: Any) -> PointMeans:
        """Run one setting, ``more`` times as often as usual."""
        return run_points(
            study.population,
            runs=self.runs * more,
            seed=self.seed,
            mode=mode,
            optin=parameters.optin,
            epsilon=parameters.epsilon,
            delta=parameters.delta,
            head_size=parameters.head_size,
            f_o=parameters.f_o,
            f_c=parameters.f_c,
            m_c=parameters.m_c,
            **ways,
        )

    def run(self, jobs: Sequence[tuple[str, Job]], tell: Tell) -> dict[str, list[Row]]:
        """Do all jobs, some at the same time, and gather their rows by figure in the order of the jobs."""
        gathered: dict[str, list[Row]] = {name: [] for name, _ in jobs}
        with ThreadPoolExecutor(_WORKERS) as pool:  # each setting has its own seed: the order makes no difference
            for place, ((name, _), rows) in enumerate(zip(jobs, pool.map(_do, jobs), strict=True), 1):
                gathered[name] += rows
                tell(f"figure {name}" if name != "ablation" else name, place / len(jobs))
        return gathered


def jobs_of(figure: str, study: Study, measurer: Measurer) -> list[tuple[str, Job]]:
    """List what has to be measured for a figure, in parts that can be done in any order."""
    jobs: list[Job]
    if figure in SWEEPS:
        sweep = SWEEPS[figure]
        jobs = [partial(_swept, sweep, study, measurer, mode, value) for mode, value in _points(sweep, study)]
    elif figure == "8":
        jobs = [partial(_characteristics, study, measurer.seed)]
    elif figure == "9":
        jobs = [partial(_top_queries, study, measurer, mode) for mode in _MODES]
    elif figure == "10":
        jobs = [lambda: [{"profile": study.profile, **vars(study.parameters)}]]
    elif figure == "12":
        jobs = [partial(_compared, study, measurer, epsilon) for epsilon in EPSILONS]
    else:
        settings = enumerate(ABLATION_SETTINGS[study.profile])
        jobs = [partial(_ablation, study, measurer, place, changed) for place, changed in settings]
    return [(figure, job) for job in jobs]


def _do(named: tuple[str, Job]) -> list[Row]:
    return list(named[1]())


def _row(study: Study, parameters: Parameters, mode: Mode, means: PointMeans) -> Row:
    scores: Row = {}
    for name in MEASURES:
        scores |= {name: means.means[name], f"{name}_stderr": means.stderrs[name]}
    for side in ("optin", "client"):
        for name in ("ndcg", "l1"):
            value, error = means.side(name, side)
            scores |= {f"{side}_{name}": value, f"{side}_{name}_stderr": error}
    return {
        "profile": study.profile,
        "mode": mode,
        **vars(parameters),
        "runs": len(means.points),
        "complete": means.complete,
        "passed": float(np.mean([point.passed for point in means.points])),
        "oracle": means.points[0].estimates.oracle,
        **scores,
    }


def _points(sweep: Sweep, study: Study) -> list[tuple[Mode, float]]:
    idle = sweep.name in ("f_o", "f_c")
    own: float = getattr(study.parameters, sweep.name)
    return [(mode, x) for mode in sweep.modes for x in ((own,) if idle and mode == "best" else sweep.values)]


def _swept(sweep: Sweep, study: Study, measurer: Measurer, mode: Mode, value: float) -> Iterator[Row]:
    """Measure one value of a sweep; where no run filled a list, no longer one is tried."""
    for size in sweep.sizes or (study.parameters.head_size,):
        settings: dict[str, Any] = {"head_size": size, sweep.name: value}
        row = measurer.row(study, replace(study.parameters, **settings), mode)
        yield row
        if not row["complete"]:
            return


def _characteristics(study: Study, seed: int) -> list[Row]:
    population = study.population
    truth = population.split(study.parameters.optin, np.random.default_rng([seed, 0])).truth
    queries, records = (np.sort(counts)[::-1] / truth.users for counts in (truth.queries, truth.count))
    law = population if isinstance(population, PowerLaw) else None
    row = {
        "profile": study.profile,
        "population": population.name,
        "users": population.users,
        "queries": law.queries if law else int((truth.queries > 0).sum()),
        "paper_unique_queries": UNIQUE_QUERIES[study.profile],
        "first_query": float(queries[0]),
        "first_10_queries": float(queries[:10].sum()),
        "first_50_records": float(records[:50].sum()),
        "first_500_records": float(records[:500].sum()),
        "own_record": law.tail if law else None,
    }
    return [row]


def _top_queries(study: Study, measurer: Measurer, mode: Mode) -> list[Row]:
    """Return the ten truly most frequent queries of the first run, with every estimate; regressions over all runs."""
    means = measurer.means(study, study.parameters, mode)
    tables = [_table_of_9(point) for point in means.points]
    numbers, true, columns = tables[0]
    often: Row = {}
    for name in COLUMNS_OF_9:
        seen = [sum(_regressions(table[2][name])) for table in tables if table[2][name] is not None]
        often |= {
            f"{name}_regressions": float(np.mean(seen)) if seen else None,
            f"{name}_regressions_stderr": standard_error(seen) if seen else None,
        }
    rows = []
    for place, query in enumerate(numbers.tolist()):
        row: Row = {"profile": study.profile, "mode": mode, "rank": place + 1, "query": study.population.label(query)}
        row["true"] = float(true[place])
        for name in COLUMNS_OF_9:
            values = columns[name]
            known = values is not None and bool(np.isfinite(values[place]))
            row[name] = float(values[place]) if known and values is not None else None
            row[f"{name}_regressed"] = bool(known and values is not None and _regressions(values)[place])
        rows.append(row | often)
    return rows


def _table_of_9(point: PointResult) -> tuple[Any, Any, dict[str, Any]]:
    """Return the top queries, their true shares, and each column; NaN where the head list lacks a query."""
    found = point.estimates
    counts, of_query = found.truth.queries, found.truth.query[found.records]
    top = np.argsort(-counts, kind="stable")[:_TOP]

    def summed(values: Any) -> Any:
        total = np.bincount(of_query, weights=values, minlength=len(counts)).astype(np.float64)
        total[np.setdiff1d(np.arange(len(counts)), of_query)] = np.nan
        return total[top]

    direct = np.full(len(counts), np.nan)
    direct[found.query_numbers] = found.blended.queries.direct
    return (
        top,
        counts[top] / found.truth.users,
        {
            "blended": summed(found.share),
            "optin": summed(found.optin),
            "direct": direct[top] if np.isfinite(direct).any() else None,
            "client": summed(found.client),
        },
    )


def _regressions(values: Any) -> list[bool]:
    """Return which estimates are out of order: above the one before, although the truth is not."""
    out, last = [], np.inf
    for value in values.tolist():
        out.append(bool(value > last))
        last = value if np.isfinite(value) else last
    return out


def _compared(study: Study, measurer: Measurer, epsilon: float) -> Iterator[Row]:
    """Put BLENDER's ten first queries beside those of the local model's finders."""
    head = {"profile": study.profile, "epsilon": epsilon}
    runs = measurer.runs * _MORE_RUNS
    for mode in _MODES:
        for size in (_TOP, *LISTS_OF_12[study.profile]):
            setting = replace(study.parameters, epsilon=epsilon, head_size=size)
            means = measurer.means(study, setting, mode, _MORE_RUNS)
            plain, ranked = np.array([point.top_queries(_TOP) for point in means.points]).T
            yield head | {
                "mode": mode,
                "head_size": size,
                "head_list_size": means.means["head_list_size"],
                "runs": runs,
                "ndcg_list": means.means["ndcg"],
                "ndcg_list_stderr": means.stderrs["ndcg"],
                "ndcg": float(plain.mean()),
                "ndcg_stderr": standard_error(plain),
                "ndcg_rank_based": float(ranked.mean()),
                "ndcg_rank_based_stderr": standard_error(ranked),
            }
    for finder in BASELINES:
        point = run_baseline(
            finder, study.population, epsilon=epsilon, size=_TOP, runs=runs, seed=measurer.seed
        ).to_json()
        scores = ("ndcg", "ndcg_stderr", "ndcg_rank_based", "ndcg_rank_based_stderr")
        yield (
            head
            | {"mode": finder, "head_size": None, "head_list_size": None, "runs": runs}
            | {
                "ndcg_list": None,
                "ndcg_list_stderr": None,
                **{name: point[name] for name in scores},
            }
        )


def _ablation(study: Study, measurer: Measurer, place: int, changed: Mapping[str, Any]) -> list[Row]:
    setting = replace(study.parameters, **changed)
    rows = []
    for name, improvements in ABLATION.items():
        row = measurer.row(study, setting, "best", improvements)
        rows.append({"way": name, "place": place, **{key: value for key, value in row.items() if key != "mode"}})
    return rows
