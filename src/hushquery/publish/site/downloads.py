"""Offer every release of a site for download, to people, to feed readers and to programs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushquery.publish.tables import queries_of
from hushquery.release.export import csv_bytes
from hushquery.release.page import in_numbers, populations
from hushquery.release.release import manifest_bytes, parquet_bytes
from hushquery.release.series import dates, file_names, last_day, period, together
from hushquery.templates import number, plural

if TYPE_CHECKING:
    from hushquery.release import Release

# A query that is missing had more than is said with a chance of one in twenty at most.
_MISSING_LEVEL = 0.95
_NO_DAY = "1970-01-01"


def releases_page(releases: Sequence[Release], names: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return what ``releases.html`` shows of releases in their order, and the files that it links to."""
    shown: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for release, name, stem in zip(releases, names, file_names(releases), strict=True):
        about = dict(release.description.facts())
        title = about.pop("title", "")
        files[f"{stem}-manifest.json"] = manifest_bytes(release.manifest)
        for kind, table in release.tables.items():
            files[f"{stem}-{kind}.parquet"], files[f"{stem}-{kind}.csv"] = parquet_bytes(table), csv_bytes(table)
        several = len(release.guarantees) > 1
        shown.append(
            {
                "heading": f"{title}, {dates(release.manifest)}" if title else name[0].upper() + name[1:],
                "about": {**about, "published": str(release.manifest["created"])},
                "promised": [
                    in_numbers(guarantee) + (f", for {guarantee.population}" if several else "")
                    for guarantee in release.guarantees
                ],
                "tables": [
                    {"name": kind, "rows": table.num_rows}
                    | {form: f"{stem}-{kind}.{form}" for form in ("csv", "parquet")}
                    for kind, table in release.tables.items()
                ],
                "manifest": f"{stem}-manifest.json",
            }
        )
    return shown, files


def feed(releases: Sequence[Release], shown: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    """Return what ``feed.xml`` holds: an entry per release, the latest first, by names that outlive a rebuilt site."""
    entries = []
    for place, (release, row) in enumerate(zip(releases, shown, strict=True), 1):
        many = [f"{number(table['rows'])} {plural(table['rows'], table['name'])}" for table in row["tables"]]
        entries.append(
            {
                "heading": row["heading"],
                "id": _name(manifest_bytes(release.manifest).decode()),
                "updated": _published(release),
                "place": place,
                "summary": f"{', '.join(many)}. {'; '.join(row['promised'])}.",
            }
        )
    last = releases[-1]
    return {
        "title": title,
        "id": _name(f"series {populations(releases[0].guarantees)}"),
        "updated": max(entry["updated"] for entry in entries),
        "author": last.description.publisher or populations(last.guarantees),
        "entries": entries[::-1],
    }


def program_index(
    releases: Sequence[Release], names: Sequence[str], shown: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what ``index.json`` tells a program besides the numbers: every release, its files, and the whole cost."""
    listed = []
    for release, name, row in zip(releases, names, shown, strict=True):
        start, end = period(release.manifest)
        measured = queries_of(release).measured if "queries" in release.tables else None
        missing = None if measured is None else measured.most_missing(_MISSING_LEVEL)
        stated = {"start": start and str(start), "end": end and str(end), "created": str(release.manifest["created"])}
        listed.append(
            {"name": name, **stated, "most_missing": missing, "description": release.manifest.get("description")}
            | {"guarantees": [_brief(guarantee) for guarantee in release.guarantees]}
            | {"manifest": row["manifest"], "tables": row["tables"]}
        )
    return {"releases": listed, "together": [_brief(guarantee) for guarantee in together(releases)]}


def _brief(guarantee: Any) -> dict[str, Any]:
    wanted = ("population", "model", "unit", "relation", "epsilon", "delta", "test_noise")
    told = guarantee.to_json()
    return {name: told[name] for name in wanted}


def _name(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def _published(release: Release) -> str:
    """Return the day of publishing, as feeds need one."""
    created = last_day({"created": release.manifest["created"]})
    return str(created or _NO_DAY)
