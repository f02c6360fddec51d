"""A release of shares with two promises: what it may hold, what it says, and what verify finds in it."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hushquery.cli.show import verify as verify_command
from hushquery.errors import DataError, UsageError
from hushquery.release import Release, verify
from hushquery.release.manifest import NUMBERS, checked_table, measure_of, release_measure
from hushquery.release.page import disagreement
from hushquery.release.release import manifest_bytes, parquet_bytes, sha256, sign
from small_releases import RECORDS, private_hybrid, release_of, shares_of


@pytest.fixture(scope="module")
def release():
    return private_hybrid()


@pytest.fixture(scope="module")
def whole(release, tmp_path_factory):
    return release.save(tmp_path_factory.mktemp("hybrid") / "release")


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.fixture
def forged(copy):
    def forge(change):
        told = json.loads((copy / "manifest.json").read_text())
        change(told)
        (copy / "manifest.json").write_bytes(manifest_bytes(sign(told)))
        return verify(copy)

    return forge


# ---- tables -------------------------------------------------------------------------------------------------------


def test_shares_come_by_share_and_then_by_key(release):
    assert release.queries.column_names == ["query", "share", "stderr", "low", "high"]
    shares = release.queries["share"].to_pylist()
    assert shares == sorted(shares, reverse=True)
    tie = checked_table("queries", share_table(["b", "a"], [0.2, 0.2]))
    assert tie["query"].to_pylist() == ["a", "b"]


def test_records_come_by_their_blend_and_then_by_key():
    rows = [("b", "u", 0.1, 0.3, 0.5), ("a", "v", 0.3, 0.1, 0.5), ("a", "u", 0.2, 0.2, 0.0), ("z", "", 0.0, 0.9, 0.25)]
    made = checked_table("records", record_table(rows))
    assert list(zip(made["query"].to_pylist(), made["url"].to_pylist(), strict=True)) == [
        ("z", ""),
        ("a", "u"),
        ("a", "v"),
        ("b", "u"),
    ]
    turned = checked_table("records", record_table(rows[::-1]))
    assert parquet_bytes(turned) == parquet_bytes(made)
    assert made.column_names == ["query", "url", *NUMBERS["estimates"]]


def share_table(keys, shares, **changes):
    columns = {
        "query": pa.array(keys, pa.string()),
        "share": pa.array(shares, pa.float64()),
        "stderr": pa.array([0.01] * len(keys), pa.float64()),
        "low": pa.array([share - 0.02 for share in shares], pa.float64()),
        "high": pa.array([share + 0.02 for share in shares], pa.float64()),
    }
    return pa.table({**columns, **changes})


def record_table(rows, **changes):
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("query", "url", "optin", "client"))}
    rest = {"weight": [row[4] for row in rows], "shift_z": [0.0] * len(rows)}
    errors = {f"{name}_stderr": [0.01] * len(rows) for name in ("optin", "client")}
    return pa.table({**columns, **rest, **errors, **changes})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"share": [0.5, 1.01]}, "not from 0 to 1"),
        ({"share": [0.5, -0.001]}, "not from 0 to 1"),
        ({"share": [0.5, float("nan")]}, "not finite"),
        ({"high": [0.9, 0.0999]}, "outside its interval"),
        ({"low": [0.51, 0.0]}, "outside its interval"),
        ({"stderr": [0.1, -0.1]}, "below zero"),
        ({"query": ["a", "a"]}, "twice"),
    ],
)
def test_shares_that_can_not_be_published_are_refused(changes, why):
    with pytest.raises(DataError) as refused:
        checked_table("queries", share_table(["a", "b"], [0.5, 0.1], **changes))
    assert why in refused.value.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"weight": [1.5]}, "weight"),
        ({"weight": [-0.1]}, "weight"),
        ({"shift_z": [float("inf")]}, "not finite"),
        ({"client_stderr": [-1.0]}, "below zero"),
        ({"optin": pa.array([None], pa.float64())}, "missing"),
    ],
)
def test_records_that_can_not_be_published_are_refused(changes, why):
    with pytest.raises(DataError) as refused:
        checked_table("records", record_table([("a", "u", 0.1, 0.1, 0.5)], **changes))
    assert why in refused.value.why


def test_what_could_not_be_tested_is_missing_and_no_number(tmp_path):
    rows = [("a", "u", 0.1, 0.1, 0.5), ("b", "v", 0.05, 0.1, 0.5)]
    made = checked_table("records", record_table(rows, shift_z=[float("nan"), 4.0]))
    assert made["shift_z"].to_pylist() == [None, 4.0]
    same = checked_table("records", record_table(rows, shift_z=pa.array([None, 4.0])))
    assert parquet_bytes(same) == parquet_bytes(made)
    assert "Of 1 tested record, 1 is" in disagreement(made)
    release = with_records(made)
    folder = release.save(tmp_path / "r")
    assert verify(folder).ok
    assert Release.load(folder).records["shift_z"].to_pylist() == [None, 4.0]
    assert release.page().count('<b class="apart">') == 1
    assert "<td></td>" in release._repr_html_()
    with closing(sqlite3.connect(release.to_sqlite(tmp_path / "r.db"))) as base:
        assert base.execute("SELECT shift_z FROM records ORDER BY query").fetchall() == [(None,), (4.0,)]
    assert (release.to_csv(tmp_path / "csv") / "records.csv").read_text().splitlines()[1].endswith("0.5,")


def with_records(table):
    made = shares_of({"a": 0.1, "b": 0.075})
    told = {name: made.manifest[name] for name in ("kind", "parameters")}
    steps = [{"parameters": step["parameters"]} for step in made.manifest["steps"]]
    meanings = {"queries": "shares", "records": "estimates"}
    return Release.make({**made.tables, "records": table}, made.guarantees, **told, steps=steps, meanings=meanings)


def test_a_column_beside_the_measures_is_refused():
    table = share_table(["a"], [0.5])
    for bad in (table.append_column("count", pa.array([7])), table.drop_columns(["low"])):
        with pytest.raises(UsageError, match="columns"):
            checked_table("queries", bad)
    with pytest.raises(UsageError, match="columns"):
        checked_table("reformulations", table.append_column("next_query", pa.array(["b"])))
    with pytest.raises(UsageError, match="columns"):
        checked_table("records", pa.table({"query": ["a"], "url": ["b"], "share": [0.5]}))


def test_one_release_has_one_measure(release):
    counts = release_of({"a": 5}).tables["queries"]
    assert (measure_of(counts), measure_of(release.queries), measure_of(release.records)) == (
        "count",
        "share",
        "estimates",
    )
    assert (release_measure({"queries": counts}), release_measure(release.tables)) == ("count", "share")
    assert release_measure({"queries": pa.table({"query": ["a"]})}) is None
    with pytest.raises(DataError, match="mix"):
        release_measure({"queries": counts, "records": release.records})


def test_shares_need_their_rest_and_are_not_more_than_the_whole():
    for rest in (None, "0.1", True, -0.1, 1.1, float("nan")):
        with pytest.raises(DataError, match="rest"):
            shares_of({"a": 0.5}, parameters={"rest": rest})
    with pytest.raises(DataError, match="more than the whole"):
        shares_of({"a": 0.5, "b": 0.4}, parameters={"rest": 0.2})
    with pytest.raises(DataError, match="more than the whole"):
        shares_of({"a": 0.5}, {("a", "u"): 0.5, ("a", "v"): 0.4}, parameters={"rest": 0.2})
    assert shares_of({}, {}).manifest["parameters"]["rest"] == 1.0


def test_clicks_and_records_belong_to_released_queries():
    with pytest.raises(DataError, match="not released"):
        shares_of({"a": 0.5}, {("nobody", "u"): 0.1})


# ---- the manifest, and what verify finds ---------------------------------------------------------------------------


def test_what_is_saved_is_loaded_and_verified(release, whole):
    loaded = Release.load(whole)
    assert loaded.tables == release.tables
    assert loaded.guarantees == release.guarantees
    assert loaded.manifest == release.manifest
    assert loaded.records.num_rows == len(RECORDS)
    found = verify(whole)
    assert found.problems == ()
    assert [g.model for g in found.guarantees] == ["curator", "local"]


def test_the_manifest_says_what_the_numbers_are(release):
    assert release.manifest["measures"] == {"queries": "share", "clicks": "share", "records": "estimates"}
    assert release.manifest["format_version"] == 2
    counts = release_of({"a": 5})
    assert (counts.manifest["format_version"], counts.manifest["measures"]) == (1, {"queries": "count"})
    assert release_of(["a"]).manifest["measures"] == {"queries": None}


def test_a_release_from_before_there_were_shares_still_loads(tmp_path):
    folder = release_of({"a": 5}).save(tmp_path / "old")
    told = json.loads((folder / "manifest.json").read_text())
    del told["measures"]
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))
    assert Release.load(folder).queries["count"].to_pylist() == [5]


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["measures"].update(queries="count"),
        lambda told: told["measures"].pop("records"),
        lambda told: told.update(measures=[]),
        lambda told: told.update(format_version=1),
    ],
)
def test_other_measures_are_found(forged, change):
    assert any("what the numbers in the tables are" in problem for problem in forged(change).problems)


def test_a_rest_that_can_not_be_is_found(forged):
    assert any("more than the whole" in p for p in forged(lambda told: told["parameters"].update(rest=0.9)).problems)
    assert any("rest" in p for p in forged(lambda told: told["parameters"].pop("rest")).problems)


@pytest.mark.parametrize("group", [0, 1])
def test_too_small_an_epsilon_is_found_in_either_promise(forged, group):
    def cheaper(told):
        told["guarantees"][group]["epsilon"] *= 0.99

    (problem,) = forged(cheaper).problems
    assert "cost more than the guarantee states" in problem


@pytest.mark.parametrize(("name", "value"), [("lie", 2**53 // 50), ("k", 12), ("name", "oue")])
def test_integers_that_do_not_give_the_clients_epsilon_are_found(forged, name, value):
    (problem,) = forged(lambda told: told["steps"][1]["parameters"]["oracle"].update({name: value})).problems
    assert problem == "step 2 costs otherwise by its parameters than the manifest states"


def test_an_unknown_randomizer_and_another_relation_are_found(forged):
    found = forged(lambda told: told["steps"][1]["parameters"]["oracle"].update(name="magic"))
    assert any("step 2 can't be checked" in problem for problem in found.problems)
    found = forged(lambda told: told["steps"][1]["parameters"].update(relation="add-remove"))
    assert "step 2 ran under another relation than the guarantee states" in found.problems


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_value_of_the_manifest_may_be_anything_and_verify_still_answers(whole, data):
    told = json.loads((whole / "manifest.json").read_text())
    place, key = told, data.draw(st.sampled_from(["steps", "measures", "parameters", "guarantees", "meanings"]))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 4)):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(st.none() | st.booleans() | st.integers(-5, 10**30) | st.text(max_size=5) | st.just([1]))
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(whole, Path(parent) / "r"))
        (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))
        found = verify(folder)
        assert all(isinstance(problem, str) and problem for problem in found.problems)
        assert found.ok is not bool(found.problems)


def test_another_table_of_records_is_found(copy, release):
    table = release.records.take(list(range(release.records.num_rows))[::-1])
    data = parquet_bytes(table)
    (copy / "records.parquet").write_bytes(data)
    assert "was changed" in verify(copy).problems[0]
    told = json.loads((copy / "manifest.json").read_text())
    told["files"]["records.parquet"].update(sha256=sha256(data))
    (copy / "manifest.json").write_bytes(manifest_bytes(sign(told)))
    (problem,) = verify(copy).problems
    assert "order" in problem


# ---- words and exports ---------------------------------------------------------------------------------------------


def test_the_card_has_two_promises_and_says_shares(release):
    card = release.card()
    shown = card.replace("\\", "")
    for guarantee in release.guarantees:
        for line in guarantee.in_words().splitlines():
            assert " ".join(line.replace("->", "→").split()) in shown, line
    for said in (
        "each has a promise of its own",
        "Numbers here are shares of all records, not counts",
        "64.35%",
        "| `share` | number | the share of all records",
        "| `weight` | number |",
        "empty for searches without a click",
        "What a share is: the share of all records that have the query",
        "What a row is: what each group alone says",
    ):
        assert said in card, said
    assert "counts are below" not in card
    assert "each has a promise" not in release_of({"a": 5}).card()


def test_exports_know_shares(release, tmp_path):
    folder = release.to_csv(tmp_path / "csv")
    with (folder / "records.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(RECORDS)
    assert float(rows[0]["weight"]) == 0.2
    file = release.to_sqlite(tmp_path / "release.db")
    with closing(sqlite3.connect(file)) as base:
        assert base.execute("SELECT sum(share) FROM clicks").fetchone()[0] == pytest.approx(1 - 0.6435)
        assert base.execute("SELECT typeof(share), typeof(query) FROM queries").fetchone() == ("real", "text")
        assert base.execute("SELECT count(*) FROM records WHERE abs(shift_z) > 3").fetchone() == (1,)


def test_verify_names_both_promises_and_adds_nothing_up(whole, release):
    app = typer.Typer()
    app.command()(verify_command)
    text = CliRunner().invoke(app, [str(whole)]).stdout
    assert "each of its guarantees, for its own people, follows from its parameters" in text
    assert [line.strip() for line in text.splitlines()[1:3]] == [g.summary() for g in release.guarantees]


def test_disagreement_in_words(release):
    assert "Of 10 tested records, 1 is more than 3 standard errors apart" in disagreement(release.records)
    assert disagreement(release.records.slice(0, 0)) == ""
    assert "Of 1 tested record, none is" in disagreement(release.records.slice(0, 1))
