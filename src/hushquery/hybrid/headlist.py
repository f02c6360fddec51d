"""CreateHeadList (figure 3 of BLENDER): the opt-in users' frequent records, with the noisy counts that found them.

Each opt-in user has at most m_O distinct records. A record that somebody holds gets one draw of discrete Laplace noise
with b = 2 m_O/epsilon and is in the head list iff count + noise >= R. The one draw selects and is published: reusing it
costs nothing more. Nothing else of the opt-in data may be published, no count of the wildcard either: it would be a
third count that an exchange of records moves, and cost 1.5 epsilon (docs/proofs/headlist.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Budget
from hushquery.core.loss import Loss
from hushquery.core.rounding import Number, rational_mpf, smallest_whole, working
from hushquery.core.step_loss import GaussianHistogram, LaplaceHistogram, StepParameters
from hushquery.core.thresholds import laplace_scale, laplace_threshold
from hushquery.core.unit import Relation
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of, passing, tally
from hushquery.engine import materialize
from hushquery.errors import CalibrationError, UsageError
from hushquery.hybrid.records import RECORD, fresh_key, number_of_users, records_of
from hushquery.log.read import Log
from hushquery.noise.bits import Bits, SystemBits

__all__ = [
    "MOST_RECORDS",
    "HeadCounts",
    "NoisyHead",
    "Threshold",
    "calibrate_head",
    "checked_size",
    "create_head",
    "draw_head",
    "ordered_head",
    "paper_threshold",
    "public_users",
    "threshold_bias",
]

#: How the threshold is chosen: ``tight`` is the smallest integer that keeps delta, ``paper`` is tau of figure 3.
Threshold = Literal["tight", "paper"]
#: A step whose noise is in the counts of a head list.
HeadCounts = LaplaceHistogram | GaussianHistogram
#: The most records one user may have.
MOST_RECORDS = 10_000


@dataclass(frozen=True, eq=False)
class NoisyHead:
    """A head list with noisy counts, the largest first, ties by query and URL; all of it may be published.

    Args:
        query: The query of each record.
        url: The URL of each record, "" where the search led to no click.
        counts: The noisy number of users who hold it.
        users: The number of opt-in users.
        records_per_user: The most records of one user in these counts.
        step: The noise in the counts and, where it selected them, the threshold.
        before: Steps that were paid for on the same users to find the records, where that was not ``step`` itself.
    """

    query: list[str]
    url: list[str]
    counts: npt.NDArray[np.int64]
    users: int
    records_per_user: int
    step: HeadCounts
    before: tuple[StepParameters, ...] = ()

    def __len__(self) -> int:
        return len(self.query)

    @property
    def records(self) -> list[tuple[str, str]]:
        """The records in order."""
        return list(zip(self.query, self.url, strict=True))

    @property
    def loss(self) -> Loss:
        """What making it cost."""
        return sum((step.loss for step in self.before), self.step.loss)

    def top(self, most: int) -> NoisyHead:
        """Give the ``most`` records with the largest counts, or all where there are fewer."""
        size = checked_size(most)
        return replace(self, query=self.query[:size], url=self.url[:size], counts=self.counts[:size])


def checked_size(most: int) -> int:
    """Give M, or refuse it."""
    if type(most) is not int or most < 1:
        raise UsageError("the size of a head list must be a whole number of at least 1", fix="Give, say, 50")
    return most


def calibrate_head(
    *,
    epsilon: Number,
    delta: Number,
    records_per_user: int = 1,
    relation: Relation | str = Relation.REPLACE_ONE,
    threshold: Threshold = "tight",
) -> LaplaceHistogram:
    """Choose noise and threshold of a head list. Reads no row: a plan calls this before it spends.

    Args:
        epsilon: Of one opt-in user.
        delta: Of one opt-in user.
        records_per_user: m_O.
        relation: ``replace-one`` as in the paper, or ``add-remove``, which is a weaker promise at the same numbers.
        threshold: ``tight`` or ``paper``.

    **Guarantee:** (2 m_O/b, 1 - (1 - a^(R-1)/(1+a))^m_O) for one opt-in user, replace-one, a = e^(-1/b), counts
    included; m_O/b under add-remove. From the b and R that run, and never above (epsilon, delta).

    >>> step = calibrate_head(epsilon=4, delta=1e-5)
    >>> step.scale, step.threshold, f"{float(step.loss.threshold_delta):.2e}"
    (Fraction(1, 2), 7, '5.41e-06')
    >>> [calibrate_head(epsilon=1, delta=1e-5, threshold=rule).threshold for rule in ("tight", "paper")]
    [24, 25]
    """
    budget, related = Budget(epsilon, delta), Relation.of(str(relation))
    if threshold not in get_args(Threshold):
        raise UsageError(f"no rule for the threshold is called {threshold!r}", fix="Give tight or paper")
    if type(records_per_user) is not int or not 1 <= records_per_user <= MOST_RECORDS:
        raise UsageError(f"records per user must be a whole number from 1 to {MOST_RECORDS:,}", fix="Give, say, 1")
    if budget.epsilon <= 0 or budget.delta <= 0:
        raise CalibrationError(
            "a head list needs epsilon > 0 and 0 < delta < 1",
            why="a record that only one person has may always come out with some probability",
            fix="Give, say, epsilon 4 and delta 1e-5",
        )
    changed = records_per_user * (2 if related is Relation.REPLACE_ONE else 1)
    scale = laplace_scale(changed, budget.epsilon)
    if threshold == "paper":
        at = paper_threshold(scale, records_per_user, budget.delta)
        return LaplaceHistogram(records_per_user, scale, at, relation=related)
    step = LaplaceHistogram(records_per_user, scale, relation=related)

    def fits(at: int) -> bool:
        try:
            return replace(step, threshold=at).loss.fits(budget.epsilon, budget.delta)
        except CalibrationError:  # so low that it hides nothing
            return False

    # The formula adds up over a user's records; their exact chance may allow less. As in the paper, whose tau is at
    # least 1, a record that one user holds never passes by itself.
    lowest = smallest_whole(fits, laplace_threshold(scale, records_per_user, budget.delta))
    if lowest is None:
        raise CalibrationError("no threshold is high enough for this budget", fix="Give a larger epsilon")
    return replace(step, threshold=max(2, lowest))


def paper_threshold(scale: Fraction, records_per_user: int, delta: Fraction) -> int:
    """Give the integer rule of the paper's tau: count + noise > tau is count + noise >= floor(tau) + 1.

    tau = b (ln(e^(m_O/b) + m_O - 1) - ln delta), which is the paper's with m_O/b = epsilon/2. It is never below m_O,
    so the paper's "assert tau >= 1" holds for every delta below 1. With integer noise the chance that any of m_O new
    records passes stays below delta/(1+a) (docs/proofs/headlist.md).

    >>> paper_threshold(Fraction(1, 2), 1, Fraction(1, 10**5))
    7
    """
    with working():
        b = rational_mpf(scale)
        tau = b * (mpmath.log(mpmath.expm1(records_per_user / b) + records_per_user) - mpmath.log(rational_mpf(delta)))
        return int(mpmath.floor(tau)) + 1


def create_head(
    log: Log,
    *,
    epsilon: Number,
    delta: Number,
    records_per_user: int = 1,
    relation: Relation | str = Relation.REPLACE_ONE,
    threshold: Threshold = "tight",
    bound: Bound | None = None,
    bits: Bits | None = None,
    users: int | None = None,
) -> NoisyHead:
    """Make the head list of the opt-in users: :func:`calibrate_head`, then :func:`draw_head`.

    Spends nothing: for tests and simulations. What is to be published goes through
    :func:`hushquery.hybrid.plan.plan_head`.

    Args:
        log: The secret log of the opt-in users.
        epsilon: Of one opt-in user.
        delta: Of one opt-in user.
        records_per_user: m_O.
        relation: The neighbouring relation.
        threshold: ``tight`` or ``paper``.
        bound: Which records of a user count; random ones by default.
        bits: Where the noise comes from; the operating system by default.
        users: The number of opt-in users where it is public. By default counted in the log under replace-one, where it
            is constant; needed under add-remove, where it is a secret of the log.

    **Guarantee:** that of :func:`calibrate_head`, for one opt-in user.
    **Estimator:** the noisy count; given that it is in the list it is too high by :func:`threshold_bias`.
    **Reference:** Avent, Korolova, Zeber, Hovden and Livshits 2017, figure 3, with the noise reused.
    """
    step = calibrate_head(
        epsilon=epsilon, delta=delta, records_per_user=records_per_user, relation=relation, threshold=threshold
    )
    return draw_head(log, step, bound=bound, bits=bits, users=users)


def draw_head(
    log: Log,
    step: LaplaceHistogram,
    *,
    bound: Bound | None = None,
    bits: Bits | None = None,
    users: int | None = None,
    part: Any = None,
) -> NoisyHead:
    """Count the records, draw once per record, and give what passes. The spend must have been recorded before.

    Args:
        log: The secret log of the opt-in users.
        step: From :func:`calibrate_head`.
        bound: Which records of a user count; random ones by default.
        bits: Where the noise comes from; the operating system by default.
        users: The number of opt-in users where it is public; see :func:`create_head`.
        part: A table with a column ``user``: only these users' records count. Needs ``users``, how many they are.
    """
    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    counted_users = public_users(log, step.relation, users, whole=part is None)
    records = records_of(log, chosen, step.keys_per_user, part)
    with materialize(tally(records, RECORD)) as counted:
        passed = passing(counted, RECORD, step, source)
    return ordered_head(passed, counted_users, step.keys_per_user, step)


def ordered_head(
    found: Any, users: int, records_per_user: int, step: HeadCounts, before: tuple[StepParameters, ...] = ()
) -> NoisyHead:
    """Put an Arrow table of (query, url, noisy) into the one order that says nothing about the log."""
    columns = found.to_pydict()
    rows = sorted(
        zip(columns["query"], columns["url"], columns["noisy"], strict=True), key=lambda r: (-r[2], r[0], r[1])
    )
    counts = np.array([noisy for _, _, noisy in rows], dtype=np.int64)
    return NoisyHead([q for q, _, _ in rows], [u for _, u, _ in rows], counts, users, records_per_user, step, before)


def public_users(log: Log, relation: Relation, users: int | None, *, whole: bool = True) -> int:
    """Give the number of opt-in users: the public one, or under replace-one that of the whole log."""
    if users is None:
        if relation is Relation.ADD_REMOVE or not whole:
            raise UsageError(
                "how many users opted in must be given",
                why="under add-remove the number of users in the log is itself a secret of the log",
                fix="Give users= from the public list of members, or use replace-one",
            )
        users = number_of_users(log)
    if type(users) is not int or users < 1:
        raise UsageError("a head list needs at least one opt-in user", fix="Check the log of the opt-in users")
    return users


def threshold_bias(step: LaplaceHistogram, count: int) -> float:
    """Give how much too high the noisy count of a record is on average, given that it is in the head list.

    Exact, from the noise given that it carried ``count`` over the threshold: with k = R - count it is k + a/(1-a) for
    k >= 0, and (1 - k + a/(1-a)) P[Z >= 1-k]/P[Z >= k] for k < 0. A record at the threshold is too high by a/(1-a),
    somewhat below b, so its share by about b/n: relatively 1/(epsilon/2 + ln(1/(2 delta))) for m_O = 1. It can't be
    corrected: below the threshold the excess has the same law whatever the count was (docs/proofs/headlist.md).

    >>> step = calibrate_head(epsilon=1, delta=1e-5)
    >>> [round(threshold_bias(step, step.threshold + above), 3) for above in (-1, 0, 10, 20)]
    [2.541, 1.541, 0.032, 0.0]
    """
    if step.threshold is None:
        return 0.0
    if type(count) is not int or count < 1:
        raise UsageError("only records that somebody holds are ever drawn for", fix="Give a count of at least 1")
    law, lift = law_of(step), step.threshold - count
    with working():
        beyond = 1 / mpmath.expm1(1 / rational_mpf(step.scale))
        if lift >= 0:
            return float(lift + beyond)
        # Below -lift the noise cancels by symmetry; what remains is the part above.
        return float(law.tail(1 - lift) * (1 - lift + beyond) / law.tail(lift))
