"""Devices that keep their answers over the periods of a task: simulated as one array, with the production randomizer.

A device draws the answer of a value once (``answers``), so its reports repeat while its value stays, and again when it
returns to a value that it had before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.local.configuration import Configuration
from hushquery.local.randomizer import Randomizer
from hushquery.local.server.estimate import estimate_support
from hushquery.noise.sampler import Bits
from hushquery.release import Release
from hushquery.task import Task

Ints = npt.NDArray[np.int64]

SETTING = """
[task]
name = "theme"
population = "app users"
kind = "setting"
period = "7d"
domain = [{values}]
[client]
epsilon = {epsilon}
lifetime_epsilon = 1000
oracle = "{oracle}"
{client}
[collect]
min_batch = 2
"""


def setting(cells: int = 4, epsilon: float = 1, oracle: str = "krr", client: str = "") -> Configuration:
    """Return a weekly setting with so many cells, of which the last stands for everything else."""
    values = ", ".join(f'"v{i}"' for i in range(cells - 1))
    return Configuration.of(Task.loads(SETTING.format(values=values, epsilon=epsilon, oracle=oracle, client=client)))


class Devices:
    """Devices of a setting with their memo: one answer for each device and cell, drawn when it is first needed."""

    def __init__(self, configuration: Configuration, bits: Bits) -> None:
        channel = configuration.channel
        assert isinstance(channel, Randomizer)
        self.configuration, self.channel, self.bits = configuration, channel, bits
        self.kept: npt.NDArray[Any] | None = None
        self.known: npt.NDArray[np.bool_] = np.zeros((0, channel.k), dtype=np.bool_)

    def reports(self, devices: Ints, values: Ints) -> npt.NDArray[Any]:
        """Return the answers of some devices, by their numbers, with these values."""
        most = int(devices.max()) + 1
        if most > len(self.known):
            more = np.zeros((most - len(self.known), self.channel.k), dtype=np.bool_)
            self.known = np.concatenate([self.known, more])
        new = np.flatnonzero(~self.known[devices, values])
        drawn = self.channel.randomize_many(values[new], self.bits)
        shape, kind = drawn.shape[1:], drawn.dtype
        if self.kept is None:
            self.kept = np.zeros((0, self.channel.k, *shape), dtype=kind)
        if most > len(self.kept):
            more_kept = np.zeros((most - len(self.kept), *self.kept.shape[1:]), dtype=kind)
            self.kept = np.concatenate([self.kept, more_kept])
        self.kept[devices[new], values[new]] = drawn
        self.known[devices[new], values[new]] = True
        return self.kept[devices, values]

    def release(self, number: int, devices: Ints, values: Ints) -> Release:
        """Return the release of a period in which these devices hold these values."""
        support = self.channel.support(self.reports(devices, values))
        return estimate_support(self.configuration, support, len(values), periods=[number]).release()
