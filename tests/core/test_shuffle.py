"""Shuffling against the full shuffled histogram, enumerated over all data of the others."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from functools import cache

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.core import shuffle
from hushquery.core.shuffle import (
    shuffle_any,
    shuffle_closed_form,
    shuffle_krr,
)
from hushquery.errors import CalibrationError, UsageError

QUICK = settings(max_examples=25, deadline=None)


def response(epsilon0, k):
    """The rows of k-ary randomised response: row x is the law of the report of somebody whose value is x."""
    q = 1 / (math.exp(epsilon0) + k - 1)
    return tuple(tuple(q * (math.exp(epsilon0) if x == y else 1) for y in range(k)) for x in range(k))


@cache
def histogram(rows, data):
    """The law of the shuffled histogram of everybody's reports."""
    law = {(0,) * len(rows[0]): 1.0}
    for x in data:
        grown = defaultdict(float)
        for counts, mass in law.items():
            for y, chance in enumerate(rows[x]):
                grown[(*counts[:y], counts[y] + 1, *counts[y + 1 :])] += mass * chance
        law = dict(grown)
    return law


def hockey(p, q, epsilon):
    return sum(max(0.0, mass - math.exp(epsilon) * q.get(key, 0.0)) for key, mass in p.items())


def truth(rows, n, epsilon):
    """The largest divergence over the target's two values and all data of the others."""
    values = range(len(rows))
    worst = 0.0, ()
    for others in itertools.combinations_with_replacement(values, n - 1):
        for a, b in itertools.permutations(values, 2):
            p, q = histogram(rows, (*others, a)), histogram(rows, (*others, b))
            worst = max(worst, (hockey(p, q, epsilon), (a, b, others)))
    return worst


# ---- the procedure of ALGORITHMS H5 --------------------------------------------------------------------------------


def shuffle_krr_delta(epsilon0, k, n, epsilon):
    """The bound on delta at one epsilon, of which `shuffle_krr` searches the smallest within delta."""
    return shuffle._krr(epsilon0, k, n).delta(epsilon, 1e-18)


def shuffle_any_delta(epsilon0, n, epsilon):
    return shuffle._clones(epsilon0, n).delta(epsilon, 1e-18)


@pytest.mark.parametrize(
    ("epsilon0", "k", "n", "epsilon"),
    [(1.5, 4, 6, 1.0), (1.0, 2, 8, 0.3), (2.0, 3, 6, 0.8), (0.5, 3, 5, 0.1), (3.0, 4, 5, 1.5), (1.0, 5, 4, 0.4)],
)
def test_no_data_of_the_others_is_worse_than_the_bound(epsilon0, k, n, epsilon):
    worst, _ = truth(response(epsilon0, k), n, epsilon)
    assert worst <= shuffle_krr_delta(epsilon0, k, n, epsilon)
    assert worst <= shuffle_any_delta(epsilon0, n, epsilon)


def test_the_shortcut_that_counts_two_values_only_is_below_the_truth():
    """k=4, n=7, epsilon0=1.5, epsilon=1; true .02152 with others 0,0,0,2,2,2, shortcut .01782."""
    rows = response(1.5, 4)

    def two_counts(data):
        seen = defaultdict(float)
        for counts, mass in histogram(rows, data).items():
            seen[counts[:2]] += mass
        return dict(seen)

    shortcut = max(
        hockey(two_counts((*others, 0)), two_counts((*others, 1)), 1.0)
        for others in itertools.combinations_with_replacement((2, 3), 6)
    )
    assert f"{shortcut:.5f}" == "0.01782"
    worst, (a, b, others) = truth(rows, 7, 1.0)
    assert f"{worst:.5f}" == "0.02152"
    assert sorted(others.count(value) for value in range(4)) == [0, 0, 3, 3]
    assert {others.count(a), others.count(b)} == {0, 3}
    bound = shuffle_krr_delta(1.5, 4, 7, 1)
    assert shortcut < worst <= bound
    assert f"{bound:.5f}" == "0.02663"


def blanket_expectation(epsilon0, k, n, epsilon):
    """H5 as it is printed: the double sum over T and N, averaged over all G."""
    q0 = mpmath.mpf(1) / (mpmath.exp(epsilon0) + k - 1)
    p, r, gamma, e = mpmath.exp(epsilon0) * q0, (k - 2) * q0, k * q0, mpmath.exp(epsilon)

    def binomial(trials, chance, hits):
        if trials < 0 or not 0 <= hits <= trials:
            return mpmath.mpf(0)
        return mpmath.binomial(trials, hits) * chance**hits * (1 - chance) ** (trials - hits)

    half, share, total = mpmath.mpf(1) / 2, mpmath.mpf(2) / k, mpmath.mpf(0)
    for hiding in range(n):
        inner = mpmath.mpf(0)
        for t in range(hiding + 2):
            w1, w0 = binomial(hiding, share, t - 1), binomial(hiding, share, t)
            for m in range(t + 1):
                f, g, h = binomial(t - 1, half, m - 1), binomial(t - 1, half, m), binomial(t, half, m)
                inner += max(0, w1 * (p * f + q0 * g) + w0 * r * h - e * (w1 * (q0 * f + p * g) + w0 * r * h))
        total += binomial(n - 1, gamma, hiding) * inner
    return total


@pytest.mark.parametrize(
    ("epsilon0", "k", "n", "epsilon"), [(1, 2, 12, 0.2), (2, 3, 20, 0.5), (4, 10, 15, 1.0), (1, 50, 25, 0.1)]
)
def test_our_form_of_h_equals_the_printed_double_sum(epsilon0, k, n, epsilon):
    printed = float(blanket_expectation(epsilon0, k, n, epsilon))
    ours = shuffle_krr_delta(epsilon0, k, n, epsilon)
    assert printed <= ours <= printed * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize(
    ("epsilon0", "k", "n", "printed"),
    [(1, 50, 10**4, 0.0105), (2, 50, 10**4, 0.0412), (4, 50, 10**4, 0.2901), (4, 500, 10**5, 0.0345)],
)
def test_the_numbers_of_h5(epsilon0, k, n, printed):
    """Ours follows the expectation over G more closely than the printed numbers do, and is a little below them."""
    found = shuffle_krr(epsilon0, k, n, 1e-6)
    assert 0.985 * printed <= found <= printed
    assert shuffle_krr_delta(epsilon0, k, n, found) <= 1e-6
    assert shuffle_krr_delta(epsilon0, k, n, found * 0.999) > 1e-6


@pytest.mark.parametrize(("epsilon0", "printed"), [(1, 0.0531), (4, 0.601)])
def test_the_numbers_of_h5_for_any_randomizer(epsilon0, printed):
    found = shuffle_any(epsilon0, 10**4, 1e-6)
    assert 0.99 * printed <= found <= printed


# ---- any randomizer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_clones_hold_for_random_randomizers(seed):
    import numpy as np

    rng = np.random.default_rng(seed)
    rows = np.exp(rng.choice([0.0, 1.2], size=(3, 4))) * rng.dirichlet(np.ones(4) * 5)
    rows /= rows.sum(axis=1, keepdims=True)
    epsilon0 = float(np.log(rows.max(axis=0) / rows.min(axis=0)).max()) * (1 + 1e-12)
    table = tuple(tuple(float(x) for x in row) for row in rows)
    for epsilon in (0.1, 0.5):
        assert truth(table, 5, epsilon)[0] <= shuffle_any_delta(epsilon0, 5, epsilon)


def test_clones_are_exact_for_the_pair_they_reduce_to():
    """C ~ Bin(n-1, e^-epsilon0), A ~ Bin(C, 1/2): (A+D, C-A+1-D) against (A+1-D, C-A+D), listed."""
    epsilon0, n, epsilon = 1.3, 9, 0.4
    yes = 1 / (1 + math.exp(-epsilon0))
    p, q = defaultdict(float), defaultdict(float)
    for c in range(n):
        mass = math.comb(n - 1, c) * math.exp(-epsilon0 * c) * (1 - math.exp(-epsilon0)) ** (n - 1 - c)
        for a in range(c + 1):
            here = mass * math.comb(c, a) / 2**c
            for d, chance in ((1, yes), (0, 1 - yes)):
                p[a + d, c - a + 1 - d] += here * chance
                q[a + 1 - d, c - a + d] += here * chance
    assert shuffle_any_delta(epsilon0, n, epsilon) == pytest.approx(hockey(p, q, epsilon), abs=1e-12)


# ---- the closed form -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon0", "n", "printed"), [(1, 10**4, "0.214"), (2, 10**4, "0.501"), (4, 10**5, "0.535")])
def test_the_closed_form_of_algorithms_e(epsilon0, n, printed):
    assert f"{shuffle_closed_form(epsilon0, n, 1e-6):.3f}" == printed
    assert shuffle_any(epsilon0, n, 1e-6) < shuffle_closed_form(epsilon0, n, 1e-6)


def test_the_closed_form_is_refused_where_it_was_not_proved():
    for epsilon0, n, delta in [(4, 10**4, 1e-6), (1, 100, 1e-6), (1, 10**4, 0)]:
        with pytest.raises(CalibrationError, match="epsilon0 <= ln"):
            shuffle_closed_form(epsilon0, n, delta)


@QUICK
@given(st.floats(0.05, 3), st.integers(2000, 10**5), st.floats(1e-9, 1e-3))
def test_the_closed_form_is_never_below_the_numeric_bound(epsilon0, n, delta):
    try:
        closed = shuffle_closed_form(epsilon0, n, delta)
    except CalibrationError:
        return
    assert closed >= shuffle_any(epsilon0, n, delta)


# ---- shape and size ------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.floats(0.1, 4), st.integers(2, 20), st.integers(2, 1000), st.floats(1e-9, 0.01))
def test_more_reports_and_more_delta_help_and_more_epsilon0_hurts(epsilon0, k, n, delta):
    found = shuffle_krr(epsilon0, k, n, delta)
    slack = 1 + 5e-3  # the staircase of cuts is not the same for both
    assert 0 <= found <= epsilon0 * (1 + 1e-15)
    assert shuffle_krr(epsilon0, k, 2 * n, delta) <= found * slack
    assert shuffle_krr(epsilon0, k, n, delta * 10) <= found * slack
    assert shuffle_krr(epsilon0 * 1.5, k, n, delta) >= found / slack
    assert found <= shuffle_any(epsilon0, n, delta) * slack


def test_alone_nobody_hides_anybody():
    yes = 1 / (1 + math.exp(-1))
    assert shuffle_krr(1, 2, 1, 1e-6) == pytest.approx(math.log((yes - 1e-6) / (1 - yes)), abs=1e-5)
    assert shuffle_any(900, 10, 1e-6) == 900.0


def test_a_delta_below_what_doubles_resolve_gives_epsilon0_and_not_less():
    assert shuffle_krr(1, 3, 1000, 1e-30) == 1.0


def test_a_million_reports_take_a_moment():
    assert shuffle_krr(1, 10, 10**6, 1e-6) == pytest.approx(0.0018555, rel=1e-4)
    assert shuffle_any(1, 10**6, 1e-6) == pytest.approx(0.0043369, rel=1e-4)


def test_large_n_against_60_digit_sums_at_a_single_g():
    """H at one G with mpmath: the double sums agree far better than the allowance claims."""
    from hushquery.core.shuffle import _krr

    blanket = _krr(2, 3, 400)
    for hiding, epsilon in [(150, 0.3), (230, 0.5)]:
        with mpmath.workdps(40):
            gamma = mpmath.mpf(3) / (mpmath.exp(2) + 2)
            e, size, total = mpmath.exp(mpmath.mpf(repr(epsilon))), hiding + 1, mpmath.mpf(0)
            for a in range(size + 1):
                for b in range(size + 1 - a):
                    bracket = gamma * (1 - e) + (1 - gamma) * 3 * (a - e * b) / size
                    if bracket > 0:
                        total += bracket * mpmath.binomial(size, a) * mpmath.binomial(size - a, b)
            total /= mpmath.mpf(3) ** size
        ours = blanket._mixture([hiding], [1.0], epsilon, 1e-30)
        assert ours == pytest.approx(float(total), rel=3e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: shuffle_krr(0, 5, 100, 1e-6),
        lambda: shuffle_krr(1, 1, 100, 1e-6),
        lambda: shuffle_krr(1, True, 100, 1e-6),
        lambda: shuffle_krr(1, 5, 0, 1e-6),
        lambda: shuffle_krr(1, 5, 100, 0),
        lambda: shuffle_krr(1, 5, 100, 1),
        lambda: shuffle_krr(float("nan"), 5, 100, 1e-6),
        lambda: shuffle_any(-1, 100, 1e-6),
        lambda: shuffle_any(1, 10**10, 1e-6),
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
