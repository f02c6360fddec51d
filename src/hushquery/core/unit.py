"""Unit: whose presence is hidden, and between which two worlds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hushquery.errors import UsageError

__all__ = ["Relation", "Unit"]


class Relation(StrEnum):
    """Which two data sets may not be told apart."""

    ADD_REMOVE = "add-remove"
    """One unit is there or is not there at all."""
    REPLACE_ONE = "replace-one"
    """One unit's data is exchanged for any other data; the number of units is public."""

    @classmethod
    def of(cls, text: str) -> Relation:
        """Read a relation from text.

        >>> Relation.of("add-remove")
        <Relation.ADD_REMOVE: 'add-remove'>
        """
        try:
            return cls(text)
        except ValueError:
            raise UsageError(
                f"no relation is called {text!r}",
                fix="Give add-remove (a person is in the data or not) or replace-one (a person's data is exchanged)",
            ) from None


@dataclass(frozen=True)
class Unit:
    """The unit of protection: the column that names whom we protect, and the neighbouring relation.

    Args:
        name: The column that identifies one protected unit, such as ``user`` or ``household``.
        relation: ``add-remove`` or ``replace-one``.

    >>> print(Unit("household", "add-remove"))
    one household, present or absent (add-remove)
    """

    name: str
    relation: Relation

    def __init__(self, name: str, relation: Relation | str) -> None:
        if not name or not name.strip():
            raise UsageError(
                "the unit of protection has no name", fix="Name the column that identifies a person, such as user"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "relation", Relation.of(str(relation)))

    @classmethod
    def of(cls, unit: Unit | str, relation: Relation | str | None = None) -> Unit:
        """Return the unit that a caller gave as a whole, or as the name of its column; by default add-remove.

        >>> Unit.of("user") == Unit.of(Unit("user", "add-remove"))
        True
        """
        if not isinstance(unit, Unit):
            return cls(unit, Relation.ADD_REMOVE if relation is None else relation)
        if relation is not None and Relation.of(str(relation)) is not unit.relation:
            raise UsageError(
                f"the unit is protected under {unit.relation.value}, not {relation}",
                fix="Leave the relation out, or name the unit by its column alone",
            )
        return unit

    def __str__(self) -> str:
        change = "present or absent" if self.relation is Relation.ADD_REMOVE else "with its data exchanged"
        return f"one {self.name}, {change} ({self.relation.value})"
