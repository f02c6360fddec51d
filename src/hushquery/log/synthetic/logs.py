"""Write a synthetic search log, with no real person in it, chunk by chunk: as batches or files of any format."""

from __future__ import annotations

import contextlib
import gzip
import operator
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hushquery.errors import DataError, UsageError
from hushquery.log.synthetic.language import FEARS, RESULTS, Ints
from hushquery.log.synthetic.people import PROFILES, Chunk, Profile, draw_chunk
from hushquery.log.synthetic.private import which_private

__all__ = ["FEARS", "MOST_USERS", "PROFILE_NAMES", "batches", "which_private", "write_log"]

#: The names of the profiles.
PROFILE_NAMES: tuple[str, ...] = tuple(PROFILES)

#: The most users a synthetic log can have.
MOST_USERS = 100_000_000

_ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")
_START = np.datetime64("2026-03-01T00:00:00", "us")
# A prime above the number of users: multiplying permutes, so that near users have far ids.
_USER_PRIME, _USER_STEP = 999_999_937, 618_033_989
_COLUMNS = ("user", "time", "query", "url", "rank")
_AOL_COLUMNS = ("AnonID", "Query", "QueryTime", "ItemRank", "ClickURL")

_Progress = Callable[[int, int], None] | None


def batches(profile: str = "aol", users: int = 1000, seed: int = 0) -> Iterator[Any]:
    """Yield a synthetic log as Arrow record batches, one for each chunk of users, ordered by user and time.

    A search with several clicks repeats its row. With the same seed, a log of fewer users begins a log of more.
    Profiles are ``aol``, ``yandex`` (term ids for words) and ``tiny`` (small and quick, for docs and tests).

    >>> next(batches("tiny", users=1)).schema.names
    ['user', 'time', 'query', 'url', 'rank']
    """
    shape, users, seed = _checked(profile, users, seed)
    return (_as_batch(shape, chunk) for chunk in _chunks(shape, users, seed, None))


def write_log(
    path: str | Path,
    profile: str = "aol",
    users: int = 1000,
    seed: int = 0,
    progress: _Progress = None,
    *,
    force: bool = False,
) -> Path:
    """Write a synthetic log (see :func:`batches`) to a file, which appears only when it is complete.

    ``.parquet``, ``.csv``, ``.tsv`` and ``.jsonl`` have the columns user, time, query, url, rank; ``.txt`` is AOL's or
    Yandex's own format, by the profile. All but Parquet may end in ``.gz`` too. ``progress`` is called after each chunk
    with the users and the rows written so far; ``force`` replaces an existing file.
    """
    shape, users, seed = _checked(profile, users, seed)
    path, chunks = Path(path), _chunks(shape, users, seed, progress)
    packed = path.suffix.lower() == ".gz"
    kind = (path.with_suffix("") if packed else path).suffix.lower()
    if kind not in _ENDINGS or (packed and kind == ".parquet"):
        raise UsageError(
            f"the name {path.name} does not say which kind of file to write",
            fix=f"End it in {', '.join(_ENDINGS)}; all but .parquet may be followed by .gz",
        )
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
                    _write(file, kind, shape, chunks)
            else:
                _write(raw, kind, shape, chunks)
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


def _chunks(profile: Profile, users: int, seed: int, progress: _Progress) -> Iterator[Chunk]:
    rows = 0
    for number in range(-(-users // profile.chunk)):
        chunk = draw_chunk(profile, seed, number, min(profile.chunk, users - number * profile.chunk))
        yield chunk
        rows += len(chunk.user)
        if progress is not None:
            progress(int(chunk.user[-1]) + 1, rows)


def _checked(profile: str, users: int, seed: int) -> tuple[Profile, int, int]:
    if profile not in PROFILES:
        raise UsageError(f"there is no profile {profile!r}", fix=f"Use one of {', '.join(PROFILES)}")
    users, seed = _whole(users, "the number of users"), _whole(seed, "the seed")
    if not 1 <= users <= MOST_USERS:
        raise UsageError("the number of users is out of range", fix=f"Give a number from 1 to {MOST_USERS:,}")
    if not 0 <= seed < 2**64:
        raise UsageError("the seed is out of range", fix="Give a whole number from 0 to 2^64 - 1")
    return PROFILES[profile], users, seed


def _whole(value: int, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is not a whole number", fix="Give one, such as 1000") from None


def _as_batch(profile: Profile, chunk: Chunk) -> Any:
    """Return a chunk as a record batch, with times in microseconds, as Parquet and DuckDB have them."""
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


def _write(file: Any, kind: str, profile: Profile, chunks: Iterator[Chunk]) -> None:
    if kind == ".parquet":
        types = (pa.string(), pa.timestamp("us"), pa.string(), pa.string(), pa.int64())
        schema = pa.schema(list(zip(_COLUMNS, types, strict=True)))
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for chunk in chunks:
                writer.write_batch(_as_batch(profile, chunk))
        return
    header = {".csv": ",".join(_COLUMNS), ".tsv": "\t".join(_COLUMNS)}.get(kind)
    if kind == ".txt" and not profile.terms:
        header = "\t".join(_AOL_COLUMNS)
    if header is not None:
        file.write(f"{header}\n".encode())
    for chunk in chunks:
        if kind == ".txt" and profile.terms:
            _write_yandex(file, profile, chunk)
        else:
            _write_batch(file, kind, _as_batch(profile, chunk))


def _write_batch(file: Any, kind: str, batch: Any) -> None:
    """Write rows as lines; no text of the log holds a separator or a quote."""
    form = "%Y-%m-%d %H:%M:%S" if kind == ".txt" else "%Y-%m-%dT%H:%M:%S"
    time = pc.strftime(batch["time"].cast(pa.timestamp("s")), format=form)
    user, query, url, rank = batch["user"], batch["query"], batch["url"], batch["rank"]
    if kind == ".txt":
        _write_lines(file, "\t", user, query, time, rank, url)
    elif kind == ".jsonl":
        url = pc.coalesce(pc.binary_join_element_wise('"', url, '"', ""), "null")
        rank = pc.coalesce(pc.cast(rank, "string"), "null")
        parts = ['{"user": "', user, '", "time": "', time, '", "query": "', query]
        _write_lines(file, "", *parts, '", "url": ', url, ', "rank": ', rank, "}")
    else:
        _write_lines(file, "," if kind == ".csv" else "\t", user, time, query, url, rank)


def _write_yandex(file: Any, profile: Profile, chunk: Chunk) -> None:
    """Write a line for every session (M), every search with its results (Q) and every click (C), in that order."""
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
    _write_lines(file, "", lines.take(order))


def _changes(ids: Ints) -> Any:
    """Return where an id differs from the one before."""
    return np.append(True, ids[1:] != ids[:-1])


def _first_of(group: Ints, value: Ints) -> Ints:
    """Return for each row the value of the first row of its group; groups are runs."""
    starts = np.flatnonzero(_changes(group))
    return np.repeat(value[starts], np.diff(np.append(starts, len(group))))


def _user_ids(user: Ints) -> Ints:
    return (user + 1) * _USER_STEP % _USER_PRIME


def _text(separator: str, *parts: Any) -> Any:
    """Join columns to one of text; what is null becomes nothing."""
    texts = []
    for part in parts:
        column = pa.array(part) if isinstance(part, np.ndarray) else part
        texts.append(column if isinstance(column, str) else column.cast(pa.string()))
    return pc.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement="")


def _write_lines(file: Any, separator: str, *parts: Any) -> None:
    """Write columns as lines: the bytes of one column of text are the bytes of the file."""
    lines = _text("", _text(separator, *parts), "\n")
    if not isinstance(lines, pa.Array):
        lines = lines.combine_chunks()
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32, count=len(lines) + 1, offset=4 * lines.offset)
    file.write(memoryview(lines.buffers()[2])[int(offsets[0]) : int(offsets[-1])])
