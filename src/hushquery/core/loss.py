"""Loss: what steps cost, kept in the form in which costs add without waste.

A Gaussian step adds to mu^2, a pure step to a list of epsilons, a stability threshold to a sum of deltas, and a
Gaussian sparse histogram keeps its own exact curve. Only at the end is the whole converted to one (epsilon, delta):
never add the epsilons of steps whose mu^2 could have been added.

The conversion (docs/proofs/composition.md):

* mu-GDP steps: ``agd(epsilon, mu)`` with mu^2 the sum of theirs; exact.
* thresholds that fail with probability at most f in all: ``f + (1 - f) agd(epsilon, mu)``, under either relation.
* one Gaussian sparse histogram beside them: its worst split; a second one counts as mu^2 and its threshold's delta.
* pure steps r_i: the loss of randomised responses, so ``delta(epsilon) = E[curve(epsilon - L)]`` with
  ``L = sum of +-r_i``, plus sign with probability e^r/(1+e^r); exact for the worst case (Kairouz, Oh, Viswanath 2015).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np

from hushquery.core.gaussian import agd_mpf
from hushquery.core.rounding import Number, exact, rational_mpf, round_up, working
from hushquery.core.sparse_gaussian import SparseGaussian
from hushquery.core.unit import Relation
from hushquery.errors import LedgerCorrupt, UsageError

__all__ = ["Loss", "pure_loss_atoms"]

# More distinct sums of pure losses than this are put on a grid of so many steps, and so many cells merged into one.
_MOST_ATOMS = 1024
_LARGEST_EPSILON = 2**20
_GRID_STEPS = 2**14
_MERGED = 16
_NEGLIGIBLE = mpmath.mpf(10) ** -40


@dataclass(frozen=True)
class Loss:
    """The cost of some steps on one population under one relation.

    Args:
        mu_squared: The sum of the squared GDP parameters.
        pure: The epsilons of the pure steps.
        threshold_delta: The sum of the probabilities that a stability threshold lets a key of one user alone through,
            and
            of the deltas of (epsilon, delta) steps whose epsilon is in ``pure``. Not for events that depend on noise
            which is released too (a clamp, say): those cost (1 + e^epsilon) times their probability.
        sparse: Gaussian sparse histograms, each with its own exact curve.

    >>> both = Loss(mu_squared="1/4") + Loss(pure=("1/2",))
    >>> f"{both.epsilon(1e-6):.3f}"
    '2.703'
    >>> Loss(pure=("1/2", "1/4")).epsilon(0)
    0.75
    """

    mu_squared: Fraction
    pure: tuple[Fraction, ...]
    threshold_delta: Fraction
    sparse: tuple[SparseGaussian, ...]

    def __init__(
        self,
        mu_squared: Number = 0,
        pure: tuple[Number, ...] = (),
        threshold_delta: Number = 0,
        sparse: tuple[SparseGaussian, ...] = (),
    ) -> None:
        squared, failures = exact(mu_squared, "mu^2"), exact(threshold_delta, "a threshold's delta")
        epsilons = tuple(sorted(exact(r, "a pure epsilon") for r in pure))
        if min(squared, failures, *epsilons) < 0:
            raise UsageError("a privacy loss is negative", fix="This is a defect of the mechanism that stated it")
        object.__setattr__(self, "mu_squared", squared)
        object.__setattr__(self, "pure", epsilons)
        object.__setattr__(self, "threshold_delta", failures)
        object.__setattr__(self, "sparse", tuple(sparse))

    def __add__(self, other: Loss) -> Loss:
        if len({step.relation for step in self.sparse + other.sparse}) > 1:
            raise UsageError("losses under different relations can't be added", fix="State them under one relation")
        return Loss(
            self.mu_squared + other.mu_squared,
            self.pure + other.pure,
            self.threshold_delta + other.threshold_delta,
            self.sparse + other.sparse,
        )

    @property
    def is_pure(self) -> bool:
        """Whether a finite epsilon exists at delta = 0."""
        return not (self._has_gaussian or self.threshold_delta)

    def delta(self, epsilon: Number) -> float:
        """Give the delta at which all this is (epsilon, delta)-DP, rounded up; 1 when nothing is promised."""
        with working():
            return min(1.0, round_up(self._delta(rational_mpf(exact(epsilon, "epsilon")))))

    def fits(self, epsilon: Number, delta: Number) -> bool:
        """Whether all this is within (epsilon, delta).

        Without Gaussian noise no rounding is involved: epsilons that sum to the budget fit, and so do deltas.
        """
        e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
        if not self._has_gaussian and sum(self.pure, Fraction(0)) <= e and self.threshold_delta <= d:
            return True
        with working():
            return bool(self._delta(rational_mpf(e)) <= rational_mpf(d))

    def epsilon(self, delta: Number) -> float:
        """Give the smallest epsilon at ``delta``, rounded up; infinite when no epsilon will do."""
        return _smallest_epsilon(self, exact(delta, "delta"))

    def _epsilon(self, target: Fraction) -> float:
        total = round_up(sum(self.pure, Fraction(0)))
        largest = total if not self._has_gaussian and self.threshold_delta <= target else float("inf")
        if target <= self.threshold_delta and largest == total:
            return total
        with working():
            goal = rational_mpf(target)
            if self._delta(mpmath.mpf(0)) <= goal:
                return 0.0
            high = _smallest_root(self._delta, goal)
            if high is None:
                return largest
            return min(round_up(high), largest)

    @property
    def _has_gaussian(self) -> bool:
        return bool(self.mu_squared or self.sparse)

    def _delta(self, epsilon: Any) -> mpmath.mpf:
        curve = self._curve()
        if not self.pure:
            return curve(epsilon)
        return mpmath.fsum(p * curve(epsilon - loss) for loss, p in pure_loss_atoms(self.pure))

    def _curve(self) -> Callable[[Any], mpmath.mpf]:
        """Give the delta curve of everything but the pure steps."""
        fail = rational_mpf(self.threshold_delta)
        mu2 = rational_mpf(self.mu_squared)
        if fail >= 1:
            return lambda _: mpmath.mpf(1)
        if not self.sparse:
            return lambda e: _gdp_with_failures(e, mu2, fail)
        # Any one histogram may keep its exact curve while the others count as mu^2 and threshold delta; take the best.
        sums = [(rational_mpf(s.mu_squared), mpmath.mpf(s.threshold_delta())) for s in self.sparse]
        all_mu2, all_fail = mu2 + sum(m for m, _ in sums), fail + sum(f for _, f in sums)

        def curve(e: Any) -> mpmath.mpf:
            bounds = [_gdp_with_failures(e, all_mu2, all_fail)]
            for one, (m, f) in zip(self.sparse, sums, strict=True):
                if all_fail - f < 1:
                    bounds.append(one.delta_mpf(e, all_mu2 - m, mpmath.log1p(-(all_fail - f))))
            return min(bounds)

        return curve

    def to_json(self) -> dict[str, Any]:
        """Give the loss as plain data with exact fractions, as the ledger and manifests keep it."""
        return {
            "mu_squared": str(self.mu_squared),
            "pure": [str(r) for r in self.pure],
            "threshold_delta": str(self.threshold_delta),
            "sparse": [
                {
                    "keys_per_user": s.keys_per_user,
                    "sigma": str(s.sigma),
                    "threshold": s.threshold,
                    "relation": s.relation.value,
                }
                for s in self.sparse
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Loss:
        """Read what :meth:`to_json` wrote; anything unknown is refused, because an unknown cost can't be zero."""
        known = {"mu_squared", "pure", "threshold_delta", "sparse"}
        sparse_known = {"keys_per_user", "sigma", "threshold", "relation"}
        strange = set(data) - known or {key for s in data.get("sparse", ()) for key in set(s) - sparse_known}
        if strange or set(data) != known:
            raise LedgerCorrupt(
                "a recorded loss has parts this version does not know or lacks parts it needs",
                why=", ".join(sorted(strange)) or "something is missing",
                fix="Upgrade hushquery to the version that wrote it",
            )
        if not _of_texts(data):
            raise TypeError("a recorded loss is not written as one")
        return cls(
            data["mu_squared"],
            tuple(data["pure"]),
            data["threshold_delta"],
            tuple(
                SparseGaussian(s["keys_per_user"], exact(s["sigma"]), s["threshold"], Relation.of(s["relation"]))
                for s in data["sparse"]
            ),
        )


def _of_texts(data: Mapping[str, Any]) -> bool:
    """Say whether a recorded loss is written as :meth:`Loss.to_json` writes it: exact numbers as texts, in lists."""
    if not isinstance(data["pure"], list) or not isinstance(data["sparse"], list):
        return False
    if not all(type(s[whole]) is int for s in data["sparse"] for whole in ("keys_per_user", "threshold")):
        return False
    texts = [s[text] for s in data["sparse"] for text in ("sigma", "relation")]
    return all(isinstance(text, str) for text in (data["mu_squared"], data["threshold_delta"], *data["pure"], *texts))


@lru_cache(maxsize=256)
def _smallest_epsilon(loss: Loss, delta: Fraction) -> float:
    """Remember: a plan, its ledger entry, its guarantee and its page all ask the same question."""
    return loss._epsilon(delta)


def _smallest_root(delta: Callable[[Any], mpmath.mpf], goal: mpmath.mpf) -> mpmath.mpf | None:
    """Find the smallest epsilon, to one part in 10^15 and from above, at which a falling curve is at most ``goal``.

    Regula falsi on the logarithm of the curve (Illinois rule) with a bisection whenever three steps did not halve the
    bracket: a tenth of bisection's evaluations, each of which is many digits long. The upper end of the bracket was
    evaluated and holds, whatever the curve looks like.
    """
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    below, above = delta(low), delta(high)
    while above > goal:
        low, below, high = high, above, high * 2
        if high > _LARGEST_EPSILON:
            return None
        above = delta(high)
    tolerance = mpmath.mpf(10) ** -15
    # What the end that stays is multiplied with, so that it comes nearer too.
    low_weight = high_weight = mpmath.mpf(1)
    last, width, slow = 0, high - low, 0
    while high - low > high * tolerance:
        if slow == 3 or above <= 0:
            at, slow = (low + high) / 2, 0
        else:
            left, right = low_weight * mpmath.log(below / goal), high_weight * mpmath.log(above / goal)
            at = (low * right - high * left) / (right - left)
            # Never nearer to an end than half of what is asked for.
            at = min(max(at, low + high * tolerance / 2), high - high * tolerance / 2)
        value = delta(at)
        if value <= goal:
            high, above, high_weight = at, value, mpmath.mpf(1)
            low_weight, last = (low_weight / 2 if last == 1 else low_weight), 1
        else:
            low, below, low_weight = at, value, mpmath.mpf(1)
            high_weight, last = (high_weight / 2 if last == -1 else high_weight), -1
        slow, width = (0, high - low) if high - low <= width / 2 else (slow + 1, width)
    return high


def _gdp_with_failures(epsilon: Any, mu2: Any, fail: Any) -> mpmath.mpf:
    if fail >= 1:
        return mpmath.mpf(1)
    return fail + (1 - fail) * agd_mpf(epsilon, mpmath.sqrt(mu2))


@lru_cache(maxsize=64)
def pure_loss_atoms(pure: tuple[Fraction, ...]) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Give the distribution of the worst-case privacy loss of pure steps, as (loss, probability) pairs.

    Each step of loss r is dominated by a randomised response that loses +r with probability e^r/(1+e^r) and -r
    otherwise. Equal steps are binomial. When the sums are too many to list, each r is rounded *up* to a grid: a larger
    pure epsilon dominates a smaller one.
    """
    groups = Counter(r for r in pure if r > 0)
    if math.prod(count + 1 for count in groups.values()) > _MOST_ATOMS:
        return _atoms_on_grid(groups)
    law: dict[Fraction, mpmath.mpf] = {Fraction(0): mpmath.mpf(1)}
    for r, count in groups.items():
        plus = 1 / (1 + mpmath.exp(-rational_mpf(r)))
        single = [
            (r * (2 * i - count), mpmath.binomial(count, i) * plus**i * (1 - plus) ** (count - i))
            for i in range(count + 1)
        ]
        folded: dict[Fraction, mpmath.mpf] = {}
        for loss, p in law.items():
            for extra, q in single:
                folded[loss + extra] = folded.get(loss + extra, mpmath.mpf(0)) + p * q
        law = folded
    return _without_negligible([(rational_mpf(loss), p) for loss, p in law.items()])


def _atoms_on_grid(groups: Counter[Fraction]) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Round every epsilon up to a grid, add up in double precision, and merge neighbours upwards."""
    step = sum((r * count for r, count in groups.items()), Fraction(0)) / _GRID_STEPS
    cells = [(math.ceil(r / step), count) for r, count in groups.items()]
    reach = sum(k * count for k, count in cells)
    law = np.zeros(2 * reach + 1)
    law[reach] = 1.0
    for k, count in cells:
        plus = round_up(1 / (1 + mpmath.exp(-rational_mpf(k * step))))
        for _ in range(count):
            moved = np.zeros_like(law)
            moved[k:] = plus * law[:-k]
            moved[:-k] += (1 - plus) * law[k:]
            law = moved
    # The doubles are good to 1e-12 relatively, and what underflowed is counted at the largest loss.
    law *= 1 + 1e-9
    law[-1] += 1e-290
    merged = np.add.reduceat(law[::-1], np.arange(0, len(law), _MERGED))
    losses = reach - np.arange(0, len(law), _MERGED)
    return _without_negligible(
        [(rational_mpf(int(k) * step), mpmath.mpf(float(p))) for k, p in zip(losses, merged, strict=True)]
    )


def _without_negligible(atoms: list[tuple[mpmath.mpf, mpmath.mpf]]) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Move what is too unlikely to matter to the largest loss, which can only overstate."""
    kept = [(loss, p) for loss, p in atoms if p > _NEGLIGIBLE]
    rest = mpmath.fsum(p for _, p in atoms if p <= _NEGLIGIBLE)
    return [*kept, (max(loss for loss, _ in atoms), rest)] if rest else kept
