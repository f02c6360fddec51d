"""Check that a mechanism draws by the law it states and loses no more than it claims.

Each check yields its findings in words. A comparison of runs with a law fails for a correct mechanism with probability
at most :data:`ALPHA`: exact binomial tails per output, relative entropy for the law (Agrawal 2020), z-tests for
moments. Comparisons are written as ``not (what should hold)``, so that NaN fails all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, wraps
from numbers import Real
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from hushquery.auditing.attacks import exact_chances
from hushquery.core.registry import Law, Mechanism, Pair, find
from hushquery.noise.sampler import SeededBits

FloatArray = npt.NDArray[np.float64]
P = ParamSpec("P")

#: With what chance one comparison of runs with a law fails for a correct mechanism, at most.
ALPHA = 2e-10
#: How many runs are made at once: many and few, because noise for many keys of one count is drawn in another way.
BATCHES = (25_500,) * 4 + (6_000,) * 3
#: Runs per dataset.
RUNS = sum(BATCHES)
#: At what budget a mechanism is checked.
EPSILON, DELTA = Fraction(3), Fraction(1, 1000)
#: At which epsilons its claimed loss is held against the exact one.
EPSILONS = (Fraction(0), Fraction(1, 2), Fraction(2), EPSILON, Fraction(4), Fraction(9))
#: Budgets for which a mechanism has to be able to calibrate itself.
BUDGETS = tuple(
    (Fraction(budget.split()[0]), Fraction(budget.split()[1]))
    for budget in ("1/10 1e-6", "1 1e-5", "2.3 1e-5", "3 1e-3", "8 1e-9", "1/3 1/7")
)
#: What enumeration may be off by: unlikely outcomes are lumped, and doubles are summed.
SLACK = 1e-12
# How near a tight claim the exact epsilon must be; Gaussian curves are for continuous noise, so integers lose a little.
_TIGHT = 0.94
_PURE_TIGHT = 1 - 1e-9
# Cells that expect fewer are pooled when a whole law is fitted.
_SMALL_CELL = 20.0
_NO_LAW = "it does not know its law: give `law(dataset)`, the chance of every output"
_NOT_CHECKED = "not checked: mend first what is found above"
# Runs for shapes and repeatability, and outputs needed end to end.
_FEW = 400
_FEWEST = 40
# Only laws whose outputs are all likelier than this are measured word by word.
_LEAST_CHANCE = 2**-8


@dataclass(frozen=True)
class Finding:
    """The result of one check; it holds if nothing was found."""

    check: str
    found: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {"check": self.check, "holds": self.holds, "found": list(self.found)}


class _LawUnknown(Exception):
    """A mechanism does not know its law."""


def _by_law(check: Callable[P, Iterator[str]]) -> Callable[P, Iterator[str]]:
    """Have a check that needs the law say so where there is none."""

    @wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Iterator[str]:
        try:
            yield from check(*args, **kwargs)
        except _LawUnknown:
            yield _NO_LAW

    return checked


class Laws:
    """The exact laws of a pair of datasets, over the same outcomes."""

    def __init__(self, mechanism: Mechanism[Any], pair: Pair[Any]) -> None:
        left, right = _law(mechanism, pair.left), _law(mechanism, pair.right)
        outcomes = list(dict.fromkeys([*left, *right]))
        self.left: FloatArray = np.array([left.get(o, 0.0) for o in outcomes])
        self.right: FloatArray = np.array([right.get(o, 0.0) for o in outcomes])

    def divergence(self, epsilon: float) -> float:
        """Return the hockey-stick divergence in the worse direction."""
        return _largest(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in self._both())

    def largest_ratio(self) -> float:
        """Return the largest log-ratio among outcomes that are not lumped at the edge of the enumeration."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return _largest(float(np.log((p / q)[~(p <= 1e-10)]).max(initial=0.0)) for p, q in self._both())

    def _both(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        return (self.left, self.right), (self.right, self.left)


# ---- the checks ----------------------------------------------------------------------------------------------------


def pair_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Pairs are named, different, and made of different datasets."""
    pairs = list(mechanism.pairs())
    if not pairs:
        yield "it gives no pair of neighbouring datasets"
    if len({pair.name for pair in pairs}) != len(pairs):
        yield "two pairs have the same name"
    for pair in pairs:
        strange = [dataset for dataset in (pair.left, pair.right) if not _hashable(dataset)]
        if strange:
            yield f"{pair.name}: a dataset is a {type(strange[0]).__name__}, which can change: give tuples or numbers"
        elif pair.left == pair.right:
            yield f"{pair.name}: both datasets are the same"


def shape_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Runs are rows of whole numbers, the law is over such rows, truth and variance have a number for each column."""
    for dataset in _datasets(mechanism):
        rows = mechanism.run(dataset, _FEW, _bits("shape"))
        if not isinstance(rows, np.ndarray) or rows.dtype != np.int64:
            yield f"dataset {dataset}: outputs are {getattr(rows, 'dtype', type(rows).__name__)}, not an array of int64"
            continue
        if rows.ndim != 2 or len(rows) != _FEW or not rows.shape[1]:
            yield f"dataset {dataset}: {_FEW} runs give the shape {rows.shape}, not ({_FEW}, columns)"
            continue
        law, columns = _listed(mechanism.law, dataset), rows.shape[1]
        if law is not None and not (isinstance(law, Mapping) and law):
            yield f"dataset {dataset}: the law is empty, or no mapping from outputs to chances"
        elif law is not None and not all(_is_row(outcome, columns) for outcome in law):
            yield f"dataset {dataset}: the law's outputs are not all tuples of whole numbers, {columns} as in the runs"
        elif law is not None and not all(isinstance(p, Real) for p in law.values()):
            yield f"dataset {dataset}: a chance of the law is no number"
        for name, stated in (("truth", mechanism.truth(dataset)), ("variance", mechanism.variance(dataset))):
            if stated is not None and not (isinstance(stated, Sequence | np.ndarray) and len(stated) == columns):
                yield f"dataset {dataset}: the {name} is no list of one number per column; runs have {columns}"


def law_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Probabilities, and all of them."""
    for dataset in _datasets(mechanism):
        law = _listed(mechanism.law, dataset)
        if law is None:
            yield _NO_LAW
            continue
        if not all(math.isfinite(p) for p in law.values()):
            yield f"dataset {dataset}: a probability is not finite"
            continue
        if not all(p >= 0 for p in law.values()):
            yield f"dataset {dataset}: a probability is negative"
        total = math.fsum(law.values())
        if not abs(total - 1) <= SLACK:
            yield f"dataset {dataset}: the probabilities sum to {total:.15g}"


@_by_law
def rate_findings(mechanism: Mechanism[Any], seed: object = 0) -> Iterator[str]:
    """Runs follow the law at every output."""
    for i, dataset in enumerate(_datasets(mechanism)):
        law = _law(mechanism, dataset)
        bits = _bits(seed, "rates", mechanism.name, i)
        rows = np.concatenate([mechanism.run(dataset, size, bits) for size in BATCHES])
        if len(rows) != RUNS:
            yield f"dataset {dataset}: {RUNS:,} runs give {len(rows):,} outputs"
            continue
        yield from _follow(rows, law)


@_by_law
def end_to_end_findings(mechanism: Mechanism[Any], seed: object = 0) -> Iterator[str]:
    """What publishes, run as a whole on many copies of a dataset, follows the law too; on one pair at least."""
    if type(mechanism).end_to_end is Mechanism.end_to_end:
        return
    compared = 0
    for i, dataset in enumerate(_datasets(mechanism)):
        whole = mechanism.end_to_end(dataset, _bits(seed, "end to end", mechanism.name, i))
        if whole is not None and len(whole[0]) < _FEWEST:
            yield f"dataset {dataset}: end to end it gives {len(whole[0])} outputs, too few to compare with a law"
        elif whole is not None:
            yield from _follow(*whole)
            compared += 1
    if compared < 2:
        yield f"end to end it was compared with its law on {compared} datasets only"


@_by_law
def loss_findings(mechanism: Mechanism[Any], epsilons: Sequence[Fraction | int] = EPSILONS) -> Iterator[str]:
    """The claim covers every pair, in both directions, at every epsilon; and some pair can be told apart at all."""
    differ = False
    for pair in mechanism.pairs():
        laws = Laws(mechanism, pair)
        differ = differ or not laws.divergence(0.0) <= SLACK
        for epsilon in epsilons:
            true, claimed = laws.divergence(float(epsilon)), mechanism.loss.delta(epsilon)
            if not true <= claimed + SLACK:
                yield f"{pair.name}: delta {true:.4g} at epsilon {float(epsilon):g}, not {claimed:.4g}"
    if not differ and mechanism.loss.delta(0) > 0:
        yield "on every pair both datasets have the same law, so its claim is not checked: give pairs on which it loses"


@_by_law
def pure_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Where no delta is claimed, no output is more than e^epsilon times likelier."""
    if mechanism.loss.is_pure:
        claimed = mechanism.loss.epsilon(0)
        for pair in mechanism.pairs():
            true = Laws(mechanism, pair).largest_ratio()
            if not true <= claimed * (1 + 1e-6):
                yield f"{pair.name}: an output is e^{true:.6g} times likelier, not e^{claimed:.6g}"


@_by_law
def tight_findings(mechanism: Mechanism[Any], epsilon: Fraction | int = EPSILON) -> Iterator[str]:
    """On the worst pair, the exact epsilon at the claimed delta is nearly the claimed one, if `tight` says so."""
    if not mechanism.tight:
        return
    laws = [Laws(mechanism, pair) for pair in mechanism.pairs()]
    if mechanism.loss.is_pure:
        true, claimed = _largest(both.largest_ratio() for both in laws), mechanism.loss.epsilon(0)
        if not true >= claimed * _PURE_TIGHT:
            yield f"it loses {true:.6g} where it claims {claimed:.6g}: find the worst pair, or say tight = False"
        return
    delta = mechanism.loss.delta(epsilon)
    if not _largest(both.divergence(_TIGHT * float(epsilon)) for both in laws) >= delta:
        yield f"it loses below {_TIGHT:.0%} of epsilon {float(epsilon):g}: find the worst pair, or say tight = False"


@_by_law
def estimate_findings(mechanism: Mechanism[Any], seed: object = 0) -> Iterator[str]:
    """The mean is the truth and the variance the stated one: in the law exactly, in runs within chance."""
    for i, dataset in enumerate(_datasets(mechanism)):
        truth, stated = mechanism.truth(dataset), mechanism.variance(dataset)
        if truth is None:
            if stated is not None:
                yield f"dataset {dataset}: it states a variance of what it does not estimate; give `truth` too"
            continue
        law = _law(mechanism, dataset)
        draws = mechanism.run(dataset, RUNS, _bits(seed, "estimates", mechanism.name, i))
        if draws.shape != (RUNS, len(truth)):
            yield f"dataset {dataset}: {len(truth)} truths for outputs of the shape {draws.shape}"
            continue
        for column, value in enumerate(truth):
            marginal: dict[int, float] = {}
            for outcome, p in law.items():
                marginal[outcome[column]] = marginal.get(outcome[column], 0.0) + p
            variance = None if stated is None else stated[column]
            yield from _moments(f"dataset {dataset}, column {column}", draws[:, column], value, variance, marginal)


@_by_law
def repeat_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """All randomness comes from the bits."""
    for dataset in _datasets(mechanism):
        one, again, other = (mechanism.run(dataset, _FEW, _bits("repeat", seed)) for seed in (1, 1, 2))
        if not np.array_equal(one, again):
            yield f"dataset {dataset}: the same bits give another output"
        if not _largest(_law(mechanism, dataset).values()) >= 0.9 and np.array_equal(one, other):
            yield f"dataset {dataset}: other bits give the same output"
        if len(mechanism.run(dataset, 0, _bits("repeat"))) != 0:
            yield f"dataset {dataset}: no runs give outputs"


def word_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Where one word decides a run, the words that lead to each output are as many as the law says."""
    if mechanism.kind != "randomizer":
        return
    for dataset in _datasets(mechanism):
        law = _listed(mechanism.law, dataset)
        if law is None or min(law.values()) < _LEAST_CHANCE:
            continue
        measured = exact_chances(mechanism, dataset)
        if measured is None:
            return
        for output in dict.fromkeys([*law, *measured]):
            chance, stated = measured.get(output, 0.0), law.get(output, 0.0)
            if not abs(chance - stated) <= SLACK:
                yield f"dataset {dataset}: output {output} has a chance of {chance:.12g}, not {stated:.12g}"


def budget_findings(cls: type[Mechanism[Any]]) -> Iterator[str]:
    """Calibrated to a budget, a mechanism fits it, and spends most of it."""
    for epsilon, delta in BUDGETS:
        mechanism = cls.calibrate(epsilon, delta)
        if not mechanism.loss.fits(epsilon, delta):
            yield f"calibrated for epsilon {float(epsilon):g}, delta {float(delta):g}, it does not fit them"
        spent = mechanism.loss.epsilon(0 if mechanism.loss.is_pure else delta)
        if not spent >= 0.8 * float(epsilon):
            yield f"calibrated for epsilon {float(epsilon):g}, it uses {spent:.4g} only"


#: The checks of one calibrated mechanism, by what they say.
CHECKS: Mapping[str, Callable[[Mechanism[Any]], Iterator[str]]] = {
    "pairs are different datasets": pair_findings,
    "outputs, law and estimates have their shapes": shape_findings,
    "the law is a law": law_findings,
    "runs follow the law at every output": rate_findings,
    "all of what publishes, end to end, follows it too": end_to_end_findings,
    "where one random word decides, it decides by exactly that law": word_findings,
    "the claimed loss covers the exact one on every pair": loss_findings,
    "pure claims bound every ratio": pure_findings,
    "the claim is the exact loss on the worst pair, if tight": tight_findings,
    "unbiased, with the stated variance": estimate_findings,
    "the same bits give the same output": repeat_findings,
}
# What the others take for granted.
_FIRST = (pair_findings, shape_findings, law_findings)


def conformance(
    mechanism: str | type[Mechanism[Any]], *, progress: Callable[[float], None] | None = None
) -> list[Finding]:
    """Run every check on a name, ``FILE.py:Class`` or class, at the test suite's budget (epsilon 3, delta 1/1000).

    Checks that rest on sound pairs, shapes and laws fail as not checked where these do not hold.

    >>> all(finding.holds for finding in conformance("binary-response"))
    True
    """
    cls = find(mechanism) if isinstance(mechanism, str) else mechanism
    built = cls.calibrate(EPSILON, DELTA)
    findings = [Finding("calibrated mechanisms fit their budget", tuple(budget_findings(cls)))]
    sound = True
    for i, (name, check) in enumerate(CHECKS.items()):
        findings.append(Finding(name, tuple(check(built)) if sound else (_NOT_CHECKED,)))
        sound = sound and (findings[-1].holds or check not in _FIRST)
        if progress is not None:
            progress((i + 1) / len(CHECKS))
    return findings


# ---- how they decide -----------------------------------------------------------------------------------------------


def _bits(*name: object) -> SeededBits:
    return SeededBits(" ".join(["conformance", *map(str, name)]))


def _datasets(mechanism: Mechanism[Any]) -> list[Any]:
    return list(dict.fromkeys(dataset for pair in mechanism.pairs() for dataset in (pair.left, pair.right)))


def _hashable(dataset: Any) -> bool:
    try:
        hash(dataset)
    except TypeError:
        return False
    return True


def _is_row(outcome: object, columns: int) -> bool:
    whole = isinstance(outcome, tuple) and all(isinstance(z, int | np.integer) for z in outcome)
    return whole and len(outcome) == columns  # type: ignore[arg-type]


def _largest(values: Iterable[float]) -> float:
    """Return the largest number, which is NaN where one of them is; ``max`` may lose it."""
    return float(np.max(list(values)))


def _law(mechanism: Mechanism[Any], dataset: Any) -> Law:
    law = _listed(mechanism.law, dataset)
    if law is None:
        raise _LawUnknown
    return law


@lru_cache(maxsize=128)
def _listed(law: Callable[[Any], Law | None], dataset: Any) -> Law | None:
    """List a law once: one check after the other asks for it."""
    return law(dataset)


def _follow(rows: npt.NDArray[np.int64], law: Law) -> Iterator[str]:
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    seen = {tuple(row): n for row, n in zip(distinct.tolist(), counts.tolist(), strict=True)}
    yield from _every_position(seen, law)
    if sum(p * len(rows) >= _SMALL_CELL for p in law.values()) > 1:
        yield from _fit(seen, law)


def _every_position(seen: Mapping[tuple[int, ...], int], law: Law) -> Iterator[str]:
    """Test each outcome's count by its exact binomial tails; one that the law does not name has probability zero."""
    outcomes = list(dict.fromkeys([*law, *seen]))
    counts = np.array([seen.get(o, 0) for o in outcomes])
    chances = np.clip([law.get(o, 0.0) for o in outcomes], 0.0, 1.0)
    n = int(counts.sum())
    tails = np.minimum(stats.binom.sf(counts - 1, n, chances), stats.binom.cdf(counts, n, chances))
    worst = int(np.argmin(tails))
    if not tails[worst] > ALPHA / (2 * len(counts)):
        yield (
            f"output {outcomes[worst]} came {counts[worst]:,} times of {n:,}; {n * chances[worst]:,.6g} are expected "
            f"(chance {tails[worst]:.1e})"
        )


def _fit(seen: Mapping[tuple[int, ...], int], law: Law) -> Iterator[str]:
    """Test the whole law at once by n times the relative entropy, small cells pooled."""
    n = sum(seen.values())
    large = [o for o, p in law.items() if p * n >= _SMALL_CELL]
    counts = np.array([seen.get(o, 0) for o in large], dtype=float)
    chances = np.array([law[o] for o in large])
    rest = max(0.0, 1.0 - float(chances.sum()))
    if rest * n >= _SMALL_CELL:
        counts, chances = np.append(counts, n - counts.sum()), np.append(chances, rest)
    else:  # too rare to be a cell: its exact test is the one above
        chances = chances / chances.sum()
    share, degrees = counts / max(counts.sum(), 1.0), len(chances) - 1
    some = share > 0
    statistic = float(counts.sum() * np.sum(share[some] * np.log(share[some] / chances[some])))
    # Exceeded with probability at most ALPHA: e^-x (e x/k)^k = ALPHA, x > k.
    most = optimize.brentq(
        lambda x: -x + degrees * (1 + math.log(x / degrees)) - math.log(ALPHA), degrees, 20 * degrees + 200
    )
    if not statistic <= most:
        yield f"the law: n times the relative entropy is {statistic:.1f}, above {most:.1f}"


def _moments(
    what: str, draws: npt.NDArray[np.int64], truth: float, stated: float | None, marginal: Mapping[int, float]
) -> Iterator[str]:
    centre = math.fsum(z * p for z, p in marginal.items())
    spread, fourth = (math.fsum((z - centre) ** k * p for z, p in marginal.items()) for k in (2, 4))
    if not abs(centre - truth) <= 1e-9:
        yield f"{what}: the law's mean is {centre:.9g}, the truth {truth:.9g}"
    yield from _z(f"{what}, mean of runs", float(np.mean(draws)), truth, spread / len(draws))
    if stated is not None:
        if not abs(spread - stated) <= max(1e-8 * abs(stated), SLACK):
            yield f"{what}: the law's variance is {spread:.9g}, {stated:.9g} is stated"
        square, varies = float(np.mean((draws - truth) ** 2)), max(fourth - stated**2, 0.0) / len(draws)
        yield from _z(f"{what}, variance of runs", square, stated, varies)


def _z(what: str, seen: float, truth: float, variance: float) -> Iterator[str]:
    far = abs(seen - truth)
    if not (far <= -stats.norm.ppf(ALPHA / 20) * math.sqrt(variance) or far <= 1e-9):
        yield f"{what}: {seen:.6g} is not {truth:.6g}"
