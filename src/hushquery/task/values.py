"""What can be reported without a list: a whole number up to a public bound, or any text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hushquery.errors import UsageError
from hushquery.task.domain import LONGEST, UnknownValue, normal_value

__all__ = ["Numbers", "Texts"]


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from 0 to a public bound.

    >>> Numbers(100).cell(37)
    37
    """

    highest: int

    kind: ClassVar[str] = "number"

    def cell(self, value: object, url: object = None) -> int:
        """Give the number back, if it is one.

        Raises:
            UnknownValue: It lies outside 0..highest. The message does not show it.
        """
        if url is not None:
            raise UsageError("only searches have a URL", fix="Leave the URL out: this task collects a number")
        if value is None:
            raise _nothing("number")
        if type(value) is not int:
            raise UsageError("a value to report is a whole number", fix="Round it on the device, and pass an int")
        if not 0 <= value <= self.highest:
            raise UnknownValue(
                "the number is not in the range of the task, so nothing is reported",
                why=f"the task collects whole numbers from 0 to {self.highest}",
                fix="Clamp it on the device, as the task's readers are told",
            )
        return value

    def to_json(self) -> dict[str, Any]:
        """Give the range as plain data, as it enters the hash of a configuration."""
        return {"kind": self.kind, "highest": self.highest}


@dataclass(frozen=True)
class Texts:
    r"""Any text, in Unicode NFC without blanks at its ends.

    >>> Texts().cell(" caf\u00e9 ")
    b'caf\xc3\xa9'
    """

    kind: ClassVar[str] = "text"

    def cell(self, value: object, url: object = None) -> bytes:
        """Give the bytes of the text in its normal form.

        Raises:
            UnknownValue: It is empty, too long or no Unicode. The message does not show it.
        """
        if url is not None:
            raise UsageError("only searches have a URL", fix="Leave the URL out: this task collects a text")
        if value is None:
            raise _nothing("text")
        if not isinstance(value, str):
            raise UsageError("a value to report is text", fix="Pass it as str")
        try:
            data = normal_value(value).encode() if len(value) <= LONGEST else b""
        except UnicodeEncodeError:
            data = b""
        if not data:
            raise UnknownValue(
                "the text can't be reported",
                why=f"the task collects Unicode texts of 1 to {LONGEST} characters",
                fix="Report a shorter text, or none",
            )
        return data

    def to_json(self) -> dict[str, Any]:
        """Give the kind as plain data, as it enters the hash of a configuration."""
        return {"kind": self.kind}


def _nothing(kind: str) -> UsageError:
    return UsageError(
        f'a {kind} task has no answer for "nothing to report"',
        fix="Call it only on devices that have a value: who is silent shows that there is none",
    )
