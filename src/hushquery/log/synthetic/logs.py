"""A realistic synthetic search log, for trying things out: no person is in it.

The flow: ranks and codes (:mod:`~hushquery.log.synthetic.language`, words in
:mod:`~hushquery.log.synthetic.language`) are drawn by made-up people (:mod:`~hushquery.log.synthetic.people`) whose
private tail is in :mod:`~hushquery.log.synthetic.private`; :mod:`~hushquery.log.synthetic.logs` writes the rows. The
log is made a chunk of users at a time, so its size needs disk, not memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hushquery.errors import UsageError
from hushquery.log.synthetic.language import FEARS
from hushquery.log.synthetic.people import PROFILES, Chunk, Profile, draw_chunk
from hushquery.log.synthetic.private import is_private, which_private

__all__ = ["FEARS", "MOST_USERS", "PROFILE_NAMES", "batches", "is_private", "which_private", "write_log"]

#: The names of the profiles.
PROFILE_NAMES: tuple[str, ...] = tuple(PROFILES)

#: The most users a synthetic log can have.
MOST_USERS = 100_000_000


def batches(profile: str = "aol", users: int = 1000, seed: int = 0) -> Iterator[Any]:
    """Make a synthetic log as Arrow record batches, one for each chunk of users.

    Rows are ordered by user and time. A search with several clicks repeats its row, as in AOL's log. A log of fewer
    users with the same seed is the beginning of a log of more users.

    Args:
        profile: ``aol``, ``yandex`` (term ids for words) or ``tiny`` (small and quick, for docs and tests).
        users: How many users.
        seed: The same seed gives the same rows.

    >>> next(batches("tiny", users=1)).schema.names
    ['user', 'time', 'query', 'url', 'rank']
    """
    from hushquery.log.synthetic.logs import as_batch

    shape, users, seed = _checked(profile, users, seed)
    return (as_batch(shape, chunk) for chunk in _chunks(shape, users, seed))


def write_log(
    path: str | Path,
    profile: str = "aol",
    users: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    *,
    force: bool = False,
) -> Path:
    """Write a synthetic log to a file, whose ending says of which kind.

    ``.parquet``, ``.csv``, ``.tsv`` and ``.jsonl`` have the columns user, time, query, url, rank. ``.txt`` is the
    format of the log that the profile is like: AOL's five columns, or the lines of Yandex's personalised search. All
    but Parquet may end in ``.gz`` too. The file appears when it is complete and not before.

    Args:
        path: Where to.
        profile: As in :func:`batches`.
        users: As in :func:`batches`.
        seed: As in :func:`batches`.
        progress: Called after each chunk with the users and the rows written so far.
        force: Whether an existing file may be replaced.
    """
    from hushquery.log.synthetic.logs import write_chunks

    shape, users, seed = _checked(profile, users, seed)
    return write_chunks(Path(path), shape, _chunks(shape, users, seed), progress, force=force)


def _chunks(profile: Profile, users: int, seed: int) -> Iterator[Chunk]:
    for number in range(-(-users // profile.chunk)):
        yield draw_chunk(profile, seed, number, min(profile.chunk, users - number * profile.chunk))


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
