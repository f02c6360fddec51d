"""The head list as it is published: what every client downloads, with the opt-in estimates and what they cost.

One JSON file. Clients need its records and its configuration hash; whoever blends needs the opt-in shares. All of it is
public: it was paid for before it was made, and nothing else of the opt-in data is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.core.step_loss import (
    GaussianHistogram,
    GaussianWeights,
    LaplaceHistogram,
    LocalChannel,
    StepParameters,
)
from hushquery.core.unit import Unit
from hushquery.errors import DataError, UsageError
from hushquery.hybrid.optin import OptInShares, Way
from hushquery.local.configuration import Configuration
from hushquery.local.device.head_file import HEAD_FILE
from hushquery.release.release import write_folder
from hushquery.task import Task

__all__ = ["HEAD_FILE", "PublishedHead", "client_population", "optin_population", "step_in_words"]

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


@dataclass(frozen=True)
class PublishedHead:
    """A head list with its opt-in estimates.

    Args:
        task: The task.
        optin: The records with what opt-in users say of them.
        epoch: The number of the task's period that it is for.
        created: The day.
        test_noise: Whether the noise came from a test's seed, so that nothing is promised.
        kept_since: The period that the list was made in, where that was an earlier one.
    """

    task: Task
    optin: OptInShares
    epoch: int
    created: date
    test_noise: bool = False
    kept_since: int | None = None

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

    @cached_property
    def configuration(self) -> Configuration:
        """What clients run: the cells and the mechanism, fixed by this list.

        It is the same in every period that the list is kept for, so clients repeat the answers that they have drawn.

        Raises:
            DataError: The list is empty, so there is nothing to ask clients.
        """
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
        return Guarantee.of(
            optin_population(self.task),
            "curator",
            Unit("user", optin.relation),
            [Step("headlist", detail, step.loss) for step, detail in zip(self.optin_steps, self.details, strict=True)],
            delta=optin.delta,
            test_noise=self.test_noise,
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
        return Guarantee.of(
            client_population(self.task),
            "local",
            Unit("client", "replace-one"),
            [Step(oracle.name, detail, self.client_step.loss)],
            test_noise=self.test_noise,
        )

    @property
    def optin_steps(self) -> tuple[StepParameters, ...]:
        """The steps that one opt-in user paid for: of parts with different users, the dearest part's."""
        whole = self.optin.loss
        for part in self.optin.parts:
            if sum((step.loss for step in part), Loss()) == whole:
                return part
        raise DataError("no part of the opt-in users paid what all of them are charged", fix="Get the head list again")

    @property
    def details(self) -> list[str]:
        """Say of each of these steps what it did."""
        return [step_in_words(step, self.optin.way, self.kept_since) for step in self.optin_steps]

    # ---- files -------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
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
        """Read what :meth:`to_json` gave; a list that is not what its hash says is refused."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise DataError("this is no published head list", fix="Make one with `hushquery head`")
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
            raise DataError("the head list is damaged", fix="Get it again") from None
        head = cls(Task.make(data["task"]), OptInShares.from_json(data["optin"]), epoch, day, marked, since)
        head._check_steps()
        if head.epoch > head.last_epoch:
            raise DataError("the head list is of a period that its task does not keep it for", fix="Get it again")
        listed = data["records"] if isinstance(data["records"], list) else []
        stated = [tuple(record) if isinstance(record, list) else record for record in listed]
        expected = head.configuration.digest.hex() if head.optin.records else None
        if stated != head.records or data["configuration"] != expected:
            raise DataError(
                "the head list was changed",
                why="its records and its mechanism do not have the hash that it states",
                fix="Get it again; clients with the right one would not be understood",
            )
        return head

    def _check_steps(self) -> None:
        """Refuse numbers that the task does not allow: a step that states another relation would state another cost."""
        optin, keep = self.task.optin, self.task.head
        if optin is None or keep is None:
            raise DataError("the head list's task makes none", fix="Get the head list again")
        steps = [step.to_json() for part in self.optin.parts for step in part]
        # Guided selection gives weight to more records than it counts; the counts come last.
        counting = steps[-1:] if keep.algorithm == "guided" else steps
        kinds = _GUIDED if keep.algorithm == "guided" and self.kept_since is None else {LaplaceHistogram.kind}
        sound = (
            {step["kind"] for step in steps} == kinds
            and all(step["relation"] == optin.relation for step in steps)
            and all(step["keys_per_user"] == optin.records_per_user for step in counting)
            and self.optin.loss.fits(optin.epsilon, optin.delta)
            and len(self.optin.parts) == (2 if self.optin.way == "split" and self.kept_since is None else 1)
            # Only a list that was public before may have been made without a threshold.
            and (self.kept_since is not None or any(step["threshold"] is not None for step in steps))
            and self.optin.n % optin.records_per_user == 0
        )
        if not sound:
            raise DataError(
                "the head list's numbers do not fit its task",
                why="relation, records per user, epsilon, delta or threshold is another",
                fix="Get it again; its guarantee can't be stated",
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
                raise DataError(f"{file.name} is too large for a head list", fix="Give what `hushquery head` wrote")
            data = json.loads(file.read_text("utf-8"))
        except OSError as error:
            raise DataError(
                f"the head list {file} can't be read", why=error.strerror or "", fix="Make one with `hushquery head`"
            ) from None
        except (ValueError, RecursionError):
            raise DataError(f"{file.name} is not JSON", fix="Get the head list again") from None
        return cls.from_json(data)


def step_in_words(step: StepParameters, way: Way, kept_since: int | None = None) -> str:
    """Say what a step of the opt-in half does, from its numbers; ``kept_since`` is the period of a kept list."""
    numbers = step.to_json()
    if isinstance(step, GaussianWeights):
        words = f"weights of (query, URL) records, at most {step.keys_per_user} per user, with noise of {step.sigma}/64"
        if step.threshold is None:
            return f"{words}, summed in a sketch that guides the weights after it"
        return f"{words}, in the head list from {step.threshold}/64 on"
    noise = f"scale {numbers['scale']}" if "scale" in numbers else f"sigma {numbers.get('sigma')}"
    words = f"(query, URL) records, at most {numbers.get('keys_per_user')} per user, with noise of {noise}"
    if kept_since is not None:
        return f"{words}; the list is public since epoch {kept_since}, and is only measured again"
    if numbers.get("threshold") is None:
        return words
    words += f", in the head list from {numbers['threshold']} on"
    if way == "split":
        return f"{words}; measured on the other opt-in users with fresh noise, at no larger cost to them"
    return f"{words}; the same noisy counts are the estimates"
