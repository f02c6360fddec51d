"""EstimateOptinProbabilities (figure 4 of BLENDER): the shares of the head records among the opt-in users.

Two ways, by name:

* ``reuse``: the very counts that put the records into the head list. Nothing more is drawn and nothing more is paid;
  the wildcard is what is left, never a draw of its own.
* ``split``: as in the paper. The opt-in users are divided: S finds the head list, T measures it with fresh noise, the
  wildcard too. Each user is in one part, so the pair costs what the dearer part costs.

A share is (count + noise)/n with n = users x m_O: constant under replace-one, and a user with fewer records stands for
the wildcard with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from hushquery.core.loss import Loss
from hushquery.core.rounding import Number, exact
from hushquery.core.step_loss import GaussianHistogram, LaplaceHistogram, StepParameters, step_from
from hushquery.core.thresholds import laplace_scale
from hushquery.core.unit import Relation
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of, noisy_on_public_keys, tally
from hushquery.engine import execute, materialize
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.hybrid.headlist import (
    NoisyHead,
    Threshold,
    calibrate_head,
    checked_size,
    draw_head,
    ordered_head,
)
from hushquery.hybrid.records import RECORD, Parts, fresh_key, records_of, split_users
from hushquery.log.read import Log
from hushquery.noise.bits import Bits, SystemBits
from hushquery.noise.sampler import IntArray, add_noise

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "OPTIN_ESTIMATORS",
    "OptInShares",
    "Way",
    "calibrate_split",
    "draw_split",
    "estimate_reused",
    "head_counts",
    "in_parallel",
    "measure_list",
    "measure_parts",
    "noisy_rest",
    "split_and_estimate",
]

FloatArray = npt.NDArray[np.float64]

# No number of a head list is larger.
_MOST = 2**53

#: How the shares were estimated.
Way = Literal["reuse", "split"]


@dataclass(frozen=True, eq=False)
class OptInShares:
    """The shares of the head records among the opt-in users: estimates, and how uncertain they are. All of it public.

    Args:
        records: The M head records, the largest share first.
        values: The raw shares; with fresh noise they may be negative, and nothing makes them add up to one.
        n: Users times records per user.
        noise_variance: The variance of the noise in one count: 2a/(1-a)^2 for discrete Laplace noise.
        wildcard: The share of everything else.
        wildcard_draws: How many draws of that noise are in the wildcard.
        parts: The steps on each of the disjoint parts of the opt-in users; a user is in one part only.
        way: ``reuse`` or ``split``.

    **Guarantee:** :attr:`loss`, for one opt-in user.
    **Estimator:** the shares; unbiased for ``split``; for ``reuse`` too high near the threshold by
    :func:`~hushquery.hybrid.headlist.threshold_bias` over n. Variance :meth:`variance_at`.
    **Reference:** Avent et al. 2017, figure 4 and Theorem 4, with the variance of the integer noise that is drawn.
    """

    records: list[tuple[str, str]]
    values: FloatArray
    n: int
    noise_variance: float
    wildcard: float
    wildcard_draws: int
    parts: tuple[tuple[StepParameters, ...], ...]
    way: Way = "reuse"

    def __len__(self) -> int:
        return len(self.records)

    @property
    def loss(self) -> Loss:
        """What making them cost: steps on the same users add up, steps on different users do not."""
        return in_parallel([sum((step.loss for step in part), Loss()) for part in self.parts])

    @property
    def records_per_user(self) -> int:
        """m_O, the most records of one user in these shares; they are distinct."""
        counting = self.parts[-1][-1] if self.parts else None
        return counting.keys_per_user if isinstance(counting, LaplaceHistogram | GaussianHistogram) else 1

    def variance_at(self, p: npt.ArrayLike) -> FloatArray:
        """Give the variance of each share if the true one were ``p``: p(1-p)/n + noise/n^2, always above zero.

        Of m_O distinct records of a user at most one is this one: the sampling part is p(1 - m_O p)/n, and no larger.
        For blending, evaluate it at the blended share: the plug-in :attr:`variances` moves with the noise itself.
        """
        inside = np.clip(np.asarray(p, dtype=np.float64), 0.0, 1.0)
        return inside * (1 - inside) / self.n + self.noise_variance / self.n**2

    @property
    def variances(self) -> FloatArray:
        """The unbiased estimates of the variances, p(1-p)/(n-1) + noise/(n(n-1)); infinite for n = 1.

        Exactly unbiased for fresh noise, as in Theorem 4 of the paper (docs/proofs/headlist.md), and therefore
        sometimes below zero: for weights use :meth:`variance_at`.
        """
        if self.n == 1:
            return np.full(len(self), np.inf)
        spread: FloatArray = self.values * (1 - self.values)
        return spread / (self.n - 1) + self.noise_variance / (self.n * (self.n - 1))

    @property
    def wildcard_variance(self) -> float:
        """m_O P(1-P)/n + draws x noise/n^2, at the estimated share P brought into 0..1.

        All records of a user may be in the wildcard together, hence m_O.
        """
        inside = min(1.0, max(0.0, self.wildcard))
        return (
            self.records_per_user * inside * (1 - inside) / self.n
            + self.wildcard_draws * self.noise_variance / self.n**2
        )

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain data."""
        return {
            "way": self.way,
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
            made = cls._read(data)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, HushqueryError) as error:
            raise DataError(
                "the opt-in shares can't be read",
                why=f"they are not what to_json writes ({type(error).__name__})",
                fix="Get the head list again",
            ) from None
        return made

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> OptInShares:
        records = [(query, url) for query, url in data["records"]]
        values = np.array(data["values"], dtype=np.float64)
        told = [*data["values"], data["noise_variance"], data["wildcard"]]
        parts = tuple(tuple(step_from(step) for step in part) for part in data["parts"])
        noise, wildcard = (float(data[name]) for name in ("noise_variance", "wildcard"))
        n, draws = data["n"], data["wildcard_draws"]
        last = parts[-1][-1]
        sound = (
            data["way"] in OPTIN_ESTIMATORS
            and all(isinstance(text, str) for record in records for text in record)
            and all(type(number) in (int, float) and abs(number) <= _MOST for number in told)
            and values.shape == (len(records),)
            and len(set(records)) == len(records)
            and bool(np.isfinite([*values, wildcard]).all())
            and type(n) is int
            and 1 <= n <= _MOST
            and type(draws) is int
            and 0 <= draws <= _MOST
            # Reused counts leave the rest to subtraction; a draw of its own would have cost more.
            and (data["way"] == "split" or (draws == len(records) and abs(1 - math.fsum(values) - wildcard) < 1e-9))
            and isinstance(last, LaplaceHistogram | GaussianHistogram)
            # The noise follows from the step that drew it; another number would give other weights.
            and math.isclose(noise, law_of(last).variance, rel_tol=1e-12)
        )
        if not sound:
            raise ValueError
        return cls(records, values, n, noise, wildcard, draws, parts, data["way"])


def in_parallel(losses: list[Loss]) -> Loss:
    """Give one loss that covers each of several, for steps that look at different users.

    **Guarantee:** a user is in one part, chosen by something that no user's records can change, so what that part costs
    is what the user loses. The largest mu^2, total of pure epsilons and threshold delta cover every part.

    >>> in_parallel([Loss(pure=(1,), threshold_delta="1/1000"), Loss(pure=("1/2", "1/4"))]).pure
    (Fraction(1, 1),)
    """
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
    )


def estimate_reused(head: NoisyHead, most: int) -> OptInShares:
    """Take the shares of the ``most`` largest records from the counts of the head list itself.

    The wildcard is 1 minus their sum. A fresh draw for it would be a third count that one user's exchange of records
    moves, and cost 1.5 epsilon.

    Args:
        head: From :func:`~hushquery.hybrid.headlist.create_head`.
        most: M; where fewer records passed, all of them.

    **Guarantee:** that of the head list; nothing is read and nothing drawn.
    """
    kept = head.top(most)
    n = head.users * head.records_per_user
    values = kept.counts / float(n)
    return OptInShares(
        kept.records,
        values,
        n,
        law_of(head.step).variance,
        1.0 - math.fsum(values),
        len(kept),
        ((*head.before, head.step),),
    )


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
    >>> finding.threshold, measuring.threshold, in_parallel([finding.loss, measuring.loss]).fits(4, 1e-5)
    (7, None, True)
    """
    if Relation.of(str(relation)) is not Relation.REPLACE_ONE:
        raise UsageError(
            "the opt-in users can only be split under replace-one",
            why="parts of a fixed size let one user's arrival move another user between them",
            fix="Use replace-one, or reuse the counts of the head list",
        )
    finding = calibrate_head(epsilon=epsilon, delta=delta, records_per_user=records_per_user, threshold=threshold)
    scale = laplace_scale(2 * records_per_user, exact(epsilon, "epsilon"))
    return finding, LaplaceHistogram(records_per_user, scale, relation=Relation.REPLACE_ONE)


def split_and_estimate(
    log: Log,
    *,
    epsilon: Number,
    delta: Number,
    most: int,
    share: Number = Fraction(19, 20),
    records_per_user: int = 1,
    relation: Relation | str = Relation.REPLACE_ONE,
    threshold: Threshold = "paper",
    bound: Bound | None = None,
    bits: Bits | None = None,
) -> OptInShares:
    """Find the head list with some of the opt-in users and measure it with the others, as the paper does.

    Args:
        log: The secret log of the opt-in users.
        epsilon: Of one opt-in user, whichever part they are in.
        delta: Of one opt-in user.
        most: M, the most records to keep; the others are folded into the wildcard.
        share: f_O, the share of users who find the head list.
        records_per_user: m_O.
        relation: ``replace-one`` only.
        threshold: ``paper`` or ``tight``.
        bound: Which records of a user count; random ones by default.
        bits: Where the noise comes from; the operating system by default.

    **Guarantee:** (epsilon, delta) for a user of S, (epsilon, 0) for a user of T, replace-one; together the larger.
    **Estimator:** (count + noise)/n with fresh noise; unbiased given the head list.
    **Reference:** Avent et al. 2017, figures 2 to 4.
    """
    steps = calibrate_split(
        epsilon=epsilon, delta=delta, records_per_user=records_per_user, relation=relation, threshold=threshold
    )
    return draw_split(log, *steps, most=most, share=share, bound=bound, bits=bits)


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
    """Split, find and measure with steps from :func:`calibrate_split`. The spend must have been recorded before."""
    checked_size(most)
    source = bits or SystemBits()
    chosen = bound or Bound("random", fresh_key(source))
    parts = split_users(log, share, fresh_key(source))
    head = draw_head(log, finding, bound=chosen, bits=source, users=parts.finding, part=parts.finders)
    return measure_parts(log, head.records, (head.step,), measuring, parts, most, chosen, source)


def head_counts(log: Log, records: list[tuple[str, str]], bound: Bound, most: int, part: Any = None) -> Any:
    """Count, in the engine, how many users hold each head record; zeros are left out.

    Args:
        log: The secret log of the opt-in users.
        records: The head records.
        bound: Which records of a user count.
        most: m_O.
        part: A table with a column ``user``: only these users count.
    """
    import ibis

    held_records = records_of(log, bound, most, part)
    return tally(held_records.semi_join(ibis.memtable(_record_table(records)), RECORD), RECORD)


def measure_list(
    log: Log, records: list[tuple[str, str]], step: LaplaceHistogram, bound: Bound, bits: Bits, part: Any = None
) -> tuple[pa.Table, int]:
    """Draw a noisy count for every record of a public list, zeros too; and give, without noise, how many they are.

    The second number is secret: it may be published with a draw of its own, or not at all.
    """
    with materialize(head_counts(log, records, bound, step.keys_per_user, part)) as counted:
        measured = noisy_on_public_keys(counted, _record_table(records), RECORD, step, bits)
        total = execute(counted.aggregate(total=counted.n.sum().fill_null(0)))["total"][0].as_py()
    return measured, int(total)


def _record_table(records: list[tuple[str, str]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([r[i] for r in records], pa.string()) for i, name in enumerate(RECORD)})


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
    paid = (found_by, (step,))
    noise = law_of(step)
    if not records:
        # Without a record to tell apart, the wildcard is everything, and no draw is needed to say so.
        return OptInShares([], np.empty(0), n, noise.variance, 1.0, 0, paid, "split")
    measured, of_head = measure_list(log, records, step, bound, bits, parts.measurers)
    rest = int(noisy_rest(np.array([n - of_head]), step, bits)[0])
    fresh = ordered_head(measured, parts.measuring, step.keys_per_user, step)
    kept = fresh.top(most)
    folded = int(fresh.counts[len(kept) :].sum())
    draws = 1 + len(fresh) - len(kept)
    return OptInShares(
        kept.records, kept.counts / float(n), n, noise.variance, (rest + folded) / n, draws, paid, "split"
    )


def noisy_rest(rest: IntArray, step: LaplaceHistogram, bits: Bits) -> IntArray:
    """Draw the noisy count of the wildcard: what the head records leave, with a draw of its own."""
    return add_noise(rest, law_of(step), bits)


#: The estimators by name, as a plan chooses them.
OPTIN_ESTIMATORS: dict[str, Callable[..., OptInShares]] = {"reuse": estimate_reused, "split": split_and_estimate}
