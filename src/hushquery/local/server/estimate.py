"""From reports to a table: how many clients hold what, as far as their noise lets one say.

The estimates are raw and unbiased, so they may be negative or sum to something else than 1; post-processing is named,
asked for and marked. **Guarantee:** that of the reports, pure epsilon under replace-one from the integers that the
clients ran with; nothing done to reports can spend more. For a task with a period the reports of one period are
counted, ``records_per_user`` of each client, so epsilon is that many times a report's. Whoever sends a report with a
forged time changes neither that nor which period it is, unless most reports are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from hushquery.core.budget import Relation, Unit
from hushquery.core.estimates import Estimates, clip, simplex
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.errors import DataError, NotReady, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.numbers.channels import MeanChannel
from hushquery.local.oracles.oracle import IntArray
from hushquery.local.rappor.channel import RapporChannel
from hushquery.local.report import ReportMalformed, ReportOfAnotherPeriod, ReportVersionUnknown
from hushquery.local.server.client_estimate import DATA_FILE, TABLE_FILE, ClientEstimate, new_folder
from hushquery.local.server.counting import Periods, ReportCount
from hushquery.local.server.files import Reports, read_blocks
from hushquery.task import Task

__all__ = [
    "DATA_FILE",
    "TABLE_FILE",
    "ClientEstimate",
    "Post",
    "check_post",
    "estimate",
    "estimate_counted",
    "estimate_texts",
    "new_folder",
]

#: How a table can be post-processed. ``clip`` cuts at the ends of what can be true. ``norm-sub`` adds one number to all
#: shares and cuts at zero so that they sum to 1; that is the nearest such table, so ``simplex`` is the same.
Post = Literal["clip", "norm-sub", "simplex"]

# Later days have no name in Python.
_LAST_DAY = 250_000_000_000


def estimate(
    task: Task,
    reports: Reports,
    *,
    head: Sequence[Any] | None = None,
    period: int | Literal["all"] | None = None,
    level: float = 0.95,
    post: Post | None = None,
    candidates: Iterable[str] | None = None,
    strict: bool = False,
    progress: Callable[[int], object] | None = None,
    engine: Any = None,
) -> ClientEstimate:
    """Estimate from reports how many clients hold what.

    Args:
        task: The task.
        reports: A file with a report on each line (base64url or JSON; gzipped too), a Parquet file with a binary column
            ``report``, a list of such files (each a :class:`~pathlib.Path`), or an iterable of reports. A report that
            comes again is counted once.
        head: The published head list, for a task without a domain of its own.
        period: For a task with a period: the number of the period to count, floor(time / period); reports of others
            are refused as ``ReportOfAnotherPeriod``. By default the one that most good reports are from, of equally
            many the latest. ``all`` counts all of them together: the guarantee is then the sum over the periods, and
            anybody can raise it with a forged time.
        level: The coverage of each interval.
        post: Named post-processing; by default the estimates are raw and unbiased.
        candidates: For a task of texts: the texts to look for.
        strict: Refuse everything if one report is bad; by default bad ones are counted by kind and left out.
        progress: Is called with the number of reports read so far.
        engine: Where to count: here by default, or on Spark (``spark``, ``spark://host:port``, or a connection), with
            the very same result. Then the reports are Parquet files that every worker can read.

    Returns:
        The table, with the shares of clients (for ``onebit`` the average), the counts and the guarantee.

    Raises:
        NotReady: Fewer good reports than the task's ``min_batch``.
    """
    configuration = Configuration.of(task, head)
    _check_options(configuration, level, post, candidates)
    count = _counted(configuration, _asked(task, period), reports, engine, progress, strict=strict)
    return estimate_counted(count, level=level, post=post, candidates=candidates)


def estimate_counted(
    count: ReportCount,
    *,
    level: float = 0.95,
    post: Post | None = None,
    candidates: Iterable[str] | None = None,
    strict: bool = False,
) -> ClientEstimate:
    """Estimate as :func:`estimate` does, from reports that are counted already.

    Args:
        count: The count, closed where it waited for the period that most reports are from.
        level: The coverage of each interval.
        post: Named post-processing; by default the estimates are raw and unbiased.
        candidates: For a task of texts: the texts to look for.
        strict: Refuse everything if one report was bad.

    Raises:
        NotReady: Fewer good reports than the task's ``min_batch``.
    """
    configuration, task = count.configuration, count.configuration.task
    _check_options(configuration, level, post, candidates)
    _check_strict(count, strict=strict)
    _check_enough(count, task.collect.min_batch)
    table, notes = _table(configuration, count.support, count.n, level, candidates, repeats=len(count.periods))
    table = replace(table, guarantee=_guarantee(configuration, len(count.periods)))
    if len(count.periods) > 1:
        notes.append(
            f"the reports are from {len(count.periods):,} periods: a client that reported in several counts in each, "
            "and intervals and standard errors allow for clients that gave the same answer in all of them"
        )
    elif task.task.period is not None:
        notes.append(_which_period(task.task.period, *count.periods))
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
        periods=tuple(sorted(count.periods)),
        notes=tuple(notes),
    )


def estimate_texts(
    task: Task,
    support: Sequence[int],
    n: int,
    candidates: Iterable[str] | None,
    *,
    period: int = 0,
    level: float = 0.95,
) -> ClientEstimate:
    """Estimate from the counts of a task of texts, which a collector keeps, how many clients hold which candidate.

    Args:
        task: The task.
        support: The counts.
        n: How many reports they are of.
        candidates: The texts to look for.
        period: The number of the task's period.
        level: The coverage of each interval.

    Raises:
        NotReady: Fewer reports than the task's ``min_batch``.
    """
    configuration = Configuration.of(task)
    _check_options(configuration, level, None, candidates)
    counts, least = np.array(support, dtype=np.int64), task.collect.min_batch
    if n < least:
        raise NotReady(
            f"{n:,} reports are too few", why=f"the task's min_batch is {least:,}", fix="Wait for the next period"
        )
    if counts.shape != (configuration.channel.length,):
        raise DataError("these counts are not of this task", fix="Give the counts and the task of one epoch")
    table, notes = _table(configuration, counts, n, level, candidates)
    return ClientEstimate(
        table=replace(table, guarantee=_guarantee(configuration, 1)),
        digest=configuration.digest,
        task=task.id,
        mechanism=configuration.channel.describe(),
        n=n,
        support=counts,
        read=n,
        repeated=0,
        refused={},
        periods=(period,),
        notes=tuple(notes),
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
        _check_strict(count, strict=strict)
        if progress is not None:
            progress(count.read)
        return count
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
    """Read the name of a post-processing.

    >>> check_post("clip")
    'clip'
    """
    for known in get_args(Post):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"no post-processing is called {name!r}", fix=f"Give one of {', '.join(get_args(Post))}")


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
    """Name a period, with the day on which it began."""
    began = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=min(number * seconds, _LAST_DAY))
    return f"counted are the reports of period {number}, which began on {began:%Y-%m-%d}"


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
    configuration: Configuration,
    support: IntArray,
    n: int,
    level: float,
    candidates: Iterable[str] | None,
    *,
    repeats: int = 1,
) -> tuple[Estimates, list[str]]:
    channel, records = configuration.channel, configuration.task.client.records_per_user
    if not isinstance(channel, RapporChannel) or candidates is None:
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
    told = decoded.metrics
    notes = [
        f"{told.num_detected:,} of {told.num_candidates:,} candidates pass the Bonferroni test and are shown; their "
        "intervals allow for that, the shares themselves are on average a little too high",
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
