"""Verify: every changed byte is found, and so is every number that does not follow from the others."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushquery.release.verification
from hushquery.cli.show import verify as verify_command
from hushquery.core.loss import Loss
from hushquery.errors import DataError
from hushquery.release import Release, verify
from hushquery.release.release import known_files, manifest_bytes, parquet_bytes, sha256, sign

# What a release of counts holds; records belong to releases of shares, the others to estimates from reports.
FILES = sorted(
    known_files()
    - {f"{name}.parquet" for name in ("records", "estimates", "support", "candidates")}
    - {"signature.json"}
)


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    """The folder of a release that nobody changes."""
    return recipe().make().save(tmp_path_factory.mktemp("verify") / "release")


@pytest.fixture(scope="module")
def quick(recipe, table_of, tmp_path_factory):
    """One whose guarantee is computed in no time."""
    tables = recipe().tables | {"queries": table_of["queries"](counts=[990, 900])}
    tables["clicks"] = table_of["pairs"]("url", [("news", "https://example.org/", 950)])
    folder = recipe(tables=tables, quick=True).make().save(tmp_path_factory.mktemp("quick") / "release")
    assert verify(folder).problems == ()
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.fixture
def forged(copy):
    """Change the manifest as a forger would, hash included; give what verify finds."""

    def forge(change):
        told = json.loads((copy / "manifest.json").read_text())
        change(told)
        (copy / "manifest.json").write_bytes(manifest_bytes(sign(told)))
        return verify(copy)

    return forge


def test_a_whole_release_has_no_problem(whole):
    found = verify(whole)
    assert found.problems == ()
    assert found.ok
    assert found.guarantees == Release.load(whole).guarantees
    assert json.loads(json.dumps(found.to_json()))["ok"] is True


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_changed_byte_is_found(quick, data):
    name = data.draw(st.sampled_from(FILES))
    before = (quick / name).read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    how = data.draw(st.sampled_from(["change", "remove", "insert", "cut", "repeat"]))
    byte = bytes([data.draw(st.integers(0, 255))])
    after = {
        "change": before[:at] + byte + before[at + 1 :],
        "remove": before[:at] + before[at + 1 :],
        "insert": before[:at] + byte + before[at:],
        "cut": before[:at],
        "repeat": before + before[at:],
    }[how]
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(quick, Path(parent) / "r"))
        (folder / name).write_bytes(after)
        assert verify(folder).ok is (after == before)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_value_of_the_manifest_may_be_anything_and_verify_still_answers(quick, data):
    told = json.loads((quick / "manifest.json").read_text())
    place, key = told, data.draw(st.sampled_from(sorted(set(told) - {"manifest_sha256", "format", "format_version"})))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    strange = (
        st.none() | st.booleans() | st.integers(-5, 10**30) | st.text(max_size=5) | st.just([]) | st.just({"a": [1]})
    )
    place[key] = data.draw(strange)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(quick, Path(parent) / "r"))
        (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))
        found = verify(folder)
        assert all(isinstance(problem, str) and problem for problem in found.problems)
        assert found.ok is not bool(found.problems)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    found = verify(copy)
    assert not found.ok
    assert name in found.problems[0]


def test_a_file_too_many_is_named(copy):
    (copy / "raw-log.tsv").write_text("x")
    (copy / "folder").mkdir()
    assert verify(copy).problems == (
        "folder is not part of the release",
        "raw-log.tsv is not part of the release",
    )
    assert Release.load(copy)  # the release itself is whole


def test_no_folder_is_a_finding_and_not_a_crash(tmp_path):
    found = verify(tmp_path / "nowhere")
    assert not found.ok
    assert "there is no folder" in found.problems[0]
    (tmp_path / "file").write_text("x")
    assert not verify(tmp_path / "file").ok


def test_the_command_says_that_the_name_is_wrong_and_not_the_release(tmp_path):
    with pytest.raises(DataError, match=r"^there is no folder .*relase") as refused:
        verify_command(tmp_path / "relase")
    assert "again" not in refused.value.fix


def test_another_layout_of_the_same_manifest_is_a_change(copy):
    told = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(told))
    assert "manifest.json was changed" in verify(copy).problems[0]


# ---- forged manifests, with hashes that agree -------------------------------------------------------------------


def scale_epsilon(factor):
    return lambda told: told["guarantees"][0].update(epsilon=told["guarantees"][0]["epsilon"] * factor)


def test_too_small_an_epsilon_is_found(forged):
    (problem,) = forged(scale_epsilon(1 - 1e-6)).problems
    assert "cost more than the guarantee states" in problem


def test_too_large_an_epsilon_is_found_where_it_shows(forged):
    (problem,) = forged(scale_epsilon(1.1)).problems
    assert "cost only" in problem


def test_an_epsilon_rounded_up_is_the_same(forged):
    assert forged(scale_epsilon(1 + 1e-12)).ok


def test_too_small_a_delta_is_found(forged):
    found = forged(lambda told: told["guarantees"][0].update(delta=1e-9))
    assert any("cost more" in problem for problem in found.problems)


def test_a_loss_that_the_parameters_do_not_give_is_found(forged):
    def cheaper(told):
        for place in (told["guarantees"][0]["steps"][2], told["steps"][2]):
            place["loss"]["pure"] = ["1/100"]

    problems = forged(cheaper).problems
    assert "step 3 costs otherwise by its parameters than the manifest states" in problems


@pytest.mark.parametrize(
    ("name", "value"), [("sigma", "14"), ("keys_per_user", 19), ("threshold", 81), ("kind", "laplace-histogram")]
)
def test_parameters_that_do_not_give_the_loss_are_found(forged, name, value):
    problems = forged(lambda told: told["steps"][0]["parameters"].update({name: value})).problems
    assert any(problem.startswith("step 1 ") for problem in problems)


@pytest.mark.parametrize("value", ["none", None, "1/0", "x", -1, True, [1], {}])
def test_parameters_that_make_no_sense_are_found(forged, value):
    problems = forged(lambda told: told["steps"][0]["parameters"].update(sigma=value)).problems
    assert any(problem.startswith("step 1 ") for problem in problems)


def test_an_unknown_kind_of_step_is_found(forged):
    (problem,) = forged(lambda told: told["steps"][1]["parameters"].update(kind="magic")).problems
    assert "step 2 can't be checked" in problem
    assert "does not know" in problem


def test_another_relation_is_found(forged):
    def other(told):
        told["guarantees"][0].update(relation="replace-one")
        del told["steps"][2]["parameters"]["relation"]  # add-remove is what a step means that does not say

    problems = forged(other).problems
    for step in (1, 2, 3):
        assert f"step {step} ran under another relation than the guarantee states" in problems


@pytest.mark.parametrize("name", ["name", "detail"])
def test_another_description_is_found(forged, name):
    (problem,) = forged(lambda told: told["steps"][0].update({name: "harmless"})).problems
    assert problem == "step 1 is described otherwise than in the guarantee"


def test_a_step_left_out_is_found(forged):
    assert any("not those of the guarantee" in p for p in forged(lambda told: told["steps"].pop()).problems)


def test_a_guarantee_from_nothing_is_found(forged):
    def nothing(told):
        told["guarantees"][0].update(epsilon=0, delta=0, steps=[])
        told["steps"] = []

    assert any("lacks a table, a guarantee, or the steps" in p for p in forged(nothing).problems)


def test_no_guarantee_is_found(forged):
    assert not forged(lambda told: told.update(guarantees=[], steps=[])).ok


def test_secrets_added_by_hand_are_found(forged):
    assert any("users_seen" in p for p in forged(lambda told: told["parameters"].update(users_seen=7)).problems)


def test_a_table_taken_out_of_the_list_is_found(forged):
    problems = forged(lambda told: told["files"].pop("clicks.parquet")).problems
    assert "clicks.parquet is not part of the release" in problems
    assert "clicks.parquet is missing from the manifest" in problems


def test_rows_that_the_manifest_does_not_state_are_found(forged):
    (problem,) = forged(lambda told: told["files"]["clicks.parquet"].update(rows=1)).problems
    assert "rows and columns" in problem


# ---- tables that disagree with the steps, hashes included ----------------------------------------------------------


def put(folder: Path, name: str, table) -> tuple[str, ...]:
    """Put another table into a release as a forger would."""
    told = json.loads((folder / "manifest.json").read_text())
    data = parquet_bytes(table.cast(pa.schema([field.with_nullable(False) for field in table.schema])))
    (folder / f"{name}.parquet").write_bytes(data)
    told["files"][f"{name}.parquet"].update(sha256=sha256(data), rows=table.num_rows, columns=table.column_names)
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))
    return verify(folder).problems


def test_a_count_below_the_threshold_is_found_and_one_at_it_is_not(copy, table_of):
    assert put(copy, "queries", table_of["queries"](["news", "weather leeds"], [80, 80])) == ()
    problems = put(copy, "queries", table_of["queries"](["news", "weather leeds"], [80, 79]))
    assert problems == ("a count in queries is below the threshold 80 of step 1",)


def test_an_order_that_is_not_ours_is_found(copy, table_of):
    (problem,) = put(copy, "queries", table_of["queries"](["weather leeds", "news"], [90, 95]))
    assert "order" in problem


def test_a_column_of_true_counts_is_found(copy, table_of):
    table = table_of["queries"](["weather leeds", "news"], [95, 90])
    problems = put(copy, "queries", table.append_column("true_count", table["count"]))
    assert any("queries.parquet: the table 'queries' does not have the columns" in p for p in problems)


def test_what_is_no_parquet_is_found(copy):
    told = json.loads((copy / "manifest.json").read_text())
    (copy / "queries.parquet").write_bytes(b"PAR1 not really PAR1")
    told["files"]["queries.parquet"]["sha256"] = sha256(b"PAR1 not really PAR1")
    (copy / "manifest.json").write_bytes(manifest_bytes(sign(told)))
    assert any("can't be read as Parquet" in problem for problem in verify(copy).problems)


def test_a_step_without_a_table_of_its_own_has_no_counts_to_check(forged):
    assert forged(lambda told: told["steps"][0]["parameters"].pop("table")).ok
    assert not forged(lambda told: told["steps"][0]["parameters"].update(table="users")).ok


def test_test_noise_is_whole_and_still_promises_nothing(recipe, tmp_path):
    found = verify(recipe(test_noise=True).make().save(tmp_path / "r"))
    assert found.ok
    assert found.guarantees[0].summary().startswith("NOT PRIVATE")


def test_the_cost_is_really_computed_from_the_parameters(whole, monkeypatch):
    asked = []

    def expensive(parameters):
        asked.append(parameters["kind"])
        return Loss(pure=("7",))

    monkeypatch.setattr(hushquery.release.verification, "loss_from", expensive)
    assert len(verify(whole).problems) == 3
    assert asked == ["gaussian-histogram", "gaussian-histogram", "laplace-histogram"]


def test_loading_names_what_is_wrong(copy):
    (copy / "README.md").write_text("nothing to see")
    with pytest.raises(DataError, match=r"README\.md was changed"):
        Release.load(copy)
