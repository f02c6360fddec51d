"""The registry of mechanisms: what the conformance suite checks and ``hushquery audit`` attacks.

Mechanisms are entry points of the group ``hushquery.mechanisms``, in hushquery or in a package of yours;
``FILE.py:Class`` works without installing. Whatever hushquery randomises must be registered: a test looks for strays.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Relation
from hushquery.core.loss import Loss
from hushquery.errors import UsageError

GROUP = "hushquery.mechanisms"

#: What an output holds in place of a value that was not published; below every value, so "at most x" includes it.
SUPPRESSED = int(np.iinfo(np.int64).min)

#: What a mechanism does: noise on answers, a choice of keys to publish, or randomising on a client.
Kind = Literal["mechanism", "selector", "randomizer"]
Outcome = tuple[int, ...]
Law = Mapping[Outcome, float]
W = TypeVar("W")


@dataclass(frozen=True)
class Pair(Generic[W]):
    """Two neighbouring inputs between which a mechanism must hide the difference."""

    name: str  # what differs, in words
    left: W
    right: W


class Mechanism(ABC, Generic[W]):
    """A randomised step that states its cost and worst neighbours, runs, and knows its law. Immutable once built."""

    name: ClassVar[str]
    summary: ClassVar[str]
    kind: ClassVar[Kind] = "mechanism"
    relation: ClassVar[Relation] = Relation.ADD_REMOVE
    #: Whether the stated cost is the exact one on the worst pair, so that the conformance suite may demand it.
    tight: ClassVar[bool] = True
    #: Runs per dataset with which an audit reaches 0.9 of epsilon 1 (0.9 being as tight as ``tight`` allows).
    audit_runs: ClassVar[int] = 400_000

    @classmethod
    @abstractmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Mechanism[W]:
        """Build the mechanism for a budget."""

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """What one run costs, from the integers actually used."""

    @abstractmethod
    def pairs(self) -> Sequence[Pair[W]]:
        """Return the neighbouring inputs on which the loss is largest, or might be."""

    @abstractmethod
    def run(self, dataset: W, n: int, bits: Any) -> npt.NDArray[np.int64]:
        """Run ``n`` times on one input with independent randomness; one row per run."""
        # Call the function that draws where data is published: a copy of it would be checked in its place.

    def end_to_end(self, dataset: W, bits: Any) -> tuple[npt.NDArray[np.int64], Law] | None:
        """Run all of what publishes, on as many copies as is quick; None where :meth:`run` is all.
        Returns the outputs, a row per independent copy, and the law that they follow.
        """
        del dataset, bits
        return None

    def law(self, dataset: W) -> Law | None:
        """Return the exact probability of each output row (rare ones may be lumped, not dropped); None if unknown.
        hushquery's own mechanisms must know their law; others may be audited from their runs alone.
        """
        del dataset
        return None

    def truth(self, dataset: W) -> Sequence[float] | None:
        """Return what an unbiased output estimates, or None where the output is no unbiased estimate."""
        del dataset
        return None

    def variance(self, dataset: W) -> Sequence[float] | None:
        """Return the stated variance of each output column, or None."""
        del dataset
        return None


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """List the registered mechanisms."""
    return sorted(_registered())


def find(name: str) -> type[Mechanism[Any]]:
    """Find a mechanism class by its registered name, or by ``FILE.py:Class``."""
    if ":" in name:
        return _from_file(name)
    entry = _registered().get(name)
    if entry is None:
        import difflib

        near = difflib.get_close_matches(name, names(), n=1)
        raise UsageError(
            f"no mechanism is called {name!r}",
            why=f"did you mean {near[0]!r}?" if near else "",
            fix="See `hushquery audit --list`, or name your own as FILE.py:Class",
        )
    return _checked(entry.load(), name)


def _from_file(name: str) -> type[Mechanism[Any]]:
    path, _, attribute = name.rpartition(":")
    spec = importlib.util.spec_from_file_location(f"hushquery_audited_{Path(path).stem}", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"there is no Python file {path!r}", fix="Name your mechanism as FILE.py:Class")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names of a class's module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise UsageError(
            f"the file {path!r} can't be loaded", why=f"{type(error).__name__}: {error}", fix="Run it with python first"
        ) from error
    return _checked(getattr(module, attribute, None), name)


def _checked(loaded: object, name: str) -> type[Mechanism[Any]]:
    if not (isinstance(loaded, type) and issubclass(loaded, Mechanism)):
        raise UsageError(
            f"{name!r} is not a mechanism",
            fix="Derive the class from hushquery.core.registry.Mechanism; see CONTRIBUTING.md",
        )
    return loaded
