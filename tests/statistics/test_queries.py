"""Every question against a slow reference, and against its own bound: nobody's data moves an answer further than that.

The audit is the heart of it. A question promises ``bounds(relation)``; noise is made for that and nothing more. So for
random tables and random neighbours, as nasty as floats and files get, the exact answers may not differ by more.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction

import ibis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hushquery.core.budget import Relation, Unit
from hushquery.engine import as_table
from hushquery.errors import HushqueryError
from hushquery.statistics.queries import ClampedTotal, CountRows, CountUnits, Histogram, Overlapping

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
@few(25)
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
@few(80)
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
@few(20)
def test_clamped_totals(name, rows):
    question = QUESTIONS[name]
    origin = question.centre if question.per_unit == "mean" else 0
    scale = float(max(abs(question.lower - origin), abs(question.upper - origin))) / 10
    rows = [(user, x if x is None else float(origin) + x * scale, k) for user, x, k in rows]
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
