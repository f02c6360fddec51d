"""Composition: what several releases about the same people cost together, and what groups are promised.

Every rule proves an upper bound, rounded up, even when each release is chosen after seeing the ones before it. So the
smallest bound is proved as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

import mpmath

from hushquery.core.budget import Budget, Number, exact, format_delta, format_epsilon, rational_mpf, round_up, working
from hushquery.core.calibration import normal_sf
from hushquery.core.guarantee import Step
from hushquery.core.loss import Loss
from hushquery.core.pld import LaplaceStep, pld_epsilon
from hushquery.errors import CalibrationError, Unavailable, UsageError

# Comparisons with a target leave this relative room for the rounding of 60 digits.
_ROOM = mpmath.mpf(10) ** -40

# How much of delta the advanced rule keeps for itself where Gaussian steps need some too.
_SLACK_SHARES = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(9, 10)]


@dataclass(frozen=True)
class Composition:
    """What some steps cost together, by the rule that proves the smallest epsilon."""

    epsilon: float  # the smallest epsilon proved, rounded up
    delta: float  # the delta at which it holds
    rule: str  # the rule that proved it
    alternatives: Mapping[str, float | str]  # every rule with its epsilon, or the reason why it does not apply
    notes: Mapping[str, str] = field(repr=False)  # for every rule, how it came to its number

    def explain(self) -> str:
        """Return a table: which rule was used, what each other one proves, or why it does not apply.

        >>> print(compose([Loss(pure=("1/10",))] * 10, 0).explain())
        epsilon 1 at delta 0, by rule *
        <BLANKLINE>
          rule        epsilon  how
        * sequential  1        the epsilons add
          advanced    -        does not apply: it needs a delta above 0
          ...
        """
        lines = [f"epsilon {format_epsilon(self.epsilon)} at delta {format_delta(self.delta)}, by rule *"]
        lines += ["", "  rule        epsilon  how"]
        for rule, value in self.alternatives.items():
            number = format_epsilon(value) if isinstance(value, float) else "-"
            how = self.notes[rule] if isinstance(value, float) else f"does not apply: {value}"
            lines.append(f"{'*' if rule == self.rule else ' '} {rule:<10}  {number:<7}  {how}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        rules = [
            (rule, value, self.notes[rule]) if isinstance(value, float) else (rule, None, value)
            for rule, value in self.alternatives.items()
        ]
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rule": self.rule,
            "alternatives": [{"rule": rule, "epsilon": epsilon, "note": note} for rule, epsilon, note in rules],
        }


def compose(steps: Sequence[Loss | Step | LaplaceStep], delta: Number) -> Composition:
    """Return the smallest epsilon that any rule proves for some steps on one population together at ``delta``.
    ``steps`` are losses, steps of a guarantee, or Laplace noise, which the PLD rule charges less than its loss.
    Raises ``UsageError`` when no epsilon holds at this delta.

    **Guarantee:** the steps, each chosen after seeing the results of the ones before, are (epsilon, delta)-DP under the
    relation their losses are stated for.
    **Reference:** the rules below, :mod:`hushquery.core.loss`, :mod:`hushquery.core.pld`.

    >>> both = compose([Loss(mu_squared="1/100")] * 10 + [Loss(pure=("1/10",))] * 10, 1e-6)
    >>> both.rule, f"{both.epsilon:.3f}"
    ('mixed', '1.914')
    """
    case = _Case(tuple(steps), Budget(0, delta).delta)
    alternatives: dict[str, float | str] = {}
    notes: dict[str, str] = {}
    for rule, attempt in _RULES.items():
        try:
            value, notes[rule] = attempt(case)
            alternatives[rule] = "it proves no epsilon at this delta" if math.isinf(value) else value
        except _DoesNotApply as reason:
            alternatives[rule], notes[rule] = str(reason), ""
    proved = {rule: value for rule, value in alternatives.items() if isinstance(value, float)}
    if not proved:
        raise UsageError(
            f"no epsilon holds at delta {format_delta(case.delta)}",
            why=f"the steps fail with a probability of up to {format_delta(case.fail)}",
            fix="Use a larger delta",
        )
    best = min(proved, key=lambda rule: proved[rule])
    quoted = 0.0 if best == "sequential" and not case.fail and not case.gaussians else round_up(case.delta)
    return Composition(proved[best], quoted, best, MappingProxyType(alternatives), MappingProxyType(notes))


class _DoesNotApply(Exception):
    """The reason why a rule does not apply to some steps."""


class _Case:
    """The steps, taken apart as the rules need them."""

    def __init__(self, steps: Sequence[Loss | Step | LaplaceStep], delta: Fraction) -> None:
        self.steps, self.delta = steps, delta
        self.losses = [step if isinstance(step, Loss) else step.loss for step in steps]
        self.pure = [r for loss in self.losses for r in loss.pure if r]
        self.gaussians = [loss for loss in self.losses if loss.mu_squared or loss.sparse]
        total = sum(self.losses, Loss())
        self.mu_squared = sum((s.mu_squared for s in total.sparse), total.mu_squared)
        #: A bound on the probability that any threshold fails, and what it leaves: union + thresholds + (1 -
        #: thresholds) spare = delta, with the chances that hold on average only in the union.
        self.fail = sum(map(_fail, self.losses), Fraction(0))
        thresholds = self.fail - total.union_delta
        self.spare = (self.delta - self.fail) / (1 - thresholds) if thresholds < 1 else Fraction(-1)

    def check(self, *, needs_delta: bool) -> None:
        if self.delta == 0 and needs_delta:
            raise _DoesNotApply("it needs a delta above 0")
        if self.delta == 0 and self.gaussians:
            raise _DoesNotApply("Gaussian noise has no epsilon at delta 0")
        if self.spare < 0:
            raise _DoesNotApply(f"the thresholds alone fail with up to {format_delta(self.fail)}")
        if self.spare == 0 and (needs_delta or self.gaussians):
            raise _DoesNotApply("nothing of delta is left for it beside the thresholds")

    def split(self, share: Fraction) -> list[float]:
        """Return each step's epsilon at its thresholds' delta and, if Gaussian, an equal part of ``share``."""
        part = share / max(1, len(self.gaussians))
        known = {
            loss: loss.epsilon(_fail(loss) + part)
            if loss.mu_squared or loss.sparse
            else round_up(sum(loss.pure, Fraction(0)))
            for loss in set(self.losses)
        }
        return [known[loss] for loss in self.losses]


def _fail(loss: Loss) -> Fraction:
    return (
        loss.threshold_delta + loss.union_delta + sum((Fraction(s.threshold_delta()) for s in loss.sparse), Fraction(0))
    )


def _sequential(case: _Case) -> tuple[float, str]:
    """Add up epsilons and deltas (Dwork and Roth 2014, Theorem 3.16)."""
    case.check(needs_delta=False)
    if not case.gaussians:
        return round_up(sum(case.pure, Fraction(0))), "the epsilons add"
    share = case.delta - case.fail
    epsilons = case.split(share)
    if math.inf in epsilons:
        return math.inf, ""
    note = "the epsilons add"
    if len(case.gaussians) > 1:
        part = format_delta(share / len(case.gaussians))
        note += f"; each of {len(case.gaussians)} Gaussian steps is given an equal part, {part}, of delta"
    return round_up(sum((Fraction(e) for e in epsilons), Fraction(0))), note


def _advanced(case: _Case) -> tuple[float, str]:
    case.check(needs_delta=True)
    whole = case.delta - case.fail
    candidates: list[tuple[float, Fraction]] = []
    for share in _SLACK_SHARES if case.gaussians else [Fraction(1)]:
        epsilons = [e for e in case.split(whole * (1 - share)) if e]
        if not epsilons:
            return 0.0, "no step costs anything"
        if max(epsilons) < 100:
            candidates.append((advanced(Fraction(max(epsilons)), len(epsilons), whole * share), share))
    if not candidates:
        return math.inf, ""
    value, share = min(candidates)
    note = "every step counted as the largest"
    if case.gaussians:
        note += f"; {float(share):.0%} of delta kept as slack, the rest in equal parts for Gaussian steps"
    return value, note


def _kov(case: _Case) -> tuple[float, str]:
    case.check(needs_delta=False)
    if case.gaussians:
        raise _DoesNotApply("it is for pure steps")
    if len(set(case.pure)) > 1:
        raise _DoesNotApply("the epsilons are not all equal")
    if not case.pure:
        return 0.0, "no step costs anything"
    count = len(case.pure)
    return kov(case.pure[0], count, case.spare), f"optimal for {count} equal epsilons" if count > 1 else "one epsilon"


def _zcdp(case: _Case) -> tuple[float, str]:
    """Add up rhos: epsilon^2/2 of a pure step, mu^2/2 of a Gaussian (Bun and Steinke 2016, Propositions 1.4, 1.6)."""
    case.check(needs_delta=True)
    rho = (sum((r**2 for r in case.pure), Fraction(0)) + case.mu_squared) / 2
    return zcdp_to_epsilon(rho, case.spare), f"the rhos add up to {float(rho):.4g}"


def _gdp(case: _Case) -> tuple[float, str]:
    """Add up squared mus, exactly for Gaussians (Dong, Roth and Su 2019, Corollary 3.3)."""
    case.check(needs_delta=True)
    known = {r: Fraction(gdp_of_pure(r)) ** 2 for r in set(case.pure)}
    total = case.mu_squared + sum((known[r] for r in case.pure), Fraction(0))
    note = "exact for Gaussian noise" if not known else "each pure step counted as the Gaussian that is worse than it"
    return Loss(mu_squared=total).epsilon(case.spare), note


def _mixed(case: _Case) -> tuple[float, str]:
    case.check(needs_delta=False)
    return sum(case.losses, Loss()).epsilon(case.delta), "losses kept in their own form and converted once"


def _pld(case: _Case) -> tuple[float, str]:
    case.check(needs_delta=True)
    laplace = [step for step in case.steps if isinstance(step, LaplaceStep)]
    others = [loss for step, loss in zip(case.steps, case.losses, strict=True) if not isinstance(step, LaplaceStep)]
    pure = [r for loss in others for r in loss.pure if r]
    note = "the whole law of the loss on a grid"
    if pure:
        note += ", other pure steps as randomised responses" if laplace else ", pure steps as randomised responses"
    try:
        return pld_epsilon(laplace, pure, case.mu_squared, case.spare), note
    except CalibrationError as error:
        raise _DoesNotApply(error.what) from None
    except Unavailable as error:
        raise _DoesNotApply(f"{error.what}: {error.fix}") from None


_RULES: dict[str, Callable[[_Case], tuple[float, str]]] = {
    "sequential": _sequential,
    "advanced": _advanced,
    "KOV": _kov,
    "zCDP": _zcdp,
    "GDP": _gdp,
    "mixed": _mixed,
    "PLD": _pld,
}


def advanced(epsilon: Number, times: int, slack: Number) -> float:
    """Trade a little delta for an epsilon that grows with the root of the number of releases, rounded up.

    **Guarantee:** k releases, each epsilon-DP, are together (epsilon', slack)-DP with
    ``epsilon' = epsilon sqrt(2 k ln(1/slack)) + k epsilon (e^epsilon - 1)``.
    **Reference:** Dwork, Rothblum and Vadhan 2010, Theorem III.3.
    """
    each = Budget(epsilon, slack)
    with working():
        e, room = rational_mpf(each.epsilon), mpmath.log(1 / rational_mpf(each.delta))
        return round_up(e * mpmath.sqrt(2 * times * room) + times * e * mpmath.expm1(e))


def kov(epsilon: Number, times: int, delta: Number) -> float:
    """Compose k equal pure releases optimally: no better bound follows from their epsilon alone. Rounded up.

    **Guarantee:** k releases, each epsilon-DP, are together ``((k-2i) epsilon, delta_i)``-DP for every i from 0 to k/2,
    with ``delta_i = sum_{l<i} C(k,l) (e^{(k-l) epsilon} - e^{(k-2i+l) epsilon}) / (1+e^epsilon)^k``. Between two of
    these epsilons :class:`~hushquery.core.loss.Loss` finds the exact one, which is never larger.
    **Reference:** Kairouz, Oh and Viswanath 2015, Theorem 3.3.
    """
    each = Budget(epsilon, delta)
    with working():
        x, goal = rational_mpf(each.epsilon), rational_mpf(each.delta)
        norm = times * mpmath.log1p(mpmath.exp(x))

        def fits(i: int) -> bool:
            lost = mpmath.fsum(
                mpmath.binomial(times, j)
                * (mpmath.exp((times - j) * x - norm) - mpmath.exp((times - 2 * i + j) * x - norm))
                for j in range(i)
            )
            return bool(lost + lost * _ROOM <= goal)

        low, high = 0, times // 2 + 1  # fits(low), and not fits(high) as far as anybody asks
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
    return round_up((times - 2 * low) * each.epsilon)


def zcdp_to_epsilon(rho: Number, delta: Number) -> float:
    """Return the epsilon of rho-zCDP at ``delta``, as tight as it follows from rho alone and one order alpha.

    **Guarantee:** rho-zCDP implies (epsilon, delta)-DP for ``delta = min over alpha > 1 of e^{(alpha-1)(alpha rho -
    epsilon)} (1-1/alpha)^alpha / (alpha-1)``. Any alpha is valid, so the best one is searched in doubles.
    **Reference:** Canonne, Kamath and Steinke 2020, Proposition 12 and Corollary 13.
    """
    r, d = exact(rho, "rho"), Budget(0, delta).delta
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


def gdp_of_pure(epsilon: Number) -> float:
    """Return the mu of the weakest Gaussian that is no more private than any epsilon-DP release, rounded up.

    **Guarantee:** every epsilon-DP release is mu-GDP with ``mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon))``: that
    Gaussian's trade-off curve runs through both ends and the corner of randomised response's, and is convex.
    **Reference:** Dong, Roth and Su 2019, section 2.3 with Proposition 2.5.
    """
    with working():
        tail = 1 / (1 + mpmath.exp(rational_mpf(Budget(epsilon).epsilon)))
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while normal_sf(high) > tail:
            low, high = high, high * 2
        while high - low > high * mpmath.mpf(2) ** -70:
            middle = (low + high) / 2
            low, high = (middle, high) if normal_sf(middle) > tail else (low, middle)
        return round_up(2 * high)


def group(epsilon: Number, delta: Number, people: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that holds for some people together: a household, or one person with many accounts.

    **Guarantee:** what is (epsilon, delta)-DP for one is (k epsilon, delta (e^{k epsilon} - 1)/(e^epsilon - 1))-DP for
    any k (k delta when epsilon is 0), under the same relation. Both rounded up; at delta 1 nothing is promised.
    **Reference:** Dwork and Roth 2014, Theorem 2.2 for delta = 0; Vadhan 2017, Lemma 2.2, whose proof has this sum.
    Gaussian noise alone is k mu-GDP, which is better, but not with a threshold: a key that only these k people hold
    passes with probability P(z >= R - k), easily a thousand times P(z >= R - 1). So convert such releases first.

    >>> [f"{x:.4g}" for x in group(0.5, 1e-6, 3)]
    ['1.5', '5.367e-06']
    """
    one = Budget(epsilon, delta)
    if isinstance(people, bool) or people < 1:
        raise UsageError("a group has at least one person", fix="Use people >= 1")
    if people == 1 or one.epsilon == 0 or one.delta == 0:
        return round_up(people * one.epsilon), min(1.0, round_up(people * one.delta))
    with working():
        e = rational_mpf(one.epsilon)
        grown = rational_mpf(one.delta) * mpmath.expm1(people * e) / mpmath.expm1(e)
        return round_up(people * one.epsilon), 1.0 if grown >= 1 else min(1.0, round_up(grown))
