"""What the clients of a task said, counted and estimated: the result that is shown, saved, and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hushquery.core.estimates import Estimate, Estimates
from hushquery.core.guarantee import Guarantee
from hushquery.core.local_loss import CHANNELS, report_epsilon
from hushquery.core.loss import Loss
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.local.oracles.oracle import IntArray

__all__ = ["DATA_FILE", "TABLE_FILE", "ClientEstimate", "new_folder"]

#: The file of a saved estimate that holds everything.
DATA_FILE = "estimates.json"

#: The file of a saved estimate that holds the table alone, for other programs.
TABLE_FILE = "estimates.parquet"

_FORMAT, _VERSION = "hushquery client estimate", 1

# Beyond these a saved estimate is none: JavaScript counts exactly below the first, no share or average is above the
# second, and the longest list has a million rows.
_MOST_COUNT = 2**53
_MOST_NUMBER = 1e100
_MOST_BYTES = 2**29


@dataclass(frozen=True)
class ClientEstimate:
    """What the clients of a task said, counted and estimated.

    Args:
        table: The estimates: label, value, stderr, low, high.
        digest: The configuration hash of the reports, 32 bytes.
        task: The task id, in hexadecimal digits.
        mechanism: The mechanism's name and integers.
        n: How many reports were counted.
        support: The integers that the estimates are made of, as the mechanism counts them: for a frequency oracle,
            how many reports speak for each cell.
        read: How many reports were read.
        repeated: How many came again, with the same bytes, and were counted once.
        refused: How many were not counted, by kind of error.
        periods: The numbers of the task's periods that the counted reports are from, in ascending order. It is one,
            unless an estimate over all was asked for; a task without periods has period 0.
        notes: What else a reader should know.
    """

    table: Estimates
    digest: bytes
    task: str
    mechanism: Mapping[str, Any]
    n: int
    support: IntArray = field(repr=False)
    read: int
    repeated: int
    refused: Mapping[str, int]
    periods: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, label: str) -> Estimate:
        return self.table[label]

    @property
    def values(self) -> list[float]:
        """The estimates alone."""
        return self.table.values

    @property
    def period(self) -> int | None:
        """The number of the period that was counted; None where it was deliberately several."""
        return self.periods[0] if len(self.periods) == 1 else None

    @property
    def guarantee(self) -> Guarantee | None:
        """What the reports promise."""
        return self.table.guarantee

    def __str__(self) -> str:
        lines = [str(self.table), f"{self.n:,} reports counted of {self.read:,} read"]
        if self.repeated:
            lines.append(f"{self.repeated:,} came more than once and were counted once")
        lines += [f"{count:,} refused: {name}" for name, count in self.refused.items()]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain data."""
        return {
            "format": _FORMAT,
            "format_version": _VERSION,
            "task": self.task,
            "configuration": self.digest.hex(),
            "mechanism": dict(self.mechanism),
            "n": self.n,
            "read": self.read,
            "repeated": self.repeated,
            "refused": dict(self.refused),
            "periods": list(self.periods),
            "notes": list(self.notes),
            "support": self.support.tolist(),
            **self.table.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> ClientEstimate:
        """Read what :meth:`to_json` gave; refuses counts that can't be and versions that it does not know."""
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise DataError("this is no estimate of hushquery", fix="Make one with `hushquery estimate --out`")
        written = data.get("format_version")
        if type(written) is not int or written != _VERSION:
            raise DataError("this estimate has a version that is not known here", fix="Upgrade hushquery")
        try:
            return cls._read(data)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, HushqueryError):
            raise DataError(
                "this estimate lacks parts or holds impossible numbers", fix="Make it again with `hushquery estimate`"
            ) from None

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> ClientEstimate:
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
        return cls(
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

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write ``estimates.json`` and ``estimates.parquet`` into a new folder, both or nothing."""
        import pyarrow as pa

        from hushquery.release.release import manifest_bytes, parquet_bytes, write_folder

        columns = {
            "value": pa.array([row.label for row in self], pa.string()),
            **{
                name: pa.array([getattr(row, part) for row in self], pa.float64())
                for name, part in (("estimate", "value"), ("stderr", "stderr"), ("low", "low"), ("high", "high"))
            },
        }
        files = {DATA_FILE: manifest_bytes(self.to_json()), TABLE_FILE: parquet_bytes(pa.table(columns))}
        return write_folder(new_folder(folder), files)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> ClientEstimate:
        """Read what :meth:`save` wrote."""
        path = Path(folder) / DATA_FILE
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise DataError(f"{DATA_FILE} is too large for an estimate", fix="Make it again with fewer cells")
            data = json.loads(path.read_bytes())
        except OSError as error:
            raise DataError(
                f"{Path(folder).name} holds no {DATA_FILE} that can be read",
                why=error.strerror or "",
                fix="Give the folder that `hushquery estimate --out` wrote",
            ) from None
        except (ValueError, RecursionError):
            raise DataError(f"{DATA_FILE} is not JSON", fix="Make it again with `hushquery estimate`") from None
        return cls.from_json(data)


def new_folder(folder: str | PathLike[str]) -> Path:
    """Refuse a folder that an estimate can't be saved to; to be asked before millions of reports are read."""
    from hushquery.release.release import check_target

    path = Path(folder)
    if path.exists():
        raise UsageError(f"{path.name} exists already", fix="Give another folder, or delete that one first")
    return check_target(path)


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
