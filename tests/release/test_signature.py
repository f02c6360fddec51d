"""Signed releases: what a forger may do, and what a key in the wrong place gives away."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

import hushquery as hq
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.release import PublicKey, SigningKey, verify
from hushquery.release.release import manifest_bytes, parquet_bytes, sha256, sign
from hushquery.release.signature import Signature
from hushquery.release.verification import sign_release
from small_releases import private_hybrid, shares_of

ABOUT = hq.Description(title="A week", publisher="Example Library")


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "publisher.key"
    SigningKey.new().save(path)
    return path


@pytest.fixture(scope="module")
def signed(tmp_path_factory, key):
    release = private_hybrid()
    release.manifest["description"] = ABOUT.to_json()
    return release.save(tmp_path_factory.mktemp("signed") / "release", sign=key)


@pytest.fixture
def folder(signed, tmp_path):
    return Path(shutil.copytree(signed, tmp_path / "release"))


def public(key):
    return f"{key}.pub"


def problems(folder, key=None):
    result = verify(folder, key)
    assert result.ok is not bool(result.problems)
    if key is None and result.problems:  # then nothing else takes it for a release either
        with pytest.raises(DataError, match="can't be used as a release"):
            hq.Release.load(folder)
    assert not (result.trusted and result.problems)
    return "; ".join(result.problems)


def rehashed(folder, change):
    """Change the manifest as a forger does, who computes every hash anew."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(manifest)))


def rewritten(folder, **changes):
    data = json.loads((folder / "signature.json").read_bytes())
    (folder / "signature.json").write_text(json.dumps({**data, **changes}))


def test_a_signed_release_is_whole_and_says_by_whom(folder, key):
    mine = PublicKey.load(public(key))
    for trusted in (public(key), mine, mine.fingerprint):
        result = verify(folder, trusted)
        assert (result.ok, result.trusted) == (True, True)
        assert result.to_json()["signature"] == {
            **{"algorithm": "Ed25519", "fingerprint": mine.fingerprint, "signer": "Example Library", "trusted": True}
        }
    unchecked = verify(folder)
    assert unchecked.ok
    assert not unchecked.trusted
    page = (folder / "report.html").read_text("utf-8")
    assert mine.fingerprint in page
    assert "This page can’t check that" in page
    loaded = hq.Release.load(folder)
    assert loaded.signature is not None
    assert loaded.signature.fingerprint == mine.fingerprint


def test_an_unsigned_one_fails_where_a_key_is_given(folder, key):
    (folder / "signature.json").unlink()
    assert problems(folder) == ""
    assert "not signed" in problems(folder, public(key))


def test_a_changed_cell_with_every_hash_rewritten(folder, key):
    other = shares_of({"news": 0.4, "rain": 0.3})
    table = hq.Release.load(folder).tables["queries"]
    data = parquet_bytes(table.slice(0, table.num_rows))
    (folder / "queries.parquet").write_bytes(data)
    assert problems(folder, public(key)) == ""  # the same bytes
    forged = parquet_bytes(other.tables["queries"])
    (folder / "queries.parquet").write_bytes(forged)
    rehashed(folder, lambda m: m["files"]["queries.parquet"].update(sha256=sha256(forged), rows=2))
    assert "the signature is of another manifest.json" in problems(folder)


def test_rewritten_words_in_the_manifest(folder, key):
    rehashed(folder, lambda m: m["notes"].append("trust me"))
    assert "the signature is of another manifest.json" in problems(folder, public(key))


def test_a_hash_put_right_in_the_signature_too(folder, key):
    rehashed(folder, lambda m: m["notes"].append("trust me"))
    rewritten(folder, sha256=sha256((folder / "manifest.json").read_bytes()))
    assert "not one that its key made" in problems(folder)
    assert "not one that its key made" in problems(folder, public(key))


def test_the_signature_of_another_release_of_the_same_publisher(folder, key, tmp_path):
    other = shares_of({"news": 0.4}).save(tmp_path / "other", sign=key)
    shutil.copy(other / "signature.json", folder / "signature.json")
    assert "the signature is of another manifest.json" in problems(folder, public(key))


def test_signed_anew_with_another_key(folder, key):
    forger = SigningKey.new()
    rehashed(folder, lambda m: m["notes"].append("trust me"))
    manifest = (folder / "manifest.json").read_bytes()
    forger.sign("release", "manifest.json", manifest, "Example Library").write(folder, force=True)
    assert "signed with another key" in problems(folder, public(key))
    assert "signed with another key" in problems(folder, PublicKey.load(public(key)).fingerprint)
    # With the publisher's public key written in, the file contradicts itself.
    mine = PublicKey.load(public(key))
    rewritten(folder, fingerprint=mine.fingerprint)
    assert "damaged" in problems(folder, public(key))
    rewritten(folder, public_key=base64.b64encode(mine.raw).decode())
    assert "not one that its key made" in problems(folder, public(key))


@pytest.mark.parametrize(("kind", "name"), [("estimate", "manifest.json"), ("release", "estimates.json"), ("", "")])
def test_a_signature_for_another_purpose(folder, key, kind, name):
    manifest = (folder / "manifest.json").read_bytes()
    made = SigningKey.load(key).sign(kind, name, manifest, "Example Library")
    made.write(folder, force=True)
    assert "the signature" in problems(folder, public(key))
    rewritten(folder, signed="manifest.json")
    assert "not one that its key made" in problems(folder, public(key))


def test_the_bare_hash_signed_by_another_program(folder, key):
    private = form.load_pem_private_key(key.read_bytes(), None)
    digest = sha256((folder / "manifest.json").read_bytes())
    for message in (digest.encode(), bytes.fromhex(digest), (folder / "manifest.json").read_bytes()):
        rewritten(folder, signature=base64.b64encode(private.sign(message)).decode())
        assert "not one that its key made" in problems(folder, public(key))


def test_another_signer_than_the_publisher(folder, key):
    manifest = (folder / "manifest.json").read_bytes()
    SigningKey.load(key).sign("release", "manifest.json", manifest, "Somebody Else").write(folder, force=True)
    assert "another publisher" in problems(folder, public(key))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"{}" + b" " * 20_000,
        b"[" * 10_000,
        {"algorithm": "none"},
        {"format": "x"},
        {"format_version": 2},
        {"signature": ""},
        {"signature": "!"},
        {"signature": None},
        {"signer": 5},
        {"public_key": ""},
        {"public_key": base64.b64encode(bytes(31)).decode()},
        {"public_key": 7},
        {"sha256": "0" * 64},
        {"more": 1},
    ],
)
def test_a_damaged_signature(folder, key, damage):
    if isinstance(damage, bytes):
        (folder / "signature.json").write_bytes(damage)
    else:
        rewritten(folder, **damage)
    assert problems(folder)
    assert problems(folder, public(key))


def test_every_truncation(folder, key):
    whole = (folder / "signature.json").read_bytes()
    for length in range(len(whole) - 1):
        (folder / "signature.json").write_bytes(whole[:length])
        try:
            assert Signature.read(folder) is None
        except DataError:
            continue
        raise AssertionError(length)
    missing = {name: value for name, value in json.loads(whole).items() if name != "signature"}
    (folder / "signature.json").write_text(json.dumps(missing))
    assert "damaged" in problems(folder)


def test_a_manifest_that_lists_its_own_signature(folder):
    rehashed(folder, lambda m: m["files"].update({"signature.json": {"sha256": "0" * 64}}))
    assert "lists files that no release has" in problems(folder)


def test_a_release_that_is_not_whole_is_not_signed(folder, key):
    before = (folder / "signature.json").read_bytes()
    (folder / "queries.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match="can't be signed"):
        sign_release(folder, key, force=True)
    assert (folder / "signature.json").read_bytes() == before


def test_a_folder_that_exists_is_signed_once(folder, key):
    with pytest.raises(UsageError, match="signed already"):
        sign_release(folder, key)
    other = SigningKey.new()
    assert sign_release(folder, other, force=True).fingerprint == other.public.fingerprint
    assert verify(folder, other.public.fingerprint).trusted
    assert {path.name for path in folder.iterdir()} == {path.name for path in folder.iterdir() if path.name[0] != "."}


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_the_private_key_is_its_owners_alone(tmp_path):
    private, beside = SigningKey.new().save(tmp_path / "k")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"PRIVATE" not in beside.read_bytes()
    for taken in (tmp_path / "k", tmp_path / "x"):
        (tmp_path / "x.pub").touch()
        before = private.read_bytes()
        with pytest.raises(UsageError, match="exists already"):
            SigningKey.new().save(taken)
        assert private.read_bytes() == before
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o777])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    private, _ = SigningKey.new().save(tmp_path / "k")
    private.chmod(mode)
    with pytest.raises(UsageError, match="can be read by others"):
        SigningKey.load(private)


def test_a_passphrase(tmp_path):
    made = SigningKey.new()
    private, _ = made.save(tmp_path / "k", "horse battery")
    assert b"ENCRYPTED" in private.read_bytes()
    assert SigningKey.load(private, "horse battery").public == made.public
    assert SigningKey.load(private, lambda: "horse battery").public == made.public
    for wrong in (None, "", "horse"):
        with pytest.raises(UsageError, match="passphrase"):
            SigningKey.load(private, wrong)
    with pytest.raises(UsageError, match="empty"):
        made.save(tmp_path / "other", "")


def other_keys(tmp_path):
    """Files that are no private key of ours, each with words that must not be shown."""
    curve = ec.generate_private_key(ec.SECP256R1())
    pem = curve.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    yield "curve", pem
    whole = SigningKey.new().save(tmp_path / "whole")[0].read_bytes()
    yield "cut", whole[:-40]
    yield "turned", whole[:40] + whole[60:80] + whole[40:60] + whole[80:]
    yield "garbage", b"MC4CAQAwBQYDK2VwBCIEIKsecretsecretsecret"
    yield "empty", b""
    yield "bytes", bytes(range(256))
    yield "long", b"A" * 50_000


def test_errors_never_show_a_key(tmp_path):
    for name, data in other_keys(tmp_path):
        path = tmp_path / name
        path.write_bytes(data)
        path.chmod(0o600)
        for load in (SigningKey.load, PublicKey.load):
            with pytest.raises(HushqueryError) as caught:
                load(path)
            assert caught.value.__cause__ is None
            told = f"{caught.value} {caught.value.as_dict()}"
            pieces = [data[i : i + 8].decode("latin-1") for i in range(28, max(28, len(data) - 40), 4)]
            assert not any(piece in told for piece in pieces if piece.strip()), name
    key = SigningKey.new()
    private, _ = key.save(tmp_path / "shown")
    secret = private.read_text().splitlines()[1]
    assert repr(key) == f"SigningKey({key.public.fingerprint})"
    assert secret not in f"{key} {vars(key)}"
    with pytest.raises(UsageError, match="is a private key") as caught:
        PublicKey.load(private)
    assert secret not in str(caught.value)


def test_the_halves_are_not_taken_for_each_other(tmp_path, folder):
    private, beside = SigningKey.new().save(tmp_path / "k")
    beside.chmod(0o600)
    with pytest.raises(UsageError, match="is a public key"):
        SigningKey.load(beside)
    with pytest.raises(UsageError, match="is a private key"):
        verify(folder, private)
    with pytest.raises(UsageError, match="can't be read"):
        verify(folder, tmp_path / "nothing.pub")
    with pytest.raises(UsageError, match="not a whole fingerprint"):
        verify(folder, "SHA256:abc")


def test_openssl_reads_both_halves(tmp_path):
    made = SigningKey.new()
    private, beside = made.save(tmp_path / "k")
    assert form.load_pem_public_key(beside.read_bytes()).public_bytes_raw() == made.public.raw
    spki = form.load_pem_private_key(private.read_bytes(), None).public_key()
    der = spki.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    assert made.public.to_pem() == spki.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo).decode()
    assert made.public.fingerprint == "SHA256:" + base64.b64encode(bytes.fromhex(sha256(der))).decode().rstrip("=")
