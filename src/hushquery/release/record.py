"""Write a release down for the record: an evaluation sheet along NIST SP 800-226, an entry for the public registry.

Both are made from the manifest alone. What it does not state is "not stated", with how to state it. The sheet follows
the publication's differential privacy pyramid (Near, Darais, Lefkovitz and Howarth 2025). The entry has the fields of
the Differential Privacy Deployments Registry: opendp/deployments-registry-data, tests/good_deployments/template.yaml at
commit 057e5d8. Its JSON is YAML too, the form in which entries are submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hushquery.core.budget import Relation, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee, factor
from hushquery.errors import UsageError
from hushquery.release.page import limits, nothing_promised, setting, weakness
from hushquery.templates import render

if TYPE_CHECKING:
    from hushquery.release.release import Release

_NIST = "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025)"
_OPTIONS = {"title": "--title", "publisher": "--publisher", "licence": "--licence", "contact": "--contact"}
_OPTIONS |= {"period": "--period, or --since and --until", "people": "--users"}
_TRUST = {
    "curator": "central: the operator sees the data of these people and is trusted with it",
    "local": "local: data is randomised on each person's device; nobody else is trusted with it",
}
_NOISE = {
    "laplace-histogram": "discrete Laplace noise",
    "gaussian-histogram": "rounded Gaussian noise",
    "gaussian-weights": "rounded Gaussian noise on weights",
    "optimal-selection": "optimal partition selection",
    "local-channel": "randomised response on the device",
}
_BY_HAND = "a manifest does not know it: state it beside this sheet"
_IN_ENTRY = "a manifest does not know it: write it into the entry before you submit it"
_ONE_OF = "write one of the registry's own words into the entry before you submit it"
_NOT_COVERED = (
    "security of the data before it is published, and who may read it (data security and access control)",
    "what was collected, for what purpose, for how long it is kept, and with whose consent (data collection exposure)",
    "time, memory and other side channels of the machine that computed it",
    "harm to people or groups from what is true of the crowd; bias in who is in the data",
    "other publications about the same people, except as the ledger adds them up",
)


def _not_stated(how: str) -> str:
    return f"not stated ({how})"


def _described(release: Release) -> dict[str, str]:
    """Return every part of the description, or how to state it."""
    stated = dict(release.description.facts())
    return {name: stated.get(name) or _not_stated(f"state it with {option}") for name, option in _OPTIONS.items()}


# ---- NIST SP 800-226 -------------------------------------------------------------------------------------------------


def nist_sheet(release: Release) -> dict[str, Any]:
    """Return the evaluation sheet of a release as plain data, from its manifest alone."""
    manifest = release.manifest
    return {
        "standard": _NIST,
        "release": {
            **_described(release),
            "created": manifest["created"],
            "kind": manifest["kind"],
            "software": f"hushquery {manifest['hushquery']}",
        },
        "warnings": [w for w in (nothing_promised(release.guarantees), *map(weakness, release.guarantees)) if w],
        "guarantees": [_guarantee(guarantee, manifest) for guarantee in release.guarantees],
        "algorithms": {
            "preprocessing": _preprocessing(manifest),
            "chosen by the steward": _chosen(manifest),
            "post-processing": _post_processing(manifest),
            "published without noise": _unprotected(manifest),
        },
        "utility and bias": limits(release),
        "query model": "non-interactive: tables are published once; nobody queries the data",
        "implementation": _implementation(release),
        "data security and access control": _not_stated(_BY_HAND),
        "data collection exposure": _not_stated(_BY_HAND),
        "not covered": list(_NOT_COVERED),
    }


def nist_text(release: Release) -> str:
    """Return the evaluation sheet as Markdown."""
    return render("nist.md", sheet=nist_sheet(release))


def _guarantee(guarantee: Guarantee, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "population": guarantee.population,
        "privacy parameters": f"epsilon {format_epsilon(guarantee.epsilon)}, delta {format_delta(guarantee.delta)}",
        "variant": _variant(guarantee),
        "what epsilon means": f"one {guarantee.unit.name} changes the probability of any result by at most a factor of "
        + factor(guarantee.epsilon)
        + (f", but for delta ({format_delta(guarantee.delta)})" if guarantee.delta else ""),
        "unit of privacy": f"one {guarantee.unit.name}",
        "relation": _relation(guarantee),
        "trust model": _TRUST[guarantee.model],
        "composition in this release": _composition(guarantee),
        "composition with other releases": _not_stated(
            "a manifest speaks of one release; the ledger adds them up: hushquery budget show"
        ),
        "mechanisms": _mechanisms(guarantee, manifest),
    }


def _variant(guarantee: Guarantee) -> str:
    if guarantee.test_noise:
        return "none: the noise came from a test, and nothing is promised"
    return "approximate differential privacy" if guarantee.delta else "pure differential privacy"


def _relation(guarantee: Guarantee) -> str:
    who = guarantee.unit.name
    if guarantee.unit.relation is Relation.ADD_REMOVE:
        return f"add-remove (unbounded): datasets with and without all data of one {who}"
    return (
        f"replace-one (bounded): datasets in which all data of one {who} is exchanged; who takes part, and how many, "
        "is not hidden"
    )


def _composition(guarantee: Guarantee) -> str:
    many = len(guarantee.steps)
    if many == 1:
        return "one step: nothing to compose"
    gaussian = guarantee.loss.mu_squared or guarantee.loss.sparse
    rule = "the exact curve of Gaussian noise, by the sum of mu squared" if gaussian else "the sum of epsilons"
    return f"{many} steps, composed sequentially from their exact losses: {rule}, and the sum of deltas"


def _mechanisms(guarantee: Guarantee, manifest: Mapping[str, Any]) -> list[str]:
    ran = [step["parameters"] for step in manifest["steps"] if step["population"] == guarantee.population]
    return [
        f"{_NOISE.get(str(numbers.get('kind')), step.name)}: {step.detail}"
        for step, numbers in zip(guarantee.steps, ran, strict=True)
    ]


def _preprocessing(manifest: Mapping[str, Any]) -> list[str]:
    steps = manifest["parameters"].get("log_steps")
    if not isinstance(steps, list):
        return [_not_stated("the manifest lists no steps of reading")]
    times = [f"{name} {manifest['parameters'][name]}" for name in ("since", "until") if name in manifest["parameters"]]
    return [*map(str, steps), *times]


def _chosen(manifest: Mapping[str, Any]) -> list[str]:
    left_out = {"log_steps", "post_processing", "since", "until"}
    return [
        f"{name.replace('_', ' ')}: {setting(value, name)}"
        for name, value in manifest["parameters"].items()
        if name not in left_out and value is not None
    ]


def _post_processing(manifest: Mapping[str, Any]) -> list[str]:
    steps = manifest["parameters"].get("post_processing")
    return list(map(str, steps)) if isinstance(steps, list) and steps else ["intervals, from the noise's own law"]


def _unprotected(manifest: Mapping[str, Any]) -> list[str]:
    """Return what was published of the data without noise: what replace-one does not hide."""
    users = manifest["parameters"].get("optin_users")
    if users is not None:
        return [f"the number of opt-in users, {setting(users)}: under replace-one it is public"]
    return ["nothing is computed from the data without noise; the description is declared"]


def _implementation(release: Release) -> list[str]:
    manifest = release.manifest
    noise = "noise on integers, drawn exactly from the operating system's random bits: no floating-point attack"
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    return [
        f"hushquery {manifest['hushquery']} ({versions})",
        "noise from a test's seed: nothing is promised" if release.test_noise else noise,
        "the parameters of every step are in manifest.json; hushquery verify computes the guarantee anew from them",
    ]


# ---- the registry ----------------------------------------------------------------------------------------------------


def registry_entries(release: Release) -> list[dict[str, Any]]:
    """Return an entry of the registry for each population: two guarantees are never one number.

    Where the manifest has no answer, the entry says "not stated"; the registry takes it only when that is replaced.
    """
    if release.test_noise:
        raise UsageError(
            "this release is no deployment",
            why="its noise came from a test's seed: nothing is promised",
            fix="Register a release that was made with real noise",
        )
    return [_entry(release, guarantee) for guarantee in release.guarantees]


def registry_text(release: Release) -> str:
    """Return the entries as Markdown, to read before they are submitted."""
    entries = [{"name": e["deployment"]["basic"]["name"], "lines": list(_lines(e))} for e in registry_entries(release)]
    return render("registry.md", entries=entries)


def _entry(release: Release, guarantee: Guarantee) -> dict[str, Any]:
    manifest, about, declared = release.manifest, _described(release), release.description
    name = declared.title or f"Search statistics of {guarantee.population}"
    several = f" ({guarantee.population})" if len(release.guarantees) > 1 else ""
    parameters: dict[str, float] = {"epsilon": guarantee.epsilon}
    if guarantee.delta:
        parameters["delta"] = guarantee.delta
    tables = ", ".join(manifest["meanings"])
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", f"{name}{several} {manifest['created']}".lower()).strip("-"),
        "deployment": {
            "basic": {
                "name": f"{name}{several}",
                "data_curators": [{"data_curator_name": about["publisher"], "data_curator_type": _not_stated(_ONE_OF)}],
                "description": f"What people searched for, as tables of {tables}. Data of: {about['period']}",
                "intended_use": _not_stated(_IN_ENTRY),
                "data_product_type": "Summary statistics",
                "data_product_region": _not_stated(_IN_ENTRY),
                "data_product_sector": _not_stated(_ONE_OF),
                "publication_date": manifest["created"],
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if guarantee.delta else "Pure DP",
                "data_domain": f"all search logs of {guarantee.population}; number of people: {about['people']}",
                "unprotected_quantities": "; ".join(_unprotected(manifest)),
            },
            "privacy_loss": {
                "privacy_unit": f"{guarantee.unit.name}-level",
                "privacy_unit_details": _relation(guarantee),
                "number_of_privacy_units": 1,
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"of this release, for one {guarantee.unit.name}, over all its tables",
            },
            "deployment_model": {
                "model_name": "Central" if guarantee.model == "curator" else "Local",
                "model_name_details": _TRUST[guarantee.model],
                "trust_assumptions": _TRUST[guarantee.model],
                "actors": _not_stated(_IN_ENTRY),
                "release_type": _not_stated(_ONE_OF),
                "release_type_details": _not_stated("a manifest speaks of one release: say whether there are more"),
                "data_source_type": _not_stated(_ONE_OF),
                "data_source_type_details": _not_stated(_IN_ENTRY),
                "access_type": "Non-interactive",
                "access_type_details": "tables that anybody can read; nobody queries the data",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "; ".join(
                    [*_preprocessing(manifest), f"how the parameters were chosen: {_not_stated(_IN_ENTRY)}"]
                ),
                "mechanisms": "; ".join([*_mechanisms(guarantee, manifest), *_implementation(release)]),
                "composition": _composition(guarantee),
                "post_processing": "; ".join(_post_processing(manifest)),
                "justification": _not_stated(_IN_ENTRY),
                "utility": "; ".join(limits(release)),
                "additional_information": f"Contact: {about['contact']}. Licence: {about['licence']}",
            },
            "administrative": {"status": "Draft", "registry_authors": [_not_stated(_IN_ENTRY)], "tier": 2},
        },
    }


def _lines(value: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field of an entry by its full name, with its text."""
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _lines(item, f"{inside}{name}.")
        elif isinstance(item, list):
            yield from _lines({f"{name}.{place}": one for place, one in enumerate(item, 1)}, inside)
        else:
            yield f"{inside}{name}", str(item)
