"""Verify that a folder is the release it claims to be, and that its parameters promise what it promises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery._version import __version__
from hushquery.core.budget import Relation, exact, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee
from hushquery.core.loss import Loss, loss_from
from hushquery.errors import DataError, HushqueryError
from hushquery.release.manifest import (
    KINDS,
    REST,
    check_measures,
    check_references,
    checked_table,
    guarantee_from_json,
    measures_of,
    plain,
    release_measure,
    steps_of,
)
from hushquery.release.page import weakness
from hushquery.release.release import CARD, MANIFEST, PAGE, Release, known_files, read_manifest, read_table, sha256
from hushquery.release.signature import SIGNATURE, PublicKey, Signature, SigningKey, check_signature, trusted_key

__all__ = ["Verification", "sign_release", "verify"]

# What damaged data raises where it is taken for data.
_DAMAGE = (HushqueryError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)

# Two epsilons this close are the same number, rounded at different times; shares add up to this much.
_SAME = 1e-9
_ROUNDING = 1e-6

# What describes the folder and not the release.
_OF_THE_FOLDER = ("files", "manifest_sha256")

# Whom a release protects, by who is trusted; who is trusted in each kind of release, and what its numbers are.
_UNITS = {"curator": "user", "local": "client"}
_KINDS: Mapping[str, tuple[tuple[tuple[str, ...], ...], tuple[str | None, ...]]] = {
    "curator": ((("curator",),), ("count", None)),
    "hybrid": ((("curator",), ("curator", "local")), ("share",)),
    "local": ((("local",),), ("estimate",)),
}
#: The entry points of checks that need more than this package knows, by kind of release: they take it and yield what
#: is wrong. Releases of the kinds named here are refused where there is none.
CHECKS, _CHECKED = "hushquery.releases", ("local",)
# The chance of a false alarm that the two groups are compared with; one half of it is for single records.
_FALSE_ALARMS = 0.01
# What reports in two stages are called: they alone are blended in another mode than the best.
_TWO_STAGE = "two-stage"


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found wrong, a sentence each. Believe the guarantees, the release's own, only if ``ok``."""

    ok: bool
    problems: tuple[str, ...]
    guarantees: tuple[Guarantee, ...]
    signature: Signature | None = None  #: who signed, if anybody did
    trusted: bool = False  #: whether it is the signature of the key that :func:`verify` was given

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is weak about the promises; a release can be whole and its promise weak."""
        return tuple(filter(None, map(weakness, self.guarantees)))

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        return {
            "ok": self.ok,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "signature": None if self.signature is None else {**self.signature.to_json(), "trusted": self.trusted},
            "guarantees": [guarantee.to_json() for guarantee in self.guarantees],
        }


def verify(folder: Path | str, key: PublicKey | Path | str | None = None) -> Verification:
    """Check a release: hashes, files, tables, what is stated twice, and its guarantee, computed anew from its steps.

    With ``key``, a public key that you trust (its file or fingerprint), the release must be signed with it. Without one
    it finds accidents and inconsistencies, not forgers: whoever changes a release can also change its hashes, and sign
    it with another key. Nothing can
    confirm what is stated once: names of people and task, its hash and epoch, day and versions, notes and meanings,
    ``robust``, ``post_processing``, ``shift_p_value``, ``rest_stderr``, ``row_counts``, the width and coverage of
    intervals, and that the steps ran as stated. What the data card shows of it has to be the same there. Of estimates
    from reports everything is computed anew but the counts of reports, the periods, and the task itself.
    """
    trusted = None if key is None else trusted_key(key)
    release, problems, manifest = _checked(Path(folder))
    if release is None:
        return Verification(False, tuple(problems), ())
    signature, wrong = check_signature(Path(folder), "release", MANIFEST, manifest.get("description"), trusted)
    problems += wrong
    known = trusted is not None and not problems
    return Verification(not problems, tuple(problems), release.guarantees, signature, known)


def sign_release(folder: Path | str, key: SigningKey | Path | str, force: bool = False) -> Signature:
    """Sign the release in a folder, if it is whole; ``force`` replaces another signature."""
    target, private = Path(folder), SigningKey.of(key)
    release, problems, _ = _checked(target)
    if release is None or problems:
        fix = "Nothing was signed; `hushquery verify` lists everything that is wrong"
        raise DataError(f"{folder} can't be signed", why="; ".join(problems[:3]), fix=fix)
    made = private.sign("release", MANIFEST, (target / MANIFEST).read_bytes(), release.description.publisher)
    made.write(target, force)
    return made


def _checked(folder: Path) -> tuple[Release | None, list[str], Mapping[str, Any]]:
    """Read a release and return it with everything that is wrong but its signature."""
    release, problems, manifest = read_release(folder)
    if release is not None:
        problems += _strange_files(folder, manifest)
        problems += _guarantee_problems(release)
        problems += _step_problems(release)
        problems += _kind_problems(release)
        problems += _disagreements(folder, release, whole=not problems)
    return release, problems, manifest


# ---- files -----------------------------------------------------------------------------------------------------------


def read_release(folder: Path) -> tuple[Release | None, list[str], Mapping[str, Any]]:
    """Read a folder as far as it goes: the release (None where there is none), what is wrong, the manifest."""
    try:
        manifest, problem = read_manifest(folder)
    except HushqueryError as error:
        return None, [_say(error)], {}
    problems = [problem] if problem else []
    tables: dict[str, pa.Table] = {}
    try:
        for name, listed in _listed(manifest).items():
            problems += _file_problems(folder / name, listed, tables)
        check_references(tables, manifest["parameters"])
        if len(tables) == len([name for name in _listed(manifest) if name.endswith(".parquet")]):  # else said above
            check_measures(manifest, measures_of(tables))
    except _DAMAGE as error:
        problems.append(_say(error))
    try:
        guarantees = tuple(guarantee_from_json(g) for g in manifest["guarantees"])
        problems += [
            f"the steps cost more than the guarantee states: epsilon {format_epsilon(g.epsilon)} does not hold at "
            f"delta {format_delta(g.delta)}"
            for g in guarantees
            if not g.loss.fits(g.epsilon, g.delta)
        ]
        if not tables or not guarantees or not all(g.steps for g in guarantees):
            problems.append(f"{MANIFEST} lacks a table, a guarantee, or the steps that a guarantee comes from")
    except _DAMAGE as error:
        return None, [*problems, f"a guarantee in {MANIFEST} can't be read: {_say(error)}"], manifest
    own = {name: value for name, value in manifest.items() if name not in _OF_THE_FOLDER}
    return Release(tables, guarantees, own), problems, manifest


def _listed(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the files the manifest lists. Their names are checked: a manifest could name a file outside the folder."""
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        raise DataError(f"{MANIFEST} does not list the files of the release", fix="Download it again")
    if set(listed) - known_files() or {MANIFEST, SIGNATURE} & set(listed):
        raise DataError(f"{MANIFEST} lists files that no release has", fix="Download it again")
    return listed


def _file_problems(path: Path, listed: Mapping[str, Any], tables: dict[str, pa.Table]) -> Iterator[str]:
    """Yield what is wrong with a file, and add the table it holds."""
    try:
        data = path.read_bytes()
    except OSError as error:
        yield f"{path.name} can't be read: {error.strerror}"
        return
    if sha256(data) != listed.get("sha256"):
        yield f"{path.name} was changed: it does not have the hash that the manifest states"
        return
    name = path.name.removesuffix(".parquet")
    if name not in KINDS:
        return
    try:
        table = read_table(data)
        tables[name] = checked_table(name, table)
    except HushqueryError as error:
        yield f"{path.name}: {_say(error)}"
        return
    if not tables[name].equals(table):
        yield f"{path.name} does not have the types or the order that a release has"
    if listed.get("rows") != table.num_rows or listed.get("columns") != table.column_names:
        yield f"{path.name} does not have the rows and columns that the manifest states"


def _strange_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    listed = manifest.get("files")
    expected = {MANIFEST, SIGNATURE, *(listed if isinstance(listed, dict) else ())}
    for entry in sorted(folder.iterdir()):
        if entry.name not in expected:
            yield f"{entry.name} is not part of the release"
    for name in (CARD, PAGE, *(f"{table}.parquet" for table in manifest["meanings"])):
        if name not in expected:
            yield f"{name} is missing from the manifest"


# ---- costs -----------------------------------------------------------------------------------------------------------


def _guarantee_problems(release: Release) -> Iterator[str]:
    """Compute each epsilon anew from the losses of the steps."""
    for stated in release.guarantees:
        try:
            again = Guarantee.of(stated.population, stated.model, stated.unit, stated.steps, delta=stated.delta).epsilon
        except _DAMAGE as error:
            yield f"the guarantee can't be computed again: {_say(error)}"
            continue
        near = abs(again - stated.epsilon) <= _SAME * stated.epsilon
        if again <= stated.epsilon and not near and format_epsilon(again) != format_epsilon(stated.epsilon):
            yield (
                f"the guarantee states epsilon {format_epsilon(stated.epsilon)}, and its steps cost only "
                f"{format_epsilon(again)}"
            )


def _step_problems(release: Release) -> Iterator[str]:
    """Compute what each step costs anew from the numbers it ran with, and check that its table obeys them."""
    try:
        pairs = steps_of(release.manifest)
        relations = [g.unit.relation.value for g in release.guarantees for _ in g.steps]
        plain(release.manifest["parameters"], "parameters", names=True)
    except _DAMAGE as error:
        yield f"the steps in {MANIFEST} are not those of the guarantee: {_say(error)}"
        return
    floor = release.manifest["parameters"].get("min_users", 1)
    for number, ((promised, ran), relation) in enumerate(zip(pairs, relations, strict=True), 1):
        try:
            yield from _one_step(f"step {number}", promised, ran, relation, release.tables)
            if ran["parameters"].get("min_users", 1) != floor:
                yield f"step {number} ran with another floor than the {floor} users that the parameters state"
        except _DAMAGE as error:
            yield f"step {number} can't be checked: {_say(error)}"


def _one_step(
    step: str, promised: Mapping[str, Any], ran: Mapping[str, Any], relation: str, tables: Mapping[str, pa.Table]
) -> Iterator[str]:
    if any(promised[key] != ran[key] for key in ("name", "detail", "loss")):
        yield f"{step} is described otherwise than in the guarantee"
    parameters = plain(ran["parameters"], step, names=True)
    if parameters.get("relation", Relation.ADD_REMOVE.value) != relation:  # what steps mean that do not say
        yield f"{step} ran under another relation than the guarantee states"
    if loss_from(parameters) != Loss.from_json(promised["loss"]):
        yield f"{step} costs otherwise by its parameters than the manifest states"
    table, threshold, floor = (parameters.get(name) for name in ("table", "threshold", "min_users"))
    if table is None or threshold is None:
        return
    if table not in tables:
        yield f"{step} speaks of a table {table!r} that is not there"
    elif "count" in tables[table].column_names:
        least, low = (pc.min(tables[table][column]).as_py() for column in ("count", "low"))  # None without rows
        users = exact(threshold, "a threshold") + (floor or 1) - 1
        if least is not None and least < users:
            yield f"a count in {table} is below the threshold {users} of {step}"
        if floor and low is not None and low < floor:
            yield f"an interval in {table} begins below the floor of {floor} users of {step}"


def _kind_problems(release: Release) -> Iterator[str]:
    """Let whoever makes this kind of release compute it anew."""
    kind = str(release.manifest["kind"])
    checks = entry_points(group=CHECKS, name=kind)
    for check in checks:
        yield from check.load()(release)
    if kind in _CHECKED and not checks:
        yield f"nothing is installed here that can check a release of kind {kind}: install hushquery again"


# ---- what is said in two places --------------------------------------------------------------------------------------


def _disagreements(folder: Path, release: Release, *, whole: bool) -> list[str]:
    """Return what the release says in two ways. The data card is only read where nothing else is wrong."""
    problems: list[str] = []
    try:
        problems += _description_problems(release)
        problems += _people_problems(release)
        problems += _share_problems(release)
        if whole and not problems:
            text = (folder / CARD).read_text("utf-8")
            # Of another version's card only what it says of its making is known.
            made = f"Made with hushquery {release.manifest['hushquery']} on {release.manifest['created']}."
            if not (text == release.card() if release.manifest["hushquery"] == __version__ else made in text):
                problems.append(f"{CARD} does not say what the manifest says")
    except _DAMAGE as error:
        problems += [] if problems or not whole else [f"the release can't be compared with itself: {_say(error)}"]
    return problems


def _description_problems(release: Release) -> Iterator[str]:
    """Read the description, and compare its period with the times that the parameters state."""
    try:
        release.description.within(release.manifest["parameters"])
    except HushqueryError as error:
        yield f"the description can't be right: {_say(error)}"


def _people_problems(release: Release) -> Iterator[str]:
    """Compare whom steps, guarantees and the kind of the release speak of."""
    manifest, guarantees = release.manifest, release.guarantees
    owners = [guarantee for guarantee in guarantees for _ in guarantee.steps]
    for number, ((_, ran), owner) in enumerate(zip(steps_of(manifest), owners, strict=True), 1):
        if ran["population"] != owner.population:
            yield f"step {number} speaks of other people than its guarantee"
        if "lifetime" in ran["parameters"] and manifest["kind"] != "local":
            yield f"step {number} states a lifetime budget, which only estimates of several periods have"
    for guarantee in guarantees:
        if guarantee.unit.name != _UNITS[guarantee.model]:
            yield f"a {guarantee.model} guarantee protects one {_UNITS[guarantee.model]}, and this one says otherwise"
    if len({guarantee.test_noise for guarantee in guarantees}) > 1:
        yield "some guarantees say that the noise came from a test, and some say it did not"
    models, numbers = _KINDS.get(manifest["kind"], ((), ()))
    if tuple(g.model for g in guarantees) not in models or release_measure(release.tables) not in numbers:
        yield "the kind of the release does not fit its guarantees and tables"
    level = manifest["interval_level"]
    if isinstance(level, bool) or not 0 < level < 1:
        yield "the level of its intervals is not between 0 and 1"


def _share_problems(release: Release) -> Iterator[str]:
    """Compare the tables of a blend with each other and with what its parameters say of them."""
    tables, stated = release.tables, release.manifest["parameters"]
    if release.manifest["kind"] != "hybrid" or not {"queries", "clicks", "records"} <= set(tables):
        return
    clicks, records = (
        {(row["query"], row["url"]) for row in tables[name].select(["query", "url"]).to_pylist()}
        for name in ("clicks", "records")
    )
    if clicks != records:
        yield "clicks and records do not list the same"
    if "head_size" in stated and stated["head_size"] != tables["records"].num_rows:
        yield "the head list does not have the size that the parameters state"
    if not _same_sums(tables):
        yield "the share of a query is not the sum of the shares of its clicks"
    if abs(math.fsum(tables["clicks"]["share"].to_pylist()) + stated[REST] - 1) > _ROUNDING:
        yield "the shares of clicks and the rest are not the whole"
    if "shifted_records" in stated and stated["shifted_records"] != _shifted(tables["records"]["shift_z"]):
        yield "the number of records that differ between the groups does not follow from their column shift_z"
    if not 0 <= stated.get("shift_p_value", 0) <= 1 or not 0 <= stated.get("rest_stderr", 0) < math.inf:
        yield "a chance or a standard error in the parameters is none"
    if not 0 <= stated.get("rest_low", 0) <= stated[REST] + _ROUNDING <= stated.get("rest_high", 1) + 2 * _ROUNDING:
        yield "the share of the rest is outside its own interval"
    if "optin_users" in stated and not _whole_counts(release, stated["optin_users"]):
        yield "the shares of the opt-in users are no counts of as many users as the parameters state"
    local = [step.name for guarantee in release.guarantees for step in guarantee.steps if guarantee.model == "local"]
    if "mode" in stated and local and (stated["mode"] == "best") is (_TWO_STAGE in local):
        yield "the mode of blending does not fit the clients' reports"


def _same_sums(tables: Mapping[str, pa.Table]) -> bool:
    sums = tables["clicks"].group_by("query").aggregate([("share", "sum")])
    summed = dict(zip(sums["query"].to_pylist(), sums["share_sum"].to_pylist(), strict=True))
    stated = tables["queries"].select(["query", "share"]).to_pylist()
    return all(abs(summed.pop(row["query"], math.inf) - row["share"]) <= _ROUNDING for row in stated) and not summed


def _shifted(scores: pa.ChunkedArray) -> int:
    """Count the records that differ, by Holm's rule at half the chance of a false alarm."""
    chances = sorted(2 * NormalDist().cdf(-abs(z)) for z in pc.drop_null(scores).to_pylist())
    tested = len(chances)
    # The first chance that is too large ends the list.
    rejected = [chance * (tested - place) <= _FALSE_ALARMS / 2 for place, chance in enumerate(chances)]
    return rejected.index(False) if False in rejected else tested


def _whole_counts(release: Release, users: int) -> bool:
    """Return whether opt-in shares times users, times the records of each, are whole numbers for some step."""
    per_user = [ran["parameters"].get("keys_per_user", 1) for _, ran in steps_of(release.manifest)]
    shares = release.tables["records"]["optin"].to_pylist()
    return any(
        all(abs(count - round(count)) <= _ROUNDING * max(1.0, abs(count)) for count in counts)
        for counts in ([share * users * each for share in shares] for each in {1, *per_user})
    )


def _say(error: BaseException) -> str:
    return error.what + (f": {error.why}" if error.why else "") if isinstance(error, HushqueryError) else str(error)
