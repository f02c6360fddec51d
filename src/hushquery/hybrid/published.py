"""The hybrid model's public files: the head list for clients, and the release that blends both estimates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushquery.core.budget import Unit
from hushquery.core.description import Description
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.local_loss import LocalChannel
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss, StepParameters
from hushquery.errors import DataError, UsageError
from hushquery.hybrid.blend import Blended, blend_probabilities
from hushquery.hybrid.clients import FlatShares, TwoStageCells, TwoStageShares
from hushquery.hybrid.headlist import Method, OptInShares
from hushquery.local.configuration import HEAD_FILE, Configuration
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import Oracle
from hushquery.release import Release
from hushquery.release.release import write_folder
from hushquery.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from hushquery.local.server.estimate import ClientEstimate

__all__ = ["HEAD_FILE", "PublishedHead", "blend"]

_FORMAT = "hushquery-head"
_GUIDED = {GaussianWeights.kind, GaussianHistogram.kind}
_VERSION = 1
_MOST_BYTES = 1 << 30
_KEPT = "kept_since"  # only in the later periods of a list
_KEYS = {"format", "version", "task", "epoch", "created", "test_noise", "configuration", "records", "optin"}


def optin_population(task: Task) -> str:
    """Name those who gave their records to the curator: they have a guarantee and an account of their own."""
    return f"{task.task.population} who opted in"


def client_population(task: Task) -> str:
    """Name those who answer for themselves."""
    return task.task.population


@dataclass(frozen=True, repr=False)
class PublishedHead:
    """A head list with its opt-in estimates."""

    task: Task
    optin: OptInShares  #: the records with what opt-in users say of them
    epoch: int  #: the number of the task's period that it is for
    created: date
    test_noise: bool = False  #: whether the noise came from a test's seed, so that nothing is promised
    kept_since: int | None = None  #: the period that the list was made in, where that was an earlier one

    @property
    def listed(self) -> int:
        """The number of the period that the list was made in."""
        return self.epoch if self.kept_since is None else self.kept_since

    @property
    def last_epoch(self) -> int:
        """The last period that the task keeps this list for."""
        return self.listed + (self.task.head.keep if self.task.head else 1) - 1

    @property
    def records(self) -> list[tuple[str, str]]:
        """The (query, URL) pairs in their order, which is part of what clients hash."""
        return list(self.optin.records)

    def __len__(self) -> int:
        return len(self.optin)

    def __repr__(self) -> str:
        return f"<PublishedHead: {len(self):,} records for epoch {self.epoch} of {self.task.task.name!r}>"

    @cached_property
    def configuration(self) -> Configuration:
        """What clients run, the same while the list is kept; a DataError if the list is empty."""
        if not self.optin.records:
            raise DataError(
                "the head list is empty, so clients have nothing to answer",
                why="no record of the opt-in users passed the threshold",
                fix="Let more users opt in, or give them a larger epsilon",
            )
        return Configuration.of(self.task, self.records)

    @property
    def optin_guarantee(self) -> Guarantee:
        """What the opt-in users are promised, from the numbers that ran; a user is in one part only."""
        optin = self.task.optin
        if optin is None:
            raise UsageError("the task has no [optin] part", fix="Add one: see `hushquery task new`")
        method, since = self.optin.method, self.kept_since
        steps = [Step("headlist", described(step, method, since), step.loss) for step in self.optin_steps]
        unit = Unit("user", optin.relation)
        return Guarantee.of(
            optin_population(self.task), "curator", unit, steps, delta=optin.delta, test_noise=self.test_noise
        )

    @property
    def client_step(self) -> LocalChannel:
        """The numbers that a client's reports of one period run with."""
        return LocalChannel(self.configuration.oracle.describe(), self.task.client.records_per_user)

    @property
    def client_guarantee(self) -> Guarantee:
        """What each client is promised for the reports of one period; never to be mixed with the other."""
        oracle, reports = self.configuration.oracle, self.task.client.records_per_user
        detail = f"{reports} report{'s' if reports > 1 else ''} over {oracle.k:,} cells, randomised on the device"
        steps, unit = [Step(oracle.name, detail, self.client_step.loss)], Unit("client", "replace-one")
        return Guarantee.of(client_population(self.task), "local", unit, steps, test_noise=self.test_noise)

    @property
    def optin_steps(self) -> tuple[StepParameters, ...]:
        """The steps that one opt-in user paid for: of parts with different users, the dearest part's."""
        whole = self.optin.loss
        for part in self.optin.parts:
            if sum((step.loss for step in part), Loss()) == whole:
                return part
        raise DataError(
            "no part of the opt-in users paid what all of them are charged", fix="Download the head list again"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "task": self.task.to_json(),
            "epoch": self.epoch,
            **({} if self.kept_since is None else {_KEPT: self.kept_since}),
            "created": self.created.isoformat(),
            "test_noise": self.test_noise,
            "configuration": self.configuration.digest.hex() if self.optin.records else None,
            "records": [list(record) for record in self.optin.records],
            "optin": self.optin.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> PublishedHead:
        """Read what :meth:`to_json` returned; a list that does not have the hash it states is refused."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise DataError("not a published head list", fix="Make one with `hushquery head`")
        version = data.get("version")
        if type(version) is not int or version != _VERSION or data.keys() - {_KEPT} != _KEYS:
            raise DataError("the head list has an unknown version", why=f"known is {_VERSION}", fix="Upgrade hushquery")
        try:
            epoch, day, marked = data["epoch"], date.fromisoformat(data["created"]), data["test_noise"]
            since = data.get(_KEPT)
            if type(epoch) is not int or epoch < 0 or type(marked) is not bool or not isinstance(data["task"], dict):
                raise TypeError
            if since is not None and (type(since) is not int or not 0 <= since < epoch):
                raise TypeError
        except (TypeError, ValueError):
            raise DataError("the head list is damaged", fix="Download it again") from None
        head = cls(Task.make(data["task"]), OptInShares.from_json(data["optin"]), epoch, day, marked, since)
        head._check_steps()
        if head.epoch > head.last_epoch:
            raise DataError("the head list is of a period that its task does not keep it for", fix="Download it again")
        listed = data["records"] if isinstance(data["records"], list) else []
        stated = [tuple(record) if isinstance(record, list) else record for record in listed]
        expected = head.configuration.digest.hex() if head.optin.records else None
        if stated != head.records or data["configuration"] != expected:
            raise DataError(
                "the head list was changed",
                why="its records and its mechanism do not have the hash that it states",
                fix="Download it again; clients with the right one would not be understood",
            )
        return head

    def _check_steps(self) -> None:
        """Refuse numbers that the task does not allow: a step that states another relation would state another cost."""
        optin, keep = self.task.optin, self.task.head
        if optin is None or keep is None:
            raise DataError("the head list's task makes none", fix="Download the head list again")
        steps = [step.to_json() for part in self.optin.parts for step in part]
        # Guided selection gives weight to more records than it counts; the counts come last.
        counting = steps[-1:] if keep.algorithm == "guided" else steps
        kinds = _GUIDED if keep.algorithm == "guided" and self.kept_since is None else {LaplaceHistogram.kind}
        sound = (
            {step["kind"] for step in steps} == kinds
            and all(step["relation"] == optin.relation for step in steps)
            and all(step["keys_per_user"] == optin.records_per_user for step in counting)
            and self.optin.loss.fits(optin.epsilon, optin.delta)
            and len(self.optin.parts) == (2 if self.optin.method == "split" and self.kept_since is None else 1)
            # Only a list that was public before may have been made without a threshold.
            and (self.kept_since is not None or any(step["threshold"] is not None for step in steps))
            and self.optin.n % optin.records_per_user == 0
        )
        if not sound:
            raise DataError(
                "the head list's numbers do not fit its task",
                why="relation, records per user, epsilon, delta or threshold is another",
                fix="Download it again; its guarantee can't be stated",
            )

    def save(self, folder: Path | str, force: bool = False) -> Path:
        """Save it as a folder: whole, or not at all."""
        text = json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        return write_folder(folder, {HEAD_FILE: text.encode()}, force, known={HEAD_FILE})

    @classmethod
    def load(cls, path: Path | str) -> PublishedHead:
        """Read a saved head list: its folder, or the file in it."""
        file = Path(path)
        file = file / HEAD_FILE if file.is_dir() else file
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise DataError(f"{file.name} is too large for a head list", fix="Use what `hushquery head` wrote")
            data = json.loads(file.read_text("utf-8"))
        except OSError as error:
            raise DataError(
                f"the head list {file} can't be read", why=error.strerror or "", fix="Make one with `hushquery head`"
            ) from None
        except (ValueError, RecursionError):
            raise DataError(f"{file.name} is not JSON", fix="Download the head list again") from None
        return cls.from_json(data)


def described(step: StepParameters, method: Method, kept_since: int | None) -> str:
    """Describe a step of the opt-in half from its numbers; ``kept_since`` is the period of a list that is kept."""
    numbers = step.to_json()
    if isinstance(step, GaussianWeights):
        words = f"weights of (query, URL) records, at most {step.keys_per_user} per user, with noise of {step.sigma}/64"
        if step.threshold is None:
            return f"{words}, summed in a sketch that guides the weights after it"
        return f"{words}, in the head list at a noisy sum of {step.threshold}/64 users' weights or more"
    noise = f"scale {numbers['scale']}" if "scale" in numbers else f"sigma {numbers.get('sigma')}"
    words = f"(query, URL) records, at most {numbers.get('keys_per_user')} per user, with noise of {noise}"
    if kept_since is not None:
        return f"{words}; the list is public since epoch {kept_since}, and is only measured again"
    if numbers.get("threshold") is None:
        return words
    words += f", in the head list at a noisy count of {numbers['threshold']} or more"
    if method == "split":
        return f"{words}; measured on the other opt-in users with fresh noise, at no larger cost to them"
    return f"{words}; the same noisy counts are the estimates"


# ---- the release ---------------------------------------------------------------------------------------------------


def blend(
    head: PublishedHead,
    clients: ClientEstimate,
    *,
    robust: bool = False,
    level: float = 0.95,
    description: Description | None = None,
) -> Release:
    """Blend a head list's opt-in estimates with the clients' estimates about the same list, and make the release.

    Args:
        head: The published head list.
        clients: What ``hushquery estimate`` made of the clients' reports about this very list.
        robust: Fall back toward the clients where opt-in users search differently.
        level: The coverage of the intervals.
        description: What the release says of itself.

    **Guarantee:** none of its own: it costs nothing. The release states both populations' guarantees, side by side.
    **Estimator:** each record's two shares weighted by their variances, projected on the simplex.
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
    shares = blended_shares(head, clients.support, clients.n, robust=robust, level=level)
    return blended_release(head, shares, description)


def blended_shares(
    head: PublishedHead, support: IntArray, n: int, *, robust: bool = False, level: float = 0.95
) -> Blended:
    """Blend as :func:`blend` does, from ``support``: how many of ``n`` reports speak for each cell."""
    records, shares, each = head.records, head.optin, head.task.client.records_per_user
    if not records:
        nothing = TwoStageShares(TwoStageCells([]), TwoStage.calibrate([], 1), np.array([n]), n, each)
        return blend_probabilities(records, shares, nothing, robust=robust, level=level)
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
    """Return the smallest opt-in share that would have been listed among at most ``size`` records.

    Minus infinity where these counts decided nothing; None where they cut the list to its size, so the cut is unknown.
    """
    if size is None or len(shares) >= size:
        return None
    finding = shares.parts[0][-1]
    if shares.method == "reuse" and isinstance(finding, LaplaceHistogram) and finding.threshold is not None:
        return finding.threshold / shares.n
    return -math.inf


def blended_release(head: PublishedHead, blended: Blended, description: Description | None = None) -> Release:
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
        description=description,
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

    def table(part: Any, numbers: Sequence[str], **keys: Sequence[str]) -> pa.Table:
        columns = {name: pa.array(values, pa.string()) for name, values in keys.items()}
        return pa.table({**columns, **{name: pa.array(getattr(part, name), pa.float64()) for name in numbers}})

    shares, per_query = ("share", "stderr", "low", "high"), blended.queries
    record = {"query": [query for query, _ in blended.records], "url": [url for _, url in blended.records]}
    sides = ("optin", "optin_stderr", "client", "client_stderr", "weight", "shift_z")
    return {
        "queries": table(per_query, shares, query=per_query.queries),
        "clicks": table(blended, shares, **record),
        "records": table(blended, sides, **record),
    }
