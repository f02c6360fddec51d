"""Normalise queries, URLs and times, value by value inside the engine, and remove personal text.

Queries: Unicode NFC, lower case, single blanks. URLs: scheme and host in lower case; no password, default port,
fragment or slash behind a bare host. Normal forms stay as they are: clients normalise a published list again. Patterns
of personal text remove too much rather than too little: they guard against the delta.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from hushquery.engine import call, or_null
from hushquery.engine.postgres import LOWER
from hushquery.errors import DataError

if TYPE_CHECKING:
    from hushquery.log.time_format import TimeOptions

#: The most characters of a query or URL; longer ones count as missing unseen. NFC and Java's patterns take quadratic
#: time, and no person's row may decide whether there is a release.
LONGEST = 4096

# Unicode's blanks and control characters as (first, last) code points.
_BLANKS: tuple[tuple[int, int], ...] = (
    (0x01, 0x20),
    (0x7F, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200B),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
)
_BLANKS += ((0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF))

#: Normal queries in which no pattern finds anything: printable ASCII without capitals and @, and at most six digits
#: (patterns need seven). The first, which most queries match, is an engine's fastest search.
PLAIN = (
    r"^[!-/:-?\[-~]+(?: [!-/:-?\[-~]+)*$",
    r"^[!-?\[-~](?: ?[!-/:-?\[-~])*(?: ?[0-9](?: ?[!-/:-?\[-~])*){0,5}$",
)
#: A URL in its normal form that no pattern could find anything in: short words between dots and slashes.
PLAIN_URL = "^https?://[a-z0-9-]{1,15}(?:[.][a-z0-9-]{1,15})*(?:/[a-z0-9._~-]{1,15})*$"

# The engines' own functions; a function of ours would run row by row in Python.
_NFC = {"duckdb": "nfc_normalize", "postgres": "normalize", "pyspark": "com.ibm.icu.text.Normalizer"}
# The capitals of which Spark makes small letters by other rules than DuckDB: by their neighbours, or two for one.
_CAPITALS, _SMALL = "İΣ", "iσ"
_LABELS = "[A-Za-z0-9-]+(?:[.][A-Za-z0-9-]+)*"
# The same where : / ? # a blank or the end must follow. Java needs a piece of its stack for each repetition of a group.
_LABELS_ON_JAVA = "(?![A-Za-z0-9.-]*[.][.])[A-Za-z0-9-][A-Za-z0-9.-]*"
#: Scheme and host, which are written in lower case. Without a scheme a host is all there is, or goes before : / or ?
HOST = f"^[ \t\r\n]*(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*|{_LABELS}[.][A-Za-z]{{2,}}(?:[:/?]|[ \t\r\n]*(?:#|$)))"
# A host without its port.
_NO_PORT = r"(?:\[[^]/?]*\]|[^:/?]*)"
#: What is changed in a URL, in this order and wherever it occurs: pattern and replacement. A dash stands for no URL.
URL_CHANGES = (
    ("^[ \t\r\n]+", ""),
    ("#[^#]*", ""),
    ("[ \t\r\n]+$", ""),
    ("[ \t\r\n]+", "%20"),
    ("^([a-z][a-z0-9+.-]*://)[^/?]*@", r"\1"),
    ("^(http://" + _NO_PORT + "):80([/?]|$)", r"\1\2"),
    ("^(https://" + _NO_PORT + "):443([/?]|$)", r"\1\2"),
    ("^((?:[a-z][a-z0-9+.-]*://)?[^/?]+)/$", r"\1"),
    ("^-$", ""),
)
# What needs work: capitals, what is not printable ASCII, two blanks in a row, a blank at an end.
_UNUSUAL_QUERY = r"[^ !-@\[-~]|  |^ | $"
# The common canonical forms: http://www.example.com and http://www.example.com/path
_USUAL_URL = r'^https?://[a-z0-9.-]+(?:/[!"$-~]+)?$'
_USUAL_HOST_AND_SLASH = "^https?://[a-z0-9.-]+/$"

#: Unless the unit is given, numbers of at least this size are milliseconds (March 1973; as seconds, the year 5138).
MILLISECONDS_FROM = 10**11

#: Times in microseconds are below this: the gap between any two then fits 64 bits.
TIME_LIMIT = 2**62
#: How many microseconds a unit has.
SCALE = {"s": 10**6, "ms": 10**3}
_CLOCK = "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
_ISO = f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{_CLOCK}(?: ?(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?))?)?$"
_ZONE = "[T ][0-9]{1,2}:[0-9:.,]+ ?([+-])([0-9]{2}):?([0-9]{2})?$"
_NUMBER = "^[+-]?[0-9]{1,18}(?:[.][0-9]{1,18})?$"

#: What the patterns remove, in words.
PATTERN_STEPS = (
    "queries with an e-mail address or a personal number removed: nine or more digits with only blanks, dots, dashes, "
    "slashes, plus signs or brackets between them (phone, payment card without check of its check digit, social "
    "security and other identity numbers), or three and four digits with a dash or dot between them (local phone)",
    "urls with an e-mail address, an access token, or 16 or more hexadecimal digits removed; the search stays",
)
_LOCAL_PHONE = "(?:^|[^0-9])[0-9]{3}[.-][0-9]{4}(?:[^0-9]|$)"
_TOKEN_NAME = "[?&;][^=&;]*(?:token|sess|auth|passw|secret|api_?key)"  # noqa: S105
_TOKEN = f"(?i){_TOKEN_NAME}[^=&;]*=[^&;]|[?&;](?:sid|pwd|pass|key)=[^&;]"
# The same, but Java looks for the value once for each name and not once for each word in it.
_TOKEN_ON_JAVA = _TOKEN.replace(f"{_TOKEN_NAME}[^=&;]*=[^&;]", "[?&;](?=[^=&;]*=[^&;])" + _TOKEN_NAME[5:])
_LONG_HEX = "[0-9A-Fa-f]{16}"
_MAIL_IN_URL = "[A-Za-z0-9._+-](?:@|%40)[A-Za-z0-9-]+[.][A-Za-z]"
_DIGITS = ("０１２３４５６７８９", "٠١٢٣٤٥٦٧٨٩", "۰۱۲۳۴۵۶۷۸۹", "०१२३४५६७८९", "০১২৩৪৫৬৭৮৯", "๐๑๒๓๔๕๖๗๘๙")


def not_too_long(text: Any) -> Any:
    """Return a text column, missing where it has more than ``LONGEST`` characters."""
    return (text.length() <= LONGEST).ifelse(text, None)


def blanks(dialect: str) -> str:
    """Write the inside of a class of all blanks and control characters, for an engine's regular expressions."""
    if dialect in ("duckdb", "pyspark"):
        return r"\x{0}" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in _BLANKS)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in _BLANKS)


def steps(dialect: str, *, with_url: bool) -> list[str]:
    """Describe what normalisation does on an engine."""
    form = "Unicode NFC, " if dialect in _NFC else ""
    missing = "" if form else f" (no Unicode NFC: the engine {dialect} has none)"
    words = [f"query: {form}lower case, runs of blanks and control characters to one blank, none at the ends{missing}"]
    if with_url:
        words.append(
            "url: scheme and host in lower case; no name, password, default port, fragment, or slash behind a bare host"
        )
    return words


def normal_query(query: Any, dialect: str) -> Any:
    """Return the normal form of a text column; empty where nothing but blanks was there."""
    # Blanks first: DuckDB's NFC ends a text at a null byte. NFC last: lower case can call for it again.
    changed = stripped(_nfc(_lower(query, dialect).re_replace(f"[{blanks(dialect)}]+", " "), dialect), dialect)
    return query.re_search(_UNUSUAL_QUERY).ifelse(changed, query) if dialect == "duckdb" else changed


def has_text(query: Any, dialect: str) -> Any:
    """Return whether anything but blanks is in a text column, without computing its normal form."""
    visible = query.re_search(f"[^{blanks(dialect)}]")
    if dialect != "duckdb":
        return visible
    return begins_visibly(query) | visible


def begins_visibly(query: Any) -> Any:
    """Return whether a text begins with a printable ASCII character: two comparisons instead of a search."""
    return query.between("!", "~~")


def normal_url(url: Any, dialect: str) -> Any:
    """Return the normal form of a column of URLs; missing where there is none: empty, ``-``, or a fragment alone."""
    import ibis

    # Without a scheme only what looks like a host is taken for one: an identifier keeps its capitals.
    host = pattern_for(HOST, dialect)
    changed = url.re_search(host).ifelse(_lower(url.re_extract(host, 0), dialect) + url.re_replace(host, ""), url)
    for pattern, replacement in URL_CHANGES:
        if dialect == "pyspark":
            replacement = replacement.replace("\\", "$")
        changed = changed.re_replace(pattern_for(pattern, dialect), replacement)
    changed = changed.nullif("")
    if dialect != "duckdb":
        return changed
    # DuckDB computes for every row what an expression mentions twice, so nothing but the column itself is.
    return ibis.cases(
        (url == "", ibis.null("string")),
        (url.re_search(_USUAL_URL), url),
        (url.re_search(_USUAL_HOST_AND_SLASH), url.left(url.length() - 1)),
        else_=changed,
    )


def stripped(text: Any, dialect: str) -> Any:
    """Remove ASCII blanks from both ends of a text column."""
    if dialect != "pyspark":
        return text.strip()
    # Ibis would name the vertical tab in a way that Spark reads as the letter v.
    blank = r"[ \x{9}-\x{D}]"
    # Java looks at every beginning: within a run of blanks there is one.
    return text.re_replace(rf"^{blank}+|(?<!{blank}){blank}+\z", "")


def pattern_for(pattern: str, dialect: str) -> str:
    """Write a regular expression for an engine: Java's $ also stands before a line end at the end."""
    if dialect != "pyspark":
        return pattern
    return pattern.replace(_LABELS, _LABELS_ON_JAVA).replace("$", r"\z").replace("[^]", r"[^\]")


def _lower(text: Any, dialect: str) -> Any:
    """Return lower case, one letter for each capital whatever its neighbours, as DuckDB does."""
    if dialect == "postgres":
        return call(LOWER, text, returns="string", schema="pg_temp")
    if dialect == "pyspark":
        return text.translate(_CAPITALS, _SMALL).lower()
    return text.lower()


def _nfc(text: Any, dialect: str) -> Any:
    if dialect == "pyspark":
        # Spark has no function for it, but the library that has one, which fails on what is missing.
        composed = call("reflect", _NFC[dialect], "compose", text.fill_null(""), False, returns="string")
        return text.isnull().ifelse(None, composed)
    return call(_NFC[dialect], text, returns="string") if dialect in _NFC else text


def micros(column: Any, dialect: str, options: TimeOptions) -> Any:
    """Return timestamps, dates, numbers or text in whole microseconds, missing where they can't be read."""
    kind, unit = column.type(), options.unit
    if options.form is not None:
        if kind.is_string():
            return options.form.micros(column, dialect)
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


def _of_number(number: Any, dialect: str, unit: str | None) -> Any:
    size = number.abs()
    if unit:
        scaled, largest = number * SCALE[unit], TIME_LIMIT / SCALE[unit]
    else:
        scaled = (size >= MILLISECONDS_FROM).ifelse(number * SCALE["ms"], number * SCALE["s"])
        largest = TIME_LIMIT / SCALE["ms"]
    # Engines sort NaN above every number, so that it fails this test as infinity does.
    return rounded((size < largest).ifelse(scaled, None), dialect)


def as_double(number: Any, dialect: str) -> Any:
    """Return a column of numbers as doubles; PostgreSQL has numbers that no double holds, and fails on them."""
    if dialect == "postgres" and number.type().is_decimal():
        kind = "decimal(38, 12)"
        number = (number.abs() < 10**18).ifelse(number.cast(kind), None)
    return number.cast("float64")


def rounded(number: Any, dialect: str) -> Any:
    """Return the nearest whole number, halves away from zero; PostgreSQL would round them to even ones."""
    if dialect != "postgres":
        return number.round().cast("int64")
    size = number.abs()
    down = size.floor()
    whole = (size - down >= 0.5).ifelse(down + 1, down)
    return (number < 0).ifelse(-whole, whole).cast("int64")


def _of_timestamp(column: Any, dialect: str) -> Any:
    import ibis

    if column.type().is_date():
        # A date may be so far away that it is no timestamp, and an engine fails on it.
        near = column.between(ibis.date(1, 1, 1), ibis.date(9999, 12, 31))
        column = near.ifelse(column, None)
    if dialect == "duckdb":
        return in_range(or_null(call("epoch_us", column, returns="int64")))
    if dialect == "pyspark":
        return in_range(call("unix_micros", column.cast("timestamp('UTC')"), returns="int64"))
    if column.type().is_date():
        column = column.cast("timestamp")
    zone = "UTC" if column.type().timezone else None
    low, high = (
        ibis.literal(datetime(year, 1, 1)).cast(f"timestamp('{zone}')" if zone else "timestamp") for year in (1, 9999)
    )
    # PostgreSQL's infinity has no number of seconds.
    finite = column.between(low, high).ifelse(column, None)
    return finite.epoch_seconds().cast("int64") * 10**6 + finite.microsecond().cast("int64")


def _of_text_duckdb(text: Any, unit: str | None) -> Any:
    """Read text with DuckDB's forgiving casts, mentioning nothing costly twice: that is computed for every row."""
    import ibis

    short = text.length() <= len("2006-03-01T00:00:00")
    usual = or_null(call("epoch_us", text.try_cast("timestamp"), returns="int64"))
    usual = short.ifelse(usual, None)
    number = ibis.array([text.try_cast("float64")]).map(lambda value: _of_number(value, "duckdb", unit))[0]
    # What has no zone is in UTC, and DuckDB wants seconds before a zone, and no blank.
    zoned = text.strip().re_replace(r"^(.{10}[T ][0-9:.]+)$", r"\1Z").re_replace(r" ([+-][0-9:]+|Z)$", r"\1")
    zoned = zoned.re_replace(r"^(.{10}[T ][0-9]{2}:[0-9]{2})(Z|[+-][0-9:]+)$", r"\1:00\2")
    rest = or_null(call("epoch_us", zoned.try_cast("timestamp('UTC')"), returns="int64"))
    return in_range(usual.coalesce(number, rest))


def _of_text(column: Any, dialect: str, unit: str | None) -> Any:
    """Read text where the engine has no cast that forgives: integers only, behind a test of the shape."""

    def part(start: int, length: int) -> Any:
        digits = moment.substr(start, length)
        return (digits == "").ifelse("0", digits).cast("int64")

    text = stripped(column, dialect)
    is_number, is_moment = (text.re_search(pattern_for(shape, dialect)) for shape in (_NUMBER, _ISO))
    number = _of_number(is_number.ifelse(text, None).cast("float64"), dialect, unit)
    moment = is_moment.ifelse(text, "1970-01-01")
    year, month, day, hour, minute = part(0, 4), part(5, 2), part(8, 2), part(11, 2), part(14, 2)
    with_second = (moment.substr(16, 1) == ":").ifelse(moment.substr(17, 2), "0")
    second = with_second.cast("int64")
    fraction = _digits(moment.re_extract("[.,]([0-9]{1,6})", 1)).rpad(6, "0").cast("int64")
    exists, answer = after_1970(year, month, day, hour, minute, second)
    return (is_moment & exists).ifelse(answer + fraction - _offset(moment, dialect), number)


def after_1970(year: Any, month: Any, day: Any, hour: Any, minute: Any, second: Any) -> tuple[Any, Any]:
    """Return whether there is such a moment, and its microseconds: integers only, so every engine agrees."""
    import ibis

    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = ibis.cases((month == 2, leap.ifelse(29, 28)), (month.isin([4, 6, 9, 11]), 30), else_=31)
    clock = (hour < 24) & (minute < 60) & (second < 60)
    exists = (year > 0) & month.between(1, 12) & day.between(1, longest) & clock
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    return exists, seconds * 10**6


def _days(year: Any, month: Any, day: Any) -> Any:
    """Count days from 1970-01-01 in the Gregorian calendar, with integers (Howard Hinnant's days_from_civil)."""
    year = (month <= 2).ifelse(year - 1, year)
    shifted = (month > 2).ifelse(month - 3, month + 9)
    era = year // 400
    of_era = year - era * 400
    of_year = (shifted * 153 + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _offset(text: Any, dialect: str) -> Any:
    """Return how far a text's zone is ahead of UTC, in microseconds; zero where it names none."""
    sign, hours, minutes = (text.re_extract(pattern_for(_ZONE, dialect), group) for group in (1, 2, 3))
    ahead = (_digits(hours).cast("int64") * 60 + _digits(minutes).cast("int64")) * (60 * 10**6)
    return (sign == "-").ifelse(-ahead, ahead)


def _digits(text: Any) -> Any:
    """Return zero for what a pattern did not match, which some engines call empty and some missing."""
    return (text.fill_null("") == "").ifelse("0", text)


def in_range(number: Any) -> Any:
    """Return a column of whole microseconds, missing where the gap between two of them might not fit 64 bits."""
    return number.between(-TIME_LIMIT + 1, TIME_LIMIT - 1).ifelse(number, None)


def holds_private_text(query: Any, dialect: str) -> Any:
    """Return whether each query, normalised or not, holds an e-mail address or a personal number."""
    ascii_only = query.translate("".join(_DIGITS) + "＠．－", "0123456789" * len(_DIGITS) + "@.-")
    private = _has_personal(ascii_only, dialect)
    if dialect != "duckdb":
        return private
    is_ascii = call("strlen", query, returns="int64") == query.length()
    return is_ascii.ifelse(_has_personal(query, dialect), private)


def _has_personal(query: Any, dialect: str) -> Any:
    # One search for all: what an expression mentions twice, DuckDB computes for every row beforehand.
    blank = blanks(dialect)
    number = f"[0-9](?:[{blank}.()/+-]*[0-9]){{8}}|{pattern_for(_LOCAL_PHONE, dialect)}"
    address = f"[^{blank}@]@[^{blank}@]+[.][^{blank}@.]"
    return query.re_search(f"{number}|{address}")


def without_private_url(url: Any, dialect: str) -> Any:
    """Return each URL, missing where it holds an e-mail address, a token, or a long identifier."""
    if dialect in ("duckdb", "pyspark"):
        # Mentioned once, as above.
        token = _TOKEN if dialect == "duckdb" else _in_any_case(_TOKEN_ON_JAVA)
        private = pattern_for(f"(?s)^.*(?:{_LONG_HEX}|{_MAIL_IN_URL}|{token}).*$", dialect)
        return url.re_replace(private, "").nullif("")
    private = url.re_search(_LONG_HEX) | url.re_search(_in_any_case(_TOKEN)) | url.re_search(_MAIL_IN_URL)
    return private.ifelse(None, url)


def _in_any_case(pattern: str) -> str:
    """Spell out what DuckDB takes for the same letters; engines differ in what (?i) means beyond ASCII."""
    folded = {"k": "kK\u212a", "s": "sS\u017f"}
    return "".join(f"[{folded.get(c, c + c.upper())}]" if c.isalpha() else c for c in pattern.removeprefix("(?i)"))
