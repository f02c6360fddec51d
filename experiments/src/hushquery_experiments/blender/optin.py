"""The opt-in side of an experiment: head list and shares from counts, with the noise and thresholds of the real plan.

What the engine does with a log, count, split, draw once per record and keep what passes, happens here on counts that
are already there, from the same calibrated steps, and ends in the same :class:`~hushquery.hybrid.headlist.OptInShares`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, Relation, exact
from hushquery.core.calibration import laplace_scale
from hushquery.core.loss import LaplaceHistogram
from hushquery.curator.counting import law_of
from hushquery.errors import UsageError
from hushquery.hybrid.headlist import NoisyHead, OptInShares, Threshold, calibrate_head, estimate_reused
from hushquery.hybrid.remeasure import calibrate_split
from hushquery_experiments.blender.law import Split

__all__ = ["OptInSide", "OptInWay", "simulate_optin"]

#: Where the opt-in shares come from: the counts that made the head list; other users (f_O); or fresh noise on the same
#: users, paid with the rest of epsilon.
OptInWay = Literal["reuse", "split", "budget"]

IntArray = npt.NDArray[np.int64]

# A setting is run many times over, and its steps are always the same.
_head_step = functools.lru_cache(calibrate_head)
_split_steps = functools.lru_cache(calibrate_split)


@dataclass(frozen=True)
class OptInSide:
    """What the opt-in users gave.

    Args:
        shares: The shares of the head records.
        records: The number of each head record in ``split``.
        split: The population, with a record added for every head record that was not listed in it.
        passed: How many records passed the threshold, before the list was cut.
    """

    shares: OptInShares
    records: IntArray
    split: Split
    passed: int


def simulate_optin(
    split: Split,
    *,
    epsilon: Number,
    delta: Number,
    most: int,
    rng: np.random.Generator,
    way: OptInWay = "reuse",
    threshold: Threshold = "tight",
    f_o: float = 0.95,
    head_share: Number = "0.7",
) -> OptInSide:
    """Make the head list and the opt-in shares.

    Args:
        split: The population.
        epsilon: Of one opt-in user.
        delta: Of one opt-in user.
        most: M.
        rng: Where the noise comes from; a simulation's, it protects nobody.
        way: Where the shares come from.
        threshold: ``tight`` or ``paper``.
        f_o: For ``split``: the share of opt-in users who find the list.
        head_share: For ``budget``: the share of epsilon that finds the list.
    """
    if type(most) is not int or most < 1:
        raise UsageError("the size of a head list must be a whole number of at least 1", fix="Give, say, 50")
    if way == "reuse":
        step = _head_step(epsilon=epsilon, delta=delta, threshold=threshold)
        split, head = _draw_head(split, split.optin, split.singles, split.optin_users, step, rng)
        shares = estimate_reused(head, most)
        return OptInSide(shares, _numbers(shares), split, len(head))
    if way == "split":
        finding, measuring = _split_steps(epsilon=epsilon, delta=delta, threshold=threshold)
        finders = round(split.optin_users * f_o)
        if not 0 < finders < split.optin_users:
            raise UsageError("f_O leaves somebody on both sides", fix="Give for example 0.95")
        without = split.optin_users - int(split.optin.sum()) - split.singles
        part = rng.multivariate_hypergeometric(
            [*split.optin.tolist(), split.singles, without], finders, method="marginals"
        )
        split, head = _draw_head(split, part[:-2], int(part[-2]), finders, finding, rng)
        rest = split.optin - np.append(part[:-2], np.ones(len(split.optin) - len(part) + 2, dtype=np.int64))
        users, parts = split.optin_users - finders, ((finding,), (measuring,))
    elif way == "budget":
        whole, part_of = exact(epsilon, "epsilon"), exact(head_share, "the head list's share of epsilon")
        finding = _head_step(epsilon=whole * part_of, delta=delta, threshold=threshold)
        scale = laplace_scale(2, whole * (1 - part_of))
        measuring = LaplaceHistogram(1, scale, relation=Relation.REPLACE_ONE)
        split, head = _draw_head(split, split.optin, split.singles, split.optin_users, finding, rng)
        rest, users = split.optin, split.optin_users
        parts = ((finding, measuring),)  # type: ignore[assignment]  # the same users pay for both
    else:
        raise UsageError("opt-in shares come by reuse, split or budget", fix="Give one of these")
    found = np.array([int(url) for url in head.url], dtype=np.int64)
    noisy = rest[found] + _noise(measuring, len(found), rng)
    order = np.lexsort((found, -noisy))[:most]
    values = noisy[order] / float(users)
    shares = OptInShares(
        [head.records[i] for i in order],
        values,
        users,
        law_of(measuring).variance,
        1.0 - math.fsum(values),
        len(order),
        parts,
        "split",
    )
    return OptInSide(shares, found[order], split, len(head))


def _draw_head(
    split: Split, counts: IntArray, singles: int, users: int, step: LaplaceHistogram, rng: np.random.Generator
) -> tuple[Split, NoisyHead]:
    """Draw once for every record that somebody holds, and name a record (its query's number, its own number)."""
    held = np.flatnonzero(counts)
    noisy = counts[held] + _noise(step, len(held), rng)
    least = step.threshold or 0
    kept = noisy >= least
    # A record of one user passes with the chance of enough noise; beyond the threshold that noise is geometric.
    lucky = int(rng.binomial(singles, float(law_of(step).tail(least - 1))))
    fresh = rng.geometric(-math.expm1(-1 / float(step.scale)), lucky) - 1 + least
    first_record, first_query = len(split.query), int(split.query.max()) + 1
    zeros, new = np.zeros(lucky, dtype=np.int64), np.arange(lucky)
    split = replace(
        split,
        query=np.append(split.query, first_query + new),
        optin=np.append(split.optin, zeros + 1),
        client=np.append(split.client, zeros),
        singles=split.singles - lucky,
    )
    records = np.append(held[kept], first_record + new)
    counted = np.append(noisy[kept], fresh)
    order = np.lexsort((records, -counted))
    names = [str(record) for record in records[order].tolist()]
    queries = [str(query) for query in split.query[records[order]].tolist()]
    return split, NoisyHead(queries, names, counted[order], users, 1, step)


def _noise(step: LaplaceHistogram, n: int, rng: np.random.Generator) -> IntArray:
    """Draw discrete Laplace noise: the difference of two geometric numbers."""
    chance = -math.expm1(-1 / float(step.scale))
    return rng.geometric(chance, n) - rng.geometric(chance, n)


def _numbers(shares: OptInShares) -> IntArray:
    return np.array([int(url) for _, url in shares.records], dtype=np.int64)
