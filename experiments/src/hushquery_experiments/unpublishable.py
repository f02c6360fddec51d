"""Numbers that must not be published, because no noise stands between them and the true log.

How good a release is can only be said by comparing it with the log itself. Such a comparison helps a steward to choose
d, epsilon and delta, and each one that got out would be a query of the log without noise. So every result of this kind
carries a mark, in Python, in a notebook, in JSON and on paper. On a synthetic log it does no harm: nobody is in it.
"""

from __future__ import annotations

from dataclasses import fields
from html import escape
from typing import Any, ClassVar

__all__ = ["MARK", "NotPublishable", "plain"]

#: What every such result says of itself.
MARK = "NOT PUBLISHABLE: computed against the true log"


class NotPublishable:
    """The base of every dataclass whose values were computed against the true log."""

    #: Whether the result may leave the steward's hands.
    publishable: ClassVar[bool] = False

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data, the mark first."""
        return {"publishable": False, "mark": MARK} | {
            field.name: plain(getattr(self, field.name))
            for field in fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({values}; {MARK})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(f.name)}</th><td>{escape(repr(getattr(self, f.name)))}</td></tr>"
            for f in fields(self)  # type: ignore[arg-type]
        )
        return f"<p><strong>{MARK}</strong></p><table>{rows}</table>"


def plain(value: Any) -> Any:
    """Return a value, with the dataclasses and tuples inside it, as plain data."""
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value
