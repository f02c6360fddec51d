"""Repeated epochs: lists that are kept, what they cost, clients who repeat themselves, and intervals of changes."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hushquery.cli.app import app
from hushquery.core.ledger.ledger import Ledger
from hushquery.curator.counting import law_of
from hushquery.errors import AccountMissing, BudgetRefused, CalibrationError, DataError, UsageError
from hushquery.hybrid.headlist import OptInShares
from hushquery.hybrid.plan import plan_head
from hushquery.hybrid.published import HEAD_FILE, PublishedHead, blended_release, blended_shares
from hushquery.hybrid.remeasure import calibrate_remeasure, remeasure
from hushquery.local.configuration import Configuration
from hushquery.local.device.client import Client
from hushquery.log import Log, read_log
from hushquery.release import verify
from hushquery.task import Task
from hushquery_experiments.blender.law import PowerLaw
from hushquery_experiments.epochs.follow import Spending, changes, epochs_task, follow, open_accounts
from hushquery_experiments.epochs.memo import Memos
from hushquery_experiments.epochs.people import Epoch, World, history, name_of, number_of
from statistical import bits, every_position, number, tally

WEEK = 7 * 86400
RECORDS = [("weather leeds", "https://weather.example"), ("news", "https://news.example"), ("maps", "")]


def crowd(held: list[int], users: int) -> Log:
    """Give a log in which so many users hold each record and the rest something of their own."""
    rows = [(query, url or None) for (query, url), n in zip(RECORDS, held, strict=True) for _ in range(n)]
    rows += [(f"secret of mine {'abcdefghij'[i % 10] * (1 + i // 10)}", None) for i in range(users - len(rows))]
    columns = {
        "user": [f"u{i}" for i in range(users)],
        "query": [query for query, _ in rows],
        "url": [url for _, url in rows],
    }
    return read_log(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))


def weekly(keep: int = 3, **parts: dict[str, object]) -> Task:
    data: dict[str, dict[str, object]] = {
        "task": {"name": "weekly", "population": "readers", "period": "7d"},
        "optin": {"epsilon": 4, "delta": "1e-5"},
        "client": {"epsilon": 4, "lifetime_epsilon": 12},
        "head": {"size": 10, "keep": keep},
        "collect": {"min_batch": 2},
    }
    return Task.make({name: part | parts.get(name, {}) for name, part in data.items()})


def opened(path: Path, task: Task, epochs: int) -> Ledger:
    ledger = Ledger.open(path)
    open_accounts(ledger, task, epochs)
    return ledger


# ---- the task ------------------------------------------------------------------------------------------------------


def test_keep_is_part_of_the_task_only_where_it_says_something() -> None:
    plain = weekly()
    del_keep = {name: dict(part) for name, part in plain.to_json().items() if isinstance(part, dict)}
    del del_keep["head"]["keep"]
    assert Task.make(del_keep).id == weekly(1).id != plain.id != weekly(4).id
    assert "keep" not in weekly(1).canonical()
    assert Task.from_json(plain.canonical()).id == plain.id
    for wrong in (0, -1, 1.5, "many", True, 2**40):
        with pytest.raises(UsageError):
            weekly(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="period"):
        Task.make({**plain.to_json(), "task": {"name": "once", "population": "readers"}})


# ---- a kept list ---------------------------------------------------------------------------------------------------


def test_a_kept_list_is_measured_again_in_its_order_and_clients_hash_the_same(tmp_path: Path) -> None:
    task = weekly()
    ledger = opened(tmp_path / "ledger.db", task, 3)
    first = plan_head(crowd([600, 300, 100], 2000), task).run(ledger, epoch=5, bits=bits("first"))
    assert set(first.records) == set(RECORDS)
    # In the second period everything is the other way round, and one record has disappeared.
    second = plan_head(crowd([0, 300, 900], 2000), task, head=first).run(ledger, epoch=6, bits=bits("second"))
    assert second.records == first.records
    assert second.configuration.digest == first.configuration.digest
    assert (second.epoch, second.listed, second.last_epoch) == (6, 5, 7)
    shares = dict(zip(second.records, second.optin.values.tolist(), strict=True))
    for record, share in zip(RECORDS, (0, 0.15, 0.45), strict=True):
        assert shares[record] == pytest.approx(share, abs=0.02)
    assert second.optin.wildcard == pytest.approx(0.4, abs=0.02)
    assert second.optin.wildcard_draws == 1
    again = PublishedHead.load(second.save(tmp_path / "head2"))
    assert (again.listed, again.epoch, again.records) == (5, 6, first.records)
    third = plan_head(crowd([1, 2, 3], 2000), task, head=again).run(ledger, epoch=7, bits=bits("third"))
    assert third.configuration.digest == first.configuration.digest
    blended = blended_release(third, blended_shares(third, np.array([10, 10, 10, 70]), 100))
    assert verify(blended.save(tmp_path / "release")).ok
    assert "public since epoch 5" in third.optin_guarantee.steps[0].detail


def test_a_kept_period_costs_pure_epsilon_and_both_accounts_are_charged_each_time(tmp_path: Path) -> None:
    task = weekly()
    ledger = opened(tmp_path / "ledger.db", task, 3)
    log = crowd([600, 300, 100], 2000)
    head = plan_head(log, task).run(ledger, epoch=0, bits=bits("a"))
    new = ledger.account("readers who opted in", "replace-one").spent
    assert new.threshold_delta > 0
    for epoch in (1, 2):
        plan = plan_head(log, task, head=head)
        assert plan.loss.pure == (Fraction(4),)
        assert plan.loss.threshold_delta == 0
        assert plan.guarantee.delta == 0
        head = plan.run(ledger, epoch=epoch, bits=bits("a", epoch))
        assert head.optin_guarantee.loss == plan.loss
    spent = ledger.account("readers who opted in", "replace-one").spent
    assert sum(spent.pure) == 12
    assert spent.threshold_delta == new.threshold_delta
    assert ledger.account("readers", "replace-one").spent.epsilon(0) == 12
    assert [entry.what for entry in ledger.history("readers") if "epoch 2" in entry.what]
    with pytest.raises(BudgetRefused):
        plan_head(log, task).run(ledger, epoch=3, bits=bits("b"))


def test_the_noise_of_a_kept_list_is_the_law_that_is_paid_for_on_every_record() -> None:
    records = [(f"query {'abcdefghij'[i % 10] * (1 + i // 10)}", "") for i in range(2000)]
    log = crowd([0, 0, 0], 50)
    step = calibrate_remeasure(epsilon="1/2", records_per_user=1)
    assert step.scale == 4
    drawn = []
    for run in range(5):
        shares = remeasure(log, records, step, bits=bits("kept law", run))
        drawn.append(np.append(shares.values, shares.wildcard - 1) * 50)
    noise = np.concatenate(drawn).round().astype(np.int64)
    # P[Z = z] = (1-a)/(1+a) a^|z| with a = e^(-1/4), written down here once more.
    a = math.exp(-1 / 4)
    law: dict[Hashable, float] = {z: (1 - a) / (1 + a) * a ** abs(z) for z in range(-400, 401)}
    every_position(tally(noise), law)
    assert shares.noise_variance == pytest.approx(2 * a / (1 - a) ** 2) == law_of(step).variance


def test_the_exchange_of_one_user_moves_list_and_wildcard_by_two_records_each() -> None:
    """The sensitivity that the wildcard's own draw rests on: |a| + |a'| + |a - a'| <= 2m, for all that m records do."""
    for m in (1, 2, 3):
        moved = max(a + b + abs(a - b) for a in range(m + 1) for b in range(m + 1))
        assert moved == 2 * m
        assert calibrate_remeasure(epsilon=1, records_per_user=m).loss.pure == (Fraction(1),)
        assert calibrate_remeasure(epsilon=1, records_per_user=m).scale == 2 * m
        assert calibrate_remeasure(epsilon=1, records_per_user=m, relation="add-remove").scale == m


def test_under_add_remove_the_wildcard_is_what_is_left() -> None:
    log, step = crowd([600, 300, 100], 2000), calibrate_remeasure(epsilon=4, relation="add-remove")
    with pytest.raises(UsageError, match="how many users"):
        remeasure(log, RECORDS, step)
    shares = remeasure(log, RECORDS, step, users=2000, bits=bits("left"))
    assert shares.wildcard == pytest.approx(1 - shares.values.sum(), abs=1e-12)
    assert shares.wildcard_draws == 3
    assert OptInShares.from_json(json.loads(json.dumps(shares.to_json()))).records == RECORDS
    empty = remeasure(log, [], step, users=2000)
    assert (empty.wildcard, empty.wildcard_draws, len(empty)) == (1.0, 0, 0)
    two = remeasure(log, RECORDS, calibrate_remeasure(epsilon=4, records_per_user=2), bits=bits("two"))
    assert (two.n, two.records_per_user) == (4000, 2)
    for wrong in ({"epsilon": 0}, {"epsilon": -1}, {"epsilon": 1, "records_per_user": 0}):
        with pytest.raises((CalibrationError, UsageError)):
            calibrate_remeasure(**wrong)  # type: ignore[arg-type]


def test_epochs_that_a_list_is_not_for_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    task, log = weekly(), crowd([600, 300, 100], 2000)
    ledger = opened(tmp_path / "ledger.db", task, 3)
    head = plan_head(log, task).run(ledger, epoch=5, bits=bits("first"))
    at = ledger.head
    for epoch in (4, 5, 8, -1, 2.0):
        with pytest.raises(UsageError, match="epoch"):
            plan_head(log, task, head=head).run(ledger, epoch=epoch)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="another task"):
        plan_head(log, weekly(2), head=head)
    alone = plan_head(log, weekly(1)).run(tmp_path / "other.db", epoch=5, bits=bits("alone"))
    with pytest.raises(UsageError, match="not kept"):
        plan_head(log, weekly(1), head=alone)
    assert ledger.head == at
    nothing = plan_head(crowd([1, 1, 1], 100), task).run(tmp_path / "empty.db", epoch=5, bits=bits("empty"))
    with pytest.raises(UsageError, match="empty"):
        plan_head(log, task, head=nothing)
    last = plan_head(log, task, head=head).run(ledger, epoch=7)
    assert last.test_noise  # a list that a test's noise found stays marked
    with pytest.raises(UsageError, match="not kept beyond epoch 7"):
        plan_head(log, task, head=last)
    data = json.loads((last.save(tmp_path / "head") / HEAD_FILE).read_text())
    for change in ({"kept_since": 7}, {"kept_since": -1}, {"kept_since": "5"}, {"kept_since": 4}, {"epoch": 8}):
        with pytest.raises(DataError):
            PublishedHead.from_json({**data, **change})


def test_a_refused_epoch_says_how_accounts_are_opened_and_reads_nothing(tmp_path: Path) -> None:
    task, log = weekly(4), crowd([600, 300, 100], 2000)
    head = plan_head(log, task).run(tmp_path / "ledger.db", epoch=0, bits=bits("once"))
    seen: list[str] = []
    with pytest.raises(BudgetRefused) as refused:
        plan_head(log, task, head=head).run(
            tmp_path / "ledger.db", epoch=1, bits=bits("twice"), progress=lambda what, _: seen.append(what)
        )
    assert seen == []
    fix = refused.value.fix
    assert "hushquery budget open --population 'readers who opted in' --relation replace-one --epsilon 48" in fix
    assert "--delta 3e-05" in fix  # three lists in twelve epochs
    assert "hushquery budget open --population readers --relation replace-one --epsilon 48 --delta 0" in fix
    with pytest.raises(AccountMissing, match="budget open --population readers"):
        plan_head(log, task).run(tmp_path / "none.db", create=False)
    assert "budget open" in plan_head(log, task, head=head).explain()
    assert "repeat the answer" in plan_head(log, task, head=head).explain()


def test_the_command_line_keeps_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    lines = ["user,query,url"] + [f"u{i},news,https://news.example" for i in range(200)]
    Path("log.csv").write_text("\n".join(lines) + "\n")
    weekly_file = Path("task.json")
    weekly_file.write_text(weekly(2, optin={"epsilon": 2}, client={"epsilon": 2}).canonical())

    def run(*arguments: str) -> dict[str, object]:
        done = runner.invoke(app, [*arguments, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found: dict[str, object] = json.loads(done.stdout)
        return found

    for population, delta in (("readers", "0"), ("readers who opted in", "2e-5")):
        run(
            *("budget", "open", "--population", population, "--relation", "replace-one"),
            *("--epsilon", "4", "--delta", delta),
        )
    first = run("head", "log.csv", "--task", "task.json", "--epoch", "2", "--out", "head2")
    second = run("head", "log.csv", "--task", "task.json", "--epoch", "3", "--previous", "head2", "--out", "head3")
    assert first["configuration"] == second["configuration"]
    assert (second["epoch"], second["listed"]) == (3, 2)


# ---- clients who remember ------------------------------------------------------------------------------------------


def long_answers(lifetime: int = 12) -> Task:
    # Two draws of this oracle are never equal: each has a seed of its own. So equal bytes mean a repeated answer.
    return weekly(3, client={"oracle": "olh", "lifetime_epsilon": lifetime})


def test_many_simulated_clients_are_as_the_real_one(tmp_path: Path) -> None:
    """Same spending, and the same periods with the same bytes, through changes, new lists, absences and the cap."""
    task = long_answers(lifetime=16)
    lists = [RECORDS, RECORDS, list(reversed(RECORDS)), RECORDS, RECORDS[:2]]
    draw = np.random.default_rng(number("histories"))
    clients, periods = 9, 12
    values = draw.integers(0, 4, (periods, clients))
    values[:, :4] = values[0, :4]  # some never change: only another list makes them pay again
    there = draw.random((periods, clients)) < 0.8
    which = draw.integers(0, len(lists), periods)
    memos = Memos(task, clients)
    configurations = [Configuration.of(task, head) for head in lists]
    assert configurations[0].digest == configurations[1].digest == configurations[3].digest
    simulated: list[dict[int, bytes]] = [{} for _ in range(clients)]
    real: list[dict[int, bytes]] = [{} for _ in range(clients)]
    source = bits("many")
    for period in range(periods):
        configuration = configurations[which[period]]
        pairs = [*RECORDS, ("something else", "")]
        who = np.flatnonzero(there[period])
        cells = np.array([configuration.domain.cell(*pairs[v]) for v in values[period][who]], dtype=np.int64)
        answers = memos.answer(configuration, who, cells, source)
        oracle = configuration.oracle
        for place, client in enumerate(who.tolist()):
            simulated[client][period] = oracle.pack(oracle.report(answers.rows[place]))
            one = Client(
                task,
                tmp_path / "clients.db",
                f"c{client}",
                head=lists[which[period]],
                bits=source,
                clock=lambda period=period: period * WEEK + 5.0,  # type: ignore[misc]
            )
            before = one.account().spent
            report = one.report(*pairs[values[period][client]])
            assert report is not None
            real[client][period] = report.payload
            assert one.account().spent == memos.spent(client)
            assert bool(answers.drawn[place]) == (one.account().spent > before)
    silent = 0
    for client in range(clients):
        for earlier in real[client]:
            for later in real[client]:
                same = real[client][earlier] == real[client][later]
                assert same == (simulated[client][earlier] == simulated[client][later])
        silent += memos.draws[client] == memos.most
    assert 0 < silent < clients  # the cap was reached, but not by all, or this shows less than it says


def test_an_answer_that_says_nothing_is_the_wildcards_and_costs_nothing() -> None:
    task = long_answers(lifetime=4)
    configuration = Configuration.of(task, RECORDS)
    clients = 30_000
    memos, who = Memos(task, clients), np.arange(clients)
    memos.answer(configuration, who, np.zeros(clients, dtype=np.int64), bits("told"))
    after = memos.answer(configuration, who, np.ones(clients, dtype=np.int64), bits("untold"))
    assert after.empty.all()
    assert not after.drawn.any()
    assert (memos.draws == 1).all()
    shares, stderrs = configuration.oracle.frequencies(configuration.oracle.support(after.rows), clients)
    assert shares[-1] == pytest.approx(1, abs=7 * stderrs[-1])
    assert shares[1] == pytest.approx(0, abs=7 * stderrs[1])
    repeated = memos.answer(configuration, who, np.full(clients, 2), bits("again"))
    assert (repeated.rows == after.rows).all()
    with pytest.raises(UsageError, match="once"):
        memos.answer(configuration, np.array([1, 1]), np.array([0, 0]), bits("twice"))
    with pytest.raises(UsageError, match="another task"):
        memos.answer(Configuration.of(weekly(), RECORDS), who[:1], who[:1], bits("other"))
    with pytest.raises(UsageError, match="one record"):
        Memos(weekly(3, client={"records_per_user": 2}, optin={"records_per_user": 2}), 5)


# ---- people --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**9))
def test_records_have_names_that_read_back(record: int) -> None:
    assert number_of(*name_of(record)) == record


def small(**other: float) -> World:
    return World(4000, 3, optin=0.2, law=PowerLaw("short", 4000, 0.1, 1.0, 500), **other)


def test_people_join_leave_move_and_change_as_often_as_stated() -> None:
    world = World(50_000, 2, optin=0.3, moving=0.1, leaving=0.05, changing=0.2)
    before, after = history(world, np.random.default_rng(number("people")))
    assert len(before.who) == len(after.who) == 50_000
    stayed = np.isin(before.who, after.who)
    assert 1 - stayed.mean() == pytest.approx(0.05, abs=0.007)
    at = np.searchsorted(after.who, before.who[stayed])
    was, now = before.optin[stayed], after.optin[at]
    assert (was & ~now).sum() == (~was & now).sum()
    assert (was & ~now).sum() / was.sum() == pytest.approx(0.1, abs=0.02)
    # A new draw may be the old record again, with the chance of a few thousandths.
    assert (before.record[stayed] != after.record[at]).mean() == pytest.approx(0.2, abs=0.02)
    truth, places = before.truth([name_of(0), name_of(10**8)])
    assert truth.count[places].tolist() == [(before.record == 0).sum(), 0]
    assert truth.count.sum() == truth.users == 50_000
    for wrong in ({"users": 10}, {"users": 5000, "epochs": 1}, {"users": 5000, "optin": 1.0}):
        with pytest.raises(UsageError):
            World(**wrong)
    with pytest.raises(UsageError, match="moving"):
        small(moving=float("nan"))


def test_who_moves_pays_in_both_groups_and_the_sum_is_the_persons() -> None:
    task = weekly()
    spending = Spending(task, 3)
    configuration = Configuration.of(task, RECORDS)
    groups = [(0, 1), (0,), (0,)]  # nobody else is an opt-in user; 2 is always a client, and 1 moves
    for number_, opted in enumerate(groups):
        who = np.arange(3)
        optin = np.isin(who, opted)
        epoch = Epoch(who, who, optin)
        spending.add(epoch, Fraction(4), Fraction(1, 10**5) if number_ == 0 else Fraction(0))
        cells = np.full(int((~optin).sum()), number_ % 2)
        spending.memos.answer(configuration, who[~optin], cells, bits("moved", number_))
    totals = {total.group: total for total in spending.totals()}
    moved = totals["moved, and there all the time"]
    assert (moved.people, moved.optin_worst, moved.client_worst, moved.person_worst) == (1, 4, 8, 12)
    assert moved.optin_delta == 1e-5
    clients, optin_users = totals["clients all the time"], totals["opt-in users all the time"]
    assert (clients.optin_worst, clients.client_worst, clients.optin_delta) == (0, 8, 0)
    assert (optin_users.optin_worst, optin_users.client_worst) == (12, 0)
    assert totals["everybody who was ever there"].person_worst == 12


def test_a_kept_list_costs_clients_less_and_the_ledger_covers_everybody(tmp_path: Path) -> None:
    people = history(small(), np.random.default_rng(number("followed")))
    found = {}
    for keep in (1, 3):
        task = epochs_task(keep, size=5)
        ledger = opened(tmp_path / f"{keep}.db", task, 3)
        found[keep] = follow(people, task, ledger, bits=bits("follow", keep))
    new, kept = found[1], found[3]
    assert [row.listed for row in new.epochs] == [0, 1, 2]
    assert [row.listed for row in kept.epochs] == [0, 0, 0]
    assert kept.epochs[1].drawn < new.epochs[1].drawn == new.epochs[1].clients
    assert kept.epochs[-1].typical < new.epochs[-1].typical
    for one in (new, kept):
        assert one.client_account == 6
        assert all(total.client_worst <= one.client_account for total in one.totals)
        assert all(row.silent == 0 for row in one.epochs)
    assert max(total.optin_delta for total in kept.totals) < max(total.optin_delta for total in new.totals)
    rows = changes(kept)
    assert rows
    assert all(row.covered for row in rows)
    assert all(row.low < row.change < row.high for row in rows)
