"""Count: bounded rows per key, and which keys pass a threshold. The tail of the counts never leaves the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushquery.core.step_loss import GaussianHistogram, GaussianWeights, LaplaceHistogram
from hushquery.engine import execute
from hushquery.noise.bits import Bits
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import IntArray, add_noise
from hushquery.noise.survivors import WORTH_A_BINOMIAL, lifted_keys

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Noisy", "keys_at", "law_of", "noisy_on_public_keys", "passing", "tally"]

#: A step that adds noise to counts.
Noisy = LaplaceHistogram | GaussianHistogram | GaussianWeights


def law_of(step: Noisy) -> DiscreteLaplace | RoundedGaussian:
    """Give the law of a step's noise, from the same numbers that its cost is computed from.

    >>> from fractions import Fraction
    >>> law_of(LaplaceHistogram(20, Fraction(9)))
    DiscreteLaplace(b=Fraction(9, 1))
    """
    return DiscreteLaplace(step.scale) if isinstance(step, LaplaceHistogram) else RoundedGaussian(step.sigma)


def tally(rows: Any, columns: list[str]) -> Any:
    """Count bounded rows per key, in a column ``n``."""
    return rows.group_by(columns).agg(n=rows.count())


def passing(counted: Any, columns: list[str], step: Noisy, bits: Bits) -> pa.Table:
    """Give the keys whose noisy count reaches the step's threshold, with that noisy count in a column ``noisy``.

    The noise is drawn once per key: it selects and it is published. Keys that many share a low count with are not
    fetched: how many of them pass is drawn for all at once (docs/proofs/bulk.md), and only those are looked up.

    Args:
        counted: A table of the engine with the columns and ``n``, made by :func:`hushquery.engine.materialize`.
        columns: The key.
        step: The noise and the threshold.
        bits: Where the noise comes from.
    """
    import pyarrow as pa

    if step.threshold is None:
        raise ValueError(step)
    law, threshold = law_of(step), step.threshold
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
            found = keys_at(counted, columns, count, positions)
            chosen.append(_with_noisy(found, lifted, np.ones(len(lifted), dtype=np.bool_)))
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
    """Give every public key with its noisy count, zeros included; no key is left out and none is added.

    Args:
        counted: A table of the engine with the columns and ``n``.
        public: The keys, which are public already.
        columns: The key.
        step: The noise.
        bits: Where the noise comes from.
    """
    import ibis

    keys = ibis.memtable(public.select(columns))
    joined = keys.left_join(counted, columns)
    exact = execute(joined.select(*(keys[c] for c in columns), n=counted.n.fill_null(0)))
    # Sorted here, by bytes: the keys came from memory, and an engine may order such texts by its own locale.
    exact = exact.sort_by([(c, "ascending") for c in columns])
    noisy = add_noise(exact["n"].to_numpy(), law_of(step), bits)
    return _with_noisy(exact.select(columns), noisy, np.ones(len(noisy), dtype=np.bool_))


def _with_noisy(keys: pa.Table, noisy: np.ndarray[Any, np.dtype[np.int64]], chosen: Any) -> pa.Table:
    import pyarrow as pa

    return keys.filter(pa.array(chosen)).append_column("noisy", pa.array(noisy[chosen], pa.int64()))
