"""CreateHeadList: its thresholds, its exact loss for several records per user, what it draws, and its bias."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from controls.hybrid import HYBRID_CONTROLS
from hushquery.core.budget import Relation
from hushquery.core.calibration import laplace_delta
from hushquery.core.registry import Pair
from hushquery.curator.audit import searcher
from hushquery.curator.counting import Bound
from hushquery.errors import UsageError
from hushquery.hybrid.headlist import NoisyHead, calibrate_head, draw_head
from hushquery.hybrid.mechanisms import CLICKED, HeadDraws, HeadList, holders
from hushquery.log import read_log
from hushquery.noise.law import DiscreteLaplace
from hushquery.noise.sampler import SystemBits
from hushquery.noise.survivors import conditional_noise
from hybrid_sides import create_head
from statistical import bits, hockey_stick, mean, number, rate

X = "https://x.example/"


def log_of(**counts):
    """A log in which so many users hold each query; ``nothing`` counts users without a usable search."""
    queries = [query for query, size in counts.items() for _ in range(size)]
    users = [f"user {i}" for i in range(len(queries))]
    return read_log({"user": users, "query": ["" if q == "nothing" else q for q in queries]})


# ---- thresholds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta", "records", "tight", "paper"),
    [(1, 1e-5, 1, 24, 25), (4, 1e-5, 1, 7, 7), (4, 1e-7, 1, 9, 10), (4, 1e-5, 2, 13, 14), (4, 1e-5, 5, 33, 35)],
)
def test_golden_thresholds(epsilon, delta, records, tight, paper):
    for rule, threshold in (("tight", tight), ("paper", paper)):
        step = calibrate_head(epsilon=epsilon, delta=delta, records_per_user=records, threshold=rule)
        assert (step.threshold, step.scale) == (threshold, Fraction(2 * records, epsilon))


def test_paper_is_the_formula_of_figure_3():
    for epsilon, delta, m in [(1, 1e-5, 1), (4, 1e-7, 3), (0.5, 1e-3, 7)]:
        b = 2 * m / epsilon
        tau = b * (math.log(math.exp(epsilon / 2) + m - 1) - math.log(delta))
        step = calibrate_head(epsilon=epsilon, delta=delta, records_per_user=m, threshold="paper")
        assert step.threshold == math.floor(tau) + 1


BUDGETS = st.tuples(
    st.fractions(Fraction(1, 20), 8, max_denominator=50),
    st.integers(1, 12).flatmap(lambda k: st.integers(1, 9).map(lambda c: Fraction(c, 10**k) / 2)),
    st.integers(1, 12),
    st.sampled_from(list(Relation)),
)


@seed(number("headlist", "thresholds"))
@settings(max_examples=150, deadline=None)
@given(BUDGETS)
def test_thresholds_keep_the_budget_and_tight_is_the_smallest(budget):
    epsilon, delta, m, relation = budget
    asked = {"epsilon": epsilon, "delta": delta, "records_per_user": m, "relation": relation}
    tight = calibrate_head(**asked)
    assert tight.loss.fits(epsilon, delta)
    assert tight.threshold >= 2
    lower = type(tight)(m, tight.scale, tight.threshold - 1, relation=relation)
    assert tight.threshold == 2 or not lower.loss.fits(epsilon, delta)
    paper = calibrate_head(**asked, threshold="paper")
    assert paper.loss.fits(epsilon, delta)
    assert paper.threshold >= max(tight.threshold, m + 1)
    a = math.exp(-1 / paper.scale)
    assert laplace_delta(paper.scale, m, paper.threshold) <= float(delta) / (1 + a) * (1 + 1e-12)


def test_a_record_of_one_user_never_passes_without_noise():
    """The paper's assertion, at a budget where nothing else holds the threshold up."""
    for rule in ("tight", "paper"):
        step = calibrate_head(epsilon="1/2", delta="0.9", threshold=rule)
        assert step.threshold >= 2
        assert step.loss.fits("1/2", "0.9")
    assert replace(step, threshold=1).loss.fits("1/2", "0.9")


def test_add_remove_has_half_the_noise():
    step = calibrate_head(epsilon=1, delta=1e-5, records_per_user=3, relation="add-remove")
    assert step.scale == 3
    assert step.loss.pure == (1,)
    assert step.threshold < calibrate_head(epsilon=1, delta=1e-5, records_per_user=3).threshold


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": 0}, "epsilon > 0"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 0}, "0 < delta"),
        ({"delta": 1}, "delta"),
        ({"records_per_user": 0}, "records per user"),
        ({"records_per_user": True}, "records per user"),
        ({"records_per_user": 1.0}, "records per user"),
        ({"records_per_user": 10**9}, "records per user"),
        ({"relation": "neighbours"}, "no relation"),
        ({"threshold": "low"}, "tight or paper"),
    ],
)
def test_refusals(change, says):
    with pytest.raises(UsageError, match=says):
        calibrate_head(**({"epsilon": 1, "delta": 1e-5} | change))


# ---- the exact loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["tight", "paper"])
def test_exact_loss_of_two_records_per_user(rule):
    """From rows through the engine: new, shared and capped records, with the counts published."""
    epsilon, delta = Fraction(6), Fraction(1, 1000)
    step = calibrate_head(epsilon=epsilon, delta=delta, records_per_user=2, threshold=rule)
    first, second, third = (("ant", X), ("ant", ""), ("bee", X))
    many = step.threshold + 3
    others = holders("a", many, first) + holders("b", many, second)
    greedy = searcher("zoe 0", *("bee", "ant") * 20, apart=0, url=CLICKED) + searcher("zoe 0", "ant", apart=0)
    mechanism = HeadList(HeadDraws(step))
    worst = {}
    for pair in [
        Pair("two new", searcher("zoe 0", "ant", "bee", url=X), holders("zoe", 1, ("", ""))),
        Pair("capped", others + greedy, others + holders("zoe", 1, ("", ""))),
        Pair(
            "one shared, one new", others + searcher("zoe 0", "ant", "bee", url=X), others + holders("zoe", 1, second)
        ),
        Pair("new for shared", others + holders("zoe", 1, third), others + searcher("zoe 0", "ant", url=X)),
    ]:
        left, right = mechanism.law(pair.left), mechanism.law(pair.right)
        worst[pair.name] = max(hockey_stick(left, right, 6), hockey_stick(right, left, 6))
    assert max(worst.values()) <= float(step.loss.threshold_delta) * (1 + 1e-9)
    assert worst["two new"] == pytest.approx(float(step.loss.threshold_delta), rel=1e-6)


def test_a_fresh_draw_for_the_wildcard_costs_half_an_epsilon_more():
    epsilon = 1.0
    broken = HYBRID_CONTROLS["head list with a fresh draw for the wildcard"](Fraction(1), Fraction(1, 10**5))
    (pair,) = broken.pairs()
    left, right = broken.law(pair.left), broken.law(pair.right)
    claimed = broken.loss.delta(epsilon)
    assert claimed <= 1e-5
    assert hockey_stick(left, right, epsilon) > 0.05
    assert hockey_stick(left, right, 1.49 * epsilon) > 100 * claimed
    assert hockey_stick(left, right, 1.5 * epsilon) <= claimed


# ---- what is drawn -------------------------------------------------------------------------------------------------


def test_head_list_is_ordered_and_counts_everybody():
    log = log_of(ant=300, bee=200, cow=200, dog=1, nothing=40)
    head = create_head(log, epsilon=4, delta=1e-5, bits=bits("headlist", "order"))
    assert head.users == 741
    assert head.query[0] == "ant"
    assert set(head.query) == {"ant", "bee", "cow"}
    assert head.url == [""] * 3
    assert head.counts.dtype == np.int64
    keys = list(zip(-head.counts, head.query, head.url, strict=True))
    assert keys == sorted(keys)
    assert abs(head.counts - [300, 200, 200]).max() < 40 * head.step.scale


def test_ties_are_broken_by_query_and_url():
    """The one order that says nothing about the log, whatever order the engine gave."""
    rows = [("b", "x", 5), ("a", "y", 5), ("c", "", 9), ("a", "x", 5), ("b", "", 5)]
    query, url, noisy = zip(*rows, strict=True)
    table = pa.table({"query": query, "url": url, "noisy": noisy})
    head = NoisyHead.ordered(table, 10, calibrate_head(epsilon=1, delta=1e-5))
    assert head.records == [("c", ""), ("a", "x"), ("a", "y"), ("b", ""), ("b", "x")]
    assert head.counts.tolist() == [9, 5, 5, 5, 5]
    assert head.top(2).records == [("c", ""), ("a", "x")]


def test_top_takes_all_where_fewer_passed_and_refuses_no_size():
    head = create_head(log_of(ant=300, bee=200), epsilon=4, delta=1e-5, bits=bits("top"))
    assert len(head) == len(head.top(50)) == 2
    assert head.top(1).records == [("ant", "")]
    assert len(head.top(1).counts) == 1
    for size in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="size of a head list"):
            head.top(size)


def test_empty_and_single_head_lists():
    assert len(create_head(log_of(ant=2, nothing=5), epsilon=1, delta=1e-5, bits=bits("empty"))) == 0
    one = create_head(log_of(nothing=1), epsilon=1, delta=1e-5, bits=bits("one user"))
    assert (len(one), one.users) == (0, 1)
    assert create_head(log_of(ant=400), epsilon=1, delta=1e-5, bits=bits("one record")).records == [("ant", "")]
    nobody = read_log(pa.table({"user": pa.array([], pa.string()), "query": pa.array([], pa.string())}))
    with pytest.raises(UsageError, match="at least one opt-in user"):
        create_head(nobody, epsilon=1, delta=1e-5, bits=bits("nobody"))


def test_same_bits_same_head_list_and_system_bits_by_default():
    log = log_of(ant=80, bee=60, cow=40)
    one, again, other = (create_head(log, epsilon=1, delta=1e-5, bits=bits("repeat", i)) for i in (1, 1, 2))
    assert one.counts.tolist() == again.counts.tolist() != other.counts.tolist()
    assert SystemBits().secret
    assert len({tuple(create_head(log, epsilon=1, delta=1e-5).counts.tolist()) for _ in range(4)}) > 1


def test_under_add_remove_the_number_of_users_must_be_public():
    log = log_of(ant=300)
    with pytest.raises(UsageError, match="itself a secret"):
        create_head(log, epsilon=1, delta=1e-5, relation="add-remove", bits=bits("secret"))
    head = create_head(log, epsilon=1, delta=1e-5, relation="add-remove", users=1000, bits=bits("public"))
    assert head.users == 1000
    for users in (0, -3, 2.5):
        with pytest.raises(UsageError, match="at least one"):
            create_head(log, epsilon=1, delta=1e-5, users=users, bits=bits("users"))


def test_long_tail_passes_as_often_as_its_chance_says():
    """30,000 records of one user each: they are drawn in bulk, by query and URL, and never fetched one by one."""
    n, step = 30_000, calibrate_head(epsilon=1, delta=Fraction(1, 300))
    table = {"user": [f"u{i}" for i in range(n)], "query": [f"q{i % 50}" for i in range(n)]}
    log = read_log(table | {"url": [f"https://x.example/{i}" for i in range(n)]}, normalise=False, patterns=False)
    head = draw_head(log, step, bound=Bound("first"), bits=bits("tail"))
    rate(len(head), n, float(DiscreteLaplace(step.scale).tail(step.threshold - 1)))
    assert len(set(head.records)) == len(head)
    assert head.counts.min() >= step.threshold
    assert {url.split("/")[-1] for url in head.url} <= {str(i) for i in range(n)}
    assert all(int(url.split("/")[-1]) % 50 == int(query[1:]) for query, url in head.records)


# ---- the bias of reused counts -------------------------------------------------------------------------------------


def threshold_bias(step, count):
    """How much too high a noisy count is on average, given that it is in the list (docs/proofs/headlist.md)."""
    law, lift = DiscreteLaplace(step.scale), step.threshold - count
    beyond = 1 / math.expm1(1 / step.scale)
    if lift >= 0:
        return lift + beyond
    return float(law.tail(1 - lift)) * (1 - lift + beyond) / float(law.tail(lift))


@pytest.mark.parametrize("above", [-9, -1, 0, 1, 4, 12])
def test_bias_at_the_threshold_is_that_of_simulation_and_of_the_law(above):
    step = calibrate_head(epsilon=1, delta=1e-5)
    law, count = DiscreteLaplace(step.scale), step.threshold + above
    lift = -above
    given_release = {z: law.pmf(z) / float(law.tail(lift)) for z in range(lift, 200)}
    bias = threshold_bias(step, count)
    assert bias == pytest.approx(math.fsum(z * p for z, p in given_release.items()), rel=1e-9)
    spread = math.fsum((z - bias) ** 2 * p for z, p in given_release.items())
    mean(conditional_noise(law, lift, 120_000, bits("bias", above)), bias, spread)


def test_bias_is_about_what_the_formula_says():
    for epsilon, share in ((1, 0.088), (4, 0.078)):
        step = calibrate_head(epsilon=epsilon, delta=1e-5)
        assert share == pytest.approx(1 / (epsilon / 2 + math.log(1 / 2e-5)), abs=6e-4)
        # With integers the excess at the threshold is a/(1-a), below b.
        assert threshold_bias(step, step.threshold) < float(step.scale)
        assert threshold_bias(step, step.threshold) / step.threshold < share
