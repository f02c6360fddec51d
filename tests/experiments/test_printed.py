"""The erratum: Theorem 5 of the paper as printed gives negative variances, and a blend that ignores the clients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushquery.hybrid.blend import blend_probabilities
from hushquery.hybrid.clients import TwoStageCells, TwoStageShares
from hushquery.local.oracles.two_stage import TwoStage
from hushquery_experiments.blender.printed import printed_variances, printed_weights
from hybrid_sides import drawn_optin, head
from statistical import bits, number


def expected_support(oracle, shares, n):
    """The support that ``n`` clients with these shares give on average, rounded."""
    rates = sum(share * np.array(list(oracle.law(v).values())) for v, share in enumerate(shares))
    return np.rint(n * rates).astype(np.int64)


def test_the_printed_variance_is_negative_where_the_truth_is_a_millionth():
    # k = 51 queries, k_q = 3 URLs each with *, epsilon 4, f_C 0.85, half a million clients, p_q = 0.02, p_qu = 0.012.
    oracle, n = TwoStage.calibrate([2] * 50, 4), 500_000
    shares = np.zeros(oracle.k)
    shares[:3], shares[-1] = (0.012, 0.005, 0.003), 0.98
    support = expected_support(oracle, shares, n)
    assert printed_variances(oracle, support, n)[0] == pytest.approx(-0.55, abs=0.005)
    assert oracle.frequencies(support, n)[1][0] ** 2 == pytest.approx(1.45e-6, rel=0.005)
    assert oracle.variance(0, 0.012, 0.02, n) == pytest.approx(1.45e-6, rel=0.005)


@pytest.mark.parametrize(
    ("urls", "of_query", "of_record", "ratio"), [(1, 0.5, 0.35, 0.386), (6, 0.2, 0.1, 0.948), (6, 0.02, 0.012, 0.995)]
)
def test_dividing_by_n_alone_does_not_repair_it(urls, of_query, of_record, ratio):
    # The last term over n still lacks -E[X]E[Y]: far off for heavy queries, harmless for rare ones.
    n, k = 10**12, 5
    oracle = TwoStage.calibrate([urls] * (k - 1), 4)
    a, inside, outside, d = oracle.channel()
    c, t = outside[0] - inside[0], oracle.t
    r_q = (1 - t) / (k - 1) + a * of_query
    r = d[0] * of_record + inside[0] * of_query + outside[0] * (1 - of_query)
    last = 2 * c * (k - 2 + t) / (k * t - 1) * r
    half_repaired = (r * (1 - r) + c**2 * r_q * (1 - r_q) / a**2 + last) / (n * d[0] ** 2)
    assert half_repaired / oracle.variance(0, of_record, of_query, n) == pytest.approx(ratio, abs=0.001)


@pytest.mark.parametrize("epsilon", [2, 4])
@pytest.mark.parametrize("urls", [1, 2, 5])
def test_it_is_wrong_by_orders_of_magnitude_for_every_record(urls, epsilon):
    oracle, n = TwoStage.calibrate([urls] * 10, epsilon), 100_000
    shares = np.full(oracle.k, 0.5 / (oracle.k - 1))
    shares[-1] = 0.5
    support = expected_support(oracle, shares, n)
    printed, right = printed_variances(oracle, support, n)[:-1], oracle.frequencies(support, n)[1][:-1] ** 2
    assert (printed < -1000 * right).all()


def test_a_blend_weighted_by_it_ignores_the_clients():
    rng = np.random.default_rng(number("printed"))
    records = head(*[2] * 20)
    cells = TwoStageCells(records)
    oracle = cells.randomizer(4)
    shares = np.append(np.tile([0.012, 0.005, 0.003], 20), 0.6)
    truth = shares[cells.record_cells]
    sides = []
    for run in range(20):
        clients = rng.choice(oracle.k, size=200_000, p=shares)
        client = TwoStageShares(
            cells, oracle, oracle.support(oracle.randomize_many(clients, bits("printed", run))), 200_000
        )
        optin = drawn_optin(rng, records, truth, 1300, 4)
        weight = printed_weights(client, optin.variances)
        printed = weight * optin.values + (1 - weight) * client.values
        paper = blend_probabilities(records, optin, client, mode="paper")
        assert (weight > 0.999).all()
        assert printed == pytest.approx(optin.values, abs=1e-4)
        assert 0.1 < paper.weight.mean() < 0.5
        sides.append([np.abs(x - truth).sum() for x in (printed, optin.values, paper.blended)])
    printed_l1, optin_l1, paper_l1 = np.mean(sides, axis=0)
    assert printed_l1 == pytest.approx(optin_l1, rel=0.001)
    assert paper_l1 < 0.6 * printed_l1


@pytest.mark.parametrize("epsilon", ["1/1000", 1, 12])
@pytest.mark.parametrize("n", [1, 2, 50, 10**12])
def test_its_weights_are_weights_whatever_was_reported(n, epsilon):
    rng = np.random.default_rng(number("weights", n, epsilon))
    cells = TwoStageCells(head(1, 3, 2))
    for _ in range(20):
        support = np.floor(rng.random(cells.k) * (n // cells.k)).astype(np.int64)
        client = TwoStageShares(cells, cells.randomizer(epsilon), support, n)
        for variance in (0.0, 1e-9, 1e4, math.inf):
            weight = printed_weights(client, np.full(6, variance))
            assert ((weight >= 0) & (weight <= 1)).all()


def test_without_queries_there_is_nothing_to_get_wrong():
    assert printed_variances(TwoStage.calibrate([], 1), np.array([5]), 5).tolist() == [0.0]
