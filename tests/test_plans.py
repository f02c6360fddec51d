"""What the three kinds of plans have in common: they check, spend, run, in this order and once."""

from __future__ import annotations

import copy
import html
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pytest

import hushquery as hq
from hushquery.core.budget import Budget
from hushquery.core.guarantee import Step
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import BudgetError, DataError, UsageError
from hushquery.noise.sampler import SeededBits
from hushquery.plan import Paid, Plan
from hushquery.task import Task

ROWS = pa.table(
    {
        "user": [f"u{n}" for n in range(300)],
        "query": [("news", "maps")[n % 2] for n in range(300)],
        "url": ["https://a.example"] * 300,
    }
)


def task(delta: str) -> Task:
    return Task.make(
        {
            "task": {"name": "searches", "population": "readers"},
            "optin": {"epsilon": 4, "delta": delta},
            "client": {"epsilon": 4, "lifetime_epsilon": 100},
            "head": {"size": 10},
            "collect": {"min_batch": 2},
        }
    )


def release(data: Any, delta: str = "1e-6") -> Any:
    return hq.plan_release(hq.read_log(data), epsilon=4, delta=delta, queries_per_user=1, population="readers")


def head(data: Any, delta: str = "1e-6") -> Any:
    return hq.plan_head(hq.read_log(data), task(delta))


def statistic(data: Any, delta: str = "1e-6") -> Any:
    return hq.statistics.plan_count(data, unit="user", epsilon=4, delta=delta, population="readers")


PLANS = pytest.mark.parametrize("make", [release, head, statistic])
Make = Callable[..., Any]


class Watched:
    """A table that notes when one of its rows is read, and a ledger that notes when it is spent from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, dies: bool = False) -> None:
        self.events: list[str] = []
        engine = ibis.duckdb.connect(threads=1)
        engine.create_table("secret_rows", ROWS)

        def look(value: str) -> str:
            self.events.append("read")
            return value

        engine.con.create_function("look", look, ["VARCHAR"], "VARCHAR", side_effects=True)
        self.table = engine.sql("SELECT look(user) AS user, query, url FROM secret_rows")
        spend = Ledger.spend

        def told(book: Ledger, *args: Any, **more: Any) -> Any:
            done = spend(book, *args, **more)
            self.events.append("spent")
            if dies:
                raise KeyboardInterrupt
            return done

        monkeypatch.setattr(Ledger, "spend", told)


def rich(path: Path, relation: str) -> Ledger:
    """Give a ledger that would pay for many runs."""
    book = Ledger.open(path)
    for population in ("readers", "readers who opted in"):
        book.open_account(population, relation, Budget(1000, "0.01"))
    return book


def book_for(make: Make, path: Path) -> Ledger:
    return rich(path, "replace-one" if make is head else "add-remove")


@PLANS
@pytest.mark.parametrize("delta", ["0.1", "0.5"])
def test_a_delta_that_is_no_promise_is_refused_by_every_plan_for_free(make: Make, delta: str, tmp_path: Path) -> None:
    with pytest.warns(hq.PrivacyWarning, match="publishing"):
        plan = make(ROWS, delta)
    with pytest.raises(UsageError, match="too large to publish"):
        plan.run(tmp_path / "ledger.db")
    assert not (tmp_path / "ledger.db").exists()
    plan.run(tmp_path / "ledger.db", bits=SeededBits("weak"))  # a test's noise publishes nothing


@PLANS
def test_nothing_is_read_before_the_spend_is_durable(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    plan = make(watched.table)
    plan.explain()
    plan.sql()
    repr(plan)
    assert watched.events == []
    plan.run(tmp_path / "ledger.db")
    spends = 2 if make is head else 1
    assert watched.events[: spends + 1] == ["spent"] * spends + ["read"]
    assert watched.events.count("spent") == spends


@PLANS
def test_who_dies_between_spending_and_reading_has_paid_and_read_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch, dies=True)
    with pytest.raises(KeyboardInterrupt):
        make(watched.table).run(tmp_path / "ledger.db")
    assert watched.events == ["spent"]
    assert [entry.kind for entry in Ledger.open(tmp_path / "ledger.db").history()] == ["open", "spend"]


@PLANS
def test_a_second_run_of_the_same_plan_is_refused_and_not_charged(make: Make, tmp_path: Path) -> None:
    book = book_for(make, tmp_path / "ledger.db")
    plan = make(ROWS)
    plan.run(book, bits=SeededBits("first"))
    before = book.head
    for again in (plan, copy.copy(plan)):
        with pytest.raises(BudgetError, match=r"has run before.*[Nn]othing was spent"):
            again.run(book, bits=SeededBits("second"))
    assert book.check() == before
    make(ROWS).run(book, bits=SeededBits("third"))  # another plan is another release, and is charged
    replace(plan).run(book, bits=SeededBits("fourth"))
    assert book.check() != before


@PLANS
def test_a_run_that_failed_after_the_spend_is_not_repeated(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = book_for(make, tmp_path / "ledger.db")
    plan = make(ROWS)

    def fail(*_: object, **__: object) -> Any:
        raise DataError("the engine died")

    with monkeypatch.context() as patch:
        patch.setattr(type(plan), "_read", fail)
        with pytest.raises(DataError):
            plan.run(book)
    with pytest.raises(BudgetError, match="has run before"):
        plan.run(book)


@PLANS
def test_a_run_that_was_refused_may_be_tried_again(make: Make, tmp_path: Path) -> None:
    plan = make(ROWS)
    with pytest.raises(BudgetError):
        plan.run(tmp_path / "ledger.db", create=False)
    plan.run(tmp_path / "ledger.db", bits=SeededBits("again"))


@PLANS
def test_threads_that_race_run_a_plan_once(make: Make, tmp_path: Path) -> None:
    book = book_for(make, tmp_path / "ledger.db")
    plan, made, refused = make(ROWS), [], []

    def run() -> None:
        try:
            made.append(plan.run(book, bits=SeededBits("race")))
        except BudgetError:
            refused.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 3)


@PLANS
def test_rows_that_do_not_fit_are_refused_for_free(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(ROWS)

    def broken(_: object) -> Any:
        message = "zq-secret-row"
        raise RuntimeError(message)

    monkeypatch.setattr(type(plan), "_ask", broken)
    with pytest.raises(DataError, match="columns") as refused:
        plan.run(tmp_path / "ledger.db")
    assert "zq-secret-row" not in str(refused.value)
    assert not (tmp_path / "ledger.db").exists()


@PLANS
def test_a_plan_shows_itself_in_a_notebook_and_nothing_of_the_data(make: Make) -> None:
    rows = ROWS.set_column(0, "user", [[f"zq-secret-{n}" for n in range(300)]])
    plan = make(rows)
    page = plan._repr_html_()
    assert plan.explain().splitlines()[-1].strip() in html.unescape(page)
    assert "zq-secret" not in page + repr(plan) + str(plan)


@dataclass(frozen=True, repr=False)
class Questionnaire(Plan[int]):
    """As little as a kind of plan has to say of itself."""

    population: str
    unit: hq.Unit
    budget: Budget

    def _steps(self) -> list[Step]:
        return [Step("laplace", f"answer {n}", hq.Loss(pure=("1/2",))) for n in (1, 2)]

    def _explained(self) -> list[str]:
        return [f"{n}. {step.detail}" for n, step in enumerate(self._steps(), 1)]

    def _ask(self) -> dict[str, Any]:
        return {}

    def _read(self, paid: Paid) -> int:
        return 7 if paid.bits.secret else 0


def test_the_base_makes_guarantee_words_and_charge_of_the_steps(tmp_path: Path) -> None:
    plan = Questionnaire("readers <3", hq.Unit("user", "add-remove"), Budget(8, "0.001"))
    promise = 'epsilon 1, delta 0 for one user, present or absent (add-remove), of "readers <3"'
    assert repr(plan) == f"<Questionnaire: {promise}>"
    head, first, second, *warned, last = plan.explain().splitlines()
    assert head == 'Plan for "readers <3", protecting one user, present or absent (add-remove):'
    assert (first, second, last) == ("  1. answer 1", "  2. answer 2", f"  in all: {promise}")
    assert [line.split(" is above")[0] for line in warned] == ["  warning: epsilon 8", "  warning: delta 1e-03"]
    assert "readers &lt;3" in plan._repr_html_()
    assert "readers <3" not in plan._repr_html_()
    assert plan.run(tmp_path / "ledger.db") == 7
    opened, spent = Ledger.open(tmp_path / "ledger.db").history()
    assert opened.terms is not None
    assert (opened.terms.budget, spent.what, spent.loss) == (plan.budget, "answer 1; answer 2", plan.loss)


def test_warnings_are_given_once_and_by_the_plan() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        statistic(ROWS, "0.5")
    assert len(seen) == 1
