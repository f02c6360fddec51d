"""``hushquery keys`` makes keys and shows their fingerprints; ``hushquery sign`` signs a release that exists."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery.cli.common import JsonFlag, argument, at_a_terminal, emit, flag, group, option
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.release import SigningKey

_PASSPHRASE = "HUSHQUERY_PASSPHRASE"  # noqa: S105 -- the name of the variable that holds one
SignWith = Annotated[Path | None, option("KEY", "Sign it with this private key (`hushquery keys new`).")]

app = group(
    "keys",
    """Make keys that sign releases, and show their fingerprints.

    A key is a pair. The private file signs: keep it for yourself. The public
    one (.pub) checks: publish it, or its fingerprint, somewhere else than the
    releases, such as your web site.
    """,
)


@app.command()
def new(
    out: Annotated[Path, option("FILE", "The private key's file; the public one is FILE.pub.")] = Path("hushquery.key"),
    passphrase: Annotated[
        bool, flag("--passphrase", "Protect it with a passphrase: you are asked, or HUSHQUERY_PASSPHRASE has it.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a new Ed25519 key.

    hushquery keys new --out publisher.key
    """
    from hushquery.release import SigningKey

    key = SigningKey.new()
    private, public = key.save(out, asks("Passphrase", twice=True)() if passphrase else None)
    data = {"private": str(private), "public": str(public), "fingerprint": key.public.fingerprint}
    text = (
        f"private key: {private} (keep it secret, and a copy of it safe)\npublic key:  {public} (publish it)\n"
        f"fingerprint: {key.public.fingerprint}"
    )
    emit(data, text, as_json)


@app.command()
def show(file: Annotated[Path, argument("FILE", "A public key.")], as_json: JsonFlag = False) -> None:
    """Show the fingerprint of a public key.

    hushquery keys show publisher.key.pub
    """
    from hushquery.release import PublicKey

    fingerprint = PublicKey.load(file).fingerprint
    emit({"public": str(file), "fingerprint": fingerprint}, fingerprint, as_json)


def sign(
    folder: Annotated[Path, argument("DIR", "The folder of a release.")],
    key: Annotated[Path, option("KEY", "The private key: `hushquery keys new` makes one.")],
    force: Annotated[bool, flag("--force", "Replace the signature that the folder has.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Sign a release that exists. `hushquery release --sign KEY` also names the key on its page.

        hushquery sign release --key publisher.key

    Only signature.json is added. A release that `hushquery verify` finds fault with is not signed.
    """
    from hushquery.release.release import check_there
    from hushquery.release.verification import sign_release

    check_there(folder)
    made = sign_release(folder, signing_key(key), force)
    text = f"{folder} is signed with {made.fingerprint}" + (f" for {made.signer}" if made.signer else "")
    emit({"release": str(folder), **made.to_json()}, text, as_json)


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
