"""A plan spends first and reads later, says what it costs, and never shows a value of the data in a message."""

from __future__ import annotations

import json
import math
import traceback
import warnings
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

import hushquery.statistics.plan as plan_module
from hushquery import statistics
from hushquery.core.budget import Budget, PrivacyWarning, Relation
from hushquery.core.estimates import SteepWarning
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, BudgetRefused, DataError, HushqueryError
from hushquery.log.tables import read_table
from hushquery.noise.sampler import SeededBits
from hushquery.statistics.queries import ClampedTotal, CountUnits, Histogram

ALPHA = 1e-9
FAR = -NormalDist().inv_cdf(ALPHA / 2)

#: A text that is in the data and nowhere else.
MARKER = "Zyxwvut-Marker"

LAB = {
    "user": ["ann", "ann", "bob", "cem", "dot", "eve"],
    "sex": ["f", "f", "m", "m", "f", "f"],
    "age": [31, 31, 44, 27, 15, 52],
    "albums": [1, 1, 0, 7, 3, None],
    "grade": [3.5, 3.7, 2.0, 3.9, 4.0, 1.5],
}
COMMON = {"unit": "user", "population": "a lab"}


def plans(data, epsilon=1, delta=0, **more):
    """One plan of each kind over the lab, or over data with the same columns."""
    common = {**COMMON, "epsilon": epsilon, "delta": delta, **more}
    mean = {"users": 5} if common.get("relation") == "replace-one" else {}
    return {
        "count": statistics.plan_count(data, **common),
        "count where": statistics.plan_count(data, where=lambda t: t.sex == "f", **common),
        "rows": statistics.plan_count(data, rows_per_unit=2, **common),
        "total": statistics.plan_sum(data, "albums", lower=0, upper=3, **common),
        "mean": statistics.plan_mean(data, "age", lower=0, upper=120, **mean, **common),
        "histogram": statistics.plan_histogram(data, "sex", ["f", "m"], **common),
        "queries": statistics.plan_queries(data, DECK, **common),
    }


#: The deck's five overlapping counts.
DECK = {
    "female": lambda t: t.sex == "f",
    "likes the singer": lambda t: t.albums > 0,
    "12 to 16": lambda t: (t.age >= 12) & (t.age <= 16),
    "good grades": lambda t: t.grade > 3,
    "over 45": lambda t: t.age > 45,
}
TRUTH = {
    "count": [5],
    "count where": [3],
    "rows": [6],
    "total": [8],
    "histogram": [3, 2],
    "queries": [3, 3, 1, 3, 1],
}


class Rich:
    """A ledger for each relation: a population has its account under one of them."""

    def __init__(self, folder):
        self.books = {relation: Ledger.open(folder / f"{relation.value}.db") for relation in Relation}
        for relation, book in self.books.items():
            book.open_account("a lab", relation, Budget(1000, "0.09"))

    def run(self, plan, **more):
        """Run a copy of the plan: a plan runs once."""
        return replace(plan).run(self.books[plan.unit.relation], anyway=True, **more)


@pytest.fixture
def ledger(tmp_path):
    """A ledger that pays for everything, under whichever relation is asked for."""
    return Rich(tmp_path)


@pytest.fixture
def often(monkeypatch, ledger):
    """Run a plan often: the engine computes its answers once; spending, noise and intervals are new each time."""

    def runs(plan, n, bits):
        answers = {name: plan_module.execute(expression) for name, expression in plan.expressions().items()}
        monkeypatch.setattr(plan_module.StatisticPlan, "_ask", lambda _: answers)
        monkeypatch.setattr(plan_module, "execute", lambda answer: answer)
        return [ledger.run(plan, bits=bits) for _ in range(n)]

    return runs


def exactly(plan, ledger):
    """The values of a plan whose epsilon is so large that its noise is zero but for once in e^50 runs."""
    return plan.run(ledger, anyway=True).values


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_deck(tmp_path):
    with pytest.warns(PrivacyWarning):
        asked = plans(LAB, epsilon=900)
    for name, expected in TRUTH.items():
        assert exactly(asked[name], tmp_path / f"{name}.db") == expected, name
    (age,) = exactly(asked["mean"], tmp_path / "mean.db")
    assert math.isclose(age, (31 + 44 + 27 + 15 + 52) / 5, abs_tol=0.2)
    bounds = {name: plan.questions[0].bounds(Relation.ADD_REMOVE).l1 for name, plan in asked.items()}
    assert (bounds["histogram"], bounds["total"], bounds["queries"]) == (1, 3, 5)


def test_the_average_grade_of_a_lab_whose_size_everybody_knows(tmp_path):
    with pytest.warns(PrivacyWarning):
        plan = statistics.plan_mean(
            LAB, "grade", lower=0, upper=4, relation="replace-one", users=5, epsilon=900, **COMMON
        )
    (row,) = plan.run(tmp_path / "l.db", anyway=True).rows
    assert math.isclose(row.value, (3.6 + 2 + 3.9 + 4 + 1.5) / 5, abs_tol=0.11)
    (question,) = plan.questions
    sensitivity = question.bounds(Relation.REPLACE_ONE).l1 * question.step / 5
    assert sensitivity == Fraction(4, 5)


INPUTS = ["dict", "arrow", "pandas", "polars", "ibis", "csv", "tsv", "parquet", "jsonl", "ndjson"]


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_table_gives_the_same_answers(kind, tmp_path):
    arrow = pa.table(LAB)
    path = tmp_path / f"lab.{kind}"
    if kind in ("csv", "tsv"):
        arrow.to_pandas().to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    elif kind == "parquet":
        pq.write_table(arrow, path)
    elif kind in ("jsonl", "ndjson"):
        path.write_text("".join(json.dumps(row) + "\n" for row in arrow.to_pylist()))
    made = {
        "dict": lambda: LAB,
        "arrow": lambda: arrow,
        "pandas": arrow.to_pandas,
        "polars": lambda: pl.DataFrame(LAB),
        "ibis": lambda: ibis.memtable(arrow),
    }
    data = made.get(kind, lambda: path)()
    if kind in ("csv", "tsv", "jsonl", "ndjson"):
        # Such files do not say what their columns hold; conditions need to be told.
        types = {"sex": "string", "age": "int64", "albums": "float64", "grade": "float64", "user": "string"}
        typed = read_table(data, types=types)
    else:
        typed = data
    with pytest.warns(PrivacyWarning):
        asked, told = plans(data, epsilon=900), plans(typed, epsilon=900)
    for name, expected in TRUTH.items():
        plan = (told if name in ("queries", "count where") else asked)[name]
        assert exactly(plan, tmp_path / f"{name}.db") == expected, name


@pytest.mark.parametrize("users", [["ann", "bob"], [1, 2], ["ü", "😀"], ["", " "], [1.5, 2.5]])
def test_units_may_be_of_any_type(users, tmp_path):
    table = pa.table({"user": [users[0], users[0], users[1], None], "x": [1, 1, 1, 9]})
    common = {"epsilon": 900, **COMMON}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        asked = {
            "count": (statistics.plan_count(table, **common), [2]),
            "total": (statistics.plan_sum(table, "x", lower=0, upper=5, **common), [3]),
            "histogram": (statistics.plan_histogram(table, "x", [1, 9], **common), [2, 0]),
        }
    for name, (plan, expected) in asked.items():
        assert exactly(plan, tmp_path / f"{name}.db") == expected


@pytest.mark.parametrize("rows", [0, 1])
def test_nobody_and_a_single_user_get_answers_too(rows, ledger):
    table = pa.table(LAB).slice(0, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteepWarning)
        for plan in plans(table).values():
            found = ledger.run(plan)
            for row in found:
                assert math.isfinite(row.value)
                assert row.low <= row.value <= row.high
            json.dumps(found.to_json(), allow_nan=False)


# ---- the cost --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("delta", "noise"), [(0, "laplace"), ("1e-6", "gaussian"), ("1e-6", "auto"), ("1e-6", "laplace")]
)
def test_the_guarantee_is_what_the_ledger_is_charged(relation, delta, noise, ledger):
    for plan in plans(LAB, epsilon="0.7", delta=delta, relation=relation, noise=noise).values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteepWarning)
            found = ledger.run(plan)
        entry = ledger.books[Relation.of(relation)].history()[-1]
        assert entry.loss == plan.loss == plan.guarantee.loss == found.guarantee.loss
        assert (entry.population, entry.relation) == ("a lab", Relation.of(relation))
        assert entry.loss.fits("0.7", delta)
        assert plan.guarantee.epsilon <= 0.7 * (1 + 1e-9)
        assert found.guarantee.unit == plan.unit
        recorded = [Loss.from_json(step["loss"]) for step in found.to_json()["guarantee"]["steps"]]
        assert sum(recorded, Loss()) == entry.loss
        for question in plan.questions:
            assert question.describe() in entry.what


def test_laplace_noise_costs_exactly_its_epsilon():
    for plan in plans(LAB, epsilon="1/3").values():
        assert sum(plan.loss.pure) == Fraction(1, 3)
        for question, noise in zip(plan.questions, plan.noises, strict=True):
            assert noise.loss.pure == (question.bounds(Relation.ADD_REMOVE).l1 / noise.law.b,)


def test_auto_takes_the_noise_with_the_smaller_variance():
    chosen = {}
    for queries in (1, 3, 10, 60):
        conditions = {str(i): DECK["female"] for i in range(queries)}
        made = {
            noise: statistics.plan_queries(LAB, conditions, epsilon=1, delta="1e-6", noise=noise, **COMMON).noises[0]
            for noise in ("laplace", "gaussian", "auto")
        }
        best = min((made["laplace"], made["gaussian"]), key=lambda n: n.law.variance)
        assert made["auto"] == best
        chosen[queries] = best.name
    assert (chosen[1], chosen[60]) == ("discrete-laplace", "gaussian")
    assert statistics.plan_count(LAB, epsilon=1, **COMMON).noises[0].name == "discrete-laplace"  # no delta, no choice


def test_explain_names_every_step_and_rounds_nothing_in_our_favour():
    plan = statistics.plan_mean(
        LAB, "age", lower=0, upper=120, epsilon="2/3", delta="1.4e-6", noise="laplace", **COMMON
    )
    text = plan.explain()
    for said in ('"a lab"', "one user", "add-remove", "discrete-laplace", "standard error", "0..120", "in all"):
        assert said in text
    for line in text.splitlines():
        if "costs epsilon" in line:
            epsilon, delta = line.split("costs epsilon ")[1].split(" at delta ")
            assert float(epsilon) >= plan.noises[0].loss.epsilon("1.4e-6")
            assert float(delta) >= 1.4e-6


def test_several_questions_share_a_budget_and_come_in_one_table(ledger):
    questions = [CountUnits(), ClampedTotal("albums", Fraction(0), Fraction(3)), Histogram("sex", ("f", "m"))]
    plan = statistics.plan_statistic(LAB, questions, epsilon=3, **COMMON)
    assert [step.loss.epsilon(0) for step in plan.guarantee.steps] == [1.0, 1.0, 1.0]
    found = ledger.run(plan)
    assert [row.label for row in found] == ["count", "albums", "f", "m"]
    wide = found.at_level(0.9999)
    widths = [plan.noises[i].half_width(0.9999) for i in (0, 1, 2, 2)]
    assert [row.high - row.value for row in wide] == pytest.approx(widths)
    assert found.values == wide.values


def test_sql_shows_what_will_run_and_no_data():
    table = pa.table({**LAB, "user": [MARKER] * 6})
    for plan in plans(table).values():
        sql = plan.sql()
        assert sql.count("SELECT") >= len(plan.questions)
        assert MARKER not in sql


def test_a_public_number_of_users_is_compared_with_delta():
    with pytest.warns(PrivacyWarning, match="40 users"):
        statistics.plan_mean(
            LAB, "age", lower=0, upper=9, relation="replace-one", users=40, epsilon=1, delta="0.1", **COMMON
        )


# ---- spend, then read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", plans(LAB))
def test_the_spend_is_in_the_ledger_before_the_engine_reads(name, tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    seen = []
    real = ibis.expr.types.Table.to_pyarrow

    def spy(table, *args, **kwargs):
        seen.append(len(Ledger.open(path, create=False).history()))  # what another process would see now
        return real(table, *args, **kwargs)

    monkeypatch.setattr(ibis.expr.types.Table, "to_pyarrow", spy)
    plan = plans(LAB)[name]
    assert not path.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteepWarning)
        plan.run(path)
    assert seen == [2] * len(plan.questions)  # the account, the spend


def test_an_engine_that_fails_has_cost_its_budget(tmp_path):
    backend = ibis.duckdb.connect()
    backend.con.execute(f"CREATE TABLE lab AS SELECT '{MARKER}' AS user")
    plan = statistics.plan_count(backend.table("lab"), epsilon=1, **COMMON)
    backend.con.execute("DROP TABLE lab")
    with pytest.raises(DataError, match="after the budget was spent") as failed:
        plan.run(tmp_path / "ledger.db")
    assert Ledger.open(tmp_path / "ledger.db").history()[-1].loss == plan.loss
    assert MARKER not in "".join(traceback.format_exception(failed.value))


def test_a_value_that_the_engine_cannot_read_is_not_shown(tmp_path):
    backend = ibis.duckdb.connect()
    cast = "SELECT 'a' AS user, CAST(word AS INTEGER) AS x FROM (VALUES ('Zyxwvut-Marker')) AS words(word)"
    table = backend.sql(cast, dialect="duckdb")
    with pytest.raises(DataError) as failed:
        statistics.plan_sum(table, "x", lower=0, upper=1, epsilon=1, **COMMON).run(tmp_path / "ledger.db")
    assert MARKER not in "".join(traceback.format_exception(failed.value))


WRONG = {
    "no unit": lambda data: statistics.plan_count(data, unit="household", epsilon=1, population="a lab"),
    "no column": lambda data: statistics.plan_sum(data, "height", lower=0, upper=1, epsilon=1, **COMMON),
    "no column to count by": lambda data: statistics.plan_histogram(data, "height", ["a"], epsilon=1, **COMMON),
    "no number": lambda data: statistics.plan_mean(data, "truth", lower=0, upper=1, epsilon=1, **COMMON),
    "no condition": lambda data: statistics.plan_count(data, where=lambda t: t.age, epsilon=1, **COMMON),
    "no sense": lambda data: statistics.plan_count(data, where=lambda t: t.sex + t.age, epsilon=1, **COMMON),
    "no such attribute": lambda data: statistics.plan_queries(data, {"a": lambda t: t.height > 1}, epsilon=1, **COMMON),
    "no key": lambda data: statistics.plan_histogram(data, "sex", [object()], epsilon=1, **COMMON),
    "no comparison": lambda data: statistics.plan_queries(
        data, {"a": lambda t: t.sex.between(t, 3)}, epsilon=1, **COMMON
    ),
    "a condition that fails": lambda data: statistics.plan_queries(
        data, {"a": lambda t: fail(repr(t))}, epsilon=1, **COMMON
    ),
    "a condition over others": lambda data: statistics.plan_count(
        data, where=lambda t: t.age > t.age.mean(), epsilon=1, **COMMON
    ),
}


def fail(message):
    raise RuntimeError(message)


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("kind", [dict, pa.table, pd.DataFrame, pl.DataFrame])
def test_what_the_schema_rules_out_costs_nothing_and_shows_nothing(make, kind, tmp_path):
    """Ibis quotes the table in its messages, and a table in memory with all of its rows."""
    data = kind({**LAB, "user": [MARKER] * 6, "sex": [MARKER] * 6, "truth": [True] * 6})
    with pytest.raises(HushqueryError) as refused:
        make(data).run(tmp_path / "ledger.db")
    assert refused.value.exit_code in (2, 4)
    assert not (tmp_path / "ledger.db").exists()
    shown = "".join(traceback.format_exception(refused.value)) + json.dumps(refused.value.as_dict())
    assert MARKER not in shown
    assert refused.value.what
    assert refused.value.fix


@pytest.mark.parametrize("name", plans(LAB))
def test_a_refused_budget_reads_nothing(name, tmp_path, monkeypatch):
    book = Ledger.open(tmp_path / "ledger.db")
    book.open_account("a lab", "add-remove", Budget("0.5"))
    monkeypatch.setattr(plan_module, "execute", lambda _: pytest.fail("the data was read"))
    with pytest.raises(BudgetRefused):
        plans(LAB)[name].run(book)
    assert len(book.history()) == 1
    with pytest.raises(AccountMissing):
        plans(LAB, population="others")[name].run(book, create=False)
    assert len(book.history()) == 1


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_refused_budget_does_not_even_look_into_the_file(ending, tmp_path):
    """A row that can't be read must not be found before the budget says no."""
    path = tmp_path / f"lab.{ending}"
    first = b"user,x\nann,1\n" if ending == "csv" else b'{"user": "ann", "x": 1}\n'
    path.write_bytes(first + b'\xff\xfe\x00,,,"{{\n')
    book = Ledger.open(tmp_path / "ledger.db")
    book.open_account("a lab", "add-remove", Budget("0.5"))
    with pytest.raises(BudgetRefused):
        statistics.plan_sum(path, "x", lower=0, upper=1, epsilon=1, **COMMON).run(book)


def test_the_same_question_twice_is_refused(tmp_path):
    statistics.plan_count(LAB, epsilon=1, **COMMON).run(tmp_path / "ledger.db")
    with pytest.raises(BudgetRefused):
        statistics.plan_count(LAB, epsilon=1, **COMMON).run(tmp_path / "ledger.db")


# ---- noise -----------------------------------------------------------------------------------------------------------


def test_test_bits_mark_the_result(ledger):
    for plan in plans(LAB).values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SteepWarning)
            marked, private = ledger.run(plan, bits=SeededBits(1)), ledger.run(plan)
        assert marked.guarantee.test_noise
        assert "NOT PRIVATE" in str(marked)
        assert marked.to_json()["guarantee"]["test_noise"] is True
        assert not private.guarantee.test_noise
        assert "NOT PRIVATE" not in str(private)


def test_equal_bits_give_equal_results_and_others_do_not(ledger):
    plan = statistics.plan_histogram(LAB, "sex", ["f", "m"], epsilon="0.01", **COMMON)
    first, again, other = (ledger.run(plan, bits=SeededBits(seed)).values for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(("noise", "delta"), [("laplace", 0), ("gaussian", "1e-6")])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_counts_are_unbiased_with_the_stated_error_and_intervals_that_cover(noise, delta, relation, ledger):
    keys = list(range(5000))
    table = pa.table({"user": range(500), "k": [i % 50 for i in range(500)]})
    plan = statistics.plan_histogram(table, "k", keys, epsilon=1, delta=delta, noise=noise, relation=relation, **COMMON)
    found = ledger.run(plan, bits=SeededBits(f"counts {noise} {relation}"))
    errors = np.array(found.values) - np.array([10.0] * 50 + [0.0] * 4950)
    stderr = found.rows[0].stderr
    assert abs(errors.mean()) <= FAR * stderr / len(errors) ** 0.5
    assert abs(errors.var() / stderr**2 - 1) <= FAR * math.sqrt(6 / len(errors))  # the kurtosis of Laplace noise is 6
    hits = [row.low <= row.value - error <= row.high for row, error in zip(found, errors, strict=True)]
    assert binom.cdf(sum(hits), len(hits), 0.95) > ALPHA


TOTALS = {
    "whole numbers": ([0, 1, 2, 3, 7, -1], 0, 3, 9),
    "fractions between whole bounds": ([0.24] * 10, 0, 1, 2.4),
    "a third of everything": ([1 / 3] * 4, 0, 1, 4 / 3),
    "fractions": ([0.1, 0.2, 0.25], "0", "0.3", 0.55),
    "all negative": ([-2.5, -1.0, -9.0], -3, -1, -6.5),
}


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("column", "lower", "upper", "truth"), TOTALS.values(), ids=TOTALS)
@pytest.mark.parametrize("epsilon", [5])
def test_totals_cover_the_truth_and_not_only_their_rounding(column, lower, upper, truth, relation, epsilon, often):
    table = pa.table({"user": range(len(column)), "x": pa.array(column, pa.float64())})
    plan = statistics.plan_sum(table, "x", lower=lower, upper=upper, epsilon=epsilon, relation=relation, **COMMON)
    found = [run.rows[0] for run in often(plan, 50, SeededBits(f"totals {truth} {relation}"))]
    hits = sum(row.low - 1e-9 <= truth <= row.high + 1e-9 for row in found)
    assert binom.cdf(hits, len(found), 0.95) > ALPHA
    errors = np.array([row.value - truth for row in found])
    step = float(plan.questions[0].step)
    # The mean of Laplace draws is not normal at this number of them; its tails are wider, hence twice the distance.
    assert abs(errors.mean()) <= 2 * FAR * found[0].stderr / len(errors) ** 0.5 + step / 2


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("age", [0, 30, 120])
def test_averages_cover_the_truth_and_stay_in_their_own_interval(relation, age, often):
    n = 400
    table = pa.table({"user": range(n), "age": [age] * n})
    users = {"users": n} if relation == "replace-one" else {}
    plan = statistics.plan_mean(table, "age", lower=0, upper=120, epsilon=1, relation=relation, **users, **COMMON)
    found = [run.rows[0] for run in often(plan, 50, SeededBits(f"averages {relation} {age}"))]
    assert binom.cdf(sum(row.low <= age <= row.high for row in found), len(found), 0.95) > ALPHA
    assert all(row.low <= row.value <= row.high for row in found)
    if relation == "add-remove":
        assert all(row.low >= 0 and row.high <= 120 for row in found)


def test_an_average_of_hardly_anybody_is_a_number_with_a_warning(often):
    plan = statistics.plan_mean({"user": [1], "age": [30]}, "age", lower=0, upper=120, epsilon="0.5", **COMMON)
    with pytest.warns(SteepWarning):
        found = often(plan, 60, SeededBits("hardly anybody"))
    for table in found:
        (row,) = table.rows
        assert 0 <= row.low <= row.value <= row.high <= 120
        json.dumps(table.to_json(), allow_nan=False)
    assert any("ratio" in mark for mark in found[0].marks)


def test_a_wider_level_of_an_average_uses_the_tails_of_its_noise(ledger):
    plan = statistics.plan_mean(LAB, "grade", lower=0, upper=4, relation="replace-one", users=5, epsilon=1, **COMMON)
    (row,) = ledger.run(plan).at_level(0.9999).rows
    assert math.isclose(row.high - row.value, plan.noises[0].half_width(0.9999) / 5)
