"""Bound what one user contributes, count each key in the engine, and publish noisy counts.

Every table bounds its own columns: a bound on queries does not bound clicks. Which rows of a user are kept depends on
that user's rows alone, so adding a person moves nobody else's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, StepParameters
from hushquery.engine import execute, md5
from hushquery.errors import UsageError
from hushquery.noise.law import DiscreteLaplace, Noise, RoundedGaussian, given_release, on_public_keys
from hushquery.noise.sampler import Bits, IntArray, add_noise
from hushquery.noise.survivors import WORTH_A_BINOMIAL, lifted_keys

if TYPE_CHECKING:
    import pyarrow as pa

#: Which of a user's keys are kept: the first by time, or random ones.
Keep = Literal["first", "random"]
#: A step that adds noise to counts.
Noisy = LaplaceHistogram | GaussianHistogram | GaussianWeights
#: The key of the table ``queries``.
QUERY = ["query"]

# Times of a log are within 2^62 microseconds of their origin.
_AFTER_ALL_TIMES = 2**62


@dataclass(frozen=True)
class Bound:
    """Keep at most so many distinct keys of each user: the ``first`` by time, or ``random`` by a keyed digest.

    The ``key`` is drawn anew for each release; privacy does not rest on its secrecy.
    """

    keep: Keep = "first"
    key: str = ""

    def __post_init__(self) -> None:
        if self.keep not in ("first", "random"):
            raise UsageError(f"no rule to keep rows is called {self.keep!r}", fix="Give first or random")

    def order(self, table: Any) -> Keep:
        """Return which rule applies to a table: without times there is no first."""
        return self.keep if "time" in table.columns else "random"

    def words(self, table: Any) -> str:
        """Describe the rule."""
        return "the first by time" if self.order(table) == "first" else "chosen at random"

    def rows(self, table: Any, columns: list[str], most: int) -> Any:
        """Return each user's distinct ``columns``, each once and at most ``most`` of them."""
        return first_rows(self.each(table, columns), columns, most).select("user", *columns)

    def each(self, table: Any, columns: list[str]) -> Any:
        """Return each user's distinct ``columns``, all of them, with what they are chosen by in a column ``order``."""
        if self.order(table) == "first":
            return table.group_by("user", *columns).agg(order=_time_or_last(table, columns).min())
        each = table.select("user", *columns).distinct()
        return each.mutate(order=self.digest(each.user, *(each[column] for column in columns)))

    def digest(self, *values: Any) -> Any:
        """Return the keyed digest of some columns."""
        import ibis

        text = ibis.literal(self.key)
        for value in values:
            text = text + "|" + value.cast("string")
        return md5(text)


def searches(table: Any, bound: Bound, most: int) -> Any:
    """Return each user's first ``most`` searches; repeats count again, but a search with several clicks counts once.

    Without times, repeated searches can't be told from repeated clicks, so each query counts once.
    """
    if "time" not in table.columns:
        return bound.rows(table, QUERY, most)
    each = table.select("user", "time", "query").distinct()
    if bound.order(table) == "first":
        order = _time_or_last(each, QUERY)
    else:
        order = bound.digest(each.user, each.time.cast("string").fill_null(""), each["query"])
    return first_rows(each.mutate(order=order), QUERY, most).select("user", "query")


def first_rows(each: Any, columns: list[str], most: int) -> Any:
    """Return each user's first rows by ``order``, ties by the columns, without rows that miss a column."""
    import ibis

    # Nulls last, on every engine: what misses a column takes nobody's place. Filter last, too: an engine would compute
    # a column twice to filter by it early. Ibis counts rows from zero.
    order = [ibis.asc(each[column], nulls_first=False) for column in ("order", *columns)]
    placed = each.mutate(place=ibis.row_number().over(ibis.window(group_by="user", order_by=order)))
    return placed.filter((placed.place < most) & _complete(placed, columns))


def _time_or_last(rows: Any, columns: list[str]) -> Any:
    """Return the time, or one after all times; null where a column is missing. Sorting by this expression is slow."""
    import ibis

    return ibis.ifelse(_complete(rows, columns), rows.time.fill_null(_AFTER_ALL_TIMES), ibis.null("int64"))


def _complete(rows: Any, columns: list[str]) -> Any:
    complete = rows[columns[0]].notnull()
    for column in columns[1:]:
        complete = complete & rows[column].notnull()
    return complete


def tally(rows: Any, columns: list[str], beneath: int = 0) -> Any:
    """Count bounded rows per key, in a column ``n``: those beyond ``beneath``, where there are any."""
    counted = rows.group_by(columns).agg(n=rows.count())
    return counted.filter(counted.n > beneath).mutate(n=lambda t: t.n - beneath) if beneath else counted


def released_placeholder() -> Any:
    """Return a stand-in for the released queries, for showing SQL before there are any."""
    import ibis

    return ibis.table({"query": "string", "number": "int64"}, name="released_queries")


def released_table(released: pa.Table) -> Any:
    """Pass released queries to an engine, numbered in order: numbers sort faster and break ties as the texts would."""
    import ibis
    import pyarrow as pa

    queries = released.select(QUERY).sort_by("query")
    return ibis.memtable(queries.append_column("number", pa.array(range(queries.num_rows), pa.int64())))


def count_released(table: Any, bound: Bound, released: Any, most: int) -> Any:
    """Count users per released query, each in at most ``most`` of them: the cap applies to released queries only."""
    return count_first(bound.each(table.inner_join(released, "query").drop("query"), ["number"]), released, most)


def count_first(each: Any, released: Any, most: int) -> Any:
    """Count users per released query, given each user's distinct released queries by ``number``, with their order."""
    counted = tally(first_rows(each, ["number"], most), ["number"])
    return counted.inner_join(released, "number").select("query", "n")


def law_of(step: Noisy) -> Noise:
    """Return the law of a step's noise, from the same numbers as its cost."""
    return DiscreteLaplace(step.scale) if isinstance(step, LaplaceHistogram) else RoundedGaussian(step.sigma)


def beneath(step: Noisy) -> int:
    """Return how many users a step takes off each count before its noise: one fewer than its floor."""
    return 0 if isinstance(step, GaussianWeights) else step.min_users - 1


def released_from(step: Noisy) -> int:
    """Return the lowest noisy count that a step publishes: its threshold, in users."""
    return (step.threshold or 0) + beneath(step)


def floor_in_words(step: Noisy) -> str:
    """Return the floor of a step as a clause that follows others; empty without one."""
    return f"; never with fewer than {beneath(step) + 1} users" if beneath(step) else ""


def noise_in_words(step: StepParameters) -> str:
    """Name the noise of a step."""
    return "discrete Laplace" if isinstance(step, LaplaceHistogram) else "Gaussian"


def passing(counted: Any, columns: list[str], step: Noisy, bits: Bits) -> pa.Table:
    """Return the keys whose noisy count reaches the step's threshold, with that noisy count in a column ``noisy``.

    One draw per key selects and is published. Where many keys share a low count, how many pass is drawn for all at once
    (docs/proofs/bulk.md) and only those are fetched. ``counted`` (the columns and ``n``) must be materialized. Under a
    floor ``n`` is without what is :func:`beneath` it, and ``noisy`` is with it again (docs/proofs/floor.md).
    """
    if step.threshold is None:
        raise ValueError(step)
    passed, hidden = reaching(counted, columns, law_of(step), step.threshold, bits), beneath(step)
    return passed if not hidden else _with_noisy(passed.select(columns), passed["noisy"].to_numpy() + hidden)


def reaching(counted: Any, columns: list[str], law: Noise, threshold: int, bits: Bits) -> pa.Table:
    """Return the keys whose noisy count reaches a threshold, as :func:`passing` does for a step without a floor."""
    import pyarrow as pa

    sizes = execute(counted.group_by("n").agg(keys=counted.count()).order_by("n"))
    values, keys = (np.asarray(sizes[c].to_numpy(), dtype=np.int64) for c in ("n", "keys"))
    in_bulk = (values < threshold) & (keys >= WORTH_A_BINOMIAL)
    # In the order of the keys, not in the engine's: the same bits then give the same release on every engine.
    few = counted.filter(~counted.n.isin(values[in_bulk].tolist())) if in_bulk.any() else counted
    singly = execute(few.select(*columns, "n").order_by(columns))
    noisy = add_noise(singly["n"].to_numpy(), law, bits)
    chosen = [_with_noisy(singly.select(columns), noisy, noisy >= threshold)]
    for count, size in zip(values[in_bulk].tolist(), keys[in_bulk].tolist(), strict=True):
        positions, lifted = lifted_keys(size, count, threshold, law, bits)
        if len(positions):
            chosen.append(_with_noisy(keys_at(counted, columns, count, positions), lifted))
    return pa.concat_tables(chosen)


def keys_at(counted: Any, columns: list[str], count: int, positions: IntArray) -> pa.Table:
    """Look up keys by their places among those of one count, in the order of the keys; no other key is fetched."""
    import ibis
    import pyarrow as pa

    same = counted.filter(counted.n == count)
    placed = same.mutate(place=ibis.row_number().over(ibis.window(order_by=[same[c] for c in columns])))
    wanted = ibis.memtable(pa.table({"place": pa.array(positions, pa.int64())}))
    return execute(placed.semi_join(wanted, "place").order_by("place").select(*columns))


def noisy_on_public_keys(counted: Any, public: pa.Table, columns: list[str], step: Noisy, bits: Bits) -> pa.Table:
    """Return every public key with its noisy count, zeros included; no key is left out and none is added."""
    return noisy_counts(counted, public, columns, law_of(step), bits)


def noisy_counts(counted: Any, public: pa.Table, columns: list[str], law: Noise, bits: Bits) -> pa.Table:
    """Return every key of a table with its noisy count, as :func:`noisy_on_public_keys` does for a step."""
    import ibis

    keys = ibis.memtable(public.select(columns))
    joined = keys.left_join(counted, columns)
    exact = execute(joined.select(*(keys[c] for c in columns), n=counted.n.fill_null(0)))
    # Sorted here, by bytes: the keys came from memory, and an engine may order such texts by its own locale.
    exact = exact.sort_by([(c, "ascending") for c in columns])
    noisy = add_noise(exact["n"].to_numpy(), law, bits)
    return _with_noisy(exact.select(columns), noisy)


def _with_noisy(keys: pa.Table, noisy: IntArray, chosen: Any = None) -> pa.Table:
    import pyarrow as pa

    both = keys.append_column("noisy", pa.array(noisy, pa.int64()))
    return both if chosen is None else both.filter(pa.array(chosen))


def with_intervals(noisy: pa.Table, step: Noisy, *, support_is_public: bool = False) -> pa.Table:
    """Return count, stderr, low and high; ``support_is_public`` if empty keys may pass (docs/proofs/intervals.md)."""
    import pyarrow as pa

    law, hidden, values = law_of(step), beneath(step), np.asarray(noisy["noisy"].to_numpy(), dtype=np.int64)
    if step.threshold is None:
        low, high = on_public_keys(values, law)
    else:
        least = 0 if support_is_public else 1 + hidden
        low, high = given_release(values, step.threshold + hidden, law, least=least)
    stderr = np.full(len(values), math.sqrt(law.variance))
    out = noisy.drop_columns(["noisy"]).append_column("count", pa.array(values, pa.int64()))
    for name, column in (("stderr", stderr), ("low", low), ("high", high)):
        out = out.append_column(name, pa.array(column, pa.float64()))
    return out
