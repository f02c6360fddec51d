"""Tables in files, for statistics and public lists: any format of a log, without a look at its rows."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hushquery.engine import as_table, connect, postgres
from hushquery.errors import DataError, UsageError
from hushquery.log import files, formats
from hushquery.log.columns import looks_like_data
from hushquery.log.defects import defects_of_files, refuse_unreadable_lines
from hushquery.log.formats import Format
from hushquery.log.sources import Layout, like_a_row, parquet_table, rows_view, view

_PLAIN = Layout()
_SQL_TYPES = {"float64": "DOUBLE", "int64": "BIGINT", "string": "VARCHAR"}
_REWRITE = {
    "parquet": "Check that it is complete",
    "jsonl": "Write one JSON object per line, in UTF-8; a JSON array becomes that with: jq -c '.[]' IN > OUT",
}


@dataclass(frozen=True)
class TableFiles:
    """A table in files, with what has to be said to read it: plans of statistics take it as their data.

    Args:
        data: A file name, a folder, a pattern, or a list of these.
        layout: Format, encoding, header and separator of text files.
        columns: New names of columns, each with the file's own name, or its place from 1; a file without a header
            line has the columns that are named here.
    """

    data: str | Path | Sequence[str | Path]
    layout: Layout = _PLAIN
    columns: Mapping[str, str | int] | None = None

    def open(self) -> tuple[str, str, list[files.FileHead]]:
        """Return format, encoding and the first bytes of the files."""
        if isinstance(self.data, str | Path) and not glob.has_magic(str(self.data)) and not Path(self.data).is_dir():
            self.layout.of([Path(self.data)])  # a name that tells no format is refused before it is looked for
        paths = files.find_files(self.data)
        kind, encoding = self.layout.of(paths), files.checked_encoding(self.layout.encoding)
        if kind in formats.FIXED:
            raise UsageError(f"{kind} is a format of search logs", fix="Use csv, tsv, jsonl or parquet")
        heads = [
            files.read_head(path, "utf-8" if kind == "parquet" else encoding, may_be_blank=kind == "jsonl")
            for path in paths
        ]
        return kind, encoding, heads

    def check(self) -> None:
        """Raise if the files plainly can't be read, before a budget is spent: see :meth:`hushquery.Log.check_files`."""
        kind, encoding, heads = self.open()
        if kind != "parquet":
            form, _ = _common(self, kind, heads, {"unit": "string"}, encoding)
            files.check_compressed([head.path for head in heads])
            refuse_unreadable_lines([head.path for head in heads], form, encoding, None)


def paths_of(data: Any) -> list[Path]:
    """Return the files that the data of a statistic is read from; none for a table that is in no file."""
    named = data.data if isinstance(data, TableFiles) else data
    names: list[Any] = list(named) if isinstance(named, list | tuple) else [named]
    if not names or not all(isinstance(name, str | Path) and "://" not in str(name) for name in names):
        return []
    return files.find_files(names)


def read_table(data: Any, *, types: Mapping[str, str] | None = None, public: bool = False) -> Any:
    """Return any table as an Ibis table: files, or what :func:`hushquery.engine.as_table` takes.

    Of a file only the header or schema is looked at; JSON lines have neither, so ``types`` must name every column. In
    text files, cells not of their type (``float64``, ``int64`` or ``string``) are missing, and malformed lines are left
    out, or refused with their numbers where all rows are ``public``, which reads the file.
    """
    if not isinstance(data, str | Path | TableFiles):
        return as_table(data)
    asked = data if isinstance(data, TableFiles) else TableFiles(data)
    types = types or {}
    for kind in types.values():
        if kind not in _SQL_TYPES:
            raise UsageError(f"the type {kind!r} is not known", fix=f"Use one of {', '.join(_SQL_TYPES)}")
    kind, encoding, heads = asked.open()
    paths, engine = [head.path for head in heads], connect()
    if kind == "parquet":
        if any(head.type != "a Parquet file" for head in heads):
            raise _unreadable(paths[0], kind)
        table = parquet_table(engine, paths)
        return table.rename(_renamed(asked.columns, list(table.columns)))
    form, names = _common(asked, kind, heads, types, encoding)
    if public and (defects := defects_of_files(paths, form, None, encoding)):
        raise DataError(
            "lines of a public list are malformed", why="; ".join(map(str, defects.kinds)), fix="Correct or delete them"
        )
    # In a line of cells an empty one has no value.
    values = {name: column if kind == "jsonl" else f"nullif({column}, '')" for column, name in names.items()}
    typed = {name: f"TRY_CAST({sql} AS {_SQL_TYPES[types.get(name, 'string')]})" for name, sql in values.items()}
    picked = ", ".join(f"{sql} AS {postgres.quote_name(name)}" for name, sql in typed.items())
    return view(engine, f"SELECT {picked} FROM {rows_view(form, heads, encoding, engine).get_name()}")  # noqa: S608


def _common(
    asked: TableFiles, kind: str, heads: Sequence[files.FileHead], types: Mapping[str, str], encoding: str
) -> tuple[Format, dict[str, str]]:
    """Return how lines become rows, and the name of each column, which we number; all files must agree."""
    layout = replace(asked.layout, encoding=encoding)
    forms = [_all_columns(head, kind, types, layout, asked.columns or {}) for head in heads]
    if any(other != forms[0] for other in forms):
        raise DataError("the files differ in their header line", fix="Give them one by one")
    return forms[0]


def _all_columns(
    head: files.FileHead, kind: str, types: Mapping[str, str], layout: Layout, columns: Mapping[str, str | int]
) -> tuple[Format, dict[str, str]]:
    lines = head.lines(layout.encoding)
    if kind == "jsonl":
        if lines and not any(formats.has_shape(kind, line) for line in lines):
            raise _unreadable(head.path, kind)
        names = {f"v{place}": name for place, name in enumerate(types)}
        return formats.jsonl({v: str(columns.get(name, name)) for v, name in names.items()}), names
    decisive = lines[0] if lines and layout.header is not False else ""
    separator = layout.separator or formats.separator_of(kind, decisive)
    if layout.header is False:
        places = _positions(columns)
        names = {f"v{place}": name for place, name in enumerate(places)}
        form = formats.without_header(kind, dict(zip(names, places.values(), strict=True)), separator)
        return form, names
    first = head.data.split(b"\n", 1)[0]
    header, *below = (formats.header_cells(line, separator, kind) for line in lines) if lines else ([],)
    bare = [name.strip() for name in header]
    alike = {name.lower() for name in bare}  # to an engine capitals are no difference
    whole = head.type == "" and b"\0" not in first and files.decodes(first, files.in_lines(layout.encoding))
    if not whole or not all(bare) or len(alike) < len(bare) or not bare:
        raise _unreadable(head.path, kind)
    if layout.header is None and looks_like_data(bare, below):
        raise like_a_row(head)
    places = {f"v{place}": place for place in range(len(bare))}
    theirs = {name: new for new, name in _renamed(columns, bare).items()}
    names = {f"v{place}": theirs.get(name, name) for place, name in enumerate(bare)}
    return formats.with_header(kind, header, places, separator), names


def _positions(columns: Mapping[str, str | int]) -> dict[str, int]:
    if not columns or not all(str(place).isdecimal() and int(place) > 0 for place in columns.values()):
        raise UsageError(
            "a file without a header line has no names of columns",
            fix="Name them by their places from 1: --no-header --columns user=1,minutes=4",
        )
    return {name: int(place) - 1 for name, place in columns.items()}


def _renamed(columns: Mapping[str, str | int] | None, theirs: Sequence[str]) -> dict[str, str]:
    """Return the new names of columns with the old ones; a number that is no name is a place from 1."""
    found: dict[str, str] = {}
    for name, one in (columns or {}).items():
        place = int(one) - 1 if str(one).isdecimal() and str(one) not in theirs else -1
        old = theirs[place] if 0 <= place < len(theirs) else str(one)
        if old not in theirs:
            raise DataError("the table has no such column", why=f"{name} is said to be one", fix="Check --columns")
        found[name] = old
    return found


def _unreadable(path: Path, kind: str) -> DataError:
    return DataError(
        f"the file {path} can't be read as {kind}",
        why=f"It should be: {formats.FORMATS[kind]}",
        fix=_REWRITE.get(kind, "Check that it is what its ending says, in UTF-8, with a header line of distinct names"),
    )
