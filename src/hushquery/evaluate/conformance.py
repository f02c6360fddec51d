"""Conformance: what a mechanism draws is what it states, and what it loses is what it claims.

Each check looks at one mechanism and yields what is wrong with it, in words; nothing is right. The test suite runs
them on every registered mechanism, and on mechanisms that are broken on purpose; ``hushquery audit FILE.py:Class
--conformance`` runs them on yours. Unlike an audit, which sees runs only, they know the mechanism's own law, so a claim
is held against the exact loss.

Each comparison of runs with a law fails for a correct mechanism with probability at most :data:`ALPHA`: exact binomial
tails at every output, relative entropy for the whole law (Agrawal 2020), z-tests at a tenth of it for moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from hushquery.noise.bits import SeededBits
from hushquery.privacy.registry import Mechanism, Pair, find

__all__ = [
    "ALPHA",
    "BUDGETS",
    "CHECKS",
    "EPSILONS",
    "RUNS",
    "Finding",
    "Worlds",
    "budget_findings",
    "conformance",
    "estimate_findings",
    "law_findings",
    "loss_findings",
    "pair_findings",
    "pure_findings",
    "rate_findings",
    "repeat_findings",
    "tight_findings",
]

Law = Mapping[tuple[int, ...], float]
FloatArray = npt.NDArray[np.float64]

#: With what chance one comparison of runs with a law fails for a correct mechanism, at most.
ALPHA = 2e-10
#: Runs per world.
RUNS = 120_000
#: At what budget a mechanism is checked.
EPSILON, DELTA = Fraction(3), Fraction(1, 1000)
#: At which epsilons its claimed loss is held against the exact one.
EPSILONS = (Fraction(0), Fraction(1, 2), Fraction(2), EPSILON, Fraction(4), Fraction(9))
#: Budgets for which a mechanism has to be able to calibrate itself.
BUDGETS = tuple(
    (Fraction(epsilon), Fraction(delta))
    for epsilon, delta in (
        ("1/10", "1/1000000"),
        ("1", "1/100000"),
        ("23/10", "1/100000"),
        ("3", "1/1000"),
        ("8", "1/1000000000"),
        ("1/3", "1/7"),
    )
)
#: What enumeration may be off by: unlikely outcomes are lumped, and doubles are summed.
SLACK = 1e-12
# How near the exact epsilon must come to the claimed one where a mechanism says that it is tight. Integer noise is a
# rounding of the continuous noise that Gaussian curves are for, so these lose a little.
_TIGHT = 0.94
_PURE_TIGHT = 1 - 1e-9
# Cells that expect fewer are pooled when a whole law is fitted.
_SMALL_CELL = 20.0
_NO_LAW = "it does not know its law: give `law(world)`, the chance of every output"


@dataclass(frozen=True)
class Finding:
    """What one check says: nothing found is what it should say."""

    check: str
    found: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    def to_json(self) -> dict[str, Any]:
        """Give the finding as plain data."""
        return {"check": self.check, "holds": self.holds, "found": list(self.found)}


class Worlds:
    """The exact laws of a pair of worlds, over the same outcomes."""

    def __init__(self, mechanism: Mechanism[Any], pair: Pair[Any]) -> None:
        left, right = _law(mechanism, pair.left), _law(mechanism, pair.right)
        outcomes = list(dict.fromkeys([*left, *right]))
        self.left: FloatArray = np.array([left.get(o, 0.0) for o in outcomes])
        self.right: FloatArray = np.array([right.get(o, 0.0) for o in outcomes])

    def divergence(self, epsilon: float) -> float:
        """Give the hockey-stick divergence in the worse direction."""
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in self._both())

    def largest_ratio(self) -> float:
        """Give the largest log-ratio among outcomes that are not lumped at the edge of the enumeration."""
        worst = 0.0
        for p, q in self._both():
            likely = p > 1e-10
            with np.errstate(divide="ignore"):
                worst = max(worst, float(np.log(p[likely] / q[likely]).max()))
        return worst

    def _both(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        return (self.left, self.right), (self.right, self.left)


# ---- the checks ----------------------------------------------------------------------------------------------------


def pair_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Pairs are named, different, and made of different worlds."""
    pairs = list(mechanism.pairs())
    if not pairs:
        yield "it gives no pair of neighbouring worlds"
    if len({pair.name for pair in pairs}) != len(pairs):
        yield "two pairs have the same name"
    for pair in pairs:
        if pair.left == pair.right:
            yield f"{pair.name}: both worlds are the same"


def law_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Probabilities, and all of them."""
    for world in _worlds(mechanism):
        law = mechanism.law(world)
        if law is None:
            yield _NO_LAW
            continue
        if min(law.values()) < 0:
            yield f"world {world}: a probability is negative"
        total = math.fsum(law.values())
        if abs(total - 1) > SLACK:
            yield f"world {world}: the probabilities sum to {total:.15g}"
        if len({len(outcome) for outcome in law}) != 1:
            yield f"world {world}: outputs have different lengths"


def rate_findings(mechanism: Mechanism[Any], seed: object = 0) -> Iterator[str]:
    """Runs follow the law at every output."""
    for i, world in enumerate(_worlds(mechanism)):
        law = _law(mechanism, world)
        seen = _tally(mechanism.run(world, RUNS, _bits(seed, "rates", mechanism.name, i)))
        yield from _every_position(seen, law)
        if sum(p * RUNS >= _SMALL_CELL for p in law.values()) > 1:
            yield from _fit(seen, law)


def loss_findings(mechanism: Mechanism[Any], epsilons: Sequence[Fraction | int] = EPSILONS) -> Iterator[str]:
    """The claim covers every pair, in both directions, at every epsilon."""
    for pair in mechanism.pairs():
        worlds = Worlds(mechanism, pair)
        for epsilon in epsilons:
            true, claimed = worlds.divergence(float(epsilon)), mechanism.loss.delta(epsilon)
            if true > claimed + SLACK:
                yield f"{pair.name}: delta {true:.4g} at epsilon {float(epsilon):g}, not {claimed:.4g}"


def pure_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Where no delta is claimed, no output is more than e^epsilon times likelier."""
    if mechanism.loss.is_pure:
        claimed = mechanism.loss.epsilon(0)
        for pair in mechanism.pairs():
            true = Worlds(mechanism, pair).largest_ratio()
            if true > claimed * (1 + 1e-6):
                yield f"{pair.name}: an output is e^{true:.6g} times likelier, not e^{claimed:.6g}"


def tight_findings(mechanism: Mechanism[Any], epsilon: Fraction | int = EPSILON) -> Iterator[str]:
    """On the worst pair, the exact epsilon at the claimed delta is nearly the claimed one, if `tight` says so."""
    if not mechanism.tight:
        return
    worlds = [Worlds(mechanism, pair) for pair in mechanism.pairs()]
    if mechanism.loss.is_pure:
        true, claimed = max(w.largest_ratio() for w in worlds), mechanism.loss.epsilon(0)
        if true < claimed * _PURE_TIGHT:
            yield f"it loses {true:.6g} where it claims {claimed:.6g}: find the worst pair, or say tight = False"
        return
    delta = mechanism.loss.delta(epsilon)
    if max(w.divergence(_TIGHT * float(epsilon)) for w in worlds) < delta:
        yield f"it loses below {_TIGHT:.0%} of epsilon {float(epsilon):g}: find the worst pair, or say tight = False"


def estimate_findings(mechanism: Mechanism[Any], seed: object = 0) -> Iterator[str]:
    """The mean is the truth and the variance the stated one: in the law exactly, in runs within chance."""
    for i, world in enumerate(_worlds(mechanism)):
        truth, stated = mechanism.truth(world), mechanism.variance(world)
        if truth is None:
            if stated is not None:
                yield f"world {world}: it states a variance of what it does not estimate; give `truth` too"
            continue
        law = _law(mechanism, world)
        draws = mechanism.run(world, RUNS, _bits(seed, "estimates", mechanism.name, i))
        if draws.shape != (RUNS, len(truth)):
            yield f"world {world}: {len(truth)} truths for outputs of the shape {draws.shape}"
            continue
        for column, value in enumerate(truth):
            marginal: dict[int, float] = {}
            for outcome, p in law.items():
                marginal[outcome[column]] = marginal.get(outcome[column], 0.0) + p
            yield from _moments(f"world {world}, column {column}", draws[:, column], value, stated, column, marginal)


def repeat_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """All randomness comes from the bits."""
    for world in _worlds(mechanism):
        one, again, other = (mechanism.run(world, 400, _bits("repeat", seed)) for seed in (1, 1, 2))
        if one.dtype != np.int64:
            yield f"world {world}: outputs are {one.dtype}, not int64"
        if not np.array_equal(one, again):
            yield f"world {world}: the same bits give another output"
        if max(_law(mechanism, world).values()) < 0.9 and np.array_equal(one, other):
            yield f"world {world}: other bits give the same output"
        if len(mechanism.run(world, 0, _bits("repeat"))) != 0:
            yield f"world {world}: no runs give outputs"


def budget_findings(cls: type[Mechanism[Any]]) -> Iterator[str]:
    """Calibrated to a budget, a mechanism fits it, and spends most of it."""
    for epsilon, delta in BUDGETS:
        mechanism = cls.calibrate(epsilon, delta)
        if not mechanism.loss.fits(epsilon, delta):
            yield f"calibrated for epsilon {float(epsilon):g}, delta {float(delta):g}, it does not fit them"
        spent = mechanism.loss.epsilon(0 if mechanism.loss.is_pure else delta)
        if spent < 0.8 * float(epsilon):
            yield f"calibrated for epsilon {float(epsilon):g}, it uses {spent:.4g} only"


#: The checks of one calibrated mechanism, by what they say.
CHECKS: Mapping[str, Callable[[Mechanism[Any]], Iterator[str]]] = {
    "pairs are different worlds": pair_findings,
    "the law is a law": law_findings,
    "runs follow the law at every output": rate_findings,
    "the claimed loss covers the exact one on every pair": loss_findings,
    "pure claims bound every ratio": pure_findings,
    "the claim is the exact loss on the worst pair, if tight": tight_findings,
    "unbiased, with the stated variance": estimate_findings,
    "the same bits give the same output": repeat_findings,
}


def conformance(
    mechanism: str | type[Mechanism[Any]], *, progress: Callable[[float], None] | None = None
) -> list[Finding]:
    """Run every check on a mechanism, at the budget of the test suite (epsilon 3, delta 1/1000).

    Args:
        mechanism: A registered name, ``FILE.py:Class``, or a class.
        progress: Called with the fraction done.

    >>> all(finding.holds for finding in conformance("binary-response"))
    True
    """
    cls = find(mechanism) if isinstance(mechanism, str) else mechanism
    built = cls.calibrate(EPSILON, DELTA)
    found = [Finding("calibrated mechanisms fit their budget", tuple(budget_findings(cls)))]
    for i, (name, check) in enumerate(CHECKS.items()):
        known = check in (pair_findings, law_findings) or all(built.law(world) is not None for world in _worlds(built))
        found.append(Finding(name, tuple(check(built)) if known else (_NO_LAW,)))
        if progress is not None:
            progress((i + 1) / len(CHECKS))
    return found


# ---- how they decide -----------------------------------------------------------------------------------------------


def _bits(*name: object) -> SeededBits:
    return SeededBits(" ".join(["conformance", *map(str, name)]))


def _worlds(mechanism: Mechanism[Any]) -> list[Any]:
    return list(dict.fromkeys(world for pair in mechanism.pairs() for world in (pair.left, pair.right)))


def _law(mechanism: Mechanism[Any], world: Any) -> Law:
    law = mechanism.law(world)
    return {} if law is None else law


def _tally(rows: npt.NDArray[np.int64]) -> dict[tuple[int, ...], int]:
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    return {tuple(row): n for row, n in zip(distinct.tolist(), counts.tolist(), strict=True)}


def _every_position(seen: Mapping[tuple[int, ...], int], law: Law) -> Iterator[str]:
    """Test each outcome's count by its exact binomial tails; one that the law does not name has probability zero."""
    outcomes = list(dict.fromkeys([*law, *seen]))
    counts = np.array([seen.get(o, 0) for o in outcomes])
    chances = np.clip([law.get(o, 0.0) for o in outcomes], 0.0, 1.0)
    n = int(counts.sum())
    tails = np.minimum(stats.binom.sf(counts - 1, n, chances), stats.binom.cdf(counts, n, chances))
    worst = int(np.argmin(tails))
    if tails[worst] <= ALPHA / (2 * len(counts)):
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
    if statistic > most:
        yield f"the law: n times the relative entropy is {statistic:.1f}, above {most:.1f}"


def _moments(
    what: str,
    draws: npt.NDArray[np.int64],
    truth: float,
    stated: Sequence[float] | None,
    column: int,
    marginal: Mapping[int, float],
) -> Iterator[str]:
    centre = math.fsum(z * p for z, p in marginal.items())
    spread = math.fsum((z - centre) ** 2 * p for z, p in marginal.items())
    fourth = math.fsum((z - centre) ** 4 * p for z, p in marginal.items())
    if abs(centre - truth) > 1e-9:
        yield f"{what}: the law's mean is {centre:.9g}, the truth {truth:.9g}"
    yield from _z(f"{what}, mean of runs", float(np.mean(draws)), truth, spread / len(draws))
    if stated is not None:
        if abs(spread - stated[column]) > max(1e-8 * abs(stated[column]), SLACK):
            yield f"{what}: the law's variance is {spread:.9g}, {stated[column]:.9g} is stated"
        square = float(np.mean((draws - truth) ** 2))
        yield from _z(
            f"{what}, variance of runs", square, stated[column], max(fourth - stated[column] ** 2, 0.0) / len(draws)
        )


def _z(what: str, seen: float, truth: float, variance: float) -> Iterator[str]:
    far = abs(seen - truth)
    if far > -stats.norm.ppf(ALPHA / 20) * math.sqrt(variance) and far > 1e-9:
        yield f"{what}: {seen:.6g} is not {truth:.6g}"
