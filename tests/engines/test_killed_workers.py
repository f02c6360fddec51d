"""A worker that dies changes nothing: one release, the one of an undisturbed run, and the ledger is charged once."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statistical
from hushquery.core.ledger.ledger import Ledger
from hushquery.curator import counting as count
from hushquery.curator.plan import plan_release
from hushquery.errors import DataError
from hushquery.log import read_log

ASKED = {"epsilon": 12, "delta": 0.3, "queries_per_user": 8, "selector": "laplace", "population": "the users"}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log in which many queries share a low count, so that the engine is asked several times."""
    monkeypatch.setattr("hushquery.curator.counting.WORTH_A_BINOMIAL", 10)
    rows = [(f"u{(7 * n + 13 * h) % 97}", f"query {n:03}", 1000 * n + h) for n in range(90) for h in range(1 + n % 5)]
    path = tmp_path / "log.parquet"
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip(("user", "query", "time"), map(list, columns), strict=True))), path)
    return path


def made(log, book, engine=None):
    return plan_release(read_log(log, engine=engine), **ASKED).run(book, bits=statistical.bits("killed"))


def spends(book):
    return [entry for entry in book.history() if entry.kind == "spend"]


def asked_in_between(monkeypatch, what):
    """Do something after the engine has answered its first question about the counts; say how many there were."""
    asked = []

    def execute(expression, ask=count.execute):
        answer = ask(expression)
        asked.append(1)
        if len(asked) == 1:
            what()
        return answer

    monkeypatch.setattr(count, "execute", execute)
    return asked


def test_between_two_questions(log, spark, spark_cluster, tmp_path, monkeypatch):
    expected = made(log, tmp_path / "here.db").tables["queries"]
    asked = asked_in_between(monkeypatch, spark_cluster.kill_worker)
    book = Ledger.open(tmp_path / "there.db")
    found = made(log, book, spark).tables["queries"]
    assert spark_cluster.alive() == 1
    assert len(asked) > 2  # the sizes, the few, and those that noise lifted
    assert 5 < expected.num_rows < 90
    assert found.equals(expected)
    assert len(spends(book)) == 1


def test_while_it_counts(log, spark, spark_cluster, tmp_path):
    expected = made(log, tmp_path / "here.db").tables["queries"]
    jobs, killed, done = spark._session.sparkContext.statusTracker(), [], threading.Event()
    plan = plan_release(read_log(log, engine=spark), **ASKED)

    def kill_at_work():
        while not jobs.getActiveJobsIds():
            if done.is_set():  # the release ended before it was seen at work
                return
        spark_cluster.kill_worker()
        killed.append(1)

    killer = threading.Thread(target=kill_at_work)
    killer.start()
    book = Ledger.open(tmp_path / "there.db")
    try:
        found = plan.run(book, bits=statistical.bits("killed")).tables["queries"]
    finally:
        done.set()
        killer.join()
    assert killed
    assert found.equals(expected)
    assert len(spends(book)) == 1


def test_when_all_copies_of_the_counts_are_gone_nothing_is_released(log, spark, spark_cluster, tmp_path, monkeypatch):
    """They are not counted again: the log may have changed, and the answers must be about one and the same counts."""

    def lose_all():
        spark_cluster.kill_worker()
        spark_cluster.kill_worker()
        spark_cluster.add_workers(2)

    asked_in_between(monkeypatch, lose_all)
    book = Ledger.open(tmp_path / "there.db")
    with pytest.raises(DataError, match="after the budget was spent; nothing was released"):
        made(log, book, spark)
    assert len(spends(book)) == 1
