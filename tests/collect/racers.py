"""What runs in processes of its own: a module that a fresh process can import by its name."""

from __future__ import annotations

from typing import Any

from children import HANG
from collect.helpers import Clock
from hushquery.collect.collector import Collector, Settings


def tick(settings: Settings, now: float, start: Any, answers: Any) -> None:
    """Be a server whose clock says that it is time to move."""
    try:
        clock = Clock()
        clock.now = now
        collector = Collector(settings, clock=clock, steady=clock.steady)
        start.wait(timeout=HANG)
        troubles = collector.phases.tick(collector.cache.tasks)
        collector.store.close()
        answers.put([trouble.what for trouble in troubles])
    except BaseException as error:
        answers.put([repr(error)])
