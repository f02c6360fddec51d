"""Small files that unpack to a lot: read with little memory, or refused; damaged ones are refused with words."""

from __future__ import annotations

import gzip
import mmap
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.errors import DataError, HushqueryError, NotReady
from hushquery.local.server.counting import read_blocks
from hushquery.local.server.estimate import estimate
from hushquery.local.server.parquet_pages import PageError, rows_that_fit
from setting_reports import REPORTS, TASK, changed

LENGTH = len(REPORTS[0].to_bytes())
LONG = bytes(1 << 20)
GOOD = [report.to_bytes() for report in REPORTS]


def write(path: Path, values: list[bytes | None], kind: pa.DataType | None = None, **options: Any) -> Path:
    pq.write_table(pa.table({"report": pa.array(values, pa.binary() if kind is None else kind)}), path, **options)
    return path


def fit(path: Path, budget: int = 1 << 24) -> list[int]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return rows_that_fit(whole, 0, budget)


# It runs alone, because Arrow counts for the whole process. Python's and NumPy's memory is counted beside it.
PEAK = """
import sys, tracemalloc
from pathlib import Path
import pyarrow.compute, pyarrow.parquet
from hushquery.local.server.counting import read_blocks
tracemalloc.start()
read = sum(block.read for block in read_blocks(Path(sys.argv[1]), 92))
print(read, (tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory()) >> 20)
"""


def read_and_peak(path: Path) -> tuple[int, int]:
    """Give how many reports there are, and how many megabytes it took to read them."""
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    read, peak = done.stdout.split()
    return int(read), int(peak)


def test_a_dictionary_of_one_long_value_is_not_unpacked_at_once(tmp_path: Path) -> None:
    options = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 22}
    path = write(tmp_path / "bomb.parquet", [LONG] * 600, row_group_size=200, **options)
    assert path.stat().st_size < 20_000
    assert all(rows <= 16 for rows in fit(path))
    read, peak = read_and_peak(path)
    assert read == 600
    assert peak < 100, "it stands for 600"


def test_long_values_that_differ_are_not_unpacked_at_once(tmp_path: Path) -> None:
    values = [number.to_bytes(4, "big") + LONG[:200_000] for number in range(1500)]
    path = write(tmp_path / "bomb.parquet", values, use_dictionary=False, compression="zstd", write_batch_size=4)
    read, peak = read_and_peak(path)
    assert read == 1500
    assert peak < 100, "it stands for 300"


def test_lines_of_text_are_not_held(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(3000):
            file.write(b"AQ" + b"A" * 130_000 + b"\n")  # a line that could be a report, but of another length
        file.write(b"A" * (1 << 26))  # and one that is longer than any
    read, peak = read_and_peak(path)
    assert read == 3001
    assert peak < 20, "it stands for 400"


@pytest.mark.parametrize(
    ("values", "options", "why"),
    [
        ([LONG] * 3, {"use_dictionary": False, "column_encoding": {"report": "DELTA_BYTE_ARRAY"}}, "without a bound"),
        ([bytes(140 << 20)], {"use_dictionary": False, "compression": "zstd"}, "a page unpacks to more"),
    ],
)
def test_pages_without_a_bound_are_refused(
    tmp_path: Path, values: list[bytes | None], options: dict[str, Any], why: str
) -> None:
    path = write(tmp_path / "bomb.parquet", values, **options)
    with pytest.raises(PageError, match=why):
        fit(path)
    with pytest.raises(DataError, match="as Parquet") as caught:
        estimate(TASK, path)
    assert why in caught.value.why


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
        {"data_page_version": "2.0", "compression": "gzip"},
        {"use_dictionary": False, "column_encoding": {"report": "DELTA_LENGTH_BYTE_ARRAY"}},
        {"data_page_size": 500, "row_group_size": 333, "write_batch_size": 10},
    ],
)
def test_however_it_is_written_every_report_is_counted(tmp_path: Path, options: dict[str, Any]) -> None:
    other = [changed(REPORTS[0], task=bytes(32)), b"", b"\x01" + LONG, b"\x07" * 70_000, None]
    values = [*GOOD[:500], *other, *GOOD[500:], *GOOD[:3]]
    found = estimate(TASK, write(tmp_path / "reports.parquet", values, **options))
    assert (found.n, found.repeated, found.read) == (1000, 3, 1008)
    assert found.refused == {"ReportMalformed": 3, "ReportOfAnotherTask": 1, "ReportVersionUnknown": 1}
    assert found.table == estimate(TASK, REPORTS).table


def test_a_plain_file_is_read_in_large_parts(tmp_path: Path) -> None:
    path = write(tmp_path / "reports.parquet", list(GOOD), use_dictionary=False)
    assert 100_000 < fit(path)[0] <= (1 << 24) // LENGTH


def test_columns_of_a_fixed_width(tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", list(GOOD), pa.binary(LENGTH))
    assert estimate(TASK, good).n == 1000
    wide = write(tmp_path / "wide.parquet", [LONG] * 40, pa.binary(1 << 20), compression="zstd")
    with pytest.raises(NotReady) as caught:
        estimate(TASK, wide)
    assert "40 were refused: ReportVersionUnknown" in caught.value.why


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}])
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(tmp_path / "reports.parquet", [*GOOD[:40], b"x", None], row_group_size=20, **options)
    whole, chance = path.read_bytes(), random.Random(str(options))
    outcomes = set()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), len(data), chance.randrange(4, len(data))])])
        try:
            outcomes.add(sum(block.read for block in read_blocks(path, LENGTH)))
        except HushqueryError:
            outcomes.add(-1)
    assert {-1, 42} <= outcomes


def test_headers_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for end in (
        b"\x00",  # nothing in it
        b"\x29" * 40,  # a list in a list in a list
        b"\x1c" * 40,  # a struct in a struct in a struct
        b"\x15" + b"\xff" * 12 + b"\x00",  # a number without an end
        b"\x1b\x00\x00",  # a map, of which there is none
        b"\x49\xfc\xff\xff\xff\x0f",  # a billion row groups
    ):
        path.write_bytes(b"PAR1" + end + len(end).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(PageError):
            fit(path)
    path.write_bytes(b"PAR1" + (1 << 20).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(PageError, match="cut off"):
        fit(path)
