"""ARCHITECTURE.md's drawings against what runs: every arrow is passed, and no flow passes more files than it may."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from docs.flows import DRAWN, FLOWS, trace
from docs.test_architecture import ARROW
from docs.test_architecture import FLOWS as DRAWINGS

ARROWS = [(flow, file, name) for flow, part in DRAWINGS.items() for _, _, name, file, _ in ARROW.findall(part)]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory):
    """Return what a flow executes, running each once."""

    @cache
    def executed(flow) -> set[tuple[str, str]]:
        return trace(flow, Path(tmp_path_factory.mktemp(flow.__name__)))

    return executed


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_a_flow_passes_few_files(traced, flow):
    files = {file for file, _ in traced(flow)}
    assert len(files) <= FLOWS[flow], sorted(files)


def test_every_drawing_is_run():
    assert set(DRAWN) == set(DRAWINGS)


@pytest.mark.parametrize(("flow", "file", "name"), ARROWS)
def test_an_arrow_is_passed(traced, flow, file, name):
    """The function of an arrow is executed; of a class, one of its methods is."""
    executed = set().union(*(traced(one) for one in DRAWN[flow]))
    assert any(place == file and (ran == name or ran.startswith(f"{name}.")) for place, ran in executed)
