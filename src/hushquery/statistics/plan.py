"""StatisticPlan: a question, its noise and its cost, before anything has run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hushquery.core.budget import Budget, format_delta, format_epsilon
from hushquery.core.estimates import Estimates
from hushquery.core.gaussian import mu_for, sigma_for
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.core.thresholds import laplace_scale
from hushquery.core.unit import Unit
from hushquery.engine import execute, no_such_column
from hushquery.errors import UsageError
from hushquery.log.sources import read_table
from hushquery.noise.bits import Bits
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import sampler
from hushquery.plan import Charge, Paid, Plan
from hushquery.statistics.queries import Question

__all__ = ["Noise", "PerUnit", "StatisticPlan", "noise_for"]


@dataclass(frozen=True)
class Noise:
    """Integer noise for one question: its law in grid steps, what a step is worth, and its cost."""

    law: DiscreteLaplace | RoundedGaussian
    step: Fraction
    loss: Loss
    name: str

    rounds: bool = False

    @property
    def stderr(self) -> float:
        """The standard error in the units of the answer, rounding to the grid included."""
        return float(self.step) * math.sqrt(self.law.variance + (1 / 12 if self.rounds else 0.0))

    def added(self, truth: Sequence[int], bits: Bits) -> list[int]:
        """Add a fresh draw to each of some answers, in grid steps."""
        return [t + int(z) for t, z in zip(truth, sampler(self.law).draw(len(truth), bits), strict=True)]

    def half_width(self, level: float) -> float:
        """How far the noise reaches with probability ``level``, in the units of the answer, rounding included."""
        return float(self.step) * (self.law.half_width(level) + (0.5 if self.rounds else 0.0))


@dataclass(frozen=True)
class PerUnit:
    """The noise of a sum, shared among a public number of units: that of their average."""

    noise: Noise
    units: int

    def half_width(self, level: float) -> float:
        """How far the noise reaches with probability ``level``."""
        return self.noise.half_width(level) / self.units


def noise_for(questions: Sequence[Question], unit: Unit, budget: Budget, kind: str = "auto") -> tuple[Noise, ...]:
    """Choose the noise of some questions that share a budget equally; data-free.

    Laplace noise splits epsilon, Gaussian noise splits mu^2; ``auto`` takes the one with the smaller product of
    variances.
    """
    if kind not in ("auto", "laplace", "gaussian"):
        raise UsageError(f"no noise is called {kind!r}", fix="Give laplace, gaussian or auto")
    if budget.epsilon <= 0 or (kind == "gaussian" and budget.delta <= 0):
        raise UsageError(
            "this budget buys no noise of that kind", fix="Give epsilon > 0, and for Gaussian noise delta > 0"
        )
    bounds = [question.bounds(unit.relation) for question in questions]
    choices = []
    if kind != "gaussian":
        share = budget.epsilon / len(questions)
        scales = [laplace_scale(int(bound.l1), share) for bound in bounds]
        choices.append(
            tuple(
                Noise(
                    DiscreteLaplace(b), question.step, Loss(pure=(bound.l1 / b,)), "discrete-laplace", question.rounds
                )
                for question, bound, b in zip(questions, bounds, scales, strict=True)
            )
        )
    if kind == "gaussian" or (kind == "auto" and budget.delta > 0):
        mu_squared = mu_for(budget.epsilon, budget.delta) ** 2 / len(questions)
        sigmas = [sigma_for(bound.l2_squared, mu_squared) for bound in bounds]
        choices.append(
            tuple(
                Noise(
                    RoundedGaussian(s),
                    question.step,
                    Loss(mu_squared=bound.l2_squared / s**2),
                    "gaussian",
                    question.rounds,
                )
                for question, bound, s in zip(questions, bounds, sigmas, strict=True)
            )
        )
    return min(choices, key=lambda noises: math.prod(noise.law.variance for noise in noises))


@dataclass(frozen=True)
class StatisticPlan(Plan[Estimates]):
    """Questions to one table, each with its noise; nothing has run and no row has been read.

    ``finish`` turns the noisy answers into the table of estimates that is returned; it sees nothing else.
    """

    data: Any = field(repr=False)
    unit: Unit
    population: str
    budget: Budget
    questions: tuple[Question, ...]
    noises: tuple[Noise, ...]
    finish: Callable[[list[Estimates]], Estimates] = field(repr=False)
    level: float = 0.95

    @property
    def guarantee(self) -> Guarantee:
        """What running the plan promises, from the exact parameters of its noise."""
        steps = [
            Step(
                n.name,
                f"{q.describe()}; {q.bounds(self.unit.relation).because}; noise of standard error {n.stderr:.4g}",
                n.loss,
            )
            for q, n in zip(self.questions, self.noises, strict=True)
        ]
        return Guarantee.of(self.population, "curator", self.unit, steps, delta=self.budget.delta)

    def explain(self) -> str:
        """Describe every step, its bound and its cost; generated from the objects that run."""
        lines = [f'Plan for "{self.population}", protecting {self.unit}:']
        for i, (question, noise) in enumerate(zip(self.questions, self.noises, strict=True), 1):
            bounds = question.bounds(self.unit.relation)
            lines += [
                f"  {i}. {question.describe()}",
                f"     bound: {bounds.because} (L1 {float(bounds.l1 * question.step):g})",
                f"     noise: {noise.name}, standard error {noise.stderr:.4g}; costs epsilon "
                f"{format_epsilon(noise.loss.epsilon(self.budget.delta))} at delta {format_delta(self.budget.delta)}",
            ]
        lines.append(f"  in all: {self.guarantee.summary()}")
        return "\n".join(lines)

    def _ask(self) -> dict[str, Any]:
        types = {self.unit.name: "string"}
        for question in self.questions:
            types |= question.types()
        table = read_table(self.data, types=types)
        if self.unit.name not in table.columns:
            raise no_such_column(self.unit.name, table.columns, "it is needed to bound what one unit contributes")
        # A row that belongs to nobody can't be bounded.
        rows = table.filter(table[self.unit.name].notnull())
        return {f"question {n}": question.ask(rows, self.unit) for n, question in enumerate(self.questions, 1)}

    def _charges(self) -> list[Charge]:
        what = "; ".join(question.describe() for question in self.questions)
        return [Charge(self.population, self.unit.relation, self.loss, what, self.budget)]

    def _read(self, paid: Paid) -> Estimates:
        measured = []
        for question, noise, expression in zip(self.questions, self.noises, paid.asked.values(), strict=True):
            truth = question.read(execute(expression))
            values = [float(v * question.step) for v in noise.added(truth, paid.bits)]
            measured.append(
                Estimates.raw(
                    list(question.labels),
                    values,
                    [noise.stderr] * len(values),
                    level=self.level,
                    guarantee=paid.guarantee,
                    noise=noise,
                )
            )
        return self.finish(measured)
