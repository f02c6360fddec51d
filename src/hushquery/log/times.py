"""Times of any kind to whole microseconds, row by row: what can't be read is missing, and the row stays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from hushquery.engine import call, or_null
from hushquery.errors import DataError, UsageError
from hushquery.log.normalise import pattern_for, stripped

if TYPE_CHECKING:
    from hushquery.log.time_format import TimeFormat

__all__ = ["MILLISECONDS_FROM", "Written", "after_1970", "as_double", "in_range", "instant", "micros", "rounded"]

#: A number of at least this size is taken for milliseconds, a smaller one for seconds, unless the unit is given.
#: In seconds it would be the year 5138; in milliseconds it is March 1973.
MILLISECONDS_FROM = 10**11

# Two times this still fits 64 bits, so the gap between any two times does.
_LIMIT = 2**62
_SCALE = {"s": 10**6, "ms": 10**3}
_CLOCK = "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
_ISO = f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{_CLOCK}(?: ?(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?))?)?$"
_ZONE = "[T ][0-9]{1,2}:[0-9:.,]+ ?([+-])([0-9]{2}):?([0-9]{2})?$"
_NUMBER = "^[+-]?[0-9]{1,18}(?:[.][0-9]{1,18})?$"


@dataclass(frozen=True)
class Written:
    """How the steward says times are written.

    Attributes:
        unit: ``s`` or ``ms`` for numbers.
        form: The form of text.
    """

    unit: str | None = None
    form: TimeFormat | None = None

    @property
    def words(self) -> str:
        """The form of text as the steward wrote it; empty where there is none."""
        return self.form.format if self.form else ""

    def micros(self, column: Any, dialect: str) -> Any:
        """Give a column of times in whole microseconds."""
        return micros(column, dialect, self.unit, self.form)


def micros(column: Any, dialect: str, unit: str | None = None, form: TimeFormat | None = None) -> Any:
    """Give a column of times as an Ibis expression of whole microseconds.

    Args:
        column: Timestamps, dates, numbers, or text that holds ISO times or numbers.
        dialect: The engine's name.
        unit: ``s`` or ``ms`` for numbers; by default each number's size decides, see :data:`MILLISECONDS_FROM`.
        form: How text is written, instead; then nothing else is read.
    """
    kind = column.type()
    if form is not None:
        if kind.is_string():
            return form.micros(column, dialect)
        raise DataError("a time format is for times that are text, and these are not", fix="Leave the time format out")
    if kind.is_timestamp() or kind.is_date():
        return _of_timestamp(column, dialect)
    if kind.is_numeric() and not kind.is_boolean():
        return _of_number(as_double(column, dialect), dialect, unit)
    if kind.is_string():
        return _of_text_duckdb(column, unit) if dialect == "duckdb" else _of_text(column, dialect, unit)
    raise DataError(
        "the column of times is neither a timestamp, nor a number, nor text",
        fix="Convert it, or name another column for time",
    )


def instant(value: str | float | datetime | date, name: str, unit: str | None = None) -> int:
    """Give ``since`` or ``until`` in microseconds, by the same rules as a row's time.

    >>> instant("2006-03-01", "since") == instant(1141171200, "since") == instant("2006-03-01T01:00+01:00", "since")
    True
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            value = float(text) if text.lstrip("+-").replace(".", "", 1).isdigit() else datetime.fromisoformat(text)
        if isinstance(value, date):
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            gap = moment - datetime(1970, 1, 1, tzinfo=UTC)
            return (gap.days * 86400 + gap.seconds) * 10**6 + gap.microseconds
        scale = _SCALE[unit or ("ms" if abs(value) >= MILLISECONDS_FROM else "s")]
        answer = round(value * scale)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(
            f"{name} is not a time", fix="Write 2006-03-01, 2006-03-01T12:00:00+00:00 or a number"
        ) from None
    if abs(answer) >= _LIMIT:
        raise UsageError(f"{name} is out of range", fix="Write a time within 100,000 years of its origin")
    return answer


def _of_number(number: Any, dialect: str, unit: str | None) -> Any:
    import ibis

    size = number.abs()
    if unit:
        scaled, largest = number * _SCALE[unit], _LIMIT / _SCALE[unit]
    else:
        scaled = ibis.ifelse(size >= MILLISECONDS_FROM, number * _SCALE["ms"], number * _SCALE["s"])
        largest = _LIMIT / _SCALE["ms"]
    # Engines sort NaN above every number, so that it fails this test as infinity does.
    return rounded(ibis.ifelse(size < largest, scaled, ibis.null("float64")), dialect)


def as_double(number: Any, dialect: str) -> Any:
    """Give a column of numbers as doubles; PostgreSQL has numbers that no double holds, and fails on them."""
    import ibis

    if dialect == "postgres" and number.type().is_decimal():
        kind = "decimal(38, 12)"
        number = ibis.ifelse(number.abs() < 10**18, number.cast(kind), ibis.null(kind))
    return number.cast("float64")


def rounded(number: Any, dialect: str) -> Any:
    """Give the nearest whole number, halves away from zero; PostgreSQL would round them to even ones."""
    import ibis

    if dialect != "postgres":
        return number.round().cast("int64")
    size = number.abs()
    down = size.floor()
    whole = ibis.ifelse(size - down >= 0.5, down + 1, down)
    return ibis.ifelse(number < 0, -whole, whole).cast("int64")


def _of_timestamp(column: Any, dialect: str) -> Any:
    import ibis

    if column.type().is_date():
        # A date may be so far away that it is no timestamp, and an engine fails on it.
        near = column.between(ibis.date(1, 1, 1), ibis.date(9999, 12, 31))
        column = ibis.ifelse(near, column, ibis.null("date"))
    if dialect == "duckdb":
        return in_range(or_null(call("epoch_us", column, "int64")))
    if dialect == "pyspark":
        return in_range(call("unix_micros", column.cast("timestamp('UTC')"), "int64"))
    if column.type().is_date():
        column = column.cast("timestamp")
    zone = "UTC" if column.type().timezone else None
    low, high = (
        ibis.literal(datetime(year, 1, 1)).cast(f"timestamp('{zone}')" if zone else "timestamp") for year in (1, 9999)
    )
    # PostgreSQL's infinity has no number of seconds.
    finite = ibis.ifelse(column.between(low, high), column, ibis.null(column.type()))
    return finite.epoch_seconds().cast("int64") * 10**6 + finite.microsecond().cast("int64")


def _of_text_duckdb(text: Any, unit: str | None) -> Any:
    """Read text with DuckDB's forgiving casts: first the usual form, then numbers, and zones only for what is left.

    DuckDB computes what an expression holds twice for every row, also for those that need it not. So nothing here that
    is dear is mentioned twice; a list of one gives a value a name.
    """
    import ibis

    short = text.length() <= len("2006-03-01T00:00:00")
    usual = ibis.ifelse(short, or_null(call("epoch_us", text.try_cast("timestamp"), "int64")), ibis.null("int64"))
    number = ibis.array([text.try_cast("float64")]).map(lambda value: _of_number(value, "duckdb", unit))[0]
    # What has no zone is in UTC, and DuckDB wants seconds before a zone, and no blank.
    zoned = text.strip().re_replace(r"^(.{10}[T ][0-9:.]+)$", r"\1Z").re_replace(r" ([+-][0-9:]+|Z)$", r"\1")
    zoned = zoned.re_replace(r"^(.{10}[T ][0-9]{2}:[0-9]{2})(Z|[+-][0-9:]+)$", r"\1:00\2")
    rest = or_null(call("epoch_us", zoned.try_cast("timestamp('UTC')"), "int64"))
    return in_range(ibis.coalesce(usual, number, rest))


def _of_text(column: Any, dialect: str, unit: str | None) -> Any:
    """Read text where the engine has no cast that forgives: integers only, behind a test of the shape."""
    import ibis

    def part(start: int, length: int) -> Any:
        digits = moment.substr(start, length)
        return ibis.ifelse(digits == "", "0", digits).cast("int64")

    text = stripped(column, dialect)
    is_number, is_moment = (text.re_search(pattern_for(shape, dialect)) for shape in (_NUMBER, _ISO))
    number = _of_number(ibis.ifelse(is_number, text, ibis.null("string")).cast("float64"), dialect, unit)
    moment = ibis.ifelse(is_moment, text, "1970-01-01")
    year, month, day, hour, minute = part(0, 4), part(5, 2), part(8, 2), part(11, 2), part(14, 2)
    with_second = ibis.ifelse(moment.substr(16, 1) == ":", moment.substr(17, 2), "0")
    second = with_second.cast("int64")
    fraction = _digits(moment.re_extract("[.,]([0-9]{1,6})", 1)).rpad(6, "0").cast("int64")
    exists, answer = after_1970(year, month, day, hour, minute, second)
    return ibis.ifelse(is_moment & exists, answer + fraction - _offset(moment, dialect), number)


def after_1970(year: Any, month: Any, day: Any, hour: Any, minute: Any, second: Any) -> tuple[Any, Any]:
    """Say whether there is such a moment, and give it in microseconds: integers only, so every engine agrees."""
    import ibis

    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = ibis.cases((month == 2, ibis.ifelse(leap, 29, 28)), (month.isin([4, 6, 9, 11]), 30), else_=31)
    clock = (hour < 24) & (minute < 60) & (second < 60)
    exists = (year > 0) & month.between(1, 12) & day.between(1, longest) & clock
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    return exists, seconds * 10**6


def _days(year: Any, month: Any, day: Any) -> Any:
    """Count days from 1970-01-01 in the Gregorian calendar, with integers (Howard Hinnant's days_from_civil)."""
    import ibis

    year = ibis.ifelse(month <= 2, year - 1, year)
    shifted = ibis.ifelse(month > 2, month - 3, month + 9)
    era = year // 400
    of_era = year - era * 400
    of_year = (shifted * 153 + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _offset(text: Any, dialect: str) -> Any:
    """Give how far a text's zone is ahead of UTC, in microseconds; zero where it names none."""
    import ibis

    sign, hours, minutes = (text.re_extract(pattern_for(_ZONE, dialect), group) for group in (1, 2, 3))
    ahead = (_digits(hours).cast("int64") * 60 + _digits(minutes).cast("int64")) * (60 * 10**6)
    return ibis.ifelse(sign == "-", -ahead, ahead)


def _digits(text: Any) -> Any:
    """Give zero for what a pattern did not find; some engines call it empty, some missing."""
    import ibis

    return ibis.ifelse(text.fill_null("") == "", "0", text)


def in_range(number: Any) -> Any:
    """Return a column of whole microseconds, missing where the gap between two of them might not fit 64 bits."""
    import ibis

    return ibis.ifelse(number.between(-_LIMIT + 1, _LIMIT - 1), number, ibis.null("int64"))
