"""The experiment of Korolova et al. 2009: the same numbers each time, marked everywhere, silent about the log."""

from __future__ import annotations

import importlib.util
import json
import re
import stat
import sys
from collections import Counter
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hushquery.core.budget import Budget
from hushquery.curator.counting import Bound
from hushquery.curator.plan import ReleaseSpec, calibrate
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.log import read_log
from hushquery.log.synthetic.logs import write_log
from hushquery.noise.sampler import SeededBits
from hushquery_experiments.cli import experiment
from hushquery_experiments.coverage import coverage
from hushquery_experiments.korolova2009 import study as module
from hushquery_experiments.korolova2009.page import as_text, command, main_grid, page, pivot
from hushquery_experiments.korolova2009.study import SELECTORS, Point, check_claims, korolova2009
from hushquery_experiments.page import as_html
from hushquery_experiments.unpublishable import MARK, plain

ROOT = Path(__file__).resolve().parents[2]
USERS, D = 3000, (1, 20, 40)

app = typer.Typer()
app.add_typer(experiment.app)


def call(*arguments):
    return CliRunner().invoke(app, ["experiment", "korolova2009", *map(str, arguments)], env={"COLUMNS": "120"})


def refused(error, *arguments):
    done = call(*arguments)
    assert isinstance(done.exception, error), (done.output, done.exception)
    assert done.exception.fix
    return done.exception


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The experiment on a small synthetic log, from the command line: what it printed, and its folder."""
    out = tmp_path_factory.mktemp("experiment") / "out"
    done = call("--users", USERS, "--seed", 1, "--runs", 1, "--d", "40,1,20,20", "--out", out, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout), out


@pytest.fixture(scope="module")
def data(told):
    """What it measured."""
    return told[0]


@pytest.fixture
def quick(monkeypatch):
    """Two selectors only: guided draws noise for four million buckets, however small the log."""
    for name in ("SELECTORS", "_COMPARED"):
        monkeypatch.setattr(module, name, ("korolova2009", "gaussian"))


@pytest.fixture(scope="module")
def small():
    """A tiny experiment with two selectors and three runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SELECTORS", "_COMPARED"):
            patch.setattr(module, name, ("korolova2009", "gaussian"))
        return korolova2009(users=300, seed=2, runs=3, queries_per_user=[1])


def own_points(data, selector, d=20, counts=False):
    wanted = (selector, d, counts)
    return [p for p in data["coverage"] if (p["selector"], p["queries_per_user"], p["with_counts"]) == wanted]


def queries(data, selector, d):
    return pivot(main_grid(data))[selector][d]["queries"]


# ---- what is measured -----------------------------------------------------------------------------------------------


def test_every_setting_runs_once(data):
    names = ("selector", "queries_per_user", "epsilon", "delta", "with_counts")
    settings = [tuple(p[name] for name in names) for p in data["coverage"]]
    assert len(set(settings)) == len(settings)
    for name in SELECTORS:
        assert list(pivot(main_grid(data))[name]) == list(D)
        assert len(own_points(data, name, counts=True)) == 1
    for name in ("korolova2009", "gaussian", "guided"):
        own = own_points(data, name)
        assert {round(p["epsilon"], 4) for p in own} == {1.0, 2.3026, 4.0}
        assert {p["delta"] for p in own} == {1e-7, 1e-6, 1e-5}


@pytest.mark.parametrize("name", ["korolova2009", "gaussian", "guided"])
@pytest.mark.parametrize(("swept", "fixed"), [("epsilon", "delta"), ("delta", "epsilon")])
def test_more_budget_releases_more(data, name, swept, fixed):
    usual = data["coverage"][0][fixed]
    line = sorted((p for p in own_points(data, name) if p[fixed] == usual), key=lambda p: p[swept])
    assert len(line) == 3
    assert line[0]["threshold"] > line[1]["threshold"] > line[2]["threshold"]
    assert line[0]["queries"] < line[2]["queries"]
    assert line[0]["volume_share"] < line[2]["volume_share"]


def test_the_order_of_the_selectors_is_that_of_the_paper_and_of_theory(data):
    assert queries(data, "guided", 20) > queries(data, "gaussian", 20) > queries(data, "korolova2009", 20)
    assert queries(data, "korolova2009", 1) > queries(data, "korolova2009", 20) > queries(data, "korolova2009", 40)
    for point in data["coverage"]:
        # The paper's own finding: a tiny share of the queries is a much larger share of the searches.
        assert 0 < point["distinct_share"] < point["volume_share"] < 1
        assert point["least"] == point["queries"] == point["most"]
        assert point["distinct_share"] == pytest.approx(point["queries"] / data["log"]["distinct_queries"])


def test_algorithm_1_has_the_thresholds_of_the_slides(data):
    row = pivot(main_grid(data))["korolova2009"]
    assert {d: round(row[d]["threshold"], 2) for d in D} == {1: 5.70, 20: 140.00, 40: 292.04}


def test_the_log_is_described_as_it_is(data, tmp_path):
    log = read_log(write_log(tmp_path / "log.parquet", "aol", USERS, 1))
    rows = log.table.select("user", "time", "query").to_pyarrow().to_pydict()
    rows = list(zip(*rows.values(), strict=True))
    volume = Counter(query for _, _, query in set(rows))
    assert data["log"] == {
        "rows": len(rows),
        "users": len({user for user, _, _ in rows}),
        "searches": volume.total(),
        "distinct_queries": len(volume),
        "searched_once_share": sum(n == 1 for n in volume.values()) / len(volume),
    }


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("counts", [False, True])
def test_what_the_runs_share_changes_no_release(name, counts, tmp_path):
    """The shortcut (tables held and put in order once) gives the very rows of the plain path, from the same bits."""
    log = read_log(write_log(tmp_path / "log.parquet", "aol", 400, 3))
    request = ReleaseSpec(Budget(8, 1e-2), 5, selector=name, select_only=not counts)
    selector = calibrate(request).selector
    plain = selector.run(log.table, Bound(), SeededBits(7))
    with module._tables(log) as tables:
        shared = tables.run(selector, SeededBits(7))
        assert tables.volume.coverage(shared) == coverage(log, plain)
    assert plain.num_rows >= 2
    assert shared.sort_by("query").equals(plain.sort_by("query"))


def test_the_release_behind_keywords_and_fears_agrees_with_the_log(data):
    assert len(data["keywords"]["together"]) == 5
    assert len(data["keywords"]["topics"]) == 5 * 8
    moderate = data["keywords"]["together"][0]
    assert moderate["private"] > 0
    assert moderate["precision"] == 1.0
    assert moderate["recall"] < moderate["recall_released"] <= 1.0
    assert data["fears"]["raw"] == 40  # every fear of the synthetic language, spelled in its two ways
    assert data["fears"]["ranking"][0]["fear"] == "heights"


def test_runs_are_averaged(small):
    assert any(p.least < p.most for p in small.coverage), "the runs must not repeat the same noise"
    for p in small.coverage:
        assert p.runs == 3
        assert p.least <= p.queries <= p.most
        assert 3 * p.queries == pytest.approx(round(3 * p.queries))


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(small, quick):
    again = korolova2009(users=300, seed=2, runs=3, queries_per_user=[1])
    other = korolova2009(users=300, seed=3, runs=3, queries_per_user=[1])
    assert (again.log, again.coverage, again.keywords, again.fears) == (
        small.log,
        small.coverage,
        small.keywords,
        small.fears,
    )
    assert other.coverage != small.coverage


def point(selector, d, released, **changes):
    given = {"epsilon": module._number("ln 10"), "delta": 1e-5, "with_counts": False, **changes}
    return Point(
        selector, d, threshold=1, runs=1, queries=released, least=0, most=9, distinct_share=0, volume_share=0, **given
    )


def test_claims_are_checked_against_the_right_points(data):
    points = [
        point("korolova2009", 1, 100),
        point("korolova2009", 20, 50),
        point("gaussian", 20, 150),
        point("guided", 40, 340),
        point("guided", 40, 9999, with_counts=True),
        point("guided", 40, 9999, delta=1e-6),
        point("korolova2009", 20, 1, epsilon=1.0),
    ]
    claims = check_claims(points)
    assert [claim.ratio for claim in claims] == [3.0, 6.8, 3.4]
    assert [claim.holds for claim in claims] == [True, False, True]
    for told in (as_text, lambda failed: as_html(page(failed))):
        assert told(data | {"claims": plain(claims)}).count("FAIL") == 1


def test_a_claim_whose_settings_did_not_run_is_neither_kept_nor_broken(data):
    claims = check_claims([point("korolova2009", 20, 0), point("gaussian", 20, 5)])
    assert [(claim.ratio, claim.holds) for claim in claims] == [(None, None)] * 3
    assert as_text(data | {"claims": plain(claims)}).count("not measured") == 3


# ---- what is told ---------------------------------------------------------------------------------------------------


def test_what_is_printed_is_what_is_saved(told):
    data, out = told
    saved = json.loads((out / "results.json").read_text())
    assert data == saved | {"page": str(out / "index.html")}
    assert saved["mark"] == MARK
    assert saved["publishable"] is False
    assert saved["settings"]["queries_per_user"] == list(D)
    assert command(saved) == "hushquery experiment korolova2009 --users 3000 --seed 1 --runs 1 --d 1,20,40"


def test_the_page_is_marked_and_stands_alone(told):
    page = (told[1] / "index.html").read_text()
    assert page.count(MARK) == 2
    assert "nobody is in it" in page
    assert page.count("<svg") == 5
    for needs_network_or_script in ("<script", "src=", "<link", "href=", "url(", "@import"):
        assert needs_network_or_script not in page
    assert {p for p in page.replace('"', " ").replace("'", " ").split() if p.startswith("http")} <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_text_has_every_number_of_the_grid(data):
    text = as_text(data)
    assert text.startswith(MARK)
    for p in main_grid(data):
        (line,) = [line for line in text.splitlines() if line.startswith(p["selector"])]
        assert f"{p['queries']:,.0f} {100 * p['volume_share']:.1f}%" in line


def test_objects_are_marked(small):
    assert small.publishable is False
    assert small.synthetic
    assert MARK in repr(small)
    assert MARK in small._repr_html_()


def test_without_altair_the_page_has_words_in_place_of_pictures(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    html = as_html(page(data))
    assert "<svg" not in html
    assert html.count("no picture") == 5
    assert MARK in html


def test_the_page_of_the_docs_comes_from_the_results(data, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("experiments", ROOT / "tools" / "experiments.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    results = tmp_path / "results.json"
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["experiments.py", str(results)])
    results.write_text(json.dumps(data))
    tool.main()
    page = (tmp_path / "experiments" / "korolova2009.md").read_text()
    for p in main_grid(data):
        (line,) = [
            row for row in page.split("Queries released:")[1].splitlines() if row.startswith(f"| `{p['selector']}`")
        ][:1]
        assert f"{p['queries']:,.0f}" in line
    assert MARK in page
    assert command(data) in page
    assert "\n\n\n" not in page
    assert sorted(re.findall(r"images/(.+?)\)", page)) == sorted(file.name for file in (tmp_path / "images").iterdir())
    results.write_text(json.dumps(data | {"settings": data["settings"] | {"log": "given"}}))
    with pytest.raises(SystemExit, match="must not be published"):
        tool.main()


# ---- a log of somebody's --------------------------------------------------------------------------------------------


def test_a_real_log_is_kept_from_view(tmp_path, quick):
    log, out = tmp_path / "log.csv", tmp_path / "out"
    rows = [
        f"u{user},{second},{query},https://site.example.org/{query.replace(' ', '-')}"
        for user in range(150)
        for second, query in enumerate(("news", "fear of heights", "fear of flying"))
    ]
    rows += ["lonely,1,fear of <b>zebras</b>,https://hidden.example.org/zebras", "lonely,2,my secret illness,"]
    log.write_text("\n".join(["user,time,query,url", *rows]) + "\n")
    done = call("--log", log, "--runs", 1, "--d", "1,5", "--out", out)
    assert done.exit_code == 0, (done.output, done.exception)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    page, results = ((out / name).read_text() for name in ("index.html", "results.json"))
    assert MARK in page
    for everything in (page, results, done.output):
        assert "zebras" not in everything
        assert "illness" not in everything
        assert "lonely" not in everything
        assert "nobody is in it" not in everything
        assert str(tmp_path / "log.csv") not in everything
    data = json.loads(results)
    assert data["settings"]["log"] == "given"
    assert data["settings"]["users"] is data["settings"]["seed"] is None
    assert data["fears"]["raw"] == 3
    assert data["keywords"]["topics"][0]["topic"] == "site.example.org"


def test_a_log_without_times_and_urls(tmp_path, quick):
    log = tmp_path / "log.csv"
    log.write_text("user,query\n" + "".join(f"u{user},news\nu{user},fear of heights\n" for user in range(120)))
    done = call("--log", log, "--runs", 1, "--d", "1", "--out", tmp_path / "out")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "no clicks to walk on" in done.output
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert data["keywords"] is None
    assert data["log"]["searches"] == 240


def test_a_log_of_which_nothing_can_be_released(tmp_path, quick):
    log = tmp_path / "log.csv"
    log.write_text(
        "user,time,query,url\n" + "".join(f"u{n},{n},query {n},https://x.example.org/{n}\n" for n in range(30))
    )
    done = call("--log", log, "--runs", 1, "--d", "1", "--out", tmp_path / "out")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "not measured" in done.output
    assert "query 7" not in done.output


def test_an_empty_log_is_refused(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,time,query,url\n")
    refused(DataError, "--log", log, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- refusals, before anything runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--runs", "0"),
        ("--d", "1,x"),
        ("--d", ""),
        ("--d", "0"),
        ("--d", "99999999"),
        ("--users", "0"),
        ("--seed", "-1"),
        ("--format", "aol"),
        ("--columns", "user=u"),
        ("--log", "a.csv", "--users", "10"),
        ("--log", "a.csv", "--seed", "1"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, tmp_path):
    out = tmp_path / "out"
    refused(UsageError, *arguments, "--out", out)
    assert not out.exists()


def test_other_files_are_never_overwritten(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    (tmp_path / "thesis.txt").write_text("mine too")
    refused(UsageError, "--users", 100, "--out", tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine"
    file = tmp_path / "thesis.txt"
    refused(UsageError, "--users", 100, "--out", file)


def test_a_missing_log_is_an_error_not_a_crash(tmp_path):
    refused(HushqueryError, "--log", tmp_path / "none.csv", "--out", tmp_path / "out")


# ---- the acceptance size --------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_ratios_at_acceptance_size():
    found = korolova2009(users=65_000, seed=1, runs=2)
    print(as_text(found.to_json()))  # noqa: T201 - for docs/proved.md
    assert [claim.holds for claim in found.claims] == [True, True, True], found.claims
    assert found.fears.overlap >= 8
    assert found.fears.kendall_tau > 0.8
    assert found.keywords.together[0].precision > 0.9
