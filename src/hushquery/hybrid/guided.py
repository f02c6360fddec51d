"""A head list found by guided weights, for users with many records each.

Noise on counts grows with the number of records that a user may have. The guided selector (docs/proofs/guided.md) does
not: each user spreads one unit of weight over up to m_O records, most on those that are neither hopeless nor popular
anyway. It publishes no counts. So part of the budget counts again, on the list that is public by then, one record of
each user, chosen at random among all of theirs: that is what a client reports too, and those counts are unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hushquery.core.gaussian import mu_for, sigma_for
from hushquery.core.loss import Loss
from hushquery.core.rounding import Number
from hushquery.core.step_loss import GaussianHistogram, GaussianWeights
from hushquery.core.thresholds import WEIGHT_GRID, knapsack_threshold
from hushquery.core.unit import Relation
from hushquery.curator.bound import Bound
from hushquery.curator.count import noisy_on_public_keys, tally
from hushquery.curator.selectors.guided import SKETCHED_QUERIES, Guided
from hushquery.engine import held
from hushquery.hybrid.headlist import (
    RECORD,
    NoisyHead,
    checked_budget,
    fresh_key,
    public_users,
    record_rows,
    records_of,
)
from hushquery.log.schema import Log
from hushquery.noise.bits import Bits, SystemBits

# Between query and URL of a record while it is one text; a URL holds no such character.
_SEPARATOR = "\x1f"
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

    Arguments as for :func:`~hushquery.hybrid.headlist.calibrate_head`.

    **Guarantee:** (epsilon, f + (1-f) agd(epsilon, mu)) for one opt-in user, f being the threshold's chance for the
    worst weights, and mu^2 = 2 (64^2/s_A^2 + 64^2/s_B^2 + 1/s_C^2) under replace-one: weights are not negative, so
    those of two users differ by at most sqrt 2 in L2 norm, and every squared sensitivity is twice that of add-remove.
    f covers new records in either data set (docs/proofs/headlist.md).

    >>> steps = calibrate_guided_head(epsilon=4, delta=1e-5)
    >>> steps.loss.fits(4, 1e-5), steps.loss.epsilon(1e-5) > 3.9
    (True, True)
    """
    budget, related = checked_budget(epsilon, delta, records_per_user), Relation.of(str(relation))
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


def draw_guided_head(
    log: Log, steps: GuidedSteps, *, bound: Bound | None = None, bits: Bits | None = None, users: int | None = None
) -> NoisyHead:
    """Sketch, select and count. The spend must have been recorded before.

    Arguments as for :func:`~hushquery.hybrid.headlist.draw_head`.

    **Guarantee:** that of :func:`calibrate_guided_head`, for one opt-in user.
    **Estimator:** the noisy number of users whose one random record it is; unbiased given the list.
    """
    import ibis
    import pyarrow as pa

    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    total = public_users(log, steps.counts.relation, users)
    rows = record_rows(log)
    # The selector knows nothing of URLs, so each record is one text in the place of the query.
    kept = {name: rows[name] for name in ("user", "time") if name in rows.columns}
    texts = rows.select(query=rows["query"] + _SEPARATOR + rows.url, **kept)
    selected = Guided(steps.sketch, steps.selection, None).run(texts, chosen, source)["query"].to_pylist()
    pairs = [text.rpartition(_SEPARATOR) for text in selected]
    listed = pa.table(
        {name: pa.array([pair[i] for pair in pairs], pa.string()) for i, name in ((0, "query"), (2, "url"))}
    )
    one_each = records_of(log, chosen, steps.counts.keys_per_user).semi_join(ibis.memtable(listed), RECORD)
    with held(tally(one_each, RECORD)) as counted:
        noisy = noisy_on_public_keys(counted, listed, RECORD, steps.counts, source)
    return NoisyHead.ordered(noisy, total, steps.counts, (steps.sketch, steps.selection))
