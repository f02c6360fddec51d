"""The experiment's populations, simulated reports and runs have the laws they claim, and reach what must be shown."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from hushquery.curator.counting import law_of
from hushquery.errors import DataError, UsageError
from hushquery.hybrid.headlist import calibrate_head
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery_experiments.blender import law as blender_law
from hushquery_experiments.blender.baselines import BASELINES, ldpminer, pem, prefix_holders, run_baseline
from hushquery_experiments.blender.law import AOL, URL_SHARES, YANDEX, LogPopulation, PowerLaw, Split, optin_size
from hushquery_experiments.blender.optin import simulate_optin
from hushquery_experiments.blender.reports import simulated_support, support_from_counts, support_through_randomizers
from hushquery_experiments.blender.run import ABLATION, MEASURES, improvements_of, run_point, run_points
from hushquery_experiments.unpublishable import MARK
from statistical import fit, number, rate, same_law

SMALL = PowerLaw("small", 20_000, 0.1, 1.0, 50)
POINT = {"optin": 0.2, "epsilon": 4, "delta": 1e-5, "head_size": 10}


def rng(*name):
    return np.random.default_rng(number("blender", *name))


# ---- populations ---------------------------------------------------------------------------------------------------


def test_laws_end_as_documented():
    assert AOL.queries == 4_800_000
    assert AOL.tail == pytest.approx(1 - 0.0267 * sum(1 / r for r in range(1, 4_800_001)))
    assert 1_400_000 < YANDEX.queries < 1_500_000
    assert YANDEX.tail == 0


def test_everybody_has_a_record():
    for law in (SMALL, AOL, YANDEX):
        split = law.split(0.05, rng("everybody", law.name))
        assert split.optin.sum() + split.singles == split.optin_users
        assert split.client.sum() <= split.client_records == law.users - split.optin_users
    assert split.client.sum() < split.client_records  # rare queries of clients are not counted


@pytest.mark.parametrize("law", [SMALL, AOL], ids=lambda law: law.name)
def test_counts_follow_the_law(law):
    split = law.split(0.3, rng("law", law.name))
    width = len(URL_SHARES)
    for group, counts, n in (
        ("optin", split.optin, split.optin_users),
        ("client", split.client, split.client_records),
    ):
        for query in (0, 1, 7, 49):
            for url in (0, 3, 5):
                chance = law.scale * (query + 1) ** -law.exponent * URL_SHARES[url]
                rate(int(counts[query * width + url]), n, chance, (group, query, url))
    rate(split.singles, split.optin_users, law.tail, "records of one user")


def test_rare_queries_of_opt_in_users_have_the_same_law(monkeypatch):
    """With ten counted queries the other forty are listed because somebody opted in with them; here all are."""
    monkeypatch.setattr(blender_law, "_COUNTED", 10)
    law = PowerLaw("rare", 2_000_000, 0.1, 1.0, 50)
    split = law.split(0.5, rng("rare"))
    assert split.query.tolist() == [query for query in range(50) for _ in URL_SHARES]
    for counts, n in ((split.optin, split.optin_users), (split.client, split.client_records)):
        for query in (9, 10, 30, 49):
            for url, share in enumerate(URL_SHARES):
                rate(int(counts[query * len(URL_SHARES) + url]), n, 0.1 / (query + 1) * share, (query, url))


def test_a_split_is_hidden():
    split = SMALL.split(0.2, rng("hidden"))
    assert repr(split) == "Split(4000 opt-in users, 16000 records of clients; counts are secret)"
    assert MARK not in repr(split.truth)
    assert "secret" in repr(split.truth)


def log():
    return {
        "user": [f"user {i}" for i in range(60) for _ in range(2)],
        "query": [query for i in range(60) for query in ("news", f"mine {i % 3}")],
        "url": [url for i in range(60) for url in ("https://news.example.org/", None)],
    }


def test_a_log_gives_one_record_per_user():
    population = LogPopulation.of_log(log(), seed=3)
    split = population.split(0.25, rng("log"))
    assert population.users == 60
    assert (split.optin_users, split.client_records, split.singles) == (15, 45, 0)
    assert split.optin.sum() == 15
    assert split.client.sum() == 45
    assert len(split.query) == 4  # news with its page, three queries without a click
    assert {population.label(q) for q in split.query.tolist()} == {"news", "mine 0", "mine 1", "mine 2"}
    assert "mine" not in repr(population)
    again = LogPopulation.of_log(log(), seed=3).split(0.25, rng("log"))
    assert (again.optin == split.optin).all()
    other = LogPopulation.of_log(log(), seed=4).split(0.25, rng("log"))
    assert (other.truth.count != split.truth.count).any()


def test_who_opts_in_is_chosen_evenly():
    population = LogPopulation.of_log(log(), seed=3)
    truth = population.split(0.25, rng("even")).truth.count
    drawn = np.sum([population.split(0.25, rng("even", i)).optin for i in range(400)], axis=0)
    for record, held in enumerate(truth.tolist()):
        # Sampling without replacement varies less than the binomial that this check takes it for.
        rate(int(drawn[record]), 400 * held, 0.25, record)


def test_synthetic_logs_are_read_in_chunks():
    population = LogPopulation.synthetic("tiny", users=300, seed=2)
    split = population.split(0.1, rng("synthetic"))
    assert split.truth.count.sum() == population.users == 300


def test_populations_refuse_nonsense():
    for share in (0, 1, -0.1, math.nan, 1.5):
        with pytest.raises(UsageError):
            optin_size(100, share)
    with pytest.raises(UsageError):
        PowerLaw("x", 100, 2.0, 1.0, 10)
    with pytest.raises(UsageError):
        LogPopulation.of_log(log()).split(0.25, rng("x"), 2)
    with pytest.raises(DataError):
        LogPopulation.of_log({"user": ["a"], "query": ["q"]})


# ---- reports -------------------------------------------------------------------------------------------------------

CLIENTS = {"krr": (1, 0, 2), "two-stage": (1, 1, 0, 1), "oue": (2, 0, 1), "subset": (1, 0, 2, 1, 0)}
ORACLES = {
    "krr": KRR.calibrate(3, 1),
    "two-stage": TwoStage.calibrate([2], 2),
    "oue": OUE.calibrate(3, 1),
    "subset": SubsetSelection.calibrate(5, "0.5"),
}


def exact_law(oracle, clients):
    """Add up the reports of all clients, client by client, from each one's own law."""
    law = {(0,) * oracle.k: 1.0}
    for cell, n in enumerate(clients):
        speaks = []
        for report, p in oracle.law(cell).items():
            rows = oracle.unpack_many(np.frombuffer(oracle.pack(report), dtype=np.uint8)[None])
            speaks.append((tuple(oracle.support(rows).tolist()), p))
        for _ in range(n):
            after: Counter = Counter()
            for counts, chance in law.items():
                for one, p in speaks:
                    after[tuple(a + b for a, b in zip(counts, one, strict=True))] += chance * p
            law = dict(after)
    return law


@pytest.mark.parametrize("name", ORACLES)
def test_counts_have_the_exact_joint_law_of_the_reports(name):
    oracle, clients, source = ORACLES[name], np.array(CLIENTS[name]), rng("joint", name)
    law = exact_law(oracle, CLIENTS[name])
    drawn = Counter(tuple(support_from_counts(oracle, clients, source).tolist()) for _ in range(3000))
    fit(drawn, law)
    assert set(drawn) <= set(law)
    ran = Counter(tuple(support_through_randomizers(oracle, clients, source).tolist()) for _ in range(1000))
    fit(ran, law)
    same_law(drawn, ran, sorted(law, key=law.get)[-20:])


@pytest.mark.parametrize("through", ["counts", "randomizers"])
@pytest.mark.parametrize("oracle", [*ORACLES.values(), OLH.calibrate(4, 1)], ids=lambda oracle: oracle.name)
def test_estimates_from_simulated_reports_are_right(oracle, through):
    clients = np.arange(1, oracle.k + 1) * 30_000
    n = int(clients.sum())
    values, errors = oracle.frequencies(simulated_support(oracle, clients, rng(oracle.name, through), through), n)
    assert (np.abs(values - clients / n) < 7 * errors).all()


def test_two_stage_channel_of_a_larger_list():
    oracle = TwoStage.calibrate([3, 1, 0, 2], 1)
    clients = np.zeros(oracle.k, dtype=np.int64)
    clients[4] = 200_000
    seen = support_from_counts(oracle, clients, rng("channel"))
    fit(dict(enumerate(seen.tolist())), oracle.law(4))


def test_reports_refuse_nonsense():
    oracle = ORACLES["krr"]
    for clients, through in (([1, 2], "counts"), ([1, 2, -3], "counts"), ([1, 2, 3], "magic")):
        with pytest.raises(UsageError):
            simulated_support(oracle, np.array(clients), rng("x"), through)


# ---- the opt-in side -----------------------------------------------------------------------------------------------


def flat_split(counts, singles=0, clients=1000):
    counts = np.array(counts)
    users = int(counts.sum()) + singles
    return Split(np.arange(len(counts)), counts, np.zeros_like(counts), singles, users, clients)


def test_records_pass_with_their_exact_chance():
    step = calibrate_head(epsilon=1, delta=1e-3)
    for count in (step.threshold - 3, step.threshold, step.threshold + 3):
        split = flat_split([count] * 20_000)
        side = simulate_optin(split, epsilon=1, delta=1e-3, most=20_000, rng=rng("pass", count))
        rate(side.passed, 20_000, float(law_of(step).tail(step.threshold - count)), count)
        noisy = np.rint(side.shares.values * split.optin_users).astype(int)
        assert noisy.min() >= step.threshold


def test_records_of_one_user_pass_with_theirs():
    step = calibrate_head(epsilon=1, delta=0.05)
    split = flat_split([0, 0], singles=200_000)
    side = simulate_optin(split, epsilon=1, delta=0.05, most=100_000, rng=rng("singles"))
    chance = float(law_of(step).tail(step.threshold - 1))
    rate(side.passed, 200_000, chance, "singles")
    noisy = np.rint(side.shares.values * split.optin_users).astype(int) - step.threshold
    excess = Counter(noisy.tolist())
    ratio = math.exp(-1 / float(step.scale))
    fit(excess, {z: (1 - ratio) * ratio**z for z in range(60)})
    assert (side.split.optin[side.records] == 1).all()
    assert side.split.singles == 200_000 - side.passed
    assert len(set(side.split.query[side.records].tolist())) == side.passed


@pytest.mark.parametrize("way", ["reuse", "split", "budget"])
def test_each_way_costs_no_more_than_its_budget_and_estimates_well(way):
    split = SMALL.split(0.5, rng("ways"))
    side = simulate_optin(split, epsilon=2, delta=1e-6, most=20, rng=rng("ways", way), way=way, f_o=0.5)
    assert side.shares.loss.fits(2, "1e-6")
    assert len(side.records) == 20
    assert side.shares.n == (5000 if way == "split" else 10_000)
    chance = SMALL.probability(side.split.query[side.records]) * np.array(URL_SHARES)[side.records % 6]
    assert (np.abs(side.shares.values - chance) < 7 * np.sqrt(side.shares.variance_at(chance))).all()
    assert (np.diff(side.shares.values) <= 0).all()


def test_other_users_measure_what_some_found():
    """S and T are disjoint: the counts of both parts add up to everybody."""
    split = flat_split([400] * 50)
    side = simulate_optin(split, epsilon=4, delta=1e-5, most=50, rng=rng("parts"), way="split", threshold="paper")
    assert side.shares.n == 1000
    assert side.shares.values.sum() == pytest.approx(1, abs=0.05)  # a count of 20 each, with noise of 1


def test_the_opt_in_side_refuses_nonsense():
    split = flat_split([50] * 4)
    for wrong in ({"most": 0}, {"most": 5, "way": "magic"}, {"most": 5, "way": "split", "f_o": 1.0}):
        with pytest.raises(UsageError):
            simulate_optin(split, epsilon=1, delta=1e-5, rng=rng("x"), **wrong)


# ---- runs ----------------------------------------------------------------------------------------------------------


def test_aol_profile_reaches_what_must_be_shown():
    setting = {"optin": 0.05, "epsilon": 4, "delta": 1e-5, "head_size": 50}
    best, paper = (run_points(AOL, mode=mode, runs=5, **setting) for mode in ("best", "paper"))
    assert best.complete == paper.complete == 5
    assert best.means["ndcg"] >= 0.99
    assert best.means["l1"] <= paper.means["l1"] / 3


def test_yandex_profile_reaches_what_must_be_shown():
    best = run_points(YANDEX, optin=0.025, epsilon=1, delta=1e-7, head_size=100, runs=5)
    assert best.complete == 5
    assert best.means["ndcg"] >= 0.99
    assert best.means["l1"] <= 0.01


@pytest.mark.parametrize("epsilon", [1, 2, 3, 4, 5])
def test_best_is_above_the_baselines_by_both_rules(epsilon):
    best = run_points(AOL, optin=0.05, epsilon=epsilon, delta=1e-5, head_size=10, runs=4)
    for finder in BASELINES:
        baseline = run_baseline(finder, AOL, epsilon=epsilon, runs=4)
        assert best.means["ndcg"] > baseline.ndcg
        assert best.means["ndcg_rank_based"] > baseline.ndcg_rank_based


def test_printed_variance_ignores_the_clients():
    printed = run_point(AOL, optin=0.05, epsilon=4, delta=1e-5, head_size=50, mode="printed", seed=3)
    assert np.mean(printed.estimates.weight) > 0.9
    paper = run_point(AOL, optin=0.05, epsilon=4, delta=1e-5, head_size=50, mode="paper", seed=3)
    assert (paper.estimates.client == printed.estimates.client).all()  # the same reports, weighed otherwise
    assert paper.l1 < printed.l1


def test_runs_repeat_and_differ_by_seed():
    first, same, other = (run_point(SMALL, seed=seed, **POINT) for seed in (1, 1, 2))
    assert first.to_json() == same.to_json() != other.to_json()


def test_running_every_client_gives_the_same_kind_of_result():
    for mode in ("best", "paper"):
        point = run_point(SMALL, mode=mode, through="randomizers", **POINT)
        truth = point.estimates.truth.count[point.estimates.records] / point.estimates.truth.users
        assert (np.abs(point.estimates.client - truth) < 7 * point.estimates.blended.client_stderr).all()


@pytest.mark.parametrize("row", ABLATION)
def test_every_row_of_the_ablation_runs(row):
    means = run_points(SMALL, runs=2, improvements=ABLATION[row], **POINT)
    assert means.means["head_list_size"] == 10
    assert all(math.isfinite(means.means[name]) for name in MEASURES)
    told = json.loads(json.dumps(means.to_json()))
    assert told["publishable"] is False
    assert told["setting"]["improvements"]["optin"] == ABLATION[row].optin
    assert told["l1_stderr"] == means.stderrs["l1"]


def test_shares_are_projected_or_not():
    rows = {row: run_point(SMALL, improvements=ABLATION[row], **POINT) for row in ABLATION if row.startswith("best")}
    assert rows["best: all together"].estimates.share.min() >= 0
    raw = rows["best without projection"].estimates
    assert raw.share == pytest.approx(raw.weight * raw.optin + (1 - raw.weight) * raw.client)


def test_more_records_per_client_cost_each_its_part():
    once, thrice = (run_points(SMALL, m_c=m_c, runs=6, **POINT) for m_c in (1, 3))
    assert thrice.points[0].estimates.truth.users == 4000 + 3 * 16_000
    assert thrice.side("l1", "client")[0] > once.side("l1", "client")[0]  # as the paper found: one record is best


def test_an_empty_head_list_scores_nothing():
    law = PowerLaw("sparse", 2000, 1e-4, 1.0, 5)
    for mode in ("best", "paper"):
        point = run_point(law, optin=0.1, epsilon=1, delta=1e-7, head_size=10, mode=mode)
        assert (point.head_list_size, point.ndcg, point.l1) == (0, 0, 0)


def test_a_point_is_marked_and_keeps_its_records():
    point = run_point(SMALL, **POINT)
    assert MARK in repr(point)
    assert "estimates" not in point.to_json()
    assert json.loads(json.dumps(point.to_json()))["mark"] == MARK
    assert point.measure("l1", "client") == point.client_scores.l1
    assert point.top_queries(5)[0] <= 1
    queries = point.estimates.query_numbers
    assert len(queries) == point.scores.queries


@pytest.mark.parametrize(
    "nonsense",
    [{"mode": "magic"}, {"m_c": 0}, {"head_size": 0}, {"optin": 2}, {"epsilon": 0}, {"delta": 0}, {"oracle": "magic"}],
)
def test_runs_refuse_nonsense(nonsense):
    with pytest.raises(UsageError):
        run_point(SMALL, **(POINT | nonsense))
    with pytest.raises(UsageError):
        run_points(SMALL, runs=0, **POINT)


def test_modes_are_what_they_are_called():
    assert improvements_of("paper", f_c=0.7).f_c == 0.7
    assert improvements_of("best").optin == "reuse"
    assert not improvements_of("printed").corrected


# ---- baselines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finder", [ldpminer, pem], ids=lambda finder: finder.__name__)
def test_baselines_find_what_is_frequent(finder):
    counts = np.array([60_000, 50_000, 40_000] + [20] * 500)
    listed = finder(counts, 200_000, 4, 3, rng(finder.__name__))
    assert listed == [0, 1, 2]


def test_own_queries_have_every_prefix_alike():
    every = np.arange(16)
    counts = np.array([1000, 500])
    held = prefix_holders(every, 4, np.array([3, 7]), counts, 40_000, rng("prefixes"))
    assert held.sum() == 41_500
    fit(
        dict(enumerate((held - np.where(every == 3, 1000, np.where(every == 7, 500, 0))).tolist())),
        dict.fromkeys(range(16), 1 / 16),
    )
    some = prefix_holders(np.array([9, 3]), 4, np.array([3, 7]), counts, 40_000, rng("some prefixes"))
    rate(int(some[0]), 40_000, 1 / 16, "another prefix")
    rate(int(some[1]) - 1000, 40_000, 1 / 16, "a counted query's prefix")


def test_baselines_score_what_is_nobodys_query_as_nothing():
    point = run_baseline("pem", SMALL, epsilon=0.1, runs=2)
    assert point.ndcg < 0.5
    assert point.to_json()["publishable"] is False
    for wrong in ({"finder": "magic"}, {"runs": 0}, {"size": 0}):
        with pytest.raises(UsageError):
            run_baseline(**({"finder": "pem", "population": SMALL, "epsilon": 1} | wrong))
