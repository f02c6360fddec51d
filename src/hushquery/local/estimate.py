"""From reports to a table: how many clients hold what, as far as their noise lets one say.

The estimates are raw and unbiased, so they may be negative or sum to something else than 1; post-processing is named,
asked for and marked. **Guarantee:** that of the reports, pure epsilon under replace-one from the integers that the
clients ran with; nothing done to reports can spend more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hushquery.errors import DataError, HushqueryError, NotReady, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.number_channels import MeanChannel
from hushquery.local.oracle import IntArray
from hushquery.local.rappor_channel import RapporChannel
from hushquery.local.report_counting import ReportCount
from hushquery.local.report_files import Reports, read_blocks
from hushquery.privacy.estimates import Estimate, Estimates
from hushquery.privacy.guarantee import Guarantee, Step
from hushquery.privacy.loss import Loss
from hushquery.privacy.postprocess import clip, simplex
from hushquery.privacy.unit import Relation, Unit
from hushquery.task import Task

__all__ = ["DATA_FILE", "TABLE_FILE", "ClientEstimate", "Post", "check_post", "estimate", "new_folder"]

#: How a table can be post-processed. ``clip`` cuts at the ends of what can be true. ``norm-sub`` adds one number to all
#: shares and cuts at zero so that they sum to 1; that is the nearest such table, so ``simplex`` is the same.
Post = Literal["clip", "norm-sub", "simplex"]

#: The file of a saved estimate that holds everything.
DATA_FILE = "estimates.json"

#: The file of a saved estimate that holds the table alone, for other programs.
TABLE_FILE = "estimates.parquet"

_FORMAT, _VERSION = "hushquery client estimate", 1


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
        periods: From how many of the task's periods the reports are.
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
    periods: int
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
            "periods": self.periods,
            "notes": list(self.notes),
            "support": self.support.tolist(),
            **self.table.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> ClientEstimate:
        """Read what :meth:`to_json` gave; refuses counts that can't be and versions that it does not know."""
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise DataError("this is no estimate of hushquery", fix="Make one with `hushquery estimate --out`")
        if data.get("format_version") != _VERSION:
            raise DataError("this estimate has a version that is not known here", fix="Upgrade hushquery")
        try:
            return cls._read(data)
        except (KeyError, TypeError, ValueError, OverflowError, HushqueryError):
            raise DataError(
                "this estimate lacks parts or holds impossible numbers", fix="Make it again with `hushquery estimate`"
            ) from None

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> ClientEstimate:
        from hushquery.release.manifest import guarantee_from_json

        counts = [data["n"], data["read"], data["repeated"], data["periods"], *data["refused"].values()]
        support = np.array(data["support"])
        if not all(type(count) is int and 0 <= count < 2**62 for count in [*counts, *data["support"]]):
            raise ValueError
        digest = bytes.fromhex(data["configuration"])
        if len(digest) != 32 or len(bytes.fromhex(data["task"])) != 32 or not 0 < data["level"] < 1:
            raise ValueError
        rows = tuple(
            Estimate(str(row["label"]), *(_number(row[name]) for name in ("estimate", "stderr", "low", "high")))
            for row in data["estimates"]
        )
        table = Estimates(
            rows, data["level"], guarantee_from_json(data["guarantee"]), tuple(map(str, data["post_processing"]))
        )
        return cls(
            table=table,
            digest=digest,
            task=data["task"],
            mechanism=dict(data["mechanism"]),
            n=data["n"],
            support=support.astype(np.int64),
            read=data["read"],
            repeated=data["repeated"],
            refused=dict(data["refused"]),
            periods=data["periods"],
            notes=tuple(map(str, data["notes"])),
        )

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write ``estimates.json`` and ``estimates.parquet`` into a new folder, both or nothing."""
        import pyarrow as pa

        from hushquery.release.folder import manifest_bytes, parquet_bytes, write_folder

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
    from hushquery.release.folder import check_target

    path = Path(folder)
    if path.exists():
        raise UsageError(f"{path.name} exists already", fix="Give another folder, or delete that one first")
    return check_target(path)


def estimate(
    task: Task,
    reports: Reports,
    *,
    head: Sequence[Any] | None = None,
    level: float = 0.95,
    post: Post | None = None,
    candidates: Iterable[str] | None = None,
    strict: bool = False,
    progress: Callable[[int], object] | None = None,
) -> ClientEstimate:
    """Estimate from reports how many clients hold what.

    Args:
        task: The task.
        reports: A file with a report on each line (base64url or JSON; gzipped too), a Parquet file with a binary column
            ``report``, or an iterable of reports. A report that comes again is counted once.
        head: The published head list, for a task without a domain of its own.
        level: The coverage of each interval.
        post: Named post-processing; by default the estimates are raw and unbiased.
        candidates: For a task of texts: the texts to look for.
        strict: Refuse everything if one report is bad; by default bad ones are counted by kind and left out.
        progress: Is called with the number of reports read so far.

    Returns:
        The table, with the shares of clients (for ``onebit`` the average), the counts and the guarantee.

    Raises:
        NotReady: Fewer good reports than the task's ``min_batch``.
    """
    configuration = Configuration.of(task, head)
    _check_options(configuration, level, post, candidates)
    count = ReportCount(configuration)
    for block in read_blocks(reports, count.length):
        count.add(block)
        if strict and count.refused:
            raise DataError(
                "there are bad reports, so nothing is estimated",
                why=", ".join(f"{number:,} {name}" for name, number in count.refused.items()),
                fix="Leave --strict out to leave them out",
            )
        if progress is not None:
            progress(count.read)
    if count.n < task.collect.min_batch:
        raise NotReady(
            f"{count.n:,} good reports are too few",
            why=f"the task's min_batch is {task.collect.min_batch:,}"
            + "".join(f"; {number:,} were refused: {name}" for name, number in count.refused.items()),
            fix="Give the task file and the head list that these reports were made with"
            if count.refused.total() > count.n
            else "Wait for more reports",
        )
    table, notes = _table(configuration, count, level, candidates)
    table = replace(table, guarantee=_guarantee(configuration, len(count.periods)))
    if len(count.periods) > 1:
        notes.append(
            f"the reports are from {len(count.periods):,} periods: a client that reported in several counts in each, "
            "and its repeated answers make the real errors larger than those shown"
        )
    return ClientEstimate(
        table=_processed(configuration, table, post),
        digest=configuration.digest,
        task=task.id,
        mechanism=configuration.channel.describe(),
        n=count.n,
        support=count.support,
        read=count.read,
        repeated=count.repeated,
        refused=dict(sorted(count.refused.items())),
        periods=len(count.periods),
        notes=tuple(notes),
    )


def check_post(name: str) -> Post:
    """Read the name of a post-processing.

    >>> check_post("clip")
    'clip'
    """
    for known in get_args(Post):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"no post-processing is called {name!r}", fix=f"Give one of {', '.join(get_args(Post))}")


def _check_options(
    configuration: Configuration, level: float, post: str | None, candidates: Iterable[str] | None
) -> None:
    """Refuse what can't be asked for before millions of reports are read."""
    if not isinstance(level, float) or not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Give for example 0.95")
    texts = isinstance(configuration.channel, RapporChannel)
    if texts and candidates is None:
        raise UsageError(
            "a task of texts needs candidates", why="RAPPOR finds no others", fix="Give the texts to look for"
        )
    if not texts and candidates is not None:
        raise UsageError("only a task of texts takes candidates", fix="Leave them out")
    if isinstance(candidates, str):
        raise UsageError("candidates are a list of texts", fix="Put a single one into a list")
    if post is None:
        return
    if check_post(post) != "clip" and (texts or isinstance(configuration.channel, MeanChannel)):
        raise UsageError(
            f"{post} makes shares sum to 1, and these rows do not",
            why="candidates are not all there is" if texts else "an average is no share",
            fix="Give clip, or none",
        )


def _table(
    configuration: Configuration, count: ReportCount, level: float, candidates: Iterable[str] | None
) -> tuple[Estimates, list[str]]:
    channel = configuration.channel
    if not isinstance(channel, RapporChannel) or candidates is None:
        return channel.table(count.support, count.n, level, configuration.labels), []
    decoded = channel.decoded(count.support, candidates)
    told = decoded.metrics
    notes = [
        f"{told.num_detected:,} of {told.num_candidates:,} candidates pass the Bonferroni test and are shown",
        *decoded.warnings,
    ]
    return channel.rows_of(decoded, level), notes


def _guarantee(configuration: Configuration, periods: int) -> Guarantee:
    """State what the reports promise: each new answer costs epsilon, and a device stops at its lifetime budget."""
    task, channel = configuration.task, configuration.channel
    answers = task.client.records_per_user * max(1, periods)
    total = min(answers * channel.epsilon, Fraction(task.client.lifetime_epsilon))
    detail = f"{answers} answer{'s' if answers > 1 else ''} of each client"
    if periods > 1:
        detail += f" in {periods} periods, at most its lifetime budget, given the change times"
    step = Step(channel.name, detail, Loss(pure=(total,)))
    return Guarantee.of(task.task.population, "local", Unit("client", Relation.REPLACE_ONE), [step])


def _processed(configuration: Configuration, table: Estimates, post: Post | None) -> Estimates:
    if post is None:
        return table
    if post == "clip":
        channel = configuration.channel
        return clip(table, 0.0, float(channel.memo.mean.most) if isinstance(channel, MeanChannel) else 1.0)
    nearest = simplex(table)
    if post == "simplex":
        return nearest
    return table.changed(nearest.rows, "norm-sub: shifted alike and cut at 0 to sum 1 (the same as simplex)")


def _number(value: Any) -> float:
    """Read a finite number; null is one that was not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)
