"""Draw: the tables of a release, step by step, from a log whose cost is already recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushquery.curator.bound import Bound, Keep
from hushquery.curator.calibrate import Calibrated
from hushquery.curator.select import released_table
from hushquery.log import Log
from hushquery.noise.bits import Bits
from hushquery.plan import Progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["draw_tables"]


def draw_tables(
    made: Calibrated, log: Log, keep: Keep, bits: Bits, progress: Progress | None = None
) -> dict[str, pa.Table]:
    """Read the log and draw every table of a release: the queries, then what the released ones led to.

    This spends nothing: :meth:`hushquery.plan.Plan.run` records the spend before it reads, and audits call this on
    logs that they made up.

    Args:
        made: The calibrated steps.
        log: The secret rows.
        keep: Which of a user's rows count.
        bits: Where all chance comes from, also the key by which random rows are kept.
        progress: Told what is done next.
    """
    tell = progress or (lambda *_: None)
    bound = Bound(keep, "".join(f"{word:016x}" for word in bits.words(2).tolist()))
    stages = 2 + (made.clicks is not None) + (made.reformulations is not None)
    tell("selecting queries", 0.0)
    tables = {"queries": made.selector.run(log.rows, bound, bits)}
    if made.clicks:
        tell("counting clicks", 1 / stages)
        pairs = log.clicks_of(released_table(tables["queries"]))
        tables["clicks"] = made.clicks.run(pairs, bound, tables["queries"], bits)
    if made.reformulations:
        tell("counting reformulations", (stages - 2) / stages)
        tables["reformulations"] = made.reformulations.run(log.rows, bound, tables["queries"], bits)
    tell("writing", (stages - 1) / stages)
    return tables
