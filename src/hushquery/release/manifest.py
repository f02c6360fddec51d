"""Define what a release may hold: the columns of its tables, and the manifest that says how they were made.

Other columns are refused: one added for debugging could be a true count. The order of rows depends only on what they
say, because the order of an engine may follow the log. Nothing without noise belongs into the manifest either: no
count, size, hash, path or timing of the log. Values can't show that, so names that such things usually have are
refused.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from hushquery._version import __version__
from hushquery.core.budget import Unit, exact
from hushquery.core.description import Description
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.errors import DataError, HushqueryError, UsageError

#: What the numbers of a table are: counts, shares of all records, the two estimates behind a share, estimates from
#: clients' reports alone, or how many of these reports support what.
Measure = Literal["count", "share", "estimates", "estimate", "support"]

#: A share is ranked as if so many records had been counted.
SHARE_SCALE = 100_000

#: The parameter of a release of shares that states the share of everything that is not listed.
REST = "rest"

# The columns in which a value may be missing; NaN means the same.
_MAY_MISS = {"shift_z"}

# Sums of rounded shares may pass the whole by this much.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class TableKind:
    """A kind of table: the columns that name a row, what a row is, what its numbers may be, if it may have none.

    Rows of a ``listed`` table keep the order of a public list; others are ordered by what they say.
    """

    keys: tuple[str, ...]
    row: str
    measures: tuple[Measure, ...] = ("count", "share")
    bare: bool = False
    listed: bool = False


#: The tables a release may hold, by name.
KINDS: Mapping[str, TableKind] = {
    "queries": TableKind(("query",), "a query that people searched for", bare=True),
    "clicks": TableKind(("query", "url"), "a query and a page that people clicked on after it"),
    "reformulations": TableKind(
        ("query", "next_query"), "a query and the query that people searched for next", measures=("count",)
    ),
    "records": TableKind(
        ("query", "url"), "a query and a page, as the two groups of people measured them", measures=("estimates",)
    ),
    "estimates": TableKind(
        ("value",), "a value that was asked about, in the order of the list", measures=("estimate",), listed=True
    ),
    "support": TableKind(("cell",), "a cell of the randomizer, by its number", measures=("support",), listed=True),
    "candidates": TableKind(("text",), "a text that was looked for", measures=(), bare=True, listed=True),
}

_INTERVAL = {"low": "the lower end of the interval", "high": "the upper end of the interval"}

#: The columns that follow the keys, with what they hold, by what the numbers of a table are.
NUMBERS: Mapping[Measure, Mapping[str, str]] = {
    "count": {"count": "the noisy count; it may be below zero, because noise is"}
    | {"stderr": "the standard error of the noise", **_INTERVAL},
    "share": {"share": "the share of all records, from 0 to 1"}
    | {"stderr": "the standard error of the share", **_INTERVAL},
    "estimates": {
        "optin": "the share by the opt-in users alone; it may be below zero, because noise is",
        "optin_stderr": "its standard error",
        "client": "the share by the clients alone; it may be below zero too",
        "client_stderr": "its standard error",
        "weight": "the part of the opt-in estimate in the blend, from 0 to 1; the clients have the rest",
        "shift_z": "the difference between the two in standard errors; far from 0 the groups search differently; "
        "missing where it could not be tested",
    },
    "estimate": {"estimate": "the share of clients, or their average; it may be below zero, because noise is"}
    | {"stderr": "its standard error", **_INTERVAL},
    "support": {"reports": "how many reports support the cell, as they arrived: randomised"},
}

#: The columns of whole numbers.
WHOLE = ("count", "reports", "cell")


def measure_of(table: pa.Table) -> Measure | None:
    """Return what the numbers of a table are, by its columns; None for a bare list of keys."""
    return next((measure for measure, columns in NUMBERS.items() if next(iter(columns)) in table.column_names), None)


def measures_of(tables: Mapping[str, pa.Table]) -> dict[str, Measure | None]:
    """Return what the numbers of each table are, by name."""
    return {name: measure_of(table) for name, table in tables.items()}


def release_measure(tables: Mapping[str, pa.Table]) -> Literal["count", "share", "estimate"] | None:
    """Return whether a release speaks in counts, shares or estimates; None where it has lists alone. Refuse a mix."""
    measures = set(measures_of(tables).values()) - {None}
    reported = bool(measures & {"estimate", "support"})
    if ("count" in measures and len(measures) > 1) or (reported and measures != {"estimate", "support"}):
        fix = "Make one release of each: counts, shares, and estimates with their support"
        raise DataError("the tables of a release mix counts, shares and estimates", fix=fix)
    return None if not measures else "estimate" if reported else "count" if "count" in measures else "share"


def checked_table(name: str, table: pa.Table) -> pa.Table:
    """Return a table as a release holds it: known columns, types and order, no gaps, no key twice. Refuse any other."""
    kind = KINDS.get(name)
    if kind is None:
        raise UsageError(f"a release has no table {name!r}", fix=f"Give one of: {', '.join(KINDS)}")
    if not isinstance(table, pa.Table):
        raise UsageError(f"the table {name!r} is a {type(table).__name__}", fix="Give a pyarrow.Table")
    forms = [(*kind.keys, *NUMBERS[measure]) for measure in kind.measures]
    known = [*forms, kind.keys] if kind.bare else forms
    wanted = next((form for form in known if sorted(form) == sorted(table.column_names)), None)
    if wanted is None:
        fix = "Give exactly: " + "; or: ".join(", ".join(form) for form in forms or known)
        raise UsageError(f"the table {name!r} does not have the columns of one, and no others", fix=fix)
    schema = pa.schema([pa.field(column, _type(column, kind), nullable=column in _MAY_MISS) for column in wanted])
    try:
        table.validate(full=True)
        plain = pa.Table.from_arrays([_cast(table[column], column, kind) for column in wanted], names=list(wanted))
        plain.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        what, fix = f"the table {name!r} has values of another type", "Keys are UTF-8 text, counts whole numbers"
        raise DataError(what, why=type(error).__name__, fix=fix) from None
    problem = _problem(plain, kind.keys)
    if problem:
        raise DataError(f"the table {name!r} can't be published", why=problem, fix="This is a defect of what made it")
    return (plain if kind.listed else _ordered(plain, kind.keys)).combine_chunks().cast(schema)


def check_references(tables: Mapping[str, pa.Table], parameters: Mapping[str, Any]) -> None:
    """Refuse tables that do not fit together, whose shares and rest exceed all, or estimates of no task.

    Reformulations, and records and clicks of shares, need released queries: other keys would come from nowhere public.
    """
    measure = release_measure(tables)
    if measure == "estimate":
        task_of(parameters)
    if "queries" in tables:
        public = tables["queries"]["query"].combine_chunks()
        rooted = [("reformulations", "query"), ("reformulations", "next_query")]
        rooted += [("clicks", "query"), ("records", "query")] if measure == "share" else []
        for name, column in rooted:
            if name in tables and not _all(pc.is_in(tables[name][column], value_set=public)):
                what = f"a {name.removesuffix('s')} names a query that is not released"
                raise DataError(what, fix="Count what belongs to released queries only: only these are public")
    if measure == "share":
        rest = parameters.get(REST)
        if isinstance(rest, bool) or not isinstance(rest, int | float) or not 0 <= rest <= 1:
            fix = f"Give parameters a number {REST!r} from 0 to 1: the share of everything that is not listed"
            raise DataError("a release of shares does not say which share the rest has", fix=fix)
        for name in ("queries", "clicks"):
            listed = pc.sum(tables[name]["share"]).as_py() if name in tables and tables[name].num_columns > 1 else 0.0
            if (listed or 0.0) + rest > 1 + _ROUNDING:
                raise DataError(f"the shares of {name} and the rest are more than the whole", fix="Download it again")


def task_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task that estimates are of, as plain data; refuse parameters that do not say what pages show of it."""
    try:
        task: dict[str, Any] = json.loads(parameters["task_text"])
        texts = [task["task"]["name"], task["task"]["kind"], task["client"]["oracle"], *parameters["post_processing"]]
        epsilons = [exact(parameters[name], name) for name in ("answer_epsilon", "lifetime_epsilon")]
        counts = [parameters["reports"], task["task"].get("highest", 0)]
        sound = all(isinstance(text, str) for text in texts) and min(epsilons) >= 0
        sound = sound and all(type(count) is int for count in counts) and isinstance(parameters["refused"], dict)
    except (HushqueryError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        sound = False
    if not sound:
        what = "a release of estimates does not say which task they are of, or what its reports cost"
        raise DataError(what, fix="Make it with `hushquery estimate`, or download it again")
    return task


def _type(column: str, kind: TableKind) -> pa.DataType:
    return pa.int64() if column in WHOLE else pa.string() if column in kind.keys else pa.float64()


def _cast(values: pa.ChunkedArray, column: str, kind: TableKind) -> pa.ChunkedArray:
    plain = values.cast(_type(column, kind))
    return pc.if_else(pc.is_nan(plain), None, plain) if column in _MAY_MISS else plain


def _ordered(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Put what is most frequent first; what is equally frequent goes by its key."""
    order = [(key, "ascending") for key in keys]
    measure = measure_of(table)
    if measure == "estimates":
        return table.take(pc.sort_indices(table.append_column("by", _blended(table)), [("by", "descending"), *order]))
    return table.sort_by([(measure, "descending"), *order] if measure else order)


def _blended(table: pa.Table) -> pa.ChunkedArray:
    ours = pc.multiply(table["weight"], table["optin"])
    return pc.add(ours, pc.multiply(pc.subtract(1.0, table["weight"]), table["client"]))


def _problem(table: pa.Table, keys: tuple[str, ...]) -> str:
    """Return why a table can't be published; empty where it can."""
    if any(table[column].null_count for column in table.column_names if column not in _MAY_MISS):
        return "it has missing values"
    if table.group_by(list(keys)).aggregate([]).num_rows != table.num_rows:
        return "it lists a key twice"
    columns = [column for column in table.column_names if column not in keys]
    if not all(_all(pc.is_finite(table[column])) for column in columns):
        return "a number in it is not finite"
    if not all(_all(pc.greater_equal(table[column], 0.0)) for column in columns if column.endswith("stderr")):
        return "a standard error in it is below zero"
    if "low" in columns and not _ascending(table["low"], table["high"]):
        return "an interval in it ends before it begins"
    for column in ("share", "weight"):
        if column in columns and not _ascending(pa.scalar(0.0), table[column], pa.scalar(1.0)):
            return f"a {column} in it is not from 0 to 1"
    if "share" in columns and not _ascending(table["low"], table["share"], table["high"]):
        return "a share in it is outside its interval"
    return ""


def _ascending(*columns: Any) -> bool:
    return all(_all(pc.less_equal(one, other)) for one, other in pairwise(columns))


def _all(truths: pa.ChunkedArray) -> bool:
    return bool(pc.all(truths, min_count=0).as_py())


#: What the manifest calls its own format.
FORMAT = "hushquery-release"

#: The newest format version read here: 1 has counts; 2 adds shares, records and ``measures``; 3 adds estimates from
#: reports. A release is written in the lowest version that can hold it, so that older programs go on reading counts.
FORMAT_VERSION = 3

# Libraries whose version could change what a release holds.
_LIBRARIES = {"duckdb": "duckdb", "ibis": "ibis-framework", "numpy": "numpy", "pyarrow": "pyarrow", "mpmath": "mpmath"}

# The names of what a log alone knows: its numbers, its place, and how long it took.
_SECRET_NAMES = {
    *("rows", "row_count", "n_rows", "total_rows", "user_count", "n_users", "zero_cells"),
    *("distinct", "distinct_queries", "distinct_users", "distinct_keys", "defects", "malformed", "skipped"),
    *("input", "inputs", "source", "sources", "path", "file", "files", "filename", "folder", "hostname"),
    *("log_size", "log_hash", "input_size", "input_hash", "sha256", "md5", "checksum", "secret", "secret_key"),
    *("seconds", "duration", "elapsed", "timing", "timings", "started", "finished"),
}
_SECRET_ENDINGS = ("_path", "_file", "_files", "_seconds", "_seen", "_read", "_duration", "_rows", "_defects")
_DEEPEST = 12

_SHAPE: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("format", "hushquery", "kind", "created"), str),
    **dict.fromkeys(("guarantees", "steps", "notes"), list),
    **dict.fromkeys(("parameters", "meanings", "versions"), dict),
    "interval_level": (int, float),
}


def make_manifest(
    guarantees: Sequence[Guarantee],
    *,
    kind: str,
    parameters: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    meanings: Mapping[str, str],
    measures: Mapping[str, str | None],
    notes: Sequence[str],
    created: date | None,
    level: float,
    description: Description | None = None,
) -> dict[str, Any]:
    """Write the manifest of a release; refuse what looks as if it came from the log."""
    if not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Use a value such as 0.95")
    day = created or datetime.now(UTC)
    if isinstance(day, datetime):
        day = (day.astimezone(UTC) if day.tzinfo else day).date()
    return {
        "format": FORMAT,
        "format_version": _least_version(measures),
        "hushquery": __version__,
        "kind": plain(kind, "kind"),
        "created": day.isoformat(),
        **({"description": plain(description.to_json(), "description")} if description else {}),
        "guarantees": [plain(g.to_json(), "guarantee") for g in guarantees],
        "interval_level": level,
        "parameters": plain(parameters, "parameters", names=True),
        "steps": _steps(guarantees, steps),
        "meanings": plain(meanings, "meanings"),
        "measures": plain(measures, "measures"),
        "notes": plain(list(notes), "notes"),
        "versions": _versions(),
    }


def _steps(guarantees: Sequence[Guarantee], steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put the exact parameters beside each step of the guarantees."""
    promised = [(g.population, step) for g in guarantees for step in g.steps]
    if len(promised) != len(steps):
        what = f"{len(steps)} steps are described and {len(promised)} are in the guarantees"
        raise UsageError(what, fix="Describe every randomised step, in the order of the guarantees")
    described = []
    for number, ((population, step), given) in enumerate(zip(promised, steps, strict=True), 1):
        if set(given) != {"parameters"} or not isinstance(given["parameters"], Mapping):
            what = f"step {number} needs its parameters and has nothing else"
            raise UsageError(what, fix="Give the exact numbers the step ran with as parameters")
        own = {"population": population, "name": step.name, "detail": step.detail, "loss": step.loss.to_json()}
        parameters = plain(given["parameters"], f"step {number}", names=True)
        described.append({**plain(own, "step"), "parameters": parameters})
    return described


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name, package in _LIBRARIES.items():
        try:
            versions[name] = version(package)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def plain(value: Any, where: str, *, names: bool = False, _depth: int = 0) -> Any:
    """Return plain JSON data, fractions as text; refuse other data, and with ``names`` paths and names a log has."""
    if _depth > _DEEPEST:
        raise UsageError(f"{where} is nested too deeply", fix="Keep it flat")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        if names:
            _refuse_secret_names(value, where)
        if not all(isinstance(key, str) for key in value):
            raise UsageError(f"{where} has a name that is no text", fix="Give a mapping from text")
        return {
            plain(key, where): plain(item, f"{where}, {key!r}", names=names, _depth=_depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, where, names=names, _depth=_depth + 1) for item in value]
    if isinstance(value, str):
        return _plain_text(str(value), where, names=names)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Fraction | Decimal):
        return str(exact(value, where))
    if isinstance(value, os.PathLike):
        raise UsageError(f"{where} holds a path", why=_WHY, fix="Leave it out of the release")
    raise UsageError(
        f"{where} holds a {type(value).__name__}" + (" that is not finite" if isinstance(value, float) else ""),
        why="a manifest is plain data",
        fix="Give text, whole numbers, fractions, finite floats, truths, lists and mappings",
    )


_WHY = "what only the log knows must not be published"


def _plain_text(text: str, where: str, *, names: bool) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{where} holds text that is not Unicode", fix="Decode it properly first") from None
    if names and (text.startswith(("/", "~/", "./", "../", "file:")) or text[1:3] == ":\\"):
        raise UsageError(f"{where} looks like a path", why=_WHY, fix="Leave it out of the release")
    return text


def _refuse_secret_names(mapping: Mapping[Any, Any], where: str) -> None:
    for key in mapping:
        name = str(key).lower().replace("-", "_").replace(" ", "_")
        if name in _SECRET_NAMES or name.endswith(_SECRET_ENDINGS):
            raise UsageError(f"{where} has an entry {key!r}", why=_WHY, fix="Leave it out of the release")


def guarantee_from_json(data: Mapping[str, Any]) -> Guarantee:
    """Read what :meth:`Guarantee.to_json` wrote."""
    if data["model"] not in ("curator", "local"):
        raise DataError("a guarantee has a model this version does not know", fix="Upgrade hushquery")
    epsilon, delta = data["epsilon"], data["delta"]
    if not all(type(n) in (int, float) and math.isfinite(n) and n >= 0 for n in (epsilon, delta)):
        raise DataError("a guarantee has an epsilon or delta that is no number", fix="Download the release again")
    given, test_noise, population = data["steps"], data["test_noise"], data["population"]
    texts = [population, data["unit"], data["relation"]]
    if not isinstance(given, list) or type(test_noise) is not bool:
        raise DataError("a guarantee lists no steps, or does not say whose noise it is", fix="Download it again")
    texts += [step[part] for step in given for part in ("name", "detail")]
    if not all(isinstance(text, str) for text in texts):
        raise DataError("a guarantee has another thing where a text belongs", fix="Download the release again")
    steps = tuple(Step(step["name"], step["detail"], Loss.from_json(step["loss"])) for step in given)
    unit = Unit(data["unit"], data["relation"])
    return Guarantee(population, data["model"], unit, float(epsilon), float(delta), steps, test_noise)


def steps_of(manifest: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Pair each step of the guarantees with what the manifest says of how it ran."""
    promised = [step for guarantee in manifest["guarantees"] for step in guarantee["steps"]]
    return list(zip(promised, manifest["steps"], strict=True))


def _least_version(measures: Mapping[str, str | None]) -> int:
    if set(measures.values()) & {"estimate", "support"} or "candidates" in measures:
        return 3
    return 1 if set(measures.values()) <= {"count", None} else 2


def check_measures(manifest: Mapping[str, Any], measures: Mapping[str, str | None]) -> None:
    """Refuse a manifest that disagrees with its tables on what their numbers are; an old one means counts."""
    stated = manifest.get("measures", measures)
    if stated != measures or manifest["format_version"] < _least_version(measures):
        why = "it states other measures, or a format that does not know them"
        what = "manifest.json does not say what the numbers in the tables are"
        raise DataError(what, why=why, fix="Download the release again")


def check_shape(manifest: Any) -> None:
    """Refuse a manifest that is not one, or is of a newer format."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError("manifest.json is not the manifest of a hushquery release", fix="Give the folder of a release")
    written = manifest.get("format_version")
    if type(written) is int and written > FORMAT_VERSION:
        what = f"the release has format {written}, and this version of hushquery knows up to {FORMAT_VERSION}"
        raise DataError(what, fix="Upgrade hushquery")
    wrong = [] if type(written) is int and written > 0 else ["format_version"]
    wrong += [name for name, types in _SHAPE.items() if not isinstance(manifest.get(name), types)]
    if wrong:
        what = "manifest.json lacks parts or has them in another form"
        raise DataError(what, why=", ".join(wrong), fix="Download it again")
