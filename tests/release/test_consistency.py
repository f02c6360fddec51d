"""What a release says twice: a hash that agrees does not help a manifest that contradicts itself or its tables."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from hushquery.release import Release, verify
from hushquery.release.release import manifest_bytes, parquet_bytes, sha256, sign
from small_releases import private_hybrid

STATED = {"head_size": 10, "optin_users": 10_000, "shifted_records": 1, "shift_p_value": 0.001, "rest_stderr": 0.01}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    made = private_hybrid()
    release = Release.make(
        made.tables,
        made.guarantees,
        kind="hybrid",
        parameters={**made.manifest["parameters"], **STATED},
        steps=[{"parameters": step["parameters"]} for step in made.manifest["steps"]],
        meanings=made.manifest["meanings"],
        notes=["The two groups differ in football."],
        created=date(2026, 11, 15),
    )
    folder = release.save(tmp_path_factory.mktemp("consistency") / "release")
    assert verify(folder).problems == ()
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def forged(folder, change):
    told = json.loads((folder / "manifest.json").read_text())
    change(told)
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))
    return verify(folder).problems


def swap_people(told):
    one, other = told["guarantees"]
    one["population"], other["population"] = other["population"], one["population"]


def set_parameter(name, value):
    return lambda told: told["parameters"].update({name: value})


def in_guarantee(place, **changes):
    return lambda told: told["guarantees"][place].update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap_people, "step 1 speaks of other people than its guarantee"),
        (lambda told: told["steps"][1].update(population="everybody"), "step 2 speaks of other people"),
        (in_guarantee(0, unit="record"), "a curator guarantee protects one user"),
        (in_guarantee(1, unit="user"), "a local guarantee protects one client"),
        (in_guarantee(1, test_noise=True), "some guarantees say that the noise came from a test"),
        (in_guarantee(0, model="local", unit="client"), "the kind of the release does not fit"),
        (lambda told: told.update(kind="curator"), "the kind of the release does not fit"),
        (lambda told: told.update(kind="hybridx"), "the kind of the release does not fit"),
        (lambda told: told.update(interval_level=1), "not between 0 and 1"),
        (lambda told: told.update(interval_level=True), "not between 0 and 1"),
        (set_parameter("head_size", 11), "the size that the parameters state"),
        (set_parameter("optin_users", 20_001), "no counts of as many users"),
        (set_parameter("shifted_records", 0), "does not follow from their column shift_z"),
        (set_parameter("shift_p_value", 1.5), "a chance or a standard error"),
        (set_parameter("rest_stderr", -0.01), "a chance or a standard error"),
        (set_parameter("rest", 0.1), "are not the whole"),
        (set_parameter("rest_low", 0.9), "outside its own interval"),
        (set_parameter("rest_high", 0.01), "outside its own interval"),
        (set_parameter("mode", "paper"), "the mode of blending"),
        (set_parameter("head_size", "many"), "the size that the parameters state"),
        (set_parameter("shift_p_value", "small"), "can't be compared with itself"),
    ],
)
def test_what_does_not_agree_is_found(copy, change, words):
    assert any(words in problem for problem in forged(copy, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(hushquery="9.9"),
        lambda told: told.update(created="2026-11-14"),
        lambda told: told.update(interval_level=0.9),
        lambda told: told.update(notes=["The two groups agree."]),
        lambda told: told["meanings"].update(clicks="counts of people"),
        lambda told: [guarantee.update(test_noise=True) for guarantee in told["guarantees"]],
        lambda told: [place.update(population="everybody") for place in (told["guarantees"][0], told["steps"][0])],
        set_parameter("robust", True),
    ],
)
def test_a_data_card_that_says_something_else_is_found(copy, change):
    assert forged(copy, change) == ("README.md does not say what the manifest says",)


def test_the_data_card_of_another_version_may_use_other_words(copy):
    text = (copy / "README.md").read_text().replace("hushquery 0.1.0 on", "hushquery 9.9 on").replace("crowd", "many")
    (copy / "README.md").write_text(text)

    def other(told):
        told.update(hushquery="9.9")
        told["files"]["README.md"]["sha256"] = sha256(text.encode())

    assert forged(copy, other) == ()


def put(folder, name, table):
    data = parquet_bytes(table)
    (folder / f"{name}.parquet").write_bytes(data)
    return forged(folder, lambda told: told["files"][f"{name}.parquet"].update(sha256=sha256(data)))


def changed(folder, name, column, values):
    table = Release.load(folder).tables[name]
    place = table.schema.get_field_index(column)
    return table.set_column(place, table.schema.field(place), pa.array(values(table[column].to_pylist())))


def test_sums_of_a_query_that_are_not_those_of_its_clicks_are_found(copy):
    table = changed(copy, "queries", "share", lambda shares: [shares[0] - 0.001, *shares[1:]])
    assert put(copy, "queries", table) == ("the share of a query is not the sum of the shares of its clicks",)


def test_other_records_than_clicks_are_found(copy):
    table = changed(copy, "records", "url", lambda urls: ["https://other.example/", *urls[1:]])
    assert "clicks and records do not list the same" in put(copy, "records", table)


def test_opt_in_shares_that_are_no_counts_are_found(copy):
    table = changed(copy, "records", "optin", lambda shares: [shares[0] + 1e-6, *shares[1:]])
    assert put(copy, "records", table) == (
        "the shares of the opt-in users are no counts of as many users as the parameters state",
    )
