"""Intervals of released counts, as columns of a table: hushquery.noise.intervals has what they are.

Proof: docs/proofs/intervals.md. Tests: tests/curator/test_intervals.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushquery.curator.count import Noisy, law_of
from hushquery.noise.intervals import given_release, on_public_keys

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["with_intervals"]


def with_intervals(noisy: pa.Table, step: Noisy, *, support_is_public: bool = False) -> pa.Table:
    """Turn keys with a column ``noisy`` into a table of a release: count, stderr, low, high.

    Args:
        noisy: The keys and their noisy counts.
        step: The noise, and the threshold they passed if there was one.
        support_is_public: Whether empty keys got noise too and may have passed.
    """
    import pyarrow as pa

    law, values = law_of(step), np.asarray(noisy["noisy"].to_numpy(), dtype=np.int64)
    if step.threshold is None:
        low, high = on_public_keys(values, law)
    else:
        low, high = given_release(values, step.threshold, law, least=0 if support_is_public else 1)
    stderr = np.full(len(values), math.sqrt(law.variance))
    return (
        noisy.drop_columns(["noisy"])
        .append_column("count", pa.array(values, pa.int64()))
        .append_column("stderr", pa.array(stderr, pa.float64()))
        .append_column("low", pa.array(low, pa.float64()))
        .append_column("high", pa.array(high, pa.float64()))
    )
