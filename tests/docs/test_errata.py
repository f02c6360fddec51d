"""What docs/errata.md claims, derived another way than tools/errata.py computes it; the page is what that writes."""

from __future__ import annotations

import importlib
import itertools
import math
import re
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hushquery.local.configuration import oracle_named
from hushquery.local.oracles.two_stage import TwoStage
from hushquery_experiments.blender.printed import printed_variances
from statistical import bits

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def errata(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("errata")


@pytest.fixture
def limits(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("limits")


@pytest.mark.parametrize(
    ("k", "k_q", "of_query", "of_record"), [(51, 3, 0.02, 0.012), (5, 2, 0.5, 0.35), (5, 7, 0.2, 0.1)]
)
def test_theorem_5_is_wrong_and_the_correction_right(errata, k, k_q, of_query, of_record):
    # The estimate is a weighted sum of the shares of reports, and reports are one multinomial draw each. So its exact
    # variance is that of the weight of one report, over n; the weights are the estimates from single reports.
    n = 500_000
    oracle = errata.two_stage(k, k_q)
    shares = np.zeros(oracle.k)
    shares[0], shares[k_q - 1], shares[-1] = of_record, of_query - of_record, 1 - of_query
    rates = sum(share * np.array(list(oracle.law(v).values())) for v, share in enumerate(shares) if share)
    weights = np.array(
        [oracle.frequencies(np.eye(oracle.k, dtype=np.int64)[cell], 1)[0][0] for cell in range(oracle.k)]
    )
    mean = float(rates @ weights)
    assert mean == pytest.approx(of_record, abs=1e-9)
    truth = (float(rates @ weights**2) - mean**2) / n
    printed, half, right = errata.variances(k, k_q, n, of_query, of_record)
    assert right == pytest.approx(truth, rel=1e-9)
    assert printed < -1000 * truth
    assert half < truth


def test_theorem_5_as_printed_can_also_be_far_too_large():
    oracle, n = TwoStage.calibrate([1] * 50, 4, query_share="0.3"), 500_000
    support = np.rint(n * np.array(list(oracle.law(oracle.k - 1).values()))).astype(np.int64)
    assert printed_variances(oracle, support, n)[0] > 1000 * oracle.variance(0, 0.0, 0.0, n) > 0


def test_theorem_6_weighs_low_counts_too_much(errata):
    # The same by two loops over counts and noise, with scipy's law of the noise.
    p, n, client = 0.001, 1300, 1e-6
    noise = stats.dlaplace(2.0)
    below = bias = 0.0
    for count, z in itertools.product(range(30), range(-25, 26)):
        chance = stats.binom.pmf(count, n, p) * noise.pmf(z)
        v = (count + z) / n
        variance = v * (1 - v) / (n - 1) + noise.var() / (n * (n - 1))
        below += chance * (variance <= 0)
        weight = 1.0 if variance + client <= 0 else min(1.0, max(0.0, client / (variance + client)))
        bias += chance * weight * (v - p) / p
    assert errata.plug_in(p, n, client) == pytest.approx((below, bias), rel=1e-6)
    assert below > 0.03
    assert bias < -0.15


@pytest.mark.parametrize("k_q", [2, 3, 5])
def test_local_alg_loses_less_than_it_states(errata, k_q):
    oracle = errata.two_stage(51, k_q)
    laws = np.array([list(oracle.law(value).values()) for value in range(oracle.k)])
    assert math.log((laws.max(0) / laws.min(0)).max()) == pytest.approx(float(oracle.epsilon), abs=1e-12)
    assert float(oracle.epsilon) < 3.9
    tight = TwoStage.calibrate([k_q - 1] * 50, 4, mode="tight")
    assert tight.epsilon <= 4
    assert tight.variance(0) < oracle.variance(0) / 5


def test_half_of_local_algs_delta_is_not_used():
    for k, epsilon, delta in itertools.product((2, 11, 51, 501), (0.5, 3.4), (1e-5, 0.1)):
        t = (math.exp(epsilon) + delta / 2 * (k - 1)) / (math.exp(epsilon) + k - 1)
        # Only the client's own query is likelier than elsewhere, so this one event has all of delta.
        assert t - math.exp(epsilon) * (1 - t) / (k - 1) == pytest.approx(delta / 2, rel=1e-9)


def test_create_head_list_is_twice_too_careful_for_any_number_of_records(errata):
    for epsilon, delta, most in itertools.product((0.5, 1, 4), (1e-7, 1e-5, 0.5), (1, 2, 3, 5, 10)):
        b = 2 * most / epsilon
        tau = b * (math.log(math.exp(epsilon / 2) + most - 1) - math.log(delta))
        assert tau >= most >= 1
        assert errata.worst_split(most, b, tau) <= delta / 2 * (1 + 1e-9)
        enough = max(1 + b * math.log(most / (2 * delta)), most + b * math.log(1 / (2 * delta)))
        assert enough < tau
        assert errata.worst_split(most, b, enough) <= delta * (1 + 1e-9)
    assert sorted(errata.splits(4)) == [[1, 1, 1, 1], [2, 1, 1], [2, 2], [3, 1], [4]]


def test_delta_alg_has_slack(errata):
    for d in (1, 2, 5, 7, 8, 12, 20):
        threshold, b = errata.paper_threshold(d)
        worst = errata.worst_split(d, b, threshold)  # every split, not only the extremes
        assert errata.exact_delta(d, b, threshold) == pytest.approx(worst, rel=1e-9)
        assert d / 2 * math.exp((d - threshold) / b) == pytest.approx(1e-5, rel=1e-9)
    assert worst == pytest.approx(1e-5 / 9, rel=0.02)  # d = 20


def test_the_table_of_slide_85_needs_b_to_be_d_over_epsilon(errata):
    for d, threshold, b in errata.SLIDE_85:
        assert errata.paper_threshold(d) == (pytest.approx(threshold, abs=0.006), pytest.approx(b, abs=0.006))


def test_the_second_term_of_alpha_is_not_needed(errata):
    for threshold, b in itertools.product((1.0, 1.5, 3.0, 10.0, 100.0), (0.3, 1.0, 10.0, 80.0)):
        first, second, text = errata.alphas(threshold, b)
        assert text >= second  # the slipped -1 charges more, never less
        out = math.exp((1 - threshold) / b) / 2
        assert second == pytest.approx(1 / (1 - out), rel=1e-9)
        # One new query: absent for sure in D1, with chance 1 - out in D2. The worst event has no more than delta.
        assert max(0.0, 1 - first * (1 - out)) <= out
    first, second, _ = errata.alphas(1.0, 10.0)
    assert (round(first, 3), second) == (1.105, 2.0)  # what slides 65 to 68 would have, and the ratio there is


def test_a_real_threshold_on_integer_noise_lets_more_through(errata):
    for base, (low, high) in {5: (1.05e-5, 1.1e-5), 4: (1.2e-5, 1.25e-5)}.items():
        b = 1 / math.log(base)
        threshold = 1 + b * math.log(1 / 2e-5)
        passed = stats.dlaplace(1 / b).sf(math.floor(threshold) - 1)  # 1 + noise > threshold
        assert low < passed < high
        assert passed < 1e-5 * 2 / (1 + math.exp(-1 / b))
        assert any(
            row[1] == str(base) and float(row[4]) == pytest.approx(passed, rel=0.01) for row in errata.integers()
        )


def test_the_product_of_the_lecture_notes_is_not_private(errata):
    cells = {(row[0], row[1]): (float(row[2]), float(row[3])) for row in errata.one_bit()[1:]}
    assert cells["1", "0 of 100"] == (0, pytest.approx(1 / (math.e + 1), abs=1e-4))
    assert cells["1", "100 of 100"][0] > 0.1  # so a 1 proves that x is not 0
    assert cells["1", "100 of 100"][1] == pytest.approx(math.e / (math.e + 1), abs=1e-4)


def test_rappors_budget_is_not_used_up_by_reports_of_one_value(errata):
    rows = {row[0]: float(row[1].removeprefix("at most ")) for row in errata.rappor()[1:]}
    assert rows["5"] == rows["1,000"] == pytest.approx(4 * math.log(3), abs=1e-3)
    assert rows["1"] < rows["4"] < rows["5"]


def test_belief_changes_by_at_most_a_factor_of_the_odds(errata):
    for row in errata.posterior()[1:]:
        prior = float(row[0].strip("%")) / 100
        for epsilon, cell in zip((0.1, 1, 4), row[1:], strict=True):
            odds = math.exp(epsilon) * prior / (1 - prior)
            assert float(cell.removeprefix("at most ").strip("%")) / 100 == pytest.approx(
                odds / (1 + odds) + 5e-4, abs=5.1e-4
            )
            assert odds > prior / (1 - prior)


@pytest.mark.parametrize("page", ["errata", "limits"])
def test_a_page_is_what_its_tool_writes(page, request):
    tool = request.getfixturevalue(page)
    written = importlib.import_module("marked").written
    text = tool.PAGE.read_text(encoding="utf-8")
    day = re.search(r"Made on (\d{4}-\d\d-\d\d) \(UTC\) by `([^`]+)`", text)
    assert date.fromisoformat(day[1])
    assert day[2] == tool.COMMAND
    assert written(text, tool.TABLES, day[1]) == text
    spoilt = re.sub(r"\| 1 \| (\S+) \|", r"| 1 | \g<1>0 |", text, count=1)
    assert spoilt != text
    assert written(spoilt, tool.TABLES, day[1]) == text
    name = next(iter(tool.TABLES))
    with pytest.raises(SystemExit, match=f"not exactly one place for {name}"):
        written(text.replace(f"<!-- made: {name} -->", ""), tool.TABLES, day[1])
    with pytest.raises(SystemExit, match="when it was made"):
        written(text.replace("(UTC)", ""), tool.TABLES, day[1])


def test_fake_clients_move_an_estimate_as_far_as_the_page_says(limits):
    # One in a hundred of 200,000 clients sends reports for cell 0 that no coin has touched; nobody has that value.
    n, fakes = 200_000, 2000
    for name, epsilon in (("krr", 2), ("oue", 1)):
        oracle = oracle_named(name, limits.CELLS, epsilon)
        honest = oracle.support(oracle.randomize_many(np.full(n - fakes, 7), bits("limits", name)))
        support = honest + fakes * np.eye(limits.CELLS, dtype=np.int64)[0]
        moved, error = oracle.frequencies(support, n)[0][0], math.sqrt(oracle.variance() / n)
        # Six standard errors and a half: 2e-10 of false alarms, halved and doubled again for the second oracle.
        assert moved == pytest.approx(0.01 * limits.pull(name, epsilon), abs=6.5 * error)
        assert moved > 0.02


def test_belonging_to_a_group_costs_more(limits):
    rows = limits.groups()[1:]
    assert [row[1] for row in rows] == ["1", "2", "5", "10"]
    assert float(rows[-1][2]) > 1000 * float(rows[0][2])


def test_each_link_to_a_section_of_the_page_has_one(errata):
    page = errata.PAGE.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= slugs
