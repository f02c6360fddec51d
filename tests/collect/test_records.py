"""Opt-in records: tokens, encryption at rest, and that nothing of them is left once the head list is published."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from collect.commands import run as cli
from collect.helpers import SEARCHES, SETTING, Clock, Crash, FakeWork, random_id, running, settings_for
from hushquery.collect.collector import Collector
from hushquery.collect.epochs.epochs import Epoch
from hushquery.collect.http.ingest import read_records, write_id
from hushquery.collect.store.vault import Forgotten, Tokens, Vault, read_operator_key
from hushquery.errors import DataError, UsageError
from hushquery.task import Task

TASK = Task.loads(SEARCHES)
RECORDS = [["rash on left arm", "https://doctor.example/skin"], ["lost my job", ""]]
WORDS = [b"rash on left arm", b"doctor.example", "rash".encode("utf-16-le"), b"lost my job"]


def give(client: Any, token: str | None, records: Any = RECORDS, record_id: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    path = f"/v1/tasks/{TASK.id}/records/{write_id(record_id or random_id())}"
    return client.put(path, content=json.dumps({"records": records}), headers=headers)


def kind(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:hushquery:problem:")


def advance(collector: Collector) -> None:
    collector.phases.advance(TASK, 1, TASK.period_at(collector.cache.now()))
    collector.cache.refresh()


def hybrid(collector: Collector) -> FakeWork:
    """Put the faked work of the hybrid into a collector."""
    work = FakeWork(collector.store, collector.vault)
    collector.phases._work = work
    return work


def test_records_need_a_token(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SEARCHES, SETTING), clock) as (client, collector):
        tokens = Tokens(collector.store, clock)
        good = tokens.new(1, "ward 3")
        other_task = tokens.new(2)
        name, _, secret = good.removeprefix("hq_").partition(".")
        flipped = ("A" if secret[-1] != "A" else "B").join([secret[:-1], ""])
        for bad in (None, "", "x", good + "x", other_task, f"hq_{name}.{flipped}", f"hq_{'0' * 16}.{secret}", "é"):
            headers = {} if bad is None else {b"Authorization": f"Bearer {bad}".encode()}
            path = f"/v1/tasks/{TASK.id}/records/{write_id(random_id())}"
            answer = client.put(path, json={"records": RECORDS}, headers=headers)
            assert kind(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        basic = {"Authorization": f"Basic {good}"}
        assert client.put(path, json={"records": RECORDS}, headers=basic).status_code == 401
        record_id = random_id()
        assert give(client, good, record_id=record_id).status_code == 201
        assert give(client, good, record_id=record_id).status_code == 200
        assert kind(give(client, good, [["other", ""]], record_id)) == (409, "other-bytes")
        assert kind(give(client, good)) == (409, "contributed")  # a second contribution of the same person
        tokens.revoke(name)
        assert kind(give(client, good, record_id=record_id)) == (401, "unauthorized")
        shared = tokens.new(1, shared=True)
        assert [give(client, shared).status_code for _ in range(3)] == [201] * 3
        assert [token.note for token in tokens.listed() if token.revoked] == ["ward 3"]


def test_tokens_are_kept_as_hashes(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (_, collector):
        secret = Tokens(collector.store, clock).new(1).rpartition(".")[2]
        assert len(secret) == 43
        assert secret.encode() not in everything(store_url)
        with pytest.raises(UsageError, match="no token"):
            Tokens(collector.store, clock).revoke("nobody")


@pytest.mark.parametrize(
    "records",
    [
        [["q", ""]] * 3,
        [["q"]],
        ["q"],
        [["q", 1]],
        "q",
        None,
    ],
    ids=range(6),
)
def test_malformed_records(store_url: str, folder: Path, clock: Clock, records: Any) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        token = collector.tokens.new(1)
        answer = give(client, token, records)
        assert kind(answer) == (400, "malformed")
        assert give(client, token).status_code == 201


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SEARCHES.replace("[client]", 'relation = "add-remove"\n[client]', 1), "add-remove"),
        (re.sub(r"\[optin\].*?(?=\[client\])", "", SEARCHES, flags=re.DOTALL), "needs an .optin. part"),
    ],
    ids=["add-remove", "no optin"],
)
def test_a_task_that_can_not_be_finished_takes_no_records(folder: Path, clock: Clock, text: str, why: str) -> None:
    """Of what people give to it no head list could ever be made."""
    Task.loads(text)
    with pytest.raises(UsageError, match=why):
        Collector(settings_for(f"sqlite:///{folder}/collector.db", folder, text), clock=clock)
    assert not (folder / "keys").exists()


def test_a_user_may_have_nothing_to_give(store_url: str, folder: Path, clock: Clock) -> None:
    """Refusing it would keep such users away, and the number of users would tell."""
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        assert give(client, collector.tokens.new(1), []).status_code == 201


@pytest.mark.parametrize(
    "unusable", [["", ""], [" ", ""], ["q" * 5000, ""], ["q", "u" * 5000], ["q\0", ""], ["\ud800", ""]], ids=range(6)
)
def test_a_record_that_no_list_could_hold_is_left_out_and_its_user_counts(
    store_url: str, folder: Path, clock: Clock, unusable: list[str]
) -> None:
    """Else whoever searched for such a thing stays away, and the published number of users tells it."""
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        assert give(client, collector.tokens.new(1), [unusable]).status_code == 201
        assert give(client, collector.tokens.new(1), [unusable, ["news", ""]]).status_code == 201
        epoch = collector.cache.current(1)
        assert epoch is not None
        assert sorted(records for _, records in collector.vault.records(epoch)) == [[], [["news", ""]]]


def everything(url: str) -> bytes:
    """Read every file in which the store may have kept something, write-ahead logs included."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        files = sorted(path.parent.glob(f"{path.name}*"))
        assert path in files
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute("SHOW data_directory").fetchone()
        assert row is not None
        files = [path for path in Path(row[0]).rglob("*") if path.is_file()]
        assert any("pg_wal" in path.parts for path in files)
    found = []
    for path in files:
        with suppress(FileNotFoundError):  # a running server makes and removes files
            found.append(path.read_bytes())
    return b"".join(found)


@pytest.mark.parametrize("wrapped", [False, True], ids=["key file", "operator key"])
def test_neither_plain_text_nor_key_is_in_any_file(
    new_store: Callable[[], str], folder: Path, clock: Clock, wrapped: bool
) -> None:
    url = new_store()
    more = {}
    if wrapped:
        (folder / "operator").write_text(b64encode(os.urandom(32)).decode() + "\n")
        more = {"operator_key_file": str(folder / "operator")}
    with running(settings_for(url, folder, SEARCHES, **more), clock) as (client, collector):
        work = hybrid(collector)
        shared = collector.tokens.new(1, shared=True)
        assert all(give(client, shared).status_code == 201 for _ in range(20))
        (key_file,) = (folder / "keys").iterdir()
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        epoch = collector.cache.current(1)
        assert epoch is not None
        secret = collector.vault._secret(epoch, make=False)
        assert len(secret) == 32
        assert (secret in key_file.read_bytes()) is not wrapped
        ciphertext = read_ciphertext(url)
        before = everything(url)
        assert ciphertext in before  # this does look where the records are
        assert not [word for word in (*WORDS, secret, key_file.read_bytes()[4:]) if word in before]
        advance(collector)
        assert work.seen == [RECORDS] * 20  # the head list was made of what was given
        assert not list((folder / "keys").iterdir())
        after = everything(url)
        assert not [word for word in (*WORDS, secret) if word in after]
        if url.startswith("sqlite"):
            assert ciphertext not in after
        assert read_ciphertext(url) is None
        assert kind(give(client, collector.tokens.new(1))) == (410, "phase-over")
        assert not list((folder / "keys").iterdir())  # a late record makes no new key


def read_ciphertext(url: str) -> Any:
    from ledger.workers import sql

    rows = sql(url, "SELECT ciphertext FROM hushquery_collect_record ORDER BY id LIMIT 1")
    return bytes(rows[0][0]) if rows else None


def test_the_folder_of_a_new_key_survives_a_power_cut(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record is acknowledged when its key is durable too, up to the folders that were made for it."""
    synced: set[Path] = set()
    sync = os.fsync

    def watched(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    deep = folder / "of" / "keys"
    with running(settings_for(store_url, folder, SEARCHES, keys=str(deep)), clock) as (client, collector):
        assert give(client, collector.tokens.new(1)).status_code == 201
    assert {folder, deep.parent, deep} <= synced


def test_records_are_bound_to_their_place(store_url: str, folder: Path, clock: Clock) -> None:
    from ledger.workers import sql

    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        give(client, collector.tokens.new(1))
        epoch = collector.cache.current(1)
        assert epoch is not None
        assert [records for _, records in collector.vault.records(epoch)] == [RECORDS]
        sql(store_url, "UPDATE hushquery_collect_record SET id = ?", (random_id(),))
        with pytest.raises(DataError, match="can't be decrypted"):
            list(collector.vault.records(epoch))
        other = Vault(collector.store, folder / "elsewhere")
        with pytest.raises(DataError, match="not there"):
            list(other.records(epoch))


def test_an_operator_key_must_be_the_same(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(text: str) -> bytes | None:
        (folder / "operator").write_text(text)
        monkeypatch.setenv("HUSHQUERY_OPERATOR_KEY", text)
        assert read_operator_key(None) == read_operator_key(str(folder / "operator"))
        return read_operator_key(None)

    with running(settings_for(store_url, folder, SEARCHES), clock) as (_, collector):
        epoch = collector.cache.current(1)
        assert epoch is not None
        keys = [read(b64encode(bytes([n]) * 32).decode()) for n in (1, 2)]
        first, second, none = (Vault(collector.store, folder / "keys", key) for key in (*keys, None))
        sealed, mark = first.seal(epoch, bytes(16), RECORDS)
        again, same_mark = first.seal(epoch, bytes(16), RECORDS)
        assert sealed != again
        assert mark == same_mark
        for vault in (second, none):
            with pytest.raises(DataError, match="operator key"):
                vault.seal(epoch, bytes(16), RECORDS)
    for bad in ("x", "AAAA", "é"):
        with pytest.raises(UsageError, match="32 bytes"):
            read(bad)
    assert read("  ") is None


def test_another_operator_key_is_told_at_the_start(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for name, told in (("first", False), ("first", False), ("second", True)):
        key = tmp_path / name
        if not key.exists():
            key.write_text(b64encode(os.urandom(32)).decode())
        caplog.clear()
        settings = settings_for(str(tmp_path / "collector.db"), tmp_path, SEARCHES, operator_key_file=str(key))
        with running(settings, clock) as (client, collector):
            answer = give(client, collector.tokens.new(1))
        assert (answer.status_code == 503) == told
        assert ("wrapped by another operator key" in caplog.text) == told


def test_what_a_token_gave_can_be_taken_back(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        tokens = collector.tokens
        personal, shared, other = tokens.new(1), tokens.new(1, shared=True), tokens.new(1)
        for token in (personal, shared, shared, other):
            assert give(client, token).status_code == 201
        for token, gave in ((personal, 1), (shared, 2)):
            tokens.revoke(token)
            assert tokens.forget(token) == Forgotten(gave, 0)
            assert tokens.forget(token) == Forgotten(0, 0)
            assert give(client, token).status_code == 401
        epoch = collector.cache.current(1)
        assert epoch is not None
        assert len(list(collector.vault.records(epoch))) == 1
        # As long as somebody makes a list of them it can't be done, and is said so.
        work = hybrid(collector)
        tokens.revoke(other)
        told: list[str] = []

        def meanwhile(_: Epoch) -> None:
            assert tokens.forget(other) == Forgotten(0, 1)
            told.append(cli("tokens", "revoke", other, "--forget", "--store", store_url))
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(work, "publish_head", meanwhile)
            with pytest.raises(Crash):
                advance(collector)
        assert "0 of its uploads deleted; in 1 epoch(s) not" in told[0]
        assert len(list(collector.vault.records(epoch))) == 1
        # That it was begun, and failed, keeps nothing.
        assert tokens.forget(other) == Forgotten(1, 0)
        assert list(collector.vault.records(epoch)) == []


def test_records_that_arrive_after_their_token_was_revoked_are_refused(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token was good when the request began; then its user took back what it gave, while the body arrived."""
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        token = collector.tokens.new(1)

        def late(*parts: Any) -> list[list[str]]:
            collector.tokens.revoke(token)
            assert collector.tokens.forget(token) == Forgotten(0, 0)
            return read_records(*parts)

        monkeypatch.setattr("hushquery.collect.http.app.read_records", late)
        assert kind(give(client, token)) == (401, "unauthorized")
        epoch = collector.cache.current(1)
        assert epoch is not None
        assert list(collector.vault.records(epoch)) == []


def test_records_that_are_being_stored_are_taken_back_too(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        token, seal = collector.tokens.new(1), Vault.seal
        found: list[Forgotten] = []

        def take_back() -> None:
            collector.tokens.revoke(token)
            found.append(collector.tokens.forget(token))

        other = threading.Thread(target=take_back)

        def sealed(*parts: Any) -> tuple[bytes, bytes]:
            other.start()
            other.join(0.5)  # it waits for the transaction that this is in
            return seal(*parts)

        monkeypatch.setattr(Vault, "seal", sealed)
        assert give(client, token).status_code == 201
        other.join()
        assert found == [Forgotten(1, 0)]
