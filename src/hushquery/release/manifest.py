"""Write and check the manifest: how a release was made, without anything that the log alone could have told.

Nothing without noise belongs here: no count, size, hash, path or timing of the log. Values can't show that, so names
that such things usually have are refused.
"""

from __future__ import annotations

import math
import numbers
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hushquery._version import __version__
from hushquery.core.budget import Unit, exact
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.errors import DataError, UsageError

#: What the manifest calls its own format.
FORMAT = "hushquery-release"

#: The newest format version read here: 1 has counts; 2 adds shares, records and ``measures``. A release is written in
#: the lowest version that can hold it, so that older programs go on reading counts.
FORMAT_VERSION = 2

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
    return 1 if set(measures.values()) <= {"count", None} else FORMAT_VERSION


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
