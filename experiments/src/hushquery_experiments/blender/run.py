"""One point of BLENDER's evaluation: draw a population, run the whole pipeline on it, score the list. Not publishable.

split -> head list and opt-in shares -> cells -> reports -> client shares -> blend -> scores

Calibration, estimators and blend are those of :mod:`hushquery.hybrid` and :mod:`hushquery.local`; only counting and
noise are simulated. What ``best`` does differently from the paper can be switched one by one (:class:`Improvements`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import exact
from hushquery.core.estimates import project_on_simplex
from hushquery.errors import UsageError
from hushquery.hybrid.blend import Blended, blend_probabilities
from hushquery.hybrid.clients import FlatShares, TwoStageCells, TwoStageShares
from hushquery.hybrid.headlist import Threshold
from hushquery.hybrid.inference import plug_in_weights
from hushquery.hybrid.published import least_share
from hushquery.local.configuration import oracle_named
from hushquery.local.oracles.two_stage import TwoStage
from hushquery_experiments.blender.baselines import standard_error
from hushquery_experiments.blender.law import Population
from hushquery_experiments.blender.optin import OptInSide, OptInWay, simulate_optin
from hushquery_experiments.blender.printed import printed_weights
from hushquery_experiments.blender.reports import Through, simulated_support
from hushquery_experiments.ndcg import ListScores, Truth, list_scores, query_scores
from hushquery_experiments.unpublishable import MARK, NotPublishable, plain

__all__ = [
    "ABLATION",
    "MEASURES",
    "Estimates",
    "Improvements",
    "Mode",
    "PointMeans",
    "PointResult",
    "improvements_of",
    "run_point",
    "run_points",
]

#: What is run: ours, the paper's algorithm, or that with the variance of Theorem 5 as printed.
Mode = Literal["best", "paper", "printed"]

#: What is averaged over runs.
MEASURES = (
    "ndcg", "ndcg_queries", "ndcg_records", "ndcg_rank_based", "l1", "l1_rescaled", "hit_rate", "head_list_size",
)  # fmt: skip

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Improvements:
    """What is done differently from the paper; by default everything, which is ``best``.

    Args:
        optin: ``reuse`` the counts that made the head list; ``split`` the users by f_O as the paper does; or split
            epsilon, the ``budget``, .7 to .3.
        threshold: ``tight``, or the ``paper``'s.
        oracle: ``two-stage`` as in the paper, ``auto``, or the name of a frequency oracle.
        pooled: Whether both variances are evaluated at the blended share, and the wildcard is freed of what was
            published for being large; else Theorem 6: each side's variance as estimated from that side alone.
        corrected: Whether Theorem 5 is corrected; else as printed, for two-stage reports only.
        simplex: Whether the blend is projected on the simplex; the paper does.
        f_o: The share of opt-in users who find the list, for ``split``.
        f_c: The query's share of a client's epsilon, for ``two-stage``.
    """

    optin: OptInWay = "reuse"
    threshold: Threshold = "tight"
    oracle: str = "auto"
    pooled: bool = True
    corrected: bool = True
    simplex: bool = True
    f_o: float = 0.95
    f_c: float = 0.85


_BEST = Improvements()
_PAPER = Improvements(optin="split", threshold="paper", oracle="two-stage", pooled=False)
_MODES: Mapping[str, Improvements] = {"best": _BEST, "paper": _PAPER, "printed": replace(_PAPER, corrected=False)}

#: The rows of the ablation: the paper, each improvement alone, all together, and all but one.
ABLATION: Mapping[str, Improvements] = {
    "paper, variance as printed": _MODES["printed"],
    "paper, variance corrected": _PAPER,
    "pooled variances": replace(_PAPER, pooled=True),
    "paper, not projected": replace(_PAPER, simplex=False),
    "f_C = 0.7": replace(_PAPER, f_c=0.7),
    "f_C = 0.5": replace(_PAPER, f_c=0.5),
    "f_O = 0.8": replace(_PAPER, f_o=0.8),
    "tight threshold": replace(_PAPER, threshold="tight"),
    "epsilon split .7/.3 instead of users": replace(_PAPER, optin="budget"),
    "best oracle instead of two stages": replace(_PAPER, oracle="auto"),
    "counts reused": replace(_PAPER, optin="reuse"),
    "best: all together": _BEST,
    "best without reuse": replace(_BEST, optin="split"),
    "best without the oracle": replace(_BEST, oracle="two-stage"),
    "best without the tight threshold": replace(_BEST, threshold="paper"),
    "best without pooling": replace(_BEST, pooled=False),
    "best without projection": replace(_BEST, simplex=False),
}


@dataclass(frozen=True, eq=False)
class Estimates:
    """The head records of one run, in the order of the list; the truth is secret where the log is.

    Args:
        truth: The true counts.
        records: The number of each record among the true ones.
        optin: Raw opt-in shares.
        client: Raw client shares.
        weight: The opt-in side's weight.
        share: The blended share.
        blended: Everything that the product's blend says: standard errors, the sums per query, the test for a shift.
        oracle: What clients ran.
    """

    truth: Truth
    records: IntArray
    optin: FloatArray
    client: FloatArray
    weight: FloatArray
    share: FloatArray
    blended: Blended
    oracle: str

    def __repr__(self) -> str:
        return f"Estimates({len(self.records)} records; the truth beside them is secret)"

    @property
    def query_numbers(self) -> IntArray:
        """The number of each query of ``blended.queries``, in that order."""
        return np.array([int(query) for query in self.blended.queries.queries], dtype=np.int64)


@dataclass(frozen=True, repr=False)
class PointResult(NotPublishable):
    """One run.

    Attributes:
        scores: The blended list.
        optin_scores: The same list with the opt-in shares alone.
        client_scores: The same list with the clients' shares alone, raw.
        head_list_size: How many records are listed; fewer than asked for where fewer passed the threshold.
        passed: How many passed the threshold.
        estimates: The records.
    """

    scores: ListScores
    optin_scores: ListScores
    client_scores: ListScores
    head_list_size: int
    passed: int
    estimates: Estimates

    @property
    def ndcg(self) -> float:
        """The paper's NDCG of the list of lists."""
        return self.scores.ndcg

    @property
    def l1(self) -> float:
        """The distance of estimated from true shares."""
        return self.scores.l1

    def measure(self, name: str, side: Literal["blended", "optin", "client"] = "blended") -> float:
        """Return one of :data:`MEASURES`, of the blend or of one side."""
        if name == "head_list_size":
            return float(self.head_list_size)
        of = {"blended": self.scores, "optin": self.optin_scores, "client": self.client_scores}[side]
        return float(getattr(of, name))

    def top_queries(self, size: int) -> tuple[float, float]:
        """Return NDCG and rank-based NDCG of the first queries alone, which judge baselines that know no URLs."""
        counts, numbers = self.estimates.truth.queries, self.estimates.truth.query[self.estimates.records]
        shares = np.bincount(numbers, weights=self.estimates.share, minlength=len(counts))
        listed = np.unique(numbers)
        return query_scores(listed[np.argsort(-shares[listed], kind="stable")[:size]], counts)

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain data, the mark first; the records stay here."""
        kept = {f.name: plain(getattr(self, f.name)) for f in fields(self) if f.name != "estimates"}
        return {"publishable": False, "mark": MARK} | kept


@dataclass(frozen=True, repr=False)
class PointMeans(NotPublishable):
    """Several runs of one setting.

    Attributes:
        setting: What was asked for.
        means: The mean of each of :data:`MEASURES`.
        stderrs: Their standard errors.
        complete: How many runs had a head list of the size asked for.
        points: The runs.
    """

    setting: Mapping[str, Any]
    means: Mapping[str, float]
    stderrs: Mapping[str, float]
    complete: int
    points: tuple[PointResult, ...]

    def side(self, name: str, side: Literal["blended", "optin", "client"]) -> tuple[float, float]:
        """Return the mean of a measure of one side, and its standard error."""
        values = [point.measure(name, side) for point in self.points]
        return float(np.mean(values)), standard_error(values)

    def to_json(self) -> dict[str, Any]:
        """Return setting, means and standard errors as plain data, the mark first."""
        setting = {key: value for key, value in self.setting.items() if key != "improvements"}
        setting["improvements"] = {f.name: getattr(self.setting["improvements"], f.name) for f in fields(Improvements)}
        return {
            "publishable": False,
            "mark": MARK,
            "setting": setting,
            **self.means,
            **{f"{name}_stderr": value for name, value in self.stderrs.items()},
            "complete": self.complete,
        }


def improvements_of(mode: Mode, *, f_o: float | None = None, f_c: float | None = None) -> Improvements:
    """Return what a mode does: ``best``, ``paper``, or ``printed`` with Theorem 5 as it stands in the paper."""
    if mode not in get_args(Mode):
        raise UsageError(f"no mode of blending is called {mode!r}", fix="Give best, paper or printed")
    chosen = _MODES[mode]
    return replace(chosen, f_o=chosen.f_o if f_o is None else f_o, f_c=chosen.f_c if f_c is None else f_c)


def run_point(
    population: Population,
    *,
    optin: float,
    epsilon: float,
    delta: float,
    head_size: int,
    mode: Mode = "best",
    f_o: float = 0.95,
    f_c: float = 0.85,
    m_c: int = 1,
    oracle: str | None = None,
    seed: int | Iterable[int] = 1,
    improvements: Improvements | None = None,
    through: Through = "counts",
) -> PointResult:
    """Draw a population and run the pipeline on it once.

    Args:
        population: A law of :mod:`~hushquery_experiments.blender.law`, or a log.
        optin: The share of users who opt in.
        epsilon: Of each opt-in user and of each client.
        delta: Of each opt-in user.
        head_size: M.
        mode: ``best``, ``paper`` or ``printed``.
        f_o: The share of opt-in users who find the list; not used by ``best``.
        f_c: The query's share of a client's epsilon; not used by ``best``.
        m_c: How many records each client reports, each with its part of epsilon. The variances take them as
            independent, which they are in a law.
        oracle: What clients run in ``best``; chosen by variance by default.
        seed: Of the population and of all noise.
        improvements: What to do, instead of what ``mode`` does.
        through: ``counts`` draws the counts of reports from their exact law, ``randomizers`` runs every client.

    >>> from hushquery_experiments.blender.law import AOL
    >>> point = run_point(AOL, optin=0.05, epsilon=4, delta=1e-5, head_size=50)
    >>> point.head_list_size, point.ndcg > 0.9
    (50, True)
    """
    chosen = improvements_of(mode, f_o=f_o, f_c=f_c) if improvements is None else improvements
    if oracle is not None and improvements is None and mode == "best":
        chosen = replace(chosen, oracle=oracle)
    if type(m_c) is not int or not 1 <= m_c <= 1000:
        raise UsageError("a client reports at least one record, and at most 1000", fix="Give m_c=1")
    rng = np.random.default_rng(seed if isinstance(seed, int) else list(seed))
    side = simulate_optin(
        population.split(optin, rng, m_c),
        epsilon=epsilon,
        delta=delta,
        most=head_size,
        rng=rng,
        way=chosen.optin,
        threshold=chosen.threshold,
        f_o=chosen.f_o,
    )
    clients = _clients(side, exact(epsilon, "epsilon") / m_c, chosen, rng, through)
    return _scored(side, clients, chosen, head_size)


def run_points(
    population: Population, *, runs: int = 5, seed: int = 1, improvements: Improvements | None = None, **setting: Any
) -> PointMeans:
    """Run one setting several times, each on a new population.

    Args:
        population: On whom.
        runs: How often.
        seed: Of all runs together.
        improvements: What to do, instead of what ``mode`` does.
        **setting: What :func:`run_point` takes.
    """
    if type(runs) is not int or runs < 1:
        raise UsageError("there is at least one run", fix="Give runs=5")
    points = tuple(run_point(population, seed=(seed, run), improvements=improvements, **setting) for run in range(runs))
    measured = {name: [point.measure(name) for point in points] for name in MEASURES}
    ways = {name: setting[name] for name in ("f_o", "f_c") if name in setting}
    used = improvements or improvements_of(setting.get("mode", "best"), **ways)
    return PointMeans(
        setting={"population": population.name, "users": population.users, "runs": runs, "seed": seed, **setting}
        | {"improvements": used},
        means={name: float(np.mean(values)) for name, values in measured.items()},
        stderrs={name: standard_error(values) for name, values in measured.items()},
        complete=sum(point.head_list_size == setting["head_size"] for point in points),
        points=points,
    )


def _clients(
    side: OptInSide, epsilon: Fraction, chosen: Improvements, rng: np.random.Generator, through: Through
) -> FlatShares | TwoStageShares:
    """Let every client report about the head list, and estimate."""
    records = side.split.client_records
    held = side.split.client[side.records]
    if chosen.oracle == "two-stage":
        cells = TwoStageCells(side.shares.records)
        two_stage = cells.randomizer(epsilon, exact(chosen.f_c, "f_C"))
        counts = _two_stage_counts(cells, side, held)
        return TwoStageShares(cells, two_stage, simulated_support(two_stage, counts, rng, through), records)
    if not len(held):
        return TwoStageShares(TwoStageCells([]), TwoStage.calibrate([], epsilon), np.array([records]), records)
    oracle = oracle_named(chosen.oracle, len(held) + 1, epsilon)
    counts = np.append(held, records - held.sum())
    return FlatShares(oracle, simulated_support(oracle, counts, rng, through), records)


def _two_stage_counts(cells: TwoStageCells, side: OptInSide, held: IntArray) -> IntArray:
    """Return how many clients hold each cell; <q, *> holds those of q whose URL is not listed."""
    counts = np.zeros(cells.k, dtype=np.int64)
    counts[cells.record_cells] = held
    of_query = np.bincount(side.split.query, weights=side.split.client).astype(np.int64)
    numbers = np.array([int(query) for query in cells.queries], dtype=np.int64)
    listed = np.bincount(cells.query_of, weights=held, minlength=len(numbers)).astype(np.int64)
    counts[cells.other_cells] = of_query[numbers] - listed
    counts[-1] = side.split.client_records - counts.sum()
    return counts


def _scored(side: OptInSide, clients: FlatShares | TwoStageShares, chosen: Improvements, size: int) -> PointResult:
    two_stage = clients if isinstance(clients, TwoStageShares) else None
    mode: Literal["best", "paper"] = "best" if chosen.pooled or two_stage is None else "paper"
    least = least_share(side.shares, size)
    blended = blend_probabilities(side.shares.records, side.shares, clients, mode=mode, least=least)
    weight, share = blended.weight, blended.share
    if not chosen.pooled and (two_stage is None or not chosen.corrected):  # no mode of the product does this
        if two_stage is None:
            weight = plug_in_weights(side.shares.variances, clients.variances)
        else:
            weight = printed_weights(two_stage, side.shares.variances)
        raw = weight * side.shares.values + (1 - weight) * clients.values
        share = np.array(project_on_simplex([*raw.tolist(), 1 - float(raw.sum())])[:-1])
    if not chosen.simplex:
        share = weight * side.shares.values + (1 - weight) * clients.values
    truth = side.split.truth
    return PointResult(
        scores=list_scores(truth, side.records, share),
        optin_scores=list_scores(truth, side.records, side.shares.values),
        client_scores=list_scores(truth, side.records, clients.values),
        head_list_size=len(side.records),
        passed=side.passed,
        estimates=Estimates(
            truth,
            side.records,
            side.shares.values,
            clients.values,
            weight,
            share,
            blended,
            "two-stage" if two_stage is not None else getattr(clients.oracle, "name", "none"),
        ),
    )
