"""The site of a task's periods: pages made for what was asked, gaps and changes that are true, and what it cost."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import pytest

from commands import hushquery
from estimate_releases import FIRST, TASKS, configuration, period, weeks
from hushquery.errors import DataError, UsageError
from hushquery.publish.periods import period_series
from hushquery.publish.site import HEADERS, build_site, media_type
from hushquery.publish.site.build import SITE_FILES
from hushquery.release.estimates_page import results
from hushquery.release.series import device_costs, together
from site_files import Seen, in_node, words
from small_releases import shares_of

PAGES = ("index.html", "releases.html", "privacy.html")


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("many", [1, 4])
def test_every_page_is_closed_to_the_outside(kind, many):
    files = build_site(weeks(kind, many, missing=[2]))
    assert [name for name in files if name not in SITE_FILES] == []
    for page in PAGES:
        seen = Seen(files[page])
        assert not {attribute for _, attribute in seen.attributes if attribute.startswith("on") or attribute == "style"}
        assert files[page].count(b"<script") == 1
        assert f'content="{HEADERS["Content-Security-Policy"].partition("; frame")[0]}"'.encode() in files[page]
        for link in seen.links:
            target, _, fragment = link.partition("#")
            assert target == "" or target in files, link
            assert not fragment or fragment in Seen(files[target or page]).ids
        assert len(seen.ids) == len(set(seen.ids))
        labelled = re.findall(r'(?:for|aria-labelledby|aria-describedby|list)="([^"]+)"', files[page].decode())
        assert set(labelled) <= set(seen.ids)
    assert all(media_type(name) for name in files)
    for name in files:
        if name.endswith("js") and name != "index.js":
            text = files[name].decode()
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|Math\.random|\beval\b", text)
            found = re.findall(r"""(?:from|import|fetch|register|loaded)\s*\(?\s*["'](\./[^"']+)["']""", text)
            assert {other[2:] for other in found} <= set(files), name
    assert files == build_site(weeks(kind, many, missing=[2]))


def test_a_setting_shows_shares_changes_and_gaps():
    releases = weeks("setting", 5, missing=[2])
    page = words(build_site(releases, missing={FIRST + 2: "7 reports, fewer than 1,000"})["index.html"])
    (series,) = period_series(releases)
    for change in series.changes(bonferroni=True):
        assert f"{100 * change.difference:+.2f}".replace("-", "−") in page
    for said in (
        "What app users reported from 2026-10-22 to 2026-10-28.",
        "Changes are since the data of 2026-10-15 to 2026-10-21.",
        "everything else",
        "Missing, and shaded: 2026-10-08 (7 reports, fewer than 1,000).",
        "of 4 surely changed",
        "2026-10-08 no data",
        "all 4 comparisons together hold in 95 of 100 cases",
        "Compare two periods",
    ):
        assert said in page, said
    assert "first period" not in page
    assert build_site(releases)["index.html"].count(b'class="gap"') == 4  # a chart for each value


def test_the_first_period_says_that_there_is_nothing_to_compare():
    files = build_site(weeks("setting", 1))
    page = words(files["index.html"])
    assert "This is the first period: there is nothing to compare it with yet." in page
    assert "Compare two periods" not in page
    assert "Over time" not in page
    assert json.loads(files["index.json"])["changes"] == {}


def test_a_task_that_changed_begins_a_new_series():
    older = [period("setting", week, client={"epsilon": 2, "lifetime_epsilon": 8}) for week in (0, 1)]
    files = build_site([*older, *[period("setting", week) for week in (2, 3)]])
    page = words(files["index.html"])
    assert period_series(older + weeks("setting", 4)[2:])[-1].begins in page
    assert "epsilon was 2, and is 1" in page
    assert "Earlier series" in page
    assert "2026-09-24 to 2026-10-01" in page
    index = json.loads(files["index.json"])
    assert sorted(index["changes"]) == ["0-1", "2-3"]
    assert [one["series"] for one in index["periods"]] == [0, 0, 1, 1]
    alone = words(build_site([*older, period("setting", 2)])["index.html"])
    assert "This is the first period of this series" in alone
    # A device paid in both tasks.
    costs = device_costs([*older, *[period("setting", week) for week in (2, 3)]])
    assert (round(float(costs.answer)), costs.answers, round(float(costs.most))) == (1, 2, 6)


def test_an_average_and_a_histogram_over_time():
    page = words(build_site(weeks("mean", 2))["index.html"])
    row = weeks("mean", 2)[-1].tables["estimates"].to_pylist()[0]
    assert f"{row['estimate']:.4g} {row['low']:.4g} to {row['high']:.4g}, the 95% interval" in page
    assert "It did not surely change since" in page
    assert "▲ +5.713 since the data of 2026-10-01 to 2026-10-07, between" in words(
        build_site(weeks("mean", 3))["index.html"]
    )
    strips = build_site(weeks("histogram", 4, missing=[1]))["index.html"]
    assert strips.count(b'<rect class="box"') == 6 * 3
    assert strips.count(b'<rect class="gap"') == 6
    assert re.findall(r"<bdi dir=\"auto\">(\d+\.\.\d+)</bdi>", strips.decode())[:2] == ["0..9", "10..19"]


def test_texts_say_how_sure_they_are_and_what_was_not_found():
    faint = period("text", 12)
    marked = {row["value"]: row["close"] for row in results(faint)["rows"]}
    assert marked == {"news.example": False, "weather.example": True}
    page = words(build_site([period("text", 11), faint])["index.html"])
    assert "weather.example just passed the test" in page
    assert "Looked for, and not found nobody.example" in page
    assert "weather.example just passed the test" in words(faint.page().encode())
    gone = words(build_site([faint, period("text", 13)])["index.html"])
    assert "Found before, and not now: weather.example (last in the period from 2026-12-17)" in gone
    assert build_site([faint, period("text", 13)])["index.html"].count(b'class="absent"') == 1


def test_searches_have_their_pages_beside_them():
    page = words(build_site(weeks("searches", 2))["index.html"])
    for said in ("opening hours library.example/ hours", "opening hours no click", "loans no click", "everything else"):
        assert said in page.replace("https://", "")


def test_what_a_device_spent_at_most():
    page = words(build_site(weeks("setting", 6))["privacy.html"])
    for said in (
        "One answer costs at most epsilon 1",
        "A device that reported in all 6 periods, and whose value",
        "never changed epsilon 1 changed once epsilon 2 changed twice epsilon 3 changed three times epsilon 4",
        "It can give 4 different answers at most",
        "stops at epsilon 4 for its whole life",
        "rounded down to the start of its interval of 30 minutes",
        "given the times at which its value changed",
    ):
        assert said in page, said
    assert [round(one.epsilon, 6) for one in together(weeks("setting", 6))] == [4]
    bits = device_costs(weeks("mean", 6))
    assert (bits.answers, round(float(bits.most), 6)) == (2, 2)  # two points of its grid, however often it is asked
    texts = device_costs(weeks("text", 5))
    assert (texts.answers, texts.most, texts.after(0) < texts.after(1)) == (5, Fraction(32), True)
    index = json.loads(build_site(weeks("mean", 6))["index.json"])
    assert round(index["together"][0]["epsilon"], 6) == 2


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(DataError, match="can't be compared with counts"):
        build_site([period("setting", 0), shares_of({"news": 0.5}, {})])
    with pytest.raises(DataError, match="different tasks"):
        build_site([period("setting", 0), period("mean", 1)])
    with pytest.raises(DataError, match="two releases are of period"):
        build_site([period("setting", 0), period("setting", 0, 400)])
    with pytest.raises(UsageError, match="hold their task"):
        build_site([period("setting", 0)], privacy={"task": {}})


def test_the_command_builds_and_shows_every_kind(tmp_path):
    for kind in TASKS:
        folders = [period(kind, week).save(tmp_path / f"{kind}{week}") for week in (0, 2)]
        done = hushquery("site", *folders, "--out", tmp_path / f"{kind}-site", "--same-devices", "0.9")
        assert done.returncode == 0, done.stderr
        page = words((tmp_path / f"{kind}-site" / "index.html").read_bytes())
        assert "Declared, not measured" in page or "is not used" in page
        shown = hushquery("show", folders[0]).stdout
        assert "2026-09-24 to 2026-09-30, 2,000 reports" in shown
        assert ("opening hours  (no click)" in shown) == (kind == "searches")
        assert ("nobody.example   not found" in shown) == (kind == "text")
        assert hushquery("export", folders[0], "--csv", tmp_path / f"{kind}-csv").returncode == 0
        assert "what it can't tell" in hushquery("card", folders[0]).stdout.lower()


LAW = """
import { Cells, law, bitsOn } from "./unlisted.mjs";
import { unpack } from "./reading.js";
const [{ oracle }, payloads, value] = given;
const [cells, { speaks, chance, ...both }] = [new Cells(oracle), law(oracle)];
const counts = new Array(cells.names.length).fill(0);
for (const one of payloads) {
  for (const cell of speaks(unpack(oracle, new Uint8Array(Buffer.from(one, "base64"))))) counts[cell] += 1;
}
const own = cells.of(value);
const expected = counts.map((_, at) => payloads.length * chance(own ?? value, at));
const bits = oracle.name === "rappor" ? bitsOn({ counts, absent: 0 }, payloads.length, oracle, both) : null;
tell({ counts, expected, own: own ?? null, names: cells.names.map(([name]) => name), bits });
"""


@pytest.mark.parametrize(("kind", "value"), [("mean", 20), ("histogram", 25), ("text", "news.example")])
def test_the_randomiser_knows_the_law_of_numbers_and_texts(tmp_path, kind, value):
    import base64

    import numpy as np

    from hushquery.publish.site import write_site
    from setting_reports import made

    fixed = configuration(kind)
    site = write_site(build_site(weeks(kind, 1)), tmp_path / "site")
    reports = made(fixed, [value] * 400, name=f"law of {kind}")
    payloads = [base64.b64encode(report.payload).decode() for report in reports]
    said = in_node(site, LAW, json.loads(fixed.canonical()), payloads, value)
    support = fixed.channel.support(fixed.channel.unpack_many(np.array([list(r.payload) for r in reports], np.uint8)))
    if kind == "text":
        counts = support.reshape(fixed.channel.params.m, -1)[:, 1:].sum(axis=0)
        assert said["counts"] == counts.tolist()
        # Six standard deviations of the mean of 64 bits over 400 reports.
        assert abs(said["bits"]["on"] - said["bits"]["expected"]) < 6 * (64 * 0.16 / 400) ** 0.5
        return
    assert said["counts"] == support[-len(said["counts"]) :].tolist()
    assert said["names"] == (fixed.labels or ["0", "1"])
    for count, expected in zip(said["counts"], said["expected"], strict=True):
        assert abs(count - expected) < 6 * max(1.0, expected) ** 0.5
    assert said["own"] == (2 if kind == "histogram" else None)
