"""A saved estimate: what is read back, and that whatever is damaged in it is refused with words."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.local.server.estimate import DATA_FILE, TABLE_FILE, ClientEstimate, estimate
from setting_reports import FIXED, REPORTS, TASK

GOOD = REPORTS[0]
SAVED = estimate(TASK, [*REPORTS, GOOD, b""], post="clip")


def test_saved_and_loaded(tmp_path: Path) -> None:
    found = SAVED
    found.save(tmp_path / "est")
    again = ClientEstimate.load(tmp_path / "est")
    assert again.to_json() == found.to_json()
    assert again.table == found.table
    assert (again.digest, again.n, again.refused) == (FIXED.digest, 1000, {"ReportMalformed": 1})
    assert again.support.tolist() == found.support.tolist()
    assert again.support.dtype == np.int64
    table = pq.read_table(tmp_path / "est" / TABLE_FILE)
    assert table.column_names == ["value", "estimate", "stderr", "low", "high"]
    assert table["estimate"].to_pylist() == found.table.values
    with pytest.raises(UsageError, match="or delete that one first"):
        found.save(tmp_path / "est")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"format_version": 2},
        {"n": -1},
        {"n": 1.0},
        {"support": [1, -1, 0, 0]},
        {"support": [1.5]},
        {"support": None},
        {"configuration": "00"},
        {"estimates": [{"label": "x"}]},
        {"guarantee": None},
        {"level": 7},
        {"refused": {"x": "y"}},
        {"refused": [1]},
        {"refused": {}},  # then the counts do not add up
        {"mechanism": 5},
        {"n": 0},
        {"n": 10**400},
        {"n": 10**6, "read": 10**6 + 3},
        {"support": [10**6, 0, 0, 0]},
        {"support": {"0": 1}},
        {"support": []},
        {"support": [[1], [2]]},
        {"periods": 1},
        {"periods": []},
        {"periods": [1, 0]},
        {"periods": [0, 0]},
        {"periods": [True]},
        {"level": "x"},
        {"notes": "abc"},
        {"notes": [5]},
        {"estimates": {"label": "x"}},
        {"estimates": ["x"]},
        {"estimates": [{"label": "x", "estimate": 1e300, "stderr": 1, "low": 0, "high": 1}]},
        {"task": 5},
        {"guarantee": []},
        {"guarantee": {"model": "local"}},
    ],
)
def test_a_damaged_estimate_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        ClientEstimate.from_json(SAVED.to_json() | change)
    (tmp_path / DATA_FILE).write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        ClientEstimate.load(tmp_path)
    with pytest.raises(DataError, match="holds no"):
        ClientEstimate.load(tmp_path / "nowhere")


def test_a_guarantee_that_its_steps_or_the_mechanisms_integers_exceed_is_refused() -> None:
    good = json.loads(json.dumps(SAVED.to_json()))
    assert ClientEstimate.from_json(good).guarantee == SAVED.guarantee
    step, lie = good["guarantee"]["steps"][0], good["mechanism"]["lie"]
    exact = step["loss"]["pure"][0]

    def changed(epsilon: float, **parts: Any) -> dict[str, Any]:
        steps = [{**step, **{name: parts[name] for name in ("name", "loss") if name in parts}}]
        return good | {
            "guarantee": good["guarantee"] | {"epsilon": epsilon, "steps": steps},
            "mechanism": good["mechanism"] | parts.get("mechanism", {}),
        }

    def loss(pure: str) -> dict[str, Any]:
        return step["loss"] | {"pure": [pure]}

    for damaged in (
        changed(0.1),  # less than its step costs
        changed(0.01, loss=loss("1/100")),  # less than the integers cost
        changed(3.0, loss=loss("3")),  # no number of answers costs that
        changed(good["guarantee"]["epsilon"], mechanism={"lie": lie // 2}),
        changed(good["guarantee"]["epsilon"], name="oue"),
        changed(good["guarantee"]["epsilon"], mechanism={"name": "onebit"}),
    ):
        with pytest.raises(DataError):
            ClientEstimate.from_json(damaged)
    twice = str(2 * Fraction(exact))
    again = ClientEstimate.from_json(changed(4.0, loss=loss(twice)))  # two answers of each client
    assert again.table.guarantee is not None
    assert again.table.guarantee.epsilon == 4


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / DATA_FILE).open("wb") as file:
        file.truncate(2**29 + 1)
    with pytest.raises(DataError, match="too large"):
        ClientEstimate.load(tmp_path)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Give the way to everything in plain data."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(way for key, value in inner for way in places(value, (*path, key)))]


PLAIN = json.loads(json.dumps(SAVED.to_json()))
ODD = [None, True, -1, 0, 0.5, 10**400, 1e308, float("nan"), float("inf"), "", "x", "1/0", [], [None], {}, {"x": None}]


@given(st.sampled_from(places(PLAIN)[1:]), st.sampled_from(ODD))
@settings(max_examples=400, deadline=None)
def test_whatever_is_damaged_is_read_as_it_stands_or_refused(way: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(PLAIN)
    inner = data
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    try:
        found = ClientEstimate.from_json(data)
    except DataError:
        return
    assert found.n + found.repeated + sum(found.refused.values()) == found.read
    assert json.dumps(found.to_json())
    assert str(found)
