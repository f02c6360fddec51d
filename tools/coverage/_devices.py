"""Devices that keep their answers over the periods of a task, with the production randomizer and estimator.

A device draws the answer of a value once, so its reports repeat while its value stays, and again when it returns to a
value that it had before. Histories of values are drawn at random from a population whose shares are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hushquery.local.configuration import Configuration
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.randomizer import Randomizer
from hushquery.local.server.estimate import estimate_support
from hushquery.noise.sampler import Bits, below
from hushquery.release import Release
from hushquery.task import Task

Ints = npt.NDArray[np.int64]

_TASK = """
[task]
name = "theme"
population = "simulated clients"
kind = "{kind}"
period = "7d"
{values}
[client]
epsilon = {epsilon}
lifetime_epsilon = 1000
{client}
[collect]
min_batch = 2
"""


def asked(kind: str, values: str, epsilon: float, client: str = "") -> Configuration:
    """Return the configuration of a weekly task."""
    return Configuration.of(Task.loads(_TASK.format(kind=kind, values=values, epsilon=epsilon, client=client)))


def setting(cells: int = 4, epsilon: float = 1, oracle: str = "krr", client: str = "") -> Configuration:
    """Return a weekly setting with so many cells, of which the last stands for everything else."""
    values = ", ".join(f'"v{i}"' for i in range(cells - 1))
    return asked("setting", f"domain = [{values}]", epsilon, f'oracle = "{oracle}"\n{client}')


class Devices:
    """So many devices of a task with their memo: an answer for each device and class of values, drawn once."""

    def __init__(self, configuration: Configuration, devices: int, bits: Bits) -> None:
        self.configuration, self.bits, self.devices = configuration, bits, devices
        self._release: Release | None = None
        self.forget()

    def forget(self) -> None:
        """Make all devices new ones."""
        channel = self.configuration.channel
        self._known: npt.NDArray[np.bool_] | None = None
        if isinstance(channel, DBitFlip):
            self._sampled = channel.sample(self.devices, self.bits)
        elif isinstance(channel, OneBitMean):
            self._offset = below(self.bits, channel.step, self.devices)

    def reports(self, devices: Ints, values: Ints) -> npt.NDArray[Any]:
        """Return the reports of some devices, by their numbers, that hold these values."""
        channel = self.configuration.channel
        if isinstance(channel, DBitFlip):
            own = self._sampled[devices] == values[:, None]
            named = np.where(own.any(axis=1), own.argmax(axis=1), channel.d)
        else:
            named = (values + self._offset[devices]) // channel.step if isinstance(channel, OneBitMean) else values
        fresh = np.ones(len(values), dtype=np.bool_) if self._known is None else ~self._known[devices, named]
        drawn = self._draw(devices[fresh], values[fresh], named[fresh])
        if self._known is None:
            classes = int(getattr(channel, "k", 0)) or channel.most // channel.step + 1  # type: ignore[attr-defined]
            self._known = np.zeros((self.devices, classes + 1), dtype=np.bool_)
            self._kept = np.zeros((self.devices, classes + 1, *drawn.shape[1:]), dtype=drawn.dtype)
        self._known[devices[fresh], named[fresh]] = True
        self._kept[devices[fresh], named[fresh]] = drawn
        found: npt.NDArray[Any] = self._kept[devices, named]
        return found

    def _draw(self, devices: Ints, values: Ints, named: Ints) -> npt.NDArray[Any]:
        channel = self.configuration.channel
        if isinstance(channel, DBitFlip):
            sampled = self._sampled[devices]
            return np.concatenate([sampled, channel.randomize_many(values, sampled, self.bits)], axis=1)
        if isinstance(channel, OneBitMean):
            return channel.randomize_many(named * channel.step, self.bits).astype(np.uint8)
        assert isinstance(channel, Randomizer)
        return channel.randomize_many(values, self.bits)

    def release(self, number: int, devices: Ints, values: Ints) -> Release:
        """Return the release of a period in which these devices hold these values."""
        channel, n = self.configuration.channel, len(values)
        support = channel.support(self.reports(devices, values))
        if self._release is None:  # computing what a release promises takes longer than all the rest
            self._release = estimate_support(self.configuration, support, n, periods=[number]).release()
        manifest = self._release.manifest
        parameters = {**manifest["parameters"], "periods": [number], "reports": n}
        estimates = channel.table(support, n, 0.95, self.configuration.labels).to_arrow()
        tables = {
            "estimates": estimates.rename_columns(["value", *estimates.column_names[1:]]),
            "support": pa.table({"cell": pa.array(range(len(support)), pa.int64()), "reports": support}),
        }
        return Release(tables, self._release.guarantees, {**manifest, "parameters": parameters})
