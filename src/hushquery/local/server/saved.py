"""A saved estimate, read again: nothing is believed that a count or a mechanism contradicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hushquery.core.estimates import Estimate, Estimates
from hushquery.core.guarantee import Guarantee
from hushquery.core.local_loss import CHANNELS, report_epsilon
from hushquery.core.loss import Loss
from hushquery.errors import DataError, HushqueryError
from hushquery.local.server.estimate import FORMAT, VERSION, ClientEstimate

# Limits of a saved estimate: JavaScript counts exactly below the first, no share or average is above the second.
_MOST_COUNT = 2**53
_MOST_NUMBER = 1e100


def estimate_from_json(data: Any) -> ClientEstimate:
    """Read plain data of an estimate; refuses counts that can't be and versions that it does not know."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise DataError("this is no estimate of hushquery", fix="Make one with `hushquery estimate --out`")
    written = data.get("format_version")
    if type(written) is not int or written != VERSION:
        raise DataError("this estimate has a version that is not known here", fix="Upgrade hushquery")
    try:
        return _read(data)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, HushqueryError):
        raise DataError(
            "this estimate lacks parts or holds impossible numbers", fix="Make it again with `hushquery estimate`"
        ) from None


def _read(data: Mapping[str, Any]) -> ClientEstimate:
    from hushquery.release.manifest import guarantee_from_json

    periods, refused, notes = _listed(data["periods"]), data["refused"], _texts(data["notes"])
    support, digest = _listed(data["support"]), bytes.fromhex(data["configuration"])
    n, read, repeated = (_whole(data[name]) for name in ("n", "read", "repeated"))
    # Each report that was read was counted, or came again, or was refused.
    if n == 0 or n + repeated + sum(map(_whole, refused.values())) != read:
        raise ValueError("counts")
    if not support or not all(_whole(count) <= n for count in support):
        raise ValueError("support")
    if not periods or sorted(set(map(_whole, periods))) != periods:
        raise ValueError("periods")
    if len(digest) != 32 or len(bytes.fromhex(data["task"])) != 32 or not 0 < data["level"] < 1:
        raise ValueError("header")
    rows = tuple(
        Estimate(_text(row["label"]), *(_number(row[name]) for name in ("estimate", "stderr", "low", "high")))
        for row in _listed(data["estimates"])
    )
    guarantee = guarantee_from_json(data["guarantee"])
    mechanism = {_text(name): value for name, value in data["mechanism"].items()}
    _check_promise(guarantee, mechanism, len(periods))
    return ClientEstimate(
        table=Estimates(rows, data["level"], guarantee, _texts(data["post_processing"])),
        digest=digest,
        task=data["task"],
        mechanism=mechanism,
        n=n,
        support=np.array(support, dtype=np.int64),
        read=read,
        repeated=repeated,
        refused={_text(name): count for name, count in refused.items()},
        periods=tuple(periods),
        notes=notes,
    )


def _check_promise(guarantee: Guarantee, mechanism: Mapping[str, Any], periods: int) -> None:
    """Refuse a guarantee that its own step exceeds, or a step that costs less than the mechanism's integers do."""
    (step,) = guarantee.steps
    if step.name != mechanism["name"] or not guarantee.loss.fits(guarantee.epsilon, guarantee.delta):
        raise ValueError("guarantee")
    if step.name not in CHANNELS:  # whose cost can't be computed from what is saved
        return
    one, total = report_epsilon(mechanism), sum(step.loss.pure)
    # So many answers of each client in a period; over several periods perhaps no more than its lifetime budget.
    whole = total == one if one == 0 else (total / one).denominator == 1
    if step.loss != Loss(pure=(total,)) or total < one or (periods == 1 and not whole):
        raise ValueError("guarantee")


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST_COUNT:
        raise ValueError("no count")
    return value


def _number(value: Any) -> float:
    """Read a number; null is one that was not finite."""
    if value is None:
        return math.nan
    if type(value) not in (int, float) or not abs(value) <= _MOST_NUMBER:
        raise ValueError("no number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _listed(value)))


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value
