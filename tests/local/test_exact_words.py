"""Every randomizer, held to its integers: words at the boundary of every chance decide exactly as the integers say.

A rate that is a fifth of a percent off passes any statistical test that is cheap enough to run; a threshold that is one
unit off does not pass these. Expected answers are computed here from the integers alone, in plain Python integers, not
by the functions under test. tests in js/test/words.test.ts do the same for the browser client.
"""

from __future__ import annotations

import hmac
import itertools

import numpy as np
import pytest

from given_words import TOP, Given, around, word_of
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH, PRIME
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import ONE, Device, coins, many_coins
from hushquery.local.rappor.response import Encoder, Params
from hushquery.noise.sampler import below

# The 11 lower bits of a word never decide.
SPARE = (0, 2**11 - 1)
MOST = ONE - 1


def says(k: int, lie: int, cell: int, fraction: int) -> int:
    """What k-RR answers: every `lie` integers are one of the other cells, in order; the rest the own one."""
    steps, rest = divmod(fraction, lie)
    assert 0 <= rest < lie
    others = [(cell + 1 + i) % k for i in range(k - 1)]
    return others[steps] if steps < k - 1 else cell


def both(oracle, cell, *words):
    """Randomise one client alone, and as the only one of an array; both must agree and use up the words."""
    alone, array = Given(words), Given(words)
    one = oracle.randomize(cell, alone)
    row = oracle.randomize_many([cell], array)[0]
    assert one == oracle.report(row)
    assert alone.left == array.left == 0
    return one


# ---- coins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chance", [0, 1, 2, 12345, ONE // 2, ONE // 3, ONE - 1, ONE])
def test_a_coin_shows_heads_below_its_chance_to_the_last_unit(chance):
    for fraction, spare in itertools.product(around([chance]), SPARE):
        assert coins(chance, 1, Given([word_of(fraction, spare)])).tolist() == [fraction < chance]


@pytest.mark.parametrize("chance", [1, 2**45 - 1, 2**45, (3 << 45) + 9, ONE // 3, ONE // 2, ONE - 1])
def test_many_coins_have_the_same_chance_to_the_last_unit(chance):
    """Eight bits decide, and where they tie 45 more: every way to spell the integers around the chance is tried."""
    for fraction, low in itertools.product(around([chance, chance + 1]), (0, 2**19 - 1)):
        first, rest = divmod(fraction, 2**45)
        tied = first == chance >> 45
        # The first of eight bytes in a word is the coin; the others are not asked for.
        words = Given([first | 0xFF << 8, *([rest << 19 | low] if tied else [])])
        assert many_coins(chance, 1, words).tolist() == [fraction < chance], (chance, fraction)
        assert words.left == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 2**31 - 1, (2**31 - 1) ** 2, 2**63 - 1, 2**63])
def test_a_uniform_draw_leaves_out_exactly_the_words_that_would_favour_small_numbers(limit):
    whole = (2**64 // limit) * limit  # words from here on are left out
    for word in (0, limit - 1, limit, whole - 1):
        assert below(Given([word] * 9), limit, 1).tolist() == [word % limit]
    for refused in {whole, TOP} if whole <= TOP else ():
        assert below(Given([refused, whole - 1, *[0] * 7]), limit, 1).tolist() == [limit - 1]


# ---- randomizers over cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [KRR.calibrate(2, "ln 3"), KRR.calibrate(7, 1), KRR.calibrate(40, 6)], ids=str)
def test_krr_lies_exactly_as_often_as_its_integer_says(oracle):
    k, lie = oracle.k, oracle.lie
    for fraction, spare in itertools.product(around([i * lie for i in range(1, k)]), SPARE):
        for cell in {0, 1, k // 2, k - 1}:
            assert both(oracle, cell, word_of(fraction, spare)) == says(k, lie, cell, fraction), (fraction, cell)


def test_an_array_of_clients_decides_word_by_word():
    oracle = KRR.calibrate(5, 2)
    fractions = around([i * oracle.lie for i in range(1, 5)])
    cells = [i % 5 for i in range(len(fractions))]
    got = oracle.randomize_many(cells, Given(map(word_of, fractions)))
    assert got.tolist() == [says(5, oracle.lie, c, f) for c, f in zip(cells, fractions, strict=True)]


@pytest.mark.parametrize("oracle", [OUE.calibrate(5, 4), OUE.calibrate(8, 1)], ids=str)
def test_oue_sets_every_bit_exactly_as_often_as_its_integer_says(oracle):
    k, q = oracle.k, oracle.lie
    first = q >> 45
    fractions = around([q, first << 45, (first + 1) << 45])
    for cell, own in itertools.product(range(k), (0, ONE // 2 - 1, ONE // 2, MOST)):
        for turn in range(len(fractions)):
            drawn = [fractions[(turn + i) % len(fractions)] for i in range(k)]
            eights = sum((f >> 45) << 8 * i for i, f in enumerate(drawn))
            ties = [(f % 2**45) << 19 for f in drawn if f >> 45 == first]
            bits = [f < q for f in drawn]
            bits[cell] = own < ONE // 2
            expected = sum(bit << i for i, bit in enumerate(bits)).to_bytes(1, "little")
            assert both(oracle, cell, eights, *ties, word_of(own)) == expected


@pytest.mark.parametrize("oracle", [OLH.calibrate(50, 1), OLH.calibrate(2**20, 3)], ids=str)
def test_olh_hashes_and_lies_exactly_as_its_integers_say(oracle):
    g, lie = oracle.g, oracle.lie
    assert oracle.prime == PRIME == 2**31 - 1
    hashes = [0, PRIME - 1] + [edge for i in range(1, g) for edge in (-(-i * PRIME // g) - 1, -(-i * PRIME // g))]
    for cell, wanted in itertools.product((0, 1, oracle.k - 1), hashes):
        a = 1_234_567_890
        b = (wanted - a * cell) % PRIME  # so that the hash of the cell is the wanted one
        seed = a * PRIME + b
        bucket = max(i for i in range(g) if i * PRIME <= wanted * g)
        for fraction in around([i * lie for i in range(1, g)]):
            report = both(oracle, cell, seed, *[0] * 8, word_of(fraction))
            assert report == (seed, says(g, lie, bucket, fraction))


@pytest.mark.parametrize("oracle", [SubsetSelection.calibrate(6, 1), SubsetSelection.calibrate(9, 3)], ids=str)
def test_subset_keeps_the_own_cell_exactly_as_often_as_its_integer_says(oracle):
    k, omega, truth = oracle.k, oracle.omega, oracle.truth
    for cell, fraction in itertools.product(range(k), around([truth])):
        kept = fraction < truth
        lasts = range(k - 1 - (omega - 1 if kept else omega), k - 1)
        for draws in itertools.product(*(sorted({0, last // 2, last}) for last in lasts)):
            chosen: list[int] = []
            for last, draw in zip(lasts, draws, strict=True):  # Floyd
                chosen.append(last if draw in chosen else draw)
            others = [x + (x >= cell) for x in chosen]
            expected = tuple(sorted([*others, cell] if kept else others))
            assert len(expected) == omega
            assert (cell in expected) == kept
            words = [word for draw in draws for word in (draw, *[0] * 8)]
            assert both(oracle, cell, word_of(fraction), *words) == expected


@pytest.mark.parametrize("oracle", [Hadamard.calibrate(5, 1), Hadamard.calibrate(8, "ln 3")], ids=str)
def test_hadamard_flips_its_bit_exactly_as_often_as_its_integer_says(oracle):
    for cell, row in itertools.product(range(oracle.k), range(oracle.order)):
        for fraction in around([oracle.lie]):
            bit = bin(row & cell).count("1") % 2 ^ (fraction < oracle.lie)
            assert both(oracle, cell, row, *[0] * 8, word_of(fraction)) == (row, bit)


@pytest.mark.parametrize("oracle", [TwoStage.calibrate([2, 1, 0], 2), TwoStage.calibrate([1, 3], 3, mode="tight")])
def test_two_stage_lies_exactly_as_often_as_its_integers_say(oracle):
    lies, queries = dict(oracle.url_lies), len(oracle.urls) + 1
    sizes = [*(count + 1 for count in oracle.urls), 1]
    starts = [sum(sizes[:i]) for i in range(queries)]
    for query, fraction in itertools.product(range(queries), around([i * oracle.query_lie for i in range(1, queries)])):
        sent = says(queries, oracle.query_lie, query, fraction)
        size = sizes[sent]
        for url in range(sizes[query]):
            options = (
                [(draw, None) for draw in range(size)]
                if sent != query
                else [(None, f) for f in around([i * lies[size] for i in range(1, size)])]
                if size > 1
                else [(None, None)]
            )
            for draw, second in options:
                words = [] if draw is None else [draw, *[0] * 8]
                words += [] if second is None else [word_of(second)]
                landed = draw if draw is not None else url if second is None else says(size, lies[size], url, second)
                assert both(oracle, starts[query] + url, word_of(fraction), *words) == starts[sent] + landed


# ---- numbers and texts: coins that a secret keeps ------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 10, 1000])
def test_1bitmean_answers_exactly_as_often_as_its_integers_say(most):
    mean = OneBitMean.calibrate(most, 1)
    for value in {0, 1, most // 2, most}:
        chance = mean.low + mean.unit * value
        for fraction in around([chance]):
            expected = int(fraction < chance)
            assert mean.randomize_many([value], Given([word_of(fraction)])).tolist() == [expected]


def kept_words(monkeypatch, *words):
    """Let the device's secret give these words, eight bytes each, big-endian, four to a digest."""
    left = list(words)

    def digest(*_):
        taken = [left.pop(0) if left else 0 for _ in range(4)]
        return b"".join(word.to_bytes(8, "big") for word in taken)

    monkeypatch.setattr(hmac, "digest", digest)


@pytest.mark.parametrize("step", [10, 2])
def test_the_kept_bit_is_decided_exactly_by_the_grid_points_chance(monkeypatch, step):
    memo, device = OneBitMean.calibrate(10, 1, step), Device(b"s" * 32, b"task", bytes(32))
    assert device.coins  # computed before words are given
    for value, alpha in itertools.product(range(11), {0, 1, step - 1}):
        left = value - value % step
        point = left + step if value + alpha >= left + step else left
        chance = memo.low + memo.unit * point
        for fraction in around([chance]):
            kept_words(monkeypatch, word_of(alpha), 0, 0, 0, word_of(fraction))
            assert memo.respond(value, device) == int(fraction < chance), (value, alpha)


def test_dbitflip_keeps_each_bit_exactly_as_often_as_its_integer_says():
    flip = DBitFlip.calibrate(6, 3, 2)
    sampled = np.array([[0, 2, 5]])
    fractions = around([flip.keep])
    for value, drawn in itertools.product(range(6), itertools.product(fractions, repeat=3)):
        expected = [(bucket == value) == (f < flip.keep) for bucket, f in zip((0, 2, 5), drawn, strict=True)]
        got = flip.randomize_many([value], sampled, Given(map(word_of, drawn)))
        assert got.tolist() == [expected]


def test_rappors_permanent_bits_flip_exactly_as_often_as_f_says(monkeypatch):
    device = Encoder(Params(8, 2, 4, "0.25", "0.75", "0.3"), bytes(32), task=b"t")
    half = -(-3 * ONE // 20)  # f/2 of 2^53, rounded up: more noise, never less
    fractions = around([half])
    for bloom, turn in itertools.product((0, 0b10010001, 0xFF), range(len(fractions))):
        drawn = [fractions[(turn + i) % len(fractions)] for i in range(8)]
        kept_words(monkeypatch, *map(word_of, drawn))
        flips = sum((f < half) << i for i, f in enumerate(drawn))
        assert device.permanent(bloom) == bloom ^ flips


def test_rappors_instant_bits_come_exactly_as_often_as_p_and_q_say():
    device = Encoder(Params(4, 1, 4, "0.3", "0.7", "0.5"), bytes(32), task=b"t")
    p, q = -(-3 * ONE // 10), 7 * ONE // 10  # p up and q down: they never lose more than was configured
    for permanent, zero, one in itertools.product((0, 5, 15), around([p]), around([q])):
        expected = sum((one < q if permanent >> i & 1 else zero < p) << i for i in range(4))
        assert device.instant(permanent, Given([word_of(zero)] * 4 + [word_of(one)] * 4)) == expected
