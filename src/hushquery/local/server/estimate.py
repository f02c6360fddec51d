"""Estimates from reports: how many clients hold what, with standard errors and a guarantee.

Estimates are raw and unbiased, so they may be negative or not sum to 1; post-processing is asked for and marked.
**Guarantee:** that of the reports, pure epsilon under replace-one from the integers that the clients ran with, times
``records_per_user``; nothing done to reports can spend more. One period is counted, and a report with a forged time
does not change which, unless most reports are forged. ``published.py`` makes a release of an estimate, and reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from hushquery.core.budget import Relation, Unit
from hushquery.core.estimates import Estimate, Estimates, Tabular, clip, simplex
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.local_loss import LocalChannel
from hushquery.errors import DataError, NotReady, UsageError
from hushquery.local.configuration import Configuration, Head
from hushquery.local.intervals import IntArray
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.rappor.channel import Rappor, looked_for
from hushquery.local.report import ReportMalformed, ReportOfAnotherPeriod, ReportVersionUnknown
from hushquery.local.server.counting import Periods, ReportCount, Reports, read_blocks
from hushquery.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from hushquery.release import Release

#: How a table can be post-processed. ``clip`` cuts at the ends of what can be true. ``norm-sub`` adds one number to all
#: shares and cuts at zero so that they sum to 1; that is the nearest such table, so ``simplex`` is the same.
Post = Literal["clip", "norm-sub", "simplex"]

# Later days have no name in Python.
_LAST_DAY = 250_000_000_000


def estimate(
    task: Task,
    reports: Reports,
    *,
    head: Head | None = None,
    period: int | Literal["all"] | None = None,
    level: float = 0.95,
    post: Post | None = None,
    candidates: Iterable[str] | None = None,
    strict: bool = False,
    progress: Callable[[int], object] | None = None,
    engine: Any = None,
) -> ClientEstimate:
    """Estimate from reports how many clients hold what: shares (for ``onebit`` the average), counts and the guarantee.

    Args:
        task: The task.
        reports: A file with a report on each line (base64url or JSON; gzipped too), a Parquet file with a binary column
            ``report``, a list of such files (each a :class:`~pathlib.Path`), or an iterable of reports. A report that
            comes again is counted once.
        head: The published head list (pairs, or an object with ``records``), for a task without a domain of its own.
        period: For a task with a period, the number of the one to count, floor(time / period); reports of others are
            refused. By default the one of most good reports, of equals the latest. ``all`` counts all of them: the
            guarantee is then the sum over the periods, and anybody can raise it with a forged time.
        level: The coverage of each interval.
        post: Named post-processing; by default the estimates are raw and unbiased.
        candidates: For a task of texts: the texts to look for.
        strict: Refuse everything if one report is bad; by default bad ones are counted by kind and left out.
        progress: Called with the number of reports read so far.
        engine: Where to count: here by default, or on Spark (``spark``, ``spark://host:port``, or a connection) with
            the very same result, from Parquet files that every worker can read.

    Raises:
        NotReady: Fewer good reports than the task's ``min_batch``.
    """
    configuration = Configuration.of(task, head)
    check_options(configuration, level, post, candidates)
    count = _counted(configuration, _asked(task, period), reports, engine, progress, strict=strict)
    _check_enough(count, configuration.task.collect.min_batch)
    return estimate_support(
        configuration,
        count.support,
        count.n,
        periods=sorted(count.periods),
        level=level,
        post=post,
        candidates=candidates,
        read=count.read,
        repeated=count.repeated,
        refused=dict(sorted(count.refused.items())),
    )


def estimate_support(
    configuration: Configuration,
    support: IntArray,
    n: int,
    *,
    periods: Iterable[int] = (0,),
    level: float = 0.95,
    post: Post | None = None,
    candidates: Iterable[str] | None = None,
    read: int | None = None,
    repeated: int = 0,
    refused: Mapping[str, int] | None = None,
) -> ClientEstimate:
    """Estimate as :func:`estimate` does, from the integers that ``n`` reports add up to; any number of reports will do.

    Raises:
        DataError: No reports of this configuration can add up to that.
    """
    check_options(configuration, level, post, candidates)
    task, channel, counted = configuration.task, configuration.channel, tuple(periods)
    if n < 2:
        raise DataError("an estimate needs at least two reports", fix="Wait for more")
    if not channel.adds_up(support, n):
        raise DataError(
            "these counts are not of this task",
            why=f"no {n:,} reports add up to them",
            fix="Give the counts and the task of one epoch",
        )
    texts = None if candidates is None else looked_for(candidates)
    table, notes = _table(configuration, support, n, level, texts, repeats=len(counted))
    if len(counted) > 1:
        notes.append(
            f"the reports are from {len(counted):,} periods: a client that reported in several counts in each, "
            "and intervals and standard errors allow for clients that gave the same answer in all of them"
        )
    elif task.task.period is not None:
        notes.append(_which_period(task.task.period, *counted))
    return ClientEstimate(
        table=_processed(configuration, replace(table, guarantee=_guarantee(configuration, len(counted))), post),
        configuration=configuration,
        n=n,
        support=support,
        read=n if read is None else read,
        repeated=repeated,
        refused=refused or {},
        periods=counted,
        notes=tuple(notes),
        post=post,
        candidates=texts,
    )


def _counted(
    configuration: Configuration,
    asked: Periods,
    reports: Reports,
    engine: Any,
    progress: Callable[[int], object] | None,
    *,
    strict: bool,
) -> ReportCount:
    if engine not in (None, "duckdb"):
        from hushquery.local.server.spark import count_on_spark

        count = count_on_spark(configuration, asked, reports, engine)
        if progress is not None:
            progress(count.read)
    else:
        with ReportCount(configuration, asked) as count:
            for block in read_blocks(reports, count.length):
                count.add(block)
                _check_strict(count, strict=strict)
                if progress is not None:
                    progress(count.read)
            count.close()
    _check_strict(count, strict=strict)
    return count


def check_post(name: str) -> Post:
    """Read the name of a post-processing."""
    if name not in get_args(Post):
        raise UsageError(f"no post-processing is called {name!r}", fix=f"Use one of {', '.join(get_args(Post))}")
    return name  # type: ignore[return-value]


def _asked(task: Task, period: int | Literal["all"] | None) -> Periods:
    """Read which periods are to be counted."""
    if period is None:
        return "most"
    if period == "all":
        return "all"
    if type(period) is not int or not 0 <= period < 2**53:
        raise UsageError("a period is a whole number from 0 on", fix="Give floor(time / period), or all for every one")
    if task.task.period is None and period:
        raise UsageError(f"the task has no periods, so there is no period {period}", fix="Leave it out")
    return period


def _check_strict(count: ReportCount, *, strict: bool) -> None:
    if strict and count.refused:
        raise DataError(
            "there are bad reports, so nothing is estimated",
            why=", ".join(f"{number:,} {name}" for name, number in sorted(count.refused.items())),
            fix="Leave --strict out to leave them out",
        )


def _check_enough(count: ReportCount, least: int) -> None:
    if count.n >= least:
        return
    others = count.refused[ReportOfAnotherPeriod.__name__]
    fix = "Wait for more reports"
    if others > count.n:
        fix += " of this period, or give another period"
    elif 2 * (count.refused[ReportMalformed.__name__] + count.refused[ReportVersionUnknown.__name__]) > count.read:
        fix = (
            "Most of this is no report at all: give what `hushquery randomize` prints, or report.to_text() in Python, "
            "one on each line"
        )
    elif count.refused.total() > count.n:
        fix = "Give the task file and the head list that these reports were made with"
    raise NotReady(
        f"{count.n:,} good reports are too few",
        why=f"the task's min_batch is {least:,}"
        + "".join(f"; {number:,} were refused: {name}" for name, number in sorted(count.refused.items())),
        fix=fix,
    )


def _which_period(seconds: int, number: int) -> str:
    began = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=min(number * seconds, _LAST_DAY))
    return f"only reports of period {number}, which began on {began:%Y-%m-%d}, are counted"


def check_options(
    configuration: Configuration, level: float, post: str | None, candidates: Iterable[str] | None
) -> None:
    """Refuse what can't be asked for before millions of reports are read."""
    if not isinstance(level, float) or not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Give for example 0.95")
    texts = isinstance(configuration.channel, Rappor)
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
    if check_post(post) != "clip" and (texts or isinstance(configuration.channel, OneBitMean)):
        raise UsageError(
            f"{post} makes shares sum to 1, and these rows do not",
            why="candidates are not all there is" if texts else "an average is no share",
            fix="Give clip, or none",
        )


def _table(
    configuration: Configuration,
    support: IntArray,
    n: int,
    level: float,
    candidates: Iterable[str] | None,
    *,
    repeats: int = 1,
) -> tuple[Estimates, list[str]]:
    channel, records = configuration.channel, configuration.task.client.records_per_user
    if not isinstance(channel, Rappor) or candidates is None:
        notes = []
        if records > 1:
            notes.append(
                f"each client reports {records:,} records, and nobody can tell which reports are of one client: "
                "intervals and standard errors allow for clients whose records are all equal, and are wider than "
                "needed where they differ"
            )
        labels = configuration.labels
        return channel.table(support, n, level, labels, records=records, repeats=repeats), notes
    decoded = channel.decoded(support, candidates, repeats=repeats)
    of = decoded.metrics
    notes = [
        f"{of.num_detected:,} of {of.num_candidates:,} candidates pass the Bonferroni test and are shown; their "
        "intervals allow for that, the shares themselves are on average a little too high",
        *decoded.warnings,
    ]
    return decoded.table(level), notes


def _guarantee(configuration: Configuration, periods: int) -> Guarantee:
    """State what the reports promise: each new answer costs epsilon, and a device stops at its lifetime budget."""
    task, step = configuration.task, client_step(configuration, periods)
    detail = f"{step.reports} answer{'s' if step.reports > 1 else ''} of each client"
    if periods > 1:
        detail += f" in {periods} periods, at most its lifetime budget, given the change times"
    steps, unit = [Step(configuration.channel.name, detail, step.loss)], Unit("client", Relation.REPLACE_ONE)
    return Guarantee.of(task.task.population, "local", unit, steps)


def client_step(configuration: Configuration, periods: int) -> LocalChannel:
    """Return the numbers that a client's reports of so many periods run with."""
    client = configuration.task.client
    lifetime = client.lifetime_epsilon if periods > 1 else None
    return LocalChannel(configuration.channel.describe(), client.records_per_user * max(1, periods), lifetime=lifetime)


def _processed(configuration: Configuration, table: Estimates, post: Post | None) -> Estimates:
    if post is None:
        return table
    if post == "clip":
        channel = configuration.channel
        return clip(table, 0.0, float(channel.most) if isinstance(channel, OneBitMean) else 1.0)
    nearest = simplex(table)
    if post == "simplex":
        return nearest
    return table.changed(nearest.rows, "norm-sub: shifted alike and cut at 0 to sum 1 (the same as simplex)")


# ---- the result ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ClientEstimate(Tabular):
    """What the clients of a task said, counted and estimated.

    Args:
        table: The estimates: label, value, stderr, low, high.
        configuration: The task, its domain, and the mechanism with its integers.
        n: How many reports were counted.
        support: The integers that estimates are made of: for an oracle, how many reports support each cell.
        read: How many reports were read.
        repeated: How many came again, with the same bytes, and were counted once.
        refused: How many were not counted, by kind of error.
        periods: The periods of the counted reports, ascending; one unless all were asked for, 0 without periods.
        notes: What else a reader should know.
        post: The post-processing.
        candidates: For a task of texts: what was looked for.
    """

    table: Estimates
    configuration: Configuration
    n: int
    support: IntArray
    read: int
    repeated: int
    refused: Mapping[str, int]
    periods: tuple[int, ...]
    notes: tuple[str, ...] = ()
    post: Post | None = None
    candidates: tuple[str, ...] | None = None

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
    def digest(self) -> bytes:
        """The configuration hash of the reports, 32 bytes."""
        return self.configuration.digest

    @property
    def task(self) -> str:
        """The task id, in hexadecimal digits."""
        return self.configuration.task.id

    @property
    def mechanism(self) -> Mapping[str, Any]:
        """The mechanism's name and integers."""
        return self.configuration.channel.describe()

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

    def __repr__(self) -> str:
        counted = f"{len(self):,} rows from {self.n:,} of {self.read:,} reports"
        return f"ClientEstimate(task {self.task[:12]}, {self.mechanism['name']}, {counted})"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow: value, estimate, stderr, low, high."""
        return self.table.to_arrow().rename_columns(["value", "estimate", "stderr", "low", "high"])

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data, for ``--json``; :meth:`save` writes what can be read again."""
        return {
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

    def release(self) -> Release:
        """Return the estimate as a release: tables, guarantee, and the integers from which both can be computed anew.

        **Guarantee:** that of the reports; publishing costs nothing more.
        """
        from hushquery.local.server.published import release_of

        return release_of(self)

    def save(self, folder: str | PathLike[str], force: bool = False) -> Path:
        """Save the release as a new folder, whole or not at all; ``force`` replaces an older release, nothing else."""
        return self.release().save(Path(folder), force)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> ClientEstimate:
        """Read what :meth:`save` wrote, computed anew from its integers; refuse what does not follow from them."""
        from hushquery.local.server.published import read_estimate
        from hushquery.release import Release

        return read_estimate(Release.load(Path(folder)))
