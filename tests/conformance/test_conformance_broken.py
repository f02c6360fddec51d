"""The checks of ``hushquery.auditing.conformance`` find what is broken on purpose, and say so instead of ending."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

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
)
from hushquery.auditing import conformance
from hushquery.auditing.conformance import (
    BUDGETS,
    CHECKS,
    EPSILONS,
    budget_findings,
    estimate_findings,
    law_findings,
    loss_findings,
    pair_findings,
    pure_findings,
    rate_findings,
    repeat_findings,
    shape_findings,
    tight_findings,
)
from hushquery.core.registry import Mechanism, Pair
from hushquery.noise.mechanisms import GaussianCounts, LaplaceCounts
from hushquery.statistics.mechanisms import ClampedSumOfRows


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

    def run(self, dataset, n, bits):
        return self.exchanged.get("run", self.honest.run)(dataset, n, bits)

    def end_to_end(self, dataset, bits):
        return self.exchanged.get("end_to_end", self.honest.end_to_end)(dataset, bits)

    def law(self, dataset):
        return self.exchanged.get("law", self.honest.law)(dataset)

    def truth(self, dataset):
        return self.exchanged.get("truth", self.honest.truth)(dataset)

    def variance(self, dataset):
        return self.exchanged.get("variance", self.honest.variance)(dataset)


HONEST = LaplaceCounts.calibrate(*WEAK)
ONE_TENTH_LESS = LaplaceCounts.calibrate(Fraction(11, 10), DELTA)


def clipped(dataset, n, bits):
    out = HONEST.run(dataset, n, bits)
    return np.minimum(out, dataset[0] + 6)


def stubborn(dataset, n, bits):
    return HONEST.run(dataset, n, bits.__class__("always the same"))


def forgetful(dataset):
    law = dict(HONEST.law(dataset))
    del law[max(law, key=law.get)]
    return law


def with_nan(dataset, of=ONE_TENTH_LESS):
    return {**of.law(dataset), (10**6,): math.nan}


class NoNumber(type(HONEST.loss)):
    """A loss that no number is known of."""

    def delta(self, _):
        return math.nan

    def epsilon(self, _):
        return math.nan


NO_NUMBER = NoNumber(pure=HONEST.loss.pure)

BROKEN = {
    "noise a tenth too small": (check_rates, Sabotage(HONEST, run=ONE_TENTH_LESS.run)),
    "noise a tenth too small, end to end only": (
        check_end_to_end,
        Sabotage(HONEST, end_to_end=lambda w, b: (ONE_TENTH_LESS.run(w, 100_000, b), HONEST.law(w))),
    ),
    "nothing, end to end": (
        check_end_to_end,
        Sabotage(HONEST, end_to_end=lambda w, b: (HONEST.run(w, 0, b), HONEST.law(w))),
    ),
    "no dataset, end to end": (check_end_to_end, Sabotage(HONEST, end_to_end=lambda *_: None)),
    "a tail that is clipped at 6 scales": (check_rates, Sabotage(HONEST, run=clipped)),
    "a law that forgets an outcome": (check_law, Sabotage(HONEST, law=forgetful)),
    "off by one": (check_rates, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b) + 1)),
    "a biased truth": (check_estimates, Sabotage(HONEST, truth=lambda dataset: [dataset[0] + 0.05])),
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
        Sabotage(ClampedSumOfRows.calibrate(*WEAK), pairs=lambda: [Pair("one row more", (), (("dot", 1),))]),
    ),
    "a law with a NaN": (check_law, Sabotage(HONEST, law=with_nan)),
    "rates of a law with a NaN": (check_rates, Sabotage(HONEST, law=lambda dataset: with_nan(dataset, HONEST))),
    "a claim too low, hidden by a NaN": (
        lambda m: check_loss(m, [1]),
        Sabotage(ONE_TENTH_LESS, loss=HONEST.loss, law=with_nan),
    ),
    "a NaN in the second dataset only": (
        lambda m: check_loss(m, [9]),
        Sabotage(HONEST, law=lambda dataset: HONEST.law(dataset) if dataset == (10,) else with_nan(dataset, HONEST)),
    ),
    "a ratio with a NaN": (check_pure, Sabotage(HONEST, law=lambda dataset: with_nan(dataset, HONEST))),
    "tight but for a NaN": (
        lambda m: check_tight(m, 1),
        Sabotage(HONEST, law=lambda dataset: with_nan(dataset, HONEST)),
    ),
    "a claim of NaN": (lambda m: check_loss(m, [1]), Sabotage(HONEST, loss=NO_NUMBER)),
    "a pure claim of NaN": (check_pure, Sabotage(HONEST, loss=NO_NUMBER)),
    "a tight claim of NaN": (lambda m: check_tight(m, 1), Sabotage(HONEST, loss=NO_NUMBER)),
    "a truth of NaN": (check_estimates, Sabotage(HONEST, truth=lambda _: [math.nan], variance=lambda _: None)),
    "a variance of NaN": (check_estimates, Sabotage(HONEST, variance=lambda _: [math.nan])),
    "moments of a law with a NaN": (check_estimates, Sabotage(HONEST, law=lambda dataset: with_nan(dataset, HONEST))),
    "bits of its own beside a NaN": (
        check_repeatable,
        Sabotage(HONEST, run=stubborn, law=lambda _: {(0,): 1.0, (1,): math.nan}),
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
    assert known == {name for name in vars(conformance) if name.endswith("_findings")}


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


class Unknown(LaplaceCounts):
    """Its loss is no number."""

    loss = type("Fits", (NoNumber,), {"fits": lambda *_: True})(pure=HONEST.loss.pure)


@pytest.mark.parametrize("cls", [Spendthrift, Miser, Unknown])
def test_a_budget_that_is_not_the_one_asked_for_is_found(cls):
    assert len(list(budget_findings(cls))) == len(BUDGETS)


def test_without_a_law_only_the_budget_and_the_pairs_can_be_checked():
    holds = {finding.check: finding.holds for finding in conformance.conformance(Lawless)}
    assert [check for check, held in holds.items() if held] == [
        "calibrated mechanisms fit their budget",
        "pairs are different datasets",
        "outputs, law and estimates have their shapes",
    ]


@pytest.mark.parametrize(
    "check",
    [
        law_findings,
        rate_findings,
        loss_findings,
        pure_findings,
        tight_findings,
        estimate_findings,
        repeat_findings,
    ],
)
def test_a_check_that_needs_the_law_says_that_there_is_none(check):
    assert set(check(Lawless.calibrate(EPSILON, DELTA))) == {
        "it does not know its law: give `law(dataset)`, the chance of every output"
    }


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [Pair("same", (10,), (10,))],
        [Pair("one name", (10,), (11,)), Pair("one name", (10,), (9,))],
        [Pair("lists", [10], [11])],
        [Pair("arrays", np.array([10, 1]), np.array([11, 1]))],
    ],
)
def test_pairs_that_are_no_pairs_are_found(pairs):
    assert len(list(pair_findings(Sabotage(HONEST, pairs=lambda: pairs)))) == 1


UNSTATED = {
    "floats": (shape_findings, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b).astype(float))),
    "a truth too many": (estimate_findings, Sabotage(HONEST, truth=lambda dataset: [dataset[0], 1.0])),
    "a variance without a truth": (estimate_findings, Sabotage(HONEST, truth=lambda _: None)),
    "a negative chance": (law_findings, Sabotage(HONEST, law=lambda _: {(0,): 1.5, (1,): -0.5})),
    "outputs of two lengths": (shape_findings, Sabotage(HONEST, law=lambda _: {(0,): 0.5, (1, 1): 0.5})),
    "outputs that are no tuples": (shape_findings, Sabotage(HONEST, law=lambda _: {0: 0.5, 1: 0.5})),
    "an empty law": (shape_findings, Sabotage(HONEST, law=lambda _: {})),
    "a chance that is no number": (shape_findings, Sabotage(HONEST, law=lambda _: {(0,): None})),
    "an infinite chance": (law_findings, Sabotage(HONEST, law=lambda _: {(0,): 1.0, (1,): math.inf})),
    "one dimension": (shape_findings, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b)[:, 0])),
    "a list": (shape_findings, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b).tolist())),
    "five rows": (shape_findings, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, n, b)[:5])),
    "at most a thousand rows": (rate_findings, Sabotage(HONEST, run=lambda w, n, b: HONEST.run(w, min(n, 1000), b))),
    "a truth that is no list": (shape_findings, Sabotage(HONEST, truth=lambda dataset: float(dataset[0]))),
    "a variance too few": (shape_findings, Sabotage(HONEST, variance=lambda _: [])),
    "pairs with one law": (loss_findings, Sabotage(HONEST, run=None, law=lambda _: HONEST.law((10,)))),
}


@pytest.mark.parametrize("defect", UNSTATED)
def test_what_contradicts_itself_is_found(defect):
    check, mechanism = UNSTATED[defect]
    assert list(check(mechanism))
    assert not list(check(HONEST))


NOT_CHECKED = ("not checked: mend first what is found above",)


class Flat(LaplaceCounts):
    """Gives one dimension."""

    def run(self, dataset, n, bits):
        return super().run(dataset, n, bits)[:, 0]


class Empty(LaplaceCounts):
    """Its law names no output."""

    def law(self, _):
        return {}


class Few(LaplaceCounts):
    """Gives five rows, however many are asked for."""

    def run(self, dataset, n, bits):
        return super().run(dataset, n, bits)[:5]


class Listed(LaplaceCounts):
    """Its datasets are lists."""

    def pairs(self):
        return [Pair("lists", [10], [11])]


class Alone(LaplaceCounts):
    """Has no pairs."""

    def pairs(self):
        return []


class Undefined(LaplaceCounts):
    """Adds noise for five times the epsilon that it claims, and one cell of its law is 0/0."""

    @classmethod
    def calibrate(cls, epsilon, delta):
        made = super().calibrate(5 * epsilon, delta)
        made.__dict__["claimed"] = LaplaceCounts.calibrate(epsilon, delta).loss
        return made

    @property
    def loss(self):
        return self.__dict__["claimed"]

    def law(self, dataset):
        return {**super().law(dataset), (10**6,): math.nan}


@pytest.mark.parametrize(
    ("cls", "first"),
    [
        (Listed, "pairs are different datasets"),
        (Alone, "pairs are different datasets"),
        (Flat, "outputs, law and estimates have their shapes"),
        (Empty, "outputs, law and estimates have their shapes"),
        (Few, "outputs, law and estimates have their shapes"),
        (Undefined, "the law is a law"),
    ],
)
def test_what_the_other_checks_need_is_checked_first_and_they_are_not_run_without_it(cls, first):
    findings = conformance.conformance(cls)
    at = [finding.check for finding in findings].index(first)
    assert all(finding.holds for finding in findings[:at])
    assert findings[at].found
    assert findings[at].found != NOT_CHECKED
    assert [finding.found for finding in findings[at + 1 :]] == [NOT_CHECKED] * (len(CHECKS) - at)


def test_a_mechanism_that_claims_nothing_may_have_pairs_with_one_law():
    same = Sabotage(HONEST, law=lambda _: HONEST.law((10,)), loss=type(HONEST.loss)())
    assert not list(loss_findings(same))
