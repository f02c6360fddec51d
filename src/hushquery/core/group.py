"""Group privacy: what a promise to one person is worth to a few people together.

A household, a class, or one person with several accounts changes more than one record. Between a log with all
of them and one without lie people-1 logs, each a neighbour of the next, so the promise can be used once for
every step.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath

from hushquery.core.budget import Budget
from hushquery.core.rounding import Number, exact, rational_mpf, round_up, working
from hushquery.errors import UsageError

__all__ = ["group", "group_gaussian"]


def group(epsilon: Number, delta: Number, people: int) -> tuple[float, float]:
    """Give the (epsilon, delta) that holds for some people together.

    **Guarantee:** what is (epsilon, delta)-DP for one is (k epsilon, delta (e^{k epsilon} - 1)/(e^epsilon -
    1))-DP for any k (k delta when epsilon is 0), under the same relation. Both rounded up, delta to at most
    1, where nothing is promised any more.
    **Reference:** Dwork and Roth 2014, Theorem 2.2 for delta = 0; Vadhan 2017, Lemma 2.2, whose proof has
    this sum.

    This is the rule for a *converted* budget, and the one to use where a release has thresholds
    (:func:`group_gaussian` says why).

    >>> [f"{x:.4g}" for x in group(0.5, 1e-6, 3)]
    ['1.5', '5.367e-06']
    >>> group(0, 1e-6, 3)
    (0.0, 3e-06)
    """
    one = Budget(epsilon, delta)
    _check_people(people)
    if people == 1 or one.epsilon == 0 or one.delta == 0:
        return round_up(people * one.epsilon), min(1.0, round_up(people * one.delta))
    with working():
        e = rational_mpf(one.epsilon)
        grown = rational_mpf(one.delta) * mpmath.expm1(people * e) / mpmath.expm1(e)
        return round_up(people * one.epsilon), 1.0 if grown >= 1 else min(1.0, round_up(grown))


def group_gaussian(mu: Number, people: int) -> Fraction:
    """Give the mu of Gaussian noise for some people together: k mu, exactly.

    **Guarantee:** noise that is mu-GDP for one is k mu-GDP for any k; for the Gaussian itself no smaller
    number is true, and ``agd(k epsilon, k mu)`` is below what :func:`group` gives.
    **Reference:** Dong, Roth and Su 2019, on group privacy.

    It holds for the noise alone. **With a threshold k mu is not enough:** a key that only one person holds is
    published if the noise lifts 1 over R, and the threshold's delta is computed for that. A key that k people
    share and nobody else holds starts from k, and passes with probability P(z >= R - k): not k times
    P(z >= R - 1) but easily a thousand times as much. So for releases with thresholds convert to (epsilon,
    delta) first, and use :func:`group`.

    >>> group_gaussian("1/2", 3)
    Fraction(3, 2)
    """
    value = exact(mu, "mu")
    _check_people(people)
    if value < 0:
        what = "mu is negative"
        raise UsageError(what, fix="Give the L2 sensitivity over sigma")
    return people * value


def _check_people(people: int) -> None:
    if isinstance(people, bool) or people < 1:
        what = "a group has at least one person"
        raise UsageError(what, fix="Give people >= 1")
