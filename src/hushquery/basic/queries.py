"""What can be asked of a table: each question bounds what one unit contributes, and says what that bound is.

A question turns a table into a few integers, on a grid that is fixed before any row is read. All arithmetic that the
bound
rests on is on integers inside the engine: sums of floats depend on their order and can exceed their bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from hushquery.errors import DataError, UsageError
from hushquery.privacy.sensitivity import Bounds, ClampedSum, Counts, OverlappingCounts, RowCount
from hushquery.privacy.unit import Relation, Unit

__all__ = ["ClampedTotal", "CountRows", "CountUnits", "Histogram", "Overlapping", "Question"]

#: A clamped value's bound is this many steps of the noise grid ...
_STEPS = 1024
#: ... and values are summed on a grid this many times finer, so that rounding them adds up to nothing.
_FINER = 2**16


class Question(Protocol):
    """A question to a table, with its bound."""

    @property
    def labels(self) -> Sequence[str]:
        """What the answers are called."""
        ...

    @property
    def step(self) -> Fraction:
        """What one step of the integer grid is worth."""
        ...

    def bounds(self, relation: Relation) -> Bounds:
        """Give the sensitivity in steps of the grid."""
        ...

    def ask(self, table: Any, unit: Unit) -> Any:
        """Build the Ibis expression of the exact answer; reads no row, refuses what the schema already rules out."""
        ...

    def read(self, answer: Any) -> list[int]:
        """Read the engine's answer (an Arrow table) in steps of the grid. Secret until noise is added."""
        ...

    def describe(self) -> str:
        """Say what is asked, for the plan and the guarantee."""
        ...


@dataclass(frozen=True)
class CountUnits:
    """How many units are there (with some row that meets a condition)?"""

    label: str = "count"
    where: Callable[[Any], Any] | None = None
    step: Fraction = Fraction(1)

    @property
    def labels(self) -> Sequence[str]:
        """The label alone."""
        return [self.label]

    def bounds(self, relation: Relation) -> Bounds:
        """One: a unit is counted once."""
        return RowCount(1).bounds(relation)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Count distinct units."""
        chosen = table if self.where is None else table.filter(self.where(table))
        return chosen.agg(n=chosen[unit.name].nunique())

    def read(self, answer: Any) -> list[int]:
        """Read the one number."""
        return _first_row(answer)

    def describe(self) -> str:
        """Say what is counted."""
        return "the number of units" + (" that meet a condition" if self.where else "")


@dataclass(frozen=True)
class CountRows:
    """How many rows are there, counting at most ``rows_per_unit`` of each unit?"""

    rows_per_unit: int
    label: str = "rows"
    step: Fraction = Fraction(1)

    @property
    def labels(self) -> Sequence[str]:
        """The label alone."""
        return [self.label]

    def bounds(self, relation: Relation) -> Bounds:
        """The cap on rows."""
        return RowCount(self.rows_per_unit).bounds(relation)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Count rows, each unit up to its cap."""
        import ibis

        per_unit = table.group_by(unit.name).agg(n=table.count())
        return per_unit.agg(n=ibis.least(per_unit.n, self.rows_per_unit).sum())

    def read(self, answer: Any) -> list[int]:
        """Read the one number."""
        return _first_row(answer)

    def describe(self) -> str:
        """Say what is counted."""
        return f"the number of rows, at most {self.rows_per_unit} per unit"


@dataclass(frozen=True)
class ClampedTotal:
    """The sum over units of a value clamped to ``lower..upper``.

    A unit's value is the sum of its rows (``per_unit="sum"``) or their average. Missing values are left out; a unit
    that has
    no other counts as 0, clamped like every value (as ``centre`` in an average), so that no unit leaves the bounds.
    ``centre`` is subtracted from each unit's clamped value first: an average needs less noise that way.
    """

    column: str
    lower: Fraction
    upper: Fraction
    per_unit: str = "sum"
    centre: Fraction = Fraction(0)

    @property
    def labels(self) -> Sequence[str]:
        """The column."""
        return [self.column]

    @property
    def _shifted(self) -> ClampedSum:
        return ClampedSum(self.lower - self.centre, self.upper - self.centre)

    @property
    def step(self) -> Fraction:
        """The largest bound over the number of steps; at most one where the bounds are whole numbers."""
        width = max(abs(self._shifted.lower), abs(self._shifted.upper), self.upper - self.lower)
        whole = self.lower.denominator == self.upper.denominator == self.centre.denominator == 1
        return Fraction(1) if whole and width <= _STEPS else width / _STEPS

    def bounds(self, relation: Relation) -> Bounds:
        """The clamp's bound in steps, rounded up: |round(x) - round(y)| <= ceil(|x - y|)."""
        exact_bounds = self._shifted.bounds(relation)
        steps = Fraction(math.ceil(exact_bounds.l1 / self.step))
        return Bounds(steps, steps * steps, exact_bounds.because)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Sum clamped values as integers on the fine grid."""
        import ibis

        column = _column(table, self.column)
        if not column.type().is_numeric():
            raise DataError(
                f"the column {self.column!r} does not hold numbers",
                why=f"its type is {column.type()}",
                fix="Name a numeric column",
            )
        value = column.cast("float64")
        # Finite, so that no unit's sum can overflow into something that a clamp does not hold.
        value = ibis.ifelse(value.isnan(), ibis.null("float64"), value.clip(-1e290, 1e290))
        per_unit = table.group_by(unit.name).agg(v=value.sum() if self.per_unit == "sum" else value.mean())
        missing = float(0 if self.per_unit == "sum" else self.centre)
        clamped = per_unit.v.fill_null(missing).clip(float(self.lower), float(self.upper))
        fine = self.step / _FINER
        low, high = math.ceil((self.lower - self.centre) / fine), math.floor((self.upper - self.centre) / fine)
        steps = ((clamped - float(self.centre)) / float(fine)).round().cast("int64").clip(low, high)
        in_steps = per_unit.select(s=steps)
        return in_steps.agg(n=in_steps.s.sum())

    def read(self, answer: Any) -> list[int]:
        """Round the total from the fine grid to the noise grid."""
        return [math.floor(Fraction(_first_row(answer)[0], _FINER) + Fraction(1, 2))]

    def describe(self) -> str:
        """Say what is summed."""
        clamp = f"{float(self.lower):g}..{float(self.upper):g}"
        return f"the sum of {self.column!r}, each unit's {self.per_unit} clamped to {clamp}"


@dataclass(frozen=True)
class Histogram:
    """How many units hold each of some publicly known values, each unit in at most ``keys_per_unit`` of them?"""

    column: str
    keys: tuple[Any, ...]
    keys_per_unit: int = 1
    step: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not self.keys or len(set(self.keys)) != len(self.keys):
            raise UsageError(
                "a histogram needs a list of distinct, publicly known values",
                why="values taken from the data would reveal a person by their mere presence",
                fix="Name the values to count",
            )

    @property
    def labels(self) -> Sequence[str]:
        """The values counted."""
        return [str(key) for key in self.keys]

    def bounds(self, relation: Relation) -> Bounds:
        """One per key a unit may be in."""
        return Counts(self.keys_per_unit).bounds(relation)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Keep a few distinct keys of each unit, chosen by a digest of unit and key, then count units per key.

        Any choice that looks at one unit alone is private; the order of the alphabet would favour some keys.
        """
        import ibis

        key = _column(table, self.column)
        held = table.filter(key.isin(self.keys)).select(unit=table[unit.name], key=key).distinct()
        held = held.mutate(digest=_md5(held.unit.cast("string") + "|" + held.key.cast("string")))
        kept = held.mutate(position=ibis.row_number().over(ibis.window(group_by="unit", order_by=["digest", "key"])))
        kept = kept.filter(kept.position < self.keys_per_unit)
        return kept.group_by("key").agg(n=kept.count())

    def read(self, answer: Any) -> list[int]:
        """Read one count per key; a key that nobody holds has zero."""
        columns = answer.to_pydict()
        counts = dict(zip(columns["key"], columns["n"], strict=True))
        return [int(counts.get(key, 0)) for key in self.keys]

    def describe(self) -> str:
        """Say what is counted."""
        return f"units per value of {self.column!r} ({len(self.keys)} values, at most {self.keys_per_unit} per unit)"


@dataclass(frozen=True)
class Overlapping:
    """Several counts at once, over conditions that may overlap: how many units meet each?

    A unit meets a condition if any of its rows does. With ``at_most`` a unit counts only in the first so many it meets.
    """

    conditions: Mapping[str, Callable[[Any], Any]]
    at_most: int | None = None
    step: Fraction = Fraction(1)

    @property
    def labels(self) -> Sequence[str]:
        """The names of the conditions."""
        return list(self.conditions)

    def bounds(self, relation: Relation) -> Bounds:
        """One per condition a unit may meet."""
        return OverlappingCounts(len(self.conditions), self.at_most).bounds(relation)

    def ask(self, table: Any, unit: Unit) -> Any:
        """Reduce each unit to yes or no per condition, cap the yeses, and count them."""
        names = [f"c{i}" for i in range(len(self.conditions))]
        truths = {
            n: c(table).fill_null(False).cast("int64") for n, c in zip(names, self.conditions.values(), strict=True)
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

    def read(self, answer: Any) -> list[int]:
        """Read one count per condition."""
        return _first_row(answer)

    def describe(self) -> str:
        """Say what is counted."""
        return f"{len(self.conditions)} counts that may overlap: {', '.join(self.conditions)}"


def _first_row(answer: Any) -> list[int]:
    """Read the only row of an answer; a sum over no rows is nothing, that is zero."""
    return [int(column[0] or 0) for column in answer.to_pydict().values()]


def _md5(text: Any) -> Any:
    """Give the MD5 digest of a text in the engine; the same hexadecimal digits on every engine."""
    import ibis

    @ibis.udf.scalar.builtin(name="md5")  # type: ignore[untyped-decorator]
    def md5(s: str) -> str: ...  # type: ignore[empty-body]

    return md5(text)


def _column(table: Any, name: str) -> Any:
    if name not in table.columns:
        raise DataError(f"the table has no column {name!r}", fix=f"It has: {', '.join(map(str, table.columns))}")
    return table[name]
