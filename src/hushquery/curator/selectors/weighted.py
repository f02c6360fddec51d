"""Weighted: a user with few queries gives each more weight. Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin 2020.

A user who keeps t queries adds 1/sqrt(t) to each, so that every user has L2 norm one however many queries they keep.
Weights are rounded down to multiples of 1/64, so sums are integers and the noise is exact. docs/proofs/weights.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from hushquery.core.budget import in_full
from hushquery.core.step_loss import GaussianHistogram, GaussianWeights, equal_weight
from hushquery.core.thresholds import WEIGHT_GRID, weighted_rho
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of, passing
from hushquery.curator.select import (
    QUERY,
    PlannedStep,
    Selector,
    count_released,
    finish_by_counting,
    released_placeholder,
)
from hushquery.engine import materialize
from hushquery.errors import CalibrationError
from hushquery.noise.bits import Bits

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Weighted", "equal_weights", "weighted_threshold"]


@dataclass(frozen=True)
class Weighted(Selector):
    """Select by the noisy sum of weights, then count the released queries."""

    name: ClassVar[str] = "weighted"

    selection: GaussianWeights
    counts: GaussianHistogram | None

    @property
    def queries_per_user(self) -> int:  # type: ignore[override]
        """The bound d: how many distinct queries of a user count."""
        return self.selection.keys_per_user

    @property
    def threshold(self) -> float:
        """R in weights of users: how many users with one query each, or sqrt(t) times as many with t."""
        return (self.selection.threshold or 0) / WEIGHT_GRID

    def rare_chance(self) -> float:
        """The worst t of t times the chance of one."""
        law, release_at = law_of(self.selection), self.selection.threshold or 0
        return max(t * float(law.tail(release_at - equal_weight(t))) for t in range(1, self.queries_per_user + 1))

    def steps(self) -> list[PlannedStep]:
        """The selection, and the counts."""
        detail = f"weights 1/sqrt(t) per query with Gaussian noise, released from {in_full(self.threshold)} on"
        steps = [PlannedStep(self.name, detail, self.selection, "queries", final=False)]
        if self.counts is not None:
            detail = "users per released query, counted again, with Gaussian noise"
            steps.append(PlannedStep("gaussian", detail, self.counts, "queries"))
        return steps

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Sum weights per query, then count users per released query."""
        rows = equal_weights(bound.rows(table, QUERY, self.queries_per_user))
        out = {"selection": rows.group_by("query").agg(n=rows.weight.sum())}
        if self.counts is not None:
            out["counts"] = count_released(table, bound, released_placeholder(), self.counts.keys_per_user)
        return out

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Sum, draw, then count."""
        with materialize(self.expressions(table, bound)["selection"]) as weighed:
            chosen = self.select(weighed, bits)
        return finish_by_counting(chosen, table, bound, self.counts, bits)

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Draw once per query; what is published is which queries pass."""
        return passing(counted, QUERY, self.selection, bits).select(QUERY)


def equal_weights(rows: Any) -> Any:
    """Give each of a user's rows the weight floor(64/sqrt(t)), t being how many rows the user has.

    In doubles this is exact: sqrt and division round correctly, and 64/sqrt(t) is either whole or further from a whole
    number than they can err (by 1/(t (2k + 1)) at least).
    """
    import ibis

    held_by_user = rows.mutate(t=rows.count().over(ibis.window(group_by="user")))
    return held_by_user.mutate(weight=(WEIGHT_GRID / held_by_user.t.cast("float64").sqrt()).floor().cast("int64"))


def weighted_threshold(keys_per_user: int, sigma: Fraction, delta: Fraction) -> GaussianWeights:
    """Find the smallest integer threshold for equal weights at a threshold's delta.

    >>> weighted_threshold(20, Fraction(140), Fraction(1, 10**6)).threshold
    761
    """
    if keys_per_user < 1:
        raise CalibrationError("a user must be allowed at least one query", fix="Let queries_per_user be 1 or more")

    def fits(threshold: int) -> bool:
        return GaussianWeights(keys_per_user, sigma, threshold, equal=True).threshold_delta() <= delta

    high = int(WEIGHT_GRID * weighted_rho(sigma / WEIGHT_GRID, keys_per_user, delta)) + 2
    while not fits(high):
        high += 1
    while fits(high - 1):
        high -= 1
    return GaussianWeights(keys_per_user, sigma, high, equal=True)
