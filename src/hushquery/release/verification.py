"""Verify: whether a folder is the release it says it is, and whether its parameters promise what it promises.

Verification finds accidents and inconsistencies, not forgers: nothing here is signed by anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.core.budget import Relation, exact, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee
from hushquery.core.loss import Loss, loss_from
from hushquery.errors import HushqueryError
from hushquery.release.manifest import check_measures, guarantee_from_json, plain, steps_of
from hushquery.release.page import weakness
from hushquery.release.release import CARD, MANIFEST, Release, known_files, read_manifest, read_table, sha256
from hushquery.release.tables import KINDS, check_references, checked_table, measures_of
from hushquery.release.verification import card_problems, people_problems, share_problems

__all__ = ["Verification", "read_release", "verify"]

# What damaged data raises where it is taken for data.
_DAMAGE = (HushqueryError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)

# Two epsilons this close are the same number, rounded at different times.
_SAME = 1e-9

# What describes the folder and not the release.
_OF_THE_FOLDER = ("files", "manifest_sha256")


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found.

    Args:
        ok: Whether nothing is wrong.
        problems: What is wrong, a sentence each.
        guarantees: What the release promises by its own word; believe it only when ``ok``.
    """

    ok: bool
    problems: tuple[str, ...]
    guarantees: tuple[Guarantee, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is weak about the promises; a release can be whole and its promise weak."""
        return tuple(said for said in map(weakness, self.guarantees) if said)

    def to_json(self) -> dict[str, Any]:
        """Give the findings as plain data."""
        return {
            "ok": self.ok,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "guarantees": [guarantee.to_json() for guarantee in self.guarantees],
        }


def verify(folder: Path | str) -> Verification:
    """Check a release: hashes, files, tables, and its guarantee, computed anew from the exact parameters of each step.

    Whatever is said twice has to agree: people, units, kinds, tests' noise, sums of shares, sizes, the data card.
    Finds accidents and inconsistencies, not forgers: whoever changes a release can also change its hashes.

    Some things are said once, and nothing in the release can confirm them: the names of people and of the task, its
    hash and epoch; the day and the versions; notes and meanings; ``robust``, ``post_processing``, ``shift_p_value``,
    ``rest_stderr``, how wide an interval is, and ``row_counts``; the coverage of the intervals; and that the steps ran
    as they say. What of it the data card shows has to be the same there.
    """
    release, problems, manifest = read_release(Path(folder))
    if release is None:
        return Verification(False, tuple(problems), ())
    problems += _strange_files(Path(folder), manifest)
    problems += _guarantee_problems(release)
    problems += _step_problems(release)
    problems += _disagreements(Path(folder), release, whole=not problems)
    return Verification(not problems, tuple(problems), release.guarantees)


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
        problems += [_exceeds(g) for g in guarantees if not g.loss.fits(g.epsilon, g.delta)]
        if not tables or not guarantees or not all(g.steps for g in guarantees):
            problems.append(f"{MANIFEST} lacks a table, a guarantee, or the steps that a guarantee comes from")
    except _DAMAGE as error:
        return None, [*problems, f"a guarantee in {MANIFEST} can't be read: {_say(error)}"], manifest
    own = {name: value for name, value in manifest.items() if name not in _OF_THE_FOLDER}
    return Release(tables, guarantees, own), problems, manifest


def _listed(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Give the files the manifest lists. Their names are checked: a manifest could name a file outside the folder."""
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        message = f"{MANIFEST} does not list the files of the release"
        raise ValueError(message)
    strange = set(listed) - known_files()
    if strange or MANIFEST in listed:
        message = f"{MANIFEST} lists files that no release has"
        raise ValueError(message)
    return listed


def _file_problems(path: Path, listed: Mapping[str, Any], tables: dict[str, pa.Table]) -> Iterator[str]:
    """Say what is wrong with a file, and add the table it holds."""
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
    expected = {MANIFEST, *(listed if isinstance(listed, dict) else ())}
    for entry in sorted(folder.iterdir()):
        if entry.name not in expected:
            yield f"{entry.name} is not part of the release"
    for name in ("README.md", "report.html", *(f"{table}.parquet" for table in manifest["meanings"])):
        if name not in expected:
            yield f"{name} is missing from the manifest"


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


def _exceeds(stated: Guarantee) -> str:
    return (
        f"the steps cost more than the guarantee states: epsilon {format_epsilon(stated.epsilon)} does not hold at "
        f"delta {format_delta(stated.delta)}"
    )


def _step_problems(release: Release) -> Iterator[str]:
    """Compute what each step costs anew from the numbers it ran with, and look whether its table obeys them."""
    try:
        pairs = steps_of(release.manifest)
        relations = [g.unit.relation.value for g in release.guarantees for _ in g.steps]
        plain(release.manifest["parameters"], "parameters", names=True)
    except _DAMAGE as error:
        yield f"the steps in {MANIFEST} are not those of the guarantee: {_say(error)}"
        return
    for number, ((promised, ran), relation) in enumerate(zip(pairs, relations, strict=True), 1):
        try:
            yield from _one_step(f"step {number}", promised, ran, relation, release.tables)
        except _DAMAGE as error:
            yield f"step {number} can't be checked: {_say(error)}"


def _disagreements(folder: Path, release: Release, *, whole: bool) -> list[str]:
    """Say what the release says in two ways. The data card is only read where nothing else is wrong."""
    found: list[str] = []
    try:
        found += people_problems(release)
        found += share_problems(release)
        if whole and not found:
            text = (folder / CARD).read_text("utf-8")
            found += card_problems(release.tables, release.guarantees, release.manifest, text)
    except _DAMAGE as error:
        found += [] if found or not whole else [f"the release can't be compared with itself: {_say(error)}"]
    return found


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
    table, threshold = parameters.get("table"), parameters.get("threshold")
    if table is None or threshold is None:
        return
    if table not in tables:
        yield f"{step} speaks of a table {table!r} that is not there"
    elif "count" in tables[table].column_names:
        least = pc.min(tables[table]["count"]).as_py()  # None without rows
        if least is not None and least < exact(threshold, "a threshold"):
            yield f"a count in {table} is below the threshold {threshold} of {step}"


def _say(error: BaseException) -> str:
    return error.what + (f": {error.why}" if error.why else "") if isinstance(error, HushqueryError) else str(error)
