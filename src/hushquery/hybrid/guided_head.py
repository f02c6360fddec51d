"""A head list found by guided weights, for users with many records each; and the head list algorithms by name.

Noise on counts grows with the number of records that a user may have. The guided selector (docs/proofs/guided.md) does
not: each user spreads one unit of weight over up to m_O records, most on those that are neither hopeless nor popular
anyway. It publishes no counts. So part of the budget counts again, on the list that is public by then, one record of
each user, chosen at random among all of theirs: that is what a client reports too, and those counts are unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hushquery.core.budget import Budget
from hushquery.core.gaussian import mu_for, sigma_for
from hushquery.core.loss import Loss
from hushquery.core.rounding import Number
from hushquery.core.step_loss import GaussianHistogram, GaussianWeights
from hushquery.core.thresholds import WEIGHT_GRID, knapsack_threshold
from hushquery.core.unit import Relation
from hushquery.curator.bound import Bound
from hushquery.curator.count import noisy_on_public_keys, tally
from hushquery.curator.selectors.guided import SKETCHED_QUERIES, Guided
from hushquery.engine import materialize
from hushquery.errors import CalibrationError, UsageError
from hushquery.hybrid.headlist import MOST_RECORDS, NoisyHead, Threshold, create_head, ordered_head, public_users
from hushquery.hybrid.records import RECORD, fresh_key, record_rows, records_of
from hushquery.log.read import Log
from hushquery.noise.bits import Bits, SystemBits

__all__ = ["HEAD_ALGORITHMS", "GuidedSteps", "calibrate_guided_head", "create_guided_head", "draw_guided_head"]

# Between query and URL of a record while it is one text; a URL holds no such character.
_BETWEEN = "\x1f"
# Shares of mu^2 for the sketch, the selection and the counts, and of delta for the threshold.
_SKETCH, _SELECTION, _COUNTS = Fraction(2, 10), Fraction(5, 10), Fraction(3, 10)
_THRESHOLD_SHARE_OF_DELTA = Fraction(1, 10)


@dataclass(frozen=True)
class GuidedSteps:
    """The three steps of a guided head list, with all their numbers."""

    sketch: GaussianWeights
    selection: GaussianWeights
    counts: GaussianHistogram

    @property
    def loss(self) -> Loss:
        """What they cost together."""
        return self.sketch.loss + self.selection.loss + self.counts.loss


def calibrate_guided_head(
    *,
    epsilon: Number,
    delta: Number,
    records_per_user: int = 40,
    relation: Relation | str = Relation.REPLACE_ONE,
) -> GuidedSteps:
    """Choose the noise of all three steps. Reads no row.

    Args:
        epsilon: Of one opt-in user.
        delta: Of one opt-in user.
        records_per_user: m_O, the most records a user gives weight to.
        relation: ``replace-one``, where every squared sensitivity is twice that of ``add-remove``.

    **Guarantee:** (epsilon, f + (1-f) agd(epsilon, mu)) for one opt-in user, f being the threshold's chance for the
    worst weights, and mu^2 = 2 (64^2/s_A^2 + 64^2/s_B^2 + 1/s_C^2) under replace-one: weights are not negative, so
    those of two users differ by at most sqrt 2 in L2 norm. f covers new records in either world
    (docs/proofs/headlist.md).

    >>> steps = calibrate_guided_head(epsilon=4, delta=1e-5)
    >>> steps.loss.fits(4, 1e-5), steps.loss.epsilon(1e-5) > 3.9
    (True, True)
    """
    budget, related = Budget(epsilon, delta), Relation.of(str(relation))
    if type(records_per_user) is not int or not 1 <= records_per_user <= MOST_RECORDS:
        raise UsageError(f"records per user must be a whole number from 1 to {MOST_RECORDS:,}", fix="Give, say, 40")
    if budget.epsilon <= 0 or budget.delta <= 0:
        raise CalibrationError("a head list needs epsilon > 0 and 0 < delta < 1", fix="Give, say, 4 and 1e-5")
    exchanged = 2 if related is Relation.REPLACE_ONE else 1
    failing = budget.delta * _THRESHOLD_SHARE_OF_DELTA
    mu_squared = mu_for(budget.epsilon, budget.delta - failing) ** 2
    weights = [sigma_for(exchanged * WEIGHT_GRID**2, mu_squared * share) for share in (_SKETCH, _SELECTION)]
    release_at = knapsack_threshold(weights[1] / WEIGHT_GRID, records_per_user, failing)
    return GuidedSteps(
        GaussianWeights(SKETCHED_QUERIES, weights[0], relation=related),
        GaussianWeights(records_per_user, weights[1], release_at, relation=related),
        GaussianHistogram(1, sigma_for(exchanged, mu_squared * _COUNTS), relation=related),
    )


def create_guided_head(
    log: Log,
    *,
    epsilon: Number,
    delta: Number,
    records_per_user: int = 40,
    relation: Relation | str = Relation.REPLACE_ONE,
    threshold: Threshold = "tight",
    bound: Bound | None = None,
    bits: Bits | None = None,
    users: int | None = None,
) -> NoisyHead:
    """Make a head list by guided weights; arguments as for :func:`~hushquery.hybrid.headlist.create_head`.

    **Guarantee:** that of :func:`calibrate_guided_head`, for one opt-in user.
    **Estimator:** the noisy number of users whose one random record it is; unbiased given the list.
    """
    if threshold != "tight":
        raise UsageError("guided weights have one threshold only", fix="Give threshold tight, or the algorithm laplace")
    steps = calibrate_guided_head(epsilon=epsilon, delta=delta, records_per_user=records_per_user, relation=relation)
    return draw_guided_head(log, steps, bound=bound, bits=bits, users=users)


def draw_guided_head(
    log: Log, steps: GuidedSteps, *, bound: Bound | None = None, bits: Bits | None = None, users: int | None = None
) -> NoisyHead:
    """Sketch, select and count. The spend must have been recorded before."""
    import ibis

    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    total = public_users(log, steps.counts.relation, users)
    found = Guided(steps.sketch, steps.selection, None).run(_as_one_text(log), chosen, source)
    listed = _as_records(found["query"].to_pylist())
    one_each = records_of(log, chosen, steps.counts.keys_per_user).semi_join(ibis.memtable(listed), RECORD)
    with materialize(tally(one_each, RECORD)) as counted:
        noisy = noisy_on_public_keys(counted, listed, RECORD, steps.counts, source)
    return ordered_head(noisy, total, steps.counts.keys_per_user, steps.counts, (steps.sketch, steps.selection))


def _as_one_text(log: Log) -> Any:
    """Give the log with each record as one text in the place of the query: the selector knows nothing of URLs."""
    rows = record_rows(log)
    named = {name: rows[name] for name in ("user", "time") if name in rows.columns}
    return rows.select(query=rows["query"] + _BETWEEN + rows.url, **named)


def _as_records(texts: list[str]) -> Any:
    import pyarrow as pa

    pairs = [text.rpartition(_BETWEEN) for text in texts]
    return pa.table(
        {name: pa.array([p[i] for p in pairs], pa.string()) for i, name in zip((0, 2), RECORD, strict=True)}
    )


#: Head lists by name: each makes one from a log, a budget, a bound and bits, and may be exchanged for another.
HEAD_ALGORITHMS: dict[str, Callable[..., NoisyHead]] = {"laplace": create_head, "guided": create_guided_head}
