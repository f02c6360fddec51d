"""Reports as bytes: canonical, and nothing else is read. And what the oracles refuse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.configuration import ORACLES, choose_oracle
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH, PRIME
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import MOST_CELLS
from hushquery.local.report import bytes_for
from statistical import bits

RANDOMIZERS = {
    "binary": KRR.calibrate(2, 1),
    "krr": KRR.calibrate(300, 2),
    "oue": OUE.calibrate(11, 1),
    "oue of whole bytes": OUE.calibrate(16, 1),
    "olh": OLH.calibrate(300, 2),
    "subset as a list": SubsetSelection.calibrate(300, 3),
    "subset as bits": SubsetSelection.calibrate(21, "1/2"),
    "hadamard": Hadamard.calibrate(300, 1),
    "two-stage": TwoStage.calibrate((3, 0, 2), 2),
}
EVERY = pytest.mark.parametrize("name", RANDOMIZERS)


@EVERY
def test_reports_round_trip(name):
    oracle = RANDOMIZERS[name]
    source = bits("bytes", name)
    for i in range(60):
        report = oracle.randomize(i % oracle.k, source)
        data = oracle.pack(report)
        assert len(data) == oracle.report_bytes
        assert oracle.unpack(data) == report


@EVERY
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_as_packed_or_refused(name, data):
    oracle = RANDOMIZERS[name]
    try:
        report = oracle.unpack(data)
    except DataError:
        with pytest.raises(DataError):
            oracle.unpack(data)
        return
    assert oracle.pack(report) == data
    assert oracle.support(oracle.unpack_many(np.frombuffer(data, dtype=np.uint8)[None])).sum() >= 0


@EVERY
@given(draw=st.data())
def test_bytes_of_the_right_length_are_read_as_packed_or_refused(name, draw):
    oracle = RANDOMIZERS[name]
    data = draw.draw(st.binary(min_size=oracle.report_bytes, max_size=oracle.report_bytes))
    try:
        report = oracle.unpack(data)
    except DataError:
        return
    assert oracle.pack(report) == data
    assert oracle.support(oracle.unpack_many(np.frombuffer(data, dtype=np.uint8)[None])).max() <= 1


def test_every_two_bytes_of_a_small_subset_are_read_only_if_they_are_canonical():
    oracle = SubsetSelection.calibrate(17, 1, omega=2)  # a list of two cells, or as many bytes of bits: a list
    assert oracle.report_bytes == 2
    read = 0
    for first, second in itertools.product(range(20), repeat=2):
        data = bytes([first, second])
        if first < second < 17:
            assert oracle.unpack(data) == (first, second)
            read += 1
        else:
            with pytest.raises(DataError):
                oracle.unpack(data)
    assert read == 17 * 16 // 2


def test_spare_bits_are_zero():
    oracle = OUE.calibrate(11, 1)
    assert oracle.unpack(b"\xff\x07") == b"\xff\x07"
    for last in (0x08, 0x10, 0x80, 0xFF):
        with pytest.raises(DataError, match="beyond its last cell"):
            oracle.unpack(bytes([0, last]))
        with pytest.raises(DataError, match="beyond its last cell"):
            oracle.support(np.array([[0, last]], dtype=np.uint8))
    chosen = SubsetSelection.calibrate(21, "1/2", omega=4)
    with pytest.raises(DataError):
        chosen.unpack(b"\x03\x01\x20")  # a bit for cell 21 of 21


def test_known_bytes():
    assert KRR.calibrate(300, 1).pack(258) == b"\x02\x01"
    assert OUE.calibrate(11, 1).unpack(b"\x01\x04") == b"\x01\x04"  # cells 0 and 10
    assert OUE.calibrate(11, 1).support(np.array([[1, 4]], dtype=np.uint8)).nonzero()[0].tolist() == [0, 10]
    assert OLH.calibrate(300, 2).pack((5 * PRIME + 7, 3)) == (5 * PRIME + 7).to_bytes(8, "little") + b"\x03"
    assert Hadamard.calibrate(300, 1).pack((300, 1)) == (601).to_bytes(2, "little")
    assert SubsetSelection.calibrate(300, 3, omega=2).pack((1, 299)) == b"\x01\x00\x2b\x01"
    assert SubsetSelection.calibrate(21, "1/2", omega=4).pack((0, 1, 8, 20)) == b"\x03\x01\x10"


@EVERY
@pytest.mark.parametrize(
    "bad",
    [None, -1, 10**6, 10**30, 1.5, True, "0", b"", b"\xff" * 40, (), (1,), (0, 0), (2, 1), (-1, 0), (0, 2**70), [0, 1]],
)
def test_what_is_no_report_is_refused_and_not_shown(name, bad):
    oracle = RANDOMIZERS[name]
    if name in ("olh", "hadamard") and bad in [(0, 0), (2, 1)]:
        assert oracle.unpack(oracle.pack(bad)) == bad
        return
    with pytest.raises(DataError, match=f"no {oracle.name} report") as error:
        oracle.pack(bad)
    assert "1000000" not in str(error.value)


@pytest.mark.parametrize("bad", [True, False, np.True_, 2.0, "2", None, -1, 2**63, [2], 7])
def test_what_is_no_cell_is_no_krr_report(bad):
    with pytest.raises(DataError, match="no krr report"):
        KRR.calibrate(7, 1).pack(bad)


@EVERY
def test_arrays_of_the_wrong_shape_or_kind_are_refused(name):
    oracle = RANDOMIZERS[name]
    for bad in (
        np.zeros((2, 2, 2), dtype=np.int64),
        np.full((2, 97), 1, dtype=np.int64),
        np.array([[0.5]]),
        np.array(0),
    ):
        with pytest.raises(DataError):
            oracle.support(bad)
    good = oracle.randomize_many([0, 1], bits("shape"))
    assert np.array_equal(oracle.support(good[:0]), np.zeros(oracle.k))
    assert len(oracle.randomize_many([], bits("none"))) == 0
    if good.dtype == np.int64:
        for broken in (good - 10**6, good + 2**62):
            with pytest.raises(DataError):
                oracle.support(broken)


@EVERY
@pytest.mark.parametrize("bad", [[-1], [10**6], [1.0], [True], ["0"], [[0]], 0, [None], [2**70]])
def test_values_that_are_no_cells_are_refused_and_not_shown(name, bad):
    with pytest.raises(UsageError) as error:
        RANDOMIZERS[name].randomize_many(bad, bits("bad"))
    assert "1000000" not in str(error.value)


@pytest.mark.parametrize("name", ORACLES)
def test_calibration_refuses_what_can_not_be(name):
    calibrate = ORACLES[name].calibrate
    for k in (1, 0, -5, True, 2.0, "3", None):
        with pytest.raises(UsageError, match="at least 2 cells"):
            calibrate(k, 1)
    with pytest.raises(CalibrationError, match="too large"):
        calibrate(MOST_CELLS + 1, 1)
    for epsilon in (0, -1, "0", float("nan"), float("inf"), "x", None):
        with pytest.raises(UsageError):
            calibrate(5, epsilon)
    with pytest.raises(CalibrationError, match="above 20"):
        calibrate(5, 21)
    with pytest.raises(CalibrationError, match="too coarse"):
        calibrate(5, "1e-16")


def test_chances_too_coarse_for_a_huge_domain_are_refused():
    with pytest.raises(CalibrationError, match="too coarse"):
        KRR.calibrate(MOST_CELLS, "1/100")
    choice = choose_oracle(MOST_CELLS, "1/100")  # another oracle can
    assert "krr" not in choice.variances
    with pytest.raises(CalibrationError, match="too coarse"):
        choose_oracle(5, "1e-16")


def test_oracles_refuse_impossible_settings():
    with pytest.raises(UsageError, match="subset"):
        SubsetSelection.calibrate(5, 1, omega=5)
    with pytest.raises(UsageError, match="buckets"):
        OLH.calibrate(5, 1, g=1)
    with pytest.raises(UsageError, match="modulus"):
        OLH.calibrate(9, 1, prime=7)
    for large in (
        OUE.calibrate(40, 1),
        OLH.calibrate(40, 1),
        SubsetSelection.calibrate(60, 1),
        Hadamard.calibrate(2**21, 1),
    ):
        with pytest.raises(UsageError, match="too many"):
            large.law(0)
    with pytest.raises(UsageError, match="share"):
        TwoStage.calibrate((1,), 1, query_share=1)
    with pytest.raises(UsageError, match="mode"):
        TwoStage.calibrate((1,), 1, mode="loose")
    for urls in ((-1,), (1.5,), ("1",), (True,)):
        with pytest.raises(UsageError, match="urls"):
            TwoStage.calibrate(urls, 1)
    with pytest.raises(CalibrationError, match="too large"):
        TwoStage.calibrate((MOST_CELLS,), 1)


def test_bytes_for_the_largest_number():
    assert [bytes_for(n) for n in (1, 2, 256, 257, 2**16, 2**16 + 1)] == [1, 1, 1, 2, 2, 3]
