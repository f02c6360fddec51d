"""Each sensitivity against brute force: all small data sets, all their neighbours, under both relations."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial

import pytest

from hushquery.core.budget import Relation
from hushquery.core.sensitivity import Bounds, checked_clamp, of_clamped_sum, of_counts, of_overlapping, of_rows
from hushquery.errors import UsageError

BOTH = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]


def worst(people, answer, relation, size=2):
    """The largest L1 and squared L2 change over all data sets of up to ``size`` people and their neighbours.

    ``people`` lists everything one person's data can be; ``answer`` maps a tuple of people to a tuple of numbers.
    """
    l1, l2 = Fraction(0), Fraction(0)
    for n in range(size + 1):
        for others in itertools.combinations_with_replacement(range(len(people)), n):
            rest = [people[i] for i in others]
            if relation is Relation.ADD_REMOVE:
                pairs = [(rest, [*rest, one]) for one in people]
            else:
                pairs = [([*rest, one], [*rest, other]) for one, other in itertools.combinations(people, 2)]
            for before, after in pairs:
                moves = [abs(Fraction(a) - b) for a, b in zip(answer(before), answer(after), strict=True)]
                l1, l2 = max(l1, sum(moves)), max(l2, sum(m * m for m in moves))
    return l1, l2


def check(sensitivity, people, answer, relation, *, tight=True):
    bounds = sensitivity(relation)
    assert isinstance(bounds, Bounds)
    assert bounds.because
    l1, l2 = worst(people, answer, relation)
    assert (l1, l2) == (bounds.l1, bounds.l2_squared) if tight else (l1 <= bounds.l1 and l2 <= bounds.l2_squared)


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_rows_of_each_user(relation, cap):
    check(lambda _: of_rows(cap), [0, 1, 2, 3, 4, 40], lambda data: (sum(min(cap, rows) for rows in data),), relation)


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("keys_per_user", [1, 2])
def test_a_histogram(relation, keys_per_user):
    keys = range(4)
    people = [frozenset(c) for n in range(keys_per_user + 1) for c in itertools.combinations(keys, n)]
    check(
        partial(of_counts, keys_per_user),
        people,
        lambda data: tuple(sum(k in held for held in data) for k in keys),
        relation,
    )


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("queries", [1, 2, 3, 5])
@pytest.mark.parametrize("at_most", [None, 1, 2, 4, 9])
def test_overlapping_counts(relation, queries, at_most):
    people = [met for met in itertools.product((0, 1), repeat=queries) if at_most is None or sum(met) <= at_most]
    answer = lambda data: tuple(sum(met[i] for met in data) for i in range(queries))  # noqa: E731
    bounds = of_overlapping(queries, at_most, relation)
    assert worst(people, answer, relation, size=1) == (bounds.l1, bounds.l2_squared)


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 3), (-1, 3), (-5, -2), (2, 5), ("1/3", "2/3"), (-2.5, 0.5), (0, "0.001")]
)
def test_a_clamped_sum(relation, lower, upper):
    low, high = checked_clamp(lower, upper)
    people = [min(max(v, low), high) for v in (low - 7, low, (low + high) / 2, high, high + 100)]
    check(partial(of_clamped_sum, lower, upper), people, lambda data: (sum(data, Fraction(0)),), relation)


# ---- examples -------------------------------------------------------------------------------------------------------


def test_how_many_girls_are_there_in_this_lab():
    check(lambda _: of_rows(1), [0, 1], lambda data: (sum(data),), Relation.ADD_REMOVE)
    assert of_rows(1).l1 == 1


def test_how_many_males_and_females_are_there():
    people = [("f",), ("m",)]
    answer = lambda data: tuple(sum(sex == key for (sex,) in data) for key in "fm")  # noqa: E731
    check(partial(of_counts, 1), people, answer, Relation.ADD_REMOVE)
    assert of_counts(1, Relation.ADD_REMOVE).l1 == 1
    check(partial(of_counts, 1), people, answer, Relation.REPLACE_ONE)
    assert of_counts(1, Relation.REPLACE_ONE).l1 == 2


def test_how_many_albums_of_three_are_owned_in_total():
    check(partial(of_clamped_sum, 0, 3), [0, 1, 2, 3], lambda data: (sum(data),), Relation.ADD_REMOVE)
    assert of_clamped_sum(0, 3, Relation.ADD_REMOVE).l1 == 3


def test_five_overlapping_counts():
    people = list(itertools.product((0, 1), repeat=5))  # female, likes a singer, 12 to 16, ...
    answer = lambda data: tuple(sum(person[i] for person in data) for i in range(5))  # noqa: E731
    assert worst(people, answer, Relation.ADD_REMOVE, size=1)[0] == 5
    assert of_overlapping(5, None, Relation.ADD_REMOVE).l1 == 5
    assert of_overlapping(5, None, Relation.ADD_REMOVE).l2_squared == 5  # what Gaussian noise gains from


# ---- what can't be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2", None, 2**40])
@pytest.mark.parametrize(
    "make",
    [
        of_rows,
        lambda n: of_counts(n, Relation.ADD_REMOVE),
        lambda n: of_overlapping(n, None, Relation.ADD_REMOVE),
        lambda n: of_overlapping(3, n if n is not None else 0, Relation.ADD_REMOVE),
    ],
)
def test_a_cap_is_a_whole_number_of_at_least_one(make, number):
    with pytest.raises(UsageError):
        make(number)


@pytest.mark.parametrize(
    ("lower", "upper"), [(3, 0), (1, 1), (math.nan, 1), (0, math.inf), ("-inf", 0), (0, "much"), (None, 1), (True, 2)]
)
def test_bounds_are_two_numbers_in_order(lower, upper):
    with pytest.raises(UsageError):
        of_clamped_sum(lower, upper, Relation.ADD_REMOVE)
