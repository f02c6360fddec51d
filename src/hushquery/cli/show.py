"""``hushquery show``, ``verify`` and ``export``: look into a release, check it, and convert it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, argument, emit, flag, option, sizes_in_words, warn
from hushquery.cli.listing import Folder, Limit, as_rows, joined, listing, measured, measures, open_release, percent
from hushquery.errors import DataError, UsageError

if TYPE_CHECKING:
    from hushquery.publish.search import Measured
    from hushquery.release import Release

FolderPath = Annotated[Path, argument("DIR", "The folder of a release.")]


def show(
    folder: Folder,
    query: Annotated[
        str | None, option("TEXT", "Show one query: its count or share, its pages, what came next.")
    ] = None,
    limit: Limit = 10,
    as_json: JsonFlag = False,
) -> None:
    r"""Show what is in a release: its guarantee, its tables and their first rows; or one query.

    hushquery show release/ --query "weather leeds"
    """
    release = open_release(folder)
    if query is None:
        _show_release(release, limit, as_json)
    else:
        _show_query(release, joined([query]), limit, as_json)


def _show_release(release: Release, limit: int, as_json: bool) -> None:
    from hushquery.release.estimates_page import results
    from hushquery.release.manifest import KINDS
    from hushquery.release.page import false_pairs

    tables = release.tables
    shown = results(release, limit) if "estimates" in tables else {}
    measure = shown.get("measure", "")
    first = {name: table.slice(0, limit).to_pylist() for name, table in tables.items()}
    meanings = release.manifest.get("meanings", {})
    data: dict[str, Any] = {
        "kind": release.manifest.get("kind"),
        "created": release.manifest.get("created"),
        "description": release.description.to_json(),
        "guarantees": [guarantee.to_json() for guarantee in release.guarantees],
        "parameters": release.manifest.get("parameters", {}),
        "tables": {
            name: {"rows": table.num_rows, "columns": table.column_names, "meaning": meanings.get(name, "")}
            for name, table in tables.items()
        },
        "first_rows": first,
        "notes": release.manifest.get("notes", []),
    }
    parts = ["\n".join(f"{name}: {text}" for name, text in release.description.facts())]
    if shown:
        parts.insert(0, _headline(shown, release))
    parts.append("\n".join(guarantee.summary() for guarantee in release.guarantees))
    if "rest" in data["parameters"]:
        parts.append(f"shares are of all records; {percent(data['parameters']['rest'])} of them are not listed")
    parts += [str(note) for note in data["notes"]]
    for name, rows in first.items():
        title = f"{name}: {sizes_in_words({'rows': tables[name].num_rows})}"
        title += f", {meanings[name]}" if meanings.get(name) else ""
        keys = KINDS[name].keys
        numbers = _numbers(tables[name].column_names, measure)
        cells = [[*(_named(str(row[key]), shown.get("kind")) for key in keys), *_cells(row, measure)] for row in rows]
        heads: list[str] = [*keys, *numbers]
        if name == "reformulations":
            title += f"\n{false_pairs(release.manifest)}" if rows and false_pairs(release.manifest) else ""
            heads, cells = _with_doubt(heads, cells, [row["low"] for row in rows])
        if name == "candidates":
            found = set(tables["estimates"]["value"].to_pylist())
            heads, cells = [*heads, ""], [[text, "found" if text in found else "not found"] for (text,) in cells]
        elif name == "estimates" and any(row["close"] for row in shown["rows"]):
            close = {row["value"] for row in shown["rows"] if row["close"]}
            marks = ["just passed the test" if row["value"] in close else "" for row in rows]
            heads, cells = [*heads, ""], [[*row, mark] for row, mark in zip(cells, marks, strict=True)]
        # How many reports support a cell is for programs: nobody's answer can be read off it.
        parts.append(f"{title}\n\n{listing(heads, cells, numbers)}" if cells and name != "support" else title)
    emit(data, "\n\n".join(part for part in parts if part), as_json)


def _headline(shown: Mapping[str, Any], release: Release) -> str:
    from hushquery.release.series import dates

    reports = f"{shown['reports']:,} report{'' if shown['reports'] == 1 else 's'}"
    return f"{shown['name']}: what {shown['people']} reported, {dates(release.manifest)}, {reports}"


def _named(value: str, kind: object) -> str:
    """Return a value as a terminal shows it: a query has its page beside it, or none."""
    if kind != "searches" or value == "*":
        return value
    return value.replace("\t", "  ") if "\t" in value else f"{value}  (no click)"


def _with_doubt(
    heads: Sequence[str], cells: Sequence[Sequence[str]], lows: Sequence[float]
) -> tuple[list[str], list[list[str]]]:
    """Mark rows that may be noise alone, in a column of their own where there are any."""
    if all(low > 0 for low in lows):
        return list(heads), [list(row) for row in cells]
    marked = [[*row, "may be noise alone" if low <= 0 else ""] for row, low in zip(cells, lows, strict=True)]
    return [*heads, ""], marked


def _numbers(columns: list[str], measure: str) -> list[str]:
    if "optin" in columns:
        return ["opt-in", "clients", "weight", "shift z"]
    if "estimate" in columns:
        return [measure, "interval"]
    return [name for name in ("count", "share") if name in columns] + ["interval"] * ("low" in columns)


def _cells(row: dict[str, Any], measure: str) -> list[str]:
    if measure == "mean" and "estimate" in row:
        from hushquery.templates import amount

        value, low, high = (amount(row[name], "mean").replace("−", "-") for name in ("estimate", "low", "high"))
        return [value, f"{low} to {high}"]
    if "estimate" in row:
        return list(measured({**row, "share": row["estimate"]}))
    if "optin" in row:
        groups = [f"{percent(row[name])} ± {percent(row[f'{name}_stderr'])}" for name in ("optin", "client")]
        shift = "" if row["shift_z"] is None else f"{row['shift_z']:+.1f}"
        return [*groups, f"{row['weight']:.2f}", shift]
    return list(measured(row)) if "low" in row else []


def _show_query(release: Release, query: str, limit: int, as_json: bool) -> None:
    from hushquery.publish import look_up

    about = look_up(release, query, limit)
    if about is None:
        nothing = "nothing found: this query is not in the release. `hushquery search` finds queries near to a text"
        emit({"text": query, "query": None}, nothing, as_json)
        return
    right = measures([about])
    parts = [
        listing(("query", *right), [(about.query, *measured(about))], right),
        _measured("page", about.urls, "clicks"),
        *([_measured("searches without a click", (about.unclicked,), "clicks")] if about.unclicked else []),
        _measured("next query", about.next_queries, "reformulations"),
    ]
    data = {"text": query, **as_rows([about])[0]}
    for name in ("urls", "next_queries"):
        rows = getattr(about, name)
        data[name] = None if rows is None else as_rows(rows)
    data.pop("unclicked")
    if about.unclicked:
        data["unclicked"] = as_rows([about.unclicked])[0]
    emit(data, "\n\n".join(parts), as_json)


def _measured(head: str, rows: tuple[Measured, ...] | None, table: str) -> str:
    if rows is None:
        return f"this release has no {table}"
    if not rows:
        return f"no {table} of this query were released"
    right, cells = measures(rows), [[row.name, *measured(row)] for row in rows]
    heads = [head, *right]
    if table == "reformulations":
        heads, cells = _with_doubt(heads, cells, [row.low for row in rows])
    return listing(heads, cells, right)


def verify(
    folder: FolderPath,
    key: Annotated[
        str | None,
        option("PUB", "The publisher's public key (a .pub file) or its fingerprint: the release must be signed by it."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Check that a release is whole and promises what its parameters give.

        hushquery verify release
        hushquery verify release --key publisher.key.pub

    Compares every file with its hash, reads every table, and computes the
    guarantee anew from the exact numbers that each step ran with. Ends with
    exit code 4 and a list when anything is wrong. A promise that is weaker
    than usual (epsilon above 5, delta above 1e-4) is named in a warning.

    Without --key it finds accidents and inconsistencies, not forgers: whoever
    changes a release on purpose can change its hashes too, and sign it with a
    key of their own. Get the publisher's key from somewhere else than the
    release.
    """
    from hushquery.release import verify as check
    from hushquery.release.release import check_there

    if (folder / "site.css").is_file() and (folder / "releases.html").is_file():
        raise UsageError(
            f"{folder} is a site, not a release",
            fix="Verify the releases that it was made from",
        )
    result = check(folder, key)
    if not result.ok:
        if as_json:
            emit(result.to_json(), "", as_json)
            raise typer.Exit(DataError.exit_code)
        check_there(folder)
        many = len(result.problems)
        raise DataError(
            f"{folder} has {many} problem{'' if many == 1 else 's'}",
            why="\n  ".join(f"- {problem}" for problem in result.problems),
            fix="Download the release again from where it was published; do not use or publish this one",
        )
    several = len(result.guarantees) > 1
    which = "each of its guarantees, for its own people, follows" if several else "its guarantee follows"
    lines = [f"{folder} is whole, and {which} from its parameters:"]
    lines += [f"  {guarantee.summary()}" for guarantee in result.guarantees]
    if signature := result.signature:
        who = f"signed by {signature.fingerprint}" + (
            f" ({signature.signer})" if result.trusted and signature.signer else ""
        )
        lines.append(
            f"{who}, the key you gave" if result.trusted else f"{who}, not checked against a key you trust: --key"
        )
    if any(guarantee.test_noise for guarantee in result.guarantees):
        warn("its noise came from a test's seed: nothing is promised, do not publish it")
    for warning in result.warnings:
        warn(warning)
    emit(result.to_json(), "\n".join(lines), as_json)


def export(
    folder: FolderPath,
    csv: Annotated[
        Path | None, option("PATH", "A new folder for one CSV file per table; with --table, a new file.", "--csv")
    ] = None,
    table: Annotated[str | None, option("NAME", "With --csv: write only this table, such as queries.")] = None,
    sqlite: Annotated[Path | None, option("FILE", "A new SQLite file.", "--sqlite")] = None,
    force: Annotated[bool, flag("--force", "Replace an older export; nothing else is replaced.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Write a release as CSV or SQLite; the manifest goes along.

        hushquery export release --csv tables
        hushquery export release --csv queries.csv --table queries
        hushquery export release --sqlite release.db

    Text is written as it is, also in CSV (RFC 4180). People search for text
    that begins with =, +, - or @, which a spreadsheet takes for a formula when
    it opens a CSV file by double click: import the columns as text there.
    """
    if (csv is None) == (sqlite is None):
        raise UsageError("say where the export goes, once", fix="Use either --csv PATH or --sqlite FILE")
    if table is not None and csv is None:
        raise UsageError("--table is for CSV", why="a SQLite file holds all tables", fix="Use --csv, or leave it out")
    from hushquery.release import Release

    release = Release.load(folder)
    written = release.to_csv(csv, force, table=table) if csv is not None else release.to_sqlite(sqlite or "", force)
    sizes = {name: rows.num_rows for name, rows in release.tables.items() if table in (None, name)}
    emit({"written": str(written), "rows": sizes}, f"wrote {sizes_in_words(sizes)} to {written}", as_json)
