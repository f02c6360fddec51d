"""One client at a time takes a shorter path than an array of them; both must decide alike and refuse alike."""

from __future__ import annotations

import numpy as np
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.unary import OUE
from hushquery.noise.sampler import SeededBits


class Word:
    """Bits that are always the same word."""

    secret = False

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, n):
        return np.full(n, self.word, dtype=np.uint64)


def test_one_krr_client_decides_as_an_array_does():
    oracle = KRR.calibrate(7, 1)
    edges = [steps * oracle.lie for steps in range(oracle.k + 1)]
    for drawn in {0, 2**53 - 1, *edges, *(edge - 1 for edge in edges[1:]), oracle.truth - 1, oracle.truth}:
        for value in range(oracle.k):
            bits = Word((drawn << 11) + 5)
            report = oracle.randomize(value, bits)
            assert type(report) is int
            assert report == oracle.randomize_many([value], bits)[0], (drawn, value)


@pytest.mark.parametrize("value", [-1, 7, 2**70, True, 1.0, "1", None])
def test_one_krr_client_refuses_what_is_no_cell(value):
    with pytest.raises(UsageError):
        KRR.calibrate(7, 1).randomize(value, SeededBits(1))


def test_one_krr_client_takes_numpy_integers():
    oracle = KRR.calibrate(7, 1)
    assert oracle.randomize(np.int32(3), SeededBits(1)) == oracle.randomize(3, SeededBits(1))


def test_bit_vectors_are_bytes_and_nothing_like_them():
    oracle = OUE.calibrate(12, 1)
    good = b"\xff\x0f"
    assert oracle.pack(good) == oracle.unpack(good) == good
    for bad in (bytearray(good), memoryview(good), b"\xff", b"\xff\x0f\x00", b"\xff\x1f", "ab", None, 5):
        with pytest.raises(DataError):
            oracle.pack(bad)
