"""``hushquery card``: the data card of a release, an evaluation sheet along NIST SP 800-226, a registry entry."""

from __future__ import annotations

from typing import Annotated

from hushquery.cli.common import JsonFlag, emit, flag
from hushquery.cli.listing import Folder, open_release
from hushquery.errors import UsageError


def card(
    folder: Folder,
    nist: Annotated[bool, flag("--nist", "An evaluation sheet along NIST SP 800-226.")] = False,
    registry: Annotated[
        bool, flag("--registry", "An entry for the public Differential Privacy Deployments Registry.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Print the data card of a release; or a sheet or an entry for the record, made from its manifest alone.

        hushquery card release > CARD.md
        hushquery card release --nist > evaluation.md
        hushquery card release --registry --json > entry.yaml

    What the manifest does not state is printed as "not stated", with how to state it. JSON is YAML too.
    """
    if nist and registry:
        raise UsageError("--nist and --registry are two documents", fix="Print one after the other")
    from hushquery.release.record import nist_sheet, nist_text, registry_entries, registry_text

    release = open_release(folder)
    if nist:
        emit(nist_sheet(release), nist_text(release).rstrip(), as_json)
    elif registry:
        entries = registry_entries(release)
        # One entry is a file of the registry as it is; a hybrid release has one for each population.
        emit(entries[0] if len(entries) == 1 else {"entries": entries}, registry_text(release).rstrip(), as_json)
    else:
        emit({"card": release.card()}, release.card().rstrip(), as_json)
