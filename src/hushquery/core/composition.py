"""Composition: what several releases about the same people cost together, one function per rule.

Every rule here is a theorem that holds when each release may be chosen after seeing the ones before it. None
of them ever understates: results are exact rationals, or are evaluated at 60 digits and rounded up.
:func:`hushquery.core.compose.compose` tries them all and says which one was best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import mpmath

from hushquery.core.budget import Budget
from hushquery.core.gaussian import normal_sf
from hushquery.core.loss import Loss
from hushquery.core.rounding import Number, exact, rational_mpf, round_up, working
from hushquery.errors import UsageError

__all__ = [
    "advanced",
    "gdp",
    "gdp_of_pure",
    "kov",
    "parallel",
    "sequential",
    "zcdp_of_gaussian",
    "zcdp_of_pure",
    "zcdp_to_epsilon",
    "zcdp_to_epsilon_simple",
]

# Comparisons with a target leave this relative room for the rounding of 60 digits.
_ROOM = mpmath.mpf(10) ** -40


def sequential(budgets: Iterable[Budget]) -> Budget:
    """Add up: k releases cost the sum of their epsilons and the sum of their deltas.

    **Guarantee:** if release i is (epsilon_i, delta_i)-DP whatever the earlier ones returned, all together
    are (sum epsilon_i, sum delta_i)-DP. Exact rationals.
    **Reference:** Dwork, McSherry, Nissim and Smith 2006; Dwork and Roth 2014, Theorem 3.16. Post-processing
    is free.

    >>> sequential([Budget(0.1, 1e-6), Budget(0.2)])
    Budget(0.3, 1e-06)
    """
    parts = list(budgets)
    return Budget(sum((b.epsilon for b in parts), Fraction(0)), sum((b.delta for b in parts), Fraction(0)))


def parallel(budgets: Iterable[Budget]) -> Budget:
    """Take the largest: releases that each look at *different users* cost no more than the worst of them.

    **Guarantee:** if the users are divided into disjoint parts, by something that no other user's data can
    change, and release i sees part i only, all together are (max epsilon_i, max delta_i)-DP.

    Disjoint *users*: parts that divide the rows of one user (by day, by word) all see that user, and add up.
    Under replace-one a person who may move between the parts changes two of them, one by leaving and one by
    arriving: then the cost is the sum of the two dearest parts, each stated for add-remove, and this rule
    does not apply.

    **Reference:** McSherry 2009, Theorem 4.

    >>> parallel([Budget(0.1, 1e-6), Budget(0.2)])
    Budget(0.2, 1e-06)
    """
    parts = list(budgets)
    zero = Fraction(0)
    return Budget(max((b.epsilon for b in parts), default=zero), max((b.delta for b in parts), default=zero))


def advanced(epsilon: Number, delta: Number, times: int, slack: Number) -> tuple[float, float]:
    """Trade a little delta for an epsilon that grows with the root of the number of releases.

    **Guarantee:** k releases, each (epsilon, delta)-DP, are together (epsilon', k delta + slack)-DP with
    ``epsilon' = epsilon sqrt(2 k ln(1/slack)) + k epsilon (e^epsilon - 1)``.
    **Reference:** Dwork, Rothblum and Vadhan 2010, Theorem III.3.

    Args:
        epsilon: Of each release.
        delta: Of each release.
        times: k, how many.
        slack: The delta given away, above 0.

    Returns:
        epsilon' and the whole delta, both rounded up (delta to at most 1).

    >>> [f"{x:.6g}" for x in advanced(0.1, 0, 100, 1e-6)]
    ['6.30823', '1e-06']
    """
    e, d, s = _epsilon(epsilon), _delta(delta), _positive_delta(slack, "slack")
    _check_times(times)
    with working():
        x = rational_mpf(e)
        grown = x * mpmath.sqrt(2 * times * mpmath.log(1 / rational_mpf(s))) + times * x * mpmath.expm1(x)
        return round_up(grown), min(1.0, round_up(times * d + s))


def kov(epsilon: Number, times: int, target_delta: Number, delta: Number = 0) -> float:
    """Compose k equal releases optimally: no better bound follows from their (epsilon, delta) alone.

    **Guarantee:** k releases, each (epsilon, delta)-DP, are together ``((k-2i) epsilon, 1-(1-delta)^k
    (1-delta_i))``-DP for every i from 0 to k/2, with ``delta_i = sum_{l<i} C(k,l) (e^{(k-l) epsilon} -
    e^{(k-2i+l) epsilon}) / (1+e^epsilon)^k``.
    **Reference:** Kairouz, Oh and Viswanath 2015, Theorem 3.3.

    The theorem's epsilons are the multiples above; between two of them :class:`~hushquery.core.loss.Loss`
    finds the exact one, which is never larger.

    Returns:
        The smallest of these epsilons at ``target_delta``, rounded up; infinite when no epsilon will do.

    >>> round(kov(0.1, 100, 1e-6), 6)
    4.8
    """
    e, d, target = _epsilon(epsilon), _delta(delta), _delta(target_delta)
    _check_times(times)
    with working():
        x, goal = rational_mpf(e), rational_mpf(target)
        log_keep = times * mpmath.log1p(-rational_mpf(d))
        norm = times * mpmath.log1p(mpmath.exp(x))

        def fits(i: int) -> bool:
            if i == 0 and (d == 0 or times == 1):
                return d <= target  # exactly, so that a release fits into a budget equal to its own
            lost = mpmath.fsum(
                mpmath.binomial(times, j)
                * (mpmath.exp((times - j) * x - norm) - mpmath.exp((times - 2 * i + j) * x - norm))
                for j in range(i)
            )
            whole = lost - mpmath.expm1(log_keep) * (1 - lost)  # 1 - keep (1 - lost), without cancellation
            return bool(whole + whole * _ROOM <= goal)

        if not fits(0):
            return math.inf
        low, high = 0, times // 2 + 1  # fits(low), and not fits(high) as far as anybody asks
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
    return round_up((times - 2 * low) * e)


def zcdp_of_pure(epsilon: Number) -> Fraction:
    """Give the rho of an epsilon-DP release: epsilon^2/2.

    **Guarantee:** every epsilon-DP release is (epsilon^2/2)-zCDP; rhos add.
    **Reference:** Bun and Steinke 2016, Proposition 1.4.

    >>> zcdp_of_pure(0.1)
    Fraction(1, 200)
    """
    return _epsilon(epsilon) ** 2 / 2


def zcdp_of_gaussian(mu_squared: Number) -> Fraction:
    """Give the rho of a Gaussian release from mu^2 = (L2 sensitivity / sigma)^2: half of it.

    **Guarantee:** a Gaussian release is (mu^2/2)-zCDP, exactly; rhos add.
    **Reference:** Bun and Steinke 2016, Proposition 1.6.

    >>> zcdp_of_gaussian("1/4")
    Fraction(1, 8)
    """
    value = exact(mu_squared, "mu^2")
    if value < 0:
        what = "mu^2 is negative"
        raise UsageError(what, fix="Give the square of the sensitivity over sigma")
    return value / 2


def zcdp_to_epsilon(rho: Number, delta: Number) -> float:
    """Give the epsilon of rho-zCDP at ``delta``, as tight as it follows from rho alone and one order alpha.

    **Guarantee:** rho-zCDP implies (epsilon, delta)-DP for ``delta = min over alpha > 1 of e^{(alpha-1)(alpha
    rho - epsilon)} (1-1/alpha)^alpha / (alpha-1)``. The best alpha is searched in doubles and the formula
    evaluated at it with 60 digits: any alpha gives a valid epsilon.
    **Reference:** Canonne, Kamath and Steinke 2020, Proposition 12 and Corollary 13.

    >>> round(zcdp_to_epsilon("1/2", 1e-6), 4)
    5.2215
    """
    r, d = _rho(rho), _positive_delta(delta, "delta")
    if r == 0:
        return 0.0
    slope, log_delta = float(r), math.log(d)

    def height(log_order: float) -> float:
        t = math.exp(log_order)  # alpha - 1
        return slope * (1 + t) + (t * log_order - (1 + t) * math.log1p(t) - log_delta) / t

    # The log of the formula is convex in alpha, so epsilon as a function of alpha has one valley.
    low, high = -20.0, 40.0
    for _ in range(120):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if height(first) < height(second) else (first, high)
    with working():
        t = mpmath.exp(mpmath.mpf(low))
        rest = t * mpmath.log(t) - (1 + t) * mpmath.log1p(t) - mpmath.log(rational_mpf(d))
        return max(0.0, round_up(rational_mpf(r) * (1 + t) + rest / t))


def zcdp_to_epsilon_simple(rho: Number, delta: Number) -> float:
    """Give the textbook epsilon of rho-zCDP at ``delta``: ``rho + 2 sqrt(rho ln(1/delta))``.

    **Guarantee:** rho-zCDP implies (epsilon, delta)-DP; :func:`zcdp_to_epsilon` is never larger.
    **Reference:** Bun and Steinke 2016, Proposition 1.3.

    >>> round(zcdp_to_epsilon_simple("1/2", 1e-6), 4)
    5.7565
    """
    r, d = _rho(rho), _positive_delta(delta, "delta")
    with working():
        x = rational_mpf(r)
        return round_up(x + 2 * mpmath.sqrt(x * mpmath.log(1 / rational_mpf(d))))


def gdp(mus: Iterable[Number], delta: Number) -> float:
    """Give the epsilon at ``delta`` of releases that are mu_i-GDP: their squares add, and nothing is lost.

    **Guarantee:** together they are mu-GDP with ``mu^2 = sum mu_i^2``, so (epsilon, agd(epsilon, mu))-DP;
    exact for Gaussians.
    **Reference:** Dong, Roth and Su 2019, Corollary 3.3; Balle and Wang 2018, Theorem 8.

    >>> round(gdp([0.1] * 100, 1e-6), 4)
    4.8866
    """
    values = [exact(mu, "mu") for mu in mus]
    if min(values, default=Fraction(0)) < 0:
        what = "mu is negative"
        raise UsageError(what, fix="Give the L2 sensitivity over sigma")
    total = Loss(mu_squared=sum((mu**2 for mu in values), Fraction(0)))
    return total.epsilon(_positive_delta(delta, "delta"))


def gdp_of_pure(epsilon: Number) -> float:
    """Give the mu of the weakest Gaussian that is no more private than any epsilon-DP release, rounded up.

    **Guarantee:** every epsilon-DP release is mu-GDP with ``mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon))``:
    that Gaussian's trade-off curve runs through both ends and the corner of randomised response's, and is
    convex.
    **Reference:** Dong, Roth and Su 2019, section 2.3 with Proposition 2.5.

    >>> round(gdp_of_pure(0.1), 6)
    0.125309
    """
    e = _epsilon(epsilon)
    with working():
        tail = 1 / (1 + mpmath.exp(rational_mpf(e)))
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while normal_sf(high) > tail:
            low, high = high, high * 2
        while high - low > high * mpmath.mpf(2) ** -70:
            middle = (low + high) / 2
            low, high = (middle, high) if normal_sf(middle) > tail else (low, middle)
        return round_up(2 * high) if e else 0.0


def _epsilon(value: Number) -> Fraction:
    return Budget(value).epsilon


def _delta(value: Number) -> Fraction:
    return Budget(0, value).delta


def _positive_delta(value: Number, name: str) -> Fraction:
    number = exact(value, name)
    if not 0 < number < 1:
        what = f"{name} must be above 0 and below 1 for this rule"
        raise UsageError(what, why="it buys epsilon with a small delta", fix="Give for example 1e-6")
    return number


def _rho(value: Number) -> Fraction:
    number = exact(value, "rho")
    if number < 0:
        what = "rho is negative"
        raise UsageError(what, fix="Give epsilon^2/2 of a pure release or mu^2/2 of a Gaussian one")
    return number


def _check_times(times: int) -> None:
    if isinstance(times, bool) or times < 1:
        what = "there must be at least one release"
        raise UsageError(what, fix="Give times >= 1")
