"""BLENDER's evaluation: figures show what was run, claims can fail, and nothing on the page is invented."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from hushquery.errors import HushqueryError, UsageError
from hushquery_experiments.blender import figures as grids
from hushquery_experiments.blender import verdicts as judging
from hushquery_experiments.blender.baselines import run_baseline
from hushquery_experiments.blender.law import AOL, LogPopulation, PowerLaw
from hushquery_experiments.blender.page import FIGURES, as_text, command, page
from hushquery_experiments.blender.paper import PARAMETERS, VERDICTS, beside
from hushquery_experiments.blender.run import ABLATION, run_points
from hushquery_experiments.blender.study import (
    CSV_FILES,
    blender,
    blender_point,
    check_claims,
    chosen_figures,
    csv_files,
    whole_setting,
)
from hushquery_experiments.cli import experiment
from hushquery_experiments.page import as_html, as_markdown
from hushquery_experiments.unpublishable import MARK

SMALL = PowerLaw("small", 20_000, 0.1, 1.0, 50)
RUNS = 2

app = typer.Typer()
app.add_typer(experiment.app)


def call(*arguments):
    return CliRunner().invoke(app, ["experiment", "blender", *map(str, arguments)], env={"COLUMNS": "120"})


def rows(found, figure, **wanted):
    return [row for row in found.figures[figure] if all(row[name] == value for name, value in wanted.items())]


@pytest.fixture(scope="module")
def small():
    """All figures on a small law, and what was told of its progress."""
    told = []
    tell = lambda what, done: told.append((what, done))  # noqa: E731
    return blender(profile="aol", population=SMALL, runs=RUNS, seed=3, progress=tell), told


@pytest.fixture(scope="module")
def found(small):
    return small[0]


# ---- what is measured -----------------------------------------------------------------------------------------------


def test_every_figure_has_its_settings(found):
    assert tuple(found.figures) == grids.FIGURES
    for name, sweep in grids.SWEEPS.items():
        for mode in sweep.modes:
            values = {row[sweep.name] for row in rows(found, name, mode=mode)}
            idle = mode == "best" and sweep.name in ("f_o", "f_c")
            assert values == ({getattr(PARAMETERS["aol"], sweep.name)} if idle else set(sweep.values)), (name, mode)
    assert found.figures["13"] == found.figures["14"]
    assert found.figures["15"] == found.figures["16"]
    assert [row["way"] for row in rows(found, "ablation", place=0)] == list(ABLATION)
    assert found.figures["10"] == [{"profile": "aol", **vars(PARAMETERS["aol"])}]
    assert found.claims == ()  # they are about the profiles


@pytest.mark.parametrize(("mode", "epsilon"), [("best", 2.0), ("paper", 4.0)])
def test_a_row_is_what_run_points_measures(found, mode, epsilon):
    (row,) = rows(found, "15", mode=mode, epsilon=epsilon, head_size=10)
    own = PARAMETERS["aol"]
    again = run_points(
        SMALL, runs=RUNS, seed=3, mode=mode, epsilon=epsilon, optin=own.optin, delta=own.delta, head_size=10
    )
    for name, value in again.means.items():
        assert row[name] == value
        assert row[f"{name}_stderr"] == again.stderrs[name]
    assert (row["client_l1"], row["client_l1_stderr"]) == again.side("l1", "client")
    assert row["complete"] == again.complete
    assert row["passed"] == np.mean([point.passed for point in again.points])


def test_no_longer_list_is_tried_where_no_run_filled_a_shorter_one(found):
    for mode in ("paper", "best"):
        for epsilon in grids.EPSILONS:
            own = rows(found, "15", mode=mode, epsilon=epsilon)
            assert [row["head_size"] for row in own] == list(grids.SIZES[: len(own)])
            assert all(row["complete"] for row in own[:-1])
            assert not own[-1]["complete"] or len(own) == len(grids.SIZES)
    assert len(found.figures["15"]) < 2 * len(grids.EPSILONS) * len(grids.SIZES)


def test_figure_9_has_true_shares_sums_and_direct_estimates(found):
    own = PARAMETERS["aol"]
    setting = {"optin": own.optin, "epsilon": own.epsilon, "delta": own.delta, "head_size": own.head_size}
    for mode in ("paper", "best"):
        table = rows(found, "9", mode=mode)
        assert [row["rank"] for row in table] == list(range(1, 11))
        first = run_points(SMALL, runs=1, seed=3, mode=mode, **setting).points[0].estimates
        for row in table:
            query = int(row["query"].removeprefix("query ")) - 1
            of_query = first.truth.query[first.records] == query
            assert row["true"] == first.truth.queries[query] / SMALL.users
            if not of_query.any():
                assert row["blended"] is None
                continue
            assert row["blended"] == pytest.approx(first.share[of_query].sum())
            assert row["optin"] == pytest.approx(first.optin[of_query].sum())
            assert row["client"] == pytest.approx(first.client[of_query].sum())
            at = first.query_numbers.tolist().index(query)
            assert row["direct"] == (None if mode == "best" else first.blended.queries.direct[at])
        trues = [row["true"] for row in table]
        assert trues == sorted(trues, reverse=True)
        assert (table[0]["direct_regressions"] is None) == (mode == "best")


def test_a_regression_is_an_estimate_above_the_one_before():
    assert grids._regressions(np.array([5.0, 3.0, 4.0, 4.0, 1.0])) == [False, False, True, False, False]
    assert grids._regressions(np.array([5.0, np.nan, 6.0])) == [False, False, True]  # an unlisted query is skipped


def test_figure_12_judges_ten_queries_of_everybody(found):
    for epsilon in grids.EPSILONS:
        own = rows(found, "12", epsilon=epsilon)
        assert [(row["mode"], row["head_size"]) for row in own] == [
            ("paper", 10), ("paper", 50), ("best", 10), ("best", 50), ("ldpminer", None), ("pem", None),
        ]  # fmt: skip
        assert {row["runs"] for row in own} == {2 * RUNS}
    (ours,) = rows(found, "12", mode="pem", epsilon=4.0)
    again = run_baseline("pem", SMALL, epsilon=4.0, size=10, runs=2 * RUNS, seed=3)
    assert (ours["ndcg"], ours["ndcg_rank_based"]) == (again.ndcg, again.ndcg_rank_based)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(found):
    again = blender(figures=["12"], profile="aol", population=SMALL, runs=RUNS, seed=3)
    assert again.figures["12"] == found.figures["12"]
    other = blender(figures=["12"], profile="aol", population=SMALL, runs=RUNS, seed=4)
    assert other.figures["12"] != found.figures["12"]


def test_progress_only_grows(small):
    done = [share for _, share in small[1]]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, 1.0)


# ---- claims and the paper's statements ------------------------------------------------------------------------------


def measured(**changes):
    """Rows in which every claim holds, except for what is changed."""
    base = {"runs": 5, "complete": 5, "ndcg_stderr": 0.0, "l1_stderr": 0.0, "ndcg_rank_based_stderr": 0.0}
    aol = base | {"profile": "aol", "epsilon": 4.0, "head_size": 50, "optin": 0.05, "ndcg": 0.995, "hit_rate": 0.1}
    values = {"best": 0.006, "paper": 0.024, "yandex": 0.007, "ours": 0.999, "theirs": 0.99, "ndcg": 0.995} | changes
    points = [
        aol | {"mode": "best", "l1": values["best"], "ndcg": values["ndcg"]},
        aol | {"mode": "paper", "l1": values["paper"]},
        aol | {"profile": "yandex", "mode": "best", "epsilon": 1.0, "head_size": 100, "l1": values["yandex"]},
    ]
    compared = []
    for profile, size in (("aol", 50), ("yandex", 100)):
        for epsilon in grids.EPSILONS:
            head = base | {"profile": profile, "epsilon": epsilon}
            ours = values["ours"] if (profile, epsilon) == ("yandex", 5.0) else 0.999
            compared.append(head | {"mode": "best", "head_size": size, "ndcg": 0.999, "ndcg_rank_based": ours})
            for mode in ("ldpminer", "pem"):
                compared.append(head | {"mode": mode, "head_size": None, "ndcg": 0.99, "ndcg_rank_based": 0.99})
    return {"15": points, "12": compared}


def test_claims_hold_where_they_do():
    assert [claim.holds for claim in check_claims(measured())] == [True] * 8


@pytest.mark.parametrize(
    ("changed", "place"),
    [({"ndcg": 0.98}, 0), ({"best": 0.009}, 1), ({"yandex": 0.011}, 3), ({"ours": 0.98}, 7), ({"ours": 0.99}, 7)],
)
def test_each_claim_can_fail(changed, place):
    held = [claim.holds for claim in check_claims(measured(**changed))]
    assert held == [i != place for i in range(8)]


def test_what_was_not_measured_is_neither_held_nor_broken():
    assert {claim.holds for claim in check_claims({})} == {None}
    unfilled = measured()
    unfilled["15"][0]["complete"] = 4  # a shorter list has a smaller L1 for free
    assert [claim.holds for claim in check_claims(unfilled)][:2] == [None, None]


def test_the_papers_statements_stand_beside_what_was_measured(found):
    said = beside(found.figures)
    assert {(one["figure"], one["profile"]) for one in said} == {
        (figure, "aol") for figure in ("9", "11", "12", "13", "14", "15", "fo", "mc", "m", "ablation")
    }
    assert {one["verdict"] for one in said} <= set(VERDICTS.values())
    by_words = {one["said"]: one for one in said}
    lists = [row["ndcg_list"] for row in rows(found, "12", mode="best", head_size=10)]
    ten = by_words["NDCG of a list of 10 is above 0.95 for epsilon 1 to 5."]
    assert ten["best"] == f"{min(lists):.3f} to {max(lists):.3f}"
    fifty = by_words["A list of 50 exists for epsilon 3 or more."]
    assert (fifty["paper"], fifty["verdict"]) == ("never here", "not reproduced")  # so small a population has none
    best = rows(found, "mc", mode="best")
    one_record = by_words["One record per client is always best."]
    assert one_record["best"].endswith(f"best with {min(best, key=lambda row: row['l1'])['m_c']}")
    assert beside({}) == []


def swept(x, values, measure, means, stderr=0.001, **more):
    """Rows of one list of the paper's algorithm, in which one measure moves."""
    base = {"mode": "paper", "profile": "aol", "runs": 8, "complete": 8, "head_size": 50} | more
    return [base | {x: v, measure: m, f"{measure}_stderr": stderr} for v, m in zip(values, means, strict=True)]


def measured_regressions(blended, stderr):
    row = {"mode": "paper", "blended_regressions": blended, "blended_regressions_stderr": stderr}
    return [row | {f"{n}_regressions{e}": v for n in ("optin", "client") for e, v in (("", 2.4), ("_stderr", 0.2))}]


@pytest.mark.parametrize(
    ("judge", "given", "verdict"),
    [
        (judging.begins(50, "optin", 0.045), swept("optin", (0.045, 0.05), "l1", (0.2, 0.1)), True),
        (judging.begins(50, "optin", 0.045), swept("optin", (0.03, 0.045), "l1", (0.2, 0.1)), False),
        (judging.begins(50, "optin", 0.045), [], False),
        (judging.every("ndcg", 0.95), swept("epsilon", (1, 2), "ndcg", (0.96, 0.97)), True),
        (judging.every("ndcg", 0.95), swept("epsilon", (1, 2), "ndcg", (0.94, 0.97)), False),
        (judging.every("ndcg", 0.95), swept("epsilon", (1, 2), "ndcg", (0.951, 0.97)), None),
        (judging.every("l1", 0.1, above=False), swept("epsilon", (1, 2), "l1", (0.08, 0.07)), True),
        (judging.every("l1", 0.1, above=False), swept("epsilon", (1, 2), "l1", (0.08, 0.12)), False),
        (judging.every("l1", 0.1, above=False), [], None),
        (judging.best_is("f_c", 0.85, "l1", low=True), swept("f_c", (0.7, 0.85), "l1", (0.03, 0.02)), True),
        (judging.best_is("f_c", 0.85, "l1", low=True), swept("f_c", (0.7, 0.85), "l1", (0.02, 0.03)), False),
        (judging.best_is("f_c", 0.85, "l1", low=True), swept("f_c", (0.7, 0.85), "l1", (0.02, 0.021)), None),
        (judging.falls("epsilon"), swept("epsilon", (1, 2, 3), "l1", (0.05, 0.03, 0.02)), True),
        (judging.falls("epsilon"), swept("epsilon", (1, 2, 3), "l1", (0.03, 0.05, 0.02)), False),
        (judging.falls("epsilon"), swept("epsilon", (1, 2, 3), "l1", (0.030, 0.0301, 0.0299)), None),
        (judging.stays_the_same("ndcg"), swept("f_c", (0.5, 0.7), "ndcg", (0.95, 0.951)), True),
        (judging.stays_the_same("ndcg"), swept("f_c", (0.5, 0.7), "ndcg", (0.95, 0.96)), False),
        (judging.misplaces(0.0, 1.5, "blended"), measured_regressions(1.0, 0.1), True),
        (judging.misplaces(0.0, 1.5, "blended"), measured_regressions(2.6, 0.3), False),
        (judging.misplaces(0.0, 1.5, "blended"), measured_regressions(1.6, 0.3), None),
        (judging.needs_about(50, 0.95, 0.05), swept("optin", (0.03, 0.05), "ndcg", (0.94, 0.96)), True),
        (judging.needs_about(50, 0.95, 0.05), swept("optin", (0.03, 0.05), "ndcg", (0.96, 0.97)), False),
    ],
)
def test_verdicts_follow_from_the_numbers(judge, given, verdict):
    assert judge(given) is verdict


def test_a_list_that_is_missing_is_one_of_the_longest():
    judge = judging.all_but_longest("epsilon", 1.0, 1, 0.95)
    lists = [swept("epsilon", (1.0,), "ndcg", (0.97,), head_size=size)[0] for size in (10, 50, 100)]
    assert judge(lists) is False  # the longest is as good
    lists[2]["complete"] = 3
    assert judge(lists) is True
    lists[1]["ndcg"] = 0.9
    assert judge(lists) is False


# ---- page, text and files -------------------------------------------------------------------------------------------


def test_the_page_is_marked_and_stands_alone(found):
    data = found.to_json()
    assert (data["publishable"], data["mark"]) == (False, MARK)
    html = as_html(page(data))
    assert html.count(MARK) >= 2
    assert html.count("<svg") == len(FIGURES)
    for needs_network_or_script in ("<script", "src=", "<link", "href=", "url(", "@import"):
        assert needs_network_or_script not in html
    for figure in ("12", "15"):
        for row in found.figures[figure]:
            assert f"{row['ndcg']:.4f} ± {row['ndcg_stderr']:.4f}" in html
    assert command(data) in html


def test_the_page_of_the_docs_and_the_text_have_the_same_numbers(found):
    data = found.to_json()
    markdown, text = as_markdown(page(data), "pictures"), as_text(data)
    for row in found.figures["ablation"]:
        l1, ndcg = (f"{row[name]:.4f} ± {row[f'{name}_stderr']:.4f}" for name in ("l1", "ndcg"))
        assert f"{l1}<br>{ndcg}" in markdown
        assert l1 in text
        assert ndcg in text
    assert re.findall(r"!\[.+?\]\(pictures/blender-(.+?)\.png\)", markdown) == list(FIGURES)
    assert command(data) in markdown
    assert MARK in text
    assert "\n\n\n" not in markdown


def test_a_figure_alone_makes_a_page_without_the_others(found):
    data = found.to_json()
    for name in data["figures"]:
        one = data | {"figures": {name: data["figures"][name]}, "paper": [], "claims": []}
        one["settings"] = data["settings"] | {"figures": [name]}
        drawn = [figure.name for figure in page(one).figures]
        assert drawn == ([] if name in ("8", "10") else [name if name == "ablation" else f"figure-{name}"])
        assert f"--figure {name} " in command(one)


def test_a_finder_that_is_ahead_or_hardly_behind_is_named(found):
    data = found.to_json()
    best = next(row for row in data["figures"]["12"] if row["mode"] == "best" and row["head_size"] == 50)
    best |= {"ndcg": 1.0, "ndcg_stderr": 0.01, "ndcg_rank_based": 0.9, "ndcg_rank_based_stderr": 0.01}
    pem = {**best, "mode": "pem", "head_size": None, "ndcg": 0.9}
    for value, said in ((0.95, "ahead"), (0.89, "a tie"), (0.86, None)):
        data["figures"]["12"] = [best, {**pem, "ndcg_rank_based": value}]
        text = as_markdown(page(data), "pictures")
        assert ("Not everywhere" in text) == (said is not None)
        if said:
            line = f"by ranks | M = 50 | 0.9000 ± 0.0100 | PEM: {value:.4f} ± 0.0100 | {said} |"
            assert line in text
            assert text.count("PEM: ") == 1


def test_without_altair_the_page_has_words_in_place_of_pictures(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    html = as_html(page(found.to_json()))
    assert "<svg" not in html
    assert html.count("no picture") == len(FIGURES)


def test_csv_files_hold_every_row(found):
    files = csv_files(found.to_json())
    assert set(files) == set(CSV_FILES.values())
    for name, text in files.items():
        figure = next(key for key, file in CSV_FILES.items() if file == name)
        read = list(csv.DictReader(io.StringIO(text)))
        assert len(read) == len(found.figures[figure])
        for line, row in zip(read, found.figures[figure], strict=True):
            assert list(line.values()) == ["" if value is None else str(value) for value in row.values()]


# ---- the command ----------------------------------------------------------------------------------------------------


def test_a_point_prints_what_run_points_measures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"optin": 0.05, "epsilon": 4.0, "delta": 1e-5, "head_size": 10}
    options = ("--optin", 0.05, "--epsilon", 4, "--delta", "1e-5", "--head-size", 10, "--runs", 2, "--seed", 5)
    done = call("--point", "--profile", "aol", *options, "--mode", "paper", "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    printed = json.loads(done.stdout)
    again = run_points(AOL, runs=2, seed=5, mode="paper", **given)
    for name in ("ndcg", "l1", "head_list_size"):
        assert printed[name] == again.means[name]
    assert (printed["ndcg_stderr"], printed["l1_stderr"]) == (again.stderrs["ndcg"], again.stderrs["l1"])
    assert (printed["publishable"], printed["complete"]) == (False, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_point_takes_the_rest_from_figure_10():
    assert whole_setting("yandex", {"epsilon": 1.0}) == {
        "mode": "best", "through": "counts", "optin": 0.025, "epsilon": 1.0, "delta": 1e-7, "head_size": 500,
    }  # fmt: skip


def test_a_point_through_the_randomizers_reports_every_client():
    setting = whole_setting("aol", {"optin": 0.1, "head_size": 5, "through": "randomizers"})
    real = blender_point(SMALL, runs=3, seed=2, **setting)
    drawn = blender_point(SMALL, runs=3, seed=2, **setting | {"through": "counts"})
    assert real.means["l1"] != drawn.means["l1"]
    assert real.means["ndcg"] == pytest.approx(drawn.means["ndcg"], abs=0.02)


def test_figures_are_written_with_their_data(tmp_path):
    out = tmp_path / "out"
    for _ in range(2):  # what it made itself, it writes over
        done = call("--figure", 9, "--figure", 8, "--profile", "aol", "--runs", 1, "--seed", 7, "--out", out, "--json")
        assert done.exit_code == 0, (done.output, done.exception)
    printed = json.loads(done.stdout)
    assert printed.pop("page") == str(out / "index.html")
    assert printed == json.loads((out / "results.json").read_text())
    assert printed["settings"]["figures"] == ["8", "9"]
    names = ["figure-8.csv", "figure-9.csv", "index.html", "results.json"]
    assert sorted(file.name for file in out.iterdir()) == names
    assert "--figure 8 --figure 9 --profile aol --runs 1 --seed 7" in (out / "index.html").read_text()


def log_file(folder):
    users = 400
    lines = ["user,time,query,url,rank"]
    for user in range(users):
        query = "weather" if user % 2 else "news" if user % 3 else f"own {user}"
        lines.append(f"{user},2006-03-01 00:00:00,{query},https://{query.split()[0]}.example/,1")
    file = folder / "log.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_log_is_measured_for_its_owner_only(tmp_path):
    out = tmp_path / "out"
    done = call("--log", log_file(tmp_path), "--figure", 9, "--figure", 8, "--runs", 2, "--out", out)
    assert done.exit_code == 0, (done.output, done.exception)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    data = json.loads((out / "results.json").read_text())
    assert (data["settings"]["log"], data["settings"]["users"], data["claims"]) == ("given", [400], [])
    assert data["figures"]["9"][0]["query"] == "weather"
    assert data["figures"]["9"][0]["true"] == 0.5
    assert "--log LOG" in (out / "index.html").read_text()


def test_a_synthetic_log_is_measured(tmp_path):
    out = tmp_path / "out"
    done = call("--synth", "tiny", "--users", 2000, "--figure", 16, "--ablation", "--runs", 1, "--out", out)
    assert done.exit_code == 0, (done.output, done.exception)
    data = json.loads((out / "results.json").read_text())
    assert (data["settings"]["log"], data["settings"]["populations"]) == ("synthetic", ["synthetic tiny"])
    assert set(data["figures"]) == {"16", "ablation"}
    assert "--synth tiny --users 2000" in command(data)


@pytest.mark.parametrize(
    "bad",
    [
        ("--point", "--optin", 0),
        ("--point", "--optin", 1),
        ("--point", "--optin", "nan"),
        ("--point", "--epsilon", 0),
        ("--point", "--epsilon", -1),
        ("--point", "--epsilon", "nan"),
        ("--point", "--epsilon", "inf"),
        ("--point", "--epsilon", "1e-300"),
        ("--point", "--delta", 0),
        ("--point", "--delta", "nan"),
        ("--point", "--head-size", 0),
        ("--point", "--mode", "worst"),
        ("--point", "--through", "wishes"),
        ("--point", "--figure", 9),
        ("--point", "--runs", 0),
        ("--point", "--seed", -1),
        ("--figure", 7),
        ("--figure", "all", "--optin", 0.05),
        ("--profile", "bing"),
        ("--synth", "bing"),
        ("--users", 500),
        ("--synth", "tiny", "--users", 5),
        ("--synth", "tiny", "--log", "log.csv"),
        ("--synth", "tiny", "--figure", "mc"),
        ("--log", "missing.csv"),
        ("--format", "aol"),
    ],
    ids=lambda bad: " ".join(map(str, bad)),
)
def test_what_can_not_be_measured_is_refused_at_once(bad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*bad)
    assert isinstance(done.exception, HushqueryError), (done.output, done.exception)
    assert done.exception.fix
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_log_is_refused(tmp_path):
    file = tmp_path / "log.csv"
    file.write_bytes(b"\xff\xfe\x00no log at all")
    done = call("--log", file, "--figure", 9, "--out", tmp_path / "out")
    assert isinstance(done.exception, HushqueryError), (done.output, done.exception)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_into_no_foreign_folder(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = call("--figure", 10, "--out", tmp_path)
    assert isinstance(done.exception, UsageError)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.txt"]


def test_all_figures_of_a_log_leave_out_m_c():
    assert "mc" not in chosen_figures(["all"], log=True)
    assert chosen_figures(["all"], log=False) == grids.FIGURES
    with pytest.raises(UsageError):
        chosen_figures([], log=False)


def test_results_do_not_show_themselves(found):
    assert "complete" not in repr(found)
    assert "secret" in repr(LogPopulation.synthetic("tiny", users=200))
