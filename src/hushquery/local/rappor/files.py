"""The CSV files of google/rappor: the same headers, columns and order, read strictly.

``params.csv`` has the header ``k,h,m,p,q,f`` and one row; ``true_values.csv``, which is secret,
``client,cohort,value``; ``reports.csv`` ``client,cohort,bloom,prr,irr``, bits with the highest first, of which only
``irr`` may leave a device. ``counts.csv`` has a row per cohort: its reports, then how often bit 0, 1, ... was on.
``map.csv`` has a row per candidate: the string, then h bits per cohort as cohort * k + bit + 1. Errors name a line,
never what stands in it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from hushquery.errors import DataError, Unavailable
from hushquery.local.intervals import IntArray
from hushquery.local.rappor.response import FIELDS, Encoder, Params, Variant, bit_string, bloom_bits
from hushquery.noise.sampler import Bits

#: Where a file is read from: its path, or text that is open already.
Source = str | Path | TextIO

_VALUES = ("client", "cohort", "value")
_REPORTS = ("client", "cohort", "bloom", "prr", "irr")
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+(e-?[0-9]{1,3})?", re.ASCII)
_CHUNK = 20_000


@dataclass(frozen=True)
class Candidates:
    """Strings that clients might hold, each with the bits that it turns on, counted from 0 through all cohorts."""

    strings: tuple[str, ...]
    bits: tuple[IntArray, ...]

    def __len__(self) -> int:
        return len(self.strings)


def read_params(source: Source) -> Params:
    """Read params.csv: the header ``k,h,m,p,q,f`` without blanks, and one row."""
    rows = list(islice(_rows(source, "params.csv"), 4))
    if not rows or tuple(rows[0][1]) != FIELDS:
        raise _bad("params.csv", 1, "the header is not exactly k,h,m,p,q,f", "Write it without blanks")
    if len(rows) != 2:
        raise _bad("params.csv", 3 if len(rows) > 2 else 2, "there must be exactly one row below the header")
    line, cells = rows[1]
    if len(cells) != len(FIELDS):
        raise _bad("params.csv", line, "there must be six columns")
    whole = [_whole(cell, "params.csv", line) for cell in cells[:3]]
    if not all(_NUMBER.fullmatch(cell) for cell in cells[3:]):
        raise _bad("params.csv", line, "p, q and f must be plain numbers", "Write for example 0.25, without blanks")
    return Params(*whole, *cells[3:])


def read_counts(source: Source, params: Params) -> IntArray:
    """Read counts.csv: m rows of the cohort's reports and the count of each of k bits."""
    counts: list[list[int]] = []
    for line, cells in _rows(source, "counts.csv"):
        if len(cells) != params.k + 1:
            raise _bad("counts.csv", line, f"there must be k + 1 = {params.k + 1} columns", _FITS)
        row = [_whole(cell, "counts.csv", line) for cell in cells]
        if max(row[1:]) > row[0]:
            raise _bad("counts.csv", line, "a bit is on more often than the cohort has reports", _FITS)
        counts.append(row)
    if len(counts) != params.m:
        raise DataError(
            f"counts.csv has {len(counts):,} rows", why=f"there must be m = {params.m:,}, one per cohort", fix=_FITS
        )
    return np.array(counts, dtype=np.int64)


def read_map(source: Source, params: Params) -> Candidates:
    """Read map.csv. The empty string is called ``Empty``, repeated strings count once, empty cells are left out."""
    named: dict[str, IntArray] = {}
    columns = params.h * params.m
    home = np.arange(columns) // params.h
    for line, cells in _rows(source, "map.csv"):
        if len(cells) != columns + 1:
            raise _bad("map.csv", line, f"there must be 1 + h m = {columns + 1:,} columns", _FITS)
        bits = np.array([_whole(cell, "map.csv", line) for cell in cells[1:] if cell], dtype=np.int64) - 1
        if len(bits) == 0 or bits.min() < 0 or bits.max() >= params.m * params.k:
            raise _bad("map.csv", line, "a bit lies outside 1..m k", _FITS)
        if len(bits) == columns and (bits // params.k != home).any():
            raise _bad("map.csv", line, "a bit belongs to another cohort than its column", _FITS)
        named.setdefault(cells[0] or "Empty", np.unique(bits))
    if not named:
        raise DataError("map.csv holds no candidate", fix="Make it with `hushquery rappor hash-candidates`")
    return Candidates(tuple(named), tuple(named.values()))


def read_values(source: Source, params: Params) -> Iterator[tuple[str, int, str]]:
    """Read true_values.csv row by row: client, cohort, value."""
    for line, cells in _body(source, "true_values.csv", _VALUES):
        yield cells[0], _cohort(cells[1], params, "true_values.csv", line), cells[2]


def read_reports(source: Source, params: Params) -> Iterator[tuple[IntArray, npt.NDArray[np.uint8]]]:
    """Read reports.csv in chunks: cohorts, and a row of k bits per report, bit 0 first; header names do not matter."""
    rows = _body(source, "reports.csv", None)
    while chunk := list(islice(rows, _CHUNK)):
        cohorts = np.array([_cohort(cells[1], params, "reports.csv", line) for line, cells in chunk], dtype=np.int64)
        for line, cells in chunk:
            if len(cells[4]) != params.k or not cells[4].isascii():
                raise _bad("reports.csv", line, f"a report must have k = {params.k} bits", _FITS)
        text = "".join(cells[4] for _, cells in chunk).encode("ascii")
        bits = np.frombuffer(text, dtype=np.uint8).reshape(len(chunk), params.k) - np.uint8(ord("0"))
        if (wrong := (bits > 1).any(axis=1)).any():
            raise _bad("reports.csv", chunk[int(wrong.argmax())][0], "a bit is neither 0 nor 1")
        yield cohorts, bits[:, ::-1]


def read_lines(source: Source) -> Iterator[str]:
    """Read candidates, one per line, without the blanks around them."""
    with _opened(source, "the candidates") as lines:
        for line in lines:
            yield line.strip()


def sum_bits(source: Source, params: Params) -> IntArray:
    """Count the reports of reports.csv: per cohort how many there are, and how often each bit is on."""
    counts = np.zeros((params.m, params.k + 1), dtype=np.int64)
    for cohorts, bits in read_reports(source, params):
        counts[:, 0] += np.bincount(cohorts, minlength=params.m)
        np.add.at(counts[:, 1:], cohorts, bits)
    return counts


def hash_candidates(
    params: Params, strings: Iterable[str], variant: Variant | str = Variant.GOOGLE_PYTHON
) -> Iterator[list[str]]:
    """Make the rows of map.csv for candidate strings."""
    for string in strings:
        row, value = [string], string.encode()
        for cohort in range(params.m):
            row += [str(cohort * params.k + bit + 1) for bit in bloom_bits(params, variant, cohort, value)]
        yield row


def encode_rows(
    params: Params,
    rows: Iterable[tuple[str, int, str]],
    device_of: Callable[[str], Encoder],
    bits: Bits,
    *,
    hide_steps: bool = False,
) -> Iterator[tuple[str, ...]]:
    """Make rows of reports.csv from true_values.csv; ``hide_steps`` leaves the secret columns bloom and prr empty."""
    for client, cohort, value in rows:
        device = device_of(client)
        bloom = device.bloom(cohort, value.encode())
        permanent = device.permanent(bloom)
        report = device.instant(permanent, bits)
        steps = ("", "") if hide_steps else (bit_string(bloom, params.k), bit_string(permanent, params.k))
        yield (client, str(cohort), *steps, bit_string(report, params.k))


def write_counts(counts: IntArray, out: TextIO) -> None:
    """Write counts.csv."""
    csv.writer(out).writerows(counts.tolist())


def write_map(rows: Iterable[Sequence[str]], out: TextIO) -> int:
    """Write map.csv, and return how many candidates it has."""
    writer, count = csv.writer(out), 0
    for row in rows:
        writer.writerow(row)
        count += 1
    return count


def write_reports(rows: Iterable[Sequence[str]], out: TextIO) -> int:
    """Write reports.csv, and return how many reports it has."""
    csv.writer(out).writerow(_REPORTS)
    return write_map(rows, out)


_FITS = "Check that the file and params.csv belong together"


def _bad(name: str, line: int, why: str, fix: str = "") -> DataError:
    return DataError(f"{name}, line {line:,}, can't be used", why=why, fix=fix)


@contextmanager
def _opened(source: Source, name: str) -> Iterator[TextIO]:
    try:
        if isinstance(source, str | Path):
            with Path(source).open(encoding="utf-8", newline="") as lines:
                yield lines
        else:
            yield source
    except UnicodeDecodeError:
        raise DataError(f"{name} is not UTF-8", fix="Save it as UTF-8") from None
    except OSError as error:
        raise Unavailable(f"{name} can't be read", why=error.strerror or "", fix="Check the path") from None


def _rows(source: Source, name: str) -> Iterator[tuple[int, list[str]]]:
    """Read the rows that are not empty, each with the number of its last line."""
    with _opened(source, name) as lines:
        reader = csv.reader(lines, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error:
            raise _bad(name, reader.line_num, "it is no CSV", "Look for a quote that is not closed") from None


def _body(source: Source, name: str, header: tuple[str, ...] | None) -> Iterator[tuple[int, list[str]]]:
    rows = _rows(source, name)
    columns = len(header or _REPORTS)
    _, first = next(rows, (1, []))
    if (header is not None and tuple(first) != header) or len(first) != columns:
        raise _bad(name, 1, f"the header is not {','.join(header or _REPORTS)}", "Write it without blanks")
    for line, cells in rows:
        if len(cells) != columns:
            raise _bad(name, line, f"there must be {columns} columns")
        yield line, cells


def _whole(cell: str, name: str, line: int) -> int:
    if not _WHOLE.fullmatch(cell):
        raise _bad(name, line, "a cell is no whole number from 0 on", "Write digits only, without blanks or signs")
    return int(cell)


def _cohort(cell: str, params: Params, name: str, line: int) -> int:
    cohort = _whole(cell, name, line)
    if cohort >= params.m:
        raise _bad(name, line, "a cohort is out of range", f"Cohorts are the whole numbers from 0 to {params.m - 1}")
    return cohort
