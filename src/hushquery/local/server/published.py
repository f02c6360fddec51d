"""The release of an estimate, and the estimate of a release: nothing in one is believed that its integers contradict.

A release holds the task, the domain and the mechanism's integers as the two texts that their hashes are of, and what
the reports add up to. Everything else in it follows from these, and :func:`problems` computes all of it anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from hushquery._version import __version__
from hushquery.core.budget import format_epsilon
from hushquery.errors import DataError, HushqueryError
from hushquery.local.configuration import Configuration
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.server.estimate import ClientEstimate, client_step, estimate_support
from hushquery.release import Release
from hushquery.task import Task

#: What the manifest of such a release calls its kind.
KIND = "local"

# Numbers this close, in standard errors, are the same on another processor.
_NEAR = 1e-6
# JavaScript counts exactly below this.
_MOST_COUNT = 2**53
_DAMAGE = (HushqueryError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)

_SUPPORT = "of the reports, as they arrived, how many support a cell of the randomizer: the estimates are made of it"
_CANDIDATES = "a text that was looked for; RAPPOR finds no others, and one without an estimate did not pass the test"


def release_of(estimate: ClientEstimate, created: date | None = None) -> Release:
    """Make the release of an estimate; the day is today by default."""
    configuration, task = estimate.configuration, estimate.configuration.task
    tables = {
        "estimates": estimate.to_arrow(),
        "support": pa.table({"cell": pa.array(range(len(estimate.support)), pa.int64()), "reports": estimate.support}),
    }
    meanings = {"estimates": _meaning(configuration), "support": _SUPPORT}
    if estimate.candidates is not None:
        tables["candidates"] = pa.table({"text": pa.array(estimate.candidates, pa.string())})
        meanings["candidates"] = _CANDIDATES
    parameters = {
        "task": task.id,
        "configuration": configuration.digest.hex(),
        "reports": estimate.n,
        "received": estimate.read,
        "repeated": estimate.repeated,
        "refused": dict(estimate.refused),
        "periods": list(estimate.periods),
        "answer_epsilon": configuration.channel.epsilon,
        "lifetime_epsilon": task.client.lifetime_epsilon,
        "post": estimate.post,
        "post_processing": list(estimate.table.marks),
        "task_text": task.canonical(),
        "configuration_text": configuration.canonical(),
    }
    guarantee = estimate.guarantee
    if guarantee is None:
        raise DataError("an estimate without a guarantee can't be published", fix="Make it with hq.estimate")
    return Release.make(
        tables,
        [guarantee],
        kind=KIND,
        parameters=parameters,
        steps=[{"parameters": client_step(configuration, len(estimate.periods)).to_json()}],
        meanings=meanings,
        notes=[_lifetime(configuration), *estimate.notes],
        created=created,
        level=estimate.table.level,
    )


def _meaning(configuration: Configuration) -> str:
    task = configuration.task
    if isinstance(configuration.channel, OneBitMean):
        return f"the average over the clients that reported, of numbers from 0 to {task.task.highest:,}"
    whose = "records that clients reported" if task.client.records_per_user > 1 else "clients that reported"
    return f"share of the {whose}, estimated from their randomised reports"


def _lifetime(configuration: Configuration) -> str:
    one, most = configuration.channel.epsilon, configuration.task.client.lifetime_epsilon
    return (
        f"One answer costs a device at most epsilon {format_epsilon(one)}. A repeated answer costs nothing more, and a "
        f"device stops at epsilon {format_epsilon(most)} for its whole life, in all its tasks together, given the "
        "times at which its value changed."
    )


# ---- from a release ------------------------------------------------------------------------------------------------


def read_estimate(release: Release) -> ClientEstimate:
    """Return the estimate of a release, computed anew; refuse a release that does not follow from its integers."""
    if release.manifest.get("kind") != KIND:
        fix = "Give the folder that `hushquery estimate --out` wrote"
        raise DataError("this release holds no estimates from reports", fix=fix)
    found, wrong = _read(release)
    if found is None or wrong:
        raise DataError(
            "this estimate does not follow from its own numbers",
            why="; ".join(wrong[:3]),
            fix="Make it again with `hushquery estimate`; `hushquery verify` lists everything that is wrong",
        )
    return found


def problems(release: Release) -> Iterator[str]:
    """Yield what in a release of estimates does not follow from its integers; ``hushquery verify`` calls it."""
    yield from _read(release)[1]


def _read(release: Release) -> tuple[ClientEstimate | None, list[str]]:
    try:
        found = _again(release)
        expected = release_of(found, date.fromisoformat(release.manifest["created"]))
        return found, list(_differences(expected, release))
    except _DAMAGE as error:
        why = error.what + (f" ({error.why})" if error.why else "") if isinstance(error, HushqueryError) else ""
        return None, [f"the estimates can't be computed anew{': ' if why else ''}{why}"]


def _again(release: Release) -> ClientEstimate:
    """Compute an estimate anew from the texts and integers of a release."""
    stated, tables = release.manifest["parameters"], release.tables
    task, configuration = Task.from_json(stated["task_text"]), json.loads(stated["configuration_text"])
    own = not task.is_listed or task.task.domain is not None
    n, read, repeated = (_whole(stated[name]) for name in ("reports", "received", "repeated"))
    refused, periods = {name: _whole(many) for name, many in stated["refused"].items()}, stated["periods"]
    if n + repeated + sum(refused.values()) != read:
        raise DataError("some reports were neither counted, nor repeated, nor refused", fix="Download it again")
    if (
        not periods
        or sorted({_whole(one) for one in periods}) != periods
        or (task.task.period is None and periods != [0])
    ):
        raise DataError("its periods can't be", fix="Download it again")
    return estimate_support(
        Configuration.of(task, None if own else configuration["domain"]["records"]),
        np.array(tables["support"]["reports"].to_pylist(), dtype=np.int64),
        n,
        periods=periods,
        level=release.manifest["interval_level"],
        post=stated["post"],
        candidates=tables["candidates"]["text"].to_pylist() if "candidates" in tables else None,
        read=read,
        repeated=repeated,
        refused=refused,
    )


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST_COUNT:
        raise DataError("a count in its parameters is none", fix="Download it again")
    return value


def _differences(expected: Release, found: Release) -> Iterator[str]:
    """Yield where a release differs from what is expected; a later version may say more, and in other words."""
    ours, theirs = expected.manifest, found.manifest
    for name, value in ours["parameters"].items():
        if name not in theirs["parameters"] or not _same(value, theirs["parameters"][name]):
            yield f"its parameter {name!r} does not follow from its task, its domain and its counts"
    same_version = theirs["hushquery"] == __version__
    words = () if same_version else ("detail",)
    for name in ("guarantees", "steps"):
        if not _same(ours[name], theirs[name], words):
            yield f"its {name} are not those of its task and its mechanism"
    if same_version and any(ours[name] != theirs[name] for name in ("meanings", "notes")):
        yield "its meanings or notes are not those of such estimates"
    if set(expected.tables) != set(found.tables):
        yield "it has other tables than such estimates have"
        return
    for name in ("support", "candidates"):
        if name in found.tables and not expected.tables[name].equals(found.tables[name]):
            yield f"{name}.parquet does not list what the task's mechanism counts"
    if not _same_rows(expected.tables["estimates"], found.tables["estimates"]):
        yield "the estimates are not those that the counted reports give"


def _same(ours: Any, theirs: Any, words: tuple[str, ...] = ()) -> bool:
    """Return whether plain data says what is expected; names that are not known here, or are words, are passed over."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, dict):
        known = [name for name in ours if name not in words]
        return all(name in theirs and _same(ours[name], theirs[name], words) for name in known)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(_same(a, b, words) for a, b in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


def _same_rows(one: pa.Table, other: pa.Table) -> bool:
    if one["value"].to_pylist() != other["value"].to_pylist():
        return False
    near = [max(_NEAR * error, 1e-12) for error in one["stderr"].to_pylist()]
    return all(
        all(math.isclose(a, b, rel_tol=0.0, abs_tol=d) for a, b, d in zip(ours, theirs, near, strict=True))
        for ours, theirs in ((one[name].to_pylist(), other[name].to_pylist()) for name in one.column_names[1:])
    )
