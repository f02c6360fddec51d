"""Guarantee: what a result promises, for one population under one relation, in numbers, words and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from hushquery.core.budget import (
    Number,
    Relation,
    Unit,
    concerns,
    exact,
    format_delta,
    format_epsilon,
    round_up,
    significant_up,
)
from hushquery.core.loss import Loss
from hushquery.errors import UsageError

#: Who is trusted: an operator who holds the data, or nobody.
Model = Literal["curator", "local"]

_PURE_IS_WORTH = 1.02  # a delta is quoted only where it buys an epsilon smaller by more than this
_LONG = 700  # beyond this e^epsilon leaves the range of doubles; a belief is then certain for every purpose
_LONG_FACTOR = 13.8  # beyond this e^epsilon is printed as a power of ten
_LEAST_DRAWN = Fraction(1, 10**12)  # below this a picture of the two laws would be a straight line
_LAST_PLACES = Fraction(1, 2**48)  # more than the relative error of a belief computed in doubles

_TRUST = {
    "curator": "The operator who holds the data is trusted with it; everybody who sees the result is not.",
    "local": "Nobody is trusted: the answer was randomised before it left the device.",
}


@dataclass(frozen=True)
class Step:
    """One randomised step and what it costs."""

    name: str  # the registered name of the mechanism
    detail: str  # what it did, in a clause with its parameters
    loss: Loss


@dataclass(frozen=True)
class Guarantee:
    """What a result promises: (epsilon, delta) for one unit of ``population``, never below the exact ones.
    ``model`` is ``curator`` (an operator holds the data) or ``local`` (nobody is trusted). With ``test_noise``, drawn
    from a test's seed, nothing is promised.

    >>> step = Step("discrete-laplace", "a count with noise of scale 2", Loss(pure=("1/2",)))
    >>> g = Guarantee.of("readers of example.org", "curator", Unit("user", "add-remove"), [step])
    >>> print(g.summary())
    epsilon 0.5, delta 0 for one user, present or absent (add-remove), of "readers of example.org"
    """

    population: str
    model: Model
    unit: Unit
    epsilon: float
    delta: float
    steps: tuple[Step, ...] = field(default=())
    test_noise: bool = False

    @classmethod
    def of(
        cls,
        population: str,
        model: Model,
        unit: Unit,
        steps: Sequence[Step],
        *,
        delta: Number = 0,
        test_noise: bool = False,
    ) -> Guarantee:
        """State the guarantee of some steps: the smallest epsilon at ``delta``, from their exact losses."""
        total = sum((step.loss for step in steps), Loss())
        target = exact(delta, "delta")
        epsilon = total.epsilon(target)
        if math.isinf(epsilon):
            raise UsageError(
                f"no epsilon holds at delta {format_delta(target)}",
                why="the steps fail with a larger probability than that",
                fix="State the guarantee at a larger delta",
            )
        quoted = round_up(target)
        if total.is_pure and total.epsilon(0) <= epsilon * _PURE_IS_WORTH:
            epsilon, quoted = total.epsilon(0), 0.0
        return cls(population, model, unit, epsilon, quoted, tuple(steps), test_noise)

    @property
    def loss(self) -> Loss:
        """The exact cost of all steps together."""
        return sum((step.loss for step in self.steps), Loss())

    def summary(self) -> str:
        """Return the promise in one line."""
        line = (
            f"epsilon {format_epsilon(self.epsilon)}, delta {format_delta(self.delta)} for {self.unit}, "
            f'of "{self.population}"'
        )
        return f"NOT PRIVATE (test noise): {line}" if self.test_noise else line

    __str__ = summary

    @property
    def concerns(self) -> list[str]:
        """What is unusual about the promise, a clause each (:meth:`Budget.concerns`); empty for an ordinary one."""
        return concerns(exact(self.epsilon, "epsilon"), exact(self.delta, "delta"))

    def posterior(self, prior: float) -> float:
        """Return the largest belief an attacker can reach from a prior belief about which of two datasets is real.
        Under add-remove they differ in whether a unit took part; a secret of one that did is protected by twice
        epsilon. See :func:`best_posterior` for what delta means here.
        """
        return best_posterior(prior, self.epsilon)

    def in_words(self, priors: Sequence[float] = (0.01, 0.1, 0.5)) -> str:
        """Explain in plain words what is promised and what is not."""
        who, present = _one_line(self.unit.name), self.unit.relation is Relation.ADD_REMOVE
        change = (
            f"any one {who} had taken part or not"
            if present
            else f"the data of any one {who} had been exchanged for any other data"
        )
        lines = []
        if self.test_noise:
            lines.append("THIS RESULT IS NOT PRIVATE: its noise came from a seed that a test supplied.\n")
        lines.append(
            f'This result was computed from the data of "{_one_line(self.population)}". {_TRUST[self.model]}\n\n'
            f"The promise{' (but for delta, below)' if self.delta else ''}: whatever could be published, "
            f"the chance that exactly this was published changes by a factor of at most {factor(self.epsilon)} "
            f"depending on whether {change} "
            f"(epsilon = {format_epsilon(self.epsilon)}, {self.unit.relation.value})."
        )
        if self.delta:
            lines.append(
                f"Delta is {format_delta(self.delta)}: the result is no more telling than one that keeps the promise, "
                f"except that with this probability (1 in {math.floor(1 / self.delta * (1 + 1e-12)):,}) it reveals "
                f"everything about that {who}."
            )
        questions = [(f"whether that {who} took part", 1)] if present else []
        secret = f"a secret of that {who}" + (
            ", who took part (exchanging data costs epsilon twice)" if present else ""
        )
        for question, times in [*questions, (secret, 1 + present)]:
            lines.append(f"\nWhat an attacker who knows everything else can conclude about {question}:")
            lines += [
                f"  believed it with {_percent(prior)} before  ->  "
                f"at most {_percent_up(prior, times * self.epsilon)} after"
                for prior in priors
            ]
        doubles = "epsilon doubles" + (" and delta more than doubles" if self.delta else "")
        public = "" if present else f", how many {who}s there are"
        lines.append(
            f"\nNot promised: that nothing is learned about people in general (that is the purpose){public}, and the "
            f"same strength for groups: for two {who}s together {doubles}."
        )
        if self.steps:
            lines.append("\nIt comes from:")
            named = (_one_line(f"{step.name}: {step.detail}") for step in self.steps)
            lines.extend(f"  {i}. {step}" for i, step in enumerate(named, 1))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as plain data for manifests and ``--json``."""
        return {
            "population": self.population,
            "model": self.model,
            "unit": self.unit.name,
            "relation": self.unit.relation.value,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "test_noise": self.test_noise,
            "steps": [{"name": s.name, "detail": s.detail, "loss": s.loss.to_json()} for s in self.steps],
        }

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        return render("notebook/guarantee.html", summary=self.summary(), words=self.in_words())


def _one_line(text: str) -> str:
    """Keep a name from adding lines of its own to a promise."""
    return " ".join(text.split())


def best_posterior(prior: float, epsilon: float) -> float:
    """Return the largest belief that an attacker reaches from ``prior`` when odds change by e^epsilon at most.
    With delta > 0: every (epsilon, delta)-DP result is a function of a message that reveals everything with probability
    delta and is epsilon-DP otherwise (Kairouz, Oh and Viswanath 2015), so this is the bound for that other case. It is
    not the probability that the odds change by more: for Gaussian noise that is larger than delta.
    """
    if not 0 <= prior <= 1:
        raise UsageError("a prior is a probability", fix="Use a number from 0 to 1")
    if prior in (0.0, 1.0) or epsilon == 0:
        return prior
    if epsilon > _LONG:
        return 1.0
    return min(1.0, prior * math.exp(epsilon) / (1 + prior * math.expm1(epsilon)))


def two_worlds(epsilon: Number, sensitivity: int = 1, spread: float = 5.0) -> list[dict[str, float | str]]:
    """Tabulate the chance of each result with you in the data and without, for :func:`hushquery.plot.two_worlds`.
    Both answer a count with discrete Laplace noise of scale ``sensitivity/epsilon``.
    """
    e = exact(epsilon, "epsilon")
    if e < _LEAST_DRAWN or sensitivity < 1:
        raise UsageError("the picture needs epsilon of at least 1e-12 and a sensitivity of at least 1")
    scale = float(Fraction(sensitivity) / e)
    a = math.exp(-1 / scale)
    reach = max(1, math.ceil(spread * scale))
    step = max(1, reach // 200)
    return [
        {"result": result, "world": world, "probability": (1 - a) / (1 + a) * a ** abs(result - centre)}
        for result in range(-reach, sensitivity + reach + 1, step)
        for world, centre in (("without you", 0), ("with you", sensitivity))
    ]


def factor(epsilon: float) -> str:
    """Print e^epsilon, rounded up; beyond a million to the next power of ten."""
    if epsilon > _LONG_FACTOR:
        return f"10^{math.ceil(epsilon * (1 + 1e-12) / math.log(10))}"
    return significant_up(Fraction(math.nextafter(math.exp(epsilon), math.inf)), 4)


def _percent_up(prior: float, epsilon: float) -> str:
    """Print the largest belief that an attacker reaches, rounded up; one that stays the same is printed as it is."""
    if epsilon == 0:
        return _percent(exact(prior, "a prior"), up=True)
    # Doubles may be a few units in the last place too low.
    return _percent(min(Fraction(1), Fraction(best_posterior(prior, epsilon)) * (1 + _LAST_PLACES)), up=True)


def _percent(probability: float | Fraction, *, up: bool = False) -> str:
    """Print a probability as a percentage: one decimal, or two digits where it is small; rounded up where asked."""
    percent = Fraction(probability) * 100
    place = 1 if percent >= 1 else math.ceil(-math.log10(percent)) + 1 if percent else 1
    scaled = percent * 10**place
    digits = math.ceil(scaled) if up else round(scaled)
    return f"{digits / 10:.1f}%" if place == 1 else f"{float(Fraction(digits, 10**place)):.2g}%"
