"""A budget is two exact numbers: nothing gets lost or added on the way, and nothing is printed too small."""

from __future__ import annotations

import math
import re
import warnings
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushquery import statistics
from hushquery.core.budget import Budget, PrivacyWarning, format_delta, format_epsilon
from hushquery.errors import UsageError

QUICK = settings(max_examples=150, deadline=None)

epsilons = st.fractions(min_value=0, max_value=1000)
deltas = st.fractions(min_value=0, max_value=1).filter(lambda d: d < 1)


def test_ten_tenths_are_one():
    assert sum(Budget(0.1).epsilon for _ in range(10)) == 1
    assert Budget("0.3", "1e-6") == Budget(0.3, 1e-6) == Budget(Decimal("0.3"), Fraction(1, 10**6))
    assert hash(Budget(0.5)) == hash(Budget("1/2"))


def test_a_budget_is_given_whole_or_in_numbers():
    whole = Budget(1, 1e-6)
    assert Budget.of(whole) is whole
    assert Budget.of(epsilon="1", delta="1e-6") == whole
    assert Budget.of(None, 2) == Budget(2, 0)
    for wrong in ({}, {"delta": 0}, {"budget": whole, "epsilon": 1}, {"budget": whole, "delta": 0}, {"budget": 1}):
        with pytest.raises(UsageError, match="privacy budget"):
            Budget.of(**wrong)


def test_ln_in_a_budget_never_grows():
    assert Budget("ln(10)").epsilon <= Fraction("2.302585092994045684017991454684364")
    assert math.isclose(Budget("ln(10)").epsilon, math.log(10))


def test_there_is_no_default_budget_anywhere():
    with pytest.raises(TypeError):
        Budget()
    with pytest.raises(UsageError, match="budget is missing"):
        statistics.plan_count({"user": [1]}, unit="user", population="a lab")


def test_a_budget_cannot_be_changed():
    budget = Budget(1)
    with pytest.raises(AttributeError):
        budget.epsilon = Fraction(2)


NO_NUMBERS = [math.nan, math.inf, -math.inf, "nan", "inf", "", "many", "1/0", True, None, [], object()]


@pytest.mark.parametrize("epsilon", [*NO_NUMBERS, -1, -1e-300, "-1/3", "ln(0.5)", 1001, "1e30", 10**400])
def test_epsilon_must_mean_something(epsilon):
    with pytest.raises(UsageError, match="epsilon") as refused:
        Budget(epsilon)
    assert refused.value.fix


@pytest.mark.parametrize("delta", [*NO_NUMBERS, -1, "-1e-9", 1, "1", 1.0, 2, Fraction(10, 9)])
def test_delta_must_be_a_probability_below_one(delta):
    with pytest.raises(UsageError, match="delta") as refused:
        Budget(1, delta)
    assert refused.value.fix


def test_the_ends_of_the_ranges_are_allowed():
    assert Budget(0, 0).epsilon == 0
    assert Budget(1000, "0.999999999999999999999").delta < 1


def test_usual_budgets_cause_no_concern():
    assert Budget(5, "1e-6").concerns(users=1_000_000) == []  # exactly one over the number of users
    assert Budget(5, "1e-4").concerns() == []  # nobody said how many there are


def test_a_large_epsilon_is_a_concern():
    (concern,) = Budget("5.01").concerns()
    assert "5.01" in concern
    assert "150 times" in concern  # e^5.01 = 149.9...


@given(st.fractions(min_value=Fraction(501, 100), max_value=Fraction(1399, 100)))
@example(Fraction(6))
@QUICK
def test_the_growth_of_the_odds_is_not_played_down(epsilon):
    (concern,) = Budget(epsilon).concerns()
    stated = int(re.search(r"grow ([\d,]+) times", concern)[1].replace(",", ""))
    assert math.exp(epsilon) <= stated <= math.exp(epsilon) + 1 + 1e-6


def test_above_fourteen_a_million_is_enough_said():
    assert "more than a million" in Budget(15).concerns()[0]
    assert math.exp(14) > 1_000_000


def test_a_delta_above_one_over_the_users_is_a_concern():
    (concern,) = Budget(1, "1e-3").concerns(users=5000)
    assert "5,000 users" in concern
    assert "publishing 5 people" in concern
    assert concern.endswith("use at most 1e-06")  # as `suggested_delta` says everywhere


@pytest.mark.parametrize(("delta", "people"), [("0.5", "5,000"), ("1e-3", "10"), ("0.00010001", "2")])
@pytest.mark.parametrize("users", [None, 1])
def test_a_large_delta_is_a_concern_however_many_users_there_are(delta, people, users):
    (concern,) = Budget(1, delta).concerns(users)
    assert "with this probability everything of a person may be published" in concern
    assert f"of 10,000 people, publishing {people} in full" in concern


def test_a_delta_of_a_tenth_publishes_nothing():
    Budget(1, "0.0999").check_publishable()
    for delta in ("0.1", "0.5"):
        with pytest.raises(UsageError, match="too large to publish") as refused:
            Budget(1, delta).check_publishable()
        assert "1e-6" in refused.value.fix


def test_concerns_become_warnings():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Budget(6, "0.1").warn(users=100)
        Budget(1, "1e-9").warn(users=100)
    assert [w.category for w in seen] == [PrivacyWarning, PrivacyWarning]


positive = st.one_of(
    st.fractions(min_value=Fraction(1, 10**30), max_value=10**7),
    st.builds(lambda n, e: Fraction(n) / 10**e, st.integers(1, 10**6), st.integers(0, 500)),
    st.floats(min_value=5e-324, max_value=1e300).map(Fraction),
).filter(bool)

# A double that stands for a decimal (0.1 + 0.2 for 0.3) prints as that decimal: the only tolerance there is.
NEARLY = 1 - Fraction(1, 10**13)


@given(positive)
@example(Fraction(0.1 + 0.2))
@example(Fraction(9995, 1000))
@example(Fraction(99999, 10000))
@example(Fraction(1, 10**400))
@example(Fraction(5e-324))
@QUICK
def test_printing_never_rounds_in_our_favour_and_never_to_zero(value):
    for text, digits in ((format_epsilon(value), 3), (format_delta(value), 2)):
        shown = Fraction(text)
        assert shown > 0
        assert shown >= value * NEARLY
        assert shown <= value * (1 + Fraction(1, 10 ** (digits - 1)))
        assert not re.fullmatch(r"0(\.0*)?(e[+-]?\d+)?", text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (0.5, "0.5"), (Fraction(1, 3), "0.334"), (2.0001, "2.01"), (1e-5, "1e-05"), (12.34, "12.4")],
)
def test_epsilon_is_printed_with_three_digits(value, text):
    assert format_epsilon(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1e-6, "1e-06"), (1.01e-6, "1.1e-06"), (0.25, "2.5e-01")])
def test_delta_is_printed_with_two_digits(value, text):
    assert format_delta(value) == text


def test_a_budget_prints_both_numbers():
    assert str(Budget("1/3", "1e-6")) == "epsilon 0.334, delta 1e-06"
    assert repr(Budget(0.25, 0)) == "Budget(0.25, 0.0)"
    assert "0e" not in str(Budget(1, "1e-400"))
