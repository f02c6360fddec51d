"""Clicks: which URLs the released queries led to.

Two ways, and never keys built from the log without a threshold (one person's rare click would create one):

* with a public list of (query, URL) pairs, every listed pair of a released query gets noise, zeros included; clicks on
  unlisted URLs are dropped;
* without one, pairs are selected privately: a pair is released where the noisy number of users who clicked it reaches a
  threshold, with that noisy number.

Each user counts once per pair, for at most d_c pairs, chosen among the released queries only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushquery.core.step_loss import GaussianHistogram, LaplaceHistogram
from hushquery.curator.bound import Bound
from hushquery.curator.count import noisy_on_public_keys, passing, tally
from hushquery.curator.intervals import with_intervals
from hushquery.curator.select import PlannedStep, released_placeholder, released_table
from hushquery.engine import execute, materialize
from hushquery.noise.bits import Bits

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Clicks"]

PAIR = ["query", "url"]
_NUMBERED = ["number", "url"]


@dataclass(frozen=True)
class Clicks:
    """How the table ``clicks`` is made.

    Args:
        step: Noise and, for pairs that are secret, the threshold.
        results: The public list, a table with ``query`` and ``url``; None when pairs are secret.
    """

    step: LaplaceHistogram | GaussianHistogram
    results: Any = None

    @property
    def clicks_per_user(self) -> int:
        """d_c."""
        return self.step.keys_per_user

    def planned(self) -> PlannedStep:
        """Say the step."""
        laplace = isinstance(self.step, LaplaceHistogram)
        noise = "discrete Laplace" if laplace else "Gaussian"
        if self.results is not None:
            detail = f"users per listed query and URL with {noise} noise, zeros included"
            return PlannedStep("discrete-laplace" if laplace else "gaussian", detail, self.step, "clicks")
        detail = f"users per query and clicked URL with {noise} noise, released from {self.step.threshold} on"
        return PlannedStep("laplace" if laplace else "gaussian-selector", detail, self.step, "clicks")

    def expression(self, table: Any, bound: Bound, released: Any = None) -> Any:
        """Count users per pair, pairs of released queries (and listed ones) only.

        Args:
            table: The log's rows, or those of the released queries with their number.
            bound: Which of a user's pairs are kept.
            released: The released queries with their number; a stand-in by default.
        """
        queries = released_placeholder() if released is None else released
        return self._by_number(table, bound, queries).inner_join(queries, "number").select(*PAIR, "n")

    def _by_number(self, table: Any, bound: Bound, queries: Any) -> Any:
        # Rows without a URL are dropped by the bound, after everything an engine could be tempted to do to all rows.
        pairs = table if "number" in table.columns else table.inner_join(queries, "query")
        pairs = pairs.select(*(name for name in ("user", "time", "number", "url") if name in pairs.columns))
        if self.results is not None:
            pairs = pairs.semi_join(self.results.inner_join(queries, "query").select(*_NUMBERED), _NUMBERED)
        return tally(bound.rows(pairs, _NUMBERED, self.clicks_per_user), _NUMBERED)

    def run(self, table: Any, bound: Bound, released: pa.Table, bits: Bits) -> pa.Table:
        """Count the pairs of the released queries, and publish.

        Args:
            table: The log's rows, or those of the released queries with their number.
            bound: Which of a user's pairs are kept.
            released: A table with the released queries.
            bits: Where the noise comes from.
        """
        queries = released_table(released)
        if self.results is None:
            with materialize(self._by_number(table, bound, queries)) as counted:
                passed = passing(counted, _NUMBERED, self.step, bits)
            names = released.sort_by("query")["query"].take(passed["number"])
            return with_intervals(passed.set_column(0, "query", names), self.step)
        with materialize(self.expression(table, bound, queries)) as counted:
            listed = execute(self.results.select(*PAIR).distinct().semi_join(queries, "query"))
            return with_intervals(noisy_on_public_keys(counted, listed, PAIR, self.step, bits), self.step)
