"""Loss: the cost of steps in the form in which costs add without waste, and the cost of each kind of step.

Gaussian steps add mu^2, pure steps a list of epsilons, thresholds a sum of deltas, and a Gaussian sparse histogram
keeps its exact curve (a second one counts as mu^2 and its threshold's delta). The whole is converted to one (epsilon,
delta) at the end: never add the epsilons of steps whose mu^2 could have been added (docs/proofs/composition.md).

The second half computes the cost of a step from the integers and fractions it runs with. Plan, noise, manifest and
``hushquery verify`` use the same numbers. Proofs: docs/proofs/thresholds.md, gaussian-threshold.md, weights.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import mpmath
import numpy as np

from hushquery.core.budget import (
    Number,
    Relation,
    exact,
    rational_mpf,
    round_up,
    smallest_root,
    working,
)
from hushquery.core.calibration import WEIGHT_GRID, SparseGaussian, agd_mpf, knapsack_delta, laplace_delta, normal_sf
from hushquery.errors import CalibrationError, DataError, LedgerCorrupt, UsageError

# More distinct sums of pure losses than this are put on a grid of so many steps, and so many cells merged into one.
_MOST_ATOMS, _GRID_STEPS, _MERGED = 1024, 2**14, 16
_NEGLIGIBLE = mpmath.mpf(10) ** -40


@dataclass(frozen=True)
class Loss:
    """The cost of some steps on one population under one relation: the sum of squared GDP parameters, the epsilons of
    pure steps, and Gaussian sparse histograms with their own curves.
    ``threshold_delta`` sums the chances that a threshold lets a key of one user alone through, and the deltas of steps
    whose epsilon is in ``pure``. It is not for events that depend on noise which is released too (a clamp, say): those
    cost (1 + e^epsilon) times their probability. ``union_delta`` sums chances that hold on average only, not given
    every history (docs/proofs/iterated.md): it is added outside, without the factor that thresholds have.

    >>> both = Loss(mu_squared="1/4") + Loss(pure=("1/2",))
    >>> f"{both.epsilon(1e-6):.3f}"
    '2.703'
    """

    mu_squared: Fraction
    pure: tuple[Fraction, ...]
    threshold_delta: Fraction
    sparse: tuple[SparseGaussian, ...]
    union_delta: Fraction

    def __init__(
        self,
        mu_squared: Number = 0,
        pure: tuple[Number, ...] = (),
        threshold_delta: Number = 0,
        sparse: tuple[SparseGaussian, ...] = (),
        union_delta: Number = 0,
    ) -> None:
        squared, failures = exact(mu_squared, "mu^2"), exact(threshold_delta, "a threshold's delta")
        epsilons, union = tuple(sorted(exact(r, "a pure epsilon") for r in pure)), exact(union_delta, "a union's delta")
        if min(squared, failures, union, *epsilons) < 0:
            raise UsageError("a privacy loss is negative", fix="This is a defect of the mechanism that stated it")
        object.__setattr__(self, "mu_squared", squared)
        object.__setattr__(self, "pure", epsilons)
        object.__setattr__(self, "threshold_delta", failures)
        object.__setattr__(self, "sparse", tuple(sparse))
        object.__setattr__(self, "union_delta", union)

    def __add__(self, other: Loss) -> Loss:
        sparse, delta = self.sparse + other.sparse, self.threshold_delta + other.threshold_delta
        if len({step.relation for step in sparse}) > 1:
            raise UsageError("losses under different relations can't be added", fix="State them under one relation")
        union = self.union_delta + other.union_delta
        return Loss(self.mu_squared + other.mu_squared, self.pure + other.pure, delta, sparse, union)

    @property
    def is_pure(self) -> bool:
        """Whether a finite epsilon exists at delta = 0."""
        return not (self._has_gaussian or self.threshold_delta or self.union_delta)

    def delta(self, epsilon: Number) -> float:
        """Return the delta at which all this is (epsilon, delta)-DP, rounded up; 1 when nothing is promised."""
        with working():
            rest = self._delta(rational_mpf(exact(epsilon, "epsilon")))
            return min(1.0, round_up(rest + rational_mpf(self.union_delta)))

    def fits(self, epsilon: Number, delta: Number) -> bool:
        """Return whether all this is within (epsilon, delta); exact where there is no Gaussian noise."""
        e, d = exact(epsilon, "epsilon"), exact(delta, "delta") - self.union_delta
        if d < 0:
            return False
        if not self._has_gaussian and sum(self.pure, Fraction(0)) <= e and self.threshold_delta <= d:
            return True
        with working():
            return bool(self._delta(rational_mpf(e)) <= rational_mpf(d))

    def epsilon(self, delta: Number) -> float:
        """Return the smallest epsilon at ``delta``, rounded up; infinite when no epsilon will do."""
        return _smallest_epsilon(self, exact(delta, "delta"))

    def _epsilon(self, target: Fraction) -> float:
        target -= self.union_delta
        if target < 0:
            return math.inf
        total = round_up(sum(self.pure, Fraction(0)))
        largest = total if not self._has_gaussian and self.threshold_delta <= target else float("inf")
        if target <= self.threshold_delta and largest == total:
            return total
        with working():
            goal = rational_mpf(target)
            if self._delta(mpmath.mpf(0)) <= goal:
                return 0.0
            high = smallest_root(self._delta, goal)
            return largest if high is None else min(round_up(high), largest)

    @property
    def _has_gaussian(self) -> bool:
        return bool(self.mu_squared or self.sparse)

    def _delta(self, epsilon: Any) -> mpmath.mpf:
        """Return the delta of everything but :attr:`union_delta`."""
        curve = self._curve()
        if not self.pure:
            return curve(epsilon)
        return mpmath.fsum(p * curve(epsilon - loss) for loss, p in pure_loss_atoms(self.pure))

    def _curve(self) -> Callable[[Any], mpmath.mpf]:
        fail = rational_mpf(self.threshold_delta)
        mu2 = rational_mpf(self.mu_squared)
        if fail >= 1:
            return lambda _: mpmath.mpf(1)
        if not self.sparse:
            return lambda e: _gdp_with_failures(e, mu2, fail)
        # Any one histogram may keep its exact curve while the others count as mu^2 and delta; take the best.
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
        """Return the loss as plain data with exact fractions, as the ledger and manifests keep it."""
        data: dict[str, Any] = {
            "mu_squared": str(self.mu_squared),
            "pure": [str(r) for r in self.pure],
            "threshold_delta": str(self.threshold_delta),
            "sparse": [asdict(s) | {"sigma": str(s.sigma), "relation": s.relation.value} for s in self.sparse],
        }
        # Left out where there is none, as in everything that was written before there was one.
        return data | ({"union_delta": str(self.union_delta)} if self.union_delta else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Loss:
        """Read what :meth:`to_json` wrote; anything unknown is refused, because an unknown cost can't be zero."""
        known = {"mu_squared", "pure", "threshold_delta", "sparse", "union_delta"}
        sparse_known = {"keys_per_user", "sigma", "threshold", "relation"}
        strange = set(data) - known or {key for s in data.get("sparse", ()) for key in set(s) - sparse_known}
        if strange or set(data) - {"union_delta"} != known - {"union_delta"}:
            raise LedgerCorrupt(
                "a recorded loss has parts this version does not know or lacks parts it needs",
                why=", ".join(sorted(strange)) or "something is missing",
                fix="Upgrade hushquery to the version that wrote it",
            )
        if not _of_texts(data):
            raise TypeError("a recorded loss is not written as one")
        sparse = tuple(
            SparseGaussian(s["keys_per_user"], exact(s["sigma"]), s["threshold"], Relation.of(s["relation"]))
            for s in data["sparse"]
        )
        union = data.get("union_delta", "0")
        return cls(data["mu_squared"], tuple(data["pure"]), data["threshold_delta"], sparse, union)


def _of_texts(data: Mapping[str, Any]) -> bool:
    """Return whether a recorded loss is written as :meth:`Loss.to_json` writes it: exact numbers as texts, in lists."""
    if not isinstance(data["pure"], list) or not isinstance(data["sparse"], list):
        return False
    if not all(type(s[whole]) is int for s in data["sparse"] for whole in ("keys_per_user", "threshold")):
        return False
    texts = [s[text] for s in data["sparse"] for text in ("sigma", "relation")]
    texts += [data["mu_squared"], data["threshold_delta"], data.get("union_delta", "0"), *data["pure"]]
    return all(isinstance(text, str) for text in texts)


@lru_cache(maxsize=256)
def _smallest_epsilon(loss: Loss, delta: Fraction) -> float:
    """Remember: a plan, its ledger entry, its guarantee and its page all ask the same question."""
    return loss._epsilon(delta)


def _gdp_with_failures(epsilon: Any, mu2: Any, fail: Any) -> mpmath.mpf:
    if fail >= 1:
        return mpmath.mpf(1)
    return fail + (1 - fail) * agd_mpf(epsilon, mpmath.sqrt(mu2))


@lru_cache(maxsize=64)
def pure_loss_atoms(pure: tuple[Fraction, ...]) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Return the distribution of the worst-case privacy loss of pure steps, as (loss, probability) pairs.
    A step of loss r is dominated by a randomised response that loses +r with probability e^r/(1+e^r), else -r. When the
    sums are too many to list, each r is rounded *up* to a grid: a larger pure epsilon dominates a smaller one.
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


@dataclass(frozen=True)
class StepParameters(ABC):
    """The numbers of one randomised step; subclasses say what they cost."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """What the step costs, rounded up."""

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain data; fractions as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if values.get("min_users") == 1:  # no floor, as in every release before there were floors
            del values["min_users"]
        return {"kind": self.kind} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Fraction) else value.value if isinstance(value, Relation) else value


@dataclass(frozen=True)
class LaplaceHistogram(StepParameters):
    """Counts with discrete Laplace noise, released where they reach a threshold, or for public keys.

    **Guarantee:** (d/b, delta) for one user, add-remove, with delta the exact chance that a key of that user alone is
    released; (2d/b, the same delta) under replace-one, where one dataset's new keys are missing in the other and never
    both (docs/proofs/headlist.md). The noisy counts themselves may be published.
    """

    kind: ClassVar[str] = "laplace-histogram"

    keys_per_user: int  # d, the most a user adds to all counts together
    scale: Fraction  # b of the noise
    threshold: int | None = None  # R, released iff count + noise >= R; None for keys that are public
    row_counts: bool = False  # whether a user may add all of d to a single key
    least_delta: Fraction = Fraction(0)  # a minimum to charge, where a paper claims more
    relation: Relation = Relation.ADD_REMOVE
    min_users: int = 1  # N, the floor: keys of fewer users are left out, and N - 1 is taken off a count before noise

    def __post_init__(self) -> None:
        _check_floor(self.min_users, self.threshold, self.row_counts)

    @property
    def loss(self) -> Loss:
        """Pure d/b and the threshold's delta; more than d/b where the threshold is so low that absence shows."""
        both_ways = 1 if self.relation is Relation.ADD_REMOVE else 2
        epsilon = Fraction(self.keys_per_user * both_ways) / self.scale
        if self.threshold is None:
            return Loss(pure=(epsilon,), threshold_delta=self.least_delta)
        # A key that only one user holds is absent with probability 1 - p in that user's dataset, and always without:
        # the factor 1/(1 - p) must be within e^(1/b), else it is what is charged per key. Under replace-one the other
        # dataset's d keys can only add their shift of counts: absence speaks for the keys of one at a time.
        p = exact(laplace_delta(self.scale, 1, self.threshold))
        if p >= 1:
            raise CalibrationError("this threshold hides nothing", fix="Raise the threshold")
        with working():
            absent = -mpmath.log1p(-rational_mpf(p))
            if absent > rational_mpf(1 / self.scale):
                epsilon += self.keys_per_user * (exact(round_up(absent)) - 1 / self.scale)
        delta = exact(laplace_delta(self.scale, self.keys_per_user, self.threshold, row_counts=self.row_counts))
        return Loss(pure=(epsilon,), threshold_delta=max(delta, self.least_delta))


@dataclass(frozen=True)
class GaussianHistogram(StepParameters):
    """Counts with rounded Gaussian noise, released where they reach a threshold, or for public keys.

    **Guarantee:** the exact curve of :class:`~hushquery.core.calibration.SparseGaussian` with a threshold;
    mu-GDP with mu^2 = d/sigma^2 without (2d/sigma^2 under replace-one).
    """

    kind: ClassVar[str] = "gaussian-histogram"

    keys_per_user: int  # d; a user adds 1 to at most d keys
    sigma: Fraction
    threshold: int | None = None  # R, released iff count + noise >= R; None for keys that are public
    relation: Relation = Relation.ADD_REMOVE
    min_users: int = 1  # N, the floor: keys of fewer users are left out, and N - 1 is taken off a count before noise

    def __post_init__(self) -> None:
        _check_floor(self.min_users, self.threshold)

    @property
    def loss(self) -> Loss:
        """The sparse histogram's curve, or mu^2."""
        sparse = SparseGaussian(self.keys_per_user, self.sigma, self.threshold or 0, self.relation)
        return Loss(mu_squared=sparse.mu_squared) if self.threshold is None else Loss(sparse=(sparse,))


def _check_floor(min_users: int, threshold: int | None, row_counts: bool = False) -> None:
    """Refuse a floor where docs/proofs/floor.md proves nothing; it costs nothing where it does."""
    if min_users < 1 or (min_users > 1 and (threshold is None or row_counts)):
        raise UsageError(
            "a floor is proven for users per secret key, with a threshold", fix="Leave it out, or count users"
        )


@dataclass(frozen=True)
class OptimalSelection(StepParameters):
    """Keys released with the largest possible chance at (epsilon, delta) per key; no counts.

    **Guarantee:** (d epsilon, d delta) for one user, add-remove: basic composition of d keys, each optimal.
    """

    kind: ClassVar[str] = "optimal-selection"

    keys_per_user: int  # d; a user adds 1 to at most d keys
    epsilon: Fraction  # per key
    delta: Fraction  # per key

    @property
    def loss(self) -> Loss:
        """Pure d epsilon, and d delta."""
        return Loss(pure=(self.keys_per_user * self.epsilon,), threshold_delta=self.keys_per_user * self.delta)


@dataclass(frozen=True)
class GaussianWeights(StepParameters):
    """Sums of users' weights with rounded Gaussian noise, on the grid of 1/64; one user's weights have L2 norm <= 1.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 (weights are not negative, so twice that under replace-one), beside
    the chance that a key of one user alone is released: the worst user's, over all t <= d or over all weights.
    """

    kind: ClassVar[str] = "gaussian-weights"

    keys_per_user: int  # d, the most keys a user gives weight to
    sigma: Fraction  # the scale of the noise, in grid steps
    threshold: int | None = None  # R in grid steps; None for keys that are public, as in a sketch
    equal: bool = False  # whether a user spreads the weight equally (1/sqrt(t) on t keys, rounded down to the grid)
    relation: Relation = Relation.ADD_REMOVE

    @property
    def loss(self) -> Loss:
        """mu^2, and the threshold's delta."""
        both_ways = 1 if self.relation is Relation.ADD_REMOVE else 2
        mu_squared = both_ways * WEIGHT_GRID**2 / self.sigma**2
        return Loss(mu_squared=mu_squared, threshold_delta=self.threshold_delta())

    def threshold_delta(self) -> Fraction:
        """Return the chance that any key of one user alone passes, rounded up; zero for public keys."""
        if self.threshold is None:
            return Fraction(0)
        if not self.equal:
            steps = (self.threshold - 0.5) / WEIGHT_GRID
            return exact(knapsack_delta(steps, float(self.sigma) / WEIGHT_GRID, self.keys_per_user))
        with working():
            worst = mpmath.mpf(0)
            for t in range(1, self.keys_per_user + 1):
                reach = (self.threshold - mpmath.mpf(1) / 2 - equal_weight(t)) / rational_mpf(self.sigma)
                worst = max(worst, -mpmath.expm1(t * mpmath.log1p(-normal_sf(reach))))
            return exact(min(1.0, round_up(worst)))


def equal_weight(keys: int) -> int:
    """Return floor(64/sqrt(t)), the weight in grid steps of each of t keys; exact integer arithmetic."""
    return math.isqrt(WEIGHT_GRID**2 // keys)


_FRACTIONS = {
    "scale",
    "sigma",
    "least_delta",
    "epsilon",
    "delta",
    "lifetime",
    "union_delta",
    "enough",
    "power",
    "least",
}
_MANY_FRACTIONS, _MANY_INTEGERS = {"sigmas", "multipliers"}, {"cuts", "evidence"}


def loss_from(parameters: Mapping[str, Any]) -> Loss:
    """Compute the cost of a step anew from the numbers that a manifest keeps; names it does not know are ignored."""
    return _read(parameters)[1]


def step_from(parameters: Mapping[str, Any]) -> StepParameters:
    """Read the numbers of a step that :meth:`StepParameters.to_json` wrote; numbers without a cost are refused."""
    return _read(parameters)[0]


def _read(parameters: Mapping[str, Any]) -> tuple[StepParameters, Loss]:
    # These are made of losses, so they can't be imported before.
    from hushquery.core.iterated import IteratedSelection
    from hushquery.core.local_loss import LocalChannel

    own = (LaplaceHistogram, GaussianHistogram, OptimalSelection, GaussianWeights)
    kinds: dict[str, type[StepParameters]] = {kind.kind: kind for kind in (*own, IteratedSelection, LocalChannel)}
    cls = kinds.get(str(parameters.get("kind")))
    if cls is None:
        raise DataError(
            "a step is of a kind this version does not know", fix="Upgrade hushquery to the version that wrote it"
        )
    values: dict[str, Any] = {}
    try:
        for field in fields(cls):
            if field.name in parameters:
                raw = parameters[field.name]
                if field.name in _FRACTIONS:
                    raw = exact(raw, field.name)
                elif field.name in _MANY_FRACTIONS:
                    raw = tuple(exact(one, field.name) for one in raw)
                elif field.name in _MANY_INTEGERS:
                    raw = tuple(raw)
                values[field.name] = Relation.of(raw) if field.name == "relation" else raw
        for name in ("keys_per_user", "threshold", "min_users"):
            if values.get(name) is not None and type(values.get(name)) is not int:
                raise TypeError(name)
        if any(type(values.get(name, False)) is not bool for name in ("row_counts", "equal")):
            raise TypeError("row_counts or equal")
        step = cls(**values)
        return step, step.loss
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise DataError(
            f"the numbers of a {cls.kind} step make no sense", why=type(error).__name__, fix="Get the release again"
        ) from None
