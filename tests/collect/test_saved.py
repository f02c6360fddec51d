"""``hushquery collect save``: what a collector published, as a folder that the other commands read."""

from __future__ import annotations

from pathlib import Path

import pytest

from collect.commands import run
from collect.helpers import SETTING, Clock, make_report, put, running, settings_for
from collect.test_collect_cli import TASK
from collect.test_hybrid_work import TEXT, open_accounts, whole_epoch
from collect.test_local_work import TEXTS
from hushquery.errors import NotReady, UsageError
from hushquery.local.device.client import Client
from hushquery.local.server.estimate import ClientEstimate, estimate
from hushquery.noise.sampler import SeededBits
from hushquery.release import Release, verify
from hushquery.task import Task

WORDS = ["news.example", "weather.example"]


def test_estimates(store_url: str, folder: Path, clock: Clock) -> None:
    out, where = folder / "estimate", ("--store", store_url)
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        for number in range(5):
            put(client, make_report(TASK, number))
        with pytest.raises(NotReady, match="not published"):
            run("save", "--out", str(out), *where)
        collector.phases.advance(TASK, 1, 0, "closed")
        moved = collector.phases.advance(TASK, 1, 0, "released")
        assert moved.counts is not None
        run("save", "--out", str(out), *where)
    saved = ClientEstimate.load(out)
    assert (saved.n, saved.support.tolist()) == (moved.counts["n"], moved.counts["support"])
    assert verify(out).ok
    with pytest.raises(UsageError, match="exists"):
        run("save", "--out", str(out), *where)
    (folder / "words.txt").write_text("dark\n")
    with pytest.raises(UsageError, match="only a task of texts"):
        run("save", "--out", str(folder / "other"), "--candidates", str(folder / "words.txt"), *where)


def test_a_release(store_url: str, folder: Path, clock: Clock) -> None:
    open_accounts(folder, epochs=1)
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        released = whole_epoch(client, collector, clock)
        served = client.get(f"/v1/releases/{released.release}").json()
    run("save", "--out", str(folder / "release"), "--epoch", str(released.number), "--store", store_url)
    saved = Release.load(folder / "release")
    assert saved.tables["queries"].to_pydict() == served["tables"]["queries"]
    assert [one.to_json() for one in saved.guarantees] == served["guarantees"]


def test_texts_are_decoded_for_candidates(store_url: str, folder: Path, clock: Clock) -> None:
    task, reports = Task.loads(TEXTS), []
    with running(settings_for(store_url, folder, TEXTS), clock) as (client, collector):
        for name in range(200):
            one = Client(task, folder / "clients.db", f"client {name}", clock=clock, bits=SeededBits(name))
            report = one.report(WORDS[name % 4 == 0])
            assert report is not None
            reports.append(report)
            assert put(client, report).status_code == 201
        collector.phases.advance(task, 1, 0, "closed")
        assert collector.phases.tick({1: task}) == []  # nothing to be tried again and again
    where = ("--store", store_url)
    with pytest.raises(NotReady, match="--candidates looks for texts"):
        run("save", "--out", str(folder / "estimate"), *where)
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    run("save", "--candidates", str(folder / "words.txt"), "--out", str(folder / "estimate"), *where)
    saved = ClientEstimate.load(folder / "estimate")
    assert saved.to_json() == estimate(task, reports, candidates=WORDS).to_json()
    assert (saved.n, saved.period) == (200, 0)


def test_too_few_texts_are_not_decoded(store_url: str, folder: Path, clock: Clock) -> None:
    task = Task.loads(TEXTS)
    with running(settings_for(store_url, folder, TEXTS), clock) as (client, collector):
        report = Client(task, folder / "clients.db", clock=clock).report(WORDS[0])
        assert report is not None
        put(client, report)
        collector.phases.advance(task, 1, 0, "closed")
    (folder / "words.txt").write_text(WORDS[0])
    with pytest.raises(NotReady, match="min_batch is 3"):
        run("save", "--candidates", str(folder / "words.txt"), "--out", str(folder / "out"), "--store", store_url)
