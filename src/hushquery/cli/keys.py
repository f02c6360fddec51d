"""``hushquery keys`` makes keys and shows their fingerprints; ``hushquery sign`` signs a release that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hushquery.cli.common import JsonFlag, argument, emit, flag, group, option
from hushquery.cli.describe import asks, signing_key

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
