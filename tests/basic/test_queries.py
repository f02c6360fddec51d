"""Every question against a slow reference, and against its own bound: nobody's data moves an answer further than that.

The audit is the heart of it. A question promises ``bounds(relation)``; noise is made for that and nothing more. So for
random tables and random neighbours, as nasty as floats and files get, the exact answers may not differ by more.
"""

from __future__ import annotations

import datetime
import itertools
import math
import warnings
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction

import ibis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hushquery import basic
from hushquery.basic.queries import ClampedTotal, CountRows, CountUnits, Histogram, Overlapping
from hushquery.engine import as_table
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.privacy.budget import PrivacyWarning
from hushquery.privacy.unit import Relation, Unit

F = Fraction
SLOW_START = [HealthCheck.too_slow]


def few(n):
    return settings(max_examples=n, deadline=None, suppress_health_check=SLOW_START)


class Lab:
    """One DuckDB for all examples: a question is compiled once per kind of column, then run on table after table."""

    def __init__(self):
        self.backend = ibis.duckdb.connect()
        self.duckdb = self.backend.con
        self.duckdb.execute("SET threads = 1")
        self.compiled = {}

    def answer(self, question, rows, *, name=None, schema=None, unit="user"):
        """Ask a question about rows (user, x, k); give the exact answer in steps of its grid."""
        schema = schema or SCHEMA
        columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
        self.duckdb.register(
            "t", pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema)
        )
        key = (name or id(question), str(schema))
        if key not in self.compiled:
            table = self.backend.table("t")
            asked = question.ask(table.filter(table[unit].notnull()), Unit(unit, "add-remove"))
            self.compiled[key] = (str(ibis.to_sql(asked)), question)
        sql, kept = self.compiled[key]
        return kept.read(self.duckdb.execute(sql).to_arrow_table())


SCHEMA = pa.schema([("user", pa.string()), ("x", pa.float64()), ("k", pa.string())])
LAB = Lab()

# ---- what is asked ---------------------------------------------------------------------------------------------------


def total(lower, upper, per_unit="sum", centre=0):
    return ClampedTotal("x", F(lower), F(upper), per_unit, F(centre))


CONDITIONS = {
    "above one": lambda t: t.x > 1,
    "above two": lambda t: t.x > 2,
    "north": lambda t: t.k == "north",
    "missing": lambda t: t.x.isnull(),
    "always": lambda t: t.user.notnull(),
}

QUESTIONS = {
    "units": CountUnits(),
    "units above one": CountUnits(where=CONDITIONS["above one"]),
    "rows, 1 each": CountRows(1),
    "rows, 3 each": CountRows(3),
    "sum 0..3": total(0, 3),
    "sum -1..3": total(-1, 3),
    "sum 2..5": total(2, 5),
    "sum -5..-2": total(-5, -2),
    "sum 1/3..2/3": total("1/3", "2/3"),
    "sum of very little": total(0, "1e-9"),
    "sum of very much": total("-1e12", "1e12"),
    "sum in a narrow range": total("1000000000", "1000000000.5"),
    "mean 0..3": total(0, 3, "mean", "3/2"),
    "mean 0..4": total(0, 4, "mean", 2),
    "mean off the middle": total(-1, 2, "mean", "1/3"),
    "mean 2..5": total(2, 5, "mean", "7/2"),
    "mean in a narrow range": total("1000000000", "1000000000.5", "mean", "1000000000.25"),
    "histogram": Histogram("k", ("north", "south", "ü😀", "")),
    "histogram, 2 each": Histogram("k", ("north", "south", "ü😀", ""), 2),
    "histogram, all": Histogram("k", ("north", "south"), 5),
    "histogram of numbers": Histogram("x", (0.0, 1.0, 2.0, 3.0), 2),
    "overlapping": Overlapping(CONDITIONS),
    "overlapping, 1 each": Overlapping(CONDITIONS, 1),
    "overlapping, 3 each": Overlapping(CONDITIONS, 3),
}

# ---- nasty tables ----------------------------------------------------------------------------------------------------

NASTY = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e-310,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    1e290,
    -1e290,
    1e17,
    -1e17,
    9007199254740993.0,
    1.0,
    1.5,
    2.0,
    3.0,
    math.nextafter(3, 9),
    math.nextafter(3, 0),
    math.nextafter(2, 0),
    -1.0,
    -5.0,
    0.1,
    1 / 3,
    2 / 3,
    1e-9,
    5e-10,
    1e12,
    -1e12,
    1e9,
    1e9 + 0.25,
    math.nextafter(1e9 + 0.5, 1e10),
]
values = st.one_of(st.sampled_from(NASTY), st.floats(-10, 10), st.floats())
keys = st.sampled_from(["north", "south", "ü😀", "", "elsewhere", "North", None])
names = st.sampled_from(["a", "b", "ü", "😀", "", " a", "A", None])
cells = st.tuples(values, keys)
tables = st.lists(st.tuples(names, values, keys), max_size=10)


@st.composite
def neighbours(draw):
    """A table without somebody, and with that person's data once so and once otherwise; rows in any order."""
    others = draw(st.lists(st.tuples(st.sampled_from("abc"), values, keys), max_size=8))
    person = st.lists(cells, min_size=1, max_size=5)
    worlds = [others]
    for data in (draw(person), draw(person)):
        worlds.append(draw(st.permutations([*others, *(("z", x, k) for x, k in data)])))
    return worlds


def moved(before, after):
    moves = [abs(a - b) for a, b in zip(before, after, strict=True)]
    return sum(moves), sum(m * m for m in moves)


def audit(question, worlds, answer):
    without, one, other = (answer(world) for world in worlds)
    pairs = {
        Relation.ADD_REMOVE: [(without, one), (without, other)],
        Relation.REPLACE_ONE: [(one, other)],
    }
    for relation, found in pairs.items():
        bounds = question.bounds(relation)
        for before, after in found:
            l1, l2 = moved(before, after)
            assert l1 <= bounds.l1, (relation, before, after)
            assert l2 <= bounds.l2_squared, (relation, before, after)


# ---- the audit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUESTIONS)
@given(neighbours())
@few(35)
def test_nobody_moves_an_answer_further_than_its_bound(name, worlds):
    question = QUESTIONS[name]
    audit(question, worlds, lambda rows: LAB.answer(question, rows, name=name))


@st.composite
def bounded(draw):
    """Any bounds and any centre between them, with values that crowd around them."""
    ends = st.one_of(
        st.fractions(-1000, 1000, max_denominator=1000),
        st.integers(-2000, 2000).map(F),
        st.sampled_from([F(10) ** 15, -(F(10) ** 15), F(1, 10**12), F(0), F(1, 3)]),
    )
    lower, upper = sorted(draw(st.tuples(ends, ends).filter(lambda e: e[0] != e[1])))
    centre = lower + (upper - lower) * draw(st.fractions(0, 1, max_denominator=10))
    question = draw(st.sampled_from([ClampedTotal("x", lower, upper), ClampedTotal("x", lower, upper, "mean", centre)]))
    near = [float(lower), float(upper), float(centre), float((lower + upper) / 2)]
    near += [math.nextafter(v, s * math.inf) for v in near for s in (-1, 1)]
    near += [v + float(question.step) / 2 for v in near[:4]] + [-v for v in near[:4]]
    value = st.one_of(st.sampled_from(near), st.sampled_from(NASTY))
    others = draw(st.lists(st.tuples(st.sampled_from("abc"), value, st.none()), max_size=6))
    person = st.lists(value, min_size=1, max_size=4)
    worlds = [others]
    for data in (draw(person), draw(person)):
        worlds.append(draw(st.permutations([*others, *(("z", x, None) for x in data)])))
    return question, worlds


@given(bounded())
@few(120)
def test_nobody_moves_a_clamped_total_further_than_its_bound_whatever_the_bounds(drawn):
    question, worlds = drawn
    audit(question, worlds, lambda rows: Lab.answer(_fresh(), question, rows))


def _fresh():
    LAB.compiled.clear()
    return LAB


TYPED = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.sampled_from([-(2**63), 2**63 - 1, 0, 1, 2, 3, 2**53 + 1])),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 2, 3, 2**64 - 1])),
    "float32": (pa.float32(), st.sampled_from([0.0, 0.1, 3.0, math.nan, math.inf, -math.inf, 3.4e38])),
    "decimal": (
        pa.decimal128(38, 5),
        st.sampled_from([Decimal("0.1"), Decimal("3.00001"), Decimal(10) ** 32, Decimal(-7)]),
    ),
}


@pytest.mark.parametrize("kind", TYPED)
@given(st.data())
@few(15)
def test_the_bound_holds_for_every_numeric_type(kind, data):
    arrow, cell = TYPED[kind]
    schema = pa.schema([("user", pa.int64()), ("x", arrow)])
    cell = st.one_of(st.none(), cell)
    others = data.draw(st.lists(st.tuples(st.integers(1, 3), cell), max_size=6))
    worlds = [others]
    for mine in data.draw(st.tuples(*[st.lists(cell, min_size=1, max_size=4)] * 2)):
        worlds.append(data.draw(st.permutations([*others, *((9, x) for x in mine)])))
    for name in ("sum 0..3", "mean off the middle"):
        audit(
            QUESTIONS[name], worlds, lambda rows, name=name: LAB.answer(QUESTIONS[name], rows, name=name, schema=schema)
        )


def test_the_order_of_rows_does_not_matter():
    """Sums of floats depend on their order, and an engine that uses several threads has none."""
    rows = [("a", 1e17, None), ("a", 3.0, None), ("a", -1e17, None), ("a", 0.1, None)]
    for name in ("sum 0..3", "sum -1..3", "mean 0..3", "sum 1/3..2/3"):
        answers = {tuple(LAB.answer(QUESTIONS[name], list(order), name=name)) for order in itertools.permutations(rows)}
        assert len(answers) == 1, name


@pytest.mark.parametrize("name", QUESTIONS)
@given(tables.flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
@few(10)
def test_no_answer_depends_on_the_order_of_rows(name, pair):
    before, after = (LAB.answer(QUESTIONS[name], rows, name=name) for rows in pair)
    assert before == after


# ---- conditions that look at other people ----------------------------------------------------------------------------

CROWD = {
    "an average": lambda t: t.x > t.x.mean(),
    "a subquery": lambda t: t.x > t.x.mean().as_scalar(),
    "a rank": lambda t: ibis.row_number().over(ibis.window(order_by=t.x)) < 3,
    "the row before": lambda t: t.x > t.x.lag(),
    "a maximum over others": lambda t: t.x == t.x.max().over(ibis.window()),
    "membership": lambda t: t.x.isin(t.filter(t.x > 1).x),
    "a count": lambda t: t.count() > 2,
}


@pytest.mark.parametrize("condition", CROWD.values(), ids=CROWD)
def test_a_condition_may_look_at_one_row_only(condition):
    """Else one person moves everybody: with an average, any count may change by the number of all people."""
    table = as_table(pa.table({"user": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}))
    for question in (CountUnits(where=condition), Overlapping({"crowd": condition})):
        with pytest.raises(HushqueryError) as refused:
            question.ask(table, Unit("user", "add-remove"))
        assert refused.value.exit_code in (2, 4)


@given(neighbours())
@few(15)
def test_conditions_on_one_row_may_be_as_involved_as_they_like(worlds):
    involved = CountUnits(where=lambda t: (t.x.fill_null(0).abs() > 1) & t.k.isin(["north", "south"]) | (t.x * 2 > 5))
    audit(involved, worlds, lambda rows: LAB.answer(involved, rows, name="involved"))


# ---- against a slow reference ----------------------------------------------------------------------------------------


def by_user(rows):
    found = defaultdict(list)
    for user, x, k in rows:
        if user is not None:
            found[user].append((x, k))
    return found


def known(x):
    return x is not None and not math.isnan(x)


# Without NaN: whether it is above one depends on whether DuckDB or Arrow is asked.
plain = values.filter(lambda x: x is None or not math.isnan(x))
plain_tables = st.lists(st.tuples(names, plain, keys), max_size=10)

REFERENCE = {
    "above one": lambda row: row[0] is not None and row[0] > 1,
    "above two": lambda row: row[0] is not None and row[0] > 2,
    "north": lambda row: row[1] == "north",
    "missing": lambda row: row[0] is None,
    "always": lambda _: True,
}


@given(plain_tables)
@example([])
@example([(None, 1.0, "north")])
@example([("a", None, None)])
@few(60)
def test_counts_of_units_and_rows(rows):
    people = by_user(rows)
    assert LAB.answer(QUESTIONS["units"], rows, name="units") == [len(people)]
    meet = sum(any(map(REFERENCE["above one"], data)) for data in people.values())
    assert LAB.answer(QUESTIONS["units above one"], rows, name="units above one") == [meet]
    for cap in (1, 3):
        expected = sum(min(cap, len(data)) for data in people.values())
        assert LAB.answer(QUESTIONS[f"rows, {cap} each"], rows, name=f"rows, {cap} each") == [expected]


@given(plain_tables)
@few(60)
def test_overlapping_counts(rows):
    people = by_user(rows).values()
    for name, cap in (("overlapping", 5), ("overlapping, 1 each", 1), ("overlapping, 3 each", 3)):
        expected = [0] * len(CONDITIONS)
        for data in people:
            met = [i for i, c in enumerate(CONDITIONS) if any(map(REFERENCE[c], data))]
            for i in met[:cap]:
                expected[i] += 1
        assert LAB.answer(QUESTIONS[name], rows, name=name) == expected


@given(tables)
@few(60)
def test_histograms(rows):
    people = by_user(rows).values()
    for name, cap in (("histogram", 1), ("histogram, 2 each", 2), ("histogram, all", 5)):
        wanted = QUESTIONS[name].keys
        held = [{k for _, k in data if k in wanted} for data in people]
        counts = LAB.answer(QUESTIONS[name], rows, name=name)
        assert sum(counts) == sum(min(cap, len(h)) for h in held)
        most = [sum(key in h for h in held) for key in wanted]
        least = [sum(key in h for h in held if len(h) <= cap) for key in wanted]
        assert all(low <= n <= high for low, n, high in zip(least, counts, most, strict=True))


def test_no_key_is_favoured_by_its_place_in_the_alphabet():
    rows = [(f"user {i}", None, key) for i in range(2000) for key in ("north", "south", "ü😀", "")]
    counts = LAB.answer(QUESTIONS["histogram"], rows, name="histogram")
    assert sum(counts) == 2000
    spread = math.sqrt(2000 * 0.25 * 0.75)
    assert all(abs(n - 500) <= 6.2 * spread for n in counts)


calm = st.one_of(st.none(), st.just(math.nan), st.floats(-50, 50), st.integers(-5, 5).map(float))
calm_tables = st.lists(st.tuples(names, calm, st.none()), max_size=10)

SUMS = [name for name in QUESTIONS if name.startswith(("sum", "mean"))]


@pytest.mark.parametrize("name", SUMS)
@given(calm_tables)
@example([])
@example([("a", None, None), ("b", math.nan, None)])
@few(25)
def test_clamped_totals(name, rows):
    question = QUESTIONS[name]
    scale = float(max(abs(question.lower), abs(question.upper))) / 10
    rows = [(user, x and x * scale, k) for user, x, k in rows]
    exact = F(0)
    for data in by_user(rows).values():
        seen = [F(x) for x, _ in data if known(x)]
        one = sum(seen, F(0))
        if question.per_unit == "mean":
            one = one / len(seen) if seen else question.centre
        exact += min(max(one, question.lower), question.upper) - question.centre
    (answer,) = LAB.answer(question, rows, name=name)
    assert abs(answer - exact / question.step) <= F(1, 2) + F(1, 1000)  # rounded once, at the very end


@pytest.mark.parametrize(
    ("value", "end"), [(math.inf, "upper"), (-math.inf, "lower"), (1e308, "upper"), (-1e308, "lower")]
)
def test_what_is_beyond_the_bounds_counts_as_the_bound(value, end):
    for name in SUMS:
        question = QUESTIONS[name]
        expected = (getattr(question, end) - question.centre) / question.step
        (answer,) = LAB.answer(question, [("a", value, None)], name=name)
        assert abs(answer - expected) <= F(1, 2)


def test_rounding_does_not_add_up():
    """People who hold the same value are all rounded the same way; the grid must be too fine for that to matter."""
    n = 300_000
    for lower, upper, value in ((0, 1, 19660.499 / 65536), (0, 1, 1 / 3), (-2, 1, 0.7), (0, 1000, 0.3)):
        question = total(lower, upper)
        table = as_table(pa.table({"user": range(n), "x": [value] * n}))
        (answer,) = question.read(question.ask(table, Unit("user", "add-remove")).to_pyarrow())
        drift = n * F(upper - lower, 2**25)  # a hundredth of the bound, far below any noise
        assert abs(answer * question.step - n * F(value)) <= question.step / 2 + drift


# ---- names, keys, types ----------------------------------------------------------------------------------------------


def ask(question, data, unit="user"):
    table = as_table(data)
    return question.read(question.ask(table.filter(table[unit].notnull()), Unit(unit, "add-remove")).to_pyarrow())


@pytest.mark.parametrize(
    "unit", ["n", "v", "s", "unit", "key", "digest", "position", "c0", "total", "count", "user id", "ü"]
)
def test_a_unit_may_have_any_name(unit):
    people = pa.table({unit: ["a", "a", "b", None], "x": [1.0, 2.0, 5.0, 9.0]})
    asked = {
        CountUnits(): [2],
        CountRows(1): [2],
        total(0, 4): [7],
        Histogram("x", (1.0, 5.0)): [1, 1],
    }
    for question, expected in asked.items():
        assert ask(question, people, unit) == expected
    assert ask(Overlapping({"low": lambda t: t.x < 3, "high": lambda t: t.x > 3}), people, unit) == [1, 1]


@pytest.mark.parametrize("column", ["n", "v", "s", "unit", "key", "digest", "position", "c0", "total"])
def test_a_column_may_have_any_name(column):
    people = pa.table({"user": ["a", "a", "b"], column: [1.0, 2.0, 5.0]})
    assert ask(ClampedTotal(column, F(0), F(4)), people) == [7]
    assert ask(Histogram(column, (1.0, 2.0, 5.0), 2), people) == [1, 1, 1]


DAY = datetime.date(2024, 1, 1)
KEYED = {
    "text": (["a", "b", "b"], ("a", "b"), [1, 2]),
    "whole numbers": ([1, 2, 2], (1, 2), [1, 2]),
    "whole numbers as text": ([1, 2, 2], ("1", "2"), [1, 2]),
    "text that looks like numbers": (["1", "02", "x"], ("1", "2"), [1, 0]),
    "decimals": ([Decimal("0.10"), Decimal("0.20"), Decimal("0.20")], (Decimal("0.1"), Decimal("0.2")), [1, 2]),
    "floats": ([0.5, 2.5, 2.5], (0.5, 2.5), [1, 2]),
    "floats as text": ([0.5, 2.5, 2.5], ("0.5", "2.5"), [1, 2]),
    "truths": ([True, False, False], (True, False), [1, 2]),
    "truths as text": ([True, False, False], ("true", "false"), [1, 2]),
    "days": ([DAY, datetime.date(2024, 1, 2), DAY], (DAY,), [2]),
    "days as text": ([DAY, datetime.date(2024, 1, 2), DAY], ("2024-01-01",), [2]),
    "times as text": ([datetime.datetime(2024, 1, 1)] * 3, ("2024-01-01",), [3]),
    "nothing at all": ([None, None, None], ("a",), [0]),
}


@pytest.mark.parametrize(("column", "wanted", "expected"), KEYED.values(), ids=KEYED)
def test_keys_are_found_in_every_type_of_column_or_refused(column, wanted, expected):
    """A key of the wrong type must not become a count of zero that looks like a result."""
    try:
        found = ask(Histogram("k", wanted), pa.table({"user": ["a", "b", "c"], "k": column}))
    except DataError:
        assert all(isinstance(key, str) for key in wanted)  # text may be refused, never silently not found
        assert not isinstance(column[0], str)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("column", "wanted"),
    [([1, 2], ("a",)), ([1, 2], (1.5,)), ([True, False], ("maybe",)), ([DAY, DAY], ("soon",)), ([1, 2], ("1", "01"))],
)
def test_keys_that_a_column_cannot_hold_are_refused_before_anything_is_spent(column, wanted):
    table = as_table(pa.table({"user": ["a", "b"], "k": column}))
    with pytest.raises(DataError):
        Histogram("k", wanted).ask(table, Unit("user", "add-remove"))


@pytest.mark.parametrize("wanted", [(), ("a", "a"), (None,), ("a", None), (math.nan,), (["a"],), (1, True)])
def test_keys_are_distinct_values_that_somebody_knows(wanted):
    with pytest.raises(UsageError, match="publicly known"):
        Histogram("k", wanted)


@pytest.mark.parametrize("column", [["a"], [True], [DAY], [[1]]])
def test_only_numbers_are_summed(column):
    table = as_table(pa.table({"user": ["a"], "x": column}))
    if isinstance(column[0], str):
        assert ask(total(0, 3), pa.table({"user": ["a"], "x": column})) == [0]  # text that is no number is missing
    else:
        with pytest.raises(DataError, match="does not hold numbers"):
            total(0, 3).ask(table, Unit("user", "add-remove"))


def test_a_column_without_any_value_is_like_one_with_some():
    """Whether anybody has a value is a secret; the type that a table in memory has then must not give it away."""
    assert ask(total(0, 3), pa.table({"user": ["a", "b"], "x": pa.nulls(2)})) == [0]
    assert ask(total(2, 3), pa.table({"user": ["a", "b"], "x": pa.nulls(2)})) == [4]
    assert ask(Histogram("x", ("a",)), pa.table({"user": ["a", "b"], "x": pa.nulls(2)})) == [0]


@pytest.mark.parametrize("question", [total(0, 3), Histogram("x", ("a",))])
def test_a_missing_column_is_named(question):
    with pytest.raises(DataError, match="no column 'x'"):
        question.ask(as_table({"user": ["a"]}), Unit("user", "add-remove"))


@pytest.mark.parametrize("per_unit", ["sum", "mean"])
@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (0, "1e-320"),
        ("-1e400", 0),
        (0, "1e309"),
        ("-1e-300", "1e-300"),
        ("1e15", "1000000000000001"),
        ("-1e150", "-99999999e142"),
        ("1600000000", "1600003600"),
    ],
)
def test_bounds_are_refused_or_work_for_every_number(lower, upper, per_unit):
    """One person's outlier must not stop a release: that is an answer too, and nobody's noise is in it."""
    try:
        question = total(lower, upper, per_unit, (F(lower) + F(upper)) / 2 if per_unit == "mean" else 0)
    except UsageError:
        return
    assert question.describe()
    for number in (math.inf, -math.inf, 1.6e15, 1e300, -1e300, float(F(lower)), 0.0):
        (answer,) = ask(question, pa.table({"user": ["a"], "x": [number]}))
        assert abs(answer) <= question.bounds(Relation.ADD_REMOVE).l1


@pytest.mark.parametrize("cap", [0, -1, True, 1.5, "2"])
def test_caps_are_whole_numbers(cap):
    for question in (CountRows(cap), Histogram("k", ("a",), cap), Overlapping(CONDITIONS, cap)):
        with pytest.raises(UsageError):
            question.bounds(Relation.ADD_REMOVE)


# ---- files: one row must not change how others are read --------------------------------------------------------------

FILES = {
    "numbers and one word": (["1,1", "1.0,1", "1.00,1", "1e0,1"], "abc,1"),
    "truths and one word": (["true,1", "TRUE,1", "True,1", "t,1"], "abc,1"),
    "days and one word": (["2024-01-01,1", "2024-1-1,1", "2024-01-01 ,1"], "abc,1"),
    "times and one word": (["2024-01-01 00:00:00,1", "2024-01-01T00:00:00,1"], "abc,1"),
    "leading zeros": (["7,1", "07,1", "007,1"], "0x7,1"),
    "numbers to sum and one word": (["a,1", "b,2", "c,3"], "z,many"),
    "whole numbers and one that is not": (["a,1", "b,2"], "z,0.5"),
    "another delimiter in a name": (["a,1", "b,2", "c,3"], '"x;y;z",1'),
    "a tab in a name": (["a,1", "b,2", "c,3"], '"x\ty\tz",1'),
    "a quote in a name": (["a,1", "b,2", "c,3"], '"x""y",1'),
    "an apostrophe": (["'a,1", "b',2", "c,3"], "d'e,1"),
    "a comment": (["a,1", "b,2"], "#c,1"),
    "no values yet": (["a,", "b,"], "c,2"),
    "nobody yet": ([], "a,2"),
    "a word that means nothing": (["a,1", "b,2"], "NULL,NA"),
}


def released(path, tmp_path, make):
    """Run a plan for real, with an epsilon so large that its noise is zero but for once in e^300 runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        plan = make(path, unit="user", epsilon=900, population="people")
    return plan.run(tmp_path / f"{path.stem}.{make.__name__}.db").values[0]


def count_users(path, **common):
    return basic.count(path, **common)


def sum_up(path, **common):
    return basic.total(path, "x", lower=0, upper=3, **common)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(("rows", "extra"), FILES.values(), ids=FILES)
def test_one_row_does_not_change_how_others_are_read(tmp_path, ending, rows, extra):
    """A type that is guessed from the rows makes 1 and 1.0 one user, until somebody called abc makes them two."""
    before, after = tmp_path / f"before.{ending}", tmp_path / f"after.{ending}"
    for path, lines in ((before, rows), (after, [*rows, extra])):
        if ending == "csv":
            path.write_text("\n".join(["user,x", *lines]) + "\n", encoding="utf-8")
        else:
            path.write_text("".join(json_line(line) for line in lines) or "\n", encoding="utf-8")
    for make, bound in ((count_users, 1), (sum_up, 3)):
        assert abs(released(before, tmp_path, make) - released(after, tmp_path, make)) <= bound + 0.01


def test_which_columns_json_lines_have_does_not_depend_on_the_first_of_them(tmp_path):
    """There is no header: the first line is somebody's row, and whose it is must not decide what can be asked."""
    rows = ['{"user": "a", "age": 3}\n', '{"user": "b", "age": 4}\n']
    outcomes = []
    for name, lines in (("before", rows), ("after", ['{"user": "z"}\n', *rows])):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(lines))
        plan = basic.count(path, where=lambda t: t.age == "3", unit="user", epsilon=1)
        try:
            plan.run(tmp_path / f"{name}.db")
            outcomes.append("an answer")
        except HushqueryError as error:
            outcomes.append(error.what)
    assert outcomes[0] == outcomes[1]


def json_line(line):
    """A line of CSV as JSON: what looks like a number or a truth is one."""
    user, x = line.strip('"').replace('"', "'").replace("\t", " ").rsplit(",", 1)
    user = user.strip('"')

    def cell(text):
        bare = text in ("true", "false") or (text.replace(".", "", 1).replace("e0", "").isdigit() and text[0] != "0")
        return (text or "null") if bare or not text else f'"{text}"'

    return f'{{"user": {cell(user)}, "x": {cell(x)}}}\n'
