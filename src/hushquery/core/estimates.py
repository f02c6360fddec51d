"""Estimates: noisy numbers with their uncertainty and guarantee; post-processing, and values derived from them.

Nothing here can spend budget or see data: a function of a private result is as private (Dwork and Roth 2014, 2.1).
Post-processing is named in the result (``marks``). It makes numbers plausible and biased, so sums of many should start
from raw ones; intervals are clipped, rounded outwards or kept, never narrowed. Derived values keep the level of their
inputs: differences by Howe 1974 and Zou and Donner 2008, ratios by Fieller 1954, ranks and other functions by
widening all inputs first (Bonferroni). Proofs: docs/proofs/intervals.md.
"""

from __future__ import annotations

import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hushquery.core.budget import finite
from hushquery.core.guarantee import Guarantee
from hushquery.errors import Unavailable, UsageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

_SHOWN = 100
_NUMBERS = ("estimate", "stderr", "low", "high")

# A relative uncertainty of a denominator, or departure from a straight line, above this is called steep.
_STEEP = 0.25

#: Returns the lower and the upper ends of all rows at a level, where they are not value +- a width.
Intervals = Callable[[float], tuple[Sequence[float], Sequence[float]]]


class NoiseWidth(Protocol):
    """What is known of the noise in an estimate: how far it reaches."""

    def half_width(self, level: float) -> float:
        """Return w such that the noise stays within -w..w with probability ``level``."""
        ...


class Tabular(ABC):
    """A result that other libraries take as a table: pandas, Polars, DuckDB and all that reads Arrow."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the result as an Arrow table."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return the result as a data frame of pandas, where that is installed."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return the result as a data frame of Polars, where that is installed."""
        return to_polars(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Return an Arrow table as a data frame of pandas, where that is installed."""
    installed("pandas")
    frame: pandas.DataFrame = table.to_pandas()
    return frame


def to_polars(table: pa.Table) -> polars.DataFrame:
    """Return an Arrow table as a data frame of Polars, where that is installed."""
    frame: polars.DataFrame = installed("polars").from_arrow(table)
    return frame


def installed(package: str) -> Any:
    """Return a package that makes tables; where it is not installed, say what to do."""
    try:
        return import_module(package)
    except ImportError:
        what, fix = f"a table of {package} needs the package {package}", f"pip install {package}, or use to_arrow()"
        raise Unavailable(what, why="it is not installed", fix=fix) from None


# A tuple, because a table can have a hundred thousand of them; a frozen dataclass takes four times as long.
class Estimate(NamedTuple):
    """One noisy number: its label, value, standard error and interval at the level of its table."""

    label: str
    value: float
    stderr: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.label}: {self.value:,.6g} ({self.low:,.6g} to {self.high:,.6g})"


@dataclass(frozen=True, repr=False)
class Estimates(Tabular):
    """A table of noisy numbers under one guarantee. ``level`` is the coverage of each interval, ``marks`` what was done
    to the raw, unbiased numbers, ``noise`` the noise of every row where it is the same, and ``intervals`` a function
    that returns all intervals at a level where they are not value +- a width.
    """

    rows: tuple[Estimate, ...]
    level: float = 0.95
    guarantee: Guarantee | None = None
    marks: tuple[str, ...] = ()
    noise: NoiseWidth | None = field(default=None, repr=False, compare=False)
    intervals: Intervals | None = field(default=None, repr=False, compare=False)

    @classmethod
    def raw(
        cls,
        labels: Sequence[str],
        values: Sequence[float],
        stderrs: Sequence[float],
        *,
        level: float = 0.95,
        guarantee: Guarantee | None = None,
        noise: NoiseWidth | None = None,
        intervals: Intervals | None = None,
    ) -> Estimates:
        """Make a table of raw estimates with the given intervals, or value +- half width (of the noise, or normal)."""
        if not 0 < level < 1:
            raise UsageError("an interval's level lies between 0 and 1", fix="Use for example 0.95")
        if not len(labels) == len(values) == len(stderrs):
            raise UsageError("labels, values and standard errors are not equally many", fix="Use one of each per row")
        known, normal = noise.half_width(level) if noise is not None else None, NormalDist().inv_cdf((1 + level) / 2)
        table = cls((), level, guarantee, (), noise, intervals)
        # Making all rows takes longer than estimating them, and few may be needed: keep columns until one is read.
        del table.__dict__["rows"]
        table.__dict__["_columns"] = tuple(labels), tuple(values), tuple(stderrs), normal, known
        return table

    if not TYPE_CHECKING:  # where it would hide misspelt names

        def __getattr__(self, name: str) -> Any:
            """Make the rows of a raw table, once."""
            if name != "rows" or "_columns" not in self.__dict__:
                raise AttributeError(name)
            labels, values, stderrs, normal, known = self.__dict__["_columns"]
            rows: tuple[Estimate, ...]
            if self.intervals is not None:
                rows = tuple(map(Estimate, labels, values, stderrs, *self.intervals(self.level)))
            else:
                rows = tuple(
                    Estimate(
                        label, value, stderr, value - (w := normal * stderr if known is None else known), value + w
                    )
                    for label, value, stderr in zip(labels, values, stderrs, strict=True)
                )
            return self.__dict__.setdefault("rows", rows)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, label: str) -> Estimate:
        for row in self.rows:
            if row.label == label:
                return row
        raise UsageError(
            f"there is no estimate called {label!r}", fix=f"There are: {', '.join(r.label for r in self.rows[:10])}"
        )

    @property
    def values(self) -> list[float]:
        """The numbers alone."""
        waiting = self.__dict__.get("_columns")  # their intervals need not be made for that
        return [row.value for row in self.rows] if waiting is None else list(waiting[1])

    def at_level(self, level: float) -> Estimates:
        """Return the same raw numbers with intervals at another level."""
        if self.marks:
            raise UsageError(
                "intervals at another level exist only for raw estimates",
                fix="Change the level first, then post-process",
            )
        raw = Estimates.raw(
            [r.label for r in self.rows],
            self.values,
            [r.stderr for r in self.rows],
            level=level,
            noise=self.noise,
            intervals=self.intervals,
        )
        return replace(self, rows=raw.rows, level=level)

    def changed(self, rows: Sequence[Estimate], mark: str) -> Estimates:
        """Return new rows that came from these by a named step; the guarantee stays, nothing is spent."""
        return replace(self, rows=tuple(rows), marks=(*self.marks, mark))

    def __repr__(self) -> str:
        promise = "" if self.guarantee is None else f": {self.guarantee.summary()}"
        return f"<Estimates of {len(self)} numbers with {100 * self.level:g}% intervals{promise}>"

    def __str__(self) -> str:
        width = max((len(row.label) for row in self.rows), default=5)
        lines = [f"{'':{width}}  {'estimate':>14}  {'low':>14}  {'high':>14}   ({100 * self.level:g}% intervals)"]
        lines += [f"{r.label:{width}}  {r.value:>14,.6g}  {r.low:>14,.6g}  {r.high:>14,.6g}" for r in self.rows]
        if self.marks:
            lines.append("post-processed: " + ", then ".join(self.marks))
        if self.guarantee is not None:
            lines.append(self.guarantee.summary())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the table as plain data; what is no finite number is null."""
        return {
            "estimates": [
                {"label": r.label, **dict(zip(_NUMBERS, map(finite, r[1:]), strict=True))} for r in self.rows
            ],
            "level": self.level,
            "post_processing": list(self.marks),
            "guarantee": self.guarantee.to_json() if self.guarantee else None,
        }

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow: label, estimate, standard error and the interval's ends."""
        import pyarrow as pa

        labels, *numbers = zip(*self.rows, strict=True) if self.rows else [()] * 5
        columns = {name: pa.array(column, pa.float64()) for name, column in zip(_NUMBERS, numbers, strict=True)}
        return pa.table({"label": pa.array(labels, pa.string()), **columns})

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        summary = self.guarantee.summary() if self.guarantee else ""
        shown, left = self.rows[:_SHOWN], max(0, len(self) - _SHOWN)
        return render("notebook/estimates.html", summary=summary, rows=shown, left=left, marks=self.marks)


def clip(estimates: Estimates, low: float = 0.0, high: float = math.inf) -> Estimates:
    """Clip values and intervals to a range that the truth can't leave.

    >>> clip(Estimates.raw(["a", "b"], [-1.6, 5.0], [1.0, 1.0])).values
    [0.0, 5.0]
    """
    if not low < high:
        raise UsageError("the range to clip to is empty", fix="Use low < high")

    def into(x: float) -> float:
        return min(max(x, low), high)

    words = f"clipped at {low:g}" if math.isinf(high) else f"clipped to {low:g}..{high:g}"
    return estimates.changed(
        [r._replace(value=into(r.value), low=into(r.low), high=into(r.high)) for r in estimates], words
    )


def project_on_simplex(values: Sequence[float], total: float = 1.0) -> list[float]:
    """Return the nearest non-negative numbers with a given sum, in the Euclidean sense (Duchi et al. 2008)."""
    if not values or not all(map(math.isfinite, values)) or not 0 < total < math.inf:
        raise UsageError("only finite numbers can be projected, on a positive sum", fix="Use at least one number")
    # Shifting all numbers alike does not move the projection; relative to the largest, sums keep their digits.
    top = max(values)
    ordered = sorted((v - top for v in values), reverse=True)
    running, shift = 0.0, 0.0
    for i, value in enumerate(ordered, 1):
        running += value
        if value - (running - total) / i > 0:
            shift = (running - total) / i
    return [max(v - top - shift, 0.0) for v in values]


def simplex(estimates: Estimates, total: float = 1.0) -> Estimates:
    """Make the values non-negative with sum ``total``, changing them as little as possible.
    Intervals are cut at 0 and ``total``, which the truth can't leave: they hold as often as before.
    """
    cut = [  # an interval grows where it would leave its own value outside
        r._replace(value=v, low=max(min(r.low, v), 0.0), high=max(min(r.high, total), v))
        for r, v in zip(estimates, project_on_simplex(estimates.values, total), strict=True)
    ]
    return estimates.changed(cut, f"projected on sum {total:g}")


class SteepWarning(UserWarning):
    """A derived value depends so strongly on its noisy inputs that it means little."""


@dataclass(frozen=True)
class Rank:
    """The rank of one number among others, and the ranks that the noise allows for it."""

    label: str
    rank: int
    best: int
    worst: int


class Ends(NamedTuple):
    """An interval and its centre, as a difference needs them."""

    low: float
    centre: float  # as likely too high as too low
    high: float
    bounded: bool = False  # whether the number can't be below ``low``, whatever the noise


def difference_ends(first: Ends, second: Ends) -> tuple[float, float]:
    """Return the interval of first minus second, from their intervals at the same level; their noise is independent.
    Exact for Gaussian noise, a little wide for Laplace noise at levels of 0.92 and above. Where first is bounded below,
    its lower end never misses, so the end is that bound less the upper end of second (docs/proofs/intervals.md).
    """
    change = first.centre - second.centre
    low = change - math.hypot(first.centre - first.low, second.high - second.centre)
    high = change + math.hypot(first.high - first.centre, second.centre - second.low)
    return (first.low - second.high if first.bounded else low, first.high - second.low if second.bounded else high)


def difference(estimates: Estimates, first: str, second: str) -> Estimate:
    """Return first minus second."""
    if estimates.intervals is not None:
        # Counts of the same reports are not independent: both intervals must hold at once.
        a, b = _jointly(estimates, first, second)
        spread = a.stderr + b.stderr
        return Estimate(f"{first} - {second}", a.value - b.value, spread, a.low - b.high, a.high - b.low)
    a, b = (combinable(estimates, estimates[label]) for label in (first, second))
    low, high = difference_ends(Ends(a.low, a.value, a.high), Ends(b.low, b.value, b.high))
    return Estimate(f"{first} - {second}", a.value - b.value, math.hypot(a.stderr, b.stderr), low, high)


def ratio(estimates: Estimates, first: str, second: str) -> Estimate:
    """Return first over second; where the denominator may be zero the interval has no ends."""
    if estimates.intervals is not None:
        return function_of(lambda a, b: a / b, estimates, first, second)
    a, b = (combinable(estimates, estimates[label]) for label in (first, second))
    return quotient(a, b, label=f"{first} / {second}")


def quotient(a: Estimate, b: Estimate, *, label: str) -> Estimate:
    """Return a over b for independent noise, from intervals of :func:`combinable`: the ratios r for which
    ``(a - r b)^2 <= wa^2 + r^2 wb^2``, so that a - r b may be zero. It has no ends where b may be zero.
    """
    wa, wb = ((row.high - row.low) / 2 for row in (a, b))
    if b.value == 0 or b.stderr / abs(b.value) > _STEEP or wb >= abs(b.value):
        _warn(f"{label} divides by a number that the noise may bring near zero")
    if wb >= abs(b.value):
        return Estimate(label, a.value / b.value if b.value else math.nan, math.inf, -math.inf, math.inf)
    value = a.value / b.value
    stderr = math.hypot(a.stderr / b.value, a.value * b.stderr / b.value**2)
    # Over b^2, with x = wb/b and y = wa/b: (1 - x^2) r^2 - 2 value r + value^2 - y^2 <= 0.
    x, y = wb / b.value, wa / b.value
    room = math.sqrt(max(0.0, (value * x) ** 2 + y * y * (1 - x * x)))
    return Estimate(label, value, stderr, (value - room) / (1 - x * x), (value + room) / (1 - x * x))


def rank(estimates: Estimates) -> list[Rank]:
    """Rank all numbers, largest first, with the best and worst rank that the noise allows; all ranges hold at once.

    >>> rank(Estimates.raw(["a", "b"], [10.0, 9.5], [1.0, 1.0]))
    [Rank(label='a', rank=1, best=1, worst=2), Rank(label='b', rank=2, best=1, worst=2)]
    """
    wide = _widened(estimates, max(1, len(estimates)))
    order = sorted(wide, key=lambda r: -r.value)
    out = [
        Rank(r.label, place, 1 + sum(o.low > r.high for o in wide), len(order) - sum(o.high < r.low for o in wide))
        for place, r in enumerate(order, 1)
    ]
    if out and sum(r.worst - r.best for r in out) / len(out) > len(out) / 2:
        _warn("the ranking is mostly noise: a typical rank may lie anywhere in more than half of the list")
    return out


def function_of(function: Callable[..., float], estimates: Estimates, *labels: str, steps: int = 8) -> Estimate:
    """Return any function of some numbers, with its range over a grid of ``steps`` in the box of their intervals.
    The standard error is that of the tangent; the range is exact for a function that is monotone in each input.
    """
    rows = _jointly(estimates, *labels)
    values = [r.value for r in rows]
    label = f"f({', '.join(labels)})"
    centre = _value(function, values)
    gradient, bent = [], 0.0
    for i, row in enumerate(rows):
        up, down = (
            _value(function, [*values[:i], v, *values[i + 1 :]])
            for v in (row.value + row.stderr, row.value - row.stderr)
        )
        slope, bend = (up - down) / 2, abs(up + down - 2 * centre) / 2
        gradient.append(slope)
        bent = max(bent, bend / abs(slope) if slope else math.inf if bend else 0.0)
    axes = [[r.low + (r.high - r.low) * k / steps for k in range(steps + 1)] for r in rows]
    seen = [_value(function, point) for point in itertools.product(*axes)]
    stderr = math.hypot(*gradient)
    if not all(map(math.isfinite, [*seen, centre, stderr])):
        _warn(f"{label} does not exist everywhere within the intervals of its inputs")
        return Estimate(label, centre, math.inf, -math.inf, math.inf)
    if bent > _STEEP or (centre and stderr / abs(centre) > _STEEP):
        _warn(f"{label} is steep or bent within one standard error of its inputs")
    return Estimate(label, centre, stderr, min(*seen, centre), max(*seen, centre))


def _value(function: Callable[..., float], point: Sequence[float]) -> float:
    try:
        return float(function(*point))
    except (ValueError, ZeroDivisionError, OverflowError):
        return math.nan


def combinable(estimates: Estimates, row: Estimate) -> Estimate:
    """Return a raw number with an interval that the root of the sum of squares may combine with another."""
    # Integer noise within +-w stands for continuous noise within +-(w + 1/2). At levels below 0.92 the middle of
    # Laplace noise is narrower than that of normal noise with the same standard error.
    _refuse_processed(estimates)
    half_step = float(getattr(estimates.noise, "step", 0)) / 2
    normal = NormalDist().inv_cdf((1 + estimates.level) / 2) * row.stderr
    reach = max((row.high - row.low) / 2 + half_step, normal)
    return row._replace(low=row.value - reach, high=row.value + reach)


def _jointly(estimates: Estimates, *labels: str) -> list[Estimate]:
    if not labels:
        raise UsageError("nothing was named to derive a value from", fix="Name the estimates to use")
    wide = _widened(estimates, len(labels))
    return [wide[label] for label in labels]


def _widened(estimates: Estimates, together: int) -> Estimates:
    """Return intervals that hold for ``together`` numbers at once at the level of the table."""
    if together == 1:
        return estimates
    _refuse_processed(estimates)
    return estimates.at_level(1 - (1 - estimates.level) / together)


def _refuse_processed(estimates: Estimates) -> None:
    if estimates.marks:
        raise UsageError(
            "a value can't be derived from several post-processed numbers",
            why="their intervals no longer widen together",
            fix="Derive it from the raw estimates; post-process last",
        )


def _warn(message: str) -> None:
    warnings.warn(message + "; read the interval, not the value", SteepWarning, stacklevel=3)
