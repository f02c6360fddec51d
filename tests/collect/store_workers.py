"""What the processes of the tests of the store do."""

from __future__ import annotations

from typing import Any

from children import HANG
from collect.helpers import NOW
from hushquery.collect.epochs.epochs import register
from hushquery.collect.store.store import Store
from hushquery.task import Task


def open_and_register(url: str, text: str, start: Any, answers: Any) -> None:
    """Wait for all others, then open the store, which makes its tables, and enter a task."""
    try:
        start.wait(timeout=HANG)
        store = Store.open(url)
        answers.put(register(store, Task.loads(text), NOW))
        store.close()
    except BaseException as error:
        answers.put(repr(error))
