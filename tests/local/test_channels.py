"""What a task's mechanism offers, whatever it collects: canonical bytes, few permanent answers, unbiased tables."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statistical
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.configuration import ORACLES
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import ONE, Channel, Device
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.response import Params, permanent_epsilon

MEAN = OneBitMean.calibrate(100, 1, step=25)
BUCKETS = DBitFlip.calibrate(10, 4, 2, most=99)
MANY_BUCKETS = DBitFlip.calibrate(300, 9, 2, most=100_000)
TEXT = Rappor(Params(20, 2, 300, "1/4", "3/4", "1/2"))
TWO_STAGE = TwoStage.calibrate([2, 1, 5], 2, mode="tight")
LISTS = [cls.calibrate(k, epsilon) for cls in ORACLES.values() for k, epsilon in ((3, 1), (300, 2), (1000, "1/2"))]
ALL: list[Channel] = [MEAN, BUCKETS, MANY_BUCKETS, TEXT, TWO_STAGE, *LISTS]
NAMES = [f"{channel.name}-{channel.length}" for channel in ALL]


def device(number: int) -> Device:
    return Device(hashlib.sha256(b"%d" % number).digest(), b"t" * 32, b"c" * 32)


def value_of(channel: Channel, number: int) -> Any:
    if isinstance(channel, Rappor):
        return b"text %d" % number
    if isinstance(channel, OneBitMean):
        return number % 101
    if isinstance(channel, DBitFlip):
        return number % (channel.most + 1)
    return number % channel.length


def answers(channel: Channel, n: int) -> list[bytes]:
    bits = statistical.bits("channels", channel.name, channel.length)
    made = []
    for number in range(n):
        kept = channel.answer(value_of(channel, number), device(number), bits)
        made += [channel.payload(kept, bits), channel.payload(channel.empty(device(number), bits), bits)]
    return made


def matrix(payloads: list[bytes], width: int) -> Any:
    return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, width)


@pytest.mark.parametrize("channel", ALL, ids=NAMES)
def test_many_payloads_are_read_like_one(channel: Channel) -> None:
    payloads = answers(channel, 20)
    assert {len(payload) for payload in payloads} == {channel.report_bytes}
    rows = channel.unpack_many(matrix(payloads, channel.report_bytes))
    for payload, row in zip(payloads, rows, strict=True):
        said = channel.unpack(payload)
        assert channel.report(row) == said
        assert channel.pack(said) == payload
    assert len(channel.support(rows)) == channel.length
    assert channel.support(rows).dtype == np.int64
    half = channel.support(rows[:15]) + channel.support(rows[15:])
    assert half.tolist() == channel.support(rows).tolist()
    assert len(channel.unpack_many(matrix([], channel.report_bytes))) == 0
    assert not channel.support(channel.unpack_many(matrix([], channel.report_bytes))).any()


@pytest.mark.parametrize("channel", ALL, ids=NAMES)
def test_any_bytes_are_one_answer_or_refused_alone_and_together(channel: Channel) -> None:
    @given(st.binary(min_size=channel.report_bytes, max_size=channel.report_bytes))
    @settings(max_examples=30, deadline=None)
    def check(data: bytes) -> None:
        both = matrix([data, answer], channel.report_bytes)
        try:
            said = channel.unpack(data)
        except DataError:
            with pytest.raises(DataError):
                channel.unpack_many(both)
            return
        assert channel.pack(said) == data
        assert channel.report(channel.unpack_many(both)[0]) == said

    answer = answers(channel, 1)[0]
    check()
    for wrong in (b"", answer + b"\0", answer[:-1]):
        with pytest.raises(DataError):
            channel.unpack(wrong)


@pytest.mark.parametrize(
    ("channel", "bad"),
    [
        (MEAN, 2),
        (MEAN, True),
        (MEAN, 1.0),
        (BUCKETS, (0, 0, 1, 2, 0, 0, 0, 0)),
        (BUCKETS, (3, 2, 4, 5, 0, 0, 0, 0)),
        (BUCKETS, (0, 1, 2, 10, 0, 0, 0, 0)),
        (BUCKETS, (0, 1, 2, 3, 0, 0, 0, 2)),
        (BUCKETS, (0, 1, 2, 0, 0, 0)),
        (BUCKETS, "01230000"),
        (TEXT, (300, 0)),
        (TEXT, (-1, 0)),
        (TEXT, (0, 1 << 20)),
        (TEXT, (0, -1)),
        (TEXT, (0.0, 1)),
        (TEXT, (0,)),
    ],
)
def test_no_such_answer_can_be_packed(channel: Channel, bad: Any) -> None:
    with pytest.raises(DataError, match=f"no {channel.name} report"):
        channel.pack(bad)


@pytest.mark.parametrize(
    ("channel", "payload", "why"),
    [
        (TEXT, "2c01000000", "cohort is out of range"),
        (TEXT, "0000000010", "beyond the filter"),
        (MEAN, "02", "neither 0 nor 1"),
        (BUCKETS, "0001020310", "spare bits"),
        (BUCKETS, "0001020203", "ascending"),
        (BUCKETS, "000102ff00", "out of range"),
    ],
)
def test_no_such_payload_is_read(channel: Channel, payload: str, why: str) -> None:
    with pytest.raises(DataError) as caught:
        channel.unpack(bytes.fromhex(payload))
    assert why in caught.value.why


# ---- permanent answers ---------------------------------------------------------------------------------------


def test_a_grid_point_is_a_class_and_its_bit_follows_the_chance_of_the_value() -> None:
    bits = statistical.bits("unused")
    for value in (0, 37, 100):
        ones = 0
        for number in range(4000):
            one = device(number)
            payload = MEAN.answer(value, one, bits)
            assert payload == MEAN.answer(value, one, bits)
            ones += payload[0]
        statistical.rate(ones, 4000, MEAN.chance(value) / ONE, value)


def test_values_of_one_class_share_their_answer_and_there_are_few_classes() -> None:
    bits = statistical.bits("classes")
    for channel, values, most in (
        (MEAN, range(101), 5),
        (BUCKETS, range(100), 5),
        (MANY_BUCKETS, range(0, 100_000, 977), 10),
    ):
        for number in range(5):
            found: dict[Any, set[bytes]] = {}
            for value in values:
                name = channel.memo_class(value, device(number))
                found.setdefault(name, set()).add(channel.answer(value, device(number), bits))
            assert all(len(kept) == 1 for kept in found.values())
            assert 1 < len(found) <= most
    everything = DBitFlip.calibrate(6, 6, 2)
    assert {everything.memo_class(value, device(1)) for value in range(6)} == set(range(6))


def test_the_largest_filter_is_packed_and_read() -> None:
    """Its answers are integers of more digits than Python writes."""
    wide = Rappor(Params(2**16, 2, 4, "1/4", "3/4", "1/2"))
    kept = wide.answer(b"leeds", device(1), statistical.bits("unused"))
    assert len(kept) == wide.report_bytes == 1 + 2**13
    assert wide.pack(wide.unpack(kept)) == kept


def test_texts_with_the_same_filter_share_a_class() -> None:
    tiny = Rappor(Params(2, 1, 1, "1/4", "3/4", "1/2"))
    bits = statistical.bits("tiny")
    kept: dict[bytes, set[bytes]] = {}
    for number in range(20):
        text = b"text %d" % number
        kept.setdefault(tiny.memo_class(text, device(3)), set()).add(tiny.answer(text, device(3), bits))
    assert len(kept) == 2
    assert all(len(answer) == 1 for answer in kept.values())


def test_rappor_draws_a_fresh_response_from_the_kept_one() -> None:
    bits = statistical.bits("fresh")
    one = device(5)
    kept = TEXT.answer(b"leeds", one, bits)
    cohort, permanent = TEXT.unpack(kept)
    fresh = [TEXT.unpack(TEXT.payload(kept, bits)) for _ in range(1500)]
    assert {group for group, _ in fresh} == {cohort}
    assert len({response for _, response in fresh}) > 1000
    for bit in (0, 7, 19):
        ones = sum(response >> bit & 1 for _, response in fresh)
        statistical.rate(ones, 1500, 0.75 if permanent >> bit & 1 else 0.25, bit)


def test_rappor_costs_what_its_chances_lose() -> None:
    exact = permanent_epsilon(2, Fraction(1, 2))
    assert 0 <= exact - float(TEXT.epsilon) < 1e-12
    assert TEXT.epsilon >= Fraction("4.394449154672438765580980694876")
    for f in (0, 1):
        with pytest.raises(CalibrationError, match="f must be above 0"):
            Rappor(Params(8, 1, 4, "1/4", "3/4", f))
    with pytest.raises(UsageError, match="too large"):
        Rappor(Params(2**16, 1, 2**16, "1/4", "3/4", "1/2"))


# ---- the empty answer ----------------------------------------------------------------------------------------


def test_the_empty_bit_is_fair() -> None:
    bits = statistical.bits("fair")
    ones = sum(MEAN.empty(device(1), bits)[0] for _ in range(4000))
    statistical.rate(ones, 4000, 0.5)


def test_the_empty_histogram_answer_counts_as_spread_evenly() -> None:
    flip = BUCKETS
    bits = statistical.bits("even")
    ones = 0
    for _ in range(4000):
        said = BUCKETS.unpack(BUCKETS.empty(device(2), bits))
        assert said[:4] == flip.sampled(device(2))
        ones += said[4]
    keep = flip.keep / ONE
    statistical.rate(ones, 4000, 0.1 * keep + 0.9 * (1 - keep))


def test_the_empty_rappor_answer_depends_on_coins_alone() -> None:
    kept = {TEXT.empty(device(1), statistical.bits("empty", turn)) for turn in range(50)}
    assert len(kept) > 40
    assert len({TEXT.unpack(one)[0] for one in kept}) == 1


def test_the_empty_rappor_answer_repeats_nothing_that_the_device_tells() -> None:
    """Of two filters a random text has each one half of the time; with the device's coins its answer would be known."""
    tiny = Rappor(Params(2, 1, 1, "1/4", "3/4", "1/2"))
    repeated = 0
    for number in range(400):
        drawn = statistical.bits("nobody's", number).words(4).tobytes()
        empty = tiny.empty(device(number), statistical.bits("nobody's", number))
        repeated += empty == tiny.answer(drawn, device(number), statistical.bits("unused"))
    # Two independent responses to one filter: each of two bits is flipped in both or in neither, (5/8)^2 of 400.
    assert repeated == pytest.approx(156.25, abs=5 * (400 * 0.39 * 0.61) ** 0.5)


# ---- counting ------------------------------------------------------------------------------------------------


def test_rappor_counts_reports_and_bits_in_each_cohort() -> None:
    small = Rappor(Params(11, 2, 3, "1/4", "3/4", "1/2"))
    said = [small.unpack(payload) for payload in answers(small, 40)]
    expected = np.zeros((3, 12), dtype=np.int64)
    for cohort, response in said:
        expected[cohort, 0] += 1
        for bit in range(11):
            expected[cohort, 1 + bit] += response >> bit & 1
    payloads = matrix([small.pack(one) for one in said], small.report_bytes)
    assert small.support(small.unpack_many(payloads)).tolist() == expected.ravel().tolist()
    assert (expected[:, 0] > 0).all()


def test_dbitflip_counts_who_sampled_a_bucket_and_who_said_one() -> None:
    said = [BUCKETS.unpack(payload) for payload in answers(BUCKETS, 40)]
    sampled = [sum(bucket in one[:4] for one in said) for bucket in range(10)]
    ones = [sum(bucket in one[:4] and one[4 + one.index(bucket)] for one in said) for bucket in range(10)]
    payloads = matrix([BUCKETS.pack(one) for one in said], BUCKETS.report_bytes)
    assert BUCKETS.support(BUCKETS.unpack_many(payloads)).tolist() == [*sampled, *ones]


# ---- tables --------------------------------------------------------------------------------------------------


def test_the_average_is_unbiased_over_devices() -> None:
    bits = statistical.bits("unused")
    values = np.array([(7 * number) % 101 for number in range(6000)])
    payloads = [MEAN.answer(int(value), device(number), bits) for number, value in enumerate(values)]
    rows = MEAN.unpack_many(matrix(payloads, 1))
    table = MEAN.table(MEAN.support(rows), 6000, 0.95, [])
    assert [row.label for row in table] == ["mean"]
    assert abs(table.rows[0].value - values.mean()) < 6 * table.rows[0].stderr


HELD = (13, 13, 55, 99)


@pytest.mark.parametrize("channel", [BUCKETS, TWO_STAGE], ids=["dbitflip", "two-stage"])
def test_tables_are_near_the_truth(channel: Channel) -> None:
    bits = statistical.bits("table", channel.name)
    labels = BUCKETS.ranges() if channel is BUCKETS else [str(cell) for cell in range(channel.length)]
    values = [value_of(channel, HELD[number % 4]) for number in range(6000)]
    cells = [BUCKETS.bucket(value) if channel is BUCKETS else value for value in values]
    payloads = [channel.answer(value, device(number), bits) for number, value in enumerate(values)]
    support = channel.support(channel.unpack_many(matrix(payloads, channel.report_bytes)))
    table = channel.table(support, len(values), 0.95, labels)
    assert [row.label for row in table] == labels
    for cell, row in enumerate(table):
        assert abs(row.value - cells.count(cell) / len(cells)) < 6 * row.stderr, row.label
