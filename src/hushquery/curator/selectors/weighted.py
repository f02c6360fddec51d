"""The ``weighted`` selector: users with fewer queries give each more weight (docs/proofs/weights.md).

Weights 1/sqrt(t) are rounded down to multiples of 1/64, so sums are integers and the noise is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from hushquery.core.budget import in_full
from hushquery.core.calibration import WEIGHT_GRID, weighted_rho
from hushquery.core.loss import GaussianHistogram, GaussianWeights, equal_weight
from hushquery.core.registry import Pair
from hushquery.curator.audit import Rows, SelectedOneByOne, crowd, passing_bit, searcher, weighted_totals
from hushquery.curator.counting import QUERY, Bound, law_of
from hushquery.curator.selectors import Selector
from hushquery.errors import CalibrationError


@dataclass(frozen=True)
class Weighted(Selector):
    """Select by the noisy sum of weights, then count the released queries."""

    name: ClassVar[str] = "weighted"

    selection: GaussianWeights
    counts: GaussianHistogram | None

    @property
    def threshold(self) -> float:
        """R in weights of users: how many users with one query each, or sqrt(t) times as many with t."""
        return (self.selection.threshold or 0) / WEIGHT_GRID

    def rare_chance(self) -> float:
        """Return the worst t of t times the chance of one."""
        law, release_at = law_of(self.selection), self.selection.threshold or 0
        return max(t * float(law.tail(release_at - equal_weight(t))) for t in range(1, self.queries_per_user + 1))

    def detail(self) -> str:
        """Describe the selection."""
        return f"weights 1/sqrt(t) per query with Gaussian noise, {reaching(self.threshold)}"

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Sum weights per query."""
        rows = equal_weights(bound.rows(table, QUERY, self.queries_per_user))
        return rows.group_by("query").agg(n=rows.weight.sum())


def reaching(threshold: float) -> str:
    """Describe the threshold on the sum of weights."""
    return f"released at a noisy sum of {in_full(threshold, 3)} users' weights or more"


def equal_weights(rows: Any) -> Any:
    """Weigh each of a user's t rows by floor(64/sqrt(t)); doubles are exact here (docs/proofs/weights.md)."""
    import ibis

    counted = rows.mutate(t=rows.count().over(ibis.window(group_by="user")))
    return counted.mutate(weight=(WEIGHT_GRID / counted.t.cast("float64").sqrt()).floor().cast("int64"))


def weighted_threshold(keys_per_user: int, sigma: Fraction, delta: Fraction) -> GaussianWeights:
    """Find the smallest integer threshold for equal weights at a threshold's delta."""
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


@dataclass(frozen=True)
class WeightedSelector(SelectedOneByOne):
    """Weights 1/sqrt(t) with rounded Gaussian noise and a threshold, then counts; at most two queries per user.

    **Guarantee:** mu-GDP, mu^2 = 64^2/sigma^2 + d/sigma_c^2, plus the threshold's delta, for one user, add-remove.
    **Estimator:** the count of a released query is unbiased for the capped count given what is released.
    **Reference:** Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020.

    >>> f"{WeightedSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.1f}"
    '22.7'
    """

    selector: Weighted

    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "queries of a log by weights with rounded Gaussian noise, then counts"
    # Of the noisy sums only one bit each is published, so less is lost than two Gaussian steps would.
    tight: ClassVar[bool] = False

    def chance(self, count: int) -> float:
        """Return the chance that noise lifts a sum of weights to the threshold."""
        return passing_bit(count, self.selector.selection)[1,]

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Add up floor(64/sqrt(t)) for each of a user's t queries."""
        return weighted_totals(self.kept(dataset, self.keys), self.keys)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Also a user with a single query, whose whole weight is on it."""
        others = crowd(int(self.selector.threshold) // 2, "ant")
        return [
            Pair("a user alone with one query", (), searcher("zoe", "ant")),
            Pair("a user with one shared query", others, others + searcher("zoe", "ant")),
            *super().pairs(),
        ]
