"""Which store, which task and which epoch a command of ``hushquery collect`` is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from hushquery.cli.common import option
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.collect.epochs.epochs import Epoch
    from hushquery.collect.store.store import Store
    from hushquery.task import Task

StoreOption = Annotated[str, option("URL", "The collector's store: a file, or postgresql://...")]
TaskOption = Annotated[
    str | None, option("ID", "The beginning of the task's id, or its name; not needed if there is one task.")
]


def open_store(url: str, *, write: bool = False) -> closing[Store]:
    """Open a store that is there, for a block."""
    from hushquery.collect.store.store import Store

    return closing(Store.open(url, create=False, write=write))


def choose_task(store: Store, wanted: str | None) -> tuple[int, Task]:
    """Return the task that is meant, with its row."""
    from hushquery.collect.epochs.epochs import registered

    tasks = registered(store)
    fitting = [one for one in tasks if wanted is None or one[1].id.startswith(wanted) or one[1].task.name == wanted]
    if len(fitting) != 1:
        which = "; ".join(f"{task.id[:12]} ({task.task.name})" for _, task in tasks)
        raise UsageError(
            "it is not clear which task is meant" if fitting or wanted is None else "there is no such task",
            why=f"the store has: {which}" if which else "the store has no task yet",
            fix="Give --task with the beginning of an id",
        )
    return fitting[0]


@dataclass(frozen=True)
class WhichEpoch:
    """The epoch that a command is about."""

    task: TaskOption = None
    epoch: Annotated[int | None, option("NUMBER", "Which epoch; by default the latest.")] = None
    store: StoreOption = "collector.db"

    @contextmanager
    def open(self, *, write: bool = False) -> Iterator[tuple[Store, Epoch]]:
        """Open the store, and find the epoch in it."""
        from hushquery.collect.epochs.epochs import epochs_of

        with open_store(self.store, write=write) as store:
            number, task = choose_task(store, self.task)
            epochs = [one for one in epochs_of(store, task, number) if self.epoch in (None, one.number)]
            if not epochs:
                raise UsageError("the task has no such epoch", fix="`hushquery collect status` lists them")
            yield store, epochs[-1]
