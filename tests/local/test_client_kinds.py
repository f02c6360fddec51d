"""The client for every kind of task: what it keeps, what it pays, what it sends after the cap, what it refuses."""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statistical
from hushquery.errors import CalibrationError, HushqueryError, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.device.client import Client, memo_key
from hushquery.local.randomizer import Device
from hushquery.local.report import Report, ReportOutOfDomain
from hushquery.task import Task
from hushquery.task.domain import UnknownValue

DAY = 86400
NUMBER = '[task]\nname="n"\npopulation="users"\nkind="number"\nperiod="1d"\nhighest=100\n[client]\nepsilon=1\n'
ONE_BIT = Task.loads(NUMBER + "lifetime_epsilon=2\nstep=10\n")
HISTOGRAM = Task.loads(NUMBER + 'lifetime_epsilon=2\noracle="dbitflip"\nbuckets=10\nbits=3\n')
RAPPOR = "[client.rappor]\nk=64\nh=2\nm=8\np=0.25\nq=0.75\nf=0.5\n"
TEXT = Task.loads(
    '[task]\nname="t"\npopulation="users"\nkind="text"\nperiod="1d"\n[client]\nepsilon=4.5\nlifetime_epsilon=9\n'
    + RAPPOR
)
SEARCHES = (
    '[task]\nname="q"\npopulation="users"\nperiod="1d"\n[client]\nepsilon=2\nlifetime_epsilon=4\noracle="two-stage"\n'
)
TWO_STAGE = Task.loads(SEARCHES + '[head]\nsize=3\nmode="paper"\n')
HEAD = [["news", "https://a.example"], ["maps", "https://m.example"], ["news", "https://b.example"]]

Make = Callable[..., Client]


@pytest.fixture
def clock() -> list[float]:
    return [20000.0 * DAY]


@pytest.fixture
def make(tmp_path: Path, clock: list[float]) -> Make:
    def make(task: Task, client_id: str = "me", **options: Any) -> Client:
        return Client(task, tmp_path / "client.db", client_id, clock=lambda: clock[0], **options)

    return make


def sent(client: Client, *value: Any) -> Report:
    report = client.report(*value)
    assert report is not None
    return report


def secret_in(tmp_path: Path) -> bytes:
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
        (row,) = connection.execute("SELECT secret FROM client").fetchall()
    return bytes(row[0])


# ---- two-stage -----------------------------------------------------------------------------------------------


def test_two_stage_groups_the_list_by_query() -> None:
    fixed = Configuration.of(TWO_STAGE, HEAD)
    assert fixed.labels == [
        "news\thttps://a.example",
        "news\thttps://b.example",
        "news\t*",
        "maps\thttps://m.example",
        "maps\t*",
        "*",
    ]
    cells = [fixed.domain.cell(*one) for one in (*HEAD, ["news", "https://c.example"], ["NEWS"], ["maps"], ["x", "y"])]
    assert cells == [0, 3, 1, 2, 2, 4, 5]
    assert fixed.domain.cell(None) == fixed.domain.cell("x" * 5000) == 5
    assert fixed.domain.cell("news", "https://" + "x" * 5000) == 2
    assert fixed.oracle.epsilon <= 2
    # The order of queries among each other is part of it; how their URLs are interleaved is not.
    assert Configuration.of(TWO_STAGE, [HEAD[0], HEAD[2], HEAD[1]]).digest == fixed.digest
    assert Configuration.of(TWO_STAGE, [HEAD[1], HEAD[0], HEAD[2]]).digest != fixed.digest


def test_two_stage_comes_in_the_papers_variant_and_tight() -> None:
    tight = Configuration.of(TWO_STAGE, HEAD)
    paper = Configuration.of(Task.loads(SEARCHES + 'query_share=0.85\n[head]\nsize=3\nmode="paper"\n'), HEAD)
    assert Fraction(199, 100) < tight.oracle.epsilon <= 2
    assert paper.oracle.epsilon < tight.oracle.epsilon
    assert "0.85" in paper.why
    assert "all that the URL leaves" in tight.why


def test_a_two_stage_client_reports(make: Make) -> None:
    client = make(TWO_STAGE, head=HEAD)
    report = sent(client, "news", "https://zzz.example")
    assert report.open(client.configuration) in range(6)
    assert client.account().spent == 2


# ---- what is kept and paid -----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [ONE_BIT, HISTOGRAM], ids=["onebit", "dbitflip"])
def test_a_number_pays_for_each_new_class_and_repeats_its_answer(
    make: Make, clock: list[float], tmp_path: Path, task: Task
) -> None:
    client = make(task)
    channel = client.configuration.channel
    first = sent(client, 0)
    device = Device(secret_in(tmp_path), task.digest, client.configuration.digest)
    names = {value: channel.memo_class(value, device) for value in range(101)}
    bits = statistical.bits("unused")
    paid: dict[Any, bytes] = {names[0]: first.payload}
    for value in [0, 3, 99, 0, 99, 100, 50, 51, 0]:
        clock[0] += DAY
        payload = sent(client, value).payload
        new = names[value] not in paid
        if new and len(paid) == 2:
            break  # the third class is beyond the lifetime
        assert payload == channel.answer(value, device, bits)
        paid[names[value]] = payload
        assert client.account().spent == len(paid)
    assert client.account().spent == len(paid) <= 2


@pytest.mark.parametrize(
    ("task", "values"),
    [(ONE_BIT, [0, 50, 100, 30]), (HISTOGRAM, list(range(0, 100, 10))), (TEXT, ["a", "b", "c", "d"])],
    ids=["onebit", "dbitflip", "rappor"],
)
def test_after_the_cap_one_empty_answer_is_kept_for_all_new_values(
    make: Make, clock: list[float], tmp_path: Path, task: Task, values: list[Any]
) -> None:
    client = make(task, bits=statistical.bits("cap"))
    channel, digest = client.configuration.channel, client.configuration.digest
    for value in values:
        sent(client, value)
        clock[0] += DAY
    spent = client.account().spent
    assert spent <= task.client.lifetime_epsilon < spent + client.configuration.cost
    secret = secret_in(tmp_path)
    device = Device(secret, task.digest, digest)
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
        memo = {
            bytes(key): (cost, bytes(kept))
            for key, cost, kept in connection.execute("SELECT key, cost, payload FROM memo")
        }
    empty_cost, empty = memo.pop(memo_key(secret, task.digest, digest, 0, 2**32 - 1))
    assert empty_cost == "0"
    assert {Fraction(cost) for cost, _ in memo.values()} == {client.configuration.cost}
    for value in values:
        cell = client.configuration.space.cell(value)
        key = memo_key(secret, task.digest, digest, 0, channel.memo_class(cell, device))
        kept = memo[key][1] if key in memo else empty
        payload = sent(client, value).payload
        clock[0] += DAY
        assert task is TEXT or payload == kept
        assert payload[:1] == kept[:1]  # the cohort, where the rest is drawn anew
    assert client.account().spent == spent


@pytest.mark.parametrize(
    ("task", "paid", "values"),
    [
        (ONE_BIT, [0, 100], [20, 35, 50, 65, 80]),
        (HISTOGRAM, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90], []),
        (TEXT, ["a", "b"], ["c", "d", "e", "f", "g"]),
    ],
    ids=["onebit", "dbitflip", "rappor"],
)
def test_after_the_cap_the_same_coins_make_the_same_report_whatever_the_value(
    make: Make, clock: list[float], tmp_path: Path, task: Task, paid: list[Any], values: list[Any]
) -> None:
    client = make(task)
    channel = client.configuration.channel
    for value in paid:
        if client.account().left >= client.configuration.cost:
            sent(client, value)
            clock[0] += DAY
    assert client.account().left < client.configuration.cost
    if task is HISTOGRAM:  # the values of all classes that were not paid for
        device = Device(secret_in(tmp_path), task.digest, client.configuration.digest)
        with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
            known = {bytes(key) for (key,) in connection.execute("SELECT key FROM memo")}
        digest = client.configuration.digest
        names = {value: channel.memo_class(value, device) for value in range(101)}
        values = [v for v in names if memo_key(device.secret, task.digest, digest, 0, names[v]) not in known]
    assert len(values) >= 5
    seen = set()
    for value in values:
        shutil.copy(tmp_path / "client.db", tmp_path / "copy.db")
        copy = Client(task, tmp_path / "copy.db", "me", clock=lambda: clock[0], bits=statistical.bits("after the cap"))
        seen.add(sent(copy, value).payload)
        assert copy.account().spent == client.account().spent
    assert len(seen) == 1


def test_rappor_keeps_the_permanent_response_and_draws_each_report_anew(
    make: Make, clock: list[float], tmp_path: Path
) -> None:
    client = make(TEXT)
    payloads, cohorts = set(), set()
    for _ in range(12):
        report = sent(client, " caf\u00e9")
        assert sent(client, "cafe\u0301 ").to_bytes() == report.to_bytes()  # the same period: the same bytes
        payloads.add(report.payload)
        cohorts.add(report.open(client.configuration)[0])
        clock[0] += DAY
    assert len(payloads) == 12
    assert len(cohorts) == 1
    account = client.account()
    assert account.spent == client.configuration.channel.epsilon == account.entries[0].epsilon
    assert float(account.spent) == pytest.approx(4 * math.log(3))
    raw = (tmp_path / "client.db").read_bytes()
    assert "caf\u00e9".encode() not in raw


def test_rappor_must_fit_the_tasks_epsilon() -> None:
    text = TEXT.to_json()
    text["client"]["epsilon"] = "4"
    with pytest.raises(CalibrationError) as caught:
        Configuration.of(Task.make(text))
    assert "4.39445" in caught.value.why
    assert "allows 4 " in caught.value.why


@given(
    st.sampled_from([(ONE_BIT, [0, 9, 10, 55, 100]), (HISTOGRAM, [0, 15, 40, 77, 100]), (TEXT, ["a", "b", "c"])]),
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
)
@settings(max_examples=12, deadline=None)
def test_any_history_costs_its_new_classes_up_to_the_cap(kind: tuple[Task, list[Any]], turns: list[int]) -> None:
    task, values = kind
    now = [20000.0 * DAY]
    with tempfile.TemporaryDirectory() as folder:
        client = Client(task, Path(folder) / "client.db", "me", clock=lambda: now[0])
        fixed = client.configuration
        device: Device | None = None
        classes: set[Any] = set()
        spent = Fraction(0)
        for turn in turns:
            value = values[turn % len(values)]
            sent(client, value)
            device = device or Device(secret_in(Path(folder)), task.digest, fixed.digest)
            name = fixed.channel.memo_class(fixed.space.cell(value), device)
            if name not in classes and spent + fixed.cost <= task.client.lifetime_epsilon:
                classes.add(name)
                spent += fixed.cost
            assert client.account().spent == spent
            now[0] += DAY


# ---- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 101, 2**70])
def test_numbers_out_of_range_are_refused_without_being_shown(make: Make, value: int) -> None:
    with pytest.raises(UnknownValue) as caught:
        make(ONE_BIT).report(value)
    assert str(value) not in str(caught.value)
    assert make(ONE_BIT).account().spent == 0


@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, True, "7", None, b"7", [7]])
@pytest.mark.parametrize("task", [ONE_BIT, HISTOGRAM], ids=["onebit", "dbitflip"])
def test_what_is_no_whole_number_is_refused(make: Make, task: Task, value: Any) -> None:
    with pytest.raises(UsageError):
        make(task).report(value)


@pytest.mark.parametrize("value", ["", "  ", "x" * 5000, "\ud800", 7, None, b"x"])
def test_what_is_no_text_is_refused(make: Make, value: Any) -> None:
    with pytest.raises(HushqueryError) as caught:
        make(TEXT).report(value)
    assert isinstance(caught.value, UnknownValue if isinstance(value, str) else UsageError)


@pytest.mark.parametrize("task", [ONE_BIT, TEXT], ids=["number", "text"])
def test_only_searches_have_urls_and_lists(make: Make, task: Task) -> None:
    with pytest.raises(UsageError, match="URL"):
        make(task).report(5, "https://a.example")
    with pytest.raises(UsageError, match="head list"):
        make(task, head=HEAD)
    fixed = Configuration.of(task)
    for name in ("domain", "oracle"):
        with pytest.raises(UsageError, match="task has no"):
            getattr(fixed, name)
    with pytest.raises(UsageError, match="no list"):
        task.listed()


def test_a_cohort_out_of_range_is_refused() -> None:
    fixed = Configuration.of(TEXT)
    payload = b"\x08" + bytes(8)
    with pytest.raises(ReportOutOfDomain, match="cohort is out of range"):
        Report(bytes(16), TEXT.digest, fixed.digest, 0, payload).open(fixed)


def test_a_domain_that_is_too_large_is_refused() -> None:
    big = NUMBER + 'lifetime_epsilon=2\noracle="dbitflip"\nbuckets=102\nbits=3\n'
    with pytest.raises(UsageError, match="more than there are numbers"):
        Task.loads(big)
    with pytest.raises(UsageError, match="k: Input should be less than"):
        Task.loads(TEXT_TOML.replace("k=64", "k=65537"))


TEXT_TOML = '[task]\nname="t"\npopulation="users"\nkind="text"\n[client]\nepsilon=4.5\nlifetime_epsilon=9\n' + RAPPOR
