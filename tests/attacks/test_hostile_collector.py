"""A hostile collector serves every device what it likes, over 30 periods in which the device's value stays the same.

Whatever it serves, a device refuses it and spends nothing, or sends what it would have sent to an honest collector,
byte for byte; and all answers of a device together tell no more than its account says, by their exact law. The twin of
js/test/attacks.test.ts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from attacks.hostile import DAY, DAYS, DEVICES, NAMES, Collector, Victim, honest, kept, tried
from hushquery.errors import DataError
from hushquery.local.device.client import Client
from hushquery.local.device.fetch import fetch_task
from hushquery.local.device.store import ClientStore
from hushquery.task import Task

HEADED = [device for device in DEVICES if device["head"]]
HEADED_NAMES = [name for name, device in zip(NAMES, DEVICES, strict=True) if device["head"]]


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    yield server
    server.end()


def talkative(device: Any, collector: Collector, folder: Path) -> int:
    """Find a device whose first answer tells nearly as much as it may, so that one more would be seen."""
    for seed in range(100):
        victim = Victim(device, collector, folder / f"talkative{seed}.db", seed)
        for day in range(DAYS if "rappor" in device["task"]["client"] else 1):
            victim.period(day, honest(device))
        if victim.lost() >= Fraction(device["task"]["client"]["epsilon"]) * 3 / 5:
            return seed
    raise AssertionError("no answer tells anything")


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_the_same_bytes_or_nothing_whatever_is_served(device: Any, collector: Collector, tmp_path: Path) -> None:
    seed, usual = talkative(device, collector, tmp_path), honest(device)
    plain = Victim(device, collector, tmp_path / "plain.db", seed)
    for day in range(DAYS):
        plain.period(day, usual)
    assert len(plain.sent) == DAYS
    assert plain.lost() <= plain.spent
    documents = tried(device)
    collector.said.clear()
    accepted = refused = 0
    for at in range(0, len(documents), DAYS - 1):
        victim = Victim(device, collector, tmp_path / f"victim{at}.db", seed)
        victim.period(0, usual)
        for day, (how, document) in enumerate(documents[at : at + DAYS - 1], start=1):
            victim.period(day, document)
            assert victim.sent.get(day, plain.sent[day]) == plain.sent[day], how
        accepted += len(victim.sent) - 1
        refused += victim.refused
        assert victim.spent == plain.spent
        assert victim.lost() <= victim.spent
    assert refused > 60
    assert accepted > 5, "what no client uses may change without anybody noticing"
    assert len(set(collector.said)) == 1, "every request is the same, so that nothing links two of them"
    assert {name for name, _ in collector.said[0]} == {"Host", "Accept-Encoding"}


@pytest.mark.parametrize("device", HEADED, ids=HEADED_NAMES)
def test_a_new_list_in_every_period_is_paid_for(device: Any, collector: Collector, tmp_path: Path) -> None:
    victim = Victim(device, collector, tmp_path / "victim.db", 3)
    own = [*device["value"], ""][:2]
    seen, lists = [device["value"], ["never heard of"]], list[Any]()
    for day in range(DAYS):
        head = [*([f"query {day} {i}", ""] for i in range(2 + day % 3)), own]
        lists.append([day, honest(device, head)["configuration_hash"]])
        victim.period(day, honest(device, head, lists))
        seen.append(head[0])
    assert (victim.refused, len(victim.told)) == (0, DAYS)
    answers = sum(paid for _, _, paid in victim.told.values())
    client = Task.make(device["task"]).client
    assert victim.spent == answers * client.epsilon <= client.lifetime_epsilon
    assert victim.lost(seen) <= victim.spent


@pytest.mark.parametrize("device", HEADED, ids=HEADED_NAMES)
def test_a_list_for_one_device_alone_needs_a_log_for_it_alone(
    device: Any, collector: Collector, tmp_path: Path
) -> None:
    def log(head: list[list[str]], state: str) -> str:
        document = honest(device, head)
        collector.body = json.dumps(document).encode()
        return fetch_task(collector.address, device["id"], state=tmp_path / state).log

    everybodys, own = [["news", ""], ["maps", ""]], [["news", ""], ["something that only you search for", ""]]
    assert log(everybodys, "first.db") == log(everybodys, "second.db")
    with pytest.raises(DataError, match="another than before"):
        log(own, "first.db")
    # What remains: who is shown another log from the first time on, and compares it with nobody.
    assert log(own, "third.db") != log(everybodys, "first.db")


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_a_device_that_upgrades_repeats_what_it_has_kept(device: Any, tmp_path: Path) -> None:
    """The state is that of an earlier version, whose coins had another key and which had no table of logs."""
    state = tmp_path / "client.db"
    with ClientStore(state).transaction() as connection:
        connection.execute("DROP TABLE lists")
        for table, (insert, binary) in _INSERTS.items():
            for row in device["python"][table]:
                cells = [bytes.fromhex(cell) if place in binary else cell for place, cell in enumerate(row)]
                connection.execute(insert, cells)
    before = kept(state)
    ((*_, answer),) = before["memo"]
    now = device["time"]
    client = Client(Task.make(device["task"]), state, head=device["head"], clock=lambda: now)
    first = client.report(*device["value"])
    assert first is not None
    assert first.to_bytes() == before["report"][0][5]
    now += DAY
    second = client.report(*device["value"])
    assert second is not None
    # RAPPOR draws a fresh response from the kept one, in the kept cohort.
    same = 2 if client.configuration.channel.name == "rappor" else None
    assert second.payload[:same] == answer[:same]
    after = kept(state)
    assert (after["memo"], after["client"]) == (before["memo"], before["client"]), "a new draw"


# For each table how to fill it, and which of its columns are bytes.
_INSERTS = {
    "client": ("INSERT INTO client VALUES (?, ?, ?, ?)", {1}),
    "memo": ("INSERT INTO memo VALUES (?, ?, ?, ?, ?, ?)", {0, 2, 5}),
    "report": ("INSERT INTO report VALUES (?, ?, ?, ?, ?, ?, ?)", {1, 4, 5}),
}
