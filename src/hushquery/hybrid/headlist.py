"""Make the head list: the opt-in users' frequent records with noisy counts (BLENDER, figures 3 and 4).

One draw of noise per record selects it and is published as its estimate. Publish nothing else of the opt-in data, not
even a count of the wildcard: an exchange of records would move it too, and cost 1.5 epsilon (docs/proofs/headlist.md).
Shares are over n = users x m_O, constant under replace-one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Budget, Number, Relation, rational_mpf, smallest_whole, working
from hushquery.core.calibration import laplace_scale, laplace_threshold
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, Loss, StepParameters, step_from
from hushquery.curator.counting import Bound, law_of, passing, tally
from hushquery.engine import execute, materialize
from hushquery.errors import CalibrationError, DataError, HushqueryError, UsageError
from hushquery.log.read import Log
from hushquery.noise.sampler import Bits, SystemBits
from hushquery.task.domain import LONGEST, WILDCARD

FloatArray = npt.NDArray[np.float64]

#: The columns of a record.
RECORD = ["query", "url"]
#: How the threshold is chosen: ``tight`` is the smallest integer that keeps delta, ``paper`` is tau of figure 3.
Threshold = Literal["tight", "paper"]
#: Where opt-in shares come from: the counts that put the records into the list, or fresh noise on other users.
Method = Literal["reuse", "split"]

_MOST_RECORDS = 10_000  # of one user
_MOST = 2**53  # no number of a head list is larger


# ---- records -------------------------------------------------------------------------------------------------------


def fresh_key(bits: Bits) -> str:
    """Draw the key of a digest; choices by it are new for each head list, and privacy does not rest on its secrecy."""
    return "".join(f"{word:016x}" for word in bits.words(2).tolist())


def records_of(log: Log, bound: Bound, most: int, part: Any = None) -> Any:
    """Return each user's distinct records, at most ``most`` (m_O), as (user, query, url); only users of ``part``.

    >>> from hushquery.log import read_log
    >>> log = read_log({"user": ["ann"] * 3, "query": ["leeds"] * 3, "url": [None, "a.example", "a.example"]})
    >>> sorted(records_of(log, Bound("random"), 2).url.to_list())
    ['', 'a.example']
    """
    if type(most) is not int or most < 1:
        raise UsageError("the number of records per user must be a whole number of at least 1", fix="Use, say, 1")
    rows = record_rows(log)
    return bound.rows(rows if part is None else rows.semi_join(part, "user"), RECORD, most)


def record_rows(log: Log) -> Any:
    """Return the rows that a client could report, with the URL "" for no click; overlong texts and "*" are left out."""
    import ibis

    table = log.table
    rows = table.mutate(url=table.url.fill_null("") if "url" in table.columns else ibis.literal(""))
    query, url = rows["query"], rows.url
    return rows.filter(
        query.length().between(1, LONGEST) & (url.length() <= LONGEST) & (query != WILDCARD) & (url != WILDCARD)
    )


def number_of_users(log: Log) -> int:
    """Count every user, also those without a usable record; public under replace-one, secret under add-remove."""
    return int(execute(log.rows.aggregate(users=log.rows.user.nunique()))["users"][0].as_py())


def check_public_users(relation: Relation, users: int | None) -> None:
    """Refuse, before anything is spent, an unknown number of opt-in users where it is a secret of the log."""
    if users is None and relation is Relation.ADD_REMOVE:
        raise UsageError(
            "how many users opted in must be given",
            why="under add-remove the number of users in the log is itself a secret of the log",
            fix="Pass --users, or users=, from the public list of members, or use replace-one",
        )


def public_users(log: Log, relation: Relation, users: int | None) -> int:
    """Return the public number of opt-in users: as given, or under replace-one that of the whole log."""
    check_public_users(relation, users)
    users = number_of_users(log) if users is None else users
    if type(users) is not int or users < 1:
        raise UsageError("a head list needs at least one opt-in user", fix="Check the log of the opt-in users")
    return users


# ---- head lists ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class NoisyHead:
    """A head list with noisy counts, the largest first, ties by query and URL; all of it may be published."""

    query: list[str]
    url: list[str]  #: "" where the search led to no click
    counts: npt.NDArray[np.int64]  #: the noisy number of users who hold each record
    users: int  #: the number of opt-in users
    records_per_user: int  #: the most records of one user in these counts
    step: LaplaceHistogram | GaussianHistogram  #: the noise in the counts and, where it selected them, the threshold
    before: tuple[StepParameters, ...] = ()  #: what else the same users paid for to find the records

    def __len__(self) -> int:
        return len(self.query)

    @property
    def records(self) -> list[tuple[str, str]]:
        """The records in order."""
        return list(zip(self.query, self.url, strict=True))

    def top(self, most: int) -> NoisyHead:
        """Return the ``most`` (M) records with the largest counts, or all where there are fewer."""
        if type(most) is not int or most < 1:
            raise UsageError("the size of a head list must be a whole number of at least 1", fix="Use, say, 50")
        return replace(self, query=self.query[:most], url=self.url[:most], counts=self.counts[:most])

    @classmethod
    def ordered(
        cls,
        counted: Any,
        users: int,
        step: LaplaceHistogram | GaussianHistogram,
        before: tuple[StepParameters, ...] = (),
    ) -> NoisyHead:
        """Put an Arrow table of (query, url, noisy) into the one order that says nothing about the log."""
        columns = counted.to_pydict()
        rows = sorted(
            zip(columns["query"], columns["url"], columns["noisy"], strict=True), key=lambda r: (-r[2], r[0], r[1])
        )
        counts = np.array([noisy for _, _, noisy in rows], dtype=np.int64)
        return cls([q for q, _, _ in rows], [u for _, u, _ in rows], counts, users, step.keys_per_user, step, before)


def checked_budget(epsilon: Number, delta: Number, records_per_user: int) -> Budget:
    """Return the budget of a head list, or refuse it."""
    budget = Budget(epsilon, delta)
    if type(records_per_user) is not int or not 1 <= records_per_user <= _MOST_RECORDS:
        raise UsageError(f"records per user must be a whole number from 1 to {_MOST_RECORDS:,}", fix="Use, say, 1")
    if budget.epsilon <= 0 or budget.delta <= 0:
        raise CalibrationError(
            "a head list needs epsilon > 0 and 0 < delta < 1",
            why="a record that only one person has may always come out with some probability",
            fix="Use, say, epsilon 4 and delta 1e-5",
        )
    return budget


def calibrate_head(
    *,
    epsilon: Number,
    delta: Number,
    records_per_user: int = 1,
    relation: Relation | str = Relation.REPLACE_ONE,
    threshold: Threshold = "tight",
) -> LaplaceHistogram:
    """Choose noise and threshold of a head list for one opt-in user with m_O records. Reads no row.

    ``add-remove`` is a weaker promise than ``replace-one`` at the same numbers.

    **Guarantee:** (2 m_O/b, 1 - (1 - a^(R-1)/(1+a))^m_O) for one opt-in user, replace-one, a = e^(-1/b), counts
    included; m_O/b under add-remove. From the b and R that run, and never above (epsilon, delta).

    >>> step = calibrate_head(epsilon=4, delta=1e-5)
    >>> step.scale, step.threshold, f"{float(step.loss.threshold_delta):.2e}"
    (Fraction(1, 2), 7, '5.41e-06')
    """
    budget, related = checked_budget(epsilon, delta, records_per_user), Relation.of(str(relation))
    if threshold not in get_args(Threshold):
        raise UsageError(f"no rule for the threshold is called {threshold!r}", fix="Use tight or paper")
    changed = records_per_user * (2 if related is Relation.REPLACE_ONE else 1)
    scale = laplace_scale(changed, budget.epsilon)
    if threshold == "paper":
        at = _paper_threshold(scale, records_per_user, budget.delta)
        return LaplaceHistogram(records_per_user, scale, at, relation=related)
    step = LaplaceHistogram(records_per_user, scale, relation=related)

    def fits(at: int) -> bool:
        try:
            return replace(step, threshold=at).loss.fits(budget.epsilon, budget.delta)
        except CalibrationError:  # so low that it hides nothing
            return False

    # The exact chance may allow less than the formula. As in the paper, one holder never passes without noise.
    lowest = smallest_whole(fits, laplace_threshold(scale, records_per_user, budget.delta))
    if lowest is None:
        raise CalibrationError("no threshold is high enough for this budget", fix="Use a larger epsilon")
    return replace(step, threshold=max(2, lowest))


def _paper_threshold(scale: Fraction, records_per_user: int, delta: Fraction) -> int:
    """Return floor(tau) + 1 for the paper's tau = b (ln(e^(m_O/b) + m_O - 1) - ln delta), which is never below m_O.

    >>> _paper_threshold(Fraction(1, 2), 1, Fraction(1, 10**5))
    7
    """
    with working():
        b = rational_mpf(scale)
        tau = b * (mpmath.log(mpmath.expm1(records_per_user / b) + records_per_user) - mpmath.log(rational_mpf(delta)))
        return int(mpmath.floor(tau)) + 1


def draw_head(
    log: Log,
    step: LaplaceHistogram,
    *,
    bound: Bound | None = None,
    bits: Bits | None = None,
    users: int | None = None,
    part: Any = None,
) -> NoisyHead:
    """Count the records, draw once per record, and return what passes. The spend must have been recorded before.

    ``users`` is the public number of opt-in users, or of those in ``part``. By default it is counted in the log under
    replace-one, where it is constant; under add-remove it is a secret of the log and must be passed.

    **Guarantee:** that of :func:`calibrate_head`, for one opt-in user.
    **Estimator:** the noisy count; given that it is listed it is too high, near R by about b (docs/proofs/headlist.md).
    **Reference:** Avent, Korolova, Zeber, Hovden and Livshits 2017, figure 3, with the noise reused.
    """
    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    total = public_users(log, step.relation, users)
    with materialize(tally(records_of(log, chosen, step.keys_per_user, part), RECORD)) as counted:
        return NoisyHead.ordered(passing(counted, RECORD, step, source), total, step)


# ---- shares -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class OptInShares:
    """The public estimates of the head records' shares among opt-in users, and how uncertain they are.

    **Guarantee:** :attr:`loss`, for one opt-in user.
    **Estimator:** the shares, unbiased for ``split``; for ``reuse`` too high near the threshold, by about b/n there.
    **Reference:** Avent et al. 2017, figure 4 and Theorem 4, with the variance of the integer noise that is drawn.
    """

    records: list[tuple[str, str]]  #: the M head records, the largest share first
    values: FloatArray  #: raw shares; with fresh noise they may be negative, and nothing makes them add up to one
    n: int  #: users times records per user
    noise_variance: float  #: of the noise in one count: 2a/(1-a)^2 for discrete Laplace noise
    wildcard: float  #: the share of everything else
    wildcard_draws: int  #: how many draws of that noise are in the wildcard
    parts: tuple[tuple[StepParameters, ...], ...]  #: the steps on each part of the opt-in users; each is in one part
    method: Method = "reuse"

    def __len__(self) -> int:
        return len(self.records)

    @property
    def loss(self) -> Loss:
        """What making them cost: steps on the same users add up, steps on different users do not."""
        return parallel_loss(self.parts)

    @property
    def records_per_user(self) -> int:
        """m_O, the most records of one user in these shares; they are distinct."""
        counting = self.parts[-1][-1] if self.parts else None
        return counting.keys_per_user if isinstance(counting, LaplaceHistogram | GaussianHistogram) else 1

    def variance_at(self, p: npt.ArrayLike) -> FloatArray:
        """Return the variance of each share if the true one were ``p``: at most p(1-p)/n + noise/n^2, above zero.

        Evaluate it at the blended share: the plug-in :attr:`variances` moves with the noise itself.
        """
        inside = np.clip(np.asarray(p, dtype=np.float64), 0.0, 1.0)
        return inside * (1 - inside) / self.n + self.noise_variance / self.n**2

    @property
    def variances(self) -> FloatArray:
        """The unbiased estimates p(1-p)/(n-1) + noise/(n(n-1)); may be negative: weigh by :meth:`variance_at`."""
        if self.n == 1:
            return np.full(len(self), np.inf)
        spread: FloatArray = self.values * (1 - self.values)
        return spread / (self.n - 1) + self.noise_variance / (self.n * (self.n - 1))

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "way": self.method,
            "records": [list(record) for record in self.records],
            "values": self.values.tolist(),
            "n": self.n,
            "noise_variance": self.noise_variance,
            "wildcard": self.wildcard,
            "wildcard_draws": self.wildcard_draws,
            "parts": [[step.to_json() for step in part] for part in self.parts],
        }

    @classmethod
    def from_json(cls, data: Any) -> OptInShares:
        """Read what :meth:`to_json` wrote."""
        try:
            return cls._read(data)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, HushqueryError) as error:
            raise DataError(
                "the opt-in shares can't be read",
                why=f"they are not what to_json writes ({type(error).__name__})",
                fix="Download the head list again",
            ) from None

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> OptInShares:
        records = [(query, url) for query, url in data["records"]]
        values = np.array(data["values"], dtype=np.float64)
        numbers = [*data["values"], data["noise_variance"], data["wildcard"]]
        parts = tuple(tuple(step_from(step) for step in part) for part in data["parts"])
        noise, wildcard = (float(data[name]) for name in ("noise_variance", "wildcard"))
        n, draws, method = data["n"], data["wildcard_draws"], data["way"]
        last = parts[-1][-1]
        sound = (
            method in get_args(Method)
            and all(isinstance(text, str) for record in records for text in record)
            and all(type(number) in (int, float) and abs(number) <= _MOST for number in numbers)
            and values.shape == (len(records),)
            and len(set(records)) == len(records)
            and bool(np.isfinite([*values, wildcard]).all())
            and type(n) is int
            and 1 <= n <= _MOST
            and type(draws) is int
            and 0 <= draws <= _MOST
            # Reused counts leave the rest to subtraction; a draw of its own would have cost more.
            and (method == "split" or (draws == len(records) and abs(1 - math.fsum(values) - wildcard) < 1e-9))
            and isinstance(last, LaplaceHistogram | GaussianHistogram)
            # The noise follows from the step that drew it; another number would give other weights.
            and math.isclose(noise, law_of(last).variance, rel_tol=1e-12)
        )
        if not sound:
            raise ValueError
        return cls(records, values, n, noise, wildcard, draws, parts, method)


def parallel_loss(parts: Sequence[Sequence[StepParameters]]) -> Loss:
    """Return one loss that covers the steps on each of several parts of the users.

    **Guarantee:** a user is in one part, chosen by something that no user's records can change, so the largest mu^2,
    total of pure epsilons and deltas of thresholds and unions cover everybody.

    >>> parallel_loss([[calibrate_head(epsilon=epsilon, delta=1e-5)] for epsilon in (1, 2)]).pure
    (Fraction(2, 1),)
    """
    losses = [sum((step.loss for step in part), Loss()) for part in parts]
    if len(losses) == 1:
        return losses[0]
    if any(loss.sparse for loss in losses):
        raise UsageError(
            "a sparse Gaussian histogram has no largest of several", fix="Use discrete Laplace noise in each part"
        )
    return Loss(
        max(loss.mu_squared for loss in losses),
        (max(sum(loss.pure, Fraction(0)) for loss in losses),),
        max(loss.threshold_delta for loss in losses),
        union_delta=max(loss.union_delta for loss in losses),
    )


def estimate_reused(head: NoisyHead, most: int) -> OptInShares:
    """Take the shares of the ``most`` (M) largest records from the head list's own counts; the wildcard is the rest.

    **Guarantee:** that of the head list; nothing is read and nothing drawn.
    """
    top = head.top(most)
    n = head.users * head.records_per_user
    values = top.counts / float(n)
    return OptInShares(
        top.records,
        values,
        n,
        law_of(head.step).variance,
        1.0 - math.fsum(values),
        len(top),
        ((*head.before, head.step),),
    )
