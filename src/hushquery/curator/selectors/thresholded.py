"""The ``laplace`` and ``gaussian`` selectors: publish the noisy counts that reach a calibrated threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

from hushquery.core.budget import Budget, Relation, exact, in_full, smallest_whole
from hushquery.core.calibration import (
    SparseGaussian,
    calibrate_sparse_gaussian,
    laplace_scale,
    laplace_threshold,
    sigma_for,
)
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, Loss
from hushquery.core.registry import Law, Pair
from hushquery.curator.audit import QueryMechanism, Rows, passing_bit, passing_law, query_pairs, selector_for
from hushquery.curator.counting import (
    QUERY,
    Bound,
    beneath,
    floor_in_words,
    law_of,
    noise_in_words,
    passing,
    released_from,
    tally,
    with_intervals,
)
from hushquery.curator.selectors import PlannedStep, Selector
from hushquery.engine import materialize
from hushquery.errors import CalibrationError
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import Bits

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ThresholdedCounts(Selector):
    """Publish the very counts that passed the threshold: one draw selects and counts, at no extra cost."""

    name: str  # type: ignore[misc]
    selection: LaplaceHistogram | GaussianHistogram
    with_counts: bool = True

    @property
    def counts(self) -> LaplaceHistogram | GaussianHistogram | None:  # type: ignore[override]
        """The same step."""
        return self.selection if self.with_counts else None

    @property
    def threshold(self) -> float:
        """The threshold in users, R + N - 1 with a floor N: a noisy count from here on is released."""
        return float(released_from(self.selection))

    def rare_chance(self) -> float:
        """Return d times the chance that a count of one passes; with a floor N, that one of N does, per its N users."""
        passes = float(law_of(self.selection).tail((self.selection.threshold or 0) - 1))
        return self.queries_per_user * passes / self.selection.min_users

    def detail(self) -> str:
        """Describe the step."""
        released = f"released at a noisy count of {in_full(self.threshold)} or more{floor_in_words(self.selection)}"
        return f"users per query with {noise_in_words(self.selection)} noise, {released}"

    def steps(self) -> list[PlannedStep]:
        """Return the one step."""
        registered = "laplace" if isinstance(self.selection, LaplaceHistogram) else "gaussian-selector"
        return [PlannedStep(registered, self.detail(), self.selection, "queries")]

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Count users per query."""
        return tally(bound.rows(table, QUERY, self.selection.keys_per_user), QUERY, beneath(self.selection))

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Count once."""
        return {"queries": self.to_select(table, bound)}

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Count once, draw once."""
        with materialize(self.to_select(table, bound)) as counted:
            chosen = self.select(counted, bits)
        return with_intervals(chosen, self.selection) if self.with_counts else chosen

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Draw once per query, for selection and count."""
        chosen = passing(counted, QUERY, self.selection, bits)
        return chosen if self.with_counts else chosen.select(QUERY)


def laplace_step(keys: int, epsilon: Fraction, delta: Fraction | None) -> LaplaceHistogram:
    """Choose the noise for an epsilon, and with a delta the threshold."""
    scale = laplace_scale(keys, epsilon)
    return LaplaceHistogram(keys, scale, None if delta is None else laplace_threshold(scale, keys, delta))


def gaussian_step(keys: int, mu_squared: Fraction, delta: Fraction | None) -> GaussianHistogram:
    """Choose the noise for a mu^2, and with a delta the threshold."""
    sigma = sigma_for(keys, mu_squared)
    if delta is None:
        return GaussianHistogram(keys, sigma)

    def fits(threshold: int) -> bool:
        return exact(SparseGaussian(keys, sigma, threshold, Relation.ADD_REMOVE).threshold_delta()) <= delta

    return GaussianHistogram(keys, sigma, _smallest(fits))


def lowest_threshold(keys: int, mu_squared: Fraction, beside: Loss, budget: Budget) -> GaussianHistogram:
    """Lower the threshold as far as the exact curve of the histogram, with all other steps beside it, allows."""
    if beside == Loss():
        alone = calibrate_sparse_gaussian(keys, budget.epsilon, budget.delta)
        return GaussianHistogram(keys, alone.sigma, alone.threshold)
    sigma = sigma_for(keys, mu_squared)

    def fits(threshold: int) -> bool:
        return (GaussianHistogram(keys, sigma, threshold).loss + beside).fits(budget.epsilon, budget.delta)

    return GaussianHistogram(keys, sigma, _smallest(fits))


def _smallest(fits: Callable[[int], bool]) -> int:
    threshold = smallest_whole(fits)
    if threshold is None:
        raise CalibrationError("no threshold makes this noise private enough", fix="Raise delta or epsilon")
    return threshold


class LaplaceSelector(QueryMechanism):
    """Users per query, two queries per user, with discrete Laplace noise and an integer threshold; counts reused.

    **Guarantee:** (d/b, 1 - (1 - a^(R-1)/(1+a))^d) for one user, add-remove, with counts (docs/proofs/thresholds.md).
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough (docs/proofs/intervals.md).

    >>> LaplaceSelector.calibrate(1, 1e-5).selector.threshold
    25.0
    """

    selector: ThresholdedCounts

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "queries of a log with discrete Laplace noise and a threshold, counts reused"

    def law(self, dataset: Rows) -> Law:
        """Enumerate what is released."""
        single = passing_law if self.selector.with_counts else passing_bit
        return product_law([single(count, self.selector.selection) for count in self.exact(dataset)])

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared with a crowd about the threshold, or more than the cap."""
        around = int(self.selector.threshold)
        return query_pairs(around, around + 3, beneath(self.selector.selection))


class GaussianSelector(LaplaceSelector):
    """Users per query, two queries per user, with rounded Gaussian noise and an integer threshold; counts reused.

    **Guarantee:** the sparse histogram's exact curve, one user, add-remove, with counts
    (docs/proofs/gaussian-threshold.md).
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough (docs/proofs/intervals.md).

    >>> GaussianSelector.calibrate(1, 1e-5).selector.threshold
    25.0
    """

    name: ClassVar[str] = "gaussian-selector"
    summary: ClassVar[str] = "queries of a log with rounded Gaussian noise and a threshold, counts reused"


class FloorSelector(LaplaceSelector):
    """Users per query as ``laplace`` selects them, under a floor: what fewer than three users searched never passes.

    **Guarantee:** that of ``laplace``, whatever the floor, one user, add-remove, with counts (docs/proofs/floor.md).
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough (docs/proofs/intervals.md).

    >>> FloorSelector.calibrate(1, 1e-5).selector.threshold
    27.0
    """

    name: ClassVar[str] = "floor"
    summary: ClassVar[str] = "queries of at least three users, with discrete Laplace noise and a threshold"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Self:
        """Calibrate as a release of two queries per user with ``min_users=3`` would."""
        return cls(selector_for("laplace", epsilon, delta, min_users=3))
