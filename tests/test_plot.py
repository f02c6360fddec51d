"""Charts: every specification is drawn for real, whatever is in it, and a missing package says what to type."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from hushquery import plot
from hushquery.core.estimates import Estimate, Estimates
from hushquery.errors import Unavailable, UsageError

LEDGER = [
    {
        "time": f"2026-01-0{day}T00:00:00Z",
        "account": "readers (add-remove)",
        "period": 0,
        "what": "a count",
        "spent_epsilon": 0.2 * day,
        "budget_epsilon": 1.0,
    }
    for day in (1, 2, 3)
]


def table(*rows):
    return Estimates(tuple(Estimate(*row) for row in rows))


CHARTS = {
    "estimates": lambda: plot.estimates(table(("north", 5.0, 1.0, 3.0, 7.0), ("south", -1.0, 1.0, -3.0, 1.0))),
    "one estimate": lambda: plot.estimates(table(("north", 5.0, 1.0, 3.0, 7.0))),
    "no estimate": lambda: plot.estimates(table()),
    "without an end": lambda: plot.estimates(table(("ratio", 1.0, math.inf, -math.inf, math.inf))),
    "not a number": lambda: plot.estimates(table(("ratio", math.nan, math.inf, -math.inf, math.inf))),
    "odd labels": lambda: plot.estimates(
        table(*((x, 1.0, 1.0, 0.0, 2.0) for x in ("a.b", "a[0]", "<b>&\"'", "ü😀", "")))
    ),
    "two worlds": lambda: plot.two_worlds(1),
    "two worlds, small epsilon": lambda: plot.two_worlds("1e-6"),
    "two worlds, large epsilon": lambda: plot.two_worlds(500, sensitivity=3),
    "ledger": lambda: plot.ledger_over_time(LEDGER),
    "empty ledger": lambda: plot.ledger_over_time([]),
}


@pytest.mark.parametrize("make", CHARTS.values(), ids=CHARTS)
def test_every_chart_is_drawn(make):
    picture = plot.svg(make())
    root = ET.fromstring(picture)  # noqa: S314 -- our own picture
    assert root.tag.endswith("svg")
    assert float(root.get("width")) > 0
    assert not re.search(r"(href|src)\s*=\s*[\"'](https?:)?//", picture)
    assert "<script" not in picture


def test_estimates_are_drawn_in_their_order_with_intervals_and_level():
    picture = plot.svg(CHARTS["estimates"]())
    texts = [e.text for e in ET.fromstring(picture).iter() if e.tag.endswith("text") and e.text]  # noqa: S314
    assert texts.index("north") < texts.index("south")
    assert any("95% interval" in text for text in texts)
    chart = plot.estimates(Estimates.raw(["a"], [1.0], [1.0], level=0.999))
    assert "99.9% interval" in plot.svg(chart)


def test_the_two_worlds_are_both_there():
    picture = plot.svg(plot.two_worlds(1))
    assert "without you" in picture
    assert "with you" in picture


def test_labels_cannot_break_out_of_the_picture():
    assert "<b>" not in plot.svg(CHARTS["odd labels"]())


@pytest.mark.parametrize("ending", ["svg", "png", "html"])
def test_charts_are_saved_as_their_ending_says(tmp_path, ending):
    path = plot.save(plot.two_worlds(1), tmp_path / f"worlds.{ending}")
    start = path.read_bytes()[:200].lstrip()
    assert {"svg": start.startswith(b"<svg"), "png": start[1:4] == b"PNG", "html": b"<html" in start.lower()}[ending]
    if ending == "html":
        assert not re.search(r"<(script|link|img)[^>]*(src|href)\s*=\s*[\"'](https?:)?//", path.read_text())


@pytest.mark.parametrize("name", ["worlds", "worlds.pdf", "nowhere/worlds.svg"])
def test_other_files_are_refused(tmp_path, name):
    with pytest.raises(UsageError) as refused:
        plot.save(plot.two_worlds(1), tmp_path / name)
    assert refused.value.fix


MAKERS = {
    "estimates": lambda: plot.estimates(table()),
    "two_worlds": lambda: plot.two_worlds(1),
    "ledger_over_time": lambda: plot.ledger_over_time(LEDGER),
    "svg": lambda: plot.svg(None),
    "save": lambda: plot.save(None, "chart.svg"),
}


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_without_the_packages_a_message_says_what_to_type(make, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unavailable) as refused:
        make()
    assert refused.value.fix.startswith("pip install 'hushquery[plot]', or in a clone: .venv/bin/pip install -e")
    assert refused.value.exit_code == 69


def test_the_module_itself_needs_neither(monkeypatch):
    for package in ("altair", "vl_convert"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "hushquery.plot")
    import hushquery.plot as fresh

    assert fresh.__all__ == plot.__all__


@pytest.mark.parametrize("epsilon", [0, -1, "nan"])
def test_no_picture_of_an_epsilon_that_is_none(epsilon):
    with pytest.raises(UsageError):
        plot.two_worlds(epsilon)
