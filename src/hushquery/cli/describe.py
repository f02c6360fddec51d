"""What a release says of itself, and which key signs it: options that commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery.cli.common import at_a_terminal, option
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.core.description import Description
    from hushquery.release import SigningKey

_PASSPHRASE = "HUSHQUERY_PASSPHRASE"  # noqa: S105 -- the name of the variable that holds one

Title = Annotated[str | None, option("TEXT", "What it is called, for people. Public.")]
Period = Annotated[
    str | None,
    option("START..END", "The first and last day of the data: 2026-11-02..2026-11-08; else by --since and --until."),
]
SignWith = Annotated[Path | None, option("KEY", "Sign it with this private key (`hushquery keys new`).")]


@dataclass(frozen=True)
class Described:
    """What the release says of itself; all of it is public."""

    title: Title = None
    publisher: Annotated[str | None, option("WHO", "Who publishes it.")] = None
    licence: Annotated[str | None, option("SPDX", "Its licence: CC-BY-4.0, CC0-1.0, or a short text.")] = None
    period: Period = None
    contact: Annotated[str | None, option("MAIL_OR_URL", "A mail address, or an https:// address.")] = None

    def with_people(self, people: int | None) -> Description:
        """Return the description, with a declared number of people."""
        from hushquery.core.description import Description

        return Description(self.title, self.publisher, self.licence, self.period, self.contact, people)


def signing_key(path: Path) -> SigningKey:
    """Open the key to sign with; before anything is spent."""
    from hushquery.release import SigningKey

    return SigningKey.load(path, asks(f"Passphrase of {path}"))


def asks(question: str, *, twice: bool = False) -> Callable[[], str]:
    """Return a function that gets a passphrase: from the environment, else from whoever is at the terminal."""

    def ask() -> str:
        if given := os.environ.get(_PASSPHRASE):
            return given
        if not at_a_terminal():
            raise UsageError("a passphrase is needed, and nobody can be asked", fix=f"Set {_PASSPHRASE}")
        return str(typer.prompt(question, hide_input=True, err=True, confirmation_prompt=twice))

    return ask
