"""Writes the JSON Schemas of the files and of the wire, for readers in other languages: `make schemas`.

Each is made from what the code itself uses: the model of the task, the documents of the collector's OpenAPI, the kinds
of tables and steps. They go to src/hushquery/schemas, with the package; the table of columns in
docs/formats.md comes from here too. With --check nothing is written, and what is not current is named.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from hushquery.collect.http import problems as documents
from hushquery.collect.http.problems import PROBLEMS
from hushquery.core.budget import Relation
from hushquery.core.description import LONGEST, MOST_PEOPLE
from hushquery.core.iterated import IteratedSelection
from hushquery.core.local_loss import CHANNELS, LocalChannel
from hushquery.core.loss import (
    GaussianHistogram,
    GaussianWeights,
    LaplaceHistogram,
    OptimalSelection,
    StepParameters,
)
from hushquery.local.report import HEADER_BYTES, MOST_PAYLOAD
from hushquery.local.server.estimate import Post
from hushquery.release.manifest import FORMAT, FORMAT_VERSION, KINDS, NUMBERS, WHOLE
from hushquery.task import Task

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "src" / "hushquery" / "schemas"
PAGE = ROOT / "docs" / "formats.md"
BEGIN, END = "<!-- columns: written by `make schemas` -->", "<!-- end of columns -->"

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_ROWS: Schema = {"type": "integer", "minimum": 0}
_RELATION: Schema = {"enum": [relation.value for relation in Relation]}
_FRACTION: Schema = {"type": "string", "pattern": "^[0-9]+(/[0-9]+)?$", "description": "an exact fraction n/d, or n"}
# What a step ran with may also be a plain number.
_EXACT: Schema = {"type": ["number", "string"], "description": "an exact number: 20, or a fraction as text"}
_STEPS = (LaplaceHistogram, GaussianHistogram, OptimalSelection, GaussianWeights, IteratedSelection, LocalChannel)
_OF_FIELDS: Mapping[str, Schema] = {
    "keys_per_user": {"type": "integer"},
    "threshold": {"type": ["integer", "null"]},
    "row_counts": {"type": "boolean"},
    "min_users": {"type": "integer", "minimum": 1},
    "equal": {"type": "boolean"},
    "reports": {"type": "integer", "minimum": 1},
    "relation": _RELATION,
    "grid": {"type": "integer"},
    "cuts": {"type": "array", "items": {"type": "integer"}},
    "evidence": {"type": "array", "items": {"type": "integer"}},
    "sigmas": {"type": "array", "items": _EXACT},
    "multipliers": {"type": "array", "items": _EXACT},
    "oracle": {
        "type": "object",
        "properties": {"name": {"enum": sorted(CHANNELS)}, "k": {"type": "integer", "minimum": 1}},
        "required": ["name"],
        "description": "the randomizer's name, its cells and its integers: chances over 2^53",
    },
}
# Bytes as base64url without padding, and with no spare bit set: there is one way to write them.
_BYTES = "^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048])?$"


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def record(properties: Mapping[str, Any], *, optional: tuple[str, ...] = (), closed: bool = False) -> Schema:
    """An object with these properties, all of them required but the optional ones."""
    made: Schema = {"type": "object", "properties": dict(properties)}
    made["required"] = [name for name in properties if name not in optional]
    return {**made, "additionalProperties": False} if closed else made


def many(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def document(name: str, title: str, body: Schema) -> Schema:
    return {"$schema": _DRAFT, "$id": f"urn:hushquery:schema:{name}", "title": title, **body}


# ---- guarantees and steps ----------------------------------------------------------------------------------


def step_parameters(kind: type[StepParameters]) -> Schema:
    """The numbers that a step of one kind ran with; a release may note more beside them."""
    known = fields(kind)
    properties = {"kind": {"const": kind.kind}, **{field.name: _OF_FIELDS.get(field.name, _EXACT) for field in known}}
    return record(properties, optional=tuple(field.name for field in known if field.default is not MISSING))


def privacy() -> dict[str, Schema]:
    """What guarantees and the steps behind them look like, for `$defs`."""
    sparse = {"keys_per_user": _ROWS, "sigma": _FRACTION, "threshold": {"type": "integer"}, "relation": _RELATION}
    loss = {
        "mu_squared": _FRACTION,
        "pure": many(_FRACTION),
        "threshold_delta": _FRACTION,
        "sparse": many(record(sparse, closed=True)),
        "union_delta": {**_FRACTION, "description": "an exact fraction n/d, or n; absent: 0"},
    }
    guarantee = {
        "population": _TEXT,
        "model": {"enum": ["curator", "local"]},
        "unit": _TEXT,
        "relation": _RELATION,
        "epsilon": {"type": "number", "minimum": 0},
        "delta": {"type": "number", "minimum": 0},
        "test_noise": {"type": "boolean", "description": "true: the noise came from a test, and nothing is promised"},
        "steps": many(ref("promised_step"), 1),
    }
    return {
        "loss": {
            **record(loss, optional=("union_delta",), closed=True),
            "description": "What a step costs, exactly. A reader that does not know a part must refuse all of it.",
        },
        "promised_step": record({"name": _TEXT, "detail": _TEXT, "loss": ref("loss")}),
        "guarantee": record(guarantee),
        "step_parameters": {"oneOf": [step_parameters(kind) for kind in _STEPS]},
    }


# ---- files -------------------------------------------------------------------------------------------------


def manifest() -> Schema:
    own = {
        "format": {"const": FORMAT},
        "format_version": {"type": "integer", "minimum": 1, "maximum": FORMAT_VERSION},
        "hushquery": {"type": "string", "description": "the version that wrote it"},
        "kind": {"enum": ["curator", "hybrid", "local"]},
        "created": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": "the day, in UTC"},
        "description": ref("description"),
        "guarantees": many(ref("guarantee"), 1),
        "interval_level": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "parameters": {
            "type": "object",
            "description": "what the steward chose; of shares also `rest`, of estimates the task and what was counted",
        },
        "steps": many(ref("step"), 1),
        "meanings": _by_table(_TEXT),
        "measures": _by_table({"enum": [*NUMBERS, None]}),
        "notes": many(_TEXT),
        "versions": {"type": "object", "description": "Python and the libraries that could change a release"},
    }
    shares = {"format_version": {"const": 2}, "parameters": {"required": ["rest"], "properties": {"rest": _share()}}}
    local = {"format_version": {"const": 3}, "parameters": counted(), "guarantees": {"maxItems": 1}}
    made = {
        **record(own, optional=("measures", "description")),
        "description": "How the tables were made. Exports and the collector's releases hold this much.",
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": properties}}
            for kind, properties in (("hybrid", shares), ("local", local))
        ],
    }
    table = record({"sha256": _HEX, "rows": _ROWS, "columns": many(_TEXT, 1)})
    listed = {f"{name}.parquet": table for name in KINDS} | {name: record({"sha256": _HEX}) for name in _PAGES}
    body = {
        **ref("made"),
        "properties": {
            "files": {
                "type": "object",
                "properties": listed,
                "required": list(_PAGES),
                "additionalProperties": False,
                "minProperties": len(_PAGES) + 1,
            },
            "manifest_sha256": {**_HEX, "description": "of this file without this last entry, as it was written"},
        },
        "required": ["files", "manifest_sha256"],
    }
    step = {"population": _TEXT, "name": _TEXT, "detail": _TEXT, "loss": ref("loss")}
    step["parameters"] = ref("step_parameters")
    defs = {"made": made, "description": description(), "step": record(step), **privacy()}
    return document("manifest", "manifest.json of a release", {**body, "$defs": defs})


def description() -> Schema:
    """What a release says of itself, each part optional."""
    day = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
    own: Schema = {name: {"type": "string", "minLength": 1, "maxLength": most} for name, most in LONGEST.items()}
    own["period"] = {**record({"start": day, "end": day}), "description": "the days of the data, both included"}
    own["people"] = {"type": "integer", "minimum": 1, "maximum": MOST_PEOPLE, "description": "declared, not counted"}
    return {**record(own, optional=tuple(own)), "description": "what the steward declares of the release"}


def signature() -> Schema:
    raw = {"type": "string", "pattern": "^[A-Za-z0-9+/]{43}=$", "description": "32 bytes in base64"}
    own = {
        "format": {"const": "hushquery-signature"},
        "format_version": {"const": 1},
        "algorithm": {"const": "Ed25519"},
        "signed": {"type": "string", "description": "the file that is signed, beside this one"},
        "sha256": _HEX,
        "public_key": raw,
        "fingerprint": {"type": "string", "pattern": "^SHA256:[A-Za-z0-9+/]{43}$"},
        "signature": {"type": "string", "pattern": "^[A-Za-z0-9+/]{86}==$", "description": "64 bytes in base64"},
        "signer": {"type": ["string", "null"], "description": "the publisher, as the signed file names it"},
    }
    return document("signature", "signature.json: who signed a folder", record(own, closed=True))


_PAGES = ("README.md", "report.html")


def _by_table(value: Schema) -> Schema:
    properties = dict.fromkeys(KINDS, value)
    return {"type": "object", "properties": properties, "additionalProperties": False, "minProperties": 1}


def _share() -> Schema:
    return {"type": "number", "minimum": 0, "maximum": 1}


def task() -> Schema:
    made = Task.json_schema()
    del made["$schema"], made["title"]
    return document("task", "a task: the TOML file as data, or the JSON that a collector serves", made)


def _task_parts() -> dict[str, Schema]:
    """The task as a part of another document, for `$defs`."""
    made = task()
    parts: dict[str, Schema] = made.pop("$defs")
    return {**parts, "task": {name: value for name, value in made.items() if not name.startswith("$")}}


def head() -> Schema:
    pair = {"type": "array", "prefixItems": [_TEXT, _TEXT], "minItems": 2, "maxItems": 2}
    optin = {
        "way": {"enum": ["reuse", "split"]},
        "records": many(pair),
        "values": many({"type": "number"}),
        "n": {"type": "integer", "minimum": 1},
        "noise_variance": {"type": "number", "minimum": 0},
        "wildcard": {"type": "number"},
        "wildcard_draws": _ROWS,
        "parts": many(many(ref("step_parameters"), 1), 1),
    }
    own = {
        "format": {"const": "hushquery-head"},
        "version": {"const": 1},
        "task": ref("task"),
        "epoch": _ROWS,
        "kept_since": {"type": ["integer", "null"], "minimum": 0, "description": "only in later periods of a list"},
        "created": {"type": "string"},
        "test_noise": {"type": "boolean"},
        "configuration": {"type": ["string", "null"], "pattern": _HEX["pattern"], "description": "null: an empty list"},
        "records": many(pair),
        "optin": record(optin),
    }
    made = record(own, optional=("kept_since",), closed=True)
    defs = {"step_parameters": privacy()["step_parameters"], **_task_parts()}
    return document("head", "head.json: the published head list", {**made, "$defs": defs})


def counted() -> Schema:
    """What the parameters of estimates hold: from these, and the table of support, all of it can be computed anew."""
    own = {
        "task": _HEX,
        "configuration": _HEX,
        "reports": {**_COUNT, "minimum": 2},
        "received": _COUNT,
        "repeated": _COUNT,
        "refused": {"type": "object", "additionalProperties": _COUNT},
        "periods": {**many(_COUNT, 1), "uniqueItems": True},
        "answer_epsilon": _FRACTION,
        "lifetime_epsilon": _FRACTION,
        "post": {"enum": [None, *get_args(Post)]},
        "post_processing": many(_TEXT),
        "task_text": {"type": "string", "description": "the canonical JSON of the task, whose SHA-256 is `task`"},
        "configuration_text": {"type": "string", "description": "domain and integers; its SHA-256 is `configuration`"},
    }
    return record(own)


# ---- the wire ----------------------------------------------------------------------------------------------


def report() -> Schema:
    made = json.loads(json.dumps(documents.REPORT))
    made["properties"]["payload"] |= {"pattern": _BYTES, "maxLength": (4 * MOST_PAYLOAD + 2) // 3}
    layout = (
        f"The compact form is the same fields as bytes, {HEADER_BYTES} before the payload, numbers unsigned and "
        "big-endian: version (1 byte), id (16), task (32), configuration (32), time (8), length of the payload (2), "
        "payload. Here bytes are base64url without padding."
    )
    return document("report", "a report, in its JSON form", {"description": layout, **made})


def batch() -> Schema:
    return document("batch", "many reports in one request; each gets its own status", documents.BATCH)


def records() -> Schema:
    return document("records", "the records of one user who opted in", documents.RECORDS)


def results() -> Schema:
    made = json.loads(json.dumps(documents.RESULTS))
    item = made["properties"]["results"]["items"]
    item["properties"]["id"] |= {"pattern": documents.REPORT["properties"]["id"]["pattern"]}
    item["properties"]["status"] = {"enum": sorted({200, 201, *(problem.status for problem in PROBLEMS.values())})}
    item["if"] = {"properties": {"status": {"enum": [200, 201]}}}
    item["then"] = {"properties": {"problem": False}}
    item["else"] = {"required": ["problem"]}
    return document("results", "the answer to many reports: a status for each, in their order", made)


def problem() -> Schema:
    return document("problem", "a problem document (RFC 9457)", documents.PROBLEM)


def tasks() -> Schema:
    made = json.loads(json.dumps(documents.TASK_LIST))
    made["properties"]["tasks"]["items"]["properties"]["id"] = _HEX
    return document("tasks", "the tasks of a collector: GET /v1/tasks", made)


def served_task() -> Schema:
    made = json.loads(json.dumps(documents.TASK))
    configuration = record({"domain": {"type": "object"}, "oracle": {"type": "object"}, "task": _HEX, "version": {}})
    configuration["properties"]["version"] = {"const": 1}
    made["properties"] |= {
        "id": _HEX,
        "task": ref("task"),
        "configuration": {"anyOf": [configuration, {"type": "null"}]},
        "configuration_hash": {"type": ["string", "null"], "pattern": _HEX["pattern"]},
        "releases": many(record({"epoch": _ROWS, "id": _HEX})),
    }
    return document("served-task", "what clients fetch: GET /v1/tasks/{task}", {**made, "$defs": _task_parts()})


def served_release() -> Schema:
    columns = {"type": "object", "additionalProperties": {"type": "array"}}
    own = {
        "task": _HEX,
        "name": _TEXT,
        "epoch": _ROWS,
        "manifest": ref("made"),
        "guarantees": many(ref("guarantee"), 1),
        "tables": {**_by_table(columns), "description": "each table by columns, lists of equal length"},
    }
    body = {**record(own), "$defs": manifest()["$defs"]}
    return document("served-release", "a release of a collector: GET /v1/releases/{release}", body)


SCHEMAS = {
    "manifest": manifest,
    "signature": signature,
    "task": task,
    "head": head,
    "report": report,
    "batch": batch,
    "results": results,
    "records": records,
    "problem": problem,
    "tasks": tasks,
    "served-task": served_task,
    "served-release": served_release,
}


# ---- writing -----------------------------------------------------------------------------------------------


def columns() -> str:
    """The tables of tables and of their columns for docs/formats.md."""
    lines = ["| file | one row is | key, `string` unless it says so | its numbers |", "|---|---|---|---|"]
    for name, kind in KINDS.items():
        forms = [*kind.measures, *(["none: a list"] if kind.bare else [])]
        keys = ", ".join(f"`{key}`{' (int64)' if key in WHOLE else ''}" for key in kind.keys)
        lines.append(f"| `{name}.parquet` | {kind.row} | {keys} | {', or '.join(forms)} |")
    lines += ["", "| numbers | column | type | what it holds |", "|---|---|---|---|"]
    for measure, held in NUMBERS.items():
        for place, (column, what) in enumerate(held.items()):
            kind_of = "int64" if column in WHOLE else "double"
            lines.append(f"| {'' if place else measure} | `{column}` | {kind_of} | {what} |")
    return "\n".join(lines)


def wanted() -> dict[Path, str]:
    """Every file that is made here, with what it has to say."""
    found: dict[Path, str] = {}
    for name, make in SCHEMAS.items():
        found[PLACE / f"{name}.schema.json"] = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    found[PAGE] = f"{before}{BEGIN}\n\n{columns()}\n\n{END}{after}"
    return found


def stale() -> list[str]:
    """The files that do not say what they should, or that nobody makes any more."""
    made = wanted()
    other = [path for path in PLACE.glob("*") if path not in made]
    wrong = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    return sorted(str(path.relative_to(ROOT)) for path in [*wrong, *other])


def main() -> None:
    if "--check" in sys.argv[1:]:
        found = stale()
        print("\n".join(f"{name} is not current: run `make schemas`" for name in found) or "all schemas are current")
        sys.exit(1 if found else 0)
    PLACE.mkdir(exist_ok=True)
    for path, text in wanted().items():
        path.write_text(text, encoding="utf-8")
    print(f"wrote {len(SCHEMAS)} schemas")


if __name__ == "__main__":
    main()
