"""A head list that is kept: in its later periods the opt-in users only measure it, with fresh noise and no threshold.

The list is public already, so nothing is selected and no delta is needed. Every listed record gets a draw whatever its
count is, zeros too, and under replace-one so does the wildcard: an exchange of one user's data moves the listed counts
by a and a' and the wildcard by ``|a - a'|``, together at most 2 m_O, which the noise is made for anyway
(docs/epochs.md). Under add-remove it would be m_O more than that, so there the wildcard is what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hushquery.core.rounding import Number, exact
from hushquery.core.step_loss import LaplaceHistogram
from hushquery.core.thresholds import laplace_scale
from hushquery.core.unit import Relation
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of
from hushquery.errors import CalibrationError, UsageError
from hushquery.hybrid.headlist import public_users
from hushquery.hybrid.optin import OptInShares, measure_list
from hushquery.hybrid.records import fresh_key
from hushquery.log.read import Log
from hushquery.noise.bits import Bits, SystemBits
from hushquery.noise.sampler import sampler

__all__ = ["calibrate_kept", "measure_kept"]


def calibrate_kept(
    *, epsilon: Number, records_per_user: int = 1, relation: Relation | str = Relation.REPLACE_ONE
) -> LaplaceHistogram:
    """Choose the noise of a later period of a kept list. Reads no row: a plan calls this before it spends.

    **Guarantee:** pure epsilon = 2 m_O/b for one opt-in user under replace-one, m_O/b under add-remove; delta = 0.

    >>> step = calibrate_kept(epsilon=4)
    >>> step.scale, step.threshold, step.loss.pure, step.loss.threshold_delta
    (Fraction(1, 2), None, (Fraction(4, 1),), Fraction(0, 1))
    """
    related, asked = Relation.of(str(relation)), exact(epsilon, "epsilon")
    if asked <= 0:
        raise CalibrationError("measuring a head list needs epsilon > 0", fix="Give, say, epsilon 4")
    if type(records_per_user) is not int or records_per_user < 1:
        raise UsageError("records per user must be a whole number of at least 1", fix="Give, say, 1")
    changed = records_per_user * (2 if related is Relation.REPLACE_ONE else 1)
    return LaplaceHistogram(records_per_user, laplace_scale(changed, asked), relation=related)


def measure_kept(
    log: Log,
    records: Sequence[tuple[str, str]],
    step: LaplaceHistogram,
    *,
    bound: Bound | None = None,
    bits: Bits | None = None,
    users: int | None = None,
) -> OptInShares:
    """Measure a public list on all opt-in users of a period. The spend must have been recorded before.

    Args:
        log: The secret log of this period's opt-in users.
        records: The list, in the order that clients hash; it stays in that order.
        step: From :func:`calibrate_kept`.
        bound: Which records of a user count; random ones by default.
        bits: Where the noise comes from; the operating system by default.
        users: The number of opt-in users where it is public; needed under add-remove.

    **Guarantee:** that of :func:`calibrate_kept`.
    **Estimator:** (count + noise)/n, unbiased: nothing was selected by this noise. The wildcard has its own draw under
    replace-one, variance P(1-P)/n + s/n^2, and is 1 minus the sum under add-remove, variance P(1-P)/n + M s/n^2.
    **Reference:** Avent et al. 2017, figure 4, with everybody in T.
    """
    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    n = public_users(log, step.relation, users) * step.keys_per_user
    noise, listed = law_of(step), list(records)
    if not listed:
        return OptInShares([], np.empty(0), n, noise.variance, 1.0, 0, ((step,),), "split")
    measured, of_list = measure_list(log, listed, step, chosen, source)
    noisy = {(row["query"], row["url"]): row["noisy"] for row in measured.to_pylist()}
    values = np.array([noisy[record] for record in listed], dtype=np.float64) / n
    if step.relation is Relation.REPLACE_ONE:
        wildcard, draws = (n - of_list + sampler(noise).draw_one(source)) / n, 1
    else:
        wildcard, draws = 1.0 - math.fsum(values), len(listed)
    return OptInShares(listed, values, n, noise.variance, wildcard, draws, ((step,),), "split")
