"""What a curator's step costs, from the integers and fractions it runs with.

A plan builds its steps from these classes, the noise is drawn with their numbers, the manifest of a release keeps the
same numbers, and ``hushquery verify`` computes the cost from them again: there is one place where it can be wrong.

Proofs: docs/proofs/thresholds.md, gaussian-threshold.md, weights.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

import mpmath

from hushquery.core.gaussian import normal_sf
from hushquery.core.local_loss import report_epsilon
from hushquery.core.loss import Loss
from hushquery.core.rounding import exact, rational_mpf, round_up, working
from hushquery.core.sparse_gaussian import SparseGaussian
from hushquery.core.thresholds import WEIGHT_GRID, knapsack_delta, laplace_delta
from hushquery.core.unit import Relation
from hushquery.errors import CalibrationError, DataError

__all__ = [
    "GaussianHistogram",
    "GaussianWeights",
    "LaplaceHistogram",
    "LocalChannel",
    "OptimalSelection",
    "StepParameters",
    "equal_weight",
    "loss_from",
    "step_from",
]


@dataclass(frozen=True)
class StepParameters(ABC):
    """The numbers of one randomised step; subclasses say what they cost."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """What the step costs, rounded up."""

    def to_json(self) -> dict[str, Any]:
        """Give the numbers as plain data; fractions as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | {
            name: str(v) if isinstance(v, Fraction) else v.value if isinstance(v, Relation) else v
            for name, v in values.items()
        }


@dataclass(frozen=True)
class LaplaceHistogram(StepParameters):
    """Counts with discrete Laplace noise, released where they reach a threshold, or for public keys.

    Args:
        keys_per_user: d, the most a user adds to all counts together.
        scale: b of the noise.
        threshold: R, released iff count + noise >= R; None for keys that are public.
        row_counts: Whether a user may add all of d to a single key.
        least_delta: A delta to charge at least, where a paper claims a larger one than the exact.
        relation: The neighbouring relation.

    **Guarantee:** (d/b, delta) for one user, add-remove, with delta the exact chance that a key of that user alone is
    released; (2d/b, the same delta) under replace-one, where one world's new keys are missing in the other and never
    both (docs/proofs/headlist.md). The noisy counts themselves may be published.

    >>> LaplaceHistogram(20, Fraction(20), 300).loss.pure
    (Fraction(1, 1),)
    """

    kind: ClassVar[str] = "laplace-histogram"

    keys_per_user: int
    scale: Fraction
    threshold: int | None = None
    row_counts: bool = False
    least_delta: Fraction = Fraction(0)
    relation: Relation = Relation.ADD_REMOVE

    @property
    def loss(self) -> Loss:
        """Pure d/b and the threshold's delta; more than d/b where the threshold is so low that absence shows."""
        both_ways = 1 if self.relation is Relation.ADD_REMOVE else 2
        epsilon = Fraction(self.keys_per_user * both_ways) / self.scale
        if self.threshold is None:
            return Loss(pure=(epsilon,), threshold_delta=self.least_delta)
        # A key that only one user holds is absent with probability 1 - p in that user's world, and always without:
        # the factor 1/(1 - p) must be within e^(1/b), else it is what is charged per key. Under replace-one the other
        # world's d keys can only add their shift of counts: absence speaks for the keys of one world at a time.
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

    Args:
        keys_per_user: d; a user adds 1 to at most d keys.
        sigma: The scale of the noise.
        threshold: R, released iff count + noise >= R; None for keys that are public.
        relation: The neighbouring relation.

    **Guarantee:** the exact curve of :class:`~hushquery.core.sparse_gaussian.SparseGaussian` with a threshold;
    mu-GDP with mu^2 = d/sigma^2 without (2d/sigma^2 under replace-one).

    >>> GaussianHistogram(20, Fraction(10)).loss.mu_squared
    Fraction(1, 5)
    """

    kind: ClassVar[str] = "gaussian-histogram"

    keys_per_user: int
    sigma: Fraction
    threshold: int | None = None
    relation: Relation = Relation.ADD_REMOVE

    @property
    def loss(self) -> Loss:
        """The sparse histogram's curve, or mu^2."""
        sparse = SparseGaussian(self.keys_per_user, self.sigma, self.threshold or 0, self.relation)
        return Loss(mu_squared=sparse.mu_squared) if self.threshold is None else Loss(sparse=(sparse,))


@dataclass(frozen=True)
class OptimalSelection(StepParameters):
    """Keys released with the largest possible chance at (epsilon, delta) per key; no counts.

    Args:
        keys_per_user: d; a user adds 1 to at most d keys.
        epsilon: Of one key.
        delta: Of one key.

    **Guarantee:** (d epsilon, d delta) for one user, add-remove: basic composition of d keys, each optimal.

    >>> OptimalSelection(2, Fraction(1, 2), Fraction(1, 100)).loss.epsilon("0.02")
    1.0
    """

    kind: ClassVar[str] = "optimal-selection"

    keys_per_user: int
    epsilon: Fraction
    delta: Fraction

    @property
    def loss(self) -> Loss:
        """Pure d epsilon, and d delta."""
        return Loss(pure=(self.keys_per_user * self.epsilon,), threshold_delta=self.keys_per_user * self.delta)


@dataclass(frozen=True)
class GaussianWeights(StepParameters):
    """Sums of users' weights with rounded Gaussian noise, on the grid of 1/64; one user's weights have L2 norm <= 1.

    Args:
        keys_per_user: d, the most keys a user gives weight to.
        sigma: The scale of the noise in grid steps.
        threshold: R in grid steps, released iff sum + noise >= R; None for keys that are public, as in a sketch.
        equal: Whether a user spreads the weight equally (1/sqrt(t) on t keys, rounded down to the grid).
        relation: The neighbouring relation.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 (weights are not negative, so twice that under replace-one), beside
    the chance that a key of one user alone is released: the worst user's, over all t <= d or over all weights.

    >>> f"{float(GaussianWeights(20, Fraction(140), 763).loss.threshold_delta):.2e}"
    '9.08e-07'
    """

    kind: ClassVar[str] = "gaussian-weights"

    keys_per_user: int
    sigma: Fraction
    threshold: int | None = None
    equal: bool = False
    relation: Relation = Relation.ADD_REMOVE

    @property
    def loss(self) -> Loss:
        """mu^2, and the threshold's delta."""
        both_ways = 1 if self.relation is Relation.ADD_REMOVE else 2
        mu_squared = both_ways * WEIGHT_GRID**2 / self.sigma**2
        return Loss(mu_squared=mu_squared, threshold_delta=self.threshold_delta())

    def threshold_delta(self) -> Fraction:
        """Give the chance that any key of one user alone passes, rounded up; zero for public keys."""
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
    """Give floor(64/sqrt(t)), the weight in grid steps of each of t keys; exact integer arithmetic.

    >>> [equal_weight(t) for t in (1, 2, 4, 20)]
    [64, 45, 32, 14]
    """
    weight = 0
    while keys * (weight + 1) ** 2 <= WEIGHT_GRID**2:
        weight += 1
    return weight


@dataclass(frozen=True)
class LocalChannel(StepParameters):
    """Reports of one client, each randomised on the device by the same randomizer.

    Args:
        oracle: What ``describe()`` of the randomizer says: its name, its domain and the integers it runs with.
        reports: How many reports one client sends.
        relation: Replace-one; a local randomizer knows no other.

    **Guarantee:** (reports * epsilon, 0) for one client, replace-one, with e^epsilon the largest ratio of the chances
    of any one report under two values; :mod:`hushquery.core.local_loss` computes it from the integers.

    >>> round(LocalChannel({"name": "krr", "k": 3, "lie": 2**51}).loss.epsilon(0), 6)
    0.693147
    """

    kind: ClassVar[str] = "local-channel"

    oracle: Mapping[str, Any]
    reports: int = 1
    relation: Relation = Relation.REPLACE_ONE

    @property
    def loss(self) -> Loss:
        """Pure epsilon, once per report."""
        if type(self.reports) is not int or self.reports < 1 or self.relation is not Relation.REPLACE_ONE:
            raise DataError("a local step has at least one report, under replace-one", fix="Get the release again")
        return Loss(pure=(report_epsilon(self.oracle),) * self.reports)


_KINDS: dict[str, type[StepParameters]] = {
    cls.kind: cls for cls in (LaplaceHistogram, GaussianHistogram, OptimalSelection, GaussianWeights, LocalChannel)
}
_FRACTIONS = {"scale", "sigma", "least_delta", "epsilon", "delta"}


def loss_from(parameters: Mapping[str, Any]) -> Loss:
    """Compute the cost of a step anew from the numbers that a manifest keeps; names it does not know are ignored.

    >>> loss_from({"kind": "gaussian-histogram", "keys_per_user": 20, "sigma": "10", "threshold": None}).mu_squared
    Fraction(1, 5)
    """
    return _read(parameters)[1]


def step_from(parameters: Mapping[str, Any]) -> StepParameters:
    """Read the numbers of a step that :meth:`StepParameters.to_json` wrote; numbers without a cost are refused.

    >>> step_from(LaplaceHistogram(1, Fraction(2), 24).to_json()).threshold
    24
    """
    return _read(parameters)[0]


def _read(parameters: Mapping[str, Any]) -> tuple[StepParameters, Loss]:
    cls = _KINDS.get(str(parameters.get("kind")))
    if cls is None:
        raise DataError(
            "a step is of a kind this version does not know", fix="Upgrade hushquery to the version that wrote it"
        )
    values: dict[str, Any] = {}
    try:
        for field in fields(cls):
            if field.name in parameters:
                raw = parameters[field.name]
                values[field.name] = (
                    exact(raw, field.name)
                    if field.name in _FRACTIONS
                    else Relation.of(raw)
                    if field.name == "relation"
                    else raw
                )
        for name in ("keys_per_user", "threshold"):
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
