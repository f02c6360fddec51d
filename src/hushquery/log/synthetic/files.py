"""Writing the synthetic log: as Arrow batches, and to files of every kind that hushquery reads."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hushquery.errors import DataError, UsageError
from hushquery.log.synthetic.language import RESULTS, Ints
from hushquery.log.synthetic.people import Chunk, Profile

__all__ = ["ENDINGS", "as_batch", "write_chunks"]

#: The endings that say of which kind a file is; all but .parquet may be followed by .gz.
ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")

_START = np.datetime64("2026-03-01T00:00:00", "us")
# A prime above the number of users: multiplying permutes, so that near users have far ids.
_USER_PRIME, _USER_STEP = 999_999_937, 618_033_989
_COLUMNS = ("user", "time", "query", "url", "rank")
_AOL_COLUMNS = ("AnonID", "Query", "QueryTime", "ItemRank", "ClickURL")


def as_batch(profile: Profile, chunk: Chunk) -> Any:
    """Give a chunk as a record batch: user, time (microseconds, as Parquet and DuckDB have it), query, url, rank."""
    import pyarrow as pa

    none = chunk.rank == 0
    words = profile.language()
    time = _START + (chunk.seconds * 1_000_000).astype("timedelta64[us]")
    columns = [
        pa.array(_user_ids(chunk.user)).cast(pa.string()),
        pa.array(time, pa.timestamp("us")),
        words.text(chunk.code),
        words.url(chunk.host, chunk.path, none),
        pa.array(chunk.rank, mask=none),
    ]
    return pa.record_batch(columns, names=_COLUMNS)


def write_chunks(
    path: Path,
    profile: Profile,
    chunks: Iterator[Chunk],
    progress: Callable[[int, int], None] | None,
    *,
    force: bool,
) -> Path:
    """Write chunks to a file beside the one asked for, and give it its name when it is complete."""
    kind, packed = _kind(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder", fix="Give the name of a file")
        if path.exists() and not force:
            raise UsageError(f"the file {path} exists already", fix="Choose another name, or replace it with --force")
        with unfinished.open("wb") as raw:
            if packed:
                # No name and no time inside, so that the same log is the same bytes.
                with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as file:
                    _write(file, kind, profile, chunks, progress)
            else:
                _write(raw, kind, profile, chunks, progress)
        unfinished.replace(path)
    except OSError as error:
        raise DataError(
            f"the file {path} can't be written",
            why=error.strerror or type(error).__name__,
            fix="Check that its folder exists, may be written to, and has room",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
    return path


def _kind(path: Path) -> tuple[str, bool]:
    packed = path.suffix.lower() == ".gz"
    kind = (path.with_suffix("") if packed else path).suffix.lower()
    if kind not in ENDINGS or (packed and kind == ".parquet"):
        raise UsageError(
            f"the name {path.name} does not say which kind of file to write",
            fix=f"End it in {', '.join(ENDINGS)}; all but .parquet may be followed by .gz",
        )
    return kind, packed


def _write(
    file: Any,
    kind: str,
    profile: Profile,
    chunks: Iterator[Chunk],
    progress: Callable[[int, int], None] | None,
) -> None:
    if kind == ".parquet":
        _write_parquet(file, profile, chunks, progress)
        return
    header = {".csv": ",".join(_COLUMNS), ".tsv": "\t".join(_COLUMNS)}.get(kind)
    if kind == ".txt" and not profile.terms:
        header = "\t".join(_AOL_COLUMNS)
    if header is not None:
        file.write(f"{header}\n".encode())
    for chunk in _told(chunks, progress):
        match kind:
            case ".csv":
                _separated(file, as_batch(profile, chunk), ",")
            case ".tsv":
                _separated(file, as_batch(profile, chunk), "\t")
            case ".jsonl":
                _json_lines(file, as_batch(profile, chunk))
            case _:
                _own_format(file, profile, chunk)


def _told(chunks: Iterator[Chunk], progress: Callable[[int, int], None] | None) -> Iterator[Chunk]:
    """Pass chunks on, and tell after each how far the log is."""
    users = rows = 0
    for chunk in chunks:
        yield chunk
        users = int(chunk.user[-1]) + 1
        rows += len(chunk.user)
        if progress is not None:
            progress(users, rows)


def _write_parquet(
    file: BinaryIO, profile: Profile, chunks: Iterator[Chunk], progress: Callable[[int, int], None] | None
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = (pa.string(), pa.timestamp("us"), pa.string(), pa.string(), pa.int64())
    schema = pa.schema(list(zip(_COLUMNS, types, strict=True)))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for chunk in _told(chunks, progress):
            writer.write_batch(as_batch(profile, chunk))


def _separated(file: Any, batch: Any, separator: str) -> None:
    """Write rows with a separator between; no text of the log holds one, or a quote."""
    time = _as_text(batch, "%Y-%m-%dT%H:%M:%S")
    _lines(file, separator, batch["user"], time, batch["query"], batch["url"], batch["rank"])


def _json_lines(file: Any, batch: Any) -> None:
    import pyarrow.compute as pc

    url = pc.coalesce(pc.binary_join_element_wise('"', batch["url"], '"', ""), "null")
    rank = pc.coalesce(pc.cast(batch["rank"], "string"), "null")
    time = _as_text(batch, "%Y-%m-%dT%H:%M:%S")
    parts = ['{"user": "', batch["user"], '", "time": "', time, '", "query": "', batch["query"]]
    _lines(file, "", *parts, '", "url": ', url, ', "rank": ', rank, "}")


def _own_format(file: Any, profile: Profile, chunk: Chunk) -> None:
    """Write the format of the log that the profile is like."""
    if profile.terms:
        _yandex_lines(file, profile, chunk)
        return
    batch = as_batch(profile, chunk)
    time = _as_text(batch, "%Y-%m-%d %H:%M:%S")
    _lines(file, "\t", batch["user"], batch["query"], time, batch["rank"], batch["url"])


def _yandex_lines(file: Any, profile: Profile, chunk: Chunk) -> None:
    """Write a line for every session (M), every search with its results (Q) and every click (C), in that order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = profile.language()
    # Ids of sessions go on over all chunks: every user has fewer of them than this.
    session = chunk.user * profile.most + chunk.session - _first_of(chunk.user, chunk.session)
    passed = chunk.seconds - chunk.session_start
    new_session, new_search = _changes(chunk.session), _changes(chunk.search)
    serp = np.cumsum(new_search) - 1
    serp = serp - _first_of(chunk.session, serp)
    clicked = chunk.rank > 0

    code = chunk.code[new_search]
    pages = []
    for position in range(RESULTS):
        host, path = words.results(code, np.full_like(code, position))
        domain = words.url_ids(host, np.zeros_like(path))
        pages.append(_text("", words.url_ids(host, path), ",", domain))
    terms = pc.replace_substring(words.text(code), " ", ",")
    starts = _text("\t", session[new_session], "M", 1 + chunk.session_start[new_session] // 86_400)
    starts = _text("\t", starts, _user_ids(chunk.user[new_session]))
    searches = _text("\t", session[new_search], passed[new_search], "Q", serp[new_search], code, terms, *pages)
    clicks = _text("\t", session, passed, "C", serp, words.url_ids(chunk.host, chunk.path)).filter(pa.array(clicked))
    lines = pa.concat_arrays([starts, searches, clicks])
    row = np.concatenate([3 * np.flatnonzero(flags) + kind for kind, flags in enumerate((new_session, new_search))])
    order = np.argsort(np.concatenate([row, 3 * np.flatnonzero(clicked) + 2]), kind="stable")
    _lines(file, "", lines.take(order))


def _changes(ids: Ints) -> Any:
    """Tell where an id differs from the one before."""
    return np.append(True, ids[1:] != ids[:-1])


def _first_of(group: Ints, value: Ints) -> Ints:
    """Give for each row the value of the first row of its group; groups are runs."""
    starts = np.flatnonzero(_changes(group))
    return np.repeat(value[starts], np.diff(np.append(starts, len(group))))


def _user_ids(user: Ints) -> Ints:
    return (user + 1) * _USER_STEP % _USER_PRIME


def _as_text(batch: Any, form: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.strftime(batch["time"].cast(pa.timestamp("s")), format=form)


def _text(separator: str, *parts: Any) -> Any:
    """Join columns to one of text; what is null becomes nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = []
    for part in parts:
        column = pa.array(part) if isinstance(part, np.ndarray) else part
        texts.append(column if isinstance(column, str) else column.cast(pa.string()))
    return pc.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement="")


def _lines(file: Any, separator: str, *parts: Any) -> None:
    """Write columns as lines: the bytes of one column of text are the bytes of the file."""
    import pyarrow as pa

    lines = _text("", _text(separator, *parts), "\n")
    if not isinstance(lines, pa.Array):
        lines = lines.combine_chunks()
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32, count=len(lines) + 1, offset=4 * lines.offset)
    file.write(memoryview(lines.buffers()[2])[int(offsets[0]) : int(offsets[-1])])
