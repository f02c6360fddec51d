"""Measure head lists with fresh noise: split users, guided weights, and lists of an earlier period.

Guided weights publish no counts, so part of the budget counts the list again on one random record of each user, which
is what a client reports too (docs/proofs/guided.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hushquery.core.budget import Number, Relation, exact
from hushquery.core.calibration import WEIGHT_GRID, knapsack_threshold, laplace_scale, mu_for, sigma_for
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss, StepParameters
from hushquery.curator.counting import Bound, law_of, noisy_on_public_keys, tally
from hushquery.curator.selectors.guided import SKETCHED_QUERIES, Guided
from hushquery.engine import execute, materialize, md5
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.hybrid.headlist import (
    RECORD,
    NoisyHead,
    OptInShares,
    Threshold,
    calibrate_head,
    checked_budget,
    draw_head,
    fresh_key,
    public_users,
    record_rows,
    records_of,
)
from hushquery.log.read import Log
from hushquery.noise.sampler import Bits, IntArray, SystemBits, add_noise

if TYPE_CHECKING:
    import pyarrow as pa

# Users are counted by so many hexadecimal digits of their digest, to find where to split them.
_BORDER_DIGITS = 3
# Between query and URL of a record while it is one text; a URL holds no such character.
_SEPARATOR = "\x1f"
# Shares of mu^2 for the sketch, the selection and the counts, and of delta for the threshold.
_SKETCH, _SELECTION, _COUNTS = Fraction(2, 10), Fraction(5, 10), Fraction(3, 10)
_THRESHOLD_SHARE_OF_DELTA = Fraction(1, 10)


@dataclass(frozen=True)
class Parts:
    """The opt-in users in two disjoint parts, S (finders) and T (measurers); the sizes are public under replace-one."""

    finders: Any
    measurers: Any
    finding: int
    measuring: int

    def __repr__(self) -> str:
        return f"Parts({self.finding} finders, {self.measuring} measurers; who is secret)"


def split_users(log: Log, share: Number, key: str) -> Parts:
    """Split the users of a log, ``|S| = f_O |O|`` rounded to the nearest whole number, by a keyed digest of their ids.

    Only for replace-one, which keeps ids: under add-remove an arriving user would push another one from S to T.
    """
    import ibis

    fraction = exact(share, "the share of users who find the head list")
    if not 0 < fraction < 1:
        raise UsageError("the share of users who find the head list must be above 0 and below 1", fix="Use, say, 0.95")
    users = log.rows.select("user").distinct()
    users = users.mutate(order=md5(ibis.literal(key) + "|" + users.user.cast("string")))
    # Ranking everybody would make one worker sort everybody: count groups first, to see which holds the border.
    group = users["order"].substr(0, _BORDER_DIGITS)
    sizes = dict(zip(*execute(users.group_by(group=group).agg(n=users.count())).to_pydict().values(), strict=True))
    total = sum(sizes.values())
    finding = (total * fraction + Fraction(1, 2)).__floor__()
    if not 0 < finding < total:
        raise DataError(
            "one of the two parts of the opt-in users would be empty",
            why=f"{finding} of {total} users would find the head list",
            fix="Let more users opt in, choose another share, or reuse the counts (mode best needs no parts)",
        )
    before = 0
    for name in sorted(sizes):
        if before + sizes[name] > finding:
            break
        before += sizes[name]
    near = users.filter(group == name)
    placed = near.mutate(place=ibis.row_number().over(ibis.window(order_by=near["order"])))  # from zero
    border = execute(placed.filter(placed.place == finding - before).select("order"))["order"][0].as_py()
    finders, measurers = (users.filter(c).select("user") for c in (users["order"] < border, users["order"] >= border))
    return Parts(finders, measurers, finding, total - finding)


def calibrate_split(
    *,
    epsilon: Number,
    delta: Number,
    records_per_user: int = 1,
    relation: Relation | str = Relation.REPLACE_ONE,
    threshold: Threshold = "paper",
) -> tuple[LaplaceHistogram, LaplaceHistogram]:
    """Choose the noise of both parts: of S, which finds the head list, and of T, which measures it. Reads no row.

    >>> finding, measuring = calibrate_split(epsilon=4, delta=1e-5)
    >>> finding.threshold, measuring.threshold, measuring.loss.pure
    (7, None, (Fraction(4, 1),))
    """
    if Relation.of(str(relation)) is not Relation.REPLACE_ONE:
        raise UsageError(
            "the opt-in users can only be split under replace-one",
            why="parts of a fixed size let one user's arrival move another user between them",
            fix="Use replace-one, or reuse the counts of the head list",
        )
    finding = calibrate_head(epsilon=epsilon, delta=delta, records_per_user=records_per_user, threshold=threshold)
    return finding, calibrate_remeasure(epsilon=epsilon, records_per_user=records_per_user)


def calibrate_remeasure(
    *, epsilon: Number, records_per_user: int = 1, relation: Relation | str = Relation.REPLACE_ONE
) -> LaplaceHistogram:
    """Choose the noise that measures a public list: nothing is selected, so no threshold and no delta. Reads no row.

    **Guarantee:** pure epsilon = 2 m_O/b for one opt-in user under replace-one, m_O/b under add-remove; delta = 0.

    >>> calibrate_remeasure(epsilon=4).loss.pure
    (Fraction(4, 1),)
    """
    related, whole = Relation.of(str(relation)), exact(epsilon, "epsilon")
    if whole <= 0:
        raise CalibrationError("measuring a head list needs epsilon > 0", fix="Use, say, epsilon 4")
    if type(records_per_user) is not int or records_per_user < 1:
        raise UsageError("records per user must be a whole number of at least 1", fix="Use, say, 1")
    changed = records_per_user * (2 if related is Relation.REPLACE_ONE else 1)
    return LaplaceHistogram(records_per_user, laplace_scale(changed, whole), relation=related)


def draw_split(
    log: Log,
    finding: LaplaceHistogram,
    measuring: LaplaceHistogram,
    *,
    most: int,
    share: Number = Fraction(19, 20),
    bound: Bound | None = None,
    bits: Bits | None = None,
) -> OptInShares:
    """Find the head list with a share f_O of the opt-in users and measure its top ``most`` (M) records with the others.

    The spend must have been recorded before. Arguments as for :func:`~hushquery.hybrid.headlist.draw_head`.

    **Guarantee:** (epsilon, delta) for a user of S, (epsilon, 0) for a user of T, replace-one; together the larger.
    **Estimator:** (count + noise)/n with fresh noise; unbiased given the head list.
    **Reference:** Avent et al. 2017, figures 2 to 4.
    """
    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    parts = split_users(log, share, fresh_key(source))
    head = draw_head(log, finding, bound=chosen, bits=source, users=parts.finding, part=parts.finders)
    return measure_parts(log, head.records, (head.step,), measuring, parts, most, chosen, source)


def measure_parts(
    log: Log,
    records: list[tuple[str, str]],
    found_by: tuple[StepParameters, ...],
    step: LaplaceHistogram,
    parts: Parts,
    most: int,
    bound: Bound,
    bits: Bits,
) -> OptInShares:
    """Measure a head list that the users of S found (``found_by``) with those of T, and the wildcard too."""
    n = parts.measuring * step.keys_per_user
    paid, noise = (found_by, (step,)), law_of(step).variance
    if not records:
        # Without a record to tell apart, the wildcard is everything, and no draw is needed to say so.
        return OptInShares([], np.empty(0), n, noise, 1.0, 0, paid, "split")
    measured, of_head = _measure(log, records, step, bound, bits, parts.measurers)
    rest = int(noisy_rest(np.array([n - of_head]), step, bits)[0])
    fresh = NoisyHead.ordered(measured, parts.measuring, step)
    top = fresh.top(most)
    folded = int(fresh.counts[len(top) :].sum())
    draws = 1 + len(fresh) - len(top)
    return OptInShares(top.records, top.counts / float(n), n, noise, (rest + folded) / n, draws, paid, "split")


def remeasure(
    log: Log,
    records: Sequence[tuple[str, str]],
    step: LaplaceHistogram,
    *,
    bound: Bound | None = None,
    bits: Bits | None = None,
    users: int | None = None,
) -> OptInShares:
    """Measure a public list on all opt-in users of a later period. The spend must have been recorded before.

    Every listed record gets a draw, zeros too. Under replace-one so does the wildcard, at no extra cost
    (docs/epochs.md); under add-remove that would cost m_O more, so it is what is left. The order that clients hash is
    kept.

    **Guarantee:** that of :func:`calibrate_remeasure`.
    **Estimator:** (count + noise)/n, unbiased. The wildcard's variance is P(1-P)/n + s/n^2 under replace-one, P(1-P)/n
    + M s/n^2 under add-remove.
    **Reference:** Avent et al. 2017, figure 4, with everybody in T.
    """
    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    n = public_users(log, step.relation, users) * step.keys_per_user
    noise, listed = law_of(step).variance, list(records)
    if not listed:
        return OptInShares([], np.empty(0), n, noise, 1.0, 0, ((step,),), "split")
    measured, of_list = _measure(log, listed, step, chosen, source)
    noisy = {(row["query"], row["url"]): row["noisy"] for row in measured.to_pylist()}
    values = np.array([noisy[record] for record in listed], dtype=np.float64) / n
    if step.relation is Relation.REPLACE_ONE:
        wildcard, draws = int(noisy_rest(np.array([n - of_list]), step, source)[0]) / n, 1
    else:
        wildcard, draws = 1.0 - math.fsum(values), len(listed)
    return OptInShares(listed, values, n, noise, wildcard, draws, ((step,),), "split")


def head_counts(log: Log, records: list[tuple[str, str]], bound: Bound, most: int, part: Any = None) -> Any:
    """Count, in the engine, how many users (of ``part``) hold each head record; zeros are left out."""
    import ibis

    held_records = records_of(log, bound, most, part)
    return tally(held_records.semi_join(ibis.memtable(_record_table(records)), RECORD), RECORD)


def noisy_rest(rest: IntArray, step: LaplaceHistogram, bits: Bits) -> IntArray:
    """Draw the noisy count of the wildcard: what the head records leave, with a draw of its own."""
    return add_noise(rest, law_of(step), bits)


def _measure(
    log: Log, records: list[tuple[str, str]], step: LaplaceHistogram, bound: Bound, bits: Bits, part: Any = None
) -> tuple[pa.Table, int]:
    """Draw a noisy count for every record of a public list; also return their exact sum, which is secret."""
    with materialize(head_counts(log, records, bound, step.keys_per_user, part)) as counted:
        measured = noisy_on_public_keys(counted, _record_table(records), RECORD, step, bits)
        total = execute(counted.aggregate(total=counted.n.sum().fill_null(0)))["total"][0].as_py()
    return measured, int(total)


def _record_table(records: list[tuple[str, str]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([r[i] for r in records], pa.string()) for i, name in enumerate(RECORD)})


# ---- guided weights -------------------------------------------------------------------------------------------------


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
    *, epsilon: Number, delta: Number, records_per_user: int = 40, relation: Relation | str = Relation.REPLACE_ONE
) -> GuidedSteps:
    """Choose the noise of all three steps, as :func:`~hushquery.hybrid.headlist.calibrate_head`. Reads no row.

    **Guarantee:** (epsilon, f + (1-f) agd(epsilon, mu)) for one opt-in user, f being the threshold's chance for the
    worst weights, mu^2 = 2 (64^2/s_A^2 + 64^2/s_B^2 + 1/s_C^2) under replace-one: weights of two users, not being
    negative, differ by at most sqrt 2 in L2 norm. f covers new records in either data set (docs/proofs/headlist.md).

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

    **Guarantee:** that of :func:`calibrate_guided_head`, for one opt-in user.
    **Estimator:** the noisy number of users whose one random record it is; unbiased given the list.
    """
    import ibis

    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    total = public_users(log, steps.counts.relation, users)
    rows = record_rows(log)
    # The selector knows nothing of URLs, so each record is one text in the place of the query.
    kept = {name: rows[name] for name in ("user", "time") if name in rows.columns}
    texts = rows.select(query=rows["query"] + _SEPARATOR + rows.url, **kept)
    selected = Guided(steps.sketch, steps.selection, None).run(texts, chosen, source)["query"].to_pylist()
    pairs = [text.rpartition(_SEPARATOR) for text in selected]
    listed = _record_table([(query, url) for query, _, url in pairs])
    one_each = records_of(log, chosen, steps.counts.keys_per_user).semi_join(ibis.memtable(listed), RECORD)
    with materialize(tally(one_each, RECORD)) as counted:
        noisy = noisy_on_public_keys(counted, listed, RECORD, steps.counts, source)
    return NoisyHead.ordered(noisy, total, steps.counts, (steps.sketch, steps.selection))
