"""Names, keys and types of columns, and files: what is asked is found or refused, and rows do not change others."""

from __future__ import annotations

import datetime
import math
import warnings
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from hushquery import statistics
from hushquery.core.budget import PrivacyWarning, Relation, Unit
from hushquery.engine import as_table
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.statistics.queries import ClampedTotal, CountRows, CountUnits, Histogram, Overlapping

F = Fraction
CONDITIONS = {"above one": lambda t: t.x > 1, "north": lambda t: t.k == "north"}


def total(lower, upper, per_unit="sum", centre=0):
    return ClampedTotal("x", F(lower), F(upper), per_unit, F(centre))


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
    return plan.run(tmp_path / f"{path.stem}.{make.__name__}.db", anyway=True).values[0]


def count_users(path, **common):
    return statistics.plan_count(path, **common)


def sum_up(path, **common):
    return statistics.plan_sum(path, "x", lower=0, upper=3, **common)


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
        plan = statistics.plan_count(path, where=lambda t: t.age == "3", unit="user", epsilon=1, population="people")
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
