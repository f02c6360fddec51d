"""Algorithm 1 of Korolova, Kenthapadi, Mishra and Ntoulas 2009, with the exact delta beside their Theorem 1.

Their theorem is correct but its delta is not tight. With the discrete noise used here the threshold is ``floor(K) +
1``; the ledger is charged the larger of their delta and the exact one (docs/proofs/korolova2009.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import mpmath

from hushquery.core.budget import Number, exact, grid_up, rational_mpf, round_up, working
from hushquery.core.calibration import laplace_delta, laplace_scale, laplace_threshold
from hushquery.core.loss import LaplaceHistogram
from hushquery.core.registry import Pair
from hushquery.curator.audit import Key, Rows, SelectedOneByOne, crowd, passing_bit, searcher
from hushquery.curator.counting import QUERY, Bound, law_of, noisy_on_public_keys, searches, tally, with_intervals
from hushquery.curator.selectors import Selector
from hushquery.engine import materialize
from hushquery.errors import CalibrationError
from hushquery.noise.sampler import Bits

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = 2**40


@dataclass(frozen=True)
class Theorem1:
    """The parameters d, K, b, b_q, d_c and b_c of Algorithm 1, and what they promise; None publishes nothing.

    >>> t = Theorem1(20, Fraction(140), Fraction("8.685889638065"))
    >>> f"{t.epsilon_alg:.5f} {t.delta_alg:.3e} {t.delta_exact:.3e}"
    '2.30259 1.000e-05 1.058e-06'
    """

    queries_per_user: int
    threshold: Fraction
    scale: Fraction
    count_scale: Fraction | None = None
    clicks_per_user: int = 0
    click_scale: Fraction | None = None

    def __post_init__(self) -> None:
        scales = [s for s in (self.scale, self.count_scale, self.click_scale) if s is not None]
        if self.queries_per_user < 1 or self.clicks_per_user < 0 or min(scales) <= 0:
            raise CalibrationError("Theorem 1 needs d >= 1 and positive noise scales", fix="Check --scale and d")
        if max(*scales, self.threshold) > _LARGEST:
            raise CalibrationError("a threshold or a scale is beyond all counts", fix="Give numbers below 2^40")
        if self.threshold < self.queries_per_user:
            raise CalibrationError(
                "Theorem 1 needs a threshold K of at least d", fix="Raise --threshold or lower --queries-per-user"
            )

    @property
    def release_at(self) -> int:
        """R: on integers, noisy > K is noisy >= floor(K) + 1."""
        return int(self.threshold // 1) + 1

    @property
    def epsilon_alg(self) -> float:
        """The theorem's epsilon, rounded up."""
        with working():
            counts = 0 if self.count_scale is None else self.queries_per_user / rational_mpf(self.count_scale)
            clicks = 0 if self.click_scale is None else self.clicks_per_user / rational_mpf(self.click_scale)
            return round_up(self.queries_per_user * self._log_alpha() + counts + clicks)

    @property
    def delta_alg(self) -> float:
        """The theorem's delta, rounded up."""
        with working():
            over = (self.queries_per_user - rational_mpf(self.threshold)) / rational_mpf(self.scale)
            return round_up(self.queries_per_user * mpmath.exp(over) / 2)

    @property
    def delta_exact(self) -> float:
        """The exact delta of the integer noise and threshold that run, over the worst split of d searches."""
        return laplace_delta(self.scale, self.queries_per_user, self.release_at, row_counts=True)

    @property
    def delta_naive(self) -> float:
        """What adding the d searches one by one would give: delta_1 (alpha^d - 1)/(alpha - 1)."""
        with working():
            log_alpha = self._log_alpha()
            grown = mpmath.expm1(self.queries_per_user * log_alpha) / mpmath.expm1(log_alpha)
            return round_up(self._single() * grown)

    def step(self) -> LaplaceHistogram:
        """Return the selection as a step, charged with the larger of the two deltas."""
        return LaplaceHistogram(
            self.queries_per_user, self.scale, self.release_at, row_counts=True, least_delta=exact(self.delta_alg)
        )

    def _single(self) -> mpmath.mpf:
        """delta_1 = e^((1-K)/b)/2, the chance of a query posed once."""
        return mpmath.exp((1 - rational_mpf(self.threshold)) / rational_mpf(self.scale)) / 2

    def _log_alpha(self) -> mpmath.mpf:
        return max(1 / rational_mpf(self.scale), -mpmath.log1p(-self._single()))


def calibrate_korolova(queries_per_user: int, epsilon: Number, delta: Number) -> Theorem1:
    """Return b = d/epsilon and K = d(1 - ln(2 delta/d)/epsilon), or a higher K if the integer law needs it.

    >>> t = calibrate_korolova(20, "ln 10", 1e-5)
    >>> f"{float(t.threshold):.2f} {float(t.scale):.2f}"
    '140.00 8.69'
    """
    e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
    if e <= 0 or not 0 < d < 1 or queries_per_user < 1:
        raise CalibrationError(
            "Algorithm 1 needs epsilon > 0, 0 < delta < 1 and at least one query per user",
            fix="Give, say, epsilon 1, delta 1e-6 and 20 queries per user",
        )
    scale = laplace_scale(queries_per_user, e)
    with working():
        lift = -mpmath.log(rational_mpf(2 * d / queries_per_user)) / rational_mpf(e)
        paper = grid_up(queries_per_user * (1 + lift)) if lift > -1 else Fraction(queries_per_user)
    least = laplace_threshold(scale, queries_per_user, d, row_counts=True)
    theorem = Theorem1(queries_per_user, max(paper, Fraction(least - 1), Fraction(queries_per_user)), scale)
    step = scale / 2**50
    while exact(theorem.delta_alg) > d:  # by the last digit of a double, where K is large
        theorem = replace(theorem, threshold=theorem.threshold + step)
        step *= 2
    return theorem


@dataclass(frozen=True)
class Korolova(Selector):
    """Algorithm 1 of Korolova et al. 2009: select by one noise, publish counts with another."""

    name: ClassVar[str] = "korolova2009"
    counts_what: ClassVar[str] = "searches for it"

    theorem: Theorem1
    counts: LaplaceHistogram | None

    @cached_property
    def selection(self) -> LaplaceHistogram:  # type: ignore[override]
        """The step of the theorem."""
        return self.theorem.step()

    @property
    def threshold(self) -> float:
        """K of the paper."""
        return float(self.theorem.threshold)

    def rare_chance(self) -> float:
        """Return the larger of d queries posed once and one query posed d times."""
        law = law_of(self.selection)
        once, often = (float(law.tail(self.theorem.release_at - m)) for m in (1, self.queries_per_user))
        return max(self.queries_per_user * once, often)

    def detail(self) -> str:
        """Describe the selection."""
        return f"searches per query with discrete Laplace noise, released above {self.threshold:.2f}"

    def counting_detail(self, counts: Any) -> str:
        """Describe the counts."""
        del counts
        return "the same counts of the released queries with fresh discrete Laplace noise"

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Count searches per query."""
        return tally(searches(table, bound, self.queries_per_user), QUERY)

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Count once."""
        return {"queries": self.to_select(table, bound)}

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Count once, draw for the selection, draw again for the counts."""
        with materialize(self.to_select(table, bound)) as counted:
            chosen = self.select(counted, bits)
            if self.counts is None:
                return chosen
            return with_intervals(noisy_on_public_keys(counted, chosen, QUERY, self.counts, bits), self.counts)


@dataclass(frozen=True)
class KorolovaSelector(SelectedOneByOne):
    """Algorithm 1 of Korolova et al. 2009 on two searches per user, counts with their own noise.

    **Guarantee:** epsilon_alg and the larger of delta_alg and the exact delta, for one user, add-remove.
    **Estimator:** the count, whose noise is fresh: unbiased given release, which itself depends on the counts.

    >>> f"{KorolovaSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.2f}"
    '32.30'
    """

    selector: Korolova

    name: ClassVar[str] = "korolova2009"
    summary: ClassVar[str] = "Algorithm 1 of Korolova et al. 2009 on the queries of a log"

    def chance(self, count: int) -> float:
        """Return the chance that noise lifts a count above K."""
        return passing_bit(count, self.selector.selection)[1,]

    def kept(self, dataset: Rows, among: Sequence[Key]) -> list[list[Key]]:
        """Return each user's first searches; the same query at another time is another search."""
        mine: dict[str, set[tuple[int, Key]]] = {}
        for user, time, query, _ in dataset:
            mine.setdefault(user, set()).add((time, (query,)))
        most = self.selector.queries_per_user
        return [[key for _, key in sorted(posed)[:most] if key in among] for posed in mine.values()]

    def ask_again(self, dataset: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """Algorithm 1 publishes the counts that it selected with."""
        return tuple(count for key, count in zip(self.keys, self.counts(dataset), strict=True) if key in released)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Also a user who poses one new query as often as the cap allows, and oftener."""
        others = crowd(int(self.selector.threshold), "ant")
        # Two clicks on a search repeat its row; it stays one search.
        often = (*searcher("zoe", "bee", "bee"), *searcher("zoe", "bee", "bee", "bee", "ant"))
        return [Pair("a user who poses one query again and again", others, others + often), *super().pairs()]
