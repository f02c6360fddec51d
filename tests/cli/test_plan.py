"""``hushquery plan``: the numbers before anything is spent, in both directions, and nonsense refused in words."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from commands import answer
from hushquery.core.budget import Budget, suggested_delta
from hushquery.curator.forecast import compare, forecast, untouched_share
from hushquery.curator.plan import SELECTORS, plan_release
from hushquery.noise.law import DiscreteLaplace
from statistical import number, within

PAPER = ("--selector", "korolova2009", "--epsilon", "2.302585", "--delta", "1e-5", "--queries-per-user", "20")
ONE = ("--epsilon", "1", "--delta", "1e-7", "--queries-per-user", "20")
BACK = ("--threshold", "140", "--scale", "8.69", "--queries-per-user", "20")


def ask(*arguments: str) -> dict[str, Any]:
    code, out, err = answer("plan", *arguments, "--json")
    assert code == 0, out + err
    data: dict[str, Any] = json.loads(out)
    return data


def test_large_numbers_are_written_in_full() -> None:
    silly = ("--epsilon", "0.00001", "--delta", "1e-9")
    _, told, _ = answer("plan", *silly, "--queries-per-user", "20")
    assert re.search(r"released at a noisy count of [0-9],[0-9]{3},[0-9]{3} or more", told), told
    assert "e+" not in told
    assert "e+" not in answer("plan", *silly)[1]


# ---- Theorem 1, forwards and backwards -----------------------------------------------------------------------------


def test_the_line_of_the_issue() -> None:
    data = ask(*PAPER, "--select-only")
    wanted = "selector epsilon delta threshold scale delta_alg delta_exact delta_naive expected_rare warnings"
    assert set(wanted.split()) <= set(data)
    assert data["selector"] == "korolova2009"
    assert f"{data['threshold']:.2f} {data['scale']:.2f}" == "140.00 8.69"
    assert data["epsilon"] <= 2.302585
    assert data["delta"] == 1e-5
    assert f"{data['delta_alg']:.2e} {data['delta_exact']:.2e}" == "1.00e-05 1.06e-06"
    assert data["delta_exact"] < data["delta_alg"] <= 1e-5
    # The worst user poses twenty queries once, or one query twenty times; released above 140 is from 141 on.
    law = DiscreteLaplace(Fraction(data["steps"][0]["parameters"]["scale"]))
    assert data["steps"][0]["parameters"]["threshold"] == 141
    assert data["expected_rare"] == pytest.approx(1e6 * float(max(20 * law.tail(140), law.tail(121))), rel=1e-9)
    assert any("1,000,000 users" in warning and "--delta" in warning for warning in data["warnings"])


def test_backwards_gives_the_budget_back() -> None:
    forwards = ask(*PAPER, "--select-only")
    exact_scale = forwards["steps"][0]["parameters"]["scale"]
    data = ask("--threshold", repr(forwards["threshold"]), "--scale", exact_scale, "--queries-per-user", "20")
    assert data["epsilon"] == pytest.approx(2.302585, rel=1e-12)
    assert data["delta"] == pytest.approx(1e-5, rel=1e-9)
    for same in ("delta_alg", "delta_exact", "delta_naive", "expected_rare"):
        assert data[same] == pytest.approx(forwards[same], rel=1e-9)
    whole = ask(*BACK, "--count-scale", "20", "--clicks-per-user", "5", "--click-scale", "10")
    assert whole["epsilon"] == pytest.approx(20 / 8.69 + 1 + 0.5, rel=1e-12)
    assert whole["delta"] == ask(*BACK)["delta"]


def test_korolova_with_clicks_is_the_plan_of_a_release() -> None:
    data = ask(*PAPER, "--clicks-per-user", "5", "--users", "65000")
    assert [step["name"] for step in data["steps"]] == ["korolova2009", "discrete-laplace", "laplace"]
    assert data["shares"] == {"queries": 0.6, "clicks": 0.4}
    assert data["epsilon"] <= 2.302585
    assert data["threshold"] > 140  # less epsilon is left for the queries
    plan = plan_release(
        {"user": ["u"], "query": ["q"], "url": ["u"], "time": [1]},
        epsilon="2.302585",
        delta="1e-5",
        queries_per_user=20,
        clicks_per_user=5,
        selector="korolova2009",
        population="readers",
    )
    assert [step["parameters"] for step in data["steps"]] == [s.parameters.to_json() for s in plan.calibrated.steps()]


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_plan_is_what_a_release_would_run(selector: str) -> None:
    asked = (
        "--clicks-per-user",
        "3",
        "--reformulations-per-user",
        "4",
        "--shares",
        "queries=3,clicks=2,reformulations=1",
    )
    data = ask(*ONE, "--selector", selector, *asked)
    plan = plan_release(
        {"user": ["u"], "query": ["q"], "url": ["u"], "time": [1]},
        epsilon="1",
        delta="1e-7",
        queries_per_user=20,
        clicks_per_user=3,
        reformulations_per_user=4,
        selector=selector,  # type: ignore[arg-type]
        shares={"queries": 3, "clicks": 2, "reformulations": 1},
        population="readers",
    )
    assert [step["parameters"] for step in data["steps"]] == [s.parameters.to_json() for s in plan.calibrated.steps()]
    assert data["epsilon"] == plan.guarantee.epsilon <= 1
    assert data["delta_exact"] <= data["delta"] == 1e-7
    assert data["shares"] == {"queries": 0.5, "clicks": pytest.approx(1 / 3), "reformulations": pytest.approx(1 / 6)}
    assert math.fsum(data["shares"].values()) == pytest.approx(1)


def test_printed_numbers_never_understate_the_cost() -> None:
    for arguments in (
        PAPER,
        (*ONE, "--clicks-per-user", "3"),
        ("--threshold", "141", "--scale", "8.7", "--queries-per-user", "20"),
    ):
        data, (_, text, _) = ask(*arguments), answer("plan", *arguments)
        found = re.search(r"epsilon ([0-9.e-]+), delta ([0-9.e-]+)", text)
        assert found is not None
        assert float(found[1]) >= data["epsilon"]
        assert float(found[2]) >= data["delta"]


# ---- forecasts -----------------------------------------------------------------------------------------------------


def test_users_scale_the_expected_number_of_rare_queries() -> None:
    few, many = ask(*ONE, "--users", "1000"), ask(*ONE, "--users", "50000000", "--anyway")
    assert many["expected_rare"] == pytest.approx(50_000 * few["expected_rare"])
    assert few["warnings"] == []
    *_, warning = many["warnings"]
    assert f"--delta {suggested_delta(50_000_000):.0e}" in warning
    assert "1e-10" in warning
    again = ask("--epsilon", "1", "--delta", "1e-10", "--queries-per-user", "20", "--users", "50000000")
    assert again["warnings"] == []
    assert again["expected_rare"] <= 50_000_000 * 1e-10


@pytest.mark.parametrize("selector", SELECTORS[1:])
def test_no_forecast_promises_less_than_delta_allows(selector: str) -> None:
    for epsilon, delta, d in (("0.5", "1e-6", 5), ("ln 10", "1e-5", 20), ("4", "1e-9", 40)):
        data = ask(
            "--selector",
            selector,
            "--epsilon",
            epsilon,
            "--delta",
            delta,
            "--queries-per-user",
            str(d),
            "--users",
            "1000",
        )
        assert 0 < data["expected_rare"] <= 1000 * float(delta) * 1.001
        assert data["untouched"] == pytest.approx(untouched_share(d))
        assert data["noise"] > 0


def test_the_comparison_has_every_selector_and_draws_it(tmp_path: Path) -> None:
    data = ask("--epsilon", "ln(10)", "--delta", "1e-5", "--users", "65000", "--plot", str(tmp_path / "plan.svg"))
    rows = {(row["selector"], row["queries_per_user"]): row for row in data["forecasts"]}
    assert {name for name, _ in rows} == set(SELECTORS) - {"auto"}
    assert rows["gaussian", 20]["threshold"] == 40
    assert rows["laplace", 20]["threshold"] == 122
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    # More queries of each user: a higher threshold, fewer users whom d touches.
    for name in set(SELECTORS) - {"auto"}:
        column = [row for (selector, _), row in sorted(rows.items()) if selector == name]
        assert [row["threshold"] for row in column] == sorted(row["threshold"] for row in column)
        assert [row["untouched"] for row in column] == sorted(row["untouched"] for row in column)
    code, text, _ = answer(
        "plan", "--epsilon", "ln(10)", "--delta", "1e-5", "--users", "65000", "--selector", "laplace"
    )
    assert code == 0
    assert re.search(r"laplace +20 +122", text)
    assert "65,000 users" in text


@pytest.mark.parametrize(
    "asked",
    [("--clicks-per-user", "5"), ("--select-only",), ("--clicks-per-user", "5", "--shares", "queries=1,clicks=9")],
    ids=["clicks", "select only", "shares"],
)
def test_the_comparison_listens_to_its_options(asked: tuple[str, ...]) -> None:
    """Either the forecasts are those of what was asked for, or the option is refused; never silently left out."""
    budget = ("--epsilon", "1", "--delta", "1e-7", "--users", "65000", "--selector", "korolova2009")
    code, out, _ = answer("plan", *budget, *asked, "--json")
    if code:
        assert code == 2
        return
    one = ask(*budget, "--queries-per-user", "20", *asked)
    (row,) = [row for row in json.loads(out)["forecasts"] if row["queries_per_user"] == 20]
    assert (row["threshold"], row["noise"]) == (one["threshold"], one["noise"])


def test_a_forecast_reads_nothing_and_is_the_same_twice() -> None:
    assert ask(*ONE) == ask(*ONE)
    assert (
        compare(Budget(1, 1e-7), 1000, (20,), ("laplace",))[0] == compare(Budget(1, 1e-7), 1000, (20,), ("laplace",))[0]
    )
    assert forecast.__module__ == "hushquery.curator.forecast"


# ---- the ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", SELECTORS[1:])
@pytest.mark.parametrize(
    ("epsilon", "delta", "d"),
    [
        ("0.001", "1e-7", 20),
        ("100", "1e-7", 20),
        ("1", "0.09", 20),
        ("1", "1e-290", 3),
        ("1000", "0.099", 1),
        ("1", "1e-7", 200),
    ],
)
def test_the_ends_of_what_may_be_asked(selector: str, epsilon: str, delta: str, d: int) -> None:
    with within(60):
        data = ask(
            "--selector",
            selector,
            "--epsilon",
            epsilon,
            "--delta",
            delta,
            "--queries-per-user",
            str(d),
            "--users",
            "10",
            "--anyway",
        )
    assert 0 < data["epsilon"] <= float(epsilon)
    assert data["threshold"] > 0
    assert 0 <= data["released_low"] <= data["released_high"] < 10_000_000
    if float(delta) < 0.01:
        assert data["expected_rare"] <= 10 * float(delta) * 1.001


NONSENSE = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e999",
    "1e-999",
    "",
    " ",
    "text",
    "1/0",
    "ln(-1)",
    "--",
    "0x10",
    "1,5",
    "¼",
    "9" * 400,
)
OPTIONS = (
    "--epsilon",
    "--delta",
    "--queries-per-user",
    "--clicks-per-user",
    "--reformulations-per-user",
    "--users",
    "--selector",
    "--shares",
    "--like",
)
BACKWARDS = ("--threshold", "--scale", "--count-scale", "--click-scale", "--queries-per-user", "--users")


def refused_or_sound(arguments: list[str]) -> None:
    """Run, and accept one of two outcomes: exit code 2 with words, or a result whose numbers are numbers."""
    code, out, err = answer("plan", *arguments, "--json")
    if code == 0:
        data = json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} from {arguments}"))
        assert data["epsilon"] >= 0
        for row in data.get("forecasts", [data]):
            assert row["expected_rare"] >= 0, arguments
            assert row["users"] >= 1, arguments
        return
    assert code == 2, (arguments, code, out, err)
    said = json.loads(out)["what"] if out else err
    assert len(said) > 10
    assert "defect of hushquery" not in out + err, arguments
    assert "Traceback" not in out + err


@pytest.mark.parametrize("option", OPTIONS)
def test_nonsense_is_refused(option: str) -> None:
    for value in NONSENSE:
        given_now = dict(zip(ONE[::2], ONE[1::2], strict=True)) | {option: value}
        refused_or_sound([part for pair in given_now.items() for part in pair])


@pytest.mark.parametrize("option", BACKWARDS)
def test_nonsense_backwards_is_refused(option: str) -> None:
    for value in NONSENSE:
        given_now = dict(zip(BACK[::2], BACK[1::2], strict=True)) | {"--clicks-per-user": "5", option: value}
        refused_or_sound([part for pair in given_now.items() for part in pair])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--queries-per-user", "20"),
        ("--epsilon", "1"),
        ("--scale", "8"),
        ("--threshold", "140"),
        ("--threshold", "19", "--scale", "8", "--queries-per-user", "20"),
        (*BACK, "--click-scale", "3"),
        (*ONE, "--count-scale", "3"),
        (*ONE, "--plot", "x.svg"),
        ("--epsilon", "1", "--delta", "1e-7", "--selector", "laplace", "--plot", "x.docx"),
        (*ONE, "--shares", "queries=.6,nonsense=.4"),
        (*ONE, "--shares", "queries"),
        (*ONE, "--shares", "queries=0", "--clicks-per-user", "5"),
        (*ONE, "--shares", "queries=1,clicks=-1", "--clicks-per-user", "5"),
        (*ONE, "--queries-per-user", "10001"),
        (*BACK, "--users", "-5"),
        (*BACK, "--users", "0"),
        (*ONE, "--users", "-5"),
        (*ONE, "--nonsense"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_together_is_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = answer("plan", *arguments)
    assert code == 2, out
    assert out == ""
    assert len(err) > 20
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@seed(number("plan", "fuzz"))
@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*OPTIONS, "--threshold", "--scale"]),
        st.one_of(st.sampled_from(NONSENSE), st.integers(-3, 60).map(str), st.floats().map(str), st.text(max_size=6)),
        max_size=6,
    )
)
def test_no_options_make_it_stumble(chosen: dict[str, str]) -> None:
    small = {"--epsilon": "1", "--delta": "1e-3", "--selector": "laplace"} | chosen
    refused_or_sound([f"{name}={value}" for name, value in small.items()])
