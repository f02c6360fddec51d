"""Bodies: what is written is read again, and whatever else comes is refused without a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collect.helpers import SEARCHES, SETTING, make_report
from hushquery.collect.http.ingest import (
    BINARY,
    JSON,
    MOST_REPORTS,
    pack_batch,
    read_batch,
    read_id,
    read_records,
    read_report,
    write_id,
)
from hushquery.collect.http.problems import PROBLEMS, Refusal, document, problem_of
from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.local.report import Report, ReportError
from hushquery.task import Task

TASK = Task.loads(SETTING)
HYBRID = Task.loads(SEARCHES)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def status_of(read: Callable[..., Any], *arguments: Any) -> int:
    """The status that a request would get: 200 if it can be read."""
    try:
        read(*arguments)
    except HushqueryError as error:
        return problem_of(error).status
    return 200


@given(st.binary(min_size=16, max_size=16))
def test_ids_come_back(data: bytes) -> None:
    assert read_id(write_id(data)) == data


@given(st.text(max_size=30))
def test_there_is_one_way_to_write_an_id(text: str) -> None:
    status = status_of(read_id, text)
    assert status == 400 or write_id(read_id(text)) == text


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_each_item_of_a_batch_gets_an_answer(items: list[bytes]) -> None:
    found = read_batch(BINARY, pack_batch(items))
    assert len(found) == len(items)
    for item, one in zip(items, found, strict=True):
        if isinstance(one, Report):
            assert one.to_bytes() == item
        else:
            assert isinstance(one, ReportError)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.data())
def test_good_reports_survive_bad_neighbours(numbers: list[int], data: st.DataObject) -> None:
    good = [make_report(TASK, number) for number in numbers]
    bad = data.draw(st.lists(VALUES, max_size=4))
    mixed: list[Any] = [report.to_json() for report in good]
    places: list[int] = []
    for item in bad:
        place = data.draw(st.integers(0, len(mixed)))
        mixed.insert(place, item)
        places = [at + (at >= place) for at in places] + [place]
    found = read_batch(JSON, json.dumps({"reports": mixed}).encode())
    assert [one for one in found if isinstance(one, Report)] == good
    assert sorted(places) == [at for at, one in enumerate(found) if not isinstance(one, Report)]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for kind in (BINARY, JSON, "text/plain", ""):
        for read in (read_report, read_batch, lambda k, b: read_records(k, b, HYBRID)):
            assert status_of(read, kind, body) in (200, 400, 413, 415)


@given(VALUES)
def test_any_json_is_read_or_refused(value: Any) -> None:
    for wrapped in (value, {"reports": value}, {"records": value}, {"records": [value]}):
        body = json.dumps(wrapped).encode()
        for read in (read_report, read_batch, lambda k, b: read_records(k, b, HYBRID)):
            assert status_of(read, JSON, body) in (200, 400)


def test_a_repeated_key_spoils_its_report_only() -> None:
    good = json.dumps(make_report(TASK).to_json())
    twice = good[:-1] + ', "time": 0}'
    found = read_batch(JSON, f'{{"reports": [{good}, {twice}, {good}]}}'.encode())
    assert [isinstance(one, Report) for one in found] == [True, False, True]
    with pytest.raises(Refusal):
        read_batch(JSON, f'{{"reports": [], "reports": [{good}]}}'.encode())


def bodies(number: int) -> dict[str, bytes]:
    """As many shortest possible items, in both forms."""
    return {BINARY: pack_batch([b""] * number), JSON: b'{"reports":[' + b",".join([b"1"] * number) + b"]}"}


@pytest.mark.parametrize("kind", [BINARY, JSON])
def test_the_work_of_a_batch_is_bounded_by_its_length(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(item: Any) -> Report:
        read.append(1)
        raise ReportError("x")

    monkeypatch.setattr(Report, "from_bytes" if kind == BINARY else "from_json", counted)
    body = bodies(9999)[kind]
    with pytest.raises(Refusal) as caught:
        read_batch(kind, body)
    assert caught.value.problem.status == 400
    assert len(read) <= 16 + len(body) // 90
    read.clear()
    assert len(read_batch(kind, bodies(16)[kind])) == len(read) == 16  # a few broken ones are answered one by one


@pytest.mark.parametrize("kind", [BINARY, JSON])
def test_as_many_reports_as_fit_are_never_too_many(kind: str) -> None:
    shortest = Report(bytes(16), TASK.digest, bytes(32), 0, b"")
    for number in (1, 17, 100, MOST_REPORTS):
        body = pack_batch([shortest.to_bytes()] * number)
        if kind == JSON:
            body = json.dumps({"reports": [shortest.to_json()] * number}, separators=(",", ":")).encode()
        assert read_batch(kind, body) == [shortest] * number


def test_too_many_reports() -> None:
    one = make_report(TASK).to_bytes()
    with pytest.raises(Refusal) as caught:
        read_batch(BINARY, pack_batch([one] * (MOST_REPORTS + 1)))
    assert caught.value.problem.status == 413


def test_problems_and_their_statuses() -> None:
    statuses = {problem.status for problem in PROBLEMS.values()}
    assert statuses >= {400, 401, 404, 409, 410, 413, 422, 425, 429, 503}
    assert sum(problem.status == 422 for problem in PROBLEMS.values()) == 3
    assert len({problem.uri for problem in PROBLEMS.values()}) == len(PROBLEMS)
    cases = [
        (Unavailable("x", why="host db.internal"), 503),
        (DataError("x"), 503),
        (NotReady("x"), 425),
        (UsageError("x"), 400),
        (HushqueryError("x"), 500),
    ]
    for error, status in cases:
        data = document(error)
        assert data["status"] == status
        assert data["type"].startswith("urn:hushquery:problem:")
        assert "db.internal" not in json.dumps(data)
