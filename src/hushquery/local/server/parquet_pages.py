"""The memory that a column of a Parquet file needs, from its page headers, before a page is unpacked.

A few kilobytes of Parquet can stand for any number of gigabytes. Headers are read in Thrift's compact protocol
(parquet-format, PageHeader) here, because Arrow's own objects crash the process when the file's end is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import Any

#: The largest page that is unpacked, in bytes; writers make pages of one megabyte, some of up to a hundred.
MOST_PAGE = 1 << 27

# Kinds of pages, and the encodings of values whose size is that of their page: plain, and lengths before the bytes.
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_OF_PAGE_SIZE = {0, 6, 9}
_FROM_DICTIONARY = {2, 8}

# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3
_CHUNK_VALUES, _DATA_AT, _DICTIONARY_AT = 5, 9, 11

# Fields of PageHeader, and of the header of each kind of page within it.
_TYPE, _UNPACKED, _PACKED = 1, 2, 3
_PART = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_VALUES, _ENCODING = 1, {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}

_DEEPEST = 16


class PageError(ValueError):
    """The pages can't be followed, or unpack to more than is allowed; the text says why, without a value."""


def rows_that_fit(file: mmap, column: int, budget: int) -> list[int]:
    """Compute how many rows of a column unpack to about ``budget`` bytes at most, for each row group.

    Raises PageError if a page is too large or damaged, or has an encoding that repeats values without a bound.
    """
    try:
        size = int.from_bytes(file[-8:-4], "little")
        if size > len(file) - 8:
            raise PageError("it is cut off")
        groups = _struct(file, len(file) - 8 - size)[0][_GROUPS]
        chunks = [group[_COLUMNS][column][_CHUNK] for group in groups]
        return [max(1, int(budget / max(1.0, *_sizes(file, chunk)))) for chunk in chunks]
    except (IndexError, KeyError, TypeError, AttributeError):
        raise PageError("its end or its pages are cut off or damaged") from None


def _sizes(file: mmap, chunk: dict[int, Any]) -> Iterator[float]:
    """Compute for each page the most bytes that a row of it unpacks to, on average over the page."""
    for kind, size, values, encoding in _pages(file, chunk):
        if size > MOST_PAGE:
            raise PageError(f"a page unpacks to more than {MOST_PAGE:,} bytes")
        if kind == _DICTIONARY:
            yield float(size)  # all of it can be one value, and each row can be that
        elif encoding in _OF_PAGE_SIZE:
            yield size / max(1, values)
        elif encoding not in _FROM_DICTIONARY:
            raise PageError(f"encoding {encoding} can repeat values without a bound")


def _pages(file: mmap, chunk: dict[int, Any]) -> Iterator[tuple[int, int, int, int]]:
    """Read kind, unpacked size, number of values and encoding of each page of data, as Arrow goes through them."""
    at = _size(chunk[_DATA_AT])
    if 0 < _size(chunk.get(_DICTIONARY_AT, 0)) < at:
        at = chunk[_DICTIONARY_AT]
    seen = 0
    while seen < _size(chunk[_CHUNK_VALUES]):
        header, at = _struct(file, at)
        kind = header[_TYPE]
        at += _size(header[_PACKED])
        if kind not in _PART:  # an index, which Arrow passes over
            continue
        part = header[_PART[kind]]
        values, encoding = _size(part[_VALUES]), _size(part[_ENCODING[kind]])
        yield kind, _size(header[_UNPACKED]), values, encoding
        seen += values if kind != _DICTIONARY else 0


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise PageError("a page has a size that is none")
    return value


_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12


def _struct(data: mmap, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Read a struct: its numbers, lists and structs by field; texts are passed over."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, at = _signed(data, at)
        if kind in (_TRUE, _FALSE):  # it is in the kind
            continue
        fields[number], at = _value(data, at, kind, depth + 1)
    return fields, at + 1


def _value(data: mmap, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise PageError("its headers are nested beyond reason")
    if kind in (_SHORT, _INT, _LONG):
        return _signed(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        return None, at + (8 if kind == _DOUBLE else 1)
    if kind != _LIST:
        raise PageError("its headers hold what does not belong there")
    head = data[at]
    count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
    items = []
    for _ in range(count):
        item, at = _value(data, at, head & 15, depth + 1)
        items.append(item)
    return items, at


def _signed(data: mmap, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise PageError("its headers hold a number that is too long")
