"""Repeated epochs, measured: what people lose over a year of lists that are made anew or kept, and what it is good for.

* The same simulated people (they join, leave, move, and change what they search for) under three tasks that differ
  only in how long a head list is kept: for one period, for four, and for all of them.
* Total epsilon of a typical and of a worst client, of opt-in users, and of those who moved; error and NDCG of every
  epoch; how many clients have nothing left to spend.
* ``trends`` between epochs: whether its intervals hold the true change as often as they say, although the errors of
  two epochs with the same clients are not independent.

Everybody is invented and the noise comes from a seed, so the results may be published.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np

from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import UsageError
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task
from hushquery_experiments.blender.law import PowerLaw
from hushquery_experiments.epochs.follow import (
    ChangeRow,
    EpochRow,
    Followed,
    Total,
    changes,
    epochs_task,
    follow,
    open_accounts,
)
from hushquery_experiments.epochs.people import Epoch, World, history
from hushquery_experiments.page import Claim, made_at
from hushquery_experiments.unpublishable import plain

__all__ = ["Coverage", "EpochsExperiment", "KeptRun", "check_claims", "covered_changes", "epochs"]

Progress = Callable[[str, float], None]

_EPSILON, _DELTA, _LIFETIME, _SIZE = Fraction(2), Fraction(1, 100_000), Fraction(8), 30
_LEVEL = 0.95
# For the intervals: few people in few queries, so that many runs are cheap. The list is as long as the threshold
# allows: records that barely passed are the hardest ones.
_SMALL = World(20_000, 2, optin=0.2, law=PowerLaw("short", 20_000, 0.1, 1.0, 5000))
_SMALL_SIZE = 40
# (periods that a list is kept, chance of another record, epochs, the earlier ones that the last is compared with): from
# nothing in common between two epochs to nearly all.
_PAIRS = ((1, 1.0, 2, (0,)), (1, 0.2, 2, (0,)), (2, 0.2, 2, (0,)), (6, 0.2, 6, (0, 1)))


@dataclass(frozen=True)
class KeptRun:
    """All epochs of one task.

    Attributes:
        keep: For how many periods a list is kept.
        epochs: Each epoch.
        totals: What people lost.
        client_account: What the ledger charged clients, the worst case.
        optin_account: What the ledger charged opt-in users.
        optin_delta: At this delta.
        changes: What ``trends`` says of the last epoch against the first, with the truth.
    """

    keep: int
    epochs: tuple[EpochRow, ...]
    totals: tuple[Total, ...]
    client_account: float
    optin_account: float
    optin_delta: float
    changes: tuple[ChangeRow, ...]


@dataclass(frozen=True)
class Coverage:
    """How often the interval of a change held the true change.

    Attributes:
        keep: For how many periods a list was kept.
        changing: The chance that somebody had another record from one epoch to the next.
        first: The earlier epoch, from 0.
        last: The later one.
        runs: How many histories were drawn.
        intervals: How many intervals there were.
        covered: The share of them that held the truth.
        stderr: Its standard error, from the runs.
        spread: The errors of the changes over their stated standard errors, root mean square: 1 if stated exactly.
        bias: The mean of the same: 0 if changes are neither too high nor too low.
    """

    keep: int
    changing: float
    first: int
    last: int
    runs: int
    intervals: int
    covered: float
    stderr: float
    spread: float
    bias: float


@dataclass(frozen=True)
class EpochsExperiment:
    """Everything that was measured, on invented people.

    Attributes:
        settings: What was asked for, and when.
        runs: The tasks, by how long they keep a list.
        coverage: The intervals of changes.
        claims: What had to be shown.
    """

    settings: Mapping[str, Any]
    runs: tuple[KeptRun, ...]
    coverage: tuple[Coverage, ...]
    claims: tuple[Claim, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain data, first of all that they may be published and why."""
        mark = {"publishable": True, "mark": "synthetic people and seeded noise: nobody is in it"}
        return mark | {field.name: plain(getattr(self, field.name)) for field in fields(self)}


def epochs(
    *,
    users: int = 300_000,
    epochs: int = 12,
    moving: float = 0.05,
    changing: float = 0.2,
    runs: int = 40,
    seed: int = 1,
    progress: Progress | None = None,
) -> EpochsExperiment:
    """Run the experiment.

    Args:
        users: How many people there are in each epoch.
        epochs: How many epochs.
        moving: The chance that an opt-in user becomes a client from one epoch to the next; as many clients opt in.
        changing: The chance that somebody has drawn another record since the last epoch.
        runs: How many pairs of epochs the intervals of changes are measured on.
        seed: Of the people and of the noise.
        progress: Called with what is done next and the fraction that is done.
    """
    if type(runs) is not int or runs < 2:
        raise UsageError("the intervals are measured on 2 runs or more", fix="Give, say, --runs 40")
    world = World(users, epochs, moving=moving, changing=changing)
    tell, began = progress or (lambda *_: None), datetime.now(UTC)
    keeps = sorted({1, min(4, epochs), epochs})
    tell("drawing people", 0.0)
    people = history(world, np.random.default_rng([seed, 0]))
    found = []
    for place, keep in enumerate(keeps):
        followed = _followed(
            people,
            epochs_task(keep, epsilon=_EPSILON, delta=_DELTA, lifetime=_LIFETIME, size=_SIZE),
            f"experiment epochs {seed}",
            lambda what, done, place=place: tell(what, 0.7 * (place + done) / len(keeps)),  # type: ignore[misc]
        )
        named = {field.name: getattr(followed, field.name) for field in fields(KeptRun) if field.name != "changes"}
        found.append(KeptRun(**named, changes=changes(followed, level=_LEVEL)))
    covered: list[Coverage] = []
    for place, (keep, often, length, firsts) in enumerate(_PAIRS):
        tell("intervals of changes", 0.7 + 0.05 * place)
        covered += covered_changes(keep, often, length, firsts, runs, seed)
    settings = {
        "experiment": "epochs",
        **made_at(began),
        "users": users,
        "epochs": epochs,
        "optin": world.optin,
        "moving": moving,
        "leaving": world.leaving,
        "changing": changing,
        "runs": runs,
        "seed": seed,
        "epsilon": float(_EPSILON),
        "delta": float(_DELTA),
        "lifetime": float(_LIFETIME),
        "size": _SIZE,
        "level": _LEVEL,
        "small_users": _SMALL.users,
        "noise": "seeded, so that the numbers can be repeated",
    }
    return EpochsExperiment(settings, tuple(found), tuple(covered), check_claims(found, covered))


def _followed(people: Sequence[Epoch], task: Task, seed: str, progress: Progress | None = None) -> Followed:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(f"{folder}/ledger.db")
        open_accounts(ledger, task, len(people))
        return follow(people, task, ledger, bits=SeededBits(seed), progress=progress)


def covered_changes(
    keep: int, changing: float, epochs: int, firsts: Sequence[int], runs: int, seed: int
) -> list[Coverage]:
    """Measure how often ``trends`` holds the true change from an earlier epoch to the last.

    Args:
        keep: For how many periods a list is kept: most clients repeat their answers while it is.
        changing: The chance that somebody has another record from one epoch to the next.
        epochs: How many epochs there are.
        firsts: The earlier epochs, one after the other.
        runs: How many histories are drawn.
        seed: Of the people and of the noise.
    """
    task = epochs_task(keep, epsilon=_EPSILON, delta=_DELTA, lifetime=_LIFETIME, size=_SMALL_SIZE)
    world = replace(_SMALL, changing=changing, epochs=epochs)
    found: dict[int, list[tuple[ChangeRow, ...]]] = {first: [] for first in firsts}
    for run in range(runs):
        people = history(world, np.random.default_rng([seed, 1, run]))
        followed = _followed(people, task, f"changes {seed} {keep} {changing} {run}")
        for first, tables in found.items():
            tables.append(changes(followed, first, level=_LEVEL))
    return [_coverage(keep, changing, first, epochs - 1, tables) for first, tables in found.items()]


def _coverage(keep: int, changing: float, first: int, last: int, tables: Sequence[tuple[ChangeRow, ...]]) -> Coverage:
    rows = [row for table in tables for row in table]
    if not rows:
        raise UsageError("no query was in both epochs of any run", fix="Give more --runs")
    # Intervals of one run are not independent, runs are.
    shares = [sum(row.covered for row in table) / len(table) for table in tables if table]
    errors = np.array([(row.change - row.true) / row.stderr for row in rows])
    return Coverage(
        keep,
        changing,
        first,
        last,
        len(tables),
        len(rows),
        sum(row.covered for row in rows) / len(rows),
        float(np.std(shares)) / math.sqrt(len(shares)),
        math.sqrt(float(np.mean(errors**2))),
        float(np.mean(errors)),
    )


def check_claims(runs: Sequence[KeptRun], coverage: Sequence[Coverage]) -> tuple[Claim, ...]:
    """Check what had to be shown."""
    clients = {run.keep: next(t for t in run.totals if t.group.startswith("clients")) for run in runs}
    worst = max(total.client_worst for run in runs for total in run.totals)
    typical = [total.client_typical for total in clients.values()]
    kept = [row for row in coverage if row.keep > 1]
    return (
        Claim(
            "No device loses more than its lifetime budget",
            f"at most epsilon {worst:g} of {float(_LIFETIME):g}",
            worst <= _LIFETIME,
        ),
        Claim(
            "The ledger never says less than a client lost",
            "; ".join(
                f"kept {run.keep}: {clients[run.keep].client_worst:g} of {run.client_account:g} charged" for run in runs
            ),
            all(clients[run.keep].client_worst <= run.client_account for run in runs),
        ),
        Claim(
            "The longer a list is kept, the less a typical client loses",
            ", ".join(f"{total.client_typical:g} (kept {keep})" for keep, total in clients.items()),
            all(later < earlier for earlier, later in itertools.pairwise(typical)),
        ),
        Claim(
            "Intervals of changes on a kept list hold the true change at least as often as they say",
            ", ".join(f"{row.covered:.1%} of {row.intervals:,}" for row in kept) + f" at a level of {_LEVEL:.0%}",
            all(row.covered >= _LEVEL for row in kept),
        ),
    )
