"""Report format v1: one way to write a report, every other way refused, the same bytes as the golden vectors."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.report import (
    HEADER_BYTES,
    Report,
    ReportError,
    ReportMalformed,
    ReportOfAnotherConfiguration,
    ReportOfAnotherTask,
    ReportOutOfDomain,
    ReportTimeInvalid,
    ReportVersionUnknown,
    from_base64url,
)
from hushquery.task import Task, template

ROOT = Path(__file__).resolve().parent.parent.parent
VECTORS: dict[str, Any] = json.loads((ROOT / "vectors" / "report_v1.json").read_text())
CONFIGURATION = Configuration.of(Task.loads(template("setting")))

REPORTS = st.builds(
    Report,
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**53 - 1),
    st.binary(max_size=70),
)


def report(**changes: Any) -> Report:
    fields: dict[str, Any] = {
        "id": bytes(range(16)),
        "task": CONFIGURATION.task.digest,
        "configuration": CONFIGURATION.digest,
        "time": 1800,
        "payload": CONFIGURATION.oracle.pack(1),
    }
    return Report(**(fields | changes))


@given(REPORTS)
@settings(max_examples=100, deadline=None)
def test_all_forms_round_trip(one: Report) -> None:
    data = one.to_bytes()
    assert len(data) == HEADER_BYTES + len(one.payload) == 91 + len(one.payload)
    assert Report.from_bytes(data) == one
    assert Report.from_bytes(from_base64url(one.to_text())) == one
    assert str(one) == one.to_text()
    assert Report.from_json(one.to_json()) == one
    assert Report.from_json(json.dumps(one.to_json())) == one


@given(REPORTS, st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_length_is_refused(one: Report, data: st.DataObject) -> None:
    whole = one.to_bytes()
    with pytest.raises(ReportMalformed):
        Report.from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ReportMalformed, match="behind its end"):
        Report.from_bytes(whole + data.draw(st.binary(min_size=1, max_size=5)))


@given(st.binary(max_size=200) | st.binary(max_size=120).map(lambda rest: b"\x01" + rest))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_one_report_or_refused(data: bytes) -> None:
    try:
        one = Report.from_bytes(data)
    except ReportError:
        return
    assert one.to_bytes() == data  # no two byte strings are the same report


@given(st.text(max_size=60) | st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_is_refused_by_an_error_of_ours(text: str | bytes) -> None:
    with pytest.raises(ReportError):
        Report.from_json(text)


PLAIN: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.lists(st.none(), max_size=2)
)


@given(REPORTS, st.sampled_from(["version", "id", "task", "configuration", "time", "payload"]), PLAIN)
@settings(max_examples=200, deadline=None)
def test_a_changed_field_is_another_report_or_refused(one: Report, name: str, value: Any) -> None:
    changed = one.to_json() | {name: value}
    try:
        read = Report.from_json(changed)
    except ReportError:
        return
    assert read.to_json() == changed
    assert type(value) is not bool


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "[" * 50_000,
        '{"version": 1',
        '{"version":1,"version":1,"id":"","task":"","configuration":"","time":0,"payload":""}',
        b"\xff\xfe{}",
        "x" * 200_000,
    ],
)
def test_no_json_report(text: str | bytes) -> None:
    with pytest.raises(ReportMalformed):
        Report.from_json(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "AAECAwQFBgcICQoLDA0ODw=="),  # padding
        ("id", "AAECAwQFBgcICQoLDA0ODx"),  # spare bits set: another spelling of the same bytes
        ("payload", "A+/"),  # the other alphabet
        ("payload", "AQ\n"),
        ("payload", "é"),
        ("time", 1800.0),
        ("time", -1),
        ("time", 2**53),
        ("time", True),
        ("task", "AA"),
        ("extra", 1),
    ],
)
def test_another_spelling_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ReportMalformed):
        Report.from_json(report().to_json() | {name: value})


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.0, True])
def test_unknown_versions(version: Any) -> None:
    with pytest.raises(ReportVersionUnknown):
        Report.from_json(report().to_json() | {"version": version})
    if type(version) is int:
        with pytest.raises(ReportVersionUnknown):
            Report.from_bytes(bytes([version]) + report().to_bytes()[1:])


def test_a_newer_version_with_other_keys_is_called_that() -> None:
    with pytest.raises(ReportVersionUnknown):
        Report.from_json({"version": 2, "nonce": "AA"})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"task": bytes(32)}, ReportOfAnotherTask),
        ({"configuration": bytes(32)}, ReportOfAnotherConfiguration),
        ({"time": 1801}, ReportTimeInvalid),
        ({"payload": b"\xfa"}, ReportOutOfDomain),
        ({"payload": b""}, ReportOutOfDomain),
        ({"payload": b"\x01\x00"}, ReportOutOfDomain),
    ],
)
def test_what_does_not_belong_is_refused_and_told_apart(changes: dict[str, Any], error: type[ReportError]) -> None:
    with pytest.raises(DataError) as caught:
        report(**changes).open(CONFIGURATION)
    assert type(caught.value) is error
    assert "250" not in str(caught.value), "an error shows what was in the payload"


def test_what_belongs_is_opened() -> None:
    assert report().open(CONFIGURATION) == 1


@pytest.mark.parametrize(
    "changes",
    [{"id": bytes(15)}, {"task": "x"}, {"time": -1}, {"time": 1.0}, {"time": 2**53}, {"payload": bytes(2**16)}],
)
def test_no_such_report_can_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        report(**changes)


# ---- golden vectors ----------------------------------------------------------------------------------------


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vectors_tool", ROOT / "tools" / "vectors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_vectors_are_what_the_tool_makes() -> None:
    assert json.loads(json.dumps(tool().build())) == VECTORS, "run `python tools/vectors.py` if this is meant"


def test_the_calibrations_are_those_of_the_code() -> None:
    """Every eleventh of each kind: clients in other languages compute the same integers from the task alone."""
    made = tool()
    cells, epsilons, urls, numbers = made.CELLS, made.EPSILONS, made.URLS, made.NUMBERS
    golden = json.loads((ROOT / "vectors" / "calibrations_v1.json").read_text())
    for name, grid in (("lists", cells), ("two_stage", urls), ("numbers", numbers)):
        assert len(golden[name]) == len(grid) * len(epsilons)
    for place in range(0, len(epsilons) * len(cells), 11):
        row, column = divmod(place, len(epsilons))
        made.CELLS, made.EPSILONS = [cells[row]], [epsilons[column]]
        made.URLS, made.NUMBERS = [urls[row % len(urls)]], [numbers[row % len(numbers)]]
        found = json.loads(json.dumps(made.calibrations()))
        assert found["lists"] == [golden["lists"][place]]
        for name, grid in (("two_stage", urls), ("numbers", numbers)):
            assert found[name] == [golden[name][row % len(grid) * len(epsilons) + column]]


def test_ids_that_were_given_stay() -> None:
    """Whatever tasks learn to say, the hashes of those that were written before do not change."""
    pinned = {
        0: ("5a4a7474adbbfbbc", "90dde54926b7ca12"),
        5: ("73c75574f6ddf62d", "f742b659a143c50d"),
    }
    for place, (task, configuration) in pinned.items():
        case = VECTORS["tasks"][place]
        assert case["task"]["id"].startswith(task)
        assert case["configuration"]["hash"].startswith(configuration)


def id_of(served: dict[str, Any]) -> str:
    """Follow docs/report-format.md: what a client in another language does with the task that it was served."""
    gone = {"client": ["enabled"], "collect": ["clock_skew", "max_body", "min_batch", "origins", "retention"]}
    kept = {
        part: {key: value for key, value in keys.items() if key not in gone.get(part, [])} if keys else None
        for part, keys in served.items()
    }
    assert list(kept["collect"] or {}) == ["time_precision"]
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def test_what_only_a_collector_uses_is_served_and_not_hashed() -> None:
    plain, changed = VECTORS["tasks"][6]["task"], VECTORS["tasks"][7]["task"]
    assert plain["id"] == changed["id"]
    assert plain["canonical"] == changed["canonical"]
    differ = {
        key
        for key in plain["served"]["collect"]
        if plain["served"]["collect"][key] != changed["served"]["collect"][key]
    }
    assert differ == {"clock_skew", "max_body", "min_batch", "origins", "retention"}


@pytest.mark.parametrize("case", VECTORS["tasks"], ids=lambda case: case["task"]["id"][:8])
def test_golden_reports(case: dict[str, Any]) -> None:
    configuration = Configuration.of(Task.loads(case["toml"]), case["head"])
    assert configuration.task.id == case["task"]["id"] == id_of(case["task"]["served"])
    assert configuration.digest.hex() == case["configuration"]["hash"]
    for golden in case["reports"]:
        one = Report.from_bytes(bytes.fromhex(golden["bytes"]))
        assert one == Report.from_json(golden["json"])
        said = one.open(configuration)
        plain = said.hex() if isinstance(said, bytes) else list(said) if isinstance(said, tuple) else said
        assert plain == golden["answer"]


@pytest.mark.parametrize("golden", VECTORS["refused"], ids=lambda golden: golden["error"])
def test_golden_refusals(golden: dict[str, str]) -> None:
    configuration = Configuration.of(Task.loads(VECTORS["tasks"][0]["toml"]))
    with pytest.raises(ReportError) as caught:
        Report.from_bytes(bytes.fromhex(golden["bytes"])).open(configuration)
    assert type(caught.value).__name__ == golden["error"]
