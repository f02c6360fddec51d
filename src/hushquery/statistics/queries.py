"""What can be asked of a table: each question bounds what one unit contributes, and states that bound.

Answers are integers on a grid fixed before any row is read, and the engine adds integers only: sums of floats depend on
their order and can exceed their bound.
"""

from __future__ import annotations

import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from hushquery.core.budget import Relation, Unit
from hushquery.core.sensitivity import Bounds, of_clamped_sum, of_counts, of_overlapping, of_rows
from hushquery.engine import dialect, md5, no_such_column, or_null
from hushquery.errors import DataError, UsageError
from hushquery.log.normalise import as_double

#: A clamped value's bound is this many steps of the noise grid ...
_STEPS = 1024
#: ... and values are summed on a grid of this many steps, so that rounding them adds up to nothing.
_FINE_STEPS = 2**26
#: A single row counts at most this many times the bound, and rows are added as 38-digit integers: no sum overflows.
_ROW_REACH = 2**35

#: What a person asks of one row: a function from a table to a column of truths.
Condition = Callable[[Any], Any]


class Question(ABC):
    """A question to a table, with its bound."""

    #: Whether the exact answer is rounded to the grid, which its interval must then allow for.
    rounds: ClassVar[bool] = False
    #: The types that columns of a text file must be read as; all others are text.
    column_types: tuple[tuple[str, str], ...] = ()

    @property
    @abstractmethod
    def labels(self) -> Sequence[str]:
        """What the answers are called."""

    @property
    def step(self) -> Fraction:
        """What one step of the integer grid is worth."""
        return Fraction(1)

    def types(self) -> Mapping[str, str]:
        """Return the types that columns of a text file must be read as; all others are text."""
        return dict(self.column_types)

    @abstractmethod
    def bounds(self, relation: Relation) -> Bounds:
        """Return the sensitivity in steps of the grid."""

    @abstractmethod
    def ask(self, table: Any, unit: Unit) -> Any:
        """Build the Ibis expression of the exact answer; reads no row, refuses what the schema already rules out."""

    def read(self, answer: Any) -> list[int]:
        """Read the engine's answer (an Arrow table) in steps of the grid; secret until noise is added."""
        # A sum over no rows is null, that is zero.
        return [int(column[0] or 0) for column in answer.to_pydict().values()]

    @abstractmethod
    def describe(self) -> str:
        """Describe what is asked, for the plan and the guarantee."""


@dataclass(frozen=True)
class CountUnits(Question):
    """How many units are there (with some row that meets a condition)?"""

    labels: Sequence[str] = ("count",)
    where: Condition | None = None
    column_types: tuple[tuple[str, str], ...] = ()

    def bounds(self, relation: Relation) -> Bounds:
        """One: a unit is counted once."""
        del relation
        return of_rows(1)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Count distinct units."""
        chosen = table if self.where is None else table.filter(_condition(self.where, table))
        return chosen.agg(n=chosen[unit.name].nunique())

    def describe(self) -> str:
        """Describe what is counted."""
        return "the number of units" + (" that meet a condition" if self.where else "")


@dataclass(frozen=True)
class CountRows(Question):
    """How many rows are there, counting at most ``rows_per_unit`` of each unit?"""

    rows_per_unit: int
    labels: Sequence[str] = ("rows",)

    def bounds(self, relation: Relation) -> Bounds:
        """The cap on rows."""
        del relation
        return of_rows(self.rows_per_unit)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Count rows, each unit up to its cap."""
        import ibis

        rows = table.select(unit=table[unit.name])
        per_unit = rows.group_by("unit").agg(n=rows.count())
        return per_unit.agg(n=ibis.least(per_unit.n, self.rows_per_unit).sum())

    def describe(self) -> str:
        """Describe what is counted."""
        return f"the number of rows, at most {self.rows_per_unit} per unit"


@dataclass(frozen=True)
class ClampedTotal(Question):
    """The sum over units of a value clamped to ``lower..upper``: the sum of a unit's rows, or their average.
    Missing values are left out; a unit that has no other counts as 0, clamped (as ``centre`` in an average), so that no
    unit leaves the bounds. ``centre``, for averages only, is subtracted from each value: it takes less noise that way.
    """

    rounds: ClassVar[bool] = True

    column: str
    lower: Fraction
    upper: Fraction
    per_unit: str = "sum"
    centre: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.per_unit == "sum" and self.centre:
            raise UsageError("only an average is measured from a centre", fix="Leave the centre out")
        if max(abs(self.lower), abs(self.upper)) > 10**200 or self.upper - self.lower < Fraction(1, 10**200):
            raise UsageError("the bounds are too large or too close for numbers of a computer", fix="Change the unit")

    @property
    def labels(self) -> Sequence[str]:
        """The column."""
        return [self.column]

    def types(self) -> Mapping[str, str]:
        """The column is read as numbers."""
        return {self.column: "float64"}

    @property
    def _width(self) -> Fraction:
        return max(abs(self.lower - self.centre), abs(self.upper - self.centre), self.upper - self.lower)

    @property
    def step(self) -> Fraction:
        """The largest bound over the number of steps; one where the bounds are whole numbers and not too large."""
        whole = self.lower.denominator == self.upper.denominator == self.centre.denominator == 1
        return Fraction(1) if whole and self._width <= _STEPS else self._width / _STEPS

    def bounds(self, relation: Relation) -> Bounds:
        """The clamp's bound in steps, rounded up: ``|round(x) - round(y)| <= ceil(|x - y|)``."""
        exact_bounds = of_clamped_sum(self.lower - self.centre, self.upper - self.centre, relation)
        steps = Fraction(math.ceil(exact_bounds.l1 / self.step))
        return Bounds(steps, steps * steps, exact_bounds.because)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Turn every row into an integer on the fine grid, then add and clamp integers only."""
        import ibis

        fine = self._width / _FINE_STEPS
        centre, reach = float(self.centre), float(self._width * _ROW_REACH)
        value = numbers_of(table, self.column)
        value = ibis.ifelse(value.isnan(), ibis.null("float64"), (value - centre).clip(-reach, reach))
        row_steps = (value / float(fine)).round().cast("int64").cast("decimal(38, 0)")
        rows = table.select(unit=table[unit.name], steps=row_steps)
        per_unit = rows.group_by("unit").agg(total=rows.steps.sum(), present=rows.steps.count())
        if self.per_unit == "sum":
            steps = per_unit.total.fill_null(0)
        else:
            steps = ibis.ifelse(per_unit.present == 0, 0.0, per_unit.total.cast("float64") / per_unit.present).round()
        low, high = math.ceil((self.lower - self.centre) / fine), math.floor((self.upper - self.centre) / fine)
        in_steps = per_unit.select(s=steps.clip(low, high).cast("int64"))
        return in_steps.agg(n=in_steps.s.sum())

    def read(self, answer: Any) -> list[int]:
        """Round the total from the fine grid to the noise grid."""
        total = super().read(answer)[0] * self._width / _FINE_STEPS
        return [math.floor(total / self.step + Fraction(1, 2))]

    def describe(self) -> str:
        """Describe what is summed."""
        clamp = f"{float(self.lower):g}..{float(self.upper):g}"
        return f"the sum of {self.column!r}, each unit's {self.per_unit} clamped to {clamp}"


@dataclass(frozen=True)
class Histogram(Question):
    """How many units hold each of some publicly known values, each unit in at most ``keys_per_unit`` of them?"""

    column: str
    keys: tuple[Any, ...]
    keys_per_unit: int = 1

    def __post_init__(self) -> None:
        try:
            known = bool(self.keys) and len(set(self.keys)) == len(self.keys)
        except TypeError:
            known = False
        if not known or any(key is None or key != key for key in self.keys):
            raise UsageError(
                "a histogram needs a list of distinct, publicly known values",
                why="values taken from the data would reveal a person by their mere presence",
                fix="Name the values to count",
            )

    @property
    def labels(self) -> Sequence[str]:
        """The values counted."""
        return [str(key) for key in self.keys]

    def types(self) -> Mapping[str, str]:
        """Whole numbers are looked for among whole numbers, anything else among text."""
        whole = all(isinstance(key, int) and not isinstance(key, bool) for key in self.keys)
        return {self.column: "int64" if whole else "string"}

    def bounds(self, relation: Relation) -> Bounds:
        """One per key a unit may be in."""
        return of_counts(self.keys_per_unit, relation)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Keep a few distinct keys of each unit, chosen by a digest of unit and key, then count units per key."""
        # Any choice that looks at one unit alone is private; alphabetical order would favour some keys.
        import ibis

        column = _column(table, self.column)
        wanted = _keys_in_column(self.keys, column)
        place = column.cases(*((key, i) for i, key in enumerate(wanted)), else_=-1)
        rows = table.select(unit=table[unit.name], key=place.cast("int64"))
        rows = rows.filter(rows.key >= 0).distinct()
        rows = rows.mutate(digest=md5(or_null(rows.unit.cast("string")).fill_null("") + "|" + rows.key.cast("string")))
        rows = rows.mutate(position=ibis.row_number().over(ibis.window(group_by="unit", order_by=["digest", "key"])))
        rows = rows.filter(rows.position < self.keys_per_unit)
        return rows.group_by("key").agg(n=rows.count())

    def read(self, answer: Any) -> list[int]:
        """Read one count per key; a key that nobody holds has zero."""
        columns = answer.to_pydict()
        counts = dict(zip(columns["key"], columns["n"], strict=True))
        return [int(counts.get(i, 0)) for i in range(len(self.keys))]

    def describe(self) -> str:
        """Describe what is counted."""
        return f"units per value of {self.column!r} ({len(self.keys)} values, at most {self.keys_per_unit} per unit)"


@dataclass(frozen=True)
class Overlapping(Question):
    """Several counts over conditions that may overlap; a unit meets a condition if any of its rows does.
    With ``at_most`` a unit counts only in the first so many it meets.
    """

    conditions: Mapping[str, Condition]
    at_most: int | None = None
    column_types: tuple[tuple[str, str], ...] = ()

    @property
    def labels(self) -> Sequence[str]:
        """The names of the conditions."""
        return list(self.conditions)

    def bounds(self, relation: Relation) -> Bounds:
        """One per condition a unit may meet."""
        return of_overlapping(len(self.conditions), self.at_most, relation)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Reduce each unit to yes or no per condition, cap the yeses, and count them."""
        names = [f"c{i}" for i in range(len(self.conditions))]
        truths = {
            n: _condition(c, table).fill_null(False).cast("int64")
            for n, c in zip(names, self.conditions.values(), strict=True)
        }
        rows = table.select(unit=table[unit.name], **truths)
        per_unit = rows.group_by("unit").agg(**{n: rows[n].max() for n in names})
        if self.at_most is not None:
            met_before = per_unit[names[0]]
            capped = {names[0]: per_unit[names[0]]}
            for name in names[1:]:
                capped[name] = per_unit[name] * (met_before < self.at_most).cast("int64")
                met_before = met_before + per_unit[name]
            per_unit = per_unit.select(**capped)
        return per_unit.agg(**{n: per_unit[n].sum() for n in names})

    def describe(self) -> str:
        """Describe what is counted."""
        return f"{len(self.conditions)} counts that may overlap: {', '.join(self.conditions)}"


def _condition(condition: Condition, table: Any) -> Any:
    """Apply a condition and make sure that it looks at one row at a time."""
    # A condition that compares with an average, a rank or the row before would let one person move everybody.
    import ibis.expr.operations as ops

    result = condition(table)
    try:
        node = result.op()
        by_row = node.dtype.is_boolean() and node.shape.is_columnar()
    except AttributeError:
        by_row = False
    crowd = (ops.Reduction, ops.Analytic, ops.WindowFunction, ops.Subquery, ops.Impure)
    if not by_row or node.find(crowd, filter=ops.Value) or set(node.relations) != {table.op()}:
        raise DataError(
            "a condition must say yes or no about one row at a time",
            why="one that looks at other rows would let one person change the answer for everybody",
            fix="Use comparisons of columns with fixed values",
        )
    return or_null(_forgiving(node).to_expr()) if dialect(table) == "duckdb" else result


def _forgiving(condition: Any) -> Any:
    """Return a condition in which a value that can't be cast is missing, so that it ends nothing."""
    import ibis.expr.operations as ops

    def forgive(node: Any, changed: Mapping[str, Any] | None) -> Any:
        node = node.__recreate__(changed) if changed else node
        return ops.TryCast(node.arg, node.to) if isinstance(node, ops.Cast) else node

    return condition.replace(forgive, filter=ops.Value)


def _column(table: Any, name: str) -> Any:
    if name not in table.columns:
        raise no_such_column(name, table.columns)
    return table[name]


def numbers_of(table: Any, name: str) -> Any:
    """Return a column as doubles; text that is no number is missing, as is everything in a column without any value."""
    column = _column(table, name)
    kind = column.type()
    if kind.is_string():
        return column.try_cast("float64")
    if not (kind.is_numeric() or kind.is_null()) or kind.is_boolean():
        raise DataError(f"the column {name!r} does not hold numbers", why=f"its type is {kind}", fix="Name another")
    return as_double(column, dialect(table))


def _keys_in_column(keys: Sequence[Any], column: Any) -> list[Any]:
    """Return the keys as literals of the type of an Ibis column."""
    # A key of the wrong type would be found nowhere and have a count of zero that looks like a result: refuse it.
    kind = column.type()
    if kind.is_null():
        return list(keys)  # nobody has a value, whatever it would have been
    literals = [_converted(key, kind) for key in keys]
    wrong = [key for i, key in enumerate(keys) if literals[i] is None or literals[i] in literals[:i]]
    if wrong:
        raise DataError(
            f"the key {str(wrong[0])!r} is no value of the column, or stands for one named before",
            why=f"the column holds {kind}",
            fix="Give keys of that type, each once",
        )
    return literals


def _converted(key: Any, kind: Any) -> Any:
    """Return a key as a value of a type, or None where it is not one."""
    if kind.is_string():
        return key if isinstance(key, str) else None
    if kind.is_boolean():
        return key if isinstance(key, bool) else None
    if isinstance(key, bool):
        return None
    if kind.is_integer():
        if isinstance(key, str):  # as a command line gives it
            return int(key) if key.lstrip("-").isdecimal() and str(int(key)) == key else None
        return key if isinstance(key, int) else None
    if kind.is_floating():
        return float(key) if isinstance(key, int | float) else None
    if kind.is_decimal():
        return Decimal(key) if isinstance(key, int | Decimal) else None
    if kind.is_timestamp():
        return key if isinstance(key, datetime.datetime) else None
    if kind.is_date():
        return key if isinstance(key, datetime.date) and not isinstance(key, datetime.datetime) else None
    return None
