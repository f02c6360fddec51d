"""From the two estimates to the blended release: post-processing of what is public already."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hushquery.core.step_loss import LaplaceHistogram
from hushquery.errors import DataError, UsageError
from hushquery.hybrid.blend import Blended, blend_probabilities
from hushquery.hybrid.clients import FlatShares, TwoStageCells, TwoStageShares
from hushquery.hybrid.optin import OptInShares
from hushquery.hybrid.published import PublishedHead
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import Oracle
from hushquery.release import Release

if TYPE_CHECKING:
    import pyarrow as pa

    from hushquery.local.server.estimate import ClientEstimate

__all__ = ["blend", "blended_release", "blended_shares", "least_share"]


def blend(head: PublishedHead, clients: ClientEstimate, *, robust: bool = False, level: float = 0.95) -> Release:
    """Blend a head list's opt-in estimates with what clients reported about it, and make the release.

    Args:
        head: The published head list.
        clients: What ``hushquery estimate`` made of the clients' reports about this very list.
        robust: Fall back toward the clients where opt-in users search differently.
        level: The coverage of the intervals.

    **Guarantee:** none of its own: it costs nothing. The release states both populations' guarantees, side by side.
    **Estimator:** each record's two shares weighted by their variances, projected on the simplex; see
    :func:`~hushquery.hybrid.blend.blend_probabilities`.
    """
    if head.optin.records and clients.digest != head.configuration.digest:
        raise DataError(
            "these estimates are not about this head list",
            why="they have another configuration hash",
            fix="Estimate the reports with this head list, or blend with theirs",
        )
    if head.task.task.period is not None and clients.period != head.epoch:
        raise DataError(
            f"these estimates are not of epoch {head.epoch}, which the head list is for",
            why="they are of several periods" if clients.period is None else f"they are of epoch {clients.period}",
            fix="Estimate that epoch's reports: hushquery estimate --epoch N",
        )
    return blended_release(head, blended_shares(head, clients.support, clients.n, robust=robust, level=level))


def blended_shares(
    head: PublishedHead, support: IntArray, n: int, *, robust: bool = False, level: float = 0.95
) -> Blended:
    """Blend, from the reports' support for each cell.

    Args:
        head: The published head list.
        support: How many reports speak for each cell.
        n: The number of reports.
        robust: Fall back toward the clients where the two disagree.
        level: The coverage of the intervals.
    """
    records, shares, each = head.records, head.optin, head.task.client.records_per_user
    if not records:
        empty = FlatShares(None, np.array([n]), n, each)
        return blend_probabilities(records, shares, empty, robust=robust, level=level)
    oracle = head.configuration.oracle
    # A list that is kept from an earlier period is measured with counts that decided nothing.
    part = head.task.head
    least = -math.inf if head.kept_since is not None else least_share(shares, None if part is None else part.size)
    if isinstance(oracle, TwoStage):
        two_stage = TwoStageShares(TwoStageCells(records), oracle, support, n, each)
        return blend_probabilities(records, shares, two_stage, mode="paper", robust=robust, level=level, least=least)
    if not isinstance(oracle, Oracle):
        raise UsageError(f"{oracle.name} reports can't be blended", fix="Use a frequency oracle, or two-stage")
    flat = FlatShares(oracle, support, n, each)
    return blend_probabilities(records, shares, flat, robust=robust, level=level, least=least)


def least_share(shares: OptInShares, size: int | None) -> float | None:
    """Give the smallest opt-in share that would have been listed.

    Minus infinity where these counts decided nothing; None where the list was cut to its size by them, so that only the
    smallest of them tells where.

    Args:
        shares: The opt-in users' shares of the records that were listed.
        size: The most records that a list may have; None where it does not say.
    """
    if size is None or len(shares) >= size:
        return None
    finding = shares.parts[0][-1]
    if shares.way == "reuse" and isinstance(finding, LaplaceHistogram) and finding.threshold is not None:
        return finding.threshold / shares.n
    return -math.inf


def blended_release(head: PublishedHead, blended: Blended) -> Release:
    """Put a blend into a release: queries and clicks with shares, and the two estimates behind each record."""
    guarantees = [head.optin_guarantee]
    steps: list[Mapping[str, Any]] = [{"parameters": step.to_json()} for step in head.optin_steps]
    if head.records:
        guarantees.append(head.client_guarantee)
        steps.append({"parameters": head.client_step.to_json()})
    task, tested = head.task, blended.agreement
    parameters = {
        "rest": blended.wildcard,
        "rest_stderr": blended.wildcard_stderr,
        "rest_low": blended.wildcard_low,
        "rest_high": blended.wildcard_high,
        "task": task.id,
        "task_name": task.task.name,
        "epoch": head.epoch,
        "mode": blended.mode,
        "robust": blended.robust,
        "head_size": len(head),
        "optin_users": head.optin.n // (task.optin.records_per_user if task.optin else 1),
        "post_processing": list(blended.marks),
        "shift_p_value": tested.overall,
        "shifted_records": int(tested.shifted.sum()),
    }
    of_all = "of all records, one user's records counting equally, as estimated from both groups"
    return Release.make(
        _tables(blended),
        guarantees,
        kind="hybrid",
        parameters=parameters,
        steps=steps,
        meanings={
            "queries": f"share {of_all}: the sum over the query's records in the head list",
            "clicks": f"share {of_all}; an empty URL stands for a search without a click",
            "records": "shares by the opt-in users and by the clients, and how they were weighted",
        },
        notes=[tested.summary(), *_notes(blended, max(task.client.records_per_user, head.optin.records_per_user))],
        level=blended.level,
    )


def _notes(blended: Blended, records_per_user: int) -> list[str]:
    notes = []
    if not blended.agreement.agrees and not blended.robust:
        notes.append("Where the two groups disagree, trust the clients' column; --robust does so in the blend.")
    if records_per_user > 1:
        notes.append(
            f"Each user has up to {records_per_user} records here, and nobody can tell which belong together: standard "
            "errors and intervals allow for records of one user that go together as closely as they can."
        )
    if blended.robust:
        notes.append("Robust blend: where the two groups disagree it falls back toward the clients.")
    return notes


def _tables(blended: Blended) -> dict[str, pa.Table]:
    import pyarrow as pa

    per_query = blended.queries
    queries, urls = [query for query, _ in blended.records], [url for _, url in blended.records]

    def measured(part: Any) -> dict[str, Any]:
        return {name: pa.array(getattr(part, name), pa.float64()) for name in ("share", "stderr", "low", "high")}

    estimates = ("optin", "optin_stderr", "client", "client_stderr", "weight")
    return {
        "queries": pa.table({"query": pa.array(per_query.queries, pa.string()), **measured(per_query)}),
        "clicks": pa.table(
            {"query": pa.array(queries, pa.string()), "url": pa.array(urls, pa.string()), **measured(blended)}
        ),
        "records": pa.table(
            {
                "query": pa.array(queries, pa.string()),
                "url": pa.array(urls, pa.string()),
                **{name: pa.array(getattr(blended, name), pa.float64()) for name in estimates},
                "shift_z": pa.array(blended.shift_z, pa.float64()),
            }
        ),
    }
