"""The client: randomises once, forgets nothing, pays for new values only, and says nothing after the cap."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import statistical
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError
from hushquery.local.device.client import CLAIM, Client, memo_key, sampling_number
from hushquery.local.report import Report
from hushquery.task import Task
from hushquery.task.domain import UnknownValue

DAY = 86400


def task(
    name: str = "colour", epsilon: str = "1", lifetime: str = "3", *, period: str | None = "1d", extra: str = ""
) -> Task:
    often = f'period = "{period}"' if period else ""
    return Task.loads(
        f'[task]\nname = "{name}"\npopulation = "users"\nkind = "setting"\n{often}\n'
        'domain = ["red", "green", "blue", "white", "black", "grey"]\n'
        f'[client]\nepsilon = "{epsilon}"\nlifetime_epsilon = "{lifetime}"\n{extra}\n'
    )


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 20000.5 * DAY) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def next_day(self) -> None:
        self.now += DAY


Make = Callable[..., Client]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    def make(one: Task | None = None, client_id: str = "me", **options: Any) -> Client:
        return Client(one or task(), tmp_path / "client.db", client_id, **({"clock": clock} | options))

    return make


def sent_by(client: Client, value: str | None) -> Report:
    report = client.report(value)
    assert report is not None
    return report


def rows(tmp_path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection, connection:
        return connection.execute(statement).fetchall()


# ---- randomise once ----------------------------------------------------------------------------------------


def test_a_report_belongs_to_its_task_and_tells_a_coarse_time(make: Make, clock: Clock) -> None:
    clock.now += 1799.5  # a time that is no multiple already
    client = make()
    report = sent_by(client, "red")
    assert report.open(client.configuration) in client.configuration.oracle.law(0)
    assert report.time == 20000.5 * DAY


def test_asking_again_gives_the_same_bytes(make: Make, clock: Clock) -> None:
    first = sent_by(make(), "red").to_bytes()
    clock.now += DAY / 3
    assert sent_by(make(), "red").to_bytes() == first
    # The first value of a period counts; another one changes nothing, in this process or the next.
    assert sent_by(make(), "blue").to_bytes() == first
    assert make().account().spent == 1


def test_without_a_period_a_client_reports_once(make: Make, clock: Clock) -> None:
    once = task(period=None)
    first = sent_by(make(once), "red")
    clock.now += 1000 * DAY
    assert sent_by(make(once), "green") == first


def test_a_repeated_value_repeats_its_answer_under_a_new_id(make: Make, clock: Clock) -> None:
    client = make(task(lifetime="100"))
    seen: dict[str, set[bytes]] = {"red": set(), "blue": set()}
    ids = set()
    for day in range(30):
        value = ("red", "blue")[day % 2]
        report = sent_by(client, value)
        seen[value].add(report.payload)
        ids.add(report.id)
        clock.next_day()
    assert {value: len(payloads) for value, payloads in seen.items()} == {"red": 1, "blue": 1}
    assert len(ids) == 30
    assert client.account().spent == 2


def test_reports_follow_the_law_of_the_mechanism(tmp_path: Path) -> None:
    bits = statistical.bits("law of the client")
    drawn: Counter[Any] = Counter()
    for number in range(120):
        client = Client(task(epsilon="2"), tmp_path / "client.db", f"c{number}", bits=bits)
        drawn[sent_by(client, "green").open(client.configuration)] += 1
    statistical.fit(drawn, client.configuration.oracle.law(1))
    with pytest.raises(AssertionError):
        statistical.fit(drawn, client.configuration.oracle.law(2))


def test_clients_of_one_file_are_strangers(make: Make, tmp_path: Path) -> None:
    one, other = sent_by(make(client_id="one"), "red"), sent_by(make(client_id="other"), "red")
    assert one.id != other.id
    secrets = [secret for (secret,) in rows(tmp_path, "SELECT secret FROM client")]
    assert len(set(secrets)) == 2
    assert {len(secret) for secret in secrets} == {32}
    assert make(client_id="one").account().spent == 1


def test_no_value_and_no_cell_is_stored(make: Make, tmp_path: Path, clock: Clock) -> None:
    queries = Task.loads(
        '[task]\nname="q"\npopulation="p"\nperiod="1d"\ndomain=[["flu symptoms","https://clinic.example"],["news",""]]\n'
        "[client]\nepsilon=1\nlifetime_epsilon=9\n"
    )
    client = make(queries)
    client.report("flu symptoms", "https://clinic.example")
    clock.next_day()
    client.report("something unusual", "https://unusual.example")
    data = (tmp_path / "client.db").read_bytes()
    for text in (b"flu", b"clinic", b"unusual", b"news"):
        assert text not in data
    assert (tmp_path / "client.db").stat().st_mode & 0o077 == 0, "others can read the secrets"
    assert "clinic" not in repr(client)


# ---- what it costs -----------------------------------------------------------------------------------------


def test_the_account_says_what_its_number_bounds(make: Make, clock: Clock) -> None:
    client = make()
    for value in ("red", "red", "blue"):
        client.report(value)
        clock.next_day()
    account = client.account()
    assert (account.spent, account.lifetime, account.left) == (2, 3, 1)
    assert [(entry.task, entry.epsilon) for entry in account.entries] == [(client.task.id, Fraction(1))] * 2
    assert {entry.claim for entry in account.entries} == {"given the change times"}
    assert "given the change times" in account.claim == CLAIM
    assert account.to_json()["spent"] == 2.0


def test_all_unknown_values_are_one_value(make: Make, clock: Clock) -> None:
    client = make()
    payloads = set()
    for value in ("pink", "beige", None, "x" * 10000):
        payloads.add(sent_by(client, value).payload)
        clock.next_day()
    assert len(payloads) == 1
    assert client.account().spent == 1


def test_tasks_share_the_lifetime_budget(make: Make, clock: Clock) -> None:
    first, second = task("first", lifetime="2"), task("second", lifetime="2")
    make(first).report("red")
    make(second).report("red")
    assert make(first).account().spent == 2
    clock.next_day()
    make(first).report("blue")
    make(second).report("red")
    assert make(second).account().spent == 2
    assert len(make(second).account().entries) == 2


def test_the_smallest_promise_of_the_answered_tasks_is_kept(make: Make, clock: Clock) -> None:
    generous, careful = task("generous", lifetime="10"), task("careful", lifetime="2")
    make(generous).report("red")
    assert make(generous).account().lifetime == 10
    make(careful).report("red")
    clock.next_day()
    make(generous).report("blue")  # would be 3 in all, and `careful` promised 2
    assert make(generous).account().spent == 2
    assert make(generous).account().lifetime == 2


def test_after_the_cap_old_answers_stay_and_new_ones_are_empty(make: Make, clock: Clock) -> None:
    client = make(task(lifetime="2"))
    answers: dict[str, set[bytes]] = {}
    for value in ("red", "green", "blue", "red", "white", "green", "blue"):
        answers.setdefault(value, set()).add(sent_by(client, value).payload)
        clock.next_day()
    assert all(len(payloads) == 1 for payloads in answers.values())
    assert answers["blue"] == answers["white"], "an empty answer depends on the value"
    assert client.account().spent == 2
    assert len(client.account().entries) == 2


@pytest.mark.parametrize("unknown", ["wildcard", "refuse"])
def test_an_empty_report_has_one_law_whatever_the_value(tmp_path: Path, unknown: str) -> None:
    """With the same coins the empty report is the same for every value: no channel from the value to the report."""
    extra = f'unknown = "{unknown}"'
    reports: dict[str, list[bytes]] = {"green": [], "blue": []}
    for value, seen in reports.items():
        state, bits, clock = tmp_path / f"{value}.db", statistical.bits("same coins"), Clock()
        for number in range(130 if value == "blue" else 30):
            client = Client(task(epsilon="2", lifetime="2", extra=extra), state, f"c{number}", bits=bits, clock=clock)
            client.report("red")
            clock.next_day()
            seen.append(sent_by(client, value).payload)
            clock.now -= DAY
        assert client.account().spent == 2
    assert reports["green"] == reports["blue"][:30]
    oracle = client.configuration.oracle
    laws = [oracle.law(cell) for cell in range(oracle.k)]
    mixed = {report: sum(law[report] for law in laws) / len(laws) for report in laws[0]}
    drawn = Counter(oracle.unpack(payload) for payload in reports["blue"])
    statistical.fit(drawn, laws[-1] if unknown == "wildcard" else mixed)
    with pytest.raises(AssertionError):
        statistical.fit(drawn, laws[2])


def test_records_share_epsilon_and_have_their_own_answers(make: Make, clock: Clock) -> None:
    several = task(epsilon="2", lifetime="40", extra="records_per_user = 20")
    client = make(several)
    reports = client.reports(["red"] * 10)
    assert len(reports) == 20
    assert client.configuration.oracle.epsilon <= Fraction(1, 10)
    assert len({report.payload for report in reports[:10]}) > 1, "equal records can be seen to be equal"
    assert client.account().spent == 2
    assert client.reports(["blue"]) == reports
    clock.next_day()
    again = client.reports(["red"] * 10)
    assert [one.payload for one in again] == [one.payload for one in reports]
    with pytest.raises(UsageError, match="at most 20"):
        client.reports(["red"] * 21)
    with pytest.raises(UsageError, match="Slots are 0 to 19"):
        client.report("red", slot=20)


def test_several_records_are_made_together_or_not_at_all(make: Make) -> None:
    client = make(task(epsilon="2", lifetime="40", extra='records_per_user = 2\nunknown = "refuse"'))
    for values in (["red", "beige"], ["red"]):  # the second is not listed; there is no answer for "nothing"
        with pytest.raises(UnknownValue):
            client.reports(values)
    assert client.account().spent == 0
    assert client.outbox() == []
    assert len(client.reports(["red", "blue"])) == 2
    with pytest.raises(UsageError, match="a pair"):
        client.reports([("red", "a", "b")])  # type: ignore[list-item]


def test_every_task_that_was_answered_sets_the_cap_also_with_an_empty_answer(make: Make) -> None:
    assert sent_by(make(task(name="a", epsilon="3", lifetime="10")), "red")
    second = make(task(name="b", epsilon="2", lifetime="4"))
    assert sent_by(second, "red")  # 3 + 2 is above 4: it says nothing and costs nothing
    assert (second.account().spent, second.account().lifetime) == (3, 4)
    third = make(task(name="c", epsilon="1", lifetime="10"))
    assert third.account().lifetime == 4
    assert sent_by(third, "red")
    fourth = make(task(name="d", epsilon="1", lifetime="10"))
    assert sent_by(fourth, "red")
    assert (fourth.account().spent, fourth.account().lifetime) == (4, 4)


def test_a_period_has_one_report_also_when_asked_with_a_value_that_is_refused(make: Make, clock: Clock) -> None:
    client = make(task(extra='unknown = "refuse"'))
    report = sent_by(client, "red")
    for value in ("beige", None, "", 7):
        assert client.report(value) == report
    clock.next_day()
    with pytest.raises(UnknownValue):
        client.report("beige")


# ---- who reports -------------------------------------------------------------------------------------------


def test_the_off_switch(make: Make, tmp_path: Path) -> None:
    assert make(task(extra="enabled = false")).report("red") is None
    assert rows(tmp_path, "SELECT * FROM client") == []
    assert make().report("red") is not None


def test_sampling_is_decided_once_and_without_the_value(make: Make, clock: Clock) -> None:
    some = task(lifetime="100", extra="sampling = 0.3")
    chosen = []
    for number in range(40):
        client = make(some, f"c{number}")
        answers = [client.report(value) is not None for value in ("red", "blue", "red")]
        assert len(set(answers)) == 1
        chosen.append(answers[0])
        assert client.account().spent == int(answers[0])
    clock.next_day()
    later = [make(some, f"c{number}").report("red") is not None for number in range(40)]
    assert {True, False} <= {*chosen, *later}
    assert later != chosen


def test_sampling_has_its_rate_over_clients_and_over_periods() -> None:
    limit = int(0.3 * 2**53)
    over_clients = [sampling_number(number.to_bytes(32, "big"), bytes(32), 7) < limit for number in range(4000)]
    over_periods = [sampling_number(bytes(32), bytes(32), number) < limit for number in range(4000)]
    for chosen in (over_clients, over_periods):
        statistical.rate(sum(chosen), len(chosen), 0.3)
    assert over_clients != over_periods


def test_what_is_derived_from_the_secret_matches_the_vectors() -> None:
    golden = json.loads((Path(__file__).parent.parent.parent / "vectors" / "report_v1.json").read_text())["macs"]
    secret, one, configuration = (bytes.fromhex(golden[name]) for name in ("secret", "task", "configuration"))
    for memo in golden["memo"]:
        assert memo_key(secret, one, configuration, memo["slot"], memo["cell"]).hex() == memo["key"]
    for sampling in golden["sampling"]:
        assert str(sampling_number(secret, one, sampling["period"])) == sampling["number"]


def test_unknown_values_are_refused_where_the_task_says_so(make: Make, tmp_path: Path) -> None:
    client = make(task(extra='unknown = "refuse"'))
    assert client.configuration.oracle.k == 6
    with pytest.raises(UnknownValue) as caught:
        client.report("my secret colour")
    assert "secret" not in str(caught.value)
    assert rows(tmp_path, "SELECT * FROM report") == []


# ---- the outbox --------------------------------------------------------------------------------------------


def test_the_outbox_holds_what_was_not_sent(make: Make, clock: Clock) -> None:
    client = make()
    reports = []
    for _ in range(3):
        reports.append(sent_by(client, "red"))
        clock.next_day()
    make(client_id="somebody else").report("red")
    assert client.outbox() == reports
    client.sent(reports[1].id)
    assert make().outbox() == [reports[0], reports[2]]
    clock.now -= 2 * DAY
    assert client.report("red") == reports[1]  # sent, and still the same
    with pytest.raises(UsageError, match="no report with that id"):
        client.sent(bytes(16))


def test_forgetting_makes_a_new_client(make: Make, tmp_path: Path) -> None:
    client = make()
    before = sent_by(client, "red")
    other = sent_by(make(client_id="other"), "red")
    (secret,) = rows(tmp_path, "SELECT secret FROM client WHERE id = 'me'")[0]
    client.forget()
    assert client.account().spent == 0
    assert secret not in (tmp_path / "client.db").read_bytes()
    assert sent_by(client, "red").id != before.id
    assert sent_by(make(client_id="other"), "red") == other


def test_a_changed_head_list_does_not_draw_a_second_report(make: Make, clock: Clock) -> None:
    searches = Task.loads(
        '[task]\nname="q"\npopulation="p"\nperiod="1d"\n[client]\nepsilon=1\nlifetime_epsilon=9\n[head]\nsize=2\n'
    )
    first = make(searches, head=[["news", ""], ["weather", ""]])
    report = first.report("news")
    assert report is not None
    with pytest.raises(DataError, match="another head list") as caught:
        make(searches, head=[["weather", ""], ["news", ""]]).report("news")
    assert "from the next period on" in caught.value.fix
    clock.next_day()
    assert make(searches, head=[["weather", ""], ["news", ""]]).report("news") is not None
    clock.now -= DAY
    assert make(searches, head=[["news", ""], ["weather", ""]]).report("news") == report
    with pytest.raises(UsageError, match="head list, which was not given"):
        make(searches)
    once = Task.loads('[task]\nname="q"\npopulation="p"\n[client]\nepsilon=1\nlifetime_epsilon=9\n[head]\nsize=2\n')
    make(once, head=[["news", ""]]).report("news")
    with pytest.raises(DataError, match="report of this task") as caught:
        make(once, head=[["maps", ""]]).report("news")
    assert "make a new task" in caught.value.fix


# ---- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_no_name_of_a_client(make: Make, name: str) -> None:
    with pytest.raises(UsageError):
        make(client_id=name)


@pytest.mark.parametrize("now", [-1.0, float("nan"), float("inf"), 2.0**40])
def test_a_broken_clock(make: Make, now: float) -> None:
    with pytest.raises(DataError, match="clock"):
        make(clock=Clock(now)).report("red")


def test_no_memory_no_client() -> None:
    for state in ("", ":memory:"):
        with pytest.raises(UsageError, match="anew each time"):
            Client(task(), state)


def test_an_unknown_oracle(make: Make) -> None:
    with pytest.raises(UsageError, match="no oracle is called"):
        make(task(extra='oracle = "magic"'))


@pytest.mark.parametrize(
    ("content", "error"), [(b"not sqlite, but long enough to look like a file" * 50, DataError), (None, Unavailable)]
)
def test_no_state_file(tmp_path: Path, content: bytes | None, error: type[HushqueryError]) -> None:
    state = tmp_path / "client.db"
    state.write_bytes(content) if content else state.mkdir()
    with pytest.raises(error):
        Client(task(), state)


def test_the_state_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(DataError, match="not a state file"):
        Client(task(), tmp_path / "client.db")
    assert rows(tmp_path, "SELECT name FROM sqlite_master") == [("mine",)]


def test_a_newer_state_file_is_refused(make: Make, tmp_path: Path) -> None:
    make()
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection, connection:
        connection.execute("PRAGMA user_version=2")
    with pytest.raises(DataError, match="version 2"):
        make()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE client SET spent = 'lots'",
        "UPDATE client SET cap = x'00'",
        "UPDATE client SET secret = x'00'",
        "UPDATE report SET data = x'0100', period = period + 1",
        "DROP TABLE memo",
    ],
)
def test_a_damaged_state_file_draws_nothing(make: Make, tmp_path: Path, clock: Clock, damage: str) -> None:
    client = make()
    client.report("red")
    rows(tmp_path, damage)
    clock.next_day()
    with pytest.raises((DataError, Unavailable)):
        client.report("blue")
    assert len(rows(tmp_path, "SELECT * FROM report")) == 1


def test_a_truncated_state_file_is_refused(make: Make, tmp_path: Path) -> None:
    make().report("red")
    file = tmp_path / "client.db"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(DataError, match="damaged"):
        make().report("red")
