"""Iterated selection: a certified bound on the strings of one user alone that come out, and its search for a budget.

All sums are whole numbers. In each round a user gives whole weights j >= 0 to strings, with a sum of squares of at most
grid^2; a string's evidence z grows by evidence_r (sum of weights + rounded Gaussian noise). It is alive while z reaches
the cut of every round, and comes out if z reaches the threshold after the last one. Proof: docs/proofs/iterated.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from hushquery.core.budget import Relation, exact, round_down, significant_up
from hushquery.core.loss import Loss, StepParameters
from hushquery.errors import CalibrationError, DataError


@dataclass(frozen=True)
class Shape:
    """The public constants of an iterated selection, chosen before a log is read (docs/proofs/iterated.md)."""

    kept: int = 200  # N, the most strings of a user
    grid: int = 256  # G, the most of the L2 norm of a user's weights
    evidence: tuple[int, ...] = (3, 8, 10)  # what a unit of weight counts in each round
    shares: tuple[Fraction, ...] = (Fraction(35, 100), Fraction(30, 100), Fraction(35, 100))  # of mu^2
    cuts: tuple[float, ...] = (1.5, 2.8)  # after each round but the last, in standard deviations of the evidence


#: The constants of every release.
SHAPE = Shape()

# Room for the rounding of doubles, in both directions.
_UP, _DOWN = 1 + 1e-9, 1 - 1e-9
# All that tails beyond the smallest doubles can add up to.
_UNDERFLOW = 1e-295
# Steps of the lattice of evidence within a standard deviation of the last round's noise, or fewer where that would be
# more than so many within the largest weight.
_FINE = 400
# The search looks at these numbers of strings only; the certificate looks at all.
_TRIED = (1, 2, 3, 5, 9, 16, 30, 60, 110)
# More lattice points than any calibration needs are refused: a manifest may state anything.
_MOST_CELLS = 40_000
_MOST_STEPS = 10_000

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rounds:
    """The numbers of an iterated selection that decide what one user alone may bring out."""

    kept: int  # N, the most strings of a user
    grid: int  # G, the L2 norm of a user's weights
    evidence: tuple[int, ...]  # what a unit of weight counts in each round
    sigmas: tuple[Fraction, ...]  # of the noise of each round, in units of weight
    cuts: tuple[int, ...]  # of the evidence after each round but the last
    threshold: int  # of the evidence after the last round
    multipliers: tuple[float, ...]  # l_2, .., l_R of the proof: any give a bound, good ones a small one

    @property
    def step(self) -> int:
        """The step of the lattice on which evidence is bounded; cuts and threshold are multiples of it."""
        return lattice_step(self.evidence, self.sigmas, self.grid)

    def check(self) -> None:
        """Refuse numbers that are no rounds, or whose certificate would take for ever."""
        rounds = len(self.sigmas)
        levels = (*self.cuts, self.threshold)
        sound = (
            2 <= rounds <= 6
            and len(self.evidence) == len(levels) == rounds
            and len(self.multipliers) == rounds - 1
            and all(type(n) is int for n in (self.kept, self.grid, *self.evidence, *levels))
            and 1 <= self.kept <= 10_000
            and 1 <= self.grid <= 2**16
            and all(1 <= weight <= 2**10 for weight in self.evidence)
            and all(Fraction(1, 2) <= sigma <= 2**30 for sigma in self.sigmas)
            and all(math.isfinite(value) and value >= 0 for value in self.multipliers)
            and levels[0] >= 1
            and all(low < high for low, high in itertools.pairwise(levels))
        )
        if not sound or any(level % self.step for level in levels):
            raise DataError("the numbers of an iterated selection make no sense", fix="Get the release again")
        longest = self.threshold // self.step + 3 * _FINE + max(self.evidence) * self.grid // self.step
        if longest > _MOST_CELLS:
            raise DataError(
                "the certificate of an iterated selection would take too long",
                why=f"its threshold is {self.threshold // self.step:,} steps of its lattice",
                fix="Get the release again",
            )


def lattice_step(evidence: Sequence[int], sigmas: Sequence[Fraction], grid: int) -> int:
    """Return the step of the lattice: a public function of noise and weights, so that nobody has to state it."""
    return max(math.floor(evidence[-1] * sigmas[-1] / _FINE), -(-max(evidence) * grid // _FINE))


@lru_cache(maxsize=64)
def lone_strings(rounds: Rounds) -> float:
    """Bound the expected number of strings of one user alone that come out, whatever the user holds and does.

    So it bounds the chance that any comes out, too. Every rounding is upwards (docs/proofs/iterated.md).
    """
    rounds.check()
    return _bound(rounds, range(1, rounds.kept + 1))


def _bound(rounds: Rounds, sizes: Iterable[int]) -> float:
    """Evaluate the bound for users with some numbers of strings."""
    h, evidence, cuts, threshold = rounds.step, rounds.evidence, rounds.cuts, rounds.threshold
    sigmas = [float(sigma) for sigma in rounds.sigmas]
    # From here on a string counts as out.
    top = threshold + 2 * (int(evidence[-1] * sigmas[-1] / h) + 1) * h
    reach = -(-max(evidence) * rounds.grid // h)
    mean = cuts[-1] + h * np.arange((top - cuts[-1]) // h + 1 + reach)
    out = _UP * ndtr(-(threshold - mean - evidence[-1] / 2) / (evidence[-1] * sigmas[-1]))
    rises = np.empty(0)
    for r in range(len(sigmas) - 1, 0, -1):  # `out` is before the noise of round r, counted from 0
        cells = (top - cuts[r - 1]) // h + 1
        best = _best_weight(out, cells, evidence[r], rounds.multipliers[r - 1], rounds.grid, h)
        # Between two points of the lattice at most what it is at the upper one.
        above = np.minimum(np.append(best[1:], 1.0), 1.0)
        above[-1] = 1.0
        rises = np.diff(above, prepend=0.0)
        if r > 1:
            ahead = (cuts[r - 1] - cuts[r - 2]) // h
            size = (top - cuts[r - 2]) // h + 1 + reach
            lift = (ahead + np.arange(-(size - 1), cells)) * h - evidence[r - 1] / 2
            # Sums of positive terms, each computed directly: a Fourier transform errs absolutely.
            out = _UP * np.correlate(ndtr(-lift / (evidence[r - 1] * sigmas[r - 1])), rises, "valid")[::-1]
    points = cuts[0] + h * np.arange(len(rises))
    worst = 0.0
    for n in sizes:
        weight = math.isqrt(rounds.grid**2 // n)
        alive = ndtr(-(points - evidence[0] * (weight + 0.5)) / (evidence[0] * sigmas[0]))
        worst = max(worst, _UP * n * float(alive @ rises))
    return _UP * (worst + sum(rounds.multipliers)) + _UNDERFLOW


def _best_weight(out: _Floats, cells: int, evidence: int, multiplier: float, grid: int, h: int) -> _Floats:
    """Return, on the lattice, the most that a weight gains, less what the multiplier charges for its square."""
    best = out[:cells].copy()
    for steps in range(1, -(-evidence * grid // h) + 1):
        least = (steps - 1) * h // evidence + 1  # the least weight that lifts evidence by more than steps - 1
        np.maximum(best, out[steps : steps + cells] - _DOWN * multiplier * (least / grid) ** 2, out=best)
    return np.maximum.accumulate(np.maximum(best, 0.0))


@lru_cache(maxsize=64)
def calibrate_rounds(mu_squared: Fraction, delta: Fraction, shape: Shape = SHAPE) -> Rounds:
    """Choose the noise for a share of mu^2, and the least threshold at which :func:`lone_strings` is at most ``delta``.

    The search may go wrong in any way: its last step is the certificate.

    >>> rounds = calibrate_rounds(Fraction(3, 10), Fraction(5, 10**6))
    >>> rounds.threshold, lone_strings(rounds) <= 5e-6
    (59831, True)
    """
    if mu_squared <= 0 or not 0 < delta < 1:
        raise CalibrationError("iterated selection needs mu^2 > 0 and 0 < delta < 1", fix="Raise epsilon or delta")
    evidence, sigmas = shape.evidence, tuple(_scale(shape.grid, mu_squared * share) for share in shape.shares)
    h, target = lattice_step(evidence, sigmas, shape.grid), round_down(delta)
    spread = np.sqrt(np.cumsum([(float(s) * weight) ** 2 for s, weight in zip(sigmas, evidence, strict=True)]))
    cuts = tuple(h * max(1, math.ceil(cut * sd / h)) for cut, sd in zip(shape.cuts, spread, strict=False))
    # Where the search begins. A tiny delta is far out in the tail, where a step is dear and multipliers gain little.
    tiny = target < 1e-12
    far = 1.1 * math.sqrt(-2 * math.log(target)) if tiny else 5.5
    threshold = max(h * math.ceil(far * spread[-1] / h), cuts[-1] + h)
    start = Rounds(shape.kept, shape.grid, evidence, sigmas, cuts, threshold, (target / 10,) * len(cuts))
    found = _lowered(start, target, 512 if tiny else 8)
    for _ in range(0 if tiny else 2):
        found = _lowered(_tuned(found, target), target, 8)
    for _ in range(_MOST_STEPS):
        if lone_strings(found) <= target:
            return found
        found = replace(found, threshold=found.threshold + h)
    raise CalibrationError("no threshold was found for an iterated selection", fix="Raise epsilon or delta")


def _scale(grid: int, mu_squared: Fraction) -> Fraction:
    """Return the least multiple of 1/1024 with grid^2/sigma^2 <= mu^2, exactly."""
    square = Fraction(2**20 * grid**2) / mu_squared
    return Fraction(math.isqrt(math.ceil(square) - 1) + 1, 2**10)


def _tried(rounds: Rounds) -> float:
    return _bound(rounds, {*(n for n in _TRIED if n < rounds.kept), rounds.kept})


def _tuned(rounds: Rounds, target: float) -> Rounds:
    """Look for multipliers that make the bound small, one at a time."""
    best = _tried(rounds)
    for factor in (2.0, 1.3):
        for place in range(len(rounds.multipliers)):
            for change in (factor, 1 / factor):
                while True:
                    tried = list(rounds.multipliers)
                    tried[place] = tried[place] * change if tried[place] * change > target / 1000 else 0.0
                    other = replace(rounds, multipliers=tuple(tried))
                    value = _tried(other)
                    if value >= best * (1 - 1e-6):
                        break
                    rounds, best = other, value
    return rounds


def _lowered(rounds: Rounds, target: float, stride: int) -> Rounds:
    """Return the lowest threshold near the given one at which the bound holds for the sizes that are tried."""
    h = rounds.step
    step = stride * h
    for _ in range(_MOST_STEPS):
        if _tried(rounds) <= target:
            break
        rounds = replace(rounds, threshold=rounds.threshold + step)
    while step >= h:
        while rounds.threshold - step > rounds.cuts[-1]:
            lower = replace(rounds, threshold=rounds.threshold - step)
            if _tried(lower) > target:
                break
            rounds = lower
        step //= 2
    return rounds


@dataclass(frozen=True)
class IteratedSelection(StepParameters):
    """A list of strings from rounds of users' weights with rounded Gaussian noise, each guided by the one before.

    **Guarantee:** mu-GDP with mu^2 = the sum over rounds of grid^2/sigma^2, for one user, add-remove, beside a chance
    of at most ``union_delta`` that a string of that user alone comes out, which is added outside
    (docs/proofs/iterated.md). Both double under replace-one. The certificate is computed anew from the other numbers;
    a smaller ``union_delta`` is refused.
    """

    kind: ClassVar[str] = "iterated-selection"

    sigmas: tuple[Fraction, ...]  # of the noise of each round, in units of weight
    cuts: tuple[int, ...]  # of the evidence after each round but the last
    threshold: int  # of the evidence after the last round
    multipliers: tuple[Fraction, ...]  # of the certificate
    union_delta: Fraction  # what the certificate gives, or a little more
    keys_per_user: int = SHAPE.kept  # N, the most strings of a user
    grid: int = SHAPE.grid  # the most of a user's L2 norm
    evidence: tuple[int, ...] = SHAPE.evidence  # what a unit of weight counts in each round
    enough: Fraction = Fraction(7, 10)  # a string with this share of the threshold needs less weight from each user,
    power: Fraction = Fraction(3, 2)  # the less the more it has, by this power,
    least: Fraction = Fraction(1, 50)  # but never less than this share
    relation: Relation = Relation.ADD_REMOVE

    @classmethod
    def certified(cls, rounds: Rounds) -> IteratedSelection:
        """Make the step of some rounds; the certificate is rounded up to eight digits, as doubles differ by machine."""
        union = exact(significant_up(exact(lone_strings(rounds)), 8))
        given = (rounds.sigmas, rounds.cuts, rounds.threshold, tuple(map(Fraction, rounds.multipliers)), union)
        return cls(*given, rounds.kept, rounds.grid, rounds.evidence)

    @property
    def rounds(self) -> Rounds:
        """The numbers that the certificate looks at."""
        multipliers = tuple(map(float, self.multipliers))
        return Rounds(self.keys_per_user, self.grid, self.evidence, self.sigmas, self.cuts, self.threshold, multipliers)

    @property
    def loss(self) -> Loss:
        """mu^2, and the certified chance outside."""
        if not lone_strings(self.rounds) <= self.union_delta < 1 or not Fraction(1, 2**20) <= self.least <= 1:
            raise DataError("an iterated selection is not certified for what it states", fix="Get the release again")
        both_ways = 1 if self.relation is Relation.ADD_REMOVE else 2
        mu_squared = sum((Fraction(self.grid) ** 2 / sigma**2 for sigma in self.sigmas), Fraction(0))
        return Loss(mu_squared=both_ways * mu_squared, union_delta=both_ways * self.union_delta)
