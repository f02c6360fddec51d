"""RAPPOR as a task collects it: any text, with no list at collection; candidates are named when decoding.

The native variant: cohort and permanent responses are functions of the device's secret, every report draws a fresh
instantaneous response. **Guarantee:** all reports of one value together cost 2h ln((1 - f/2)/(f/2)) of the f that runs,
replace-one, given the change times of the Bloom filter; docs/proofs/rappor.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import format_epsilon
from hushquery.core.estimates import Estimates
from hushquery.errors import CalibrationError, UsageError
from hushquery.local.intervals import IntArray
from hushquery.local.randomizer import ONE, Channel, Device, check_reports, loss_of_ratio
from hushquery.local.rappor.response import Chances, Encoder, Params, Variant, bloom_bits
from hushquery.local.report import bits_from, bytes_for
from hushquery.noise.sampler import Bits
from hushquery.task import Texts

if TYPE_CHECKING:
    from hushquery.local.rappor.decode import Decoded

#: The largest m (k + 1): more counts than this are never filled.
MOST_COUNTS = 2**24

#: What a table of texts is marked with: its shares are not raw ones of texts named beforehand.
SELECTED = "selected by a test of each candidate (shares are on average too high, intervals hold given selection)"

# A text that nobody has: this many random bytes.
_NOBODYS = 32
# Texts that will be looked for; RAPPOR's error depends on how many, a little.
_CANDIDATES = 100


def looked_for(candidates: Iterable[str]) -> tuple[str, ...]:
    """Return candidates as devices hash them: Unicode NFC, stripped, each once, in their order."""
    found = tuple(dict.fromkeys(Texts().cell(text).decode() for text in candidates))
    if not found:
        raise UsageError("there is no candidate to look for", fix="Use a file with one text per line")
    return found


@dataclass(frozen=True)
class Rappor(Channel):
    """RAPPOR, native. A class is a Bloom filter; its kept answer is the cohort and the permanent response.

    >>> channel = Rappor(Params(8, 1, 4, "1/4", "3/4", "1/2"))
    >>> channel.unpack(channel.pack((3, 0b101))), round(float(channel.epsilon), 4), channel.length
    ((3, 5), 2.1972, 36)
    """

    params: Params

    name: ClassVar[str] = "rappor"

    def __post_init__(self) -> None:
        if self.params.m * (self.params.k + 1) > MOST_COUNTS:
            raise UsageError(
                "RAPPOR's filter is too large for so many cohorts", why=f"m (k + 1) is above {MOST_COUNTS:,}"
            )
        if not 0 < self.params.f < 1:
            raise CalibrationError(
                "RAPPOR's f must be above 0 and below 1",
                why="at 0 the permanent response is the truth, and at 1 it says nothing",
                fix="Give for example f = 0.5",
            )

    @property
    def epsilon(self) -> Fraction:
        """Eps infinity, 2h ln((1 - f/2)/(f/2)), from the f that runs."""
        flip = int(self._chances.f / 2 * ONE)
        return 2 * self.params.h * loss_of_ratio(ONE - flip, flip)

    @property
    def report_bytes(self) -> int:
        """The cohort, then a bit for each bit of the filter."""
        return bytes_for(self.params.m) + -(-self.params.k // 8)

    @property
    def length(self) -> int:
        """Per cohort its reports, and how often each bit was on."""
        return self.params.m * (self.params.k + 1)

    @property
    def note(self) -> str:
        """Both epsilons and the filter's errors."""
        one, rate = self.params.instant_epsilon(Variant.NATIVE), self.params.bloom_false_positive_rate
        return (
            f"eps infinity {format_epsilon(self.epsilon)} for all reports of a value, eps 1 {format_epsilon(one)} for "
            f"a single one; the filter takes another text for the same with chance {rate:.2g}"
        )

    def expected_errors(self, reports: int) -> tuple[float, float]:
        """Compute the standard errors of a rare text and of the worst one, where so many clients were asked."""
        from hushquery.local.rappor.plan import share_std_error

        check_reports(reports)
        rare = share_std_error(self.params, reports, _CANDIDATES, Variant.NATIVE)
        most = share_std_error(self.params, reports, _CANDIDATES, Variant.NATIVE, most=True)
        return rare, math.hypot(most, 0.5 / math.sqrt(reports))

    def describe(self) -> dict[str, Any]:
        """Name, sizes, and chances over 2^53; ``flip`` is f/2."""
        chances, params = self._chances, self.params
        return {
            "name": self.name,
            "variant": Variant.NATIVE.value,
            **{key: getattr(params, key) for key in "khm"},
            "p": int(chances.p * ONE),
            "q": int(chances.q * ONE),
            "flip": int(chances.f / 2 * ONE),
        }

    def memo_class(self, value: bytes, device: Device) -> bytes:
        """The Bloom filter: texts with the same one share the permanent response."""
        encoder = self._encoder(device)
        return encoder.bloom(encoder.cohort(), value).to_bytes(-(-self.params.k // 8), "little")

    def answer(self, value: bytes, device: Device, bits: Bits) -> bytes:
        """The device's cohort, and the permanent response that its secret gives to the filter."""
        del bits
        encoder = self._encoder(device)
        cohort = encoder.cohort()
        return self.pack((cohort, encoder.another(device.coins).permanent(encoder.bloom(cohort, value))))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """The permanent response of a new device to a random text, which counts as one that nobody looks for.

        With this device's own coins, this and its answer to a text of the same filter would reveal more than was paid.
        """
        drawn = bits.words(_NOBODYS // 8).tobytes()
        encoder = self._encoder(device)
        cohort = encoder.cohort()
        return self.pack((cohort, encoder.another(drawn).permanent(encoder.bloom(cohort, drawn))))

    def payload(self, kept: bytes, bits: Bits) -> bytes:
        """Draw the instantaneous response anew."""
        cohort, permanent = self.unpack(kept)
        # Any secret does: the instantaneous coins are fresh.
        return self.pack((cohort, Encoder(self.params, bytes(32)).instant(permanent, bits)))

    def encode(self, answer: tuple[int, int]) -> bytes:
        """The cohort, little-endian; then the bits, bit i in bit i mod 8 of byte i div 8."""
        cohort, response = answer
        return cohort.to_bytes(bytes_for(self.params.m), "little") + response.to_bytes(-(-self.params.k // 8), "little")

    def report(self, row: Any) -> tuple[int, int]:
        """The cohort, and the bits as a number, bit 0 the lowest."""
        bits = np.packbits(row[1:].astype(np.uint8), bitorder="little").tobytes()
        return int(row[0]), int.from_bytes(bits, "little")

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Rows of the cohort and k bits."""
        width = bytes_for(self.params.m)
        cohorts = payloads[:, :width] @ (256 ** np.arange(width, dtype=np.int64))
        bits = bits_from(payloads[:, width:], self.params.k)
        if bits is None:
            raise self.malformed("bits beyond the filter are set")
        if (cohorts >= self.params.m).any():
            raise self.malformed("its cohort is out of range")
        return np.concatenate([cohorts[:, None].astype(np.uint16), bits], axis=1)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count, in each cohort, the reports and the bits that are on."""
        counts = np.zeros((self.params.m, self.params.k + 1), dtype=np.int64)
        if len(rows):
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
            cohorts, starts, sizes = np.unique(rows[:, 0], return_index=True, return_counts=True)
            counts[cohorts, 0] = sizes
            counts[cohorts, 1:] = np.add.reduceat(rows[:, 1:], starts, axis=0, dtype=np.int64)
        return counts.ravel()

    def adds_up(self, support: IntArray, n: int) -> bool:
        """Each report is of one cohort, and no bit of a cohort is on more often than it reported."""
        if not super().adds_up(support, n):
            return False
        counts = support.reshape(self.params.m, self.params.k + 1)
        return int(counts[:, 0].sum()) == n and bool((counts[:, 1:] <= counts[:, :1]).all())

    def table(
        self, support: IntArray, n: int, level: float, labels: Sequence[str], *, records: int = 1, repeats: int = 1
    ) -> Estimates:
        """See :meth:`decoded`; the labels are the candidates."""
        del n, records
        return self.decoded(support, labels, repeats=repeats).table(level)

    def decoded(self, support: IntArray, candidates: Iterable[str], *, repeats: int = 1) -> Decoded:
        """Find which candidates clients hold: the shares of those that pass the Bonferroni test."""
        # Takes a second to load, and clients never decode.
        from hushquery.local.rappor.decode import decode
        from hushquery.local.rappor.files import Candidates

        listed = looked_for(candidates)
        k, m = self.params.k, self.params.m
        on = tuple(
            np.unique(
                [c * k + bit for c in range(m) for bit in bloom_bits(self.params, Variant.NATIVE, c, one.encode())]
            )
            for one in listed
        )
        hashed = Candidates(listed, on)
        return decode(self.params, support.reshape(m, k + 1), hashed, variant=Variant.NATIVE, repeats=repeats)

    @property
    def _chances(self) -> Chances:
        return self.params.chances(Variant.NATIVE)

    def _encoder(self, device: Device) -> Encoder:
        return Encoder(self.params, device.secret, task=device.task)
