"""Making a release: what may be in a table, in what order it comes out, and what a manifest refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.core.guarantee import Guarantee
from hushquery.errors import DataError, UsageError
from hushquery.release.manifest import checked_table, plain
from hushquery.release.release import parquet_bytes

MARKER = "Zyxwvut-Marker"


def test_rows_come_by_count_and_then_by_key(table_of):
    table = table_of["queries"](["b", "a", "é", "z", "Z"], [7, 7, -4, 9, 7])
    made = checked_table("queries", table)
    assert made["query"].to_pylist() == ["z", "Z", "a", "b", "é"]
    assert made["count"].to_pylist() == [9, 7, 7, 7, -4]
    assert made["low"].to_pylist()[0] == 9 - 25.5


def test_a_list_without_counts_comes_by_key():
    made = checked_table("queries", pa.table({"query": ["b", "", "a"]}))
    assert made.column_names == ["query"]
    assert made["query"].to_pylist() == ["", "a", "b"]


@given(st.permutations(range(6)), st.integers(1, 5))
def test_the_order_and_chunks_of_an_engine_leave_no_trace(order, cut):
    table = pa.table(
        {
            "url": [f"https://{i}.example.com/" for i in range(6)],
            "high": [9.0] * 6,
            "query": ["a", "a", "b", "b", "c", "c"],
            "count": [5, 5, 5, 7, -1, 0],
            "low": [-9.0] * 6,
            "stderr": [1.0] * 6,
        }
    )
    shuffled = table.take(order)
    shuffled = pa.concat_tables([shuffled.slice(0, cut), shuffled.slice(cut)])
    assert parquet_bytes(checked_table("clicks", shuffled)) == parquet_bytes(checked_table("clicks", table))


def test_other_types_for_the_same_values_become_ours(table_of):
    table = table_of["queries"](["a", "b"], [1, 2])
    other = pa.table(
        {
            "count": pa.array([1, 2], pa.uint8()),
            "query": pa.array(["a", "b"]).dictionary_encode(),
            "stderr": pa.array([13, 13], pa.float32()),
            "high": table["high"],
            "low": table["low"],
        }
    ).replace_schema_metadata({"pandas": "{}"})
    assert checked_table("queries", other).equals(checked_table("queries", table), check_metadata=True)
    large = table.set_column(0, "query", table["query"].cast(pa.large_string()))
    assert checked_table("queries", large).schema.field("query").type == pa.string()


def changed(table, column, values):
    return table.set_column(table.column_names.index(column), column, values)


BAD_COLUMNS = {
    "a missing count": ("count", pa.array([1, None])),
    "a missing query": ("query", pa.array(["a", None])),
    "half a person": ("count", pa.array([1.5, 2.0])),
    "a count beyond int64": ("count", pa.array([1, 2**63], pa.uint64())),
    "a count in words": ("count", pa.array(["one", MARKER])),
    "bytes that are no text": ("query", pa.array([b"a", b"\xff" + MARKER.encode()])),
    "NaN": ("stderr", pa.array([1.0, float("nan")])),
    "infinity": ("high", pa.array([1e9, float("inf")])),
    "minus infinity": ("low", pa.array([-1.0, float("-inf")])),
    "a negative standard error": ("stderr", pa.array([1.0, -0.5])),
    "an interval that ends before it begins": ("low", pa.array([1.0, 1e6])),
    "a key twice": ("query", pa.array([MARKER, MARKER])),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_values_that_can_not_be_published_are_refused_and_not_shown(name, table_of):
    column, values = BAD_COLUMNS[name]
    with pytest.raises(DataError) as refused:
        checked_table("queries", changed(table_of["queries"]([MARKER, "b"], [1, 2]), column, values))
    assert MARKER not in str(refused.value)


def test_a_column_too_many_or_too_few_is_refused(table_of):
    table = table_of["queries"]()
    for bad in (
        table.append_column("true_count", pa.array([1, 2])),
        table.append_column("query", pa.array(["a", "b"])),
        table.drop_columns(["stderr"]),
        table.rename_columns(["q", "count", "stderr", "low", "high"]),
    ):
        with pytest.raises(UsageError, match="columns"):
            checked_table("queries", bad)
    with pytest.raises(UsageError, match="columns"):
        checked_table("clicks", pa.table({"query": ["a"], "url": ["b"]}))


def test_only_known_tables_of_arrow(recipe):
    with pytest.raises(UsageError, match="no table 'users'"):
        recipe(tables={"users": pa.table({"query": ["a"]})}).make()
    with pytest.raises(UsageError, match=r"pyarrow\.Table"):
        checked_table("queries", {"query": ["a"]})
    with pytest.raises(UsageError, match="needs a table"):
        recipe(tables={}).make()


def test_a_pair_is_one_key(table_of):
    rows = [("ab", "c", 100), ("a", "bc", 100), ("a", "c", 100)]
    assert checked_table("clicks", table_of["pairs"]("url", rows)).num_rows == 3
    with pytest.raises(DataError, match="twice"):
        checked_table("clicks", table_of["pairs"]("url", [*rows, ("a", "bc", 90)]))


@pytest.mark.parametrize("pair", [("news", "nobody"), ("nobody", "news")])
def test_reformulations_are_between_released_queries(recipe, table_of, pair):
    tables = recipe().tables | {"reformulations": table_of["pairs"]("next_query", [(*pair, 50)])}
    with pytest.raises(DataError, match="not released"):
        recipe(tables=tables).make()


def test_empty_tables_are_releases_too(recipe, table_of):
    tables = {
        "queries": table_of["queries"]([]),
        "clicks": table_of["pairs"]("url", []),
        "reformulations": table_of["pairs"]("next_query", []),
    }
    release = recipe(tables=tables).make()
    assert [table.num_rows for table in release.tables.values()] == [0, 0, 0]
    assert release.queries.schema.field("count").type == pa.int64()


def test_the_tables_by_name(recipe):
    whole = recipe().make()
    assert whole.clicks is whole.tables["clicks"]
    assert whole.reformulations["count"].to_pylist() == [44, -3]  # below zero stays
    part = recipe(tables={"queries": whole.queries}).make()
    assert part.clicks is None
    assert part.reformulations is None
    assert not part.test_noise


def test_every_table_needs_a_meaning_and_every_population_one_guarantee(recipe):
    with pytest.raises(UsageError, match="what a number in it is"):
        recipe().make(meanings={"queries": "users"})
    good = recipe().make()
    for guarantees in ([], [good.guarantees[0]] * 2):
        with pytest.raises(UsageError, match="one guarantee per population"):
            type(good).make(
                good.tables, guarantees, kind="curator", parameters={}, steps=[], meanings=good.manifest["meanings"]
            )


def test_steps_must_be_those_of_the_guarantee(recipe):
    good = recipe().make()
    steps = [{"parameters": step["parameters"]} for step in good.manifest["steps"]]
    assert recipe().make(steps=steps) == good
    for bad, match in (
        (steps[:2], "2 steps are described and 3"),
        ([*steps[:2], {}], "step 3 needs its parameters"),
        ([*steps[:2], {"parameters": 7}], "step 3 needs its parameters"),
        ([*steps[:2], {**steps[2], "users": 7}], "step 3 needs its parameters"),
        ([{**steps[0], "loss": good.manifest["steps"][0]["loss"]}, *steps[1:]], "step 1 needs its parameters"),
    ):
        with pytest.raises(UsageError, match=match):
            recipe().make(steps=bad)


SECRETS = ["rows_read", "users_seen", "input", "source", "log_path", "seconds", "duration", "Rows", "log-file"]


@pytest.mark.parametrize("name", SECRETS)
def test_names_of_what_only_the_log_knows_are_refused(recipe, name):
    with pytest.raises(UsageError, match="only the log knows"):
        recipe().make(parameters={"epsilon": 1, "deep": [{"er": {name: 7}}]})
    good = recipe().make()
    steps = [{"parameters": {**step["parameters"], name: 7}} for step in good.manifest["steps"]]
    with pytest.raises(UsageError, match="only the log knows"):
        recipe().make(steps=steps)


@pytest.mark.parametrize("value", [Path("a.tsv"), "/data/a.tsv", "~/a.tsv", "../a.tsv", "file:a", "C:\\a.tsv"])
def test_paths_are_refused_and_not_shown(recipe, value):
    with pytest.raises(UsageError, match="path") as refused:
        recipe().make(parameters={"what": [value]})
    assert "a.tsv" not in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1, 2}, object(), {1: 2}, "\ud800", date.today])
def test_what_is_no_plain_data_is_refused(value):
    with pytest.raises(UsageError):
        plain({"x": [value]}, "parameters", names=True)


def test_plain_data_stays_and_numbers_are_exact():
    given = {"a": (1, 2.5, None, True), "b": Fraction(200, 23), "c": np.int64(3), "d": Decimal("0.25"), "e": "2026/11"}
    told = plain(given, "parameters", names=True)
    assert told == {"a": [1, 2.5, None, True], "b": "200/23", "c": 3, "d": "1/4", "e": "2026/11"}
    assert json.loads(json.dumps(told)) == told
    deep: list = []
    for _ in range(50):
        deep = [deep]
    with pytest.raises(UsageError, match="deep"):
        plain(deep, "parameters")


def test_the_manifest_says_these_things_and_nothing_else(recipe):
    told = recipe().make().manifest
    assert list(told) == [
        *("format", "format_version", "hushquery", "kind", "created", "guarantees", "interval_level"),
        *("parameters", "steps", "meanings", "measures", "notes", "versions"),
    ]
    assert set(told["versions"]) == {"python", "duckdb", "ibis", "numpy", "pyarrow", "mpmath"}
    assert set(told["steps"][0]) == {"population", "name", "detail", "loss", "parameters"}
    assert told["created"] == "2026-11-15"
    assert told["parameters"]["epsilon"] == "23/10"


def test_a_release_has_a_day_and_no_time(recipe):
    late = datetime(2026, 11, 15, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert recipe().make(created=late).manifest["created"] == "2026-11-16"
    before = datetime.now(UTC).date()
    today = date.fromisoformat(recipe().make(created=None).manifest["created"])
    assert before <= today <= datetime.now(UTC).date()


@pytest.mark.parametrize("level", [0, 1, -1, float("nan")])
def test_the_level_of_intervals_is_a_probability(recipe, level):
    with pytest.raises(UsageError, match="level"):
        recipe().make(level=level)


def test_the_words_for_it_are_short_and_shout_where_nothing_is_promised(recipe):
    said = repr(recipe().make())
    assert said.startswith("Release(2 queries, 2 clicks, 2 reformulations; epsilon ")
    assert "NOT PRIVATE" not in said
    assert repr(replace(recipe().make(), guarantees=())).endswith(" reformulations)")  # as it is while it is read
    shouted = repr(recipe(test_noise=True).make())
    assert "NOT PRIVATE" in shouted


def test_two_populations_keep_their_own_steps(recipe):
    one = recipe(population="a").make()
    other = recipe(population="b", tables={"queries": one.queries}).make()
    both = [*one.guarantees, *other.guarantees]
    steps = [{"parameters": s["parameters"]} for s in (*one.manifest["steps"], *other.manifest["steps"])]
    made = type(one).make(
        one.tables, both, kind="hybrid", parameters={}, steps=steps, meanings=one.manifest["meanings"]
    )
    assert [step["population"] for step in made.manifest["steps"]] == ["a", "a", "a", "b"]
    assert all(isinstance(guarantee, Guarantee) for guarantee in made.guarantees)
    assert repr(made).count("epsilon") == 2
