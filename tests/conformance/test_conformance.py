"""One suite over every registered mechanism: what it draws is what it states, and what it loses is what it claims.

Each check is a function that raises; the second half of the file runs the same functions on mechanisms that are broken
on purpose, because a check that can't fail is worth nothing.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import tomllib
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hushquery
from hushquery.evaluate.audit import audit
from hushquery.evaluate.controls import CONTROLS
from hushquery.noise.mechanisms import GaussianCounts, LaplaceCounts, LaplaceThreshold
from hushquery.privacy.registry import Mechanism, find, hockey_stick, names
from statistical import bits, every_position, fit, mean, moments, number, tally, variance

EPSILON, DELTA = Fraction(3), Fraction(1, 1000)
RUNS = 120_000
#: What enumeration may be off by: unlikely outcomes are lumped, and doubles are summed.
SLACK = 1e-12
#: How near the exact epsilon must come to the claimed one where a mechanism says that it is tight. Integer noise is a
#: rounding of the continuous noise that Gaussian curves are for, so these lose a little.
TIGHT = 0.94
PURE_TIGHT = 1 - 1e-9


# ---- the checks ----------------------------------------------------------------------------------------------------


class Worlds:
    """The exact laws of a pair of worlds, over the same outcomes."""

    def __init__(self, mechanism, pair):
        left, right = mechanism.law(pair.left), mechanism.law(pair.right)
        outcomes = list(dict.fromkeys([*left, *right]))
        self.left = np.array([left.get(o, 0.0) for o in outcomes])
        self.right = np.array([right.get(o, 0.0) for o in outcomes])

    def both(self):
        return (self.left, self.right), (self.right, self.left)

    def divergence(self, epsilon):
        """The hockey-stick divergence in the worse direction."""
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in self.both())

    def largest_ratio(self):
        """The largest log-ratio among outcomes that are not lumped at the edge of the enumeration."""
        worst = 0.0
        for p, q in self.both():
            likely = p > 1e-10
            with np.errstate(divide="ignore"):
                worst = max(worst, float(np.log(p[likely] / q[likely]).max()))
        return worst


def distinct_worlds(mechanism):
    return list(dict.fromkeys(world for pair in mechanism.pairs() for world in (pair.left, pair.right)))


def check_law(mechanism):
    """Probabilities, and all of them."""
    for world in distinct_worlds(mechanism):
        law = mechanism.law(world)
        assert law is not None
        assert min(law.values()) >= 0
        assert math.fsum(law.values()) == pytest.approx(1, abs=SLACK)
        assert len({len(outcome) for outcome in law}) == 1


def check_rates(mechanism):
    """Runs follow the law at every output."""
    for i, world in enumerate(distinct_worlds(mechanism)):
        seen = tally(mechanism.run(world, RUNS, bits("rates", mechanism.name, i)))
        law = mechanism.law(world)
        every_position(seen, law)
        if sum(p * RUNS >= 20 for p in law.values()) > 1:
            fit(seen, law)


def check_loss(mechanism, epsilons):
    """The claim covers every pair, in both directions, at every epsilon."""
    for pair in mechanism.pairs():
        worlds = Worlds(mechanism, pair)
        for epsilon in epsilons:
            true, claimed = worlds.divergence(float(epsilon)), mechanism.loss.delta(epsilon)
            assert true <= claimed + SLACK, (
                f"{pair.name}: delta {true:.4g} at epsilon {float(epsilon):g}, not {claimed:.4g}"
            )


def check_pure(mechanism):
    """Where no delta is claimed, no output is more than e^epsilon times likelier."""
    if mechanism.loss.is_pure:
        for pair in mechanism.pairs():
            assert Worlds(mechanism, pair).largest_ratio() <= mechanism.loss.epsilon(0) * (1 + 1e-6), pair.name


def check_tight(mechanism, epsilon):
    """On the worst pair, the exact epsilon at the claimed delta is nearly the claimed one."""
    worlds = [Worlds(mechanism, pair) for pair in mechanism.pairs()]
    if mechanism.loss.is_pure:
        assert max(w.largest_ratio() for w in worlds) >= mechanism.loss.epsilon(0) * PURE_TIGHT
        return
    delta = mechanism.loss.delta(epsilon)
    assert max(w.divergence(TIGHT * float(epsilon)) for w in worlds) >= delta


def check_estimates(mechanism):
    """The mean is the truth and the variance the stated one: in the law exactly, in runs within chance."""
    for i, world in enumerate(distinct_worlds(mechanism)):
        truth, stated = mechanism.truth(world), mechanism.variance(world)
        if truth is None:
            assert stated is None
            continue
        law = mechanism.law(world)
        draws = mechanism.run(world, RUNS, bits("estimates", mechanism.name, i))
        assert draws.shape == (RUNS, len(truth))
        for column, value in enumerate(truth):
            marginal = {}
            for outcome, p in law.items():
                marginal[outcome[column]] = marginal.get(outcome[column], 0.0) + p
            centre, spread, fourth = moments(marginal)
            assert centre == pytest.approx(value, abs=1e-9)
            mean(draws[:, column], value, spread, f"column {column}")
            if stated is not None:
                assert spread == pytest.approx(stated[column], rel=1e-8)
                variance(draws[:, column], stated[column], value, fourth, f"column {column}")


def check_repeatable(mechanism):
    """All randomness comes from the bits."""
    for world in distinct_worlds(mechanism):
        law = mechanism.law(world)
        one, again, other = (mechanism.run(world, 400, bits("repeat", seed)) for seed in (1, 1, 2))
        assert one.dtype == np.int64
        assert np.array_equal(one, again)
        if max(law.values()) < 0.9:
            assert not np.array_equal(one, other)
        assert len(mechanism.run(world, 0, bits("repeat"))) == 0


# ---- every registered mechanism ------------------------------------------------------------------------------------


@cache
def built(name):
    return find(name).calibrate(EPSILON, DELTA)


EPSILONS = [Fraction(0), Fraction(1, 2), Fraction(2), EPSILON, Fraction(4), Fraction(9)]
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
    mechanism = built(name)
    if mechanism.tight:
        check_tight(mechanism, EPSILON)


@EVERY
def test_unbiased_with_the_stated_variance(name):
    check_estimates(built(name))


@EVERY
def test_same_bits_same_output(name):
    check_repeatable(built(name))


@EVERY
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        ("1/10", "1/1000000"),
        ("1", "1/100000"),
        ("23/10", "1/100000"),
        ("3", "1/1000"),
        ("8", "1/1000000000"),
        ("1/3", "1/7"),
    ],
)
def test_calibrated_mechanisms_fit_the_budget_they_were_built_for(name, epsilon, delta):
    mechanism = find(name).calibrate(Fraction(epsilon), Fraction(delta))
    assert mechanism.loss.fits(Fraction(epsilon), Fraction(delta))
    # ... and use it: most of the epsilon is spent.
    spent = mechanism.loss.epsilon(0 if mechanism.loss.is_pure else Fraction(delta))
    assert spent >= 0.8 * float(Fraction(epsilon))


@EVERY
def test_pairs_are_different_worlds_and_as_wide_as_the_output(name):
    mechanism = built(name)
    assert mechanism.pairs()
    assert len({pair.name for pair in mechanism.pairs()}) == len(mechanism.pairs())
    for pair in mechanism.pairs():
        assert pair.left != pair.right


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
