"""The wildcard: never a raw count, never a draw that nobody paid for. And whose variance weighs a blend.

Found missing by tests/mutants: a wildcard without noise, in both ways to measure one, passed all tests.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hushquery.core.budget import Relation
from hushquery.core.loss import LaplaceHistogram
from hushquery.hybrid.blend import blend_probabilities
from hushquery.hybrid.clients import TwoStageCells, TwoStageShares
from hushquery.hybrid.headlist import NoisyHead, OptInShares, estimate_reused
from hushquery.hybrid.remeasure import calibrate_remeasure, calibrate_split, draw_split, remeasure
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.log import read_log
from statistical import bits, number

LOUD = LaplaceHistogram(1, Fraction(100), 1, relation=Relation.REPLACE_ONE)


def test_a_reused_wildcard_is_what_is_left_and_no_draw_of_its_own():
    """A fresh draw would be a third count that one exchange moves, and cost half an epsilon more."""
    head = NoisyHead(["a", "b"], ["", ""], np.array([300, 200]), 1000, 1, LOUD)
    assert [estimate_reused(head, 2).wildcard for _ in range(5)] == [0.5] * 5


def everybody_searches_for_news():
    return read_log({"user": [f"user {i}" for i in range(400)], "query": ["news"] * 400})


# So small that a draw of its noise is 0, or equal to another one, with a chance of 2.5e-10.
TINY = "1/1000000000"


def test_a_measured_wildcard_has_noise_of_its_own():
    """All 200 users of T hold the one record, so the wildcard is 0, and what is published of it is noise alone."""
    finding = LaplaceHistogram(1, Fraction(1, 2), 7, relation=Relation.REPLACE_ONE)  # finds the record for sure
    _, measuring = calibrate_split(epsilon=TINY, delta="1/10")
    made = draw_split(everybody_searches_for_news(), finding, measuring, most=5, share="1/2", bits=bits("wildcard"))
    assert (made.records, made.n, made.wildcard_draws) == ([("news", "")], 200, 1)
    rest, of_record = round(made.wildcard * 200), round(made.values[0] * 200) - 200
    assert rest != 0
    assert rest not in (of_record, -of_record)  # nor is it the draw of the record, which would cancel


def test_the_wildcard_of_a_kept_list_has_noise_of_its_own():
    step = calibrate_remeasure(epsilon=TINY)
    made = remeasure(everybody_searches_for_news(), [("news", "")], step, bits=bits("kept wildcard"))
    rest, of_record = round(made.wildcard * 400), round(made.values[0] * 400) - 400
    assert made.wildcard_draws == 1
    assert rest != 0
    assert rest not in (of_record, -of_record)


def crowd(n: int):
    records = tuple((f"query {i}", f"https://{i}.example/{j}") for i in range(6) for j in range(2))
    cells = TwoStageCells(records)
    oracle = cells.randomizer(4)
    shares = np.append(np.tile([0.05, 0.03, 0.02], 6), 0.4)
    clients = np.random.default_rng(number("weights")).choice(oracle.k, size=n, p=shares)
    support = oracle.support(oracle.randomize_many(clients, bits("weights")))
    return records, TwoStageShares(cells, oracle, support, n), shares[cells.record_cells]


def test_two_stage_blends_are_weighted_by_the_variances_that_hold():
    """At the blend's shares: clients' variance over the sum of both. The printed one would leave the clients out."""
    records, clients, truth = crowd(20_000)
    optin = OptInShares(list(records), truth, 1000, 2.0, 1 - math.fsum(truth), 12, ((LOUD,),))
    made = blend_probabilities(records, optin, clients, mode="best")
    left, right = optin.variance_at(made.blended), clients.variance_at(made.blended)
    assert made.weight == pytest.approx(right / (left + right), rel=0.05)
    assert made.weight.max() < 0.95


def test_the_standard_error_of_a_two_stage_share_is_that_of_many_batches():
    """With the covariance of a cell and its query: E[XY] in its place is wrong by orders of magnitude."""
    oracle = TwoStage.calibrate([2, 1], 2)
    shares = np.array([0.3, 0.1, 0.1, 0.2, 0.1, 0.2])
    n, runs = 400, 3000
    chances = np.array([[oracle.law(cell)[out] for out in range(6)] for cell in range(6)])
    supports = np.random.default_rng(number("batches")).multinomial(n, shares @ chances, size=runs)
    told = [oracle.frequencies(support, n) for support in supports]
    values, errors = np.array([value for value, _ in told]), np.array([error for _, error in told])
    assert values.mean(axis=0) == pytest.approx(shares, abs=6 * float(values.std(axis=0).max()) / math.sqrt(runs))
    assert (errors**2).mean(axis=0) == pytest.approx(values.var(axis=0), rel=0.2)
