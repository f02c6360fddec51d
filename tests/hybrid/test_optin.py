"""EstimateOptinProbabilities: unbiased variances by enumeration, wildcards, both ways, what they cost, and files."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy import stats

from hushquery.core.budget import Relation
from hushquery.core.calibration import SparseGaussian
from hushquery.core.loss import LaplaceHistogram, Loss
from hushquery.curator.counting import Bound
from hushquery.errors import DataError, UsageError
from hushquery.hybrid.headlist import (
    NoisyHead,
    OptInShares,
    calibrate_head,
    estimate_reused,
    parallel_loss,
)
from hushquery.hybrid.inference import multinomial_variance_of_sum
from hushquery.hybrid.remeasure import calibrate_split, draw_split
from hushquery.log import read_log
from hushquery.noise.law import DiscreteLaplace
from hybrid_sides import create_head, split_and_estimate
from statistical import bits, number

STEP = calibrate_head(epsilon=4, delta=1e-5)
LOUD = LaplaceHistogram(1, Fraction(3), relation=Relation.REPLACE_ONE)


def shares(values, n, *, step=STEP, wildcard=0.0, draws=0):
    noise = DiscreteLaplace(step.scale).variance
    records = [(f"query {i}", "") for i in range(len(values))]
    return OptInShares(records, np.array(values, dtype=float), n, noise, wildcard, draws, ((step,),))


def head(*counts, users=1000, records_per_user=1, step=STEP):
    names = [f"query {i}" for i in range(len(counts))]
    return NoisyHead(names, [""] * len(counts), np.array(counts), users, records_per_user, step)


def log_of(**counts):
    queries = [query for query, size in counts.items() for _ in range(size)]
    users = [f"user {i}" for i in range(len(queries))]
    return read_log({"user": users, "query": ["" if q == "nothing" else q for q in queries]})


# ---- variances -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (5, 0.1), (12, 0.03), (40, 0.4), (7, 0.0)])
def test_plug_in_variance_is_exactly_unbiased_and_variance_at_the_truth_is_the_variance(n, p):
    """Over every count and every noise: the constant is n(n-1), and the noise's variance that of the integer law."""
    law = DiscreteLaplace(LOUD.scale)
    counts, noise = np.arange(n + 1), np.arange(-140, 141)
    values = np.add.outer(counts, noise).ravel()
    weights = np.outer(stats.binom.pmf(counts, n, p), [law.pmf(z) for z in noise.tolist()]).ravel()
    made = shares(values / n, n, step=LOUD)
    centre = float(weights @ made.values)
    spread = float(weights @ (made.values - centre) ** 2)
    assert centre == pytest.approx(p, abs=1e-12)
    assert float(made.variance_at(p)) == pytest.approx(spread, rel=1e-9)
    assert float(weights @ made.variances) == pytest.approx(spread, rel=1e-9)
    # The paper's 2 b^2 is the variance of continuous noise, which is larger by a sixth.
    assert 2 * float(LOUD.scale) ** 2 - law.variance == pytest.approx(1 / 6, abs=0.01)


def test_variance_for_weights_is_positive_wherever_the_noisy_share_went():
    made = shares([-0.4, 0.0, 0.5, 1.0, 1.7], 50)
    assert (made.variance_at(made.values) > 0).all()
    assert made.variance_at(made.values)[0] == made.variance_at([0.0])[0]
    assert made.variances[0] < 0  # which is what unbiased means


def test_one_user_has_shares_but_no_estimated_variance():
    made = estimate_reused(head(1, users=1), 5)
    assert made.values.tolist() == [1.0]
    assert np.isinf(made.variances).all()
    assert np.isfinite(made.variance_at(made.values)).all()


# ---- reuse ---------------------------------------------------------------------------------------------------------


def test_reused_shares_are_the_counts_and_the_wildcard_what_is_left():
    made = estimate_reused(head(300, 200, 80), 2)
    assert made.records == [("query 0", ""), ("query 1", "")]
    assert made.values.tolist() == [0.3, 0.2]
    assert made.wildcard == pytest.approx(0.5)
    assert (made.n, made.wildcard_draws, made.method) == (1000, 2, "reuse")
    assert made.loss == STEP.loss


def test_wildcard_variance_of_reuse_is_exact():
    """Three cells, every split of n users, every noise of two records: the wildcard by subtraction."""
    n, p = 6, (0.5, 0.2, 0.3)
    law = DiscreteLaplace(Fraction(1))
    noises = [(z, law.pmf(z)) for z in range(-35, 36)]
    both = {}
    for (a, pa), (b, pb) in itertools.product(noises, noises):
        both[a + b] = both.get(a + b, 0.0) + pa * pb
    moments = [0.0, 0.0]
    for x, y in itertools.product(range(n + 1), repeat=2):
        if x + y <= n:
            chance = stats.multinomial.pmf([x, y, n - x - y], n, p)
            for z, noise in both.items():
                value = 1 - (x + y + z) / n
                moments[0] += chance * noise * value
                moments[1] += chance * noise * value**2
    stated = p[2] * (1 - p[2]) / n + 2 * law.variance / n**2  # docs/proofs/headlist.md
    assert moments[0] == pytest.approx(p[2], abs=1e-9)
    assert moments[1] - moments[0] ** 2 == pytest.approx(stated, rel=1e-9)


def test_fewer_records_than_asked_for_and_none_at_all():
    assert len(estimate_reused(head(30), 500)) == 1
    empty = estimate_reused(head(), 10)
    assert (len(empty), empty.wildcard, empty.wildcard_draws) == (0, 1.0, 0)
    with pytest.raises(UsageError, match="size"):
        estimate_reused(head(30), 0)


def test_several_records_per_user_divide_by_all_of_them_and_may_go_together():
    step = calibrate_head(epsilon=4, delta=1e-5, records_per_user=3)
    made = estimate_reused(head(300, records_per_user=3, step=step), 1)
    assert made.n == 3000
    assert made.values.tolist() == [0.1]
    assert made.records_per_user == 3


def test_a_sum_of_distinct_records_varies_at_most_as_stated():
    """Users who hold all URLs of a query: each count is a user's coin, and their sum three times that coin."""
    step = calibrate_head(epsilon=4, delta=1e-5, records_per_user=3)
    made = OptInShares([("q", u) for u in "abc"], np.full(3, 0.05), 3000, 0.0, 0.85, 0, ((step,),))
    p, coin = np.full(3, 0.05), 0.15 * 0.85  # 1,000 users, 15% of whom hold the query
    assert multinomial_variance_of_sum(made, np.ones(3), p) == pytest.approx(1000 * 9 * coin / 3000**2)
    assert (made.variance_at(p) >= 1000 * coin / 3000**2).all()


def test_from_a_log_to_shares():
    log = log_of(ant=500, bee=300, nothing=200)
    made = estimate_reused(create_head(log, epsilon=4, delta=1e-5, bits=bits("optin", "reuse")), 50)
    assert dict(made.records) == {"ant": "", "bee": ""}
    assert made.n == 1000
    assert made.values == pytest.approx([0.5, 0.3], abs=0.03)
    assert math.fsum(made.values) + made.wildcard == pytest.approx(1)


# ---- split ---------------------------------------------------------------------------------------------------------


def test_split_measures_with_the_users_who_did_not_find():
    log = log_of(ant=2000, bee=1200, cow=400, nothing=400)
    made = split_and_estimate(
        log, epsilon=4, delta=1e-5, most=2, share="0.75", bound=Bound("first"), bits=bits("optin", "split")
    )
    assert made.records == [("ant", ""), ("bee", "")]
    assert (made.n, made.method) == (1000, "split")
    assert made.values == pytest.approx([0.5, 0.3], abs=0.08)
    assert made.wildcard == pytest.approx(0.2, abs=0.08)
    # Counts are integers over n; cow was measured too and folded into the wildcard, which has a draw of its own.
    assert (made.values * 1000).round(9).tolist() == (made.values * 1000).round().tolist()
    assert made.wildcard_draws == 2


def test_split_counts_everybody_once():
    """All cells together are the users of T and as many draws of noise."""
    log = log_of(ant=300, bee=200, nothing=100)
    finding, measuring = calibrate_split(epsilon=8, delta=1e-3)
    for i in range(4):
        made = draw_split(log, finding, measuring, most=9, share="1/2", bits=bits("once", i))
        noise = (math.fsum(made.values) + made.wildcard) * made.n - 300
        assert abs(noise) < 3 * 40 * measuring.scale
        assert noise == pytest.approx(round(noise), abs=1e-6)


def test_split_with_nothing_found_is_all_wildcard():
    made = split_and_estimate(log_of(ant=2, nothing=8), epsilon=1, delta=1e-5, most=5, share="1/2", bits=bits("none"))
    assert (len(made), made.wildcard, made.wildcard_draws, made.n) == (0, 1.0, 0, 5)
    assert OptInShares.from_json(made.to_json()).loss == made.loss


def test_split_costs_what_the_dearer_part_costs():
    finding, measuring = calibrate_split(epsilon=1, delta=1e-5, records_per_user=2)
    assert measuring.loss.pure == (1,)
    assert measuring.loss.is_pure
    made = draw_split(log_of(ant=40), finding, measuring, most=1, share="1/2", bits=bits("dear"))
    assert made.loss == finding.loss
    assert made.loss.fits(1, 1e-5)


def test_split_repeats_with_the_same_bits():
    log = log_of(ant=300, bee=200)
    one, again, other = (
        split_and_estimate(log, epsilon=2, delta=1e-3, most=5, share="1/2", bits=bits("split", i)) for i in (1, 1, 2)
    )
    assert one.to_json() == again.to_json() != other.to_json()


def test_split_refusals_come_before_anything_is_read():
    log = log_of(ant=30)
    for change, says in [
        ({"relation": "add-remove"}, "only be split under replace-one"),
        ({"most": 0}, "size of a head list"),
        ({"share": 1}, "above 0 and below 1"),
        ({"epsilon": 0}, "epsilon > 0"),
    ]:
        with pytest.raises(UsageError, match=says):
            split_and_estimate(log, **({"epsilon": 1, "delta": 1e-5, "most": 3, "bits": bits("no")} | change))
    with pytest.raises(DataError, match="would be empty"):
        split_and_estimate(log_of(ant=1), epsilon=1, delta=1e-5, most=3, bits=bits("alone"))


def paid(*losses):
    """One part for each of some losses, as steps with that loss."""
    return [[SimpleNamespace(loss=loss)] for loss in losses]


@seed(number("optin", "parallel"))
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.integers(0, 9), st.integers(0, 4)), min_size=1),
    st.integers(0, 30),
)
def test_parallel_loss_covers_every_part(parts, epsilon):
    losses = [Loss(Fraction(m, 9), tuple(Fraction(r, 9) for r in pure), Fraction(f, 99)) for pure, f, m in parts[:4]]
    together = parallel_loss(paid(*losses))
    at = Fraction(epsilon, 10)
    assert together.delta(at) >= max(loss.delta(at) for loss in losses) * (1 - 1e-9)


def test_parallel_refuses_what_it_cannot_compare():
    sparse = Loss(sparse=(SparseGaussian(1, Fraction(2), 9, Relation.REPLACE_ONE),))
    assert parallel_loss(paid(sparse)) == sparse
    with pytest.raises(UsageError, match="sparse"):
        parallel_loss(paid(sparse, Loss()))


# ---- files ---------------------------------------------------------------------------------------------------------


def test_shares_survive_json():
    made = estimate_reused(head(301, 200, 83, users=997), 3)
    again = OptInShares.from_json(json.loads(json.dumps(made.to_json())))
    assert again.records == made.records
    assert again.values.tolist() == made.values.tolist()
    assert again.parts == made.parts
    assert (again.n, again.wildcard, again.wildcard_draws, again.method) == (997, made.wildcard, 3, "reuse")
    assert again.noise_variance == made.noise_variance
    assert again.loss == made.loss


DAMAGE = [
    {"n": 0},
    {"n": "997"},
    {"n": True},
    {"values": [0.1]},
    {"values": [0.1, float("nan"), 0.2]},
    {"values": "lots"},
    {"records": [["a", "b"], ["a", "b"], ["c", ""]]},
    {"records": [["a"], ["b"], ["c"]]},
    {"records": [["a", 1], ["b", 2], ["c", 3]]},
    {"records": 5},
    {"wildcard": None},
    {"wildcard": float("inf")},
    {"wildcard_draws": -1},
    {"noise_variance": 0.5},
    {"parts": []},
    {"parts": [[]]},
    {"parts": [[{"kind": "hope"}]]},
    {"parts": [[{"kind": "optimal-selection", "keys_per_user": 1, "epsilon": "1", "delta": "1/9"}]]},
    {"way": "guess"},
    {"way": []},
]


@pytest.mark.parametrize("damage", DAMAGE, ids=[str(sorted(d.items()))[:40] for d in DAMAGE])
def test_damaged_shares_are_refused(damage):
    whole = estimate_reused(head(301, 200, 83, users=997), 3).to_json()
    with pytest.raises(DataError, match="can't be read"):
        OptInShares.from_json(whole | damage)


@pytest.mark.parametrize("data", [None, [], "text", {}, 3])
def test_what_are_no_shares_at_all_is_refused(data):
    with pytest.raises(DataError, match="can't be read"):
        OptInShares.from_json(data)
