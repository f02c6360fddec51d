"""Real processes: fifty race for the last of a budget, and kill -9 comes at random moments."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, BudgetRefused
from ledger.workers import PROCESSES, READERS, Spender, race

RACERS = 50


def run_race(
    url: str, loss: Loss, create_with: Budget | None = None, once: str | None = None
) -> list[tuple[str, int, bool]]:
    start, answers = PROCESSES.Barrier(RACERS), PROCESSES.Queue()
    given = (url, start, answers, loss, create_with, once)
    racers = [PROCESSES.Process(target=race, args=given) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=180) for _ in racers]
    for racer in racers:
        racer.join()
        racer.close()
    answers.close()
    strange = [what for what, _, _ in found if what not in ("spent", "refused")]
    assert not strange
    return sorted(answer for answer in found if answer[0] == "spent")


@pytest.mark.parametrize(
    ("loss", "budget", "before", "fit"),
    [
        (Loss(pure=("1/10",)), Budget(1, 0), 3, 7),
        pytest.param(Loss(pure=("1/50",)), Budget(1, 0), 0, 50, marks=pytest.mark.prove),
        (Loss(mu_squared="1/100"), Budget(2, 1e-6), 0, None),
    ],
    ids=["7 fit", "all fit", "gaussian"],
)
def test_fifty_processes_never_overspend(
    store_url: str, loss: Loss, budget: Budget, before: int, fit: int | None
) -> None:
    ledger = Ledger.open(store_url)
    ledger.open_account(*READERS, budget)
    for _ in range(before):
        ledger.spend(*READERS, loss, what="before the race")
    if fit is None:  # as many as fit when they are asked one by one
        total, fit = loss, 0
        while total.fits(budget.epsilon, budget.delta):
            total, fit = total + loss, fit + 1
        assert 5 < fit < RACERS
    spent = run_race(store_url, loss)
    assert len(spent) == min(fit, RACERS)
    assert [seq for _, seq, _ in spent] == list(range(before + 2, before + 2 + len(spent)))
    assert len(ledger.history()) == 1 + before + len(spent)
    assert ledger.account(*READERS).spent.fits(budget.epsilon, budget.delta)
    assert Ledger.open(store_url, create=False).check() == ledger.head


def test_fifty_processes_create_one_ledger_and_one_account(store_url: str) -> None:
    spent = run_race(store_url, Loss(pure=("1/3",)), create_with=Budget(1, 0))
    assert len(spent) == 3
    assert sum(created for _, _, created in spent) == 1
    assert [entry.kind for entry in Ledger.open(store_url, create=False).history()] == [
        "open",
        *["spend"] * 3,
    ]


def test_fifty_processes_with_one_key_spend_once(store_url: str) -> None:
    spent = run_race(store_url, Loss(pure=("1/3",)), create_with=Budget(1, 0), once="the move")
    assert [seq for _, seq, _ in spent] == [2] * RACERS  # all got the same entry
    assert sum(created for _, _, created in spent) == 1
    ledger = Ledger.open(store_url, create=False)
    assert [(entry.kind, entry.once) for entry in ledger.history()] == [("open", None), ("spend", "the move")]
    assert ledger.account(*READERS).spent == Loss(pure=("1/3",))


def kill_rounds(new_store: Callable[[], str], rounds: int, rounds_per_store: int) -> tuple[int, int]:
    """Kill spenders at random moments; give how many spends were reported, and how many only recorded."""
    reported_ever = unreported_ever = 0
    chance = random.Random(20260101)
    loss = Loss(pure=("1/1000000",))
    for number in range(rounds):
        if number % rounds_per_store == 0:
            url = new_store()
            ledger = Ledger.open(url)
            ledger.open_account(*READERS, Budget(1, 0))
            recorded, head = 1, ledger.head
        spender = Spender(url, loss)
        spender.wait_for_reports(chance.randrange(4))
        time.sleep(chance.uniform(0, 0.03))
        reported = spender.kill()
        after = Ledger.open(url, create=False)  # verifies the chain
        after.check(expect_head=head)
        seqs = [entry.seq for entry in after.history()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert set(reported) <= set(seqs), "a spend that was reported as done is not there"
        # At most the one it was at when it died is recorded without having been reported.
        assert recorded + len(reported) <= len(seqs) <= recorded + len(reported) + 1
        spent = after.account(*READERS).spent
        assert sum(spent.pure) == Fraction(len(seqs) - 1, 1000000), "budget came back"
        unreported_ever += len(seqs) - recorded - len(reported)
        reported_ever += len(reported)
        recorded, head = len(seqs), after.head
    return reported_ever, unreported_ever


def test_kill_loses_nothing_and_gives_nothing_back(new_store: Callable[[], str]) -> None:
    reported, _ = kill_rounds(new_store, rounds=30, rounds_per_store=15)
    assert reported > 30  # it really spent before it was killed


@pytest.mark.prove
def test_kill_five_hundred_times(new_store: Callable[[], str]) -> None:
    reported, unreported = kill_rounds(new_store, rounds=500, rounds_per_store=25)
    assert reported > 500
    assert unreported > 0  # some kills hit the moment between the commit and the report


def test_kill_while_the_ledger_is_made(new_store: Callable[[], str]) -> None:
    """A ledger is never seen half made: after the kill it is whole, or it is not there at all."""
    chance = random.Random(20260102)
    loss, budget = Loss(pure=("1/1000",)), Budget(1, 0)
    began = time.monotonic()
    first = Spender(new_store(), loss, budget)
    first.wait_for_reports(1)
    usual = time.monotonic() - began
    assert first.kill()[0] == 2
    seen: Counter[str] = Counter()
    for number in range(200):
        url = new_store()
        spender = Spender(url, loss, budget)
        time.sleep(chance.uniform(0, usual))
        reported = spender.kill()
        try:
            entries = Ledger.open(url, create=False).history()
        except AccountMissing:
            entries = []
            seen["not there"] += 1
        assert len(entries) != 1, "an account was opened without the spend that opened it"
        assert set(reported) <= {entry.seq for entry in entries}
        seen["spent"] += bool(entries)
        if number >= 20 and seen["not there"] and seen["spent"]:
            break
    assert seen["not there"]
    assert seen["spent"]


def test_a_full_account_stays_full_after_a_kill(store_url: str) -> None:
    loss = Loss(pure=("1/20",))
    spender = Spender(store_url, loss, Budget(1, 0))
    spender.wait_for_reports(5)
    spender.kill()
    ledger = Ledger.open(store_url, create=False)
    for _ in range(20 - (len(ledger.history()) - 1)):
        ledger.spend(*READERS, loss, what="the rest")
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, loss, what="one too many")
    assert ledger.account(*READERS).remaining_epsilon == 0
