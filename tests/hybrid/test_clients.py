"""Client shares: cells, unbiased estimates, and variances that are those of the reports, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.hybrid.clients import (
    FlatShares,
    TwoStageCells,
    TwoStageShares,
    joint_chances,
)
from hushquery.local.configuration import oracle_named
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import ONE, SupportCount
from hushquery.task.domain import Domain, GroupedDomain
from hybrid_sides import head
from statistical import bits, mean, number

MANY = 10**15


def sent(oracle, shares, runs, n, *name):
    """The support of ``runs`` batches of ``n`` clients drawn from ``shares``, through the real randomizer."""
    rng = np.random.default_rng(number(*name))
    values = rng.choice(oracle.k, size=runs * n, p=shares)
    reports = oracle.randomize_many(values, bits(*name))
    batch = np.repeat(np.arange(runs), n)
    return np.bincount(batch * oracle.k + reports, minlength=runs * oracle.k).reshape(runs, oracle.k)


def as_counts(rates):
    """Counts of ``MANY`` reports whose shares are as good as the rates; variances scale with 1/n."""
    return np.floor(MANY * rates).astype(np.int64)


def estimated(shares_of, k, support, n):
    """The estimates of many batches: they are affine in the support, so the real code is asked for each cell once."""
    zero = shares_of(np.zeros(k, dtype=np.int64), n).values
    slopes = np.array([shares_of(n * row, n).values for row in np.eye(k, dtype=np.int64)]) - zero
    return zero + support @ slopes / n


# ---- cells ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("uvwxyz")), unique=True, max_size=20))
def test_every_record_has_its_own_cell_and_all_else_a_wildcard(records):
    two = TwoStageCells(records)
    oracle = two.randomizer(1)
    assert oracle.k == two.k
    seen = {}
    for i, (query, url) in enumerate(records):
        q = two.queries.index(query)
        place = seen.setdefault(query, []).__len__()
        seen[query].append(url)
        assert oracle.starts[q] + place == two.record_cells[i]
    for q in range(len(two.queries)):
        assert oracle.starts[q] + oracle.urls[q] == two.other_cells[q]
    if records:
        # A client finds the same cells in the domain that it downloads.
        told = GroupedDomain.of(Domain.read("searches", records, wildcard=True))
        assert [told.cell(*record) for record in records] == two.record_cells.tolist()
        assert [told.cell(query, "unknown") for query in two.queries] == two.other_cells.tolist()
        assert told.cell("unknown", "u") == two.k - 1


def test_a_record_that_comes_twice_is_refused():
    with pytest.raises(UsageError, match="twice"):
        TwoStageCells([("a", "u"), ("a", "u")])


# ---- two stages: the corrected Theorem 5 ---------------------------------------------------------------------------

# (URLs per query, epsilon, f_C, shares of queries, share of each query that its k-th URL has)
SETTINGS = {
    "few queries, heavy": ((1, 1, 1, 1), 4, "0.85", (0.5, 0.2, 0.1, 0.05), 0.7),
    "small epsilon": ((2, 2, 2), 1, "0.5", (0.3, 0.3, 0.1), 0.5),
    "many URLs": ((5, 3), 3, "0.6", (0.4, 0.3), 0.4),
    "uneven": ((6, 1, 2, 1, 3), 2, "0.7", (0.2, 0.1, 0.3, 0.05, 0.05), 0.6),
    "one query of everything": ((2,), 2, "0.85", (0.9,), 0.6),
    "rare records": ((1,) * 10, 4, "0.85", (0.02,) * 10, 0.6),
    "large epsilon": ((2, 1), 6, "0.5", (0.6, 0.2), 0.3),
}


def two_stage(name):
    urls, epsilon, split, of_query, first = SETTINGS[name]
    cells = TwoStageCells(head(*urls))
    shares = []
    for count, total in zip(urls, of_query, strict=True):
        inside = first ** np.arange(1, count + 2)
        shares += (total * inside / inside.sum()).tolist()
    return cells, cells.randomizer(epsilon, split), np.array([*shares, 1 - sum(shares)])


def judge_two_stage(name, runs, n):
    cells, oracle, shares = two_stage(name)
    support = sent(oracle, shares, runs, n, "two-stage", name)
    estimates = estimated(lambda s, n: TwoStageShares(cells, oracle, s, n), oracle.k, support, n)
    # What the clients say of whole queries fills in what records leave open: tell it the truth.
    truth = TwoStageShares(cells, oracle, as_counts(oracle_rates(oracle, shares)), MANY)
    p = shares[cells.record_cells]
    assert truth.query_values == pytest.approx(SETTINGS[name][3], abs=1e-9)
    stated = truth.variance_at(p) * MANY / n
    for i, cell in enumerate(cells.record_cells.tolist()):
        mean(estimates[:, i], shares[cell], stated[i], f"{name}, cell {cell}")
        assert estimates[:, i].var() == pytest.approx(stated[i], rel=0.02)
    weights = np.linspace(-1, 2, len(p))
    assert (estimates @ weights).var() == pytest.approx(truth.variance_of_sum(weights, p) * MANY / n, rel=0.02)


def oracle_rates(oracle, shares):
    return sum(share * np.array(list(oracle.law(v).values())) for v, share in enumerate(shares))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_corrected_variance_is_that_of_the_reports(name):
    judge_two_stage(name, 250_000, 10)


@pytest.mark.prove
@pytest.mark.parametrize("name", SETTINGS)
def test_the_corrected_variance_is_that_of_larger_batches(name):
    judge_two_stage(name, 500_000, 30)


@pytest.mark.parametrize("name", ["small epsilon", "many URLs", "flat"])
def test_equal_records_of_one_client_vary_exactly_as_stated(name):
    """m reports of one value: each randomised anew, the value drawn once."""
    m, clients = 4, MANY // 4
    if name == "flat":
        oracle, shares = KRR.calibrate(5, 2), np.array([0.4, 0.3, 0.1, 0.1, 0.1])
        here, made = np.arange(4), lambda support, n, each: FlatShares(oracle, support, n, each)
    else:
        cells, oracle, shares = two_stage(name)
        here, made = cells.record_cells, lambda support, n, each: TwoStageShares(cells, oracle, support, n, each)
    laws = np.array([list(oracle.law(value).values()) for value in range(oracle.k)], dtype=np.float64)
    rates = shares @ laws
    # The covariance of one client's m reports: the mean of the multinomial ones, and that of the means.
    inside = np.diag(rates) - np.einsum("v,vi,vj->ij", shares, laws, laws)
    between = np.einsum("v,vi,vj->ij", shares, laws - rates, laws - rates)
    zero = made(np.zeros(oracle.k, dtype=np.int64), 1, 1).values
    slopes = np.array([made(row, 1, 1).values - zero for row in np.eye(oracle.k, dtype=np.int64)])
    exact = slopes.T @ (m * inside + m**2 * between) @ slopes * clients / MANY**2
    stated, p = made(as_counts(rates), MANY, m), shares[here]
    assert stated.variance_at(p) == pytest.approx(np.diag(exact), rel=1e-6)
    weights = np.linspace(0.2, 1, len(p))
    assert stated.variance_of_sum(weights, p) == pytest.approx(weights @ exact @ weights, rel=1e-6)
    assert stated.covariance_at(p, slice(None)) is None  # records of one client may also be independent


@pytest.mark.parametrize("name", SETTINGS)
def test_covariances_of_two_stage_shares_are_exact(name):
    cells, oracle, shares = two_stage(name)
    n, p = MANY, shares[cells.record_cells]
    rates = oracle_rates(oracle, shares)
    at_truth = TwoStageShares(cells, oracle, as_counts(rates), n)
    zero = TwoStageShares(cells, oracle, np.zeros(oracle.k, dtype=np.int64), 1).values
    slopes = np.array([TwoStageShares(cells, oracle, row, 1).values - zero for row in np.eye(oracle.k, dtype=np.int64)])
    exact = slopes.T @ (np.diag(rates) - np.outer(rates, rates)) @ slopes / n
    given = np.vstack([at_truth.covariance_at(p, slice(i, i + 2)) for i in range(0, len(p), 2)])
    assert given == pytest.approx(exact, rel=1e-9, abs=1e-15 / n)
    assert at_truth.variance_at(p) == pytest.approx(np.diag(exact), rel=1e-9)
    weights = np.linspace(-1, 1, len(p))
    assert at_truth.variance_of_sum(weights, p) == pytest.approx(weights @ exact @ weights, rel=1e-9)
    for i, cell in enumerate(cells.record_cells.tolist()):  # the oracle's own formula
        of_query = SETTINGS[name][3][cells.query_of[i]]
        assert oracle.variance(cell, shares[cell], of_query, n) == pytest.approx(exact[i, i], rel=1e-9)


def test_a_query_never_has_less_than_its_records():
    cells = TwoStageCells(head(2, 1))
    oracle = cells.randomizer(2)
    nobody = TwoStageShares(cells, oracle, np.zeros(6, dtype=np.int64), 10)  # says that no query was searched for
    assert (nobody.query_values < 0).all()
    assert (nobody.variance_at(np.array([0.4, 0.3, 0.2])) > 0).all()


# ---- one stage: every oracle ---------------------------------------------------------------------------------------


def flat(name, epsilon=1.5):
    return {
        "krr": lambda: KRR.calibrate(5, epsilon),
        "oue": lambda: OUE.calibrate(5, epsilon),
        "subset": lambda: SubsetSelection.calibrate(6, epsilon, omega=2),
        "large subset": lambda: SubsetSelection.calibrate(6, epsilon, omega=4),
        "pair": lambda: SubsetSelection.calibrate(2, epsilon),
        "hadamard": lambda: Hadamard.calibrate(5, epsilon),
    }[name]()


def moments(oracle, shares):
    """Mean and covariance of the cells that one report speaks for, by enumeration."""
    first, second = np.zeros(oracle.k), np.zeros((oracle.k, oracle.k))
    for value, share in enumerate(shares):
        law = oracle.law(value)
        spoken = np.array(
            [
                oracle.support(oracle.unpack_many(np.frombuffer(oracle.pack(report), dtype=np.uint8)[None]))
                for report in law
            ]
        )
        chances = share * np.array(list(law.values()))
        first += chances @ spoken
        second += (spoken * chances[:, None]).T @ spoken
    return first, second - np.outer(first, first)


@pytest.mark.parametrize("name", ["krr", "oue", "subset", "large subset", "pair", "hadamard"])
def test_shares_are_unbiased_and_their_covariances_exact(name):
    oracle = flat(name)
    shares = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])[: oracle.k]
    shares = shares / shares.sum()
    n, p, gap = MANY, shares[:-1], float(oracle.p - oracle.q)
    first, covariance = moments(oracle, shares)
    seen = FlatShares(oracle, as_counts(first), n)
    assert seen.values == pytest.approx(p, abs=1e-12)
    exact = covariance[:-1, :-1] / (n * gap**2)
    given = np.vstack([seen.covariance_at(p, slice(i, i + 2)) for i in range(0, len(p), 2)])
    assert given == pytest.approx(exact, rel=1e-9, abs=1e-15 / n)
    assert seen.variance_at(p) == pytest.approx(np.diag(exact), rel=1e-9)
    weights = np.linspace(-1, 2, len(p))
    assert seen.variance_of_sum(weights, p) == pytest.approx(weights @ exact @ weights, rel=1e-9)


def test_sums_under_local_hashing_are_averaged_over_seeds():
    oracle = OLH.calibrate(5, 1, g=3, prime=41)
    shares = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    first, covariance = moments(oracle, shares)
    seen = FlatShares(oracle, as_counts(first), MANY)
    assert seen.values == pytest.approx(shares[:-1], abs=1e-12)
    gap = float(oracle.p - oracle.q)
    for weights in (np.ones(4), np.array([1.0, 1, 0, 0]), np.array([1.0, -1, 0.5, 2])):
        exact = weights @ covariance[:-1, :-1] @ weights / (MANY * gap**2)
        assert seen.variance_of_sum(weights, shares[:-1]) == pytest.approx(exact, rel=0.01)
    assert seen.variance_at(shares[:-1]) == pytest.approx(np.diag(covariance)[:-1] / (MANY * gap**2), rel=1e-9)
    assert seen.covariance_at(shares[:-1], slice(0, 4)) is None
    # As if the hash were independent on three cells it would be this much less: why seeds are averaged over.
    one = FlatShares(OLH.calibrate(51, 4), np.zeros(51, dtype=np.int64), 1)
    rare = np.full(50, 0.01)
    assert one.variance_of_sum(np.ones(50), rare) > 1.5 * one.variance_at(rare).sum()


def test_local_hashing_has_no_common_joint_chances():
    with pytest.raises(UsageError, match="same for all cells"):
        joint_chances(OLH.calibrate(5, 1))


@pytest.mark.parametrize("name", ["krr", "oue", "olh", "subset", "hadamard", "auto"])
def test_a_tally_becomes_shares(name):
    oracle = oracle_named(name, 4, 3)
    tally = SupportCount(oracle)
    values = np.repeat([0, 1, 2, 3], [50_000, 30_000, 15_000, 5_000])
    tally.add_many(tally.oracle.randomize_many(values, bits("tally", name)))
    shares = FlatShares(oracle, tally.support, tally.n)
    truth = np.array([0.5, 0.3, 0.15])
    z = (shares.values - truth) / np.sqrt(shares.variance_at(truth))
    assert np.abs(z).max() < 6  # fixed counts vary less than clients drawn at random


# ---- edges ---------------------------------------------------------------------------------------------------------


def test_an_empty_head_list_has_one_cell_that_says_nothing():
    cells = TwoStageCells([])
    tally = SupportCount(cells.randomizer(1))
    assert tally.oracle.epsilon == 0
    tally.add_many(np.array([0, 0]))
    none = np.zeros(0)
    two = TwoStageShares(cells, cells.randomizer(1), tally.support, tally.n)
    assert two.values.shape == two.variance_at(none).shape == (0,)
    assert two.variance_of_sum(none, none) == 0


def test_degenerate_chances_are_refused():
    cells = TwoStageCells(head(1, 1, 1))
    empty = np.zeros(7, dtype=np.int64)
    for oracle in (
        TwoStage((1, 1, 1), ONE // 4, ((2, ONE // 4),)),  # t = 1/k
        TwoStage((1, 1, 1), ONE // 8, ((2, ONE // 2),)),  # t_q = 1/k_q
    ):
        with pytest.raises(CalibrationError, match="no inverse"):
            TwoStageShares(cells, oracle, empty, 10)
    with pytest.raises(CalibrationError, match="tell nothing"):
        FlatShares(KRR(4, ONE // 4), np.zeros(4, dtype=np.int64), 10)


def test_what_does_not_fit_is_refused():
    records = head(2, 1)
    two = TwoStageCells(records)
    with pytest.raises(DataError, match="no reports"):
        FlatShares(KRR.calibrate(4, 1), np.zeros(4, dtype=np.int64), 0)
    with pytest.raises(UsageError, match="not of this head list"):
        TwoStageShares(two, TwoStage.calibrate((1, 2), 1), np.zeros(6, dtype=np.int64), 1)
    for support in ([1, 2, 3], [1, 2, 3, -1], [1, 2, 3, 99]):
        with pytest.raises(DataError, match="do not fit"):
            FlatShares(KRR.calibrate(4, 1), np.array(support), 10)


def test_the_rare_variances_are_the_known_ones():
    # n times the variance of a rare record: the notes' table.
    for k, krr, subset, oue in ((51, 0.036, 0.036, 0.076), (501, 0.193, 0.072, 0.076)):
        none = np.zeros(k, dtype=np.int64)
        for oracle, known in (
            (KRR.calibrate(k, 4), krr),
            (SubsetSelection.calibrate(k, 4), subset),
            (OUE.calibrate(k, 4), oue),
        ):
            assert FlatShares(oracle, none, 1).variance_at(np.zeros(k - 1))[0] == pytest.approx(known, abs=6e-4)
    cells = TwoStageCells(head(*[1] * 50))
    paper = TwoStageShares(cells, cells.randomizer(4), np.zeros(101, dtype=np.int64), 1)
    assert paper.variance_at(np.zeros(50))[0] == pytest.approx(0.286, abs=1e-3)
    assert math.isclose(paper.variance_at(np.zeros(50))[49], paper.variance_at(np.zeros(50))[0])
