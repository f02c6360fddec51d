"""CPU seconds of the suite by folder: `pytest -p cpu ...` prints them at the end, the dearest files too.

A test's time is that of its process and of the children that ended during it. What belongs to no test (imports,
collection, servers that outlive their tests) is not in the table; `time make unit` has all of it.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_START = pytest.StashKey[float]()
_files: defaultdict[str, float] = defaultdict(float)


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note when a test begins, before its fixtures are made."""
    item.stash[_START] = _seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Send the seconds of a test with the report of its teardown, from whichever process it ran in."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("cpu", _seconds() - item.stash.get(_START, _seconds())))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up, in the process that prints."""
    for name, value in report.user_properties:
        if name == "cpu" and isinstance(value, float) and report.when == "teardown":
            _files[report.location[0]] += value


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print both tables."""
    folders: defaultdict[str, float] = defaultdict(float)
    for file, seconds in _files.items():
        folders["/".join(Path(file).parts[:2])] += seconds
    terminalreporter.section(f"CPU seconds: {sum(folders.values()):.0f}")
    for title, table in (("by folder", folders), ("by file", _files)):
        terminalreporter.write_line(title)
        for name, seconds in sorted(table.items(), key=lambda one: -one[1])[:40]:
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
