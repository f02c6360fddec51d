"""Bits: where they come from, that a seeded stream does not depend on how it is cut, and that nothing biases them."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hushquery.noise
from hushquery.errors import UsageError
from hushquery.noise import sampler as module
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import KeyedBits, SeededBits, SystemBits, below, one_word, sampler
from hushquery.noise.survivors import lifted_keys
from statistical import bits, every_position, fit, mean, rate, tally

WORD = 2**64


class Script:
    """Bits that give the words of a list, and tell how many were asked for."""

    secret = False

    def __init__(self, *words):
        self.left = list(words)
        self.given = []

    def words(self, n):
        out, self.left = self.left[:n], self.left[n:]
        assert len(out) == n, "more words were asked for than the test wrote down"
        self.given += out
        return np.array(out, dtype=np.uint64)


# ---- the operating system ------------------------------------------------------------------------------------------


def test_system_bits_are_os_urandom_unchanged(monkeypatch):
    asked = []

    def urandom(n):
        asked.append(n)
        return bytes(range(n))

    monkeypatch.setattr(module.os, "urandom", urandom)
    assert SystemBits().words(3).tobytes() == bytes(range(24))
    assert one_word(SystemBits()) == int.from_bytes(bytes(range(8)), "little")
    assert asked == [24, 8]
    assert SystemBits().words(0).tolist() == []


def test_every_draw_takes_its_words_from_the_system(monkeypatch):
    """With the system's generator replaced by a recorded stream, every value is a function of that stream."""

    def drawn(stream):
        monkeypatch.setattr(module.os, "urandom", lambda n: stream.words(n // 8).tobytes())
        system = SystemBits()
        positions, noisy = lifted_keys(50_000, 3, 9, DiscreteLaplace(Fraction(2)), system)
        return [
            sampler(RoundedGaussian(Fraction(3))).draw(1000, system).tolist(),
            below(system, 10, 100).tolist(),
            positions.tolist(),
            noisy.tolist(),
        ]

    first, second = drawn(bits("system", 1)), drawn(bits("system", 1))
    assert first == second
    assert drawn(bits("system", 2)) != first
    assert sum(len(part) for part in first) > 1500


def test_noise_imports_no_other_generator():
    """The lint rule bans them; this holds where nobody lints."""
    banned = {"random", "secrets", "numpy.random", "scipy.stats", "uuid", "time"}
    folder = Path(hushquery.noise.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not banned & {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in banned, path
                assert not banned & {f"{node.module}.{alias.name}" for alias in node.names}, path
            if isinstance(node, ast.Attribute):
                assert not (
                    node.attr == "random" and isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
                )


def test_only_the_systems_bits_are_secret():
    assert SystemBits().secret
    assert not SeededBits(1).secret


# ---- seeds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[1] * 50, [0, 3, 0, 47], [65_535, 1, 1, 65_536, 7], [200_000], [1, 199_999]])
def test_a_seeded_stream_does_not_depend_on_how_it_is_cut(cuts):
    total = sum(cuts)
    whole, source = SeededBits("cut").words(total), SeededBits("cut")
    assert np.array_equal(np.concatenate([source.words(n) for n in cuts]), whole)


def test_a_seeded_stream_never_repeats_its_blocks():
    words = SeededBits(1).words(4 * 65_536)
    assert len(np.unique(words)) == len(words)


def test_seeds_differ():
    streams = [SeededBits(s).words(4).tolist() for s in (0, 1, "1 ", "x", -1, 2**70)]
    assert len({tuple(s) for s in streams}) == len(streams)
    assert SeededBits(1).words(4).tolist() == SeededBits("1").words(4).tolist()


def test_seeded_words_are_uniform():
    words = bits("uniform").words(400_000)
    for shift in (0, 17, 32, 60):
        nibbles = ((words >> np.uint64(shift)) & np.uint64(15)).astype(np.int64)
        fit(tally(nibbles), dict.fromkeys(range(16), 1 / 16))
    mean(words.astype(np.float64) / WORD, 0.5, 1 / 12)
    for bit in range(0, 64, 9):
        rate(int(((words >> np.uint64(bit)) & np.uint64(1)).sum()), len(words), 0.5, f"bit {bit}")


# ---- uniform integers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7, 1000, 2**32 + 1, 2**62 + 1, 2**63 - 1, 2**63])
def test_below_accepts_a_whole_number_of_rounds_and_no_more(limit):
    """The largest accepted word is the end of a round, the next one is thrown away: each residue is equally likely."""
    accepted = WORD - WORD % limit
    words = [accepted - 1, 0, limit - 1, limit % accepted, *([accepted] if accepted < WORD else []), WORD - 1]
    kept = [w for w in words if w < accepted]
    padding = [5] * 40
    source = Script(*words, *padding)
    got = below(source, limit, len(kept)).tolist()
    assert got == [w % limit for w in kept]
    assert got[0] == limit - 1


@pytest.mark.parametrize("limit", [2, 3, 6, 10])
def test_below_is_uniform(limit):
    seen = tally(below(bits("below", limit), limit, 300_000))
    law = dict.fromkeys(range(limit), 1 / limit)
    every_position(seen, law)
    fit(seen, law)


def test_below_where_modulo_bias_would_be_a_third():
    """At 3 * 2^62 a modulo would make the lowest third twice as likely."""
    with pytest.raises(UsageError):
        below(bits("never"), 3 * 2**62, 1)
    limit = 2**63 - 2**61  # 3/4 of 2^63: words modulo it would favour the lowest third
    draws = below(bits("bias"), limit, 300_000)
    assert draws.min() >= 0
    assert draws.max() < limit
    rate(int((draws < limit // 3).sum()), len(draws), 1 / 3)


@pytest.mark.parametrize("limit", [0, -1, 2**63 + 1, 2**64])
def test_below_refuses_limits_it_can_not_hold(limit):
    with pytest.raises(UsageError):
        below(SeededBits(1), limit, 1)


def test_below_nothing_is_nothing():
    assert below(SeededBits(1), 5, 0).tolist() == []


def test_keyed_bits_repeat_for_their_key_and_for_no_other() -> None:
    keys = [bytes(32), bytes(31) + b"\1", b"k" * 32]
    streams = [KeyedBits(key).words(1000).tolist() for key in keys]
    assert streams == [KeyedBits(key).words(1000).tolist() for key in keys]
    assert len({tuple(stream) for stream in streams}) == len({KeyedBits(key).name for key in keys}) == 3
    # Neither the name nor the bits of a test give anything of the stream away.
    assert KeyedBits(keys[0]).secret
    assert SeededBits(keys[0].decode()).words(1000).tolist() not in streams
    assert not any(f"{word:016x}" in KeyedBits(keys[0]).name for word in streams[0])
    for short in (b"", bytes(31), bytes(33)):
        with pytest.raises(UsageError, match="32 bytes"):
            KeyedBits(short)
