"""Real processes: kill -9 at every step of a report, and many that ask at once."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from hushquery.local.report import Report
from local.client_workers import COLOURS, POINTS, PROCESSES, colour_client, killed_at, race, report_on

RACERS = 8


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(tmp_path: Path, point: str) -> None:
    state = str(tmp_path / "client.db")
    process = PROCESSES.Process(target=killed_at, args=(state, point))
    process.start()
    process.join(timeout=60)
    assert process.exitcode == -signal.SIGKILL
    durable = POINTS[point]
    client = colour_client(state)
    waiting = client.outbox()
    assert len(waiting) == durable
    assert client.account().spent == durable, "a draw and its price belong together"
    answer = client.report("blue")
    if durable:  # it was drawn for another value, and it stays
        assert [answer] == waiting
    assert client.outbox() == [answer]
    assert client.account().spent == 1


def test_killed_at_any_moment_a_client_never_answers_differently(tmp_path: Path) -> None:
    state, chance = str(tmp_path / "client.db"), random.Random(20261115)
    handed_out: dict[int, bytes] = {}
    day = 20000
    for _ in range(8):
        listening, told = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=report_on, args=(state, day, told))
        process.start()
        told.close()
        wanted = chance.randrange(1, 6)
        try:
            while True:
                if wanted == 0:
                    # The next report is being made while this comes.
                    process.join(timeout=chance.uniform(0, 0.02))
                    process.kill()
                number, data = listening.recv()
                handed_out[number] = data
                day = number + 1
                wanted -= 1
        except (EOFError, OSError):  # the last one may have been cut off
            pass
        process.join(timeout=60)
        assert process.exitcode == -signal.SIGKILL
    assert len(handed_out) >= 8
    for number, data in handed_out.items():
        again = colour_client(state, number).report("red")
        assert again is not None
        assert again.to_bytes() == data
    # At most one report more was made, by each process as it died, than was handed out.
    assert len(handed_out) <= len(colour_client(state).outbox()) <= len(handed_out) + 8
    assert colour_client(state).account().spent <= len(COLOURS), "a repeated value was drawn anew"


@pytest.mark.parametrize("prepared", [False, True], ids=["no state yet", "day after day"])
def test_processes_that_ask_at_once_get_one_report(tmp_path: Path, prepared: bool) -> None:
    """Each asks with a value of its own."""
    state = str(tmp_path / "client.db")
    start, answers = PROCESSES.Barrier(RACERS), PROCESSES.Queue()
    racers = [
        PROCESSES.Process(target=race, args=(state, number, start, answers), kwargs={"prepared": prepared})
        for number in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    answers.close()
    assert len(set(found)) == 1
    assert len(set(found[0])) == (10 if prepared else 1)
    assert colour_client(state).outbox() == [Report.from_bytes(data) for data in found[0]]
    assert colour_client(state).account().spent <= min(len(found[0]), len(COLOURS))
