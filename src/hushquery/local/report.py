"""Report format v1: what leaves a device, byte by byte.

::

    offset  length
         0       1  version, 1
         1      16  report id: random, made by the client
        17      32  task id: SHA-256 of the task's canonical form
        49      32  configuration hash: SHA-256 of domain and mechanism
        81       8  time in seconds since 1970 (UTC), a multiple of the task's time precision
        89       2  length n of the payload
        91       n  payload: the mechanism's canonical bytes

Numbers are unsigned and big-endian. The JSON form has the same fields, bytes as base64url without padding. There is one
way to write a report: everything else is refused, by errors that never show what was in it. docs/report-format.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hushquery.errors import DataError, UsageError

if TYPE_CHECKING:
    from hushquery.local.configuration import Configuration

#: The version of this format.
VERSION = 1

#: The longest payload.
MOST_PAYLOAD = 2**16 - 1

# JavaScript counts exactly up to here.
_MOST_TIME = 2**53 - 1
#: The longest text that can be a report: its bytes in base64, and room for the names of the JSON form.
MOST_TEXT = 2 * MOST_PAYLOAD

_HEADER = struct.Struct(">B16s32s32sQH")

#: The length of everything before the payload.
HEADER_BYTES = _HEADER.size

_LENGTHS = {"id": 16, "task": 32, "configuration": 32}
_KEYS = {"version", "id", "task", "configuration", "time", "payload"}


class ReportError(DataError):
    """A report can't be accepted."""


class ReportMalformed(ReportError):
    """The bytes or the JSON are not a report."""


class ReportVersionUnknown(ReportError):
    """The report has a version that this hushquery does not know."""


class ReportOfAnotherTask(ReportError):
    """The report was made for another task."""


class ReportOfAnotherConfiguration(ReportError):
    """The report was made for this task with another domain or mechanism."""


class ReportTimeInvalid(ReportError):
    """The report's time is finer than its task allows."""


class ReportOfAnotherPeriod(ReportError):
    """The report was made in another of the task's periods than the one that is counted."""


class ReportOutOfDomain(ReportError):
    """The payload is nothing that the task's mechanism could have made."""


@dataclass(frozen=True)
class Report:
    """One report, as it leaves the device; its time is truncated seconds since 1970.

    >>> report = Report(bytes(16), bytes(32), bytes(32), 1800, b"x")
    >>> len(report.to_bytes()), Report.from_bytes(report.to_bytes()) == report
    (92, True)
    """

    id: bytes
    task: bytes
    configuration: bytes
    time: int
    payload: bytes

    def __post_init__(self) -> None:
        for name, length in _LENGTHS.items():
            value: object = getattr(self, name)
            if not isinstance(value, bytes) or len(value) != length:
                raise UsageError(f"the {name} of a report is {length} bytes")
        if not isinstance(self.payload, bytes) or len(self.payload) > MOST_PAYLOAD:
            raise UsageError(f"the payload of a report is at most {MOST_PAYLOAD:,} bytes", fix="Use a smaller domain")
        if type(self.time) is not int or not 0 <= self.time <= _MOST_TIME:
            raise UsageError("the time of a report is whole seconds since 1970")

    def to_bytes(self) -> bytes:
        """Return the report in the compact form."""
        head = _HEADER.pack(VERSION, self.id, self.task, self.configuration, self.time, len(self.payload))
        return head + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """Read the compact form; refuses everything that :meth:`to_bytes` does not write."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError("a report to be read is bytes", fix="For the JSON form use Report.from_json")
        data = bytes(data)
        if not data:
            raise _malformed("it is empty")
        if data[0] != VERSION:
            raise _unknown_version()
        if len(data) < HEADER_BYTES:
            raise _malformed(f"it is truncated: {len(data)} bytes, and the header alone has {HEADER_BYTES}")
        _, report_id, task, configuration, time, length = _HEADER.unpack_from(data)
        if len(data) < HEADER_BYTES + length:
            raise _malformed("it is truncated: its payload is shorter than it says")
        if len(data) > HEADER_BYTES + length:
            raise _malformed("there are bytes behind its end")
        if time > _MOST_TIME:
            raise _malformed("its time is out of range")
        return cls(report_id, task, configuration, time, data[HEADER_BYTES:])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form as plain data."""
        return {
            "version": VERSION,
            "id": _encode(self.id),
            "task": _encode(self.task),
            "configuration": _encode(self.configuration),
            "time": self.time,
            "payload": _encode(self.payload),
        }

    @classmethod
    def from_json(cls, data: str | bytes | Mapping[str, Any]) -> Report:
        """Read the JSON form, as text or as plain data; refuses unknown and repeated keys, and padding."""
        fields = data if isinstance(data, Mapping) else _parse(data)
        if fields.keys() != _KEYS:
            if "version" in fields and fields["version"] != VERSION:
                raise _unknown_version()
            raise _malformed(f"its keys are not {', '.join(sorted(_KEYS))}")
        if type(fields["version"]) is not int or fields["version"] != VERSION:
            raise _unknown_version()
        time = fields["time"]
        if type(time) is not int or not 0 <= time <= _MOST_TIME:
            raise _malformed("its time is not whole seconds since 1970")
        parts = {name: _decode(name, fields[name]) for name in ("id", "task", "configuration", "payload")}
        for name, length in _LENGTHS.items():
            if len(parts[name]) != length:
                raise _malformed(f"its {name} is not {length} bytes long")
        if len(parts["payload"]) > MOST_PAYLOAD:
            raise _malformed("its payload is too long")
        return cls(parts["id"], parts["task"], parts["configuration"], time, parts["payload"])

    def to_text(self) -> str:
        """Return the compact form as one word of base64url, for files with a report on each line; so does ``str``."""
        return _encode(self.to_bytes())

    def __str__(self) -> str:
        return self.to_text()

    def open(self, configuration: Configuration) -> Any:
        """Return the answer, or raise a kind of ReportError if the report was not made with this configuration."""
        if self.task != configuration.task.digest:
            raise ReportOfAnotherTask(
                "the report was made for another task",
                why="its task id is not the hash of this task",
                fix="Give the client the task file in use, and send reports to the address of their task",
            )
        if self.configuration != configuration.digest:
            raise ReportOfAnotherConfiguration(
                "the report was made with another configuration of this task",
                why="its hash of domain and mechanism is another",
                fix="Let the client fetch the head list again; reports of another one can't be counted here",
            )
        if self.time % configuration.task.collect.time_precision:
            raise ReportTimeInvalid(
                "the report's time is finer than the task allows",
                fix="Truncate it to a multiple of time_precision on the client",
            )
        try:
            return configuration.channel.unpack(self.payload)
        except DataError as error:
            raise ReportOutOfDomain(
                "the report's payload is not in the domain of the task",
                why=error.why,
                fix="Reject it; clients of this task never send it",
            ) from None


def from_base64url(text: str) -> bytes:
    """Read the bytes of a report from one word of base64url, without looking at what they say."""
    return _decode("text", text)


def _malformed(why: str) -> ReportMalformed:
    return ReportMalformed("this is not a report of format v1", why=why, fix="Send it as it came from the client")


def _unknown_version() -> ReportVersionUnknown:
    return ReportVersionUnknown(
        "the report has an unknown version", why=f"known is {VERSION}", fix="Upgrade hushquery where reports are read"
    )


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(name: str, text: object) -> bytes:
    """Read base64url without padding; a text that is not how its bytes are written is refused."""
    if isinstance(text, str) and len(text) <= MOST_TEXT and text.isascii():
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if _encode(data) == text:
            return data
    raise _malformed(f"its {name} is not base64url without padding")


def _parse(text: str | bytes) -> Mapping[str, Any]:
    if len(text) > MOST_TEXT:
        raise _malformed("it is too long")
    try:
        fields = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    if not isinstance(fields, dict):
        raise _malformed("it is not a JSON object")
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError
    return fields


def numbers_from(payloads: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Read a little-endian number from each row of at most 8 bytes."""
    wide = np.zeros((len(payloads), 8), dtype=np.uint8)
    wide[:, : payloads.shape[1]] = payloads
    return wide.view("<u8").astype(np.uint64, copy=False).reshape(len(payloads))


def bits_from(payloads: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8] | None:
    """Read ``count`` bits from rows of bytes, bit i being bit i mod 8 of byte i div 8; None if a spare bit is set.

    >>> bits_from(np.array([[5]], dtype=np.uint8), 3).tolist()
    [[1, 0, 1]]
    """
    bits = np.unpackbits(payloads, axis=1, bitorder="little")
    return None if bits[:, count:].any() else bits[:, :count]


def bytes_for(limit: int) -> int:
    """Compute how many bytes hold every integer below ``limit``."""
    return max(1, math.ceil((limit - 1).bit_length() / 8))
