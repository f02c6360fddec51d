"""A series of releases on a site: in the order of their data, to download, compared, and what it costs in all."""

from __future__ import annotations

import io
import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import hushquery.publish.site
from hushquery.core.budget import Unit
from hushquery.core.guarantee import Guarantee, Step, factor
from hushquery.core.loss import GaussianHistogram, Loss
from hushquery.errors import DataError, UsageError
from hushquery.publish.site import build_site
from hushquery.publish.site.history import as_script, history, shard
from hushquery.release.series import together
from site_files import NASTY, Seen, dated, in_node, weeks, words
from small_releases import release_of, thresholded


def described(release, start, end, **more):
    """Give a release a period, and what else a steward says of it."""
    about = {"period": {"start": start, "end": end}, **more}
    return replace(release, manifest={**release.manifest, "description": about})


def test_a_series_is_ordered_by_the_dates_of_its_data_not_of_publishing():
    early = described(release_of({"news": 100}), "2026-01-01", "2026-01-07", title="Searches of January")
    late = described(release_of({"news": 400}), "2026-01-08", "2026-01-14", publisher="The Library", licence="CC0")
    early = dated(early, "2026-12-01")  # published last
    one, other = build_site([late, early]), build_site([early, late])
    assert one == other
    page = words(one["index.html"])
    assert (
        "The data of 2026-01-08 to 2026-01-14, published 2026-11-15. Changes are since the data of 2026-01-01" in page
    )
    assert "▲ +300" in page
    assert "Published by The Library . Licence CC0 ." in page
    index = json.loads(one["index.json"])
    assert [release["end"] for release in index["releases"]] == ["2026-01-07", "2026-01-14"]
    assert {"2026-01-07-queries.csv", "2026-01-14-queries.parquet"} <= set(one)
    # Without a period, by the day of publishing.
    first, second = dated(release_of({"news": 100}), "2026-11-01"), dated(release_of({"news": 400}), "2026-11-08")
    assert build_site([second, first]) == build_site([first, second])


def test_every_release_can_be_downloaded_and_is_in_the_feed_and_in_the_index():
    releases = [
        described(one, "2026-11-01", day, title=NASTY[0])
        for one, day in zip(weeks(), ("2026-11-07", "2026-11-14"), strict=True)
    ]
    files = build_site(releases)
    links = Seen(files["releases.html"]).links
    index = json.loads(files["index.json"])
    assert (index["format"], index["version"]) == ("hushquery-index", 1)
    for release, told in zip(releases, index["releases"], strict=True):
        for table in told["tables"]:
            assert table["rows"] == release.tables[table["name"]].num_rows
            assert pq.read_table(io.BytesIO(files[table["parquet"]])).equals(release.tables[table["name"]])
            assert files[table["csv"]].count(b"\r\n") == 1 + table["rows"]
            assert {table["parquet"], table["csv"], told["manifest"]} <= set(links)
        assert json.loads(files[told["manifest"]]) == release.manifest
        assert told["guarantees"][0]["epsilon"] == release.guarantees[0].epsilon
    feed = ET.fromstring(files["feed.xml"])  # noqa: S314 -- our own
    atom = "{http://www.w3.org/2005/Atom}"
    assert feed.tag == f"{atom}feed"
    entries = feed.findall(f"{atom}entry")
    assert [entry.find(f"{atom}updated").text for entry in entries] == ["2026-11-15T00:00:00Z", "2026-11-08T00:00:00Z"]
    assert entries[0].find(f"{atom}title").text == f"{NASTY[0]}, 2026-11-01 to 2026-11-14"
    ids = [entry.find(f"{atom}id").text for entry in entries]
    assert len(set(ids)) == 2
    # An entry keeps its name when the site is made anew with one release more.
    assert ids[1] in build_site(releases[:1])["feed.xml"].decode()
    anchors = Seen(files["releases.html"]).ids
    for entry in entries:
        assert entry.find(f"{atom}link").get("href").partition("#")[2] in anchors


def test_the_privacy_page_headlines_what_all_releases_cost_together():
    step = GaussianHistogram(20, Fraction(40), 260)
    promise = Guarantee.of("readers", "curator", Unit("user", "add-remove"), [Step("a", "b", step.loss)], delta=1e-6)
    one = replace(thresholded({"news": 900}, step), guarantees=(promise,))
    several = [dated(one, f"2026-11-0{day}") for day in (1, 2, 3, 4)]
    (whole,) = together(several)
    assert whole.delta == pytest.approx(4e-6)
    assert promise.epsilon < whole.epsilon < 0.75 * 4 * promise.epsilon  # tighter than the sum
    assert whole.epsilon >= sum([step.loss] * 4, Loss()).epsilon(4e-6)
    page = words(build_site(several)["privacy.html"])
    first = page.index("All 4 releases together")
    assert page.index(f"factor of {factor(whole.epsilon)}.") < page.index("The latest release alone")
    assert "There is a chance of at most 1 in 250,000 that this fails" in page
    assert first < page.index(f"factor of {factor(promise.epsilon)}.")
    alone = words(build_site([one])["privacy.html"])
    assert "releases together" not in alone
    assert "The latest release alone" not in alone
    assert json.loads(build_site(several)["index.json"])["together"][0]["epsilon"] == whole.epsilon


def test_populations_are_never_added_up_and_a_promise_is_never_less_than_stated():
    first, second = weeks()
    assert [g.population for g in together([first, second])] == ["opt-in readers", "other readers"]
    assert together([first]) == list(first.guarantees)
    # A guarantee without steps, or with others than it states, adds up as it is stated.
    bare = replace(first, guarantees=(replace(first.guarantees[0], steps=(), epsilon=3.0, delta=0.5),))
    (whole,) = together([bare, bare, bare])
    assert (whole.epsilon, whole.delta) == (9.0, 1.0)
    loud = replace(first, guarantees=(replace(first.guarantees[1], epsilon=7.0),))
    assert together([loud, loud])[0].epsilon >= 7.0


def test_each_query_has_its_history_in_the_shard_of_its_hash():
    shards = history(weeks())
    rows = {row[0]: row for rows in shards for row in rows}
    assert [value for value, _, _ in rows["news"][1]] == [0.05, 0.08]
    assert all(low < value < high for value, low, high in rows["news"][1])
    assert rows["half term"][1][1] is None
    assert rows["christmas market"][1][0] is None
    assert rows["news"][2] == [["https://news.example.com/", 0.07]]
    many = release_of({f"query {i}": 100 + i for i in range(5000)} | dict.fromkeys(NASTY, 99))
    shards = history([many, many])
    assert len(shards) == 8
    assert all(shard(row[0], 8) == place for place, rows in enumerate(shards) for row in rows)
    assert sum(map(len, shards)) == 5000 + len(NASTY)
    listed = history([release_of(["news"]), release_of({"news": 5})])
    assert listed[0][0][1][0] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        5,
        [],
        {"period": "2026"},
        {"period": {"start": 5, "end": "soon"}},
        {"title": 5, "people": True, "x": "y"},
    ],
)
def test_a_damaged_description_is_refused(wrong):
    made = replace(release_of({"a": 5}), manifest={**release_of({"a": 5}).manifest, "description": wrong})
    with pytest.raises((DataError, UsageError)):
        build_site([made])


def test_data_come_back_from_a_script_whatever_is_in_them(tmp_path):
    data = [[query, [None, [], [1, 0.5, 2]]] for query in [*NASTY, "__proto__", "\\u0022", "`${1}`"]]
    (tmp_path / "data.js").write_bytes(as_script("data.js", data))
    assert in_node(tmp_path, 'await import("./data.js"); tell(globalThis.hushquery["data.js"]);') == data


def test_a_page_finds_the_shard_that_python_wrote(tmp_path):
    source = Path(hushquery.publish.site.__file__).parents[2]
    for file in ("publish/site/static/data.mjs", "templates/pages.mjs"):
        shutil.copy(source / file, tmp_path)
    queries = [*NASTY, "", "weather", "天气", "😀", *(f"query {place}" for place in range(200))]
    script = 'import { historyFile } from "./data.mjs"; tell(given[0].map((query) => historyFile(query, 97)));'
    assert in_node(tmp_path, script, queries) == [f"history-{shard(query, 97)}.js" for query in queries]
