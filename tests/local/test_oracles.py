"""Frequency oracles: the exact loss is the claimed one, estimates are unbiased with the stated variance, and tallies
merge."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.configuration import ORACLES, choose_oracle, oracle_named
from hushquery.local.oracles.hadamard import Hadamard, parity, walsh_hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH, PRIME
from hushquery.local.oracles.subset import SubsetSelection, others
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE, bit_counts
from hushquery.local.randomizer import (
    MOST_CELLS,
    ONE,
    SupportCount,
    chance_down,
    chance_up,
    coins,
    loss_of_ratio,
    many_coins,
)
from statistical import bits, every_position, fit, mean, rate, tally

EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(7, 3), Fraction(4), Fraction(8)]


def small(epsilon):
    """Every randomizer on a domain that can be enumerated."""
    return {
        "binary": KRR.calibrate(2, epsilon),
        "krr": KRR.calibrate(5, epsilon),
        "oue": OUE.calibrate(5, epsilon),
        "olh": OLH.calibrate(5, epsilon, g=3, prime=7),
        "subset": SubsetSelection.calibrate(6, epsilon, omega=2),
        "subset of best size": SubsetSelection.calibrate(9, epsilon),
        "hadamard": Hadamard.calibrate(5, epsilon),
        "two-stage": TwoStage.calibrate((2, 1, 0), epsilon),
        "tight two-stage": TwoStage.calibrate((2, 1, 0), epsilon, mode="tight"),
    }


NAMES = list(small(1))
EVERY = pytest.mark.parametrize("name", NAMES)


def rows_of(oracle, *reports):
    """The reports as a server reads them."""
    packed = b"".join(map(oracle.pack, reports))
    return oracle.unpack_many(np.frombuffer(packed, dtype=np.uint8).reshape(-1, oracle.report_bytes))


def supports(oracle, report):
    """The cells that one report speaks for."""
    return oracle.support(rows_of(oracle, report))


# ---- what one report loses -----------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_largest_ratio_of_all_reports_is_the_claimed_epsilon(name, epsilon):
    oracle = small(epsilon)[name]
    laws = [oracle.law(value) for value in range(oracle.k)]
    worst = 0.0
    for law, other in itertools.permutations(laws, 2):
        assert law.keys() == other.keys()
        worst = max(worst, max(math.log(law[report] / other[report]) for report in law))
    assert all(math.fsum(law.values()) == pytest.approx(1, abs=1e-12) for law in laws)
    assert worst == pytest.approx(float(oracle.epsilon), rel=1e-9)
    assert oracle.epsilon <= epsilon
    if name != "two-stage":  # as the paper splits it, it leaves some unused
        assert oracle.epsilon >= epsilon * (1 - Fraction(1, 10**6))


@pytest.mark.parametrize("k", [2, 3, 51, 501, 5001])
@pytest.mark.parametrize("epsilon", ["1/10", "1/3", "1", "4", "ln 3", "12"])
@pytest.mark.parametrize("name", ORACLES)
def test_the_claim_from_the_integers_never_exceeds_what_was_asked_for(name, k, epsilon):
    from hushquery.core.budget import exact

    oracle = oracle_named(name, k, epsilon)
    assert Fraction(99, 100) * exact(epsilon) <= oracle.epsilon <= exact(epsilon)
    assert 0 < oracle.q < oracle.p < 1


def test_claims_are_those_of_the_integers():
    oracle = KRR.calibrate(7, 2)
    assert float(oracle.epsilon) == pytest.approx(math.log(oracle.p * 6 / (1 - oracle.p)), rel=1e-14)
    oracle = SubsetSelection.calibrate(100, 1)
    assert oracle.omega == 27
    assert float(oracle.epsilon) == pytest.approx(math.log(oracle.p * 73 / ((1 - oracle.p) * 27)), rel=1e-14)
    loosened = KRR(7, KRR.calibrate(7, 2).lie - 1)
    assert loosened.epsilon > 2  # the calibrated integer is the best one


def test_two_stage_claims_match_the_known_values():
    for size, value in ((2, 3.656), (3, 3.758), (5, 3.848)):
        assert float(TwoStage.calibrate([size - 1] * 10, 4).epsilon) == pytest.approx(value, abs=5e-4)


def test_tight_two_stage_takes_the_urls_epsilon_that_it_is_given():
    given = TwoStage.tight((3, 1), Fraction(4), Fraction(2))
    size, lie = given.url_lies[-1]
    assert size == 4
    assert float(loss_of_ratio(ONE - 3 * lie, lie)) == pytest.approx(2, rel=1e-9)
    assert Fraction(4) - given.epsilon < Fraction(1, 10**9)
    whole = TwoStage.tight((3, 1), Fraction(4), Fraction(4))  # even all of it leaves something
    assert whole.epsilon <= 4
    assert TwoStage.calibrate((3, 1), 4, mode="tight").variance(0) <= min(given.variance(0), whole.variance(0))


def test_an_empty_head_list_tells_nothing():
    oracle = TwoStage.calibrate((), 1)
    assert (oracle.k, oracle.epsilon, oracle.law(0)) == (1, 0, {0: 1.0})
    counted = SupportCount(oracle)
    counted.add_many(oracle.randomize_many([0, 0, 0], bits("empty")))
    assert counted.estimate().values == [1.0]
    assert oracle.query_frequencies(counted.support, 3)[0].tolist() == [1.0]


def test_queries_are_estimated_by_themselves():
    oracle = TwoStage.calibrate((2, 1), 3)
    values = np.repeat(np.arange(6), [300, 200, 0, 250, 50, 200])
    support = oracle.support(oracle.randomize_many(np.tile(values, 20), bits("queries")))
    found, errors = oracle.query_frequencies(support, 20_000)
    assert (np.abs(found - [0.5, 0.3, 0.2]) < 6 * errors).all()
    assert found.sum() == pytest.approx(1)
    records, _ = oracle.frequencies(support, 20_000)
    assert records[:3].sum() == pytest.approx(found[0])  # the two levels agree


# ---- unbiased, and with the stated variance ------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(4)])
def test_estimates_are_exactly_unbiased_with_the_stated_variance(name, epsilon):
    """By enumeration: an estimate is an average over reports, so one report has its mean and n times its variance."""
    oracle = small(epsilon)[name]
    shares = np.arange(1.0, oracle.k + 1)
    shares[0] = 0.0
    shares /= shares.sum()
    first, second = np.zeros(oracle.k), np.zeros(oracle.k)
    for value, share in enumerate(shares):
        for report, chance in oracle.law(value).items():
            estimate, _ = oracle.frequencies(supports(oracle, report), 1)
            first += share * chance * estimate
            second += share * chance * estimate**2
    assert first == pytest.approx(shares, abs=1e-9)
    for cell in range(oracle.k):
        if isinstance(oracle, TwoStage):
            query = int(np.searchsorted(oracle.starts, cell, side="right")) - 1
            of_query = shares[oracle.starts[query] : oracle.starts[query] + oracle.sizes[query]].sum()
            stated = oracle.variance(cell, shares[cell], of_query)
        else:
            stated = oracle.variance(shares[cell])
        assert second[cell] - first[cell] ** 2 == pytest.approx(stated, rel=1e-9), cell


@EVERY
def test_standard_errors_are_those_of_the_shares_that_were_seen(name):
    """The square of a standard error is unbiased for the variance: checked over all samples of two reports."""
    oracle = small(Fraction(1))[name]
    values = (0, oracle.k - 1)
    mixed = Counter()
    for value in values:
        for report, chance in oracle.law(value).items():
            mixed[report] += chance / 2
    assert len(mixed) <= 200, "too many pairs of reports: make the small oracle smaller"
    vectors = {report: supports(oracle, report) for report in mixed}
    squared, estimates, squares = np.zeros(oracle.k), np.zeros(oracle.k), np.zeros(oracle.k)
    for (one, p), (two, q) in itertools.product(mixed.items(), repeat=2):
        found, error = oracle.frequencies(vectors[one] + vectors[two], 2)
        squared += p * q * error**2
        estimates += p * q * found
        squares += p * q * found**2
    assert squared == pytest.approx(squares - estimates**2, rel=1e-8)


@EVERY
def test_one_at_a_time_and_many_at_once_follow_the_law(name):
    oracle = small(Fraction(1))[name]
    for value in (0, oracle.k - 1):
        law = oracle.law(value)
        many = oracle.randomize_many(np.full(60_000, value), bits("many", name, value))
        seen = tally(many) if many.dtype != np.uint8 else Counter(row.tobytes() for row in many)
        every_position(seen, law)
        fit(seen, law)
    source = bits("one", name)
    fit(Counter(oracle.randomize(0, source) for _ in range(3000)), oracle.law(0))


def test_mixed_values_are_randomised_each_by_itself():
    oracle = KRR.calibrate(4, 2)
    values = np.tile([3, 0, 1], 40_000)
    reports = oracle.randomize_many(values, bits("mixed"))
    for value in (0, 1, 3):
        fit(tally(reports[values == value]), oracle.law(value))


def test_intervals_cover():
    oracle = SubsetSelection.calibrate(20, 2)
    values = np.repeat(np.arange(20), 50)
    source, inside = bits("cover"), 0
    for _ in range(300):
        counted = SupportCount(oracle)
        counted.add_many(oracle.randomize_many(values, source))
        row = counted.estimate()["3"]
        inside += row.low <= 0.05 <= row.high
    assert 270 <= inside <= 298


# ---- the best oracle -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "k", "krr", "oue", "subset", "paper", "tight"),
    [
        (4, 51, 0.036, 0.076, 0.036, 0.286, 0.054),
        (4, 501, 0.193, 0.076, 0.072, 1.90, 0.367),
        (1, 51, 17.5, 3.68, 3.50, 434, 34.8),
    ],
)
def test_variances_are_the_known_ones(epsilon, k, krr, oue, subset, paper, tight):
    choice = choose_oracle(k, epsilon)
    for name, known in (("krr", krr), ("oue", oue), ("subset", subset)):
        assert choice.variances[name] == pytest.approx(known, rel=0.015), name
    urls = [1] * (k - 1)
    assert TwoStage.calibrate(urls, epsilon).variance(0) == pytest.approx(paper, rel=0.01)
    assert TwoStage.calibrate(urls, epsilon, mode="tight").variance(0) == pytest.approx(tight, rel=0.02)
    e = math.exp(epsilon)
    assert choice.variances["hadamard"] == pytest.approx(((e + 1) / (e - 1)) ** 2, rel=1e-9)
    assert choice.variances["olh"] == pytest.approx(oue, rel=0.01)


def test_the_choice_is_the_smallest_variance_and_says_why():
    for k, epsilon in itertools.product((2, 10, 51, 501, 5001), (Fraction(1, 2), 1, 2, 4, 5)):
        choice = choose_oracle(k, epsilon)
        assert choice.variances[choice.oracle.name] <= min(choice.variances.values()) * (1 + 1e-8)
        assert choice.why.startswith(choice.oracle.name)
        assert set(choice.variances) == set(ORACLES) == set(choice.report_bytes)
        assert choice.variances["subset"] <= min(choice.variances.values()) * (1 + 1e-8)  # never worse
    equal = choose_oracle(51, 4)
    assert equal.oracle.name == "krr"
    assert "subset" in equal.why  # with one cell the two are the same
    assert "1 byte" in choose_oracle(2, 1).why
    assert "1 bytes" not in choose_oracle(2, 1).why
    near = choose_oracle(5001, 1, within="1/100")
    assert near.oracle.name == "olh"
    assert near.report_bytes["olh"] < near.report_bytes["subset"]


@pytest.mark.parametrize("epsilon", ["1e-9", "1/1000", "1/10", 1, "ln 3", 2, "5/2", 4, "ln 65536", 12, 20])
def test_calibrating_only_what_can_win_chooses_the_same(epsilon):
    for k in (2, 3, 4, 5, 6, 8, 9, 16, 17, 51, 83, 84, 257, 501, 5001, 65_536, 65_537, 2**20):
        assert oracle_named("auto", k, epsilon) == choose_oracle(k, epsilon).oracle, k


def test_oracles_by_name():
    assert oracle_named("auto", 51, 4) == KRR.calibrate(51, 4)
    for name in ORACLES:
        assert oracle_named(name, 9, 1).name == name
    with pytest.raises(UsageError, match="auto or one of krr"):
        oracle_named("rappor", 9, 1)
    with pytest.raises(UsageError, match="within"):
        choose_oracle(5, 1, within=-1)


# ---- counting ------------------------------------------------------------------------------------------------------


@EVERY
def test_counts_of_arrays_of_shards_and_of_bytes_are_the_same(name):
    oracle = small(Fraction(1))[name]
    rows = oracle.randomize_many(np.arange(3000) % oracle.k, bits("merge", name))
    whole, shards = SupportCount(oracle), SupportCount(oracle)
    whole.add_many(rows)
    for some in np.array_split(rows, 3):
        shards.add_many(some)
    assert whole.n == shards.n == 3000
    assert shards.estimate() == whole.estimate()
    listed = rows_of(oracle, *(oracle.report(row) for row in rows))
    assert np.array_equal(oracle.support(listed), whole.support)


def test_counts_refuse_what_is_not_theirs():
    oracle = KRR.calibrate(3, 1)
    with pytest.raises(DataError, match="two reports"):
        SupportCount(oracle).estimate()
    full = SupportCount(oracle)
    full.add_many(np.array([0, 1, 1]))
    with pytest.raises(DataError):
        full.add_many(np.array([1, 7]))
    assert full.n == 3
    assert full.support.tolist() == [1, 2, 0]
    assert [row.label for row in full.estimate()] == ["0", "1", "2"]


# ---- the parts -----------------------------------------------------------------------------------------------------


def test_olh_supports_the_cells_that_its_hash_puts_into_the_bucket():
    for oracle in (OLH.calibrate(40, 1), OLH.calibrate(6, 2, g=5, prime=7), OLH.calibrate(30, 9)):
        reports = oracle.randomize_many(np.arange(500) % oracle.k, bits("olh", oracle.k))
        slow = np.array(
            [sum(oracle.bucket(seed, cell) == b for seed, b in reports.tolist()) for cell in range(oracle.k)]
        )
        assert np.array_equal(oracle.support(reports), slow)
    assert OLH.calibrate(10, 1).g == 4
    edge = OLH.calibrate(MOST_CELLS, 1)
    seed = (PRIME - 1) * PRIME + PRIME - 1
    assert edge.bucket(seed, MOST_CELLS - 1) == (PRIME - MOST_CELLS) * 4 // PRIME  # -(x + 1) modulo P
    reports = edge.randomize_many(np.full(200, MOST_CELLS - 1), bits("edge"))
    kept = sum(edge.bucket(s, MOST_CELLS - 1) == b for s, b in reports.tolist())
    rate(kept, 200, float(edge.p))


def test_the_hash_family_is_pairwise_independent():
    oracle = OLH.calibrate(5, 1, g=3, prime=7)
    for x, y in itertools.combinations(range(5), 2):
        seen = Counter((oracle.bucket(s, x), oracle.bucket(s, y)) for s in range(49))
        sizes = [3, 2, 2]
        assert all(seen[i, j] == sizes[i] * sizes[j] for i in range(3) for j in range(3))


def test_bit_counts_are_column_sums():
    source = np.random.default_rng(5)
    for n, width in ((0, 1), (1, 1), (2, 8), (3, 9), (1000, 7), (5000, 17), (70_000, 30)):
        rows = source.integers(0, 256, (n, width)).astype(np.uint8)
        assert np.array_equal(bit_counts(rows), np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0))


def test_hadamard_transform_and_parity():
    order = 16
    matrix = np.array([[1 - 2 * ((i & j).bit_count() % 2) for j in range(order)] for i in range(order)])
    numbers = np.arange(order) ** 2 - 40
    assert np.array_equal(walsh_hadamard(numbers), matrix @ numbers)
    some = np.array([0, 1, 2**23, 2**24 - 1, 0x812345])
    assert parity(some).tolist() == [int(x).bit_count() % 2 for x in some]


def test_other_cells_are_a_uniform_set_in_any_number():
    for size in (1, 2, 3):
        drawn = np.sort(np.stack(others(np.full(30_000, 2), 4, size, bits("others", size)), axis=1), axis=1)
        sets = list(itertools.combinations((0, 1, 3), size))
        every_position(tally(drawn), {s: 1 / len(sets) for s in sets})
    assert others(np.array([1]), 4, 0, bits("none")) == []


def test_sets_leave_in_ascending_order():
    oracle = SubsetSelection.calibrate(40, 1)
    sets = oracle.randomize_many(np.arange(400) % 40, bits("order"))
    assert sets.shape == (400, oracle.omega)
    assert (np.diff(sets, axis=1) > 0).all()


def test_coins_show_the_chance_and_the_short_ones_too():
    for chance in (Fraction(1, 3), Fraction(1, 100_000), Fraction(255, 256) + Fraction(1, 1000)):
        for toss in (coins, many_coins):
            rate(int(toss(chance_down(chance), 300_000, bits(toss.__name__, chance)).sum()), 300_000, float(chance))

    class Undecided:
        """First words whose bytes all equal the first byte of the chance, then words with a given tail."""

        secret = False

        def __init__(self, tail):
            self.queue = [0x5555555555555555, tail << 19]

        def words(self, n):
            return np.full(n, self.queue.pop(0), dtype=np.uint64)

    numerator = 0x55 * 2**45 + 7
    assert many_coins(numerator, 5, Undecided(6)).all()
    assert not many_coins(numerator, 5, Undecided(7)).any()
    assert not many_coins(0, 9, bits("no")).any()
    assert many_coins(ONE, 9, bits("yes")).all()


def test_chances_round_in_the_direction_that_is_said():
    third = Fraction(1, 3)
    assert chance_up(third) - chance_down(third) == 1
    assert chance_down(third) < third * ONE < chance_up(third)
    assert loss_of_ratio(5, 5) == 0
    assert loss_of_ratio(3, 1) > math.log(3) * (1 - 1e-15)
    for bad in (Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(UsageError):
            chance_down(bad)
    with pytest.raises(CalibrationError):
        loss_of_ratio(1, 0)
    with pytest.raises(UsageError):
        coins(ONE + 1, 1, bits("too many"))


def test_estimates_of_a_large_domain_are_near():
    oracle = OUE.calibrate(300, 3)
    values = np.concatenate([np.zeros(60_000, dtype=np.int64), np.arange(60_000) % 300])
    counted = SupportCount(oracle)
    counted.add_many(oracle.randomize_many(values, bits("large")))
    share = 0.5 + 0.5 / 300
    spread = oracle.variance(share, len(values))
    assert abs(counted.estimate()["0"].value - share) < 6.5 * math.sqrt(spread)
    support = np.unpackbits(oracle.randomize_many(values, bits("large")), axis=1, bitorder="little")[:, 5]
    own = float(oracle.q) + (float(oracle.p) - float(oracle.q)) * (0.5 / 300)
    mean(support.astype(float), own, own * (1 - own))


@pytest.mark.parametrize(
    "build",
    [
        lambda: KRR(3, ONE // 3 + 1),
        lambda: KRR(3, 0),
        lambda: KRR(3, ONE),
        lambda: OLH(10, 4, ONE // 4 + 1),
        lambda: OUE(3, ONE // 2 + 1),
        lambda: Hadamard(3, ONE // 2 + 1),
        lambda: SubsetSelection(4, 2, ONE // 2 - 1),
        lambda: TwoStage((1, 1), ONE // 3 + 1, ((2, ONE // 4),)),
        lambda: TwoStage((1, 1), ONE // 4, ((2, ONE // 2 + 1),)),
        lambda: TwoStage((1, 1), ONE // 4, ()),
        lambda: TwoStage((1, 1), ONE // 4, ((2, ONE // 4), (2, ONE // 8))),
    ],
)
def test_a_truth_that_is_rarer_than_a_lie_is_refused(build):
    """Its loss would be that of the other way round, which the formulas do not give: here even below zero."""
    with pytest.raises(UsageError):
        build()


def test_chances_that_say_nothing_cost_nothing():
    for oracle in (KRR(4, ONE // 4), OLH(10, 4, ONE // 4), OUE(3, ONE // 2), Hadamard(3, ONE // 2)):
        assert oracle.epsilon == 0
    assert SubsetSelection(4, 2, ONE // 2).epsilon == 0
