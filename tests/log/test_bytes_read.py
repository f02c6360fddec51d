"""Before a spend only names, headers, schemas and first lines are read: measured in bytes, for every format."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushquery as hq
from hushquery import statistics
from hushquery.cli import main
from hushquery.errors import AccountMissing, DataError, UsageError
from hushquery.hybrid.plan import plan_head
from hushquery.log import read_log
from hushquery.task import Task

ROWS = 400_000
#: Files have tens of megabytes; the code that looks at them, and what it reads for itself, needs less than this.
LITTLE = 1_000_000
LINES = {
    "csv": "u{0},tea {1},2006-03-01 10:00:00,http://tea.example,1",
    "tsv": "u{0}\ttea {1}\t2006-03-01 10:00:00\thttp://tea.example\t1",
    "aol": "{0}\ttea {1}\t2006-03-01 10:00:00\t1\thttp://tea.example",
    "jsonl": '{{"user": "u{0}", "query": "tea {1}", "time": "2006-03-01 10:00:00", "url": "tea.example", "rank": 1}}',
    "excite": "u{0}\t970916105432\ttea {1} and some more words",
    "sogou": "20111230000005\tu{0}\t[tea {1} and some more words]\t1 1\ttea.example",
    "yandex": "{0}\tM\t5\t{1}\n{0}\t0\tQ\t0\t7\t11,12,13,14\t1,2\t3,4\n{0}\t9\tC\t0\t1",
}
HEADERS = {
    kind: separator.join(("user", "query", "time", "url", "rank")) for kind, separator in (("csv", ","), ("tsv", "\t"))
}


def written(path: Path, kind: str, rows: int, encoding: str = "utf-8") -> Path:
    """Write a log of so many rows; a broken line is its last."""
    numbers = [(n, n * 2654435761 % 2**40) for n in range(min(rows, 20_000))]
    if kind == "parquet":
        names = [f"u{number}" for _, number in numbers]
        columns = {"user": names, "query": names, "time": range(len(names)), "url": names, "rank": range(len(names))}
        pq.write_table(pa.concat_tables([pa.table(columns)] * (rows // len(names))), path, row_group_size=20_000)
        return path
    lines = "".join(LINES[kind].format(*pair) + "\n" for pair in numbers) * (rows // len(numbers))
    data = (HEADERS.get(kind, "") + "\n" + lines.replace("tea", "thé") + '"{\n').encode(encoding)
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def bytes_read(ask: Callable[[], object]) -> int:
    """Return how many bytes this process reads while it does something, whatever is in the cache of the disk."""

    def so_far() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = so_far()
    ask()
    return so_far() - before


def command(*arguments: object) -> None:
    """Run the command line in this process; it must succeed."""
    before, sys.argv = sys.argv, ["hushquery", *map(str, arguments)]
    told = io.StringIO()
    try:
        with redirect_stdout(told), redirect_stderr(told):
            main()
    except SystemExit as stop:
        if stop.code:
            pytest.fail(told.getvalue())
    finally:
        sys.argv = before


def shown(plan: Any, folder: Path) -> None:
    """Show a plan, and run it without an account to pay from."""
    assert plan.explain()
    assert plan.sql()
    with pytest.raises(AccountMissing):
        plan.run(folder / "ledger.db", create=False)


def plans_of_a_log(data: Any, kind: str, folder: Path, encoding: str = "utf-8") -> list[Callable[[], None]]:
    """Return every way to plan what reads a log, a release first."""
    tables = {} if kind == "excite" else {"clicks_per_user": 2, "reformulations_per_user": 2}
    budget = {"epsilon": 1, "delta": 1e-7, "queries_per_user": 5}
    form = ["--format", kind, "--encoding", encoding]
    options = ["--epsilon", 1, "--delta", 1e-7, "--queries-per-user", 5, "--explain", "--json"]
    task = folder / "task.toml"
    files = data if isinstance(data, list) else [data]

    def read() -> Any:
        return read_log(data, format=kind, encoding=encoding)

    ways: list[Callable[[], None]] = [
        lambda: shown(hq.plan_release(read(), **budget, **tables, population="people"), folder),
        lambda: command("release", *files, *form, *options),
    ]
    if tables:
        ways += [
            lambda: shown(plan_head(read(), Task.load(task)), folder),
            lambda: command("head", *files, *form, "--task", task, "--out", folder / "h", "--explain"),
        ]
    return ways


def plans_of_a_table(path: Path, folder: Path) -> list[Callable[[], None]]:
    """Return every way to plan a statistic of a file, a total first."""
    one: dict[str, Any] = {"unit": "user", "epsilon": 1, "population": "people"}
    options = ["--unit", "user", "--epsilon", 1, "--explain", "--json"]
    tea = {"tea": lambda t: t["query"] == "tea"}
    return [
        lambda: shown(statistics.plan_sum(path, "rank", lower=0, upper=1, **one), folder),
        lambda: shown(statistics.plan_count(path, **one), folder),
        lambda: shown(statistics.plan_count(path, **one, rows_per_unit=3), folder),
        lambda: shown(statistics.plan_mean(path, "rank", lower=0, upper=1, **one), folder),
        lambda: shown(statistics.plan_histogram(path, "query", ["tea"], **one), folder),
        lambda: shown(statistics.plan_queries(path, tea, types={"query": "string"}, **one), folder),
        lambda: command("stat", "count", path, *options),
        lambda: command("stat", "sum", path, "rank", "--lower", 0, "--upper", 1, *options),
        lambda: command("stat", "mean", path, "rank", "--lower", 0, "--upper", 1, *options),
        lambda: command("stat", "histogram", path, "query", "--keys", "tea", *options),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("logs")
    command("task", "new", "--out", made / "task.toml")
    # What a process imports it reads, too.
    small = [written(made / f"small.{kind}", kind, 500) for kind in ("csv", "parquet")]
    ways = [*plans_of_a_log(small[0], "csv", made), *plans_of_a_table(small[0], made)]
    ways += [plans_of_a_log(small[1], "parquet", made)[0], plans_of_a_table(small[1], made)[0]]
    for plan in ways:
        plan()
    return made


@pytest.mark.parametrize("kind", [*LINES, "parquet", "csv.gz", "jsonl.gz"])
def test_a_plan_reads_the_beginning_of_a_file(folder, kind):
    """Every plan of some kinds of files, and each kind of file by one plan: its reader knows nothing of plans."""
    form = kind.removesuffix(".gz")
    path = written(folder / f"log.{kind}", form, ROWS)
    assert path.stat().st_size > 4 * LITTLE
    ways = plans_of_a_log(path, form, folder)[: None if kind in ("csv", "csv.gz", "parquet") else 1]
    if kind in ("csv", "tsv", "jsonl", "parquet"):
        ways += plans_of_a_table(path, folder)[: None if kind == "csv" else 1]
    for measured in ways:
        assert bytes_read(measured) < LITTLE
    path.unlink()


@pytest.mark.parametrize(
    ("kind", "encoding"), [("csv", "latin-1"), ("csv.gz", "cp1252"), ("sogou", "gb18030"), ("jsonl", "latin-1")]
)
def test_a_plan_reads_the_beginning_of_a_file_in_another_encoding(folder, kind, encoding):
    form = kind.removesuffix(".gz")
    path = written(folder / f"log.{kind}", form, ROWS // 4, encoding)
    assert path.stat().st_size > LITTLE
    for measured in plans_of_a_log(path, form, folder, encoding)[: None if kind == "csv" else 1]:
        assert bytes_read(measured) < LITTLE
    path.unlink()


def test_wide_characters_are_refused_by_their_first_bytes(folder):
    path = written(folder / "wide.csv", "csv", ROWS // 4, "utf-16")

    def refuse() -> None:
        for encoding, error in (("utf-32", UsageError), ("utf-8", DataError), ("latin-1", DataError)):
            with pytest.raises(error, match=r"iconv|--encoding utf-16"):
                read_log(path, encoding=encoding)

    assert bytes_read(refuse) < LITTLE


def test_many_files(folder):
    for n in range(4):
        written(folder / f"part{n}.jsonl", "jsonl", ROWS // 4)
    for data in (str(folder / "part*.jsonl"), [str(folder / f"part{n}.jsonl") for n in range(4)]):
        assert bytes_read(plans_of_a_log(data, "jsonl", folder)[0]) < 2 * LITTLE


def test_a_measured_release_does_read_the_log(folder):
    """The measure can fail."""
    path = written(folder / "log.csv", "csv", 40_000)
    plan = hq.plan_release(read_log(path), epsilon=1, delta=1e-7, queries_per_user=5, population="people")
    assert bytes_read(lambda: plan.run(folder / "paid.db")) > path.stat().st_size


def test_an_archive_of_another_kind_is_refused_by_its_first_bytes(folder):
    path = folder / "packed.csv"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\n" * 10 + bytes(8 * LITTLE))

    def refuse() -> None:
        with pytest.raises(DataError):
            read_log(path)
        with pytest.raises(DataError):
            statistics.plan_count(path, unit="user", epsilon=1, population="people").sql()

    assert bytes_read(refuse) < LITTLE
