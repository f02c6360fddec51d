"""One suite over every registered mechanism: what it draws is what it states, and what it loses is what it claims.

The checks are those of ``hushquery.auditing.conformance``. They are run on the controls of the audit too, and in
test_conformance_broken.py on mechanisms that are broken in other ways: a check that can't fail is worth nothing.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from functools import cache
from pathlib import Path

import pytest

import hushquery
from conformance.checks import (
    DELTA,
    EPSILON,
    WEAK,
    check_end_to_end,
    check_estimates,
    check_law,
    check_loss,
    check_pure,
    check_rates,
    check_repeatable,
    check_tight,
    none_of,
)
from controls import CONTROLS
from hushquery.auditing import conformance
from hushquery.auditing.attacks import audit
from hushquery.auditing.conformance import (
    BUDGETS,
    EPSILONS,
    Laws,
    budget_findings,
    pair_findings,
    shape_findings,
)
from hushquery.core.registry import Mechanism, find, names
from statistical import ALPHA, FEWEST_FOR_Z, hockey_stick, number


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
def test_outputs_law_and_estimates_have_their_shapes(name):
    none_of(shape_findings(built(name)))


@EVERY
def test_runs_follow_the_law_at_every_output(name):
    check_rates(built(name))


@EVERY
def test_all_of_what_publishes_follows_the_law_too(name):
    check_end_to_end(built(name))


def test_every_mechanism_runs_end_to_end_but_those_that_are_parts_of_others():
    """``discrete-laplace`` and ``gaussian`` are noise on counts, whosever they are; a sketch is never published."""
    parts = {name for name in names() if find(name).end_to_end is Mechanism.end_to_end}
    assert parts == {"discrete-laplace", "gaussian", "sketch"}


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
        cls for cls in subclasses(Mechanism) if cls.__module__.startswith("hushquery.") and not inspect.isabstract(cls)
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


def test_the_divergence_of_the_checks_is_the_hockey_stick():
    mechanism = built("laplace")
    for pair in mechanism.pairs():
        datasets, left, right = Laws(mechanism, pair), mechanism.law(pair.left), mechanism.law(pair.right)
        for epsilon in (0.0, 1.0, 3.0):
            both = max(hockey_stick(left, right, epsilon), hockey_stick(right, left, epsilon))
            assert both == pytest.approx(datasets.divergence(epsilon), abs=1e-14)


# ---- negative controls: the checks can fail ------------------------------------------------------------------------

#: Runs of each dataset in the audits of broken and of honest mechanisms.
SIZE = 100_000


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
    result = audit(broken, WEAK[0], broken.loss.delta(WEAK[0]), runs=SIZE, seed=number("control", control))
    assert result.flagged
    assert result.lower_bound > 1


def check_honest(name, runs):
    """A bound that fails once in 1e9 keeps the promise of a rare false alarm."""
    honest = find(name).calibrate(*WEAK)
    result = audit(honest, WEAK[0], WEAK[1], runs=runs, seed=number("honest", name), confidence=1 - 1e-9)
    assert not result.flagged


@EVERY
def test_audit_flags_no_honest_mechanism(name):
    check_honest(name, SIZE // 5)


@pytest.mark.prove
@EVERY
def test_audit_of_the_same_size_flags_no_honest_mechanism(name):
    """At the budget and size at which every control is flagged."""
    check_honest(name, SIZE)
