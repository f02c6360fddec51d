"""The ``optimal`` selector: toss the best possible coin for every query (docs/proofs/optimal.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.budget import in_full, smallest_whole
from hushquery.core.loss import LaplaceHistogram, OptimalSelection
from hushquery.core.registry import Pair
from hushquery.curator.audit import Rows, SelectedOneByOne, query_pairs
from hushquery.curator.counting import QUERY, Bound, keys_at, tally
from hushquery.curator.selectors import Selector
from hushquery.engine import execute
from hushquery.noise.law import Binomial, SelectionCoin
from hushquery.noise.sampler import Bits, sampler
from hushquery.noise.survivors import WORTH_A_BINOMIAL, uniform_subset

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Optimal(Selector):
    """Toss a coin per query, then count the released ones."""

    name: ClassVar[str] = "optimal"

    selection: OptimalSelection
    counts: LaplaceHistogram | None

    def coin(self, count: int) -> SelectionCoin:
        """Return the coin that decides on a query which ``count`` users hold."""
        return SelectionCoin(count, self.selection.epsilon, self.selection.delta)

    @property
    def threshold(self) -> float:
        """The first count that is released with a chance of one half or more."""
        return float(smallest_whole(lambda count: bool(self.coin(count).chance() >= 0.5)) or math.inf)

    def rare_chance(self) -> float:
        """Return d delta', by construction."""
        return float(self.queries_per_user * self.selection.delta)

    def detail(self) -> str:
        """Describe the selection."""
        return f"queries released by the best possible coin; {in_full(self.threshold)} users pass half of the time"

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Count users per query."""
        return tally(bound.rows(table, QUERY, self.queries_per_user), QUERY)

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Toss a coin per query."""
        import pyarrow as pa

        sizes = execute(counted.group_by("n").agg(keys=counted.count()).order_by("n")).to_pydict()
        chosen, singly = [], []
        for count, size in zip(sizes["n"], sizes["keys"], strict=True):
            if size < WORTH_A_BINOMIAL or self.coin(count).certain:
                singly.append(count)
                continue
            # Among keys of equal count, how many pass is binomial and which ones a uniform subset.
            passed = sampler(Binomial(size, self.coin(count))).draw_one(bits)
            if passed:
                chosen.append(keys_at(counted, QUERY, count, uniform_subset(size, passed, bits)))
        rows = execute(counted.filter(counted.n.isin(singly)).select(*QUERY, "n").order_by(QUERY))
        counts = np.asarray(rows["n"].to_numpy(), dtype=np.int64)
        kept = np.zeros(len(counts), dtype=np.bool_)
        for count in singly:
            where = np.flatnonzero(counts == count)
            coin = self.coin(count)
            kept[where] = coin.chance() == 1 if coin.certain else sampler(coin).draw(len(where), bits) == 1
        chosen.append(rows.select(QUERY).filter(pa.array(kept)))
        return pa.concat_tables(chosen)


@dataclass(frozen=True)
class OptimalSelector(SelectedOneByOne):
    """The best possible coin per query at (epsilon/d, delta/d), two queries per user, then counts with Laplace noise.

    **Guarantee:** the selection is (d epsilon', d delta') for one user, add-remove, and the counts pure d/b; the sum is
    within the budget (docs/proofs/optimal.md).
    **Estimator:** the count of a released query is unbiased for the capped count given what is released.
    **Reference:** Desfontaines, Voss, Gipson and Mandayam 2022.

    >>> OptimalSelector.calibrate(1, 1e-5).selector.threshold
    31.0
    """

    selector: Optimal

    name: ClassVar[str] = "optimal"
    summary: ClassVar[str] = "queries of a log by the best possible coin, then counts with Laplace noise"

    def chance(self, count: int) -> float:
        """Return the largest chance that keeps (epsilon', delta') against one user less and more; none for no user."""
        epsilon, delta = float(self.selector.selection.epsilon), float(self.selector.selection.delta)
        chance = 0.0
        for _ in range(count):
            grown = math.exp(epsilon) * chance + delta
            chance = min(grown, 1 - math.exp(-epsilon) * (1 - chance - delta), 1.0)
        return chance

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Return pairs whose crowd is where the coin's chance still grows by its largest factor."""
        around = int(self.selector.threshold)
        return query_pairs(around, max(1, around - 2))
