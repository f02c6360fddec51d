"""The lazy inverse-CDF sampler: exact for every word and every continuation, and its draws follow the closed form.

A draw is exact if the binary digits of u that were read already decide it: with U those digits, k of them,
F(z-1) <= U/2^k and (U+1)/2^k <= F(z). :func:`decided` checks that with a CDF computed by another formula at 2000 bits.
Between two table entries the answer can't change, so the words at, just below and just above every entry, with every
kind of continuation, stand for all words.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from hushquery.errors import UsageError
from hushquery.noise.law import (
    Binomial,
    DiscreteLaplace,
    Geometric,
    Law,
    RoundedGaussian,
    TailCoin,
    Truncated,
)
from hushquery.noise.sampler import Sampler, SeededBits, sampler
from noise.rational import RationalCoin
from statistical import bits, every_position, fit, mean, moments, number, same_law, tally, variance

TOP = 2**64 - 1


class Words:
    """Bits that give chosen words first and seeded ones after them, and remember all that were read."""

    secret = False

    def __init__(self, *chosen):
        self._chosen = list(chosen)
        self._then = SeededBits("then")
        self.read = []

    def words(self, n):
        out = [self._chosen.pop(0) if self._chosen else int(self._then.words(1)[0]) for _ in range(n)]
        self.read += out
        return np.array(out, dtype=np.uint64)

    @property
    def digits(self):
        value = 0
        for word in self.read:
            value = (value << 64) | word
        return value, 64 * len(self.read)


@lru_cache(maxsize=100_000)
def reference(law, z):
    """Give P[Z <= z] at 2000 bits, by other formulas than the package's."""
    with mpmath.workprec(2000):
        if isinstance(law, DiscreteLaplace | Geometric):
            rate = mpmath.mpf(law.b.denominator) / law.b.numerator
            if isinstance(law, Geometric):
                return 1 - mpmath.exp(-rate * (z + 1)) if z >= 0 else mpmath.mpf(0)
            half = mpmath.exp(-rate * abs(z + mpmath.mpf(1) / 2)) / (2 * mpmath.cosh(rate / 2))
            return half if z < 0 else 1 - half
        if isinstance(law, RoundedGaussian):
            x = (mpmath.mpf(2 * z + 1) * law.sigma.denominator) / (2 * law.sigma.numerator)
            half = mpmath.gammainc(mpmath.mpf(1) / 2, x * x / 2) / mpmath.sqrt(mpmath.pi) / 2
            return half if x < 0 else 1 - half
        if isinstance(law, Truncated):
            hidden = reference(law.law, law.k - 1)
            return (reference(law.law, z) - hidden) / (1 - hidden) if z >= law.k else mpmath.mpf(0)
        if z < 0 or (law.highest is not None and z >= law.highest):
            return mpmath.mpf(z >= 0)
        if isinstance(law, TailCoin):
            return reference(law.law, law.k - 1)
        if isinstance(law, RationalCoin):
            return 1 - mpmath.mpf(law.p.numerator) / law.p.denominator
        p = 1 - reference(law.coin, 0)
        return mpmath.fsum(math.comb(law.n, i) * p**i * (1 - p) ** (law.n - i) for i in range(z + 1))


def decided(law, z, source):
    """Whether the digits read prove that z is the first value with u < F(z)."""
    value, length = source.digits
    with mpmath.workprec(2000):
        here, before = mpmath.ldexp(reference(law, z), length), mpmath.ldexp(reference(law, z - 1), length)
        return before <= value and value + 1 <= here


def draw_exactly(table, *words):
    source = Words(*words)
    z = table.draw_one(source)
    assert decided(table.law, z, source), f"{z} is not what the digits {source.read} say"
    return z


LAWS = [
    DiscreteLaplace(Fraction(1, 50)),
    DiscreteLaplace(Fraction(1, 3)),
    DiscreteLaplace(Fraction(2)),
    RoundedGaussian(Fraction(1, 8)),
    RoundedGaussian(Fraction(1)),
    RoundedGaussian(Fraction(5, 2)),
    Geometric(Fraction(1, 3)),
    Geometric(Fraction(2)),
    Truncated(RoundedGaussian(Fraction(2)), 1),
    Truncated(RoundedGaussian(Fraction(4)), 40),
    Truncated(DiscreteLaplace(Fraction(1)), -3),
    TailCoin(DiscreteLaplace(Fraction(2)), 3),
    TailCoin(RoundedGaussian(Fraction(3)), -4),
    RationalCoin(Fraction(1, 3)),
    RationalCoin(Fraction(3, 4)),
    RationalCoin(Fraction(1)),
    RationalCoin(Fraction(1, 2**70)),
    Binomial(5, TailCoin(DiscreteLaplace(Fraction(2)), 3)),
    Binomial(30, TailCoin(RoundedGaussian(Fraction(3)), 1)),
]


# ---- exactness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_word_at_and_around_every_table_entry_is_decided_exactly(law):
    table = Sampler(law)
    entries = {int(t) for t in table._table}
    for word in sorted(
        {w for t in entries for w in (t - 1, t, t + 1) if 0 <= w <= TOP} | {0, TOP, 2**63 - 1, 2**63, 2**63 + 1}
    ):
        draw_exactly(table, word)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_ties_are_decided_by_as_many_digits_as_it_takes(law):
    """u is made to follow the digits of F(z) for 64, 128 and 192 bits, then to pass below, at and above them."""
    table = Sampler(law)
    places = sorted(set(range(-3, 4)) | {table._first, table._first + 1, table._first + len(table._table) - 1})
    for z in places:
        if law.highest is not None and not law.lowest <= z < law.highest:
            continue
        with mpmath.workprec(2000):
            following = int(mpmath.floor(mpmath.ldexp(reference(law, z), 256)))
        digits = [(following >> (192 - 64 * i)) & TOP for i in range(4)]
        if following >= 2**256:
            continue  # F(z) = 1: nothing to tie with
        for tied in (1, 2, 3):
            for last in {0, max(digits[tied] - 1, 0), digits[tied], min(digits[tied] + 1, TOP), TOP}:
                got = draw_exactly(table, *digits[:tied], last)
                if last != digits[tied]:
                    assert (got <= z) == (last < digits[tied])


@pytest.mark.parametrize("law", [law for law in LAWS if law.highest is None], ids=str)
def test_tails_beyond_the_table_have_no_end(law):
    table = Sampler(law)
    ends = []
    for words in ([TOP], [TOP, TOP], [TOP, TOP, TOP - 1], [TOP, TOP, 0], [TOP, 2**63]):
        ends.append(draw_exactly(table, *words))
    assert ends[0] < ends[1] or len(table._table) <= 2
    if law.lowest is None:
        for words in ([0], [0, 0], [0, 0, 1], [0, 0, TOP], [0, 2**63]):
            assert draw_exactly(table, *words) <= 0
        assert draw_exactly(table, 0, 0, 0) < draw_exactly(table, 0, TOP) or law == DiscreteLaplace(Fraction(1, 50))


@pytest.mark.parametrize(
    "law",
    [
        DiscreteLaplace(Fraction(200, 23)),
        RoundedGaussian(Fraction(12)),
        Geometric(Fraction(30)),
        Truncated(RoundedGaussian(Fraction(12)), 20),
        Binomial(400, TailCoin(DiscreteLaplace(Fraction(2)), 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("most", [2, 7, 40])
def test_a_coarse_table_gives_the_same_values_for_the_same_bits(law, most):
    fine, coarse = sampler(law), Sampler(law, most_entries=most)
    assert fine._stride == 1
    assert coarse._stride > 1
    assert len(coarse._table) <= most + 2
    ties = [int(t) for t in fine._table[:: max(1, len(fine._table) // 15)]]
    random = [int(w) for w in bits("coarse", law, most).words(30)]
    for word in [*ties, *random, 0, TOP, 2**63]:
        for following in ((), (0,), (TOP,)):
            assert coarse.draw_one(Words(word, *following)) == fine.draw_one(Words(word, *following))


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(2**30)), RoundedGaussian(Fraction(2**40))], ids=str)
def test_the_widest_laws_are_exact_too(law):
    table = sampler(law)
    assert len(table._table) < 5000
    for word in [
        *(int(w) for w in bits("wide", law).words(6)),
        0,
        TOP,
        2**63,
        int(table._table[7]),
        int(table._table[-7]),
    ]:
        draw_exactly(table, word)


@seed(number("sampler"))
@settings(max_examples=60, deadline=None, database=None)
@given(
    st.sampled_from([DiscreteLaplace, RoundedGaussian, Geometric]),
    st.fractions(Fraction(1, 30), 20, max_denominator=300),
    st.one_of(st.integers(0, TOP), st.integers(0, 2**20), st.integers(TOP - 2**20, TOP)),
    st.lists(st.integers(0, TOP), max_size=3),
)
def test_any_law_and_any_word(kind, scale, word, following):
    draw_exactly(sampler(kind(scale)), word, *following)


# ---- arrays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [LAWS[2], LAWS[5], LAWS[9], LAWS[18]], ids=str)
def test_a_batch_gives_what_single_draws_give(law):
    """Words on both sides of 2^63, next to entries: as float64 they would be equal to them."""
    table = Sampler(law)
    words = [w for t in map(int, table._table) for w in (t - 1, t + 1) if 0 < w < TOP and w not in table._table]
    words += [int(w) for w in bits("batch").words(200)]
    batch = table.draw(len(words), Words(*words))
    assert batch.dtype == np.int64
    assert table._table.dtype == np.uint64
    assert batch.tolist() == [table.draw_one(Words(w)) for w in words]
    assert batch.tolist() == [int(np.sum(np.array([int(t) <= w for t in table._table]))) + table._first for w in words]


def test_ties_within_a_batch_read_on_after_the_batch():
    table = Sampler(DiscreteLaplace(Fraction(2)))
    tie = int(table._table[60])
    with mpmath.workprec(2000):
        second = int(mpmath.floor(mpmath.ldexp(reference(table.law, table._first + 60), 128))) & TOP
    source = Words(2**63, tie, 5, tie, TOP // 3, second - 1, second + 1)
    got = table.draw(5, source)
    assert len(source.read) == 7
    assert got[1] == table._first + 60
    assert got[3] == table._first + 61


def test_tables_hold_every_value_that_64_bits_can_tell_apart():
    for law in LAWS[:10]:
        table = Sampler(law)
        assert np.all(np.diff(table._table.astype(object)) >= 0)
        inner = [int(t) for t in table._table]
        if law.lowest is None:
            assert inner[0] == 0
        assert inner[-1] == TOP
        assert sum(0 < t < TOP for t in inner) >= len(inner) - 2


def test_drawing_nothing_and_less_than_nothing():
    assert sampler(DiscreteLaplace(Fraction(1))).draw(0, Words()).tolist() == []
    with pytest.raises(UsageError):
        sampler(DiscreteLaplace(Fraction(1))).draw(-1, Words())


def test_samplers_are_built_once_per_law():
    assert sampler(DiscreteLaplace(Fraction(7, 3))) is sampler(DiscreteLaplace(Fraction(14, 6)))


def test_a_law_that_hides_a_binary_fraction_is_found_out(monkeypatch):
    """A CDF that is a multiple of 2^-64 and does not say so would tie for ever."""

    class Half(Law):
        lowest, highest = 0, 1

        def sf(self, z):
            return mpmath.mpf(1) / 2 if z == 0 else mpmath.mpf(z < 0)

    with pytest.raises(ArithmeticError):
        Half().cdf_floor(0, 64)


def test_a_coin_that_never_comes_up():
    assert not Sampler(RationalCoin(Fraction(0))).draw(1000, bits("never")).any()


def test_a_coin_that_always_comes_up():
    assert Sampler(RationalCoin(Fraction(1))).draw(1000, bits("always")).all()


# ---- draws against the closed form ---------------------------------------------------------------------------------

DRAWN = [
    *(DiscreteLaplace(b) for b in (Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(200, 23), Fraction(100))),
    *(RoundedGaussian(s) for s in (Fraction(1, 8), Fraction(1), Fraction(15, 2), Fraction(115))),
    *(Geometric(b) for b in (Fraction(1, 3), Fraction(200, 23))),
    Truncated(RoundedGaussian(Fraction(5)), 1),
    Truncated(RoundedGaussian(Fraction(5)), 40),
    Truncated(DiscreteLaplace(Fraction(2)), -3),
    TailCoin(DiscreteLaplace(Fraction(2)), 3),
    TailCoin(RoundedGaussian(Fraction(3)), -4),
    RationalCoin(Fraction(1, 3)),
    Binomial(1, TailCoin(DiscreteLaplace(Fraction(2)), 3)),
    Binomial(30, TailCoin(RoundedGaussian(Fraction(3)), 1)),
    Binomial(5000, TailCoin(DiscreteLaplace(Fraction(2)), 9)),
]


def closed_form(law, low, high):
    """List the law between two values by formulas in doubles that are not the package's."""
    from scipy.stats import binom, dlaplace, geom, norm

    z = np.arange(low, high + 1)
    if isinstance(law, DiscreteLaplace):
        p = dlaplace(float(1 / law.b)).pmf(z)
    elif isinstance(law, RoundedGaussian):
        s = float(law.sigma)
        # By whichever tail is small, so that nothing cancels.
        p = np.where(
            z >= 0, norm.sf((z - 0.5) / s) - norm.sf((z + 0.5) / s), norm.cdf((z + 0.5) / s) - norm.cdf((z - 0.5) / s)
        )
    elif isinstance(law, Geometric):
        p = geom(-math.expm1(-1 / float(law.b)), loc=-1).pmf(z)
    elif isinstance(law, Truncated):
        p = closed_form(law.law, low, high)[1] * (z >= law.k)
        beyond = norm.sf((law.k - 0.5) / float(law.law.sigma)) if isinstance(law.law, RoundedGaussian) else p.sum()
        p = p / beyond
    elif isinstance(law, TailCoin | RationalCoin):
        up = float(law.p) if isinstance(law, RationalCoin) else upper(law)
        p = np.where(z == 1, up, np.where(z == 0, 1 - up, 0))
    else:
        p = binom(law.n, upper(law.coin)).pmf(z)
    return z, p


def upper(coin):
    from scipy.stats import norm

    if isinstance(coin.law, RoundedGaussian):
        return float(norm.sf((coin.k - 0.5) / float(coin.law.sigma)))
    a = math.exp(-1 / float(coin.law.b))
    return a**coin.k / (1 + a) if coin.k >= 0 else 1 - a ** (1 - coin.k) / (1 + a)


@pytest.mark.parametrize("law", DRAWN, ids=str)
def test_draws_follow_the_closed_form(law):
    n = 200_000
    draws = sampler(law).draw(n, bits("draws", law))
    z, p = closed_form(law, int(draws.min()) - 60, int(draws.max()) + 60)
    listed = {int(i): float(q) for i, q in zip(z, p, strict=True)}
    seen = tally(draws)
    every_position(seen, listed)
    if sum(q * n >= 20 for q in listed.values()) > 1:
        fit(seen, listed)
        centre, spread, fourth = moments(listed)
        mean(draws, centre, spread)
        variance(draws, spread, centre, fourth)


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(200, 23)), RoundedGaussian(Fraction(8))], ids=str)
def test_draws_from_a_coarse_table_follow_the_closed_form(law):
    table = Sampler(law, most_entries=5)
    assert table._stride > 1
    draws = table.draw(2000, bits("coarse draws", law))
    z, p = closed_form(law, int(draws.min()) - 60, int(draws.max()) + 60)
    listed = {int(i): float(q) for i, q in zip(z, p, strict=True)}
    every_position(tally(draws), listed)
    fit(tally(draws), listed)


# ---- OpenDP, an independent sampler of the same law ----------------------------------------------------------------


@pytest.mark.parametrize("b", ["1", "9/2"])
def test_opendps_discrete_laplace_agrees_in_distribution_and_in_its_map(b):
    import opendp.prelude as dp

    from hushquery.noise.mechanisms import LaplaceCounts

    dp.enable_features("contrib")
    law, n = DiscreteLaplace(Fraction(b)), 60_000
    theirs = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), float(law.b))
    other = np.array(theirs([0] * n))  # their randomness can't be seeded: the false-alarm rate above is all there is
    ours = sampler(law).draw(n, bits("opendp", b))
    listed = {z: law.pmf(z) for z in range(-200, 201)}
    every_position(tally(other), listed)
    fit(tally(other), listed)
    cells = [z for z, p in listed.items() if p * n >= 20]
    same_law(tally(ours), tally(other), cells)
    for sensitivity in (1, 2, 7):
        loss = LaplaceCounts(sensitivity, law).loss
        assert theirs.map(sensitivity) == pytest.approx(loss.epsilon(0), rel=1e-12)


# ---- tables of wide Gaussian noise ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sigma", [Fraction(16), Fraction(50, 3), Fraction(201741, 256), Fraction(3000), Fraction(7281)]
)
def test_stepped_tables_are_those_of_the_definition(sigma):
    law = RoundedGaussian(sigma)
    reach = int(sigma * 37 // 4)
    stepped = law.cdf_floors(range(-reach, reach + 1), 64)
    every = 1 if sigma < 20 else reach // 60
    for z in range(-reach, reach + 1, every):
        assert stepped[z + reach] == law.cdf_floor(z, 64)[0]
    assert stepped == sorted(stepped)


def test_a_stepped_entry_that_is_in_doubt_is_computed_by_definition(monkeypatch):
    law, asked = RoundedGaussian(Fraction(20)), []
    expected = law.cdf_floors(range(-30, 30), 64)
    monkeypatch.setattr("hushquery.noise.law._DOUBTFUL", 159)
    original = RoundedGaussian.cdf_floor
    monkeypatch.setattr(
        RoundedGaussian, "cdf_floor", lambda self, z, bits: (asked.append(z), original(self, z, bits))[1]
    )
    assert law.cdf_floors(range(-30, 30), 64) == expected
    assert len(asked) == 30
