"""A floor of N users: what fewer hold never comes out, one user more costs what it did, and the release says so.

The mechanism ``floor`` is registered, so that ``tests/conformance`` runs all of its checks on it; here are the other
noise, clicks, lists without counts, what is drawn in bulk, and the edges: N - 2, N - 1 and N users of a query.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from commands import answer
from conformance.checks import EPSILON, check_end_to_end, check_law, check_loss, check_pure, check_rates, check_tight
from hushquery.auditing.conformance import EPSILONS
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, loss_from
from hushquery.core.registry import Pair
from hushquery.curator.audit import crowd, many_logs, numbered, read_dataset, searcher, seen_in
from hushquery.curator.clicks import PAIR, Clicks, SelectedClicks
from hushquery.curator.counting import QUERY, Bound, tally, with_intervals
from hushquery.curator.forecast import forecast
from hushquery.curator.plan import SELECTORS, ReleasePlan, ReleaseSpec, calibrate, plan_release
from hushquery.curator.selectors.thresholded import FloorSelector, GaussianSelector, LaplaceSelector
from hushquery.errors import UsageError
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.release import verify
from hushquery.release.intervals import published
from hushquery.release.release import Release, manifest_bytes, sign
from search_logs import OTHERS, ZOE, counted, log
from small_releases import thresholded
from statistical import bits, every_position, fit, hockey_stick, number, rate

LOOSE = Fraction(3), Fraction(1, 20)
N = 3


def floored(mechanism: Any, min_users: int = N) -> Any:
    """Give a mechanism a floor, and change nothing else."""
    if isinstance(mechanism, SelectedClicks):
        return replace(mechanism, clicks=replace(mechanism.clicks, step=replace(mechanism.clicks.step, min_users=N)))
    selection = replace(mechanism.selector.selection, min_users=min_users)
    return replace(mechanism, selector=replace(mechanism.selector, selection=selection))


# ---- one user more -------------------------------------------------------------------------------------------------


@seed(number("floor"))
@settings(max_examples=10, deadline=None, database=None)
@given(OTHERS, ZOE, st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_one_user_more_adds_one_to_at_most_d_counts_above_the_floor(others, zoe, d, least, clicking):
    """In the engine, at every floor: what is added, what is new, and that it is what the definition says."""
    queries = numbered(("ant", "bee", "cow", "dog"))
    step = LaplaceHistogram(d, Fraction(1), 5, min_users=least)

    def counts(rows, under):
        if clicking:
            return counted(Clicks(replace(step, min_users=under)).expression(log(*rows), Bound(), queries))
        return counted(tally(Bound().rows(log(*rows), QUERY, d), QUERY, under - 1))

    before, after = counts(others, least), counts(others + zoe, least)
    for found, rows in ((before, others), (after, others + zoe)):
        assert found == {key: n - least + 1 for key, n in counts(rows, 1).items() if n >= least}
    added = {key: after.get(key, 0) - before.get(key, 0) for key in {*before, *after}}
    assert set(added.values()) <= {0, 1}
    assert sum(added.values()) <= d
    assert all(after[key] == 1 for key in after.keys() - before.keys())


@pytest.mark.parametrize("cls", [FloorSelector, GaussianSelector, SelectedClicks])
def test_the_log_where_a_query_reaches_the_floor_costs_what_the_step_states_and_the_one_before_nothing(cls):
    """Exactly, in both directions, at N - 2 -> N - 1 and at N - 1 -> N users of both keys."""
    mechanism = floored(cls.calibrate(*LOOSE))
    url = "https://x.example/" if cls is SelectedClicks else None
    few, at, over = (crowd(users, "ant", "bee", url=url) for users in (N - 2, N - 1, N))
    laws = [mechanism.law(dataset) for dataset in (few, at, over)]
    assert laws[0] == laws[1] == mechanism.law(())
    for epsilon in (0.0, 1.0, float(LOOSE[0])):
        there, back = hockey_stick(laws[1], laws[2], epsilon), hockey_stick(laws[2], laws[1], epsilon)
        assert 0 < max(there, back) <= mechanism.loss.delta(epsilon) * (1 + 1e-9)
    # A query of N users comes out as often as one of one user does without a floor.
    alone = (LaplaceSelector if cls is FloorSelector else cls).calibrate(*LOOSE)
    plain = alone.law(crowd(1, "ant", "bee", url=url))
    assert sorted(plain.values()) == pytest.approx(sorted(laws[2].values()), abs=1e-12)


# ---- what runs, against the laws -----------------------------------------------------------------------------------

OF_ITS_OWN = {
    "gaussian": lambda: floored(GaussianSelector.calibrate(EPSILON, Fraction(1, 1000))),
    "clicks": lambda: floored(SelectedClicks.calibrate(EPSILON, Fraction(1, 1000))),
    "list": lambda: FloorSelector(
        replace(FloorSelector.calibrate(EPSILON, Fraction(1, 1000)).selector, with_counts=False)
    ),
}


@pytest.mark.parametrize("name", OF_ITS_OWN)
def test_with_a_floor_all_that_conformance_checks_holds(name):
    mechanism = OF_ITS_OWN[name]()
    check_law(mechanism)
    check_end_to_end(mechanism)
    check_loss(mechanism, EPSILONS)
    check_pure(mechanism)
    if name == "gaussian":
        check_rates(mechanism)
    if name != "list":  # a list tells less than its noise would allow
        check_tight(mechanism, EPSILON)


@pytest.mark.parametrize("cls", [FloorSelector, GaussianSelector, SelectedClicks])
def test_under_a_floor_what_is_drawn_in_bulk_follows_the_law(cls, monkeypatch):
    """On so many logs at once that the keys of one count are drawn together, those at the floor itself among them."""
    monkeypatch.setattr("hushquery.curator.counting.WORTH_A_BINOMIAL", 100)
    mechanism, copies = floored(cls.calibrate(*LOOSE)), 4_000
    url = "https://x.example/" if cls is SelectedClicks else None
    dataset = crowd(N, "ant", url=url) + searcher("zoe", "bee", "ant", url=url)
    many = many_logs(dataset, copies)
    if cls is SelectedClicks:
        released = pa.table({"query": sorted(set(many["query"].to_pylist()))})
        found = mechanism.clicks.run(ibis.memtable(many), Bound(), released, bits("bulk", cls.name))
    else:
        found = mechanism.selector.run(ibis.memtable(many), Bound(), bits("bulk", cls.name))
    rows = seen_in(found, mechanism.keys, PAIR if cls is SelectedClicks else QUERY, copies)
    seen, law = Counter(map(tuple, rows.tolist())), mechanism.law(dataset)
    every_position(seen, law)
    fit(seen, law)


# ---- never ---------------------------------------------------------------------------------------------------------

#: A budget at which queries of single users do come out.
LAVISH = {"epsilon": 30, "delta": 0.3, "queries_per_user": 3, "population": "searchers"}


def few_and_many(floor: int, size: int = 300) -> Any:
    """Give a log of queries with one user fewer than a floor, and of twenty with a few more, all with clicks."""
    rows: list[Any] = []
    for users, name in ((floor - 1, "few"), (floor + 4, "enough")):
        for i in range(size if name == "few" else 20):
            rows += [(f"{name} {i} {u}", 0, f"{name} {i}", "https://x.example/") for u in range(users)]
    columns = zip(*rows, strict=True)
    return read_dataset(pa.table(dict(zip(("user", "time", "query", "url"), map(list, columns), strict=True))))


@pytest.mark.parametrize("selector", ["laplace", "gaussian"])
@pytest.mark.parametrize("floor", [2, 5])
def test_what_too_few_users_hold_never_comes_out(selector, floor, tmp_path):
    """Where without a floor some of it does."""
    secret = few_and_many(floor)
    for run in range(3):
        plan = plan_release(secret, selector=selector, clicks_per_user=2, min_users=floor, **LAVISH)
        made = plan.run(tmp_path / f"{run}.db", bits=bits("never", selector, floor, run))
        for table in made.tables.values():
            found = table["query"].to_pylist()
            assert found
            assert not [query for query in found if query.startswith("few")]
            assert min(table["low"].to_pylist()) >= floor
    without = plan_release(secret, selector=selector, clicks_per_user=2, **LAVISH)
    found = without.run(tmp_path / "without.db", bits=bits("never", selector, floor)).tables["queries"]
    assert any(query.startswith("few") for query in found["query"].to_pylist())


@pytest.mark.parametrize("selector", ["laplace", "gaussian"])
def test_a_floor_costs_nothing_and_raises_the_threshold_in_users_by_n_minus_one(selector):
    spec = ReleaseSpec(Budget(1, 1e-6), 10, clicks_per_user=3, selector=selector)
    plain, under = calibrate(spec), calibrate(replace(spec, min_users=8))
    assert under.loss == plain.loss
    assert under.selector.threshold == plain.selector.threshold + 7
    assert [s.parameters.loss for s in under.steps()] == [s.parameters.loss for s in plain.steps()]
    assert under.clicks is not None
    assert under.clicks.step.min_users == under.selector.selection.min_users == 8
    assert loss_from(under.clicks.step.to_json()) == under.clicks.step.loss
    assert "min_users" not in plain.selector.selection.to_json()
    # What may come out of the fewest: at most as many queries as their users can share among them.
    assert under.selector.rare_chance() == pytest.approx(plain.selector.rare_chance() / 8)
    few = forecast(replace(spec, min_users=2000), users=100_000)
    assert few.released_high < forecast(spec, users=100_000).released_low
    assert few.threshold == plain.selector.threshold + 1999


# ---- intervals -----------------------------------------------------------------------------------------------------

NOISES = {
    "laplace": (LaplaceHistogram(10, Fraction(9), 61, min_users=12), DiscreteLaplace(Fraction(9))),
    "gaussian": (GaussianHistogram(10, Fraction(8), 41, min_users=12), RoundedGaussian(Fraction(8))),
}


@pytest.mark.parametrize("noise", NOISES)
def test_intervals_under_a_floor_cover(noise):
    """Summed from the law given release, for counts from the floor on; those of a release and those of trends."""
    step, law = NOISES[noise]
    least = step.threshold + 11
    for count in (12, 13, 30, least - 9, least, least + 9, least + 60):
        values = np.arange(least, max(least, count) + 350)
        chances = np.array([law.pmf(int(v) - count) for v in values]) / float(law.tail(least - count))
        assert chances.sum() == pytest.approx(1, abs=1e-6)
        made = with_intervals(pa.table({"query": [str(v) for v in values], "noisy": values}), step)
        low, high = made["low"].to_numpy(), made["high"].to_numpy()
        assert low.min() == 12
        assert chances[(low <= count) & (count <= high)].sum() >= 0.95 - 1e-9, count
        # No wider than they have to be, which a threshold or a least count that is off would make them.
        assert made["count"].to_pylist() == values.tolist()
    plain = with_intervals(
        pa.table({"query": ["a", "b"], "noisy": [least - 11, least + 30 - 11]}), replace(step, min_users=1)
    )
    shifted = with_intervals(pa.table({"query": ["a", "b"], "noisy": [least, least + 30]}), step)
    for end in ("count", "low", "high"):
        assert [value + 11 for value in plain[end].to_pylist()] == shifted[end].to_pylist()


@pytest.mark.parametrize("noise", NOISES)
def test_trends_know_the_floor(noise):
    step, law = NOISES[noise]
    made = thresholded({"a": 300, "b": step.threshold + 11}, step)
    read = published(made.tables["queries"], "queries", made.manifest)
    assert (read.threshold, read.least) == (step.threshold + 11, 12)
    ends = read.ends(0.95)
    assert [(end.low, end.bounded) for end in ends][1] == (12, True)
    most = read.most_missing(0.95)
    assert most is not None
    assert law.cdf(read.threshold - 1 - (most + 1)) < 0.05 <= law.cdf(read.threshold - 1 - most)
    # Noise so small that all from the floor on comes out: what is missing had fewer users than the floor.
    assert replace(read, threshold=12, law=type(law)(Fraction(1, 9))).most_missing(0.95) == 11


def test_measured_coverage_of_a_whole_release_under_a_floor():
    """Many queries with one count, through the production path; tools/coverage does the same without a floor."""
    selector = calibrate(ReleaseSpec(Budget(2, 1e-4), 1, selector="gaussian", min_users=20)).selector
    users, copies = int(selector.threshold) + 2, 1_500
    names = [f"{i:05}" for i in range(copies)]
    table = pa.table({"user": [f"{q} {u}" for q in names for u in range(users)], "query": np.repeat(names, users)})
    found = selector.run(ibis.memtable(table), Bound(), bits("coverage"))
    assert found.num_rows > copies / 3
    low, high = found["low"].to_numpy(), found["high"].to_numpy()
    covered = int(((low <= users) & (users <= high)).sum())
    rate(found.num_rows - covered, found.num_rows, exact_miss(selector.selection, users), "misses")
    assert low.min() >= 20


def exact_miss(step: Any, count: int) -> float:
    least, law = step.threshold + step.min_users - 1, RoundedGaussian(step.sigma)
    values = np.arange(least, count + 200)
    made = with_intervals(pa.table({"query": [str(v) for v in values], "noisy": values}), step)
    missed = (made["low"].to_numpy() > count) | (made["high"].to_numpy() < count)
    miss = sum(law.pmf(int(v) - count) for v in values[missed]) / float(law.tail(least - count))
    assert 0 < miss <= 0.05
    return float(miss)


# ---- what is said --------------------------------------------------------------------------------------------------


def plan_of(**more: Any) -> ReleasePlan:
    asked = LAVISH | {"delta": 1e-6, "min_users": 20, "clicks_per_user": 2}
    return plan_release(few_and_many(60, 4), **(asked | more))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Release:
    return plan_of().run(tmp_path_factory.mktemp("said") / "ledger.db", bits=bits("said"))


def test_a_release_states_its_floor(made, tmp_path):
    assert made.manifest["parameters"]["min_users"] == 20
    assert [step["parameters"]["min_users"] for step in made.manifest["steps"]] == [20, 20]
    said = "No query searched by fewer than 20 users, and no page that fewer clicked, can appear, with certainty."
    assert said in made.card()
    assert said in made.page()
    assert "never with fewer than 20 users" in made.page()
    found = verify(made.save(tmp_path / "release"))
    assert found.problems == ()
    without = plan_of(min_users=1).run(tmp_path / "plain.db", bits=bits("said"))
    assert "min_users" not in json.dumps(dict(without.manifest))
    assert "certainty" not in without.card() + without.page()


def test_a_plan_explains_the_threshold_in_users(made):
    plan = plan_of()
    at = int(plan_of(min_users=1).calibrated.selector.threshold) + 19
    assert f"released at a noisy count of {at} or more; never with fewer than 20 users" in plan.explain()
    assert f"threshold {at}" in plan.explain()
    assert min(made.tables["queries"]["count"].to_pylist()) >= at


FORGED = {
    "a higher floor than what ran": lambda told: told["parameters"].update(min_users=30),
    "no floor where one ran": lambda told: told["parameters"].pop("min_users"),
    "a floor in one step only": lambda told: told["steps"][1]["parameters"].pop("min_users"),
    "a floor that intervals do not respect": lambda told: [
        place["parameters"].update(min_users=10_000) for place in (told, *told["steps"])
    ],
    "a floor that is no number": lambda told: told["steps"][0]["parameters"].update(min_users="20"),
    "a floor of none": lambda told: [place["parameters"].update(min_users=0) for place in (told, *told["steps"])],
}


@pytest.mark.parametrize("how", FORGED)
def test_a_floor_that_does_not_fit_is_found(how, made, tmp_path):
    folder = made.save(tmp_path / "release")
    told = json.loads((folder / "manifest.json").read_text())
    FORGED[how](told)
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))
    problems = verify(folder).problems
    assert any("floor" in problem or "can't be checked" in problem for problem in problems), problems


def test_a_step_without_a_proof_takes_no_floor():
    for make in (
        lambda: LaplaceHistogram(2, Fraction(1), 9, row_counts=True, min_users=2),
        lambda: LaplaceHistogram(2, Fraction(1), min_users=2),
        lambda: GaussianHistogram(2, Fraction(1), min_users=2),
        lambda: GaussianHistogram(2, Fraction(1), 9, min_users=0),
    ):
        with pytest.raises(UsageError, match="proven"):
            make()


# ---- refusals ------------------------------------------------------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    **{name: {"selector": name} for name in SELECTORS if name not in ("auto", "laplace", "gaussian")},
    "reformulations": {"reformulations_per_user": 2},
    "a public list": {"clicks_per_user": 2, "public_pairs": pa.table({"query": ["a"], "url": ["b"]})},
    "zero": {"min_users": 0},
    "a fraction": {"min_users": 2.5},
    "true": {"min_users": True},
    "too many": {"min_users": 10**7},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_proven_is_refused_before_anything_is_spent(what):
    with pytest.raises(UsageError, match=r"--min-users|the floor must be") as refused:
        plan_release(few_and_many(3, 2), **(LAVISH | {"min_users": 5} | REFUSED[what]))
    assert refused.value.fix


def test_a_list_without_counts_may_have_a_floor_whatever_else_was_asked_for(tmp_path):
    plan = plan_release(
        few_and_many(40, 4), select_only=True, reformulations_per_user=2, min_users=40, **(LAVISH | {"delta": 1e-6})
    )
    assert plan.calibrated.reformulations is None
    found = plan.run(tmp_path / "ledger.db", bits=bits("list")).tables["queries"]
    assert all(query.startswith("enough") for query in found["query"].to_pylist())


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{u}\t{query}" for query, users in (("weather", 150), ("rare", 4)) for u in range(users)]
    Path("log.tsv").write_text("user\tquery\n" + "\n".join(rows) + "\n")
    asked = ("--epsilon", "2", "--delta", "1e-6", "--queries-per-user", "2")
    whose = ("--population", "readers", "--ledger", "ledger.db", "--out", "r")
    code, out, err = answer("release", "log.tsv", *asked, *whose, "--min-users", "5", "--selector", "korolova2009")
    assert code != 0
    assert "laplace and gaussian" in err
    assert "Traceback" not in err
    assert not Path("ledger.db").exists() or not list(Ledger.open("ledger.db").history())
    code, out, err = answer("release", "log.tsv", *asked, *whose, "--min-users", "5")
    assert code == 0, err
    assert verify("r").ok
    assert json.loads(Path("r/manifest.json").read_text())["parameters"]["min_users"] == 5
    plain, under = (json.loads(answer("plan", *asked, *more, "--json")[1]) for more in ((), ("--min-users", "5")))
    assert under["threshold"] == plain["threshold"] + 4
    code, out, _ = answer("plan", *asked, "--min-users", "5")
    assert "posed by 5 people (the floor) only" in out
    code, out, err = answer("plan", "--epsilon", "1", "--delta", "1e-6", "--min-users", "5", "--json")
    assert code == 0, err
    assert {row["selector"] for row in json.loads(out)["forecasts"]} == {"laplace", "gaussian"}
    assert answer("plan", *asked, "--min-users", "0")[0] != 0
    backwards = ("plan", "--threshold", "140", "--scale", "8.69", "--queries-per-user", "20", "--min-users", "5")
    assert "no floor" in answer(*backwards)[2]
    assert answer("head", "log.tsv", "--min-users", "5")[0] != 0


def test_the_pair_at_the_floor_is_among_those_that_are_audited():
    pairs: list[Pair[Any]] = list(FloorSelector.calibrate(*LOOSE).pairs())
    assert len({row[0] for row in pairs[0].left}) == N - 1
