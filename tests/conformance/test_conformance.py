"""One suite over every registered mechanism: what it draws is what it states, and what it loses is what it claims.

The checks are those of ``hushquery.evaluate.conformance``; the second half of the file runs the same functions on
mechanisms that are broken on purpose, because a check that can't fail is worth nothing.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hushquery
from hushquery.evaluate import conformance
from hushquery.evaluate.audit import audit
from hushquery.evaluate.conformance import (
    BUDGETS,
    CHECKS,
    EPSILONS,
    Worlds,
    budget_findings,
    estimate_findings,
    law_findings,
    loss_findings,
    pair_findings,
    pure_findings,
    rate_findings,
    repeat_findings,
    tight_findings,
)
from hushquery.evaluate.controls import CONTROLS
from hushquery.noise.mechanisms import GaussianCounts, LaplaceCounts, LaplaceThreshold
from hushquery.privacy.registry import Mechanism, Pair, find, hockey_stick, names
from statistical import ALPHA, FEWEST_FOR_Z, SEED, count, number

EPSILON, DELTA = Fraction(3), Fraction(1, 1000)


# ---- the checks, which are part of the product (``hushquery audit FILE.py:Class --conformance``) -------------------


def check_law(mechanism):
    none_of(law_findings(mechanism))


def check_rates(mechanism):
    none_of(rate_findings(mechanism, SEED), checks=2 * len(worlds_of(mechanism)))


def check_loss(mechanism, epsilons):
    none_of(loss_findings(mechanism, epsilons))


def check_pure(mechanism):
    none_of(pure_findings(mechanism))


def check_tight(mechanism, epsilon):
    none_of(tight_findings(mechanism, epsilon))


def check_estimates(mechanism):
    columns = sum(len(mechanism.truth(world) or ()) for world in worlds_of(mechanism))
    none_of(estimate_findings(mechanism, SEED), checks=2 * columns)


def check_repeatable(mechanism):
    none_of(repeat_findings(mechanism))


def worlds_of(mechanism):
    return {world for pair in mechanism.pairs() for world in (pair.left, pair.right)}


def none_of(findings, checks=0):
    """Nothing is found; comparisons of runs with a law count for the false-alarm rate of a whole run."""
    count(checks)
    found = list(findings)
    assert not found, "\n".join(found)


def test_checks_of_the_product_keep_the_false_alarm_rate_of_the_tests():
    assert conformance.ALPHA == ALPHA
    assert conformance.RUNS >= FEWEST_FOR_Z


# ---- every registered mechanism ------------------------------------------------------------------------------------


@cache
def built(name):
    return find(name).calibrate(EPSILON, DELTA)


EVERY = pytest.mark.parametrize("name", names())


@EVERY
def test_law_is_a_law(name):
    check_law(built(name))


@EVERY
def test_runs_follow_the_law_at_every_output(name):
    check_rates(built(name))


@EVERY
def test_claimed_loss_covers_the_exact_one_on_every_pair(name):
    check_loss(built(name), EPSILONS)


@EVERY
def test_pure_claims_bound_every_ratio(name):
    check_pure(built(name))


@EVERY
def test_claimed_loss_is_the_exact_one_on_the_worst_pair(name):
    check_tight(built(name), EPSILON)


@EVERY
def test_unbiased_with_the_stated_variance(name):
    check_estimates(built(name))


@EVERY
def test_same_bits_same_output(name):
    check_repeatable(built(name))


@EVERY
def test_calibrated_mechanisms_fit_the_budgets_they_were_built_for(name):
    assert len(BUDGETS) == 6
    none_of(budget_findings(find(name)))


@EVERY
def test_pairs_are_different_worlds_with_names_of_their_own(name):
    none_of(pair_findings(built(name)))


# ---- nothing unregistered ------------------------------------------------------------------------------------------


def subclasses(cls):
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_mechanism_of_the_package_is_registered():
    for module in pkgutil.walk_packages(hushquery.__path__, "hushquery."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {
        cls
        for cls in subclasses(Mechanism)
        if cls.__module__.startswith("hushquery.")
        and not cls.__module__.startswith("hushquery.evaluate.controls")
        and not inspect.isabstract(cls)
    }
    assert found == {find(name) for name in names()}


def test_registered_names_are_those_of_pyproject_and_of_the_classes():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(project["entry-points"]["hushquery.mechanisms"]) == names(), "install the package again"
    for name in names():
        assert find(name).name == name


@EVERY
def test_registered_mechanisms_are_ours_and_say_what_they_guarantee(name):
    cls = find(name)
    assert cls.__module__.startswith("hushquery.")
    for section in ("**Guarantee:**", "**Estimator:**", ">>> "):
        assert section in cls.__doc__, section
    assert cls.summary
    assert cls.kind in ("mechanism", "selector", "randomizer")


def test_hockey_stick_of_the_registry_is_the_one_used_here():
    mechanism = built("laplace-threshold")
    for pair in mechanism.pairs():
        worlds, left, right = Worlds(mechanism, pair), mechanism.law(pair.left), mechanism.law(pair.right)
        for epsilon in (0.0, 1.0, 3.0):
            both = max(hockey_stick(left, right, epsilon), hockey_stick(right, left, epsilon))
            assert both == pytest.approx(worlds.divergence(epsilon), abs=1e-14)


# ---- negative controls: the checks can fail ------------------------------------------------------------------------

#: Generous, so that a few hundred thousand runs tell even a slightly wrong threshold from an honest one.
WEAK = Fraction(1), Fraction(1, 50)


@pytest.mark.parametrize("control", CONTROLS)
def test_exact_loss_convicts_every_negative_control(control):
    broken = CONTROLS[control](*WEAK)
    check_law(broken)
    with pytest.raises(AssertionError, match="at epsilon 1"):
        check_loss(broken, [WEAK[0]])


@pytest.mark.parametrize("control", CONTROLS)
def test_negative_controls_run_what_their_law_says(control):
    """So that what convicts them is their claim, not a mistake in the control."""
    check_rates(CONTROLS[control](*WEAK))


@pytest.mark.parametrize("control", CONTROLS)
def test_audit_flags_every_negative_control(control):
    broken = CONTROLS[control](*WEAK)
    result = audit(broken, WEAK[0], broken.loss.delta(WEAK[0]), runs=200_000, seed=number("control", control))
    assert result.flagged
    assert result.lower_bound > 1


@pytest.mark.parametrize("name", names())
def test_audit_of_the_same_size_flags_no_honest_mechanism(name):
    """At the same budget and size; a bound that fails once in 1e9 keeps the promise of a rare false alarm."""
    honest = find(name).calibrate(*WEAK)
    result = audit(honest, WEAK[0], WEAK[1], runs=200_000, seed=number("honest", name), confidence=1 - 1e-9)
    assert not result.flagged


class Sabotage(Mechanism):
    """An honest mechanism of which one method is exchanged."""

    name = "sabotage"
    summary = "a negative control of this suite"

    def __init__(self, honest, **exchanged):
        self.honest, self.exchanged = honest, exchanged

    @classmethod
    def calibrate(cls, epsilon, delta):
        raise TypeError(epsilon, delta)

    @property
    def loss(self):
        return self.exchanged.get("loss", self.honest.loss)

    def pairs(self):
        return self.exchanged.get("pairs", self.honest.pairs)()

    def run(self, world, n, bits):
        return self.exchanged.get("run", self.honest.run)(world, n, bits)

    def law(self, world):
        return self.exchanged.get("law", self.honest.law)(world)

    def truth(self, world):
        return self.exchanged.get("truth", self.honest.truth)(world)

    def variance(self, world):
        return self.exchanged.get("variance", self.honest.variance)(world)


HONEST = LaplaceCounts.calibrate(*WEAK)
ONE_TENTH_LESS = LaplaceCounts.calibrate(Fraction(11, 10), DELTA)


def clipped(world, n, bits):
    out = HONEST.run(world, n, bits)
    return np.minimum(out, world[0] + 6)


def stubborn(world, n, bits):
    return HONEST.run(world, n, bits.__class__("always the same"))


def forgetful(world):
    law = dict(HONEST.law(world))
    del law[max(law, key=law.get)]
    return law


BROKEN = {
    "noise a tenth too small": (check_rates, Sabotage(HONEST, run=ONE_TENTH_LESS.run)),
    "a tail that is clipped at 6 scales": (check_rates, Sabotage(HONEST, run=clipped)),
    "a law that forgets an outcome": (check_law, Sabotage(HONEST, law=forgetful)),
    "off by one": (check_rates, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b) + 1)),
    "a biased truth": (check_estimates, Sabotage(HONEST, truth=lambda world: [world[0] + 0.05])),
    "a variance half a per cent off": (
        check_estimates,
        Sabotage(HONEST, variance=lambda _: [HONEST.law_of_noise.variance * 1.005]),
    ),
    "runs of too small a noise": (check_estimates, Sabotage(HONEST, run=ONE_TENTH_LESS.run)),
    "bits of its own": (check_repeatable, Sabotage(HONEST, run=stubborn)),
    "a claim a tenth too low": (lambda m: check_loss(m, [1]), Sabotage(ONE_TENTH_LESS, loss=HONEST.loss)),
    "a ratio a tenth too large": (check_pure, Sabotage(ONE_TENTH_LESS, loss=HONEST.loss)),
    "a claim that is not tight": (
        lambda m: check_tight(m, 1),
        Sabotage(HONEST, loss=ONE_TENTH_LESS.loss),
    ),
    "a Gaussian claim that is not tight": (
        lambda m: check_tight(m, 1),
        Sabotage(GaussianCounts.calibrate(*WEAK), loss=GaussianCounts.calibrate(Fraction(11, 10), WEAK[1]).loss),
    ),
    "only harmless pairs": (
        lambda m: check_tight(m, 1),
        Sabotage(LaplaceThreshold.calibrate(*WEAK), pairs=lambda: LaplaceThreshold.calibrate(*WEAK).pairs()[1:2]),
    ),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_each_check_can_fail(defect):
    check, mechanism = BROKEN[defect]
    with pytest.raises(AssertionError):
        check(mechanism)


def test_honest_stand_in_passes_every_check():
    mechanism = Sabotage(HONEST)
    check_law(mechanism)
    check_rates(mechanism)
    check_loss(mechanism, EPSILONS)
    check_pure(mechanism)
    check_tight(mechanism, 1)
    check_estimates(mechanism)
    check_repeatable(mechanism)


def test_every_check_is_one_that_the_command_runs():
    known = {check.__name__ for check in CHECKS.values()} | {"budget_findings"}
    assert known == {name for name in conformance.__all__ if name.endswith("_findings")}


class Spendthrift(LaplaceCounts):
    """Calibrated for twice the budget."""

    @classmethod
    def calibrate(cls, epsilon, delta):
        return super().calibrate(2 * epsilon, delta)


class Miser(LaplaceCounts):
    """Calibrated for half the budget."""

    @classmethod
    def calibrate(cls, epsilon, delta):
        return super().calibrate(epsilon / 2, delta)


class Lawless(LaplaceCounts):
    """Does not know its law."""

    law = Mechanism.law


@pytest.mark.parametrize("cls", [Spendthrift, Miser])
def test_a_budget_that_is_not_the_one_asked_for_is_found(cls):
    assert len(list(budget_findings(cls))) == len(BUDGETS)


def test_without_a_law_only_the_budget_and_the_pairs_can_be_checked():
    holds = {finding.check: finding.holds for finding in conformance.conformance(Lawless)}
    assert [check for check, held in holds.items() if held] == [
        "calibrated mechanisms fit their budget",
        "pairs are different worlds",
    ]


@pytest.mark.parametrize(
    "pairs", [[], [Pair("same", (10,), (10,))], [Pair("one name", (10,), (11,)), Pair("one name", (10,), (9,))]]
)
def test_pairs_that_are_no_pairs_are_found(pairs):
    assert len(list(pair_findings(Sabotage(HONEST, pairs=lambda: pairs)))) == 1


UNSTATED = {
    "floats": (repeat_findings, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b).astype(float))),
    "a truth too many": (estimate_findings, Sabotage(HONEST, truth=lambda world: [world[0], 1.0])),
    "a variance without a truth": (estimate_findings, Sabotage(HONEST, truth=lambda _: None)),
    "a negative chance": (law_findings, Sabotage(HONEST, law=lambda _: {(0,): 1.5, (1,): -0.5})),
    "outputs of two lengths": (law_findings, Sabotage(HONEST, law=lambda _: {(0,): 0.5, (1, 1): 0.5})),
}


@pytest.mark.parametrize("defect", UNSTATED)
def test_what_contradicts_itself_is_found(defect):
    check, mechanism = UNSTATED[defect]
    assert list(check(mechanism))
    assert not list(check(HONEST))
