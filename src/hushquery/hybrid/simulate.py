"""Simulate a whole hybrid run on one log: some users opt in, all others are clients.

Everything but the HTTP is real. The operator holds the clients' records here, so nothing protects them from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushquery.core.budget import Number, exact
from hushquery.core.description import Description
from hushquery.curator.counting import Bound
from hushquery.engine import execute, md5
from hushquery.errors import UsageError
from hushquery.hybrid.headlist import RECORD, fresh_key, number_of_users, records_of
from hushquery.hybrid.plan import plan_head
from hushquery.hybrid.published import blended_release, blended_shares
from hushquery.local.intervals import IntArray
from hushquery.local.randomizer import Randomizer, SupportCount
from hushquery.log import Log
from hushquery.noise.sampler import Bits, SystemBits
from hushquery.plan import Progress
from hushquery.task import GroupedDomain, Task

if TYPE_CHECKING:
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.hybrid.published import PublishedHead
    from hushquery.local.configuration import Configuration
    from hushquery.release import Release

# Clients whose reports are made at once: their bits and reports stay in a few hundred megabytes.
_AT_ONCE = 1 << 18
_DIGITS = 13  # hexadecimal digits of a digest that are compared: 52 bits


def split_log(log: Log, optin: Number, key: str) -> tuple[Log, Log]:
    """Split a log into opt-in users and clients, each user by a coin of chance ``optin``: a keyed digest of the id."""
    import ibis

    share = exact(optin, "the share of users who opt in")
    if not 0 < share < 1:
        raise UsageError("the share of users who opt in is above 0 and below 1", fix="Use, say, 0.05")
    border = f"{int(share * 16**_DIGITS):0{_DIGITS}x}"

    def opts_in(user: Any) -> Any:
        return md5(ibis.literal(f"opt-in|{key}|") + user.cast("string")).substr(0, _DIGITS) < border

    return (
        log.part(opts_in, f"only users who opted in: each with a chance of {float(share):g}, by an own coin"),
        log.part(lambda user: ~opts_in(user), "only users who did not opt in"),
    )


def client_cells(log: Log, configuration: Configuration, bits: Bits | None = None) -> IntArray:
    """Count the clients' records by cell in the engine; true counts, for :func:`send_all` and nothing else."""
    import ibis
    import pyarrow as pa

    domain, slots = configuration.domain, configuration.task.client.records_per_user
    records = records_of(log, Bound("random", fresh_key(bits or SystemBits())), slots)
    columns = {name: pa.array([pair[i] for pair in domain.records], pa.string()) for i, name in enumerate(RECORD)}
    cells = pa.array([domain.cell(*pair) for pair in domain.records], pa.int64())
    joined = records.left_join(ibis.memtable(pa.table({**columns, "cell": cells})), RECORD).select("query", "cell")
    if isinstance(domain, GroupedDomain):
        others = {"query": pa.array(domain.others, pa.string()), "aside": pa.array(domain.others.values(), pa.int64())}
        joined = joined.left_join(ibis.memtable(pa.table(others)), "query").select(
            cell=ibis.coalesce(joined.cell, ibis._.aside)
        )
    counted = execute(joined.group_by("cell").agg(clients=joined.count()))
    counts = np.zeros(len(domain), dtype=np.int64)
    for row in counted.to_pylist():
        counts[len(domain) - 1 if row["cell"] is None else row["cell"]] += row["clients"]
    counts[len(domain) - 1] += number_of_users(log) * slots - counts.sum()
    return counts


def send_all(oracle: Randomizer, counts: IntArray, bits: Bits | None = None) -> SupportCount:
    """Send so many clients of each cell through the randomizer and count their reports.

    >>> from hushquery.local.oracles.krr import KRR
    >>> send_all(KRR.calibrate(3, 1), np.array([5, 0, 2])).n
    7
    """
    source, tally = bits or SystemBits(), SupportCount(oracle)
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), _AT_ONCE):
        cells = np.searchsorted(ends, np.arange(start, min(start + _AT_ONCE, int(ends[-1]))), side="right")
        tally.add_many(oracle.randomize_many(cells, source))
    return tally


@dataclass(frozen=True)
class Simulated:
    """The result of a simulated epoch."""

    head: PublishedHead
    tally: SupportCount | None
    release: Release


def simulate(
    log: Log,
    task: Task,
    optin: Number,
    ledger: Ledger | str,
    *,
    epoch: int = 0,
    robust: bool = False,
    level: float = 0.95,
    description: Description | None = None,
    key: str | None = None,
    new_population: bool = False,
    anyway: bool = False,
    bits: Bits | None = None,
    progress: Progress | None = None,
) -> Simulated:
    """Run one epoch of a task on a log: split the users, publish the head list, randomise every client, blend."""
    source, tell = bits or SystemBits(), progress or (lambda *_: None)
    opted_in, clients = split_log(log, optin, fresh_key(source) if key is None else key)
    tell("counting the opt-in users' records", 0.0)
    head = plan_head(opted_in, task, description=description).run(
        ledger, epoch=epoch, new_population=new_population, anyway=anyway, bits=bits
    )
    tally = None
    if head.records:
        tell("counting the clients' records", 0.3)
        counts = client_cells(clients, head.configuration, source)
        tell("randomising every client's answer", 0.5)
        tally = send_all(head.configuration.oracle, counts, source)
    tell("blending", 0.9)
    support, n = (np.ones(1, dtype=np.int64), 1) if tally is None else (tally.support, tally.n)
    shares = blended_shares(head, support, n, robust=robust, level=level)
    return Simulated(head, tally, blended_release(head, shares, description))
