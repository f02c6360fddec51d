"""A release plan: it spends before it reads, its noise is drawn once, and nothing but noise tells of the log."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statistical
from hushquery.core.budget import Budget, Unit
from hushquery.core.calibration import WEIGHT_GRID
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.curator.counting import Bound
from hushquery.curator.plan import SELECTORS, ReleasePlan, plan_release
from hushquery.errors import BudgetRefused, DataError, UsageError
from hushquery.log import read_log
from hushquery.noise import sampler as sampling
from hushquery.noise.law import Binomial, DiscreteLaplace, RoundedGaussian
from hushquery.release import Release, verify
from hushquery.release.release import manifest_bytes, sign

CHOICES = SELECTORS[1:]
HEADS = ("weather leeds", "news", "maps", "films tonight")
BUDGET: dict[str, Any] = {"epsilon": 12, "delta": 1e-6, "queries_per_user": 6, "population": "readers"}
TABLES: dict[str, Any] = {"clicks_per_user": 4, "reformulations_per_user": 4}


def searches(users: int = 300, tail: int = 2, mark: str = "zqcanary", heads: tuple[str, ...] = HEADS) -> pa.Table:
    """Everybody searches the heads, one after the other, and then their own secrets."""
    rows: dict[str, list[Any]] = {"user": [], "time": [], "query": [], "url": []}
    for user in range(users):
        own = [f"{mark} {user} {i}" for i in range(tail)]
        for place, query in enumerate([*heads, *own]):
            rows["user"].append(f"{mark}user{user}")
            rows["time"].append(1_000_000 + 10_000 * user + 60 * place)
            rows["query"].append(query)
            host = query.replace(" ", "-")
            rows["url"].append(f"http://{host}.example.org/")
    return pa.table(rows)


def plan_for(log: Any, selector: str = "gaussian", **asked: Any) -> ReleasePlan:
    return plan_release(log, **(BUDGET | {"selector": selector} | asked))


def test_a_budget_and_a_unit_may_be_given_as_a_whole_or_in_plain_values() -> None:
    log, asked = read_log(searches(5)), {name: BUDGET[name] for name in BUDGET if name not in ("epsilon", "delta")}
    plain = plan_for(log)
    for unit in (Unit("user", "add-remove"), "user"):
        whole = plan_release(
            log, budget=Budget(BUDGET["epsilon"], BUDGET["delta"]), unit=unit, selector="gaussian", **asked
        )
        assert whole.explain() == plain.explain()
    for unit in ("account", Unit("user", "replace-one")):
        with pytest.raises(UsageError, match="a release protects one user"):
            plan_for(log, unit=unit)
    with pytest.raises(UsageError, match="budget is not clear"):
        plan_for(log, budget=Budget(1, 1e-6))


def test_a_plan_shows_itself_in_a_notebook() -> None:
    plan = plan_for(read_log(searches(5)))
    shown = plan._repr_html_()
    assert plan.guarantee.summary() in html.unescape(shown)
    assert "alone it costs epsilon" in shown
    assert plan.guarantee.summary() in repr(plan)


class Watched:
    """A log inside DuckDB that tells when one of its rows is looked at."""

    def __init__(self, table: pa.Table, fail_at: int | None = None, mends: bool = False) -> None:
        self.events: list[str] = []
        self.looks = 0
        self.engine = ibis.duckdb.connect()
        self.engine.create_table("secret_rows", table)

        def look(value: str) -> str:
            self.looks += 1
            if self.events[-1:] != ["read"]:
                self.events.append("read")
            if fail_at is not None and (self.looks == fail_at + 1 or (self.looks > fail_at and not mends)):
                message = f"could not convert {value}"
                raise ValueError(message)
            return value

        self.engine.con.create_function("look", look, ["VARCHAR"], "VARCHAR", side_effects=True)
        self.log = read_log(self.engine.sql("SELECT look(user) AS user, time, query, url FROM secret_rows"))

    def tell_spends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spend = Ledger.spend

        def told(book: Ledger, *args: Any, **more: Any) -> Any:
            done = spend(book, *args, **more)
            self.events.append("spent")
            return done

        monkeypatch.setattr(Ledger, "spend", told)


# ---- plan, then spend, then read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", CHOICES)
def test_the_spend_is_recorded_before_a_row_is_read(
    selector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(searches(40))
    watched.tell_spends(monkeypatch)
    plan = plan_for(watched.log, selector, **TABLES)
    plan.explain()
    plan.sql()
    repr(plan)
    assert plan.guarantee.epsilon <= 12
    assert watched.events == []
    plan.run(tmp_path / "ledger.db", bits=statistical.bits("order", selector))
    assert watched.events[:2] == ["spent", "read"]
    assert watched.events.count("spent") == 1


def test_what_the_ledger_refuses_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(searches(40))
    plan_for(watched.log).run(tmp_path / "ledger.db", bits=statistical.bits("refused"))
    watched.events.clear()
    watched.tell_spends(monkeypatch)
    with pytest.raises(BudgetRefused):
        plan_for(watched.log).run(tmp_path / "ledger.db", bits=statistical.bits("refused"))
    assert watched.events == []
    assert len(Ledger.open(tmp_path / "ledger.db").history()) == 2  # opened, and spent once


@pytest.mark.parametrize("selector", ["gaussian", "optimal"])
def test_an_engine_that_fails_says_that_the_budget_is_spent(selector: str, tmp_path: Path) -> None:
    rehearsal = Watched(searches(40))
    plan_for(rehearsal.log, selector, **TABLES).run(tmp_path / "a.db", bits=statistical.bits("fails"))
    for part in (0.0, 0.5, 0.95):  # while selecting, counting again, or looking at clicks and what came next
        ledger = tmp_path / f"{part}.db"
        watched = Watched(searches(40), fail_at=int(part * rehearsal.looks))
        plan = plan_for(watched.log, selector, **TABLES)
        with pytest.raises(DataError, match="after the budget was spent") as caught:
            plan.run(ledger, bits=statistical.bits("fails"))
        assert watched.looks > part * rehearsal.looks
        assert "zqcanary" not in str(caught.value) + repr(caught.value.__cause__)
        assert Ledger.open(ledger).account(plan.population, "add-remove").spent == plan.loss


@pytest.mark.parametrize("selector", CHOICES)
def test_a_step_that_failed_is_not_drawn_again(selector: str, tmp_path: Path) -> None:
    """An engine that fails once and would then do: noise was drawn perhaps, and a second draw is not paid for."""
    for number, fail_at in enumerate((0, 60)):
        watched = Watched(searches(40), fail_at, mends=True)
        with pytest.raises(DataError, match="after the budget was spent"):
            plan_for(watched.log, selector, **TABLES).run(tmp_path / f"{number}.db", bits=statistical.bits("once"))
        assert watched.looks > fail_at


def test_a_plan_that_does_not_fit_the_log_is_refused_for_free(tmp_path: Path) -> None:
    timeless = searches(5).drop_columns(["time"])
    with pytest.raises(UsageError, match="no time column"):
        plan_for(timeless, **TABLES)
    without_urls = searches(5).drop_columns(["url"])
    with pytest.raises(UsageError, match="no URL column"):
        plan_for(without_urls, **TABLES)
    without_clicks = {name: number for name, number in TABLES.items() if name != "clicks_per_user"}
    assert set(plan_for(without_urls, **without_clicks).calibrated.shares) == {"queries", "reformulations"}


# ---- what the ledger is charged ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "select_only"),
    [(tuple(TABLES), False), (tuple(TABLES), True)],
    ids=["all tables", "list"],
)
@pytest.mark.parametrize("selector", CHOICES)
def test_the_charge_is_the_sum_of_the_steps_and_the_noise_drawn_is_the_noise_stated(
    selector: str, tables: tuple[str, ...], select_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(searches(60), selector, select_only=select_only, **{name: TABLES[name] for name in tables})
    spy = Spy(monkeypatch)
    made = plan.run(tmp_path / "ledger.db", bits=statistical.bits("charge", selector))
    _check_the_explanation(plan, made, spy)
    total = Loss()
    for step in made.guarantees[0].steps:
        total += step.loss
    account = Ledger.open(tmp_path / "ledger.db").account(plan.population, "add-remove")
    assert account.spent == total == plan.loss == made.guarantees[0].loss
    assert total.fits(12, 1e-6)
    expected = {"queries"} if select_only else {"queries", *(name.removesuffix("_per_user") for name in tables)}
    assert set(made.tables) == expected
    assert made.queries is not None
    assert made.queries.column_names == (["query"] if select_only else ["query", "count", "stderr", "low", "high"])
    assert set(made.queries["query"].to_pylist()) == set(HEADS)
    found = verify(made.save(tmp_path / "release"))
    assert found.ok, found.problems
    assert made.test_noise  # seeded bits promise nothing, and the release says so


# Of korolova2009 the paper's delta is charged, which a slightly lower threshold does not exceed.
@pytest.mark.parametrize(("selector", "lower"), [("laplace", 1), ("gaussian", 1), ("korolova2009", 9), ("weighted", 1)])
def test_a_changed_threshold_is_noticed(selector: str, lower: int, tmp_path: Path) -> None:
    folder = (
        plan_for(searches(60), selector, clicks_per_user=4)
        .run(tmp_path / "ledger.db", bits=statistical.bits("tamper"))
        .save(tmp_path / "release")
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    for number, step in enumerate(manifest["steps"]):
        if step["parameters"].get("threshold") is None:
            continue
        changed = json.loads(json.dumps(manifest))
        changed["steps"][number]["parameters"]["threshold"] -= lower
        for seal in (False, True):  # by accident, and by somebody who knows how to write a manifest
            sealed = sign(changed) if seal else changed
            (folder / "manifest.json").write_bytes(manifest_bytes(sealed))
            found = verify(folder)
            assert not found.ok
            if seal:
                assert any(f"step {number + 1}" in problem for problem in found.problems)


# ---- nothing of the log but noise ----------------------------------------------------------------------------------


def _two_logs() -> tuple[pa.Table, pa.Table]:
    """Give two logs with the same head and nothing else in common."""
    bare = searches(301, tail=0, mark="zqone")
    rich = pa.concat_tables(
        [
            searches(301, tail=3, mark="zqtwo"),
            searches(557, tail=9, mark="zqthree", heads=()),
            pa.table({"user": ["zqfour", None], "time": [None, 5], "query": ["", "zqnobody"], "url": ["", None]}),
        ]
    )
    return bare, rich


def _whole_text(folder: Path) -> str:
    """Give all that a folder says: names, bytes, and what Parquet compresses."""
    parts = []
    for path in sorted(folder.rglob("*")):
        parts.append(path.name)
        if path.suffix == ".parquet":
            table, footer = pq.read_table(path), pq.read_metadata(path)
            parts += [str(table.to_pydict()), str(footer), str(footer.metadata), str(table.schema.metadata)]
            assert table.schema.metadata is None
        if path.is_file():
            parts.append(path.read_bytes().decode("utf-8", errors="replace"))
    return "\n".join(parts)


@pytest.mark.parametrize("selector", CHOICES)
def test_a_release_tells_nothing_that_only_the_log_knows(selector: str, tmp_path: Path) -> None:
    made = []
    (tmp_path / "zqfolder").mkdir()
    for number, log in enumerate(_two_logs()):
        source = tmp_path / "zqfolder" / f"zqlog{number}.parquet"
        pq.write_table(log, source)
        plan = plan_for(source, selector, **TABLES)
        made.append(plan.run(tmp_path / f"zq{number}.db", bits=statistical.bits("purity", selector)))
    assert [set(r.tables["queries"]["query"].to_pylist()) for r in made] == [set(HEADS)] * 2
    # Two logs with nothing in common but the head: what is said of both is the same to the last letter.
    assert made[0].manifest == made[1].manifest
    assert made[0].guarantees == made[1].guarantees
    folder = made[1].save(tmp_path / "public")
    text = _whole_text(folder)
    assert "zq" not in text  # every secret query, user, URL, and the place of the log
    assert str(tmp_path) not in text
    assert all(head in text for head in HEADS)
    spoken = json.dumps(made[1].manifest) + (folder / "README.md").read_text()
    numbers = {len(log), len(log) - 2, 301 + 557, 301 + 557 + 1, 557, source.stat().st_size}
    numbers |= {len(set(log["query"].to_pylist())) - change for change in range(3)}
    for number in numbers:
        for way in (f"{number}", f"{number:,}"):
            assert not re.search(rf"(?<![\w.,]){re.escape(way)}(?![\w.,])", spoken), way


def test_a_plan_shows_no_row(tmp_path: Path) -> None:
    plan = plan_for(searches(30), **TABLES)
    shown = plan.explain() + plan.sql() + repr(plan) + repr(plan.log) + str(plan.guarantee)
    assert "zqcanary" not in shown
    made = plan.run(tmp_path / "ledger.db", bits=statistical.bits("shows"))
    assert "zqcanary" not in repr(made) + made._repr_html_()


# ---- the same bits, the same release -------------------------------------------------------------------------------


def _near_the_threshold() -> pa.Table:
    """Give a log whose queries have counts on both sides of low thresholds, and many of them equal counts."""
    rows: dict[str, list[Any]] = {"user": [], "time": [], "query": [], "url": []}
    for number in range(160):
        holders = number % 40 if number >= 40 else 1
        for holder in range(holders):
            rows["user"].append(f"u{(7 * number + 13 * holder) % 97}")
            rows["time"].append(1000 * ((number * 31 + holder * 17) % 400))
            rows["query"].append(f"query {number:03}")
            rows["url"].append(f"http://host{(number + holder) % 3}.example.org/{number}")
    return pa.table(rows)


LOW: dict[str, Any] = {**BUDGET, "epsilon": 30, "delta": 0.3, "queries_per_user": 10, **TABLES}


# In bulk, `passing` is the same code for all selectors but `optimal`.
@pytest.mark.parametrize(
    ("selector", "in_bulk"), [*((name, False) for name in CHOICES), ("gaussian", True), ("optimal", True)]
)
def test_order_files_threads_and_chunks_change_nothing(
    selector: str, in_bulk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_bulk:  # several keys with one count are drawn for at once, in production from 20,000 on
        monkeypatch.setattr("hushquery.curator.counting.WORTH_A_BINOMIAL", 2)
        monkeypatch.setattr("hushquery.curator.selectors.optimal.WORTH_A_BINOMIAL", 2)
    table = _near_the_threshold()
    mixed = table.take(pa.array([(i * 7919) % len(table) for i in range(len(table))]))
    assert sorted(mixed.to_pylist(), key=str) == sorted(table.to_pylist(), key=str)
    pq.write_table(table, tmp_path / "all.parquet")
    pq.write_table(mixed.slice(0, 700), tmp_path / "b.parquet", row_group_size=11)
    pq.write_table(mixed.slice(700), tmp_path / "a.parquet")
    unordered = ibis.duckdb.connect(threads=4)
    unordered.raw_sql("SET preserve_insertion_order = false")
    logs = [
        read_log(tmp_path / "all.parquet", engine=ibis.duckdb.connect(threads=1)),
        read_log([str(tmp_path / "b.parquet"), str(tmp_path / "a.parquet")], engine=unordered),
    ]
    first, other = (
        plan_release(log, selector=selector, **LOW).run(  # type: ignore[arg-type]
            tmp_path / f"{i}.db", bits=statistical.bits("same", selector)
        )
        for i, log in enumerate(logs)
    )
    assert 5 < first.tables["queries"].num_rows < 160  # some on each side, else this shows nothing
    assert other.manifest == first.manifest
    for name, rows in first.tables.items():
        assert other.tables[name].equals(rows), name
        values = rows.column("count").to_pylist()
        assert values == sorted(values, reverse=True)


class Spy:
    """What was drawn: the law, how many values, and the values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[tuple[Any, int, list[int]]] = []
        draw = sampling.Sampler.draw

        def told(one: sampling.Sampler, n: int, bits: Any) -> Any:
            values = draw(one, n, bits)
            self.drawn.append((one.law, n, values.tolist()))
            return values

        monkeypatch.setattr(sampling.Sampler, "draw", told)


def _exact_counts(plan: ReleasePlan, name: str) -> dict[str, int]:
    rows = plan.expressions()[name].to_pyarrow().to_pydict()
    return dict(zip(rows["query"], rows["n"], strict=True))


@pytest.mark.parametrize("selector", ["laplace", "gaussian"])
def test_the_count_published_is_the_one_that_met_the_threshold(
    selector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_release(read_log(_near_the_threshold()), selector=selector, **(LOW | {"reformulations_per_user": None}))  # type: ignore[arg-type]
    truth, spy = _exact_counts(plan, "queries"), Spy(monkeypatch)
    made = plan.run(tmp_path / "ledger.db", bits=statistical.bits("once", selector))
    # One draw per query and one per pair of released queries: no noise is drawn twice, none for publishing.
    queries, clicks = spy.drawn
    noisy = {q: truth[q] + z for q, z in zip(sorted(truth), queries[2], strict=True)}
    least = int(plan.calibrated.selector.threshold)
    assert made.queries is not None
    published = dict(zip(made.queries["query"].to_pylist(), made.queries["count"].to_pylist(), strict=True))
    assert published == {query: value for query, value in noisy.items() if value >= least}
    assert least in noisy.values(), "a noisy count at the threshold itself has to be tried"
    assert plan.calibrated.clicks is not None
    assert made.clicks is not None
    from_clicks = plan.calibrated.clicks.step.threshold
    assert from_clicks is not None
    assert min(made.clicks["count"].to_pylist()) >= from_clicks
    assert 0 < made.clicks.num_rows < clicks[1]


# ---- the explanation is what runs ----------------------------------------------------------------------------------


def _check_the_explanation(plan: ReleasePlan, made: Release, spy: Spy) -> None:
    """Compare what was drawn with what the manifest states, and that with what the plan explained."""
    drawn = [law for law, _, _ in spy.drawn if isinstance(law, DiscreteLaplace | RoundedGaussian)]
    stated = [step["parameters"] for step in made.manifest["steps"]]
    scales = [
        Fraction(scale)
        for s in stated
        if s["kind"] != "optimal-selection"
        for scale in s.get("sigmas", [s.get("scale", s.get("sigma"))])
    ]
    assert [law.b if isinstance(law, DiscreteLaplace) else law.sigma for law in drawn] == scales
    laplace = plan.calibrated.selector.name in ("laplace", "korolova2009", "optimal")
    assert all(isinstance(law, DiscreteLaplace if laplace else RoundedGaussian) for law in drawn)
    told = plan.explain()
    for number, (step, ran) in enumerate(zip(made.manifest["steps"], stated, strict=True), 1):
        bound = told.partition(f"  {number}. {step['name']}: {step['detail']}\n")[2].splitlines()[0]
        assert f"at most {ran['keys_per_user']} per user" in bound
        weights = ran["kind"] == "gaussian-weights"  # explained in weights of users, with the threshold in the detail
        for r, sigma in enumerate(ran.get("sigmas", []), 1):
            assert f"sigma of round {r} {float(Fraction(sigma) / ran['grid']):.4g}" in bound
        weights = weights or "sigmas" in ran
        for name in ("scale", "sigma") if weights else ("scale", "sigma", "threshold"):
            if ran.get(name) is not None:
                assert f"{name} {float(Fraction(ran[name]) / (WEIGHT_GRID if weights else 1)):.4g}" in bound
    assert told.endswith(f"in all: {plan.guarantee.summary()}")


def test_reformulations_report_the_threshold_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(searches(60), **TABLES, expected_false_pairs=3.0)
    spy = Spy(monkeypatch)
    made = plan.run(tmp_path / "ledger.db", bits=statistical.bits("false edges"))
    (toss,) = [law for law, _, _ in spy.drawn if isinstance(law, Binomial)]
    least = made.manifest["parameters"]["reformulations_published_from"]
    pairs = len(HEADS) * (len(HEADS) - 1)
    assert toss.coin.k == least
    law = RoundedGaussian(Fraction(made.manifest["steps"][-1]["parameters"]["sigma"]))
    assert pairs * law.tail(least) <= 3 < pairs * law.tail(least - 1) or least == 1
    assert made.manifest["parameters"]["expected_false_reformulations"] == float(pairs * law.tail(least))
    assert made.reformulations is not None
    assert min(made.reformulations["count"].to_pylist()) >= least


def test_one_choice_of_rows_per_release_and_another_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    each = Bound.each

    def told(bound: Bound, *args: Any) -> Any:
        keys.append(bound.key)
        return each(bound, *args)

    monkeypatch.setattr(Bound, "each", told)
    plan = plan_for(searches(60), "guided", clicks_per_user=4, keep="random")
    seen = []
    for release in range(2):
        keys.clear()
        replace(plan).run(tmp_path / f"{release}.db")
        used = {key for key in keys if key}  # before the spend, expressions are built with no key
        assert len(used) == 1
        assert len([key for key in keys if key]) == 2  # queries (sketch, selection and counts share one), clicks
        seen += used
    assert seen[0] != seen[1]
    assert len(seen[0]) == 32


# ---- another engine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["gaussian", "korolova2009", "weighted"])
def test_postgresql_gives_the_same_release(selector: str, postgres_url: str, tmp_path: Path) -> None:
    table = _near_the_threshold()
    engine = ibis.connect(postgres_url)
    name = f"searches_{selector}"
    engine.create_table(name, ibis.memtable(table).to_pyarrow())
    try:
        there = plan_release(engine.table(name), selector=selector, **LOW)  # type: ignore[arg-type]
        here = plan_release(table, selector=selector, **LOW)  # type: ignore[arg-type]
        far = there.run(tmp_path / "there.db", bits=statistical.bits("engines"))
        near = here.run(tmp_path / "here.db", bits=statistical.bits("engines"))
    finally:
        engine.drop_table(name)
        engine.disconnect()
    assert 5 < near.tables["queries"].num_rows < 160
    for kind, rows in near.tables.items():
        assert far.tables[kind].equals(rows), kind
    assert far.manifest["steps"] == near.manifest["steps"]
