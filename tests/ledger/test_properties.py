"""For any sequence of spends and any clock: what was accepted fits, and what was refused changed nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushquery.core.budget import Budget, Relation
from hushquery.core.calibration import SparseGaussian
from hushquery.core.ledger.entries import Terms, down_text
from hushquery.core.ledger.ledger import Ledger, period_length
from hushquery.core.loss import Loss
from hushquery.errors import BudgetRefused
from ledger.workers import READERS

START = datetime(2026, 1, 1, tzinfo=UTC)
# Each example makes a ledger on a real disk, so there are few of them; `make prove` tries many.
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(FEW, max_examples=300)

epsilons = st.sampled_from(["0", "1/10", "1/3", "1/2", "1", "ln(3)", "2"])
budgets = st.builds(Budget, epsilons, st.sampled_from(["0", "1e-9", "1e-6", "1/1000"]))
sparse = st.builds(
    SparseGaussian,
    st.integers(1, 2),
    st.just(Fraction(31, 2)),
    st.integers(60, 200),
    st.just(Relation.ADD_REMOVE),
)
losses = st.builds(
    Loss,
    st.sampled_from(["0", "0", "1/400", "1/100", "1/9"]),
    st.lists(st.sampled_from(["1/100", "1/6", "1/2"]), max_size=2).map(tuple),
    st.sampled_from(["0", "0", "1e-10", "1e-7", "1/2000"]),
    st.just(()) | st.just(()) | sparse.map(lambda one: (one,)),
)
populations = st.sampled_from(["readers", "authors"])


def shown(ledger):
    """All that can be seen of a ledger, as text without infinities."""
    seen = [[a.to_json() for a in ledger.accounts()], [e.to_json() for e in ledger.history()], ledger.head]
    return json.dumps(seen, allow_nan=False)


def check_that_what_is_accepted_fits(url, budget, spends):
    ledger = Ledger.open(url, clock=lambda: START)
    totals = {}
    entries = 0
    for population, loss in spends:
        total = totals.get(population, Loss()) + loss
        head = ledger.head
        try:
            entry = ledger.spend(population, "add-remove", loss, what="x", create_with=budget)
        except BudgetRefused:
            assert not total.fits(budget.epsilon, budget.delta)
            assert ledger.check() == head
            continue
        assert total.fits(budget.epsilon, budget.delta)
        assert entry.created == (population not in totals)
        entries += 1 + entry.created
        assert entry.seq == entries
        totals[population] = total
    again = Ledger.open(url, clock=lambda: START)
    assert len(again.history()) == entries
    assert {account.population: account.spent for account in again.accounts()} == totals
    assert (again.history(), again.accounts()) == (ledger.history(), ledger.accounts())
    assert again.check(ledger.head) == ledger.head


any_spends = given(budget=budgets, spends=st.lists(st.tuples(populations, losses), max_size=6))


@FEW
@any_spends
def test_what_is_accepted_always_fits(new_store, budget, spends):
    check_that_what_is_accepted_fits(new_store(), budget, spends)


@pytest.mark.prove
@MANY
@any_spends
def test_what_is_accepted_fits_three_hundred_times(new_store, budget, spends):
    check_that_what_is_accepted_fits(new_store(), budget, spends)


@FEW
@given(
    period=st.sampled_from(["1m", "90m", "1d"]),
    cap=st.none() | st.builds(Budget, st.sampled_from(["1/2", "2", "7/2"]), st.just(0)),
    moves=st.lists(
        st.tuples(
            st.integers(-200_000, 200_000) | st.sampled_from([0, 60, 5400, 86400, 10**8, -(10**8)]),
            st.sampled_from(["1/4", "1/2", "1"]),
        ),
        max_size=12,
    ),
)
def test_no_clock_gives_a_period_its_budget_twice(new_store, period, cap, moves):
    url = new_store()
    now = [START]
    ledger = Ledger.open(url, clock=lambda: now[0])
    ledger.open_account(*READERS, Budget(1, 0), period, cap)
    for seconds, epsilon in moves:
        now[0] += timedelta(seconds=seconds)
        loss = Loss(pure=(epsilon,))
        try:
            ledger.spend(*READERS, loss, what="x")
        except BudgetRefused:
            account = ledger.account(*READERS)
            left = [account.remaining_epsilon]
            if cap is not None:
                left.append(account.lifetime_remaining_epsilon)
            assert min(left) < loss.pure[0]
    spends = ledger.history()[1:]
    periods = [entry.period for entry in spends]
    assert periods == sorted(periods)
    for index in set(periods):
        assert sum(sum(entry.loss.pure) for entry in spends if entry.period == index) <= 1
    if cap is not None:
        assert sum(sum(entry.loss.pure) for entry in spends) <= cap.epsilon
    reached = -1
    for entry in spends:
        reached = max(reached, (entry.time - START) // period_length(period), 0)
        assert entry.period == reached
    assert shown(Ledger.open(url, clock=lambda: now[0])) == shown(ledger)


@given(st.builds(Terms, budgets, st.sampled_from(["7d", "12h", "30m"]), st.none() | budgets))
def test_terms_are_read_back_as_they_were_written(terms):
    assert Terms.from_json(json.loads(json.dumps(terms.to_json()))) == terms


@given(st.floats(0, 1000))
def test_what_remains_is_never_overstated(epsilon):
    assert float(down_text(epsilon)) <= epsilon * (1 + 1e-13)
    assert float(down_text(epsilon)) >= epsilon * 0.98
