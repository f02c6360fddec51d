"""compose: try every rule on the same steps, keep the smallest epsilon, and say what the others give.

Each rule proves its own upper bound on the same thing, so the smallest of them is proved as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

import mpmath

from hushquery.core.budget import Budget, format_delta, format_epsilon
from hushquery.core.composition import (
    advanced,
    gdp_of_pure,
    kov,
    zcdp_of_gaussian,
    zcdp_of_pure,
    zcdp_to_epsilon,
)
from hushquery.core.guarantee import Step
from hushquery.core.loss import Loss
from hushquery.core.pld import (
    ApproximateStep,
    GaussianStep,
    LaplaceStep,
    PldStep,
    ResponseStep,
    pld_epsilon,
)
from hushquery.core.rounding import Number, rational_mpf, round_up, working
from hushquery.errors import CalibrationError, UsageError

__all__ = ["Composition", "compose"]

# How much of delta the advanced rule keeps for itself where Gaussian steps need some too.
_SLACK_SHARES = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(9, 10)]

_NOTHING_LEFT = "nothing of delta is left for it beside the thresholds"


@dataclass(frozen=True)
class Composition:
    """What some steps cost together, by the rule that proves the smallest epsilon.

    Args:
        epsilon: The smallest epsilon proved, rounded up.
        delta: What it holds at.
        rule: The rule that proved it.
        alternatives: Every rule in order, with its epsilon or the reason why it does not apply.
        notes: For every rule, how it came to its number.
    """

    epsilon: float
    delta: float
    rule: str
    alternatives: Mapping[str, float | str]
    notes: Mapping[str, str] = field(repr=False)

    def explain(self) -> str:
        """Give a plain table: which rule was used, what each other one gives, or why it does not apply.

        >>> print(compose([Loss(pure=("1/10",))] * 10, 0).explain())
        epsilon 1 at delta 0, by rule *
        <BLANKLINE>
          rule        epsilon  how
        * sequential  1        the epsilons add
          advanced    -        does not apply: it needs a delta above 0
          KOV         1        optimal for 10 equal epsilons
          zCDP        -        does not apply: it needs a delta above 0
          GDP         -        does not apply: it needs a delta above 0
          mixed       1        losses kept in their own form and converted once
          PLD         -        does not apply: it needs a delta above 0
        """
        lines = [
            f"epsilon {format_epsilon(self.epsilon)} at delta {format_delta(self.delta)}, by rule *",
            "",
            "  rule        epsilon  how",
        ]
        for rule, value in self.alternatives.items():
            number = format_epsilon(value) if isinstance(value, float) else "-"
            how = self.notes[rule] if isinstance(value, float) else f"does not apply: {value}"
            lines.append(f"{'*' if rule == self.rule else ' '} {rule:<10}  {number:<7}  {how}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Give it as plain data."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rule": self.rule,
            "alternatives": [
                {"rule": rule, "epsilon": value, "note": self.notes[rule]}
                if isinstance(value, float)
                else {"rule": rule, "epsilon": None, "note": value}
                for rule, value in self.alternatives.items()
            ],
        }


def compose(steps: Sequence[Loss | Step | PldStep], delta: Number) -> Composition:
    """Find what some steps on one population cost together at ``delta``, and by which rule.

    **Guarantee:** the steps, each chosen after seeing the results of the ones before, are (epsilon, delta)-DP
    under the relation their losses are stated for.
    **Reference:** :mod:`hushquery.core.composition`, :mod:`hushquery.core.loss`,
    :mod:`hushquery.core.pld`.

    Args:
        steps: Losses, steps of a guarantee, or steps that the PLD rule knows more about than their loss says.
        delta: The failure probability allowed for all together.

    Raises:
        UsageError: When no epsilon holds at this delta.

    >>> both = compose([Loss(mu_squared="1/100")] * 10 + [Loss(pure=("1/10",))] * 10, 1e-6)
    >>> both.rule, f"{both.epsilon:.3f}"
    ('mixed', '1.914')
    """
    case = _Case.of(steps, Budget(0, delta).delta)
    alternatives: dict[str, float | str] = {}
    notes: dict[str, str] = {}
    for rule, attempt in _RULES.items():
        value, note = attempt(case)
        if isinstance(value, float) and math.isinf(value):
            value = "it proves no epsilon at this delta"
        alternatives[rule], notes[rule] = value, note
    proved = {rule: value for rule, value in alternatives.items() if isinstance(value, float)}
    if not proved:
        what = f"no epsilon holds at delta {format_delta(case.delta)}"
        raise UsageError(
            what,
            why=f"the steps fail with a probability of up to {format_delta(case.fail)}",
            fix="Ask at a larger delta",
        )
    best = min(proved, key=lambda rule: proved[rule])
    quoted = 0.0 if best == "sequential" and not case.fail and not case.gaussians else round_up(case.delta)
    return Composition(proved[best], quoted, best, MappingProxyType(alternatives), MappingProxyType(notes))


@dataclass(frozen=True)
class _Case:
    """The steps, taken apart as the rules need them."""

    steps: tuple[Loss | Step | PldStep, ...]
    losses: tuple[Loss, ...]
    delta: Fraction

    @classmethod
    def of(cls, steps: Sequence[Loss | Step | PldStep], delta: Fraction) -> _Case:
        return cls(tuple(steps), tuple(s if isinstance(s, Loss) else s.loss for s in steps), delta)

    @property
    def pure(self) -> list[Fraction]:
        return [r for loss in self.losses for r in loss.pure if r]

    @property
    def gaussians(self) -> list[Loss]:
        return [loss for loss in self.losses if loss.mu_squared or loss.sparse]

    @property
    def mu_squared(self) -> Fraction:
        """All Gaussian noise, with the counts of sparse histograms."""
        return sum((_mu_squared(loss) for loss in self.losses), Fraction(0))

    @property
    def fail(self) -> Fraction:
        """A bound on the probability that any threshold fails."""
        return sum((_fail(loss) for loss in self.losses), Fraction(0))

    @property
    def spare(self) -> Fraction:
        """What is left of delta for everything else: fail + (1 - fail) spare = delta."""
        fail = self.fail
        return (self.delta - fail) / (1 - fail) if fail < 1 else Fraction(-1)

    def why_not(self, *, needs_delta: bool) -> str:
        """Give the reason why a rule has nothing to work with, or nothing."""
        if self.delta == 0 and needs_delta:
            return "it needs a delta above 0"
        if self.delta == 0 and self.gaussians:
            return "Gaussian noise has no epsilon at delta 0"
        if self.spare < 0:
            return f"the thresholds alone fail with up to {format_delta(self.fail)}"
        if self.spare == 0 and (needs_delta or self.gaussians):
            return _NOTHING_LEFT
        return ""

    def split(self, share: Fraction) -> list[float]:
        """Give each step's epsilon at its thresholds' delta and, if Gaussian, an equal part of ``share``."""
        part = share / max(1, len(self.gaussians))
        known: dict[Loss, float] = {}
        for loss in self.losses:
            if loss not in known:
                noisy = loss.mu_squared or loss.sparse
                known[loss] = loss.epsilon(_fail(loss) + part) if noisy else round_up(sum(loss.pure, Fraction(0)))
        return [known[loss] for loss in self.losses]


_Result = tuple[float | str, str]


def _sequential(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=False)
    if reason:
        return reason, ""
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


def _advanced(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=True)
    if reason:
        return reason, ""
    whole = case.delta - case.fail
    found: list[tuple[float, Fraction]] = []
    for share in _SLACK_SHARES if case.gaussians else [Fraction(1)]:
        epsilons = [e for e in case.split(whole * (1 - share)) if e]
        if not epsilons:
            return 0.0, "no step costs anything"
        if math.inf not in epsilons and max(epsilons) < 100:
            largest = Fraction(max(epsilons))
            found.append((advanced(largest, 0, len(epsilons), whole * share)[0], share))
    if not found:
        return math.inf, ""
    value, share = min(found)
    note = "every step counted as the largest"
    if case.gaussians:
        note += f"; {float(share):.0%} of delta kept as slack, the rest in equal parts for Gaussian steps"
    return value, note


def _kov(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=False)
    if reason:
        return reason, ""
    if case.gaussians:
        return "it is for pure steps", ""
    if len(set(case.pure)) > 1:
        return "the epsilons are not all equal", ""
    if not case.pure:
        return 0.0, "no step costs anything"
    count = len(case.pure)
    return kov(case.pure[0], count, case.spare), f"optimal for {count} equal epsilons" if count > 1 else "one epsilon"


def _zcdp(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=True)
    if reason:
        return reason, ""
    rho = sum((zcdp_of_pure(r) for r in case.pure), zcdp_of_gaussian(case.mu_squared))
    return zcdp_to_epsilon(rho, case.spare), f"the rhos add up to {float(rho):.4g}"


def _gdp(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=True)
    if reason:
        return reason, ""
    known = {r: Fraction(gdp_of_pure(r)) ** 2 for r in set(case.pure)}
    total = case.mu_squared + sum((known[r] for r in case.pure), Fraction(0))
    note = "exact for Gaussian noise" if not known else "each pure step counted as the Gaussian that is worse than it"
    return Loss(mu_squared=total).epsilon(case.spare), note


def _mixed(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=False)
    if reason:
        return reason, ""
    total = sum(case.losses, Loss())
    if total.sparse and any(isinstance(step, ApproximateStep) for step in case.steps):
        # A histogram's own curve is for thresholds that fail in one world; a general delta fails in both.
        total = Loss(case.mu_squared, tuple(case.pure), case.fail)
    return total.epsilon(case.delta), "losses kept in their own form and converted once"


def _pld(case: _Case) -> _Result:
    reason = case.why_not(needs_delta=True)
    if reason:
        return reason, ""
    steps: list[PldStep] = []
    known = 0
    for step, loss in zip(case.steps, case.losses, strict=True):
        if isinstance(step, LaplaceStep):
            known += 1
            steps.append(step)
        elif isinstance(step, ApproximateStep):
            steps.append(ResponseStep(step.epsilon))  # its delta is among the thresholds
        else:
            steps += [ResponseStep(r) for r in loss.pure if r]
    if case.mu_squared:
        with working():
            steps.append(GaussianStep(Fraction(round_up(mpmath.sqrt(rational_mpf(case.mu_squared))))))
    note = "the whole law of the loss on a grid"
    if known < len(case.pure):
        note += ", pure steps as randomised responses" if not known else ", other pure steps as randomised responses"
    try:
        return pld_epsilon(steps, case.spare), note
    except CalibrationError as error:
        return error.what, ""


_RULES: dict[str, Callable[[_Case], _Result]] = {
    "sequential": _sequential,
    "advanced": _advanced,
    "KOV": _kov,
    "zCDP": _zcdp,
    "GDP": _gdp,
    "mixed": _mixed,
    "PLD": _pld,
}


def _mu_squared(loss: Loss) -> Fraction:
    return loss.mu_squared + sum((s.mu_squared for s in loss.sparse), Fraction(0))


def _fail(loss: Loss) -> Fraction:
    return loss.threshold_delta + sum((Fraction(s.threshold_delta()) for s in loss.sparse), Fraction(0))
