"""Intervals given publication: how often they hold for records that chance has pushed over the cut."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushquery.hybrid.blend import blend_probabilities
from hushquery.hybrid.inference import Overshoot, Selected
from hushquery.local.configuration import oracle_named
from hybrid_sides import drawn_clients, noisy_counts, optin_shares
from statistical import number, rate_at_most

#: Opt-in users, clients, epsilon, threshold, the size of the list, and the clients' oracle.
SETTINGS = {
    "as many clients": (20_000, 20_000, 1, 25, 50, "subset"),
    "ten times the clients": (20_000, 200_000, 1, 25, 50, "subset"),
    "precise clients": (5_000, 95_000, 4, 7, 50, "krr"),
    "as in the paper": (26_000, 494_000, 1, 25, 50, "subset"),
    "cut to a size": (5_000, 95_000, 4, 7, 12, "krr"),
}
LAW = np.multiply.outer(0.0267 / np.arange(1, 301), [0.6, 0.3, 0.1]).ravel()


def published(rng, name, *, robust=False):
    """A head list of the records whose noisy counts pass, blended; and what is true of it."""
    n, clients, epsilon, threshold, most, oracle = SETTINGS[name]
    counts, noise = noisy_counts(rng, LAW, n, epsilon)
    kept = np.flatnonzero(counts >= threshold)
    least = threshold / n if len(kept) < most else None
    kept = kept[np.argsort(-counts[kept], kind="stable")][:most]
    records = [(f"query {i // 3}", f"https://{i}.example/") for i in kept]
    optin = optin_shares(records, counts[kept] / n, n, noise)
    reports = drawn_clients(rng, oracle_named(oracle, len(kept) + 1, epsilon), LAW[kept], clients)
    made = blend_probabilities(records, optin, reports, robust=robust, least=least)
    return made, LAW[kept], LAW[kept] * n < threshold + 1


def judge(name, runs, *, robust=False):
    """Count what is missed: of all records, of those that are near the threshold, of queries, of the wildcard."""
    rng = np.random.default_rng(number("selected", name, robust))
    missed, of = np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64)
    for _ in range(runs):
        made, p, near = published(rng, name, robust=robust)
        out = (p < made.low) | (p > made.high)
        place = {query: i for i, query in enumerate(made.queries.queries)}
        totals = np.bincount([place[query] for query, _ in made.records], p)
        wrong = (totals < made.queries.low) | (totals > made.queries.high)
        wild = abs(made.wildcard_raw - (1 - p.sum())) > 1.96 * made.wildcard_stderr
        missed += [out.sum(), out[near].sum(), wrong.sum(), wild]
        of += [len(p), near.sum(), len(totals), 1]
    for what, misses, cases in zip(("records", "records near the cut", "queries", "wildcard"), missed, of, strict=True):
        rate_at_most(int(misses), int(cases), 0.06, f"{name}: {what} that are missed")
    return missed / of


@pytest.mark.parametrize("name", ["as many clients", "precise clients", "cut to a size"])
def test_intervals_of_what_was_published_hold(name):
    judge(name, 20)


@pytest.mark.prove
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_of_what_was_published_hold_in_long_runs(name, robust):
    assert judge(name, 300, robust=robust).max() < 0.06


class Side:
    """One record, drawn many times over, as if these were the records of a list."""

    def __init__(self, values, n, variance_at):
        self.values, self.n, self.variance_at = values, n, variance_at


def one_record(rng, n, p, cut, scale, client_error, runs=1_500):
    """The published blends of one record with known weights, and the law that is to explain them."""
    a = math.exp(-1 / scale)
    noise = 2 * a / (1 - a) ** 2
    counts = np.zeros(0)
    while len(counts) < runs:
        drawn = rng.binomial(n, p, 200_000) + rng.geometric(1 - a, 200_000) - rng.geometric(1 - a, 200_000)
        counts = np.concatenate([counts, drawn[drawn >= cut]])
    left, right = counts[:runs] / n, rng.normal(p, client_error, runs)
    optin_variance = p * (1 - p) / n + noise / n**2
    weight = np.full(runs, client_error**2 / (client_error**2 + optin_variance))
    optin = Side(left, n, lambda x: x * (1 - x) / n + noise / n**2)
    clients = Side(right, 10**6, lambda x: np.full_like(x, client_error**2))
    raw = weight * left + (1 - weight) * right
    plain = 1.96 * math.sqrt(1 / (1 / client_error**2 + 1 / optin_variance))
    return Selected(optin, clients, weight, cut), raw, plain


@pytest.mark.parametrize(
    ("n", "expected", "cut", "scale", "client_error"),
    [
        (20_000, 16, 25, 2.0, 1.0),  # clients that tell nothing
        (20_000, 16, 25, 2.0, 3e-4),  # clients as precise as opt-in users
        (20_000, 27, 25, 2.0, 3e-4),
        (20_000, 50, 25, 2.0, 3e-4),  # where it goes over into the plain interval
        (5_000, 3, 7, 0.5, 5e-4),
        (1_000_000, 4_900, 5_000, 2.0, 7e-5),
        (50_000_000, 4_996_000, 5_000_000, 2.0, 1e-4),  # counts so large that they are looked at in steps
        (20_000, 250, 400, 40.0, 3e-3),  # far more noise than chance in the count
    ],
)
def test_the_chance_to_miss_one_record_is_as_stated_whatever_its_share(n, expected, cut, scale, client_error):
    rng = np.random.default_rng(number("one record", n, expected, client_error))
    p = expected / n
    law, raw, plain = one_record(rng, n, p, cut, scale, client_error)
    near, (low, high) = law.near(raw), law.interval(raw, 0.95)
    low, high = np.where(near, low, raw - plain), np.where(near, high, raw + plain)
    rate_at_most(int(((p < low) | (p > high)).sum()), len(raw), 0.05)
    if expected < cut:
        assert (np.abs(raw - p) > plain).mean() > 0.1  # what this is for
    # Nor is it wide for safety: at a level of one half it misses on one side at least.
    low, high = law.interval(raw, 0.5)
    assert ((p < low) | (p > high))[near].mean() > 0.15


def test_a_count_at_the_cut_says_nothing_from_below():
    rng = np.random.default_rng(number("at the cut"))
    law, raw, _ = one_record(rng, 20_000, 0.001, 25, 2.0, 1.0, runs=500)
    low, high = law.interval(raw, 0.95)
    assert (low[raw * 20_000 < 25.5] == 0).all()
    assert (low <= raw).all()
    assert (raw < high).all()


@pytest.mark.parametrize(("value", "n"), [(-3.0, 10), (-3.0, 10**6), (2.0, 10), (1e4, 100), (0.0, 1)])
def test_counts_that_make_no_sense_have_intervals_all_the_same(value, n):
    for noise in (0.0, 8.0):
        optin = Side(np.array([value, value + 1]), n, lambda x, s=noise: x * (1 - x) / n + s / n**2)
        clients = Side(np.array([0.5, 0.1]), 100, lambda x: np.full_like(x, 0.01))
        law = Selected(optin, clients, np.array([0.3, 1.0]), round(value * n))
        raw = np.array([0.5, -0.1])
        low, high = (end[law.near(raw)] for end in law.interval(raw, 0.95))
        assert (low >= 0).all()
        assert (low <= high).all()
        assert (high <= 1).all()


def test_far_above_the_cut_nothing_is_selected():
    rng = np.random.default_rng(number("far above"))
    law, raw, _ = one_record(rng, 20_000, 0.02, 25, 2.0, 1e-3, runs=500)
    assert not law.near(raw).any()
    assert np.isnan(law.interval(raw, 0.95)).all()
    assert (law.bias(raw) == 0).all()


def test_the_bias_in_standard_errors_is_not_below_the_true_one():
    rng = np.random.default_rng(number("bias"))
    for name in ("as many clients", "precise clients"):
        true, stated = [], []
        for _ in range(30):
            made, p, _ = published(rng, name)
            n, least = SETTINGS[name][0], SETTINGS[name][3]
            law = Selected(Side(made.optin, n, _variance(name)), Side(made.client, 1, _known(made)), made.weight, least)
            true.append((made.blended - p).sum())
            stated.append(law.bias(made.blended).sum())
        assert np.mean(true) > 2 * np.std(true) / math.sqrt(30)  # there is such a bias
        assert 0.7 * np.mean(true) < np.mean(stated) < 3 * np.mean(true)


@pytest.mark.parametrize("most", [30, 10_000], ids=["cut to a size", "all that pass"])
@pytest.mark.parametrize(("first", "exponent"), [(0.0267, 1.0), (0.012, 0.7), (0.1, 1.4)])
@pytest.mark.parametrize(("n", "epsilon", "threshold"), [(20_000, 1, 25), (5_000, 4, 7)])
def test_the_overshoot_of_a_list_is_predicted_from_its_own_counts(n, epsilon, threshold, first, exponent, most):
    law = np.multiply.outer(first / np.arange(1, 301) ** exponent, [0.6, 0.3, 0.1]).ravel()
    rng = np.random.default_rng(number("overshoot", n, exponent, most))
    true, predicted = [], []
    for _ in range(200):
        counts, noise = noisy_counts(rng, law, n, epsilon)
        kept = np.flatnonzero(counts >= threshold)
        least = threshold / n if len(kept) < most else None
        kept = kept[np.argsort(-counts[kept], kind="stable")][:most]
        optin = optin_shares([("q", str(i)) for i in kept], counts[kept] / n, n, noise)
        true.append((optin.values - law[kept]).sum())
        predicted.append(Overshoot(optin, least).of_one * len(kept))
    assert np.mean(predicted) == pytest.approx(np.mean(true), rel=0.5)
    assert np.std(predicted) < np.std(true)  # steadier than what it predicts


def test_nothing_overshoots_where_nothing_was_selected():
    optin = optin_shares([("q", "u")], [0.1], 100, 1.0)
    assert Overshoot(optin, -math.inf).of_one == 0
    assert Overshoot(optin_shares([], [], 100, 1.0), None).of_one == 0
    assert Overshoot(optin, None).of_one > 0


def _variance(name):
    n, a = SETTINGS[name][0], math.exp(-SETTINGS[name][2] / 2)
    return lambda x: x * (1 - x) / n + 2 * a / (1 - a) ** 2 / n**2


def _known(made):
    return lambda _: made.client_stderr**2


def test_what_decided_nothing_was_not_selected():
    rng = np.random.default_rng(number("not selected"))
    made, _, near = published(rng, "precise clients")
    optin = optin_shares(made.records, made.optin, 5_000, 0.3)
    clients = drawn_clients(rng, oracle_named("krr", len(near) + 1, 4), made.share, 95_000)
    cut, free = (blend_probabilities(made.records, optin, clients, least=least) for least in (7 / 5_000, -math.inf))
    assert (cut.blended == free.blended).all()
    assert (cut.low <= free.low + 1e-12)[near].all()
    assert (cut.low < free.low)[near].any()
    assert free.wildcard_stderr < cut.wildcard_stderr
