"""Search files on disk for many short pieces of bytes at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

_BLOCK = 1 << 22
_PREFIX = 8  # bytes by which a place is looked at closer


class Places:
    """Where each piece was found: files and offsets."""

    def __init__(self) -> None:
        self._files: dict[str, dict[bytes, list[int]]] = {}

    def note(self, path: Path, piece: bytes, at: int) -> None:
        """Note a place."""
        name = f"pg_wal/{path.name}" if path.parent.name == "pg_wal" else path.name
        self._files.setdefault(name, {}).setdefault(piece, []).append(at)

    def found(self, pieces: Iterable[bytes]) -> dict[bytes, str]:
        """Which of these were found, with the name of a file each."""
        wanted = set(pieces)
        return {piece: name for name, first in self._files.items() for piece in first if piece in wanted}

    def by_file(self, pieces: Collection[bytes] | Mapping[bytes, int]) -> dict[str, dict[bytes, int]]:
        """For each file, the first places of those of these pieces that it has."""
        return {name: {one: at[0] for one, at in first.items() if one in pieces} for name, first in self._files.items()}

    def all_of(self, name: str, piece: bytes) -> list[int]:
        """All places of a piece in a file."""
        return self._files.get(name, {}).get(piece, [])


def search(pieces: Iterable[bytes], files: Iterable[Path]) -> Places:
    """Look for pieces of at least 8 bytes at every offset of every file."""
    by_prefix: dict[bytes, list[bytes]] = {}
    for piece in set(pieces):
        if len(piece) < _PREFIX:
            raise ValueError("a piece so short is everywhere")
        by_prefix.setdefault(piece[:_PREFIX], []).append(piece)
    longest = max((len(piece) for group in by_prefix.values() for piece in group), default=0)
    # Most places are ruled out by two of their first eight bytes, the others by all of them.
    starts = np.unique(np.frombuffer(b"".join(by_prefix), "<u8"))
    words = [np.zeros(65536, bool) for _ in range(4)]
    for place, word in enumerate(words):
        word[(starts >> np.uint64(16 * place)) & np.uint64(0xFFFF)] = True
    places = Places()
    for path in files:
        try:
            data = path.read_bytes()
        except OSError:  # it went away meanwhile
            continue
        for start in range(0, len(data), _BLOCK):
            part = data[start : start + _BLOCK + longest]
            for at in _candidates(part, words, starts):
                for piece in by_prefix.get(part[at : at + _PREFIX], ()):
                    if part.startswith(piece, at):
                        places.note(path, piece, start + at)
    return places


def _candidates(part: bytes, words: Sequence[np.ndarray], starts: np.ndarray) -> list[int]:
    raw = np.frombuffer(part, np.uint8)
    if raw.size < _PREFIX or not starts.size:
        return []
    two = raw[:-1].astype(np.uint16) | (raw[1:].astype(np.uint16) << 8)
    here = np.arange(raw.size - _PREFIX + 1)
    for place, word in enumerate(words):
        here = here[word[two[here + 2 * place]]]
    eight = np.lib.stride_tricks.sliding_window_view(raw, _PREFIX)[here].view("<u8").ravel()
    found: list[int] = here[starts[np.searchsorted(starts, eight).clip(max=starts.size - 1)] == eight].tolist()
    return found
