"""The rules of the ledger, on both stores: what fits is recorded, what does not leaves no trace."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from hushquery.core.budget import Budget, Relation
from hushquery.core.calibration import calibrate_sparse_gaussian, mu_for
from hushquery.core.ledger.ledger import Ledger, Terms, period_length
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, BudgetError, BudgetRefused, LedgerCorrupt, UsageError
from ledger.workers import READERS

HALF = Loss(pure=("1/2",))


def open_ledger(url, clock=None, **terms):
    ledger = Ledger.open(url, **({"clock": clock} if clock else {}))
    ledger.open_account(*READERS, terms.pop("budget", Budget(1, 0)), **terms)
    return ledger


def state(ledger):
    return json.dumps(
        [
            [account.to_json() for account in ledger.accounts()],
            [entry.to_json() for entry in ledger.history()],
            ledger.head,
        ],
        allow_nan=False,
    )


def test_open_spend_and_reopen(store_url, clock):
    ledger = Ledger.open(store_url, clock=clock)
    account = ledger.open_account(*READERS, Budget("ln(10)", 1e-6))
    assert (account.population, account.relation, account.period) == ("readers", Relation.ADD_REMOVE, 0)
    assert account.spent == account.spent_ever == Loss()
    clock.forward(hours=1)
    loss = Loss("1/100", ("1/2", "1/3"), "1/10000000", (calibrate_sparse_gaussian(3, "1/10", 1e-8),))
    entry = ledger.spend(*READERS, loss, what="top queries", plan="sha256:abc\nstep 2")
    assert (entry.seq, entry.kind, entry.what, entry.plan) == (
        2,
        "spend",
        "top queries",
        "sha256:abc\nstep 2",
    )
    assert (entry.loss, entry.time, entry.created) == (loss, clock.now, False)
    before = state(ledger)
    again = Ledger.open(store_url, create=False, clock=clock)
    assert state(again) == before
    assert again.history()[1] == entry
    assert again.account(*READERS).spent == loss
    assert again.check(ledger.head) == ledger.head


def test_accounts_are_apart(store_url):
    ledger = open_ledger(store_url)
    ledger.open_account("editors", "replace-one", Budget(1, 0))
    ledger.open_account("authors", "add-remove", Budget(1, 0))
    ledger.spend(*READERS, Loss(pure=(1,)), what="all of it")
    for population, relation in (("editors", "replace-one"), ("authors", Relation.ADD_REMOVE)):
        ledger.spend(population, relation, Loss(pure=(1,)), what="all of it")
    found = [(a.population, a.relation.value, a.remaining_epsilon) for a in ledger.accounts()]
    assert found == [
        ("authors", "add-remove", 0),
        ("editors", "replace-one", 0),
        ("readers", "add-remove", 0),
    ]
    assert len(ledger.accounts("authors")) == 1
    assert [entry.population for entry in ledger.history("authors")] == ["authors", "authors"]
    assert ledger.history("nobody") == ledger.accounts("nobody") == []


def test_an_account_is_opened_once(store_url):
    ledger = open_ledger(store_url)
    other = Ledger.open(store_url)
    head = ledger.head
    for each in (ledger, other):
        with pytest.raises(BudgetError, match="exists already") as refused:
            each.open_account(*READERS, Budget(100, 0))
        assert refused.value.exit_code == 3
    assert Ledger.open(store_url).head == head
    assert ledger.account(*READERS).terms == Terms(Budget(1, 0))


CLAIMS = {
    "pure": (Budget("0.1", 0), Loss(pure=("0.1",))),
    "pure in parts": (Budget("0.3", 0), Loss(pure=("0.1", "0.1", "0.1"))),
    "gaussian": (Budget("ln 10", 1e-5), Loss(mu_squared=mu_for("ln 10", 1e-5) ** 2)),
    "sparse": (Budget("ln 10", 1e-5), Loss(sparse=(calibrate_sparse_gaussian(4, "ln 10", 1e-5),))),
    "threshold": (Budget("0.5", 1e-6), Loss(pure=("0.5",), threshold_delta=1e-6)),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_budget_equal_to_a_claim_accepts_it_exactly_once(store_url, claim):
    budget, loss = CLAIMS[claim]
    ledger = Ledger.open(store_url)
    entry = ledger.spend(*READERS, loss, what="first", create_with=budget)
    assert (entry.seq, entry.created) == (2, True)
    before = state(ledger)
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, loss, what="the same again", create_with=budget)
    assert state(ledger) == before == state(Ledger.open(store_url, clock=ledger._clock))
    account = ledger.account(*READERS)
    assert account.terms == Terms(budget)
    assert 0 <= account.remaining_epsilon < 0.01 * budget.epsilon


def test_a_refusal_says_whether_epsilon_or_delta_ran_out(tmp_path):
    ledger = open_ledger(str(tmp_path / "ledger.db"), budget=Budget(3, 1e-6))
    ledger.spend(*READERS, Loss(pure=("1",), threshold_delta=1e-6), what="first")
    with pytest.raises(BudgetRefused, match=r"delta of 1e-06, .* and nothing of it is left. Spend at delta 0 only\."):
        ledger.spend(*READERS, Loss(pure=("1",), threshold_delta=1e-6), what="fits in epsilon, not in delta")
    with pytest.raises(BudgetRefused, match=r"together 3\.5\. Spend at most epsilon 2\."):
        ledger.spend(*READERS, Loss(pure=("5/2",)), what="too much epsilon")


def test_a_refusal_for_delta_says_what_of_it_is_left(tmp_path):
    ledger = open_ledger(str(tmp_path / "ledger.db"), budget=Budget(3, 1e-6))
    ledger.spend(*READERS, Loss(pure=("1",), threshold_delta=7.5e-7), what="first")
    assert ledger.account(*READERS).remaining_delta == pytest.approx(2.5e-7)
    message = r"account's delta of 1e-06, .* and about 2\.5e-07 of it is left\. Spend less than delta 2\.5e-07\."
    with pytest.raises(BudgetRefused, match=message):
        ledger.spend(*READERS, Loss(pure=("1",), threshold_delta=5e-7), what="too much delta")
    ledger.spend(*READERS, Loss(pure=("1",), threshold_delta=2.4e-7), what="what is said to be left is left")


def test_an_account_says_why_spent_is_not_the_sum(tmp_path):
    ledger = open_ledger(str(tmp_path / "ledger.db"), budget=Budget(3, 2e-6))
    ledger.spend(*READERS, Loss(pure=("1",)), what="no delta, so the sum is the sum")
    assert ledger.account(*READERS).counted == ""
    ledger.spend(*READERS, Loss(mu_squared=mu_for(1, 1e-6) ** 2), what="Gaussian noise")
    assert "at the account's delta, 2e-06" in ledger.account(*READERS).counted


def test_what_is_left_of_delta_counts_what_gaussian_noise_needs_of_it(tmp_path):
    ledger = open_ledger(str(tmp_path / "ledger.db"), budget=Budget(1, 1e-5))
    loss = Loss(mu_squared=mu_for(1, 4e-6) ** 2)
    ledger.spend(*READERS, loss, what="needs delta 4e-6 at epsilon 1")
    account = ledger.account(*READERS)
    assert account.remaining_delta == pytest.approx(6e-6, rel=1e-6)
    assert account.to_json()["remaining_delta"] == account.to_json()["lifetime_remaining_delta"] <= 6e-6 * (1 + 1e-6)


@pytest.mark.parametrize("terms", [(Budget(0, 0),), (Budget(1, 0), "7d", Budget(0, 0))])
def test_an_account_that_could_never_spend_is_not_opened(tmp_path, terms):
    ledger = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(UsageError, match="never spend"):
        ledger.open_account(*READERS, *terms)
    assert ledger.history() == []


def test_the_smallest_excess_is_refused(store_url):
    ledger = open_ledger(store_url)
    ledger.spend(*READERS, Loss(pure=("0.7",)), what="most")
    for excess in ("1/1000", f"1/{10**40}"):
        with pytest.raises(BudgetRefused):
            ledger.spend(*READERS, Loss(pure=(Fraction("0.3") + Fraction(excess),)), what="too much")
    ledger.spend(*READERS, Loss(pure=("0.3",)), what="the rest")
    account = ledger.account(*READERS)
    assert (account.spent_epsilon, account.remaining_epsilon) == (1.0, 0.0)
    ledger.spend(*READERS, Loss(), what="what costs nothing still fits")


def test_creation_by_the_first_spend(store_url):
    ledger = Ledger.open(store_url)
    with pytest.raises(AccountMissing, match="no account"):
        ledger.spend(*READERS, HALF, what="x")
    with pytest.raises(AccountMissing):
        ledger.account(*READERS)
    with pytest.raises(BudgetRefused):  # then no account is left behind either
        ledger.spend(*READERS, Loss(pure=(2,)), what="x", create_with=Budget(1, 0))
    assert (ledger.history(), ledger.accounts()) == ([], [])
    assert ledger.spend(*READERS, HALF, what="x", create_with=Budget(1, 0)).created
    second = ledger.spend(*READERS, HALF, what="x", create_with=Budget(100, 0))
    assert not second.created
    with pytest.raises(BudgetRefused):  # an account that exists keeps its own budget
        ledger.spend(*READERS, HALF, what="x", create_with=Budget(100, 0))


def test_a_refusal_says_what_was_asked_and_what_is_left(store_url, clock):
    ledger = open_ledger(store_url, clock, budget=Budget(1, 0), period="7d", lifetime=Budget("1.5", 0))
    ledger.spend(*READERS, Loss(pure=("0.75",)), what="x")
    with pytest.raises(BudgetRefused) as refused:
        ledger.spend(*READERS, HALF, what="y")
    text = str(refused.value)
    for part in (
        '"readers" (add-remove)',
        "requested epsilon 0.5",
        "spent 0.75",
        "remaining 0.25",
        "of epsilon 1 at delta 0 for period 0 (7d each)",
        "together 1.25",
        "2026-01-08T00:00:00",
    ):
        assert part in text
    clock.forward(days=7)
    with pytest.raises(BudgetRefused, match=r"of epsilon 1.5 at delta 0 for its lifetime; together 1.55"):
        ledger.spend(*READERS, Loss(pure=("0.8",)), what="y")


@pytest.mark.parametrize(
    "loss", [Loss(mu_squared="1/10"), Loss(threshold_delta="1/1000"), Loss(pure=(1,), threshold_delta=1)]
)
def test_a_loss_without_any_epsilon_is_refused_in_words(store_url, loss):
    ledger = open_ledger(store_url, budget=Budget(1, 0))
    with pytest.raises(BudgetRefused, match="requested epsilon infinite, spent 0, remaining 1"):
        ledger.spend(*READERS, loss, what="x")
    assert len(ledger.history()) == 1


def test_an_infinite_epsilon_is_null_in_json(store_url, clock):
    """Without a lifetime cap all periods together may exceed the delta of one: then no epsilon holds."""
    ledger = open_ledger(store_url, clock, budget=Budget(1, 1e-6), period="1d")
    for _ in range(2):
        ledger.spend(*READERS, Loss(threshold_delta=1e-6), what="x")
        clock.forward(days=1)
    (account,) = json.loads(json.dumps([a.to_json() for a in ledger.accounts()], allow_nan=False))
    assert account["lifetime_spent_epsilon"] is None
    assert account["lifetime_remaining_epsilon"] is None
    assert account["remaining_epsilon"] == 1.0
    assert "infinite" not in str(ledger.accounts()[0])


def test_a_loss_belongs_to_its_relation(store_url):
    ledger = open_ledger(store_url, budget=Budget(3, 1e-4))
    other = calibrate_sparse_gaussian(2, 1, 1e-6, Relation.REPLACE_ONE)
    with pytest.raises(UsageError, match="add-remove"):
        ledger.spend(*READERS, Loss(sparse=(other,)), what="x")
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("text", ["", "  ", "a\x00b", "a\x1b[2Jb", "line\nline", "\ud800"])
def test_names_are_plain_text(store_url, text):
    ledger = open_ledger(store_url)
    with pytest.raises(UsageError):
        ledger.open_account(text, "add-remove", Budget(1, 0))
    with pytest.raises(UsageError):
        ledger.spend(*READERS, HALF, what=text)
    with pytest.raises(UsageError):
        ledger.spend(*READERS, HALF, what="x", plan="a\x00b")
    assert len(ledger.history()) == 1


def test_one_name_however_it_is_typed(store_url):
    ledger = Ledger.open(store_url)
    ledger.open_account("Caf\u00e9 \U0001f600 'quoted' %s", "add-remove", Budget(1, 0))
    with pytest.raises(BudgetError, match="exists already"):
        ledger.open_account(" Cafe\u0301 \U0001f600 'quoted' %s ", "add-remove", Budget(1, 0))
    assert ledger.history()[0].population == "Caf\u00e9 \U0001f600 'quoted' %s"


def test_others_append_in_between(store_url):
    one = open_ledger(store_url)
    two = Ledger.open(store_url)
    for number in range(4):
        each = (one, two)[number % 2]
        assert each.spend(*READERS, Loss(pure=("1/4",)), what=f"number {number}").seq == number + 2
    for each in (one, two):
        with pytest.raises(BudgetRefused):
            each.spend(*READERS, Loss(pure=("1/4",)), what="too much")
        assert [entry.what for entry in each.history()][1:] == [f"number {n}" for n in range(4)]
    assert one.head == two.head


def test_threads_share_a_ledger(store_url):
    ledger = open_ledger(store_url)
    outcomes = []

    def work():
        for _ in range(3):
            try:
                outcomes.append(ledger.spend(*READERS, Loss(pure=("1/10",)), what="thread").seq)
            except BudgetRefused:
                outcomes.append(0)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [0] * 8 + list(range(2, 12))
    assert ledger.check() == ledger.head


def test_a_crash_inside_a_spend_records_nothing_and_leaves_no_lock(store_url):
    def broken():
        raise RuntimeError("stop")

    open_ledger(store_url)
    with pytest.raises(RuntimeError, match="stop"):
        Ledger.open(store_url, clock=broken).spend(*READERS, HALF, what="x")
    assert Ledger.open(store_url).spend(*READERS, HALF, what="y").seq == 2


# ---- periods and clocks ----


def test_each_period_has_its_budget_and_the_lifetime_caps_all(store_url, clock):
    ledger = open_ledger(store_url, clock, period="12h", lifetime=Budget("2.5", 0))
    for period in range(2):
        assert ledger.spend(*READERS, Loss(pure=(1,)), what="all").period == period
        with pytest.raises(BudgetRefused, match=f"period {period}"):
            ledger.spend(*READERS, HALF, what="more")
        clock.forward(hours=12)
    ledger.spend(*READERS, HALF, what="half")
    with pytest.raises(BudgetRefused, match="lifetime"):
        ledger.spend(*READERS, HALF, what="more")
    account = ledger.account(*READERS)
    assert (account.period, account.spent_epsilon, account.remaining_epsilon) == (2, 0.5, 0.5)
    assert (account.lifetime_spent_epsilon, account.lifetime_remaining_epsilon) == (2.5, 0)
    assert account.period_ends == datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_the_last_moment_of_a_period_is_not_the_next_one(store_url, clock):
    ledger = open_ledger(store_url, clock, period="30m")
    ledger.spend(*READERS, Loss(pure=(1,)), what="all")
    clock.forward(minutes=30, microseconds=-1)
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, HALF, what="early")
    clock.forward(microseconds=1)
    assert ledger.spend(*READERS, HALF, what="in time").period == 1


def test_a_clock_that_jumps_back_opens_no_period_again(store_url, clock):
    ledger = open_ledger(store_url, clock, period="1d")
    ledger.spend(*READERS, Loss(pure=(1,)), what="all of day 0")
    clock.forward(days=3)
    assert ledger.spend(*READERS, Loss(pure=(1,)), what="all of day 3").period == 3
    for days in (-1, -1, -1, -300):
        clock.forward(days=days)
        for each in (ledger, Ledger.open(store_url, clock=clock)):
            assert each.account(*READERS).period == 3
            with pytest.raises(BudgetRefused):
                each.spend(*READERS, HALF, what="again")


def test_a_clock_that_jumped_forward_costs_the_periods_it_jumped_over(store_url, clock):
    ledger = open_ledger(store_url, clock, period="1d")
    right = clock.now
    clock.forward(days=10)
    assert ledger.spend(*READERS, HALF, what="while the clock is wrong").period == 10
    for day in range(11):
        clock.now = right + timedelta(days=day)
        assert ledger.account(*READERS).period == 10
    ledger.spend(*READERS, HALF, what="the rest of period 10")
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, HALF, what="more")
    clock.now = right + timedelta(days=11)
    assert ledger.spend(*READERS, HALF, what="caught up").period == 11


def test_looking_and_being_refused_move_no_period(store_url, clock):
    ledger = open_ledger(store_url, clock, period="1d")
    right = clock.now
    clock.forward(days=10)
    assert ledger.account(*READERS).period == 10
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, Loss(pure=(2,)), what="too much")
    clock.now = right
    assert ledger.spend(*READERS, HALF, what="today").period == 0


def test_a_clock_needs_a_time_zone_and_may_have_any(store_url):
    with pytest.raises(UsageError, match="time zone"):
        open_ledger(store_url, lambda: datetime(2026, 1, 1))
    from zoneinfo import ZoneInfo

    ledger = open_ledger(store_url, lambda: datetime(2026, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo")))
    assert ledger.history()[0].to_json()["time"] == "2026-01-01T00:00:00.000000Z"


def test_the_end_of_time(store_url, clock):
    ledger = open_ledger(store_url, clock, period="1m")
    clock.now = datetime.max.replace(tzinfo=UTC)
    assert ledger.spend(*READERS, HALF, what="last").period > 2**31
    assert ledger.account(*READERS).period_ends is None
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, Loss(pure=(1,)), what="too late")


@pytest.mark.parametrize("text", ["", "7", "d", "0d", "-1d", "1.5h", "30s", "7 d", "7D", "1w", "999999999d", "٣d"])
def test_strange_periods_are_refused(text):
    with pytest.raises(UsageError):
        period_length(text)


def test_a_lifetime_budget_needs_a_period(store_url):
    with pytest.raises(UsageError, match="needs a period"):
        open_ledger(store_url, lifetime=Budget(2, 0))


# ---- heads and what is shown ----


def test_a_noted_head_stays_part_of_the_chain(store_url):
    ledger = Ledger.open(store_url)
    heads = [ledger.head]
    ledger.open_account(*READERS, Budget(1, 0))
    heads.append(ledger.head)
    for _ in range(3):
        ledger.spend(*READERS, Loss(pure=("1/10",)), what="x")
        heads.append(ledger.head)
    assert [head.partition(":")[0] for head in heads] == ["0", "1", "2", "3", "4"]
    for head in heads:
        assert Ledger.open(store_url).check(head) == heads[-1]
    count, _, value = heads[2].partition(":")
    for wrong in (f"{count}:{'0' * 64}", f"3:{value}", f"5:{value}", f"0:{value}"):
        with pytest.raises(LedgerCorrupt):
            ledger.check(wrong)
    for nonsense in ("", "2", "2:abc", f"-1:{value}", f"x:{value}", value):
        with pytest.raises(UsageError):
            ledger.check(nonsense)


def test_the_same_acts_make_the_same_ledger(new_store, clock):
    states = set()
    for _ in range(2):
        ledger = open_ledger(new_store(), clock)
        ledger.spend(*READERS, HALF, what="x")
        states.add(state(ledger))
    assert len(states) == 1


def test_how_it_shows_itself(store_url, clock):
    ledger = open_ledger(store_url, clock, budget=Budget(1, 1e-6))
    assert "1 accounts, 1 entries, head 1:" in repr(ledger)
    ledger.spend(
        *READERS,
        Loss("1/100", ("1/10",), 1e-8, (calibrate_sparse_gaussian(2, "1/10", 1e-9),)),
        what="<b>bold</b>",
    )
    page = ledger._repr_html_()
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page
    assert "2026-01-01 00:00:00" in page
    assert "mu^2 0.01 + epsilon 0.1 + delta 1e-08 + sparse histogram of 2 keys" in page
    assert "may spend epsilon 1, delta 1e-06 for its lifetime" in page
    assert str(ledger.accounts()[0]).startswith(
        '"readers" (add-remove): epsilon 1, delta 1e-06 for its lifetime; spent 0.'
    )


def test_what_was_spent_over_time(store_url, clock):
    ledger = open_ledger(store_url, clock, period="1d")
    for _ in range(3):
        ledger.spend(*READERS, HALF, what="x")
        clock.forward(hours=12)
    rows = ledger.over_time()
    assert [(row["period"], row["spent_epsilon"], row["budget_epsilon"]) for row in rows] == [
        (0, 0.0, 1.0),
        (0, 0.5, 1.0),
        (0, 1.0, 1.0),
        (1, 0.5, 1.0),
    ]
    assert rows[3]["time"] == "2026-01-02T00:00:00.000000Z"
    assert {row["account"] for row in rows} == {"readers (add-remove)"}
    assert ledger.over_time("nobody") == []
