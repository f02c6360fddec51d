"""One person's row never decides whether there is a result: its value is missing, or its line is left out."""

from __future__ import annotations

import gzip
import json
import warnings
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushquery as hq
from hushquery import statistics
from hushquery.core.budget import PrivacyWarning
from hushquery.engine import connect, execute
from hushquery.log import Log, read_log
from hushquery.log.tables import read_table
from hushquery.noise.sampler import SeededBits

PEOPLE = 999
TIMES = [
    *("294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775807", "infinity", "-infinity", "epoch", "nan", "inf"),
    *("290309-12-22 (BC) 00:00:00", "-290308-01-01", "9223372036854775807-01-01", "5881580-07-11", "99999-12-31"),
    *("1e400", "-1e308", "1e308", "9" * 400, "9223372036854775807", "-9223372036854775808", "1e18", "-1", "-0.0"),
    *("2006-13-45", "0000-00-00", "2006-03-01 10:00:00+99:99", "2006-03-01 10:00:00 Europe/London", "12:00", "0x10"),
    *("4611686018427.387904", "2006-03-01T10:00:00.123456789123", "1_000", "True", "2006-03-01 24:00:00", "\U0001f600"),
]
TEXTS = [
    *TIMES,
    "x" * 300_000,
    "(" * 5000,
    "a\x0bb\x0cc\x85d\u2028e\u2029f",
    "\ufeff",
    "\x01\x7f\x1a\x1e",
    "\0",
    "''",
    "%s",
]
TEN = 1141207200 * 10**6


def good(person: int) -> tuple[str, ...]:
    return f"p{person}", "tea", "2006-03-01 10:00:00", "http://tea.example", "1"


def with_poison(rows: list[Any], poison: list[Any]) -> list[Any]:
    """Put poison first, last, and where an engine's batches of 2,048 rows have their middle."""
    return [*poison[::3], *rows[:500], *poison[1::3], *rows[500:], *poison[2::3]]


def check(data: Any, **options: Any) -> Log:
    """Read a log and see that everybody's row is what it was."""
    log = read_log(data, **options)
    rows = execute(log.table).to_pylist()
    of_people = {row["user"]: row for row in rows if row["user"].startswith("p") and row["query"] == "tea"}
    assert of_people.keys() == {f"p{person}" for person in range(PEOPLE)}
    assert len({row["time"] for row in of_people.values()}) == 1
    assert all(row["time"] for row in of_people.values())
    log.describe_defects()
    return log


def publish(log: Log, folder: Path) -> None:
    """Make a release of a log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        more = {"clicks_per_user": 2} if log.has_url else {}
        plan = hq.plan_release(log, epsilon=40, delta=1e-6, queries_per_user=2, population="people", **more)
    release = plan.run(folder / "release.db", anyway=True)
    assert 900 < {row["query"]: row["count"] for row in release.queries.to_pylist()}["tea"] < 1300


def count(path: Path, folder: Path) -> None:
    """Make statistics of everybody: a count and a sum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        asked = {
            "count": statistics.plan_count(
                path,
                unit="user",
                epsilon=40,
                where=lambda t: t["query"] == "tea",
                types={"query": "string"},
                population="a",
            ),
            "sum": statistics.plan_sum(path, "rank", lower=0, upper=1, unit="user", epsilon=40, population="b"),
            "mean": statistics.plan_mean(path, "rank", lower=0, upper=1, unit="user", epsilon=40, population="c"),
            "keys": statistics.plan_histogram(path, "query", ["tea"], unit="user", epsilon=40, population="d"),
        }
    values = {name: plan.run(folder / f"{name}.db", anyway=True).values[0] for name, plan in asked.items()}
    assert all(950 < values[name] < 1400 for name in ("count", "sum", "keys"))
    assert 0.6 < values["mean"] <= 1


def cells(separator: str) -> list[str]:
    lines = []
    for number, poison in enumerate(TEXTS):
        for place in range(5):
            row = list(good(0))
            row[0] = f"z{number}"
            row[place] = poison
            lines.append(separator.join(row))
    row = separator.join(("z", *good(0)[1:]))
    return [
        *lines,
        "",
        "z",
        separator * 4,
        separator * 40,
        f"{row}{separator}more",
        row[:20],
        f'"{row}',
        '"',
        "z" * 3_000_000,
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "tsv", "aol"])
def test_cells(tmp_path, kind, packed):
    separator = "," if kind == "csv" else "\t"
    lines = with_poison([separator.join(good(n)) for n in range(PEOPLE)], cells(separator))
    names = ["user", "query", "time", "url", "rank"]
    if kind == "aol":
        lines = [
            separator.join((c[0], c[1], c[2], c[4], c[3])) if len(c := one.split("\t")) == 5 else one for one in lines
        ]
    else:
        lines.insert(0, separator.join(names))
    data = "\n".join(lines).encode() + b"\n" + separator.join(good(1)).encode() + b"\xff\n"
    path = tmp_path / (f"log.{kind}.gz" if packed else f"log.{kind}")
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    publish(check(path, format=kind), tmp_path)
    if kind != "aol" and not packed:
        count(path, tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_cells_in_another_encoding(tmp_path, kind, packed):
    """The same rows as in UTF-8, and a line that is not of the encoding is left out alone, after the spend too."""
    separator = "," if kind == "csv" else "\t"
    names = separator.join(("user", "query", "time", "url", "rank"))
    poison = with_poison([separator.join(good(n)) for n in range(PEOPLE)], cells(separator))
    text = "\r\n".join([f"\ufeff{names}", *poison])
    rows = []
    for encoding, bad in (("utf-8", b""), ("gb18030", b"\r\np0,tea\xff\xff\r" + b"\x81" * 3_000_000)):
        data = text.encode(encoding) + bad
        path = tmp_path / f"{encoding}.{kind}"
        path.write_bytes(gzip.compress(data, 1) if packed else data)
        log = check(path, format=kind, encoding=encoding)
        rows.append(sorted(log.rows.to_pyarrow().to_pylist(), key=str))
    assert rows[0] == rows[1]
    publish(log, tmp_path)


JSON = [
    *(json.dumps(text)[1:-1].join(['"', '"']) for text in TEXTS),
    *("1e400", "-1e400", "NaN", "Infinity", "1" * 400, "9223372036854775808", "-1", "1.5", "true", "null", "[]", "{}"),
    *(
        '{"a": {"b": [1, 2, {"c": "d"}]}}',
        "[" * 2000 + "]" * 2000,
        '"\\ud800"',
        '"\\udc00x"',
        '"\\u0000"',
        '"\\x"',
        '"',
    ),
]


def test_json_lines(tmp_path):
    names = ("user", "query", "time", "url", "rank")
    people = [json.dumps(dict(zip(names, good(n), strict=True))) for n in range(PEOPLE)]
    poison = []
    for number, value in enumerate(JSON):
        for name in names:
            row = {key: json.dumps(text) for key, text in zip(names, (f"z{number}", *good(0)[1:]), strict=True)}
            row[name] = value
            poison.append("{" + ", ".join(f'"{key}": {text}' for key, text in row.items()) + "}")
            poison.append("{" + f'"{name}": "1", ' + poison[-1][1:])
    poison += [
        "[",
        "{",
        "}",
        "[]",
        "{}",
        "null",
        "1",
        '"z"',
        "{" * 100_000,
        "[" * 100_000,
        '{"user": "p0"',
        '{"user": {}}',
    ]
    lines = with_poison(people, poison)
    path = tmp_path / "log.jsonl"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + b'\n{"user": "\xff", "query": "tea"}\n')
    publish(check(path), tmp_path)
    count(path, tmp_path)


def test_yandex(tmp_path):
    days = ["200000000", "2147483647", "-2147483648", "99999999999999999999", "x", "1e300", "", "-1"]
    lines = [
        line
        for n in range(PEOPLE)
        for line in (f"{n}\tM\t5\tp{n}", f"{n}\t0\tQ\t0\t7\ttea\t1,2\t3,4", f"{n}\t9\tC\t0\t1")
    ]
    poison = []
    for number, day in enumerate(days):
        for other, passed in enumerate(days):
            session = 10_000 + 100 * number + other
            poison += [
                f"{session}\tM\t{day}\tz{session}",
                f"{session}\t{passed}\tQ\t0\t7\ttea\t1,2\t3,4",
                f"{session}\t9\tC\t0\t1",
            ]
    path = tmp_path / "log"
    path.write_text("\n".join(with_poison(lines, poison)) + "\n")
    publish(check(path, format="yandex"), tmp_path)


@pytest.mark.parametrize("kind", ["excite", "sogou"])
def test_times_of_the_formats_own(tmp_path, kind):
    times = [
        "000000000000",
        "999999999999",
        "19970916105432",
        "99999999999999",
        "24:60:61",
        "-1:00:00",
        *TIMES,
        "x" * 70_000,
    ]
    form = {"excite": "{0}\t{1}\ttea", "sogou": "{1}\t{0}\t[tea]\t1 1\ttea.example"}[kind]
    time = {"excite": "970916105432", "sogou": "20111230000005"}[kind]
    lines = [form.format(f"p{n}", time) for n in range(PEOPLE)]
    path = tmp_path / "log"
    path.write_text("\n".join(with_poison(lines, [form.format(f"z{n}", one) for n, one in enumerate(times)])) + "\n")
    publish(check(path, format=kind), tmp_path)


FAR = [2**62, -(2**62), 2**63 - 1, -(2**63), 1 - 2**63, 9223372036854775, 9223372036854776, 9223372036855, -1]
FLOATS = [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324, -0.0, 1e18, 9.3e18]
DECIMALS = [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal("0.000000000001").scaleb(12)]
#: Of each column and type: a good value and poison.
TIMED: dict[str, tuple[str, Any, Any, list[Any]]] = {
    **{f"time {unit} {zone}": ("time", pa.timestamp(unit, zone), TEN * n // d, FAR)
       for unit, n, d in (("s", 1, 10**6), ("ms", 1, 1000), ("us", 1, 1), ("ns", 1000, 1)) for zone in (None, "UTC")},
    "time date32": ("time", pa.date32(), 13208, [2**31 - 1, -(2**31), 2932897, -719163]),
    "time date64": ("time", pa.date64(), 13208 * 86_400_000, [86_400_000 * n for n in (10**8, -(10**8), 10**11, -1)]),
    "time float": ("time", pa.float64(), float(TEN // 10**6), FLOATS),
    "time int": ("time", pa.int64(), TEN // 10**6, FAR),
    "time uint": ("time", pa.uint64(), TEN // 10**6, [2**64 - 1, 2**63]),
    "time decimal": ("time", pa.decimal128(38, 0), Decimal(TEN // 10**6), DECIMALS),
    "time text": ("time", pa.string(), "2006-03-01 10:00:00", TEXTS),
}  # fmt: skip
UNTIMED: dict[str, tuple[str, Any, Any, list[Any]]] = {
    "rank float": ("rank", pa.float64(), 1.0, FLOATS),
    "rank uint": ("rank", pa.uint64(), 1, [2**64 - 1, 2**63]),
    "rank decimal": ("rank", pa.decimal128(38, 0), Decimal(1), DECIMALS),
    "rank text": ("rank", pa.string(), "1", TEXTS),
    "user text": ("user", pa.large_string(), None, TEXTS),
    "query text": ("query", pa.string(), "tea", TEXTS),
    "url text": ("url", pa.string(), "http://tea.example", TEXTS),
}


@pytest.mark.parametrize(("timed", "untimed"), list(zip_longest(reversed(TIMED), UNTIMED)))
def test_typed_columns(tmp_path, timed, untimed):
    """In Arrow and in Parquet, with and without the statistics of a footer, in one file and in two.

    A log has poison in two columns, but in no row is it in both.
    """
    cases = [TIMED[timed], *([UNTIMED[untimed]] if untimed else [])]
    size = sum(len(poison) for *_, poison in cases)
    columns = {
        name: pa.array(with_poison([good(n)[place] for n in range(PEOPLE)], [good(0)[place]] * size))
        for place, name in enumerate(("user", "query", "time", "url", "rank"))
    }
    others = [f"z{n}" for n in range(size)]
    columns["user"] = pa.array(with_poison([f"p{n}" for n in range(PEOPLE)], others))
    start = 0
    for column, kind, value, poison in cases:
        values = others if column == "user" else [value] * size
        values = [*values[:start], *poison, *values[start + len(poison) :]]
        start += len(poison)
        texts = with_poison([f"p{n}" if column == "user" else value for n in range(PEOPLE)], values)
        stored = pa.int32() if kind == pa.date32() else pa.int64() if pa.types.is_temporal(kind) else kind
        columns[column] = pa.array(texts, stored).view(kind)
    table = pa.table(columns)
    publish(check(table), tmp_path)
    try:
        pq.write_table(table, tmp_path / "a.parquet")
    except pa.ArrowInvalid:  # seconds that are no milliseconds
        return
    pq.write_table(table, tmp_path / "b.parquet", write_statistics=False)
    pq.write_table(table.slice(0, 0), tmp_path / "c.parquet")
    for name in ("a.parquet", "b.parquet", "[ac].parquet"):
        check(str(tmp_path / name))
    if untimed and untimed.startswith("rank"):
        count(tmp_path / "a.parquet", tmp_path)


class CountedBits(SeededBits):
    """Test bits that know how many of them were asked for."""

    asked = 0

    def words(self, n: int) -> Any:
        self.asked += n
        return super().words(n)


def drawn(data: Any, folder: Path) -> tuple[Any, ...]:
    """Return the tables of a release from the same bits each time, and how many bits it asked for."""
    budget = {"queries_per_user": 2, "clicks_per_user": 2, "reformulations_per_user": 2, "expected_false_pairs": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        plan = hq.plan_release(read_log(data), epsilon=40, delta=1e-6, population="people", **budget)
    bits, folder = CountedBits(7), folder / f"{len(list(folder.iterdir()))}.db"
    release = plan.run(folder, bits=bits, anyway=True)
    return release.queries.to_pylist(), release.clicks.to_pylist(), release.reformulations.to_pylist(), bits.asked


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("user", pa.string()),
        ("query", pa.large_string()),
        ("url", pa.dictionary(pa.int32(), pa.string())),
        ("time", pa.string()),
    ],
)
def test_text_that_is_no_text_is_missing(tmp_path, column, kind):
    """In Parquet an engine finds it while it counts: here the URLs', after the noise of the queries was drawn.

    What was drawn stays, and nothing is drawn twice: the release is the one in which the values are missing.
    """
    people = [f"p{n}" for n in range(PEOPLE)] * 2
    texts = {
        "user": people,
        "query": ["tea"] * PEOPLE + ["milk"] * PEOPLE,
        "url": ["http://tea.example"] * len(people),
        "time": [f"2006-03-01 10:00:{n // PEOPLE:02}" for n in range(len(people))],
        "rank": ["1"] * len(people),
    }
    poison: list[bytes | None] = [b"p0\xff", b"\xc3", b"\xed\xa0\x80", b"tea\xf8\x88\x80\x80\x80", b"\xff" * 5000]
    ways = []
    for bad in (poison, [None] * len(poison)):
        columns = {}
        for name, values in texts.items():
            mixed = with_poison([text.encode() for text in values], bad if name == column else [b"1"] * len(bad))
            text = pa.array(mixed, pa.large_binary()).view(pa.large_string())
            columns[name] = text.dictionary_encode().cast(kind, safe=False) if column == name else text
        table = pa.table(columns)
        far = pa.array([2**62] + [TEN // 1000] * (len(table) - 1)).view(pa.timestamp("ms"))
        ways.append((table, table.append_column("far", far).append_column("half", pa.nulls(len(table), pa.float16()))))
    (bad_table, bad_wide), (missing, _) = ways
    expected = drawn(missing, tmp_path)
    assert len(expected[0]) == 2
    assert len(expected[1]) == 2
    assert len(expected[2]) == 1
    assert drawn(bad_table, tmp_path) == expected
    assert drawn(ibis.memtable(bad_table), tmp_path) == expected
    pq.write_table(bad_wide, tmp_path / "a.parquet")
    assert drawn(tmp_path / "a.parquet", tmp_path) == expected
    check(tmp_path / "a.parquet").describe_defects()
    pq.write_table(bad_wide.slice(0, 700), tmp_path / "b1.parquet")
    pq.write_table(
        bad_wide.slice(700).rename_columns([name.upper() for name in bad_wide.column_names]), tmp_path / "b2.parquet"
    )
    assert drawn(str(tmp_path / "b?.parquet"), tmp_path) == expected
    if column in ("user", "query"):
        count(tmp_path / "a.parquet", tmp_path)


def test_ids_of_every_type_beside_text_that_is_no_text(tmp_path):
    """The reader that is taken then gives what the other one gives, in the same types."""
    path = tmp_path / "a.parquet"
    columns = (
        "uuid() AS u, '[1]'::JSON AS j, 'a'::ENUM('a') AS e, 1.5::DECIMAL(20, 3) AS d, [1] AS l, TIME '10:00' AS c, "
        "TIMESTAMPTZ '2006-03-01 10:00:00Z' AS z, TIMESTAMP_NS '2006-03-01 10:00:00' AS n, 2::UHUGEINT AS h, "
        "3::UTINYINT AS s, 'b'::BLOB AS b, DATE '2006-03-01' AS y, TIMESTAMP_MS '2006-03-01 10:00:00' AS m"
    )
    connect().raw_sql(f"COPY (SELECT {columns}, 'canary' AS t) TO '{path}' (COMPRESSION uncompressed)")
    path.write_bytes(path.read_bytes().replace(b"canary", b"c\xffnary"))
    table = read_table(path)
    by_duckdb = execute(table.drop("t"))
    assert execute(table).drop("t").equals(by_duckdb)
    assert execute(table)["t"].to_pylist() == [None]
