"""Users who are whole numbers stay numbers in the engine, and nothing else about a release or a part changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import hushquery as hq
from hushquery.curator.bound import Keep
from hushquery.hybrid.records import number_of_users, split_users
from hushquery.log.read import Log
from statistical import bits, number


def searches(kind: Literal["numbers", "texts"]) -> pa.Table:
    """Give 300 users with up to nine searches each, ties in time and clicks among them; one has no user."""
    draw = np.random.default_rng(number("whole numbers as users"))
    users = draw.integers(1, 301, 1500)
    words = draw.zipf(1.3, 1500) % 40
    times = draw.integers(0, 50, 1500) * 10**6
    ids: list[int | None] = [None, *users[1:].tolist()]
    return pa.table(
        {
            "user": pa.array(ids, pa.int32())
            if kind == "numbers"
            else pa.array([i if i is None else str(i) for i in ids]),
            "time": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "query": [f"query {word}" for word in words],
            "url": [f"https://{word % 3}.example/" if word % 2 else None for word in words],
        }
    )


@pytest.mark.parametrize("selector", ["gaussian", "guided", "korolova2009"])
@pytest.mark.parametrize("keep", ["first", "random"])
def test_the_same_bits_give_the_same_release(tmp_path: Path, keep: Keep, selector: Any) -> None:
    made = []
    for kind in ("numbers", "texts"):
        log = hq.read_log(searches(kind), exclude_users=["7", "200"])
        plan = hq.curate(
            log,
            epsilon=4,
            delta=1e-4,
            queries_per_user=3,
            clicks_per_user=2,
            keep=keep,
            selector=selector,
            population="readers",
        )
        release = plan.run(tmp_path / f"{kind}.db", bits=bits("whole numbers", selector, keep))
        made.append({name: table.to_pydict() for name, table in release.tables.items()})
    assert made[0]["queries"]["query"]
    assert made[0] == made[1]


def test_objections_and_parts_go_by_the_same_ids() -> None:
    def parts(log: Log) -> tuple[int, list[str]]:
        finders = split_users(log, "0.6", "key").finders
        return number_of_users(log), sorted(map(str, finders.to_pyarrow()["user"].to_pylist()))

    numbers, texts = (
        parts(hq.read_log(searches(kind), exclude_users=["7", "200", "9999", "x"])) for kind in ("numbers", "texts")
    )
    assert numbers == texts
    assert not {"7", "200"} & set(numbers[1])


def test_a_log_says_what_its_users_are() -> None:
    assert "user: int32" in repr(hq.read_log(searches("numbers")))
    assert "user: string" in repr(hq.read_log(searches("texts")))
