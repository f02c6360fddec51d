"""Selectors: which queries may be published, and with what counts; one file each, with its audit beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hushquery.core.iterated import IteratedSelection
from hushquery.core.loss import (
    GaussianHistogram,
    GaussianWeights,
    LaplaceHistogram,
    OptimalSelection,
    StepParameters,
)
from hushquery.curator.counting import (
    QUERY,
    Bound,
    count_released,
    noise_in_words,
    noisy_on_public_keys,
    passing,
    released_placeholder,
    released_table,
    with_intervals,
)
from hushquery.engine import materialize
from hushquery.noise.sampler import Bits

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PlannedStep:
    """One randomised step of a plan; ``final`` if its noisy values are what its ``table`` publishes."""

    name: str
    detail: str
    parameters: StepParameters
    table: str
    final: bool = True


class Selector(ABC):
    """How the table ``queries`` is made: select, then, by default, count the released queries again."""

    name: ClassVar[str]
    #: What is counted per query.
    counts_what: ClassVar[str] = "users who searched it"
    #: The step that selects.
    selection: LaplaceHistogram | GaussianHistogram | GaussianWeights | OptimalSelection | IteratedSelection
    #: The step whose noise is in the published counts; None for a list without counts.
    counts: LaplaceHistogram | GaussianHistogram | None

    @property
    def queries_per_user(self) -> int:
        """The bound d: how many distinct queries of a user count (searches, for ``korolova2009``)."""
        return self.selection.keys_per_user

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The threshold in the units of a count: users, searches, or weights of users."""

    @abstractmethod
    def rare_chance(self) -> float:
        """Bound the expected number of queries of one user alone that come out."""

    @abstractmethod
    def detail(self) -> str:
        """Describe the step that selects, in a clause."""

    def steps(self) -> list[PlannedStep]:
        """Return the randomised steps in order: the selection, and the counts."""
        steps = [PlannedStep(self.name, self.detail(), self.selection, "queries", final=False)]
        if self.counts is not None:
            registered = "discrete-laplace" if isinstance(self.counts, LaplaceHistogram) else "gaussian"
            steps.append(PlannedStep(registered, self.counting_detail(self.counts), self.counts, "queries"))
        return steps

    def counting_detail(self, counts: StepParameters) -> str:
        """Describe the step that counts, in a clause."""
        return f"users per released query, counted again, with {noise_in_words(counts)} noise"

    @abstractmethod
    def to_select(self, table: Any, bound: Bound) -> Any:
        """Count, or weigh, every query of the log, in a column ``n``."""

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Return what the engine will be asked, by name; later ones stand on a placeholder for what was released."""
        out = {"selection": self.to_select(table, bound)}
        if self.counts is not None:
            out["counts"] = count_released(table, bound, released_placeholder(), self.counts.keys_per_user)
        return out

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Read the log and return the released queries: ``query``, and with counts ``count, stderr, low, high``."""
        with materialize(self.to_select(table, bound)) as counted:
            chosen = self.select(counted, bits)
        if self.counts is None:
            return chosen.select(QUERY)
        counted = count_released(table, bound, released_table(chosen), self.counts.keys_per_user)
        return with_intervals(noisy_on_public_keys(counted, chosen, QUERY, self.counts, bits), self.counts)

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Draw on materialized counts (or weights) ``n``; return what passes, with ``noisy`` if that is published."""
        if isinstance(self.selection, OptimalSelection | IteratedSelection):
            raise TypeError(self)
        return passing(counted, QUERY, self.selection, bits).select(QUERY)
