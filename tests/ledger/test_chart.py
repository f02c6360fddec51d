"""The chart over time: it draws every entry, and works without a network."""

from __future__ import annotations

import re
import sys

import pytest
from typer.testing import CliRunner

from hushquery.cli.budget import app
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import Unavailable, UsageError
from hushquery.plot import ledger_over_time, save
from ledger.workers import READERS


@pytest.fixture
def rows(tmp_path, clock):
    ledger = Ledger.open(tmp_path / "ledger.db", clock=clock)
    ledger.open_account(*READERS, Budget(1, 0), period="1d")
    ledger.open_account("authors", "replace-one", Budget(5, 0))
    for number in range(5):
        ledger.spend(*READERS, Loss(pure=("1/2",)), what=f"number {number}")
        clock.forward(hours=13)
    return ledger.over_time()


@pytest.mark.parametrize(("ending", "start"), [("html", b"<!DOCTYPE html>"), ("svg", b"<svg"), ("PNG", b"\x89PNG")])
def test_saved_in_each_format(rows, tmp_path, ending, start):
    path = save(ledger_over_time(rows), tmp_path / f"chart.{ending}")
    assert path.read_bytes().lstrip().startswith(start)


def test_the_page_needs_no_network(rows, tmp_path):
    page = save(ledger_over_time(rows), tmp_path / "chart.html").read_text()
    assert "number 4" in page
    assert not re.search(r"<(script|link|img)[^>]*(src|href)\s*=\s*[\"'](https?:)?//", page)
    assert not re.search(r"\b(import|from)\s*\(?[\"']https?://", page)
    assert len(page) > 500_000  # the libraries are inside


def test_both_accounts_and_their_budgets_are_drawn(rows, tmp_path):
    picture = save(ledger_over_time(rows), tmp_path / "chart.svg").read_text()
    for text in ("readers (add-remove)", "authors (replace-one)", "epsilon spent", "time (UTC)"):
        assert text in picture
    assert picture.count('stroke-dasharray="6,4"') >= 2


def test_many_entries_and_an_epsilon_that_is_not_there(rows, tmp_path):
    many = [{**rows[0], "spent_epsilon": None}] + [{**rows[1], "spent_epsilon": n / 6000} for n in range(6000)]
    assert save(ledger_over_time(many), tmp_path / "chart.svg").stat().st_size > 6000
    assert save(ledger_over_time([]), tmp_path / "empty.svg").exists()


def test_what_was_spent_at_once_is_drawn_within_an_hour(rows, tmp_path):
    at_once = [{**row, "time": f"2026-11-15T10:29:59.{n}00000+00:00"} for n, row in enumerate(rows[:3])]
    picture = save(ledger_over_time(at_once), tmp_path / "chart.svg").read_text()
    assert re.findall(">([0-9]*:[0-9]+)<", picture)
    assert not re.findall(">[.:][0-9]+<", picture)  # no ticks of milliseconds or seconds


@pytest.mark.parametrize("name", ["chart", "chart.pdf", "chart.txt", "nowhere/chart.svg", "."])
def test_other_files_are_refused(rows, tmp_path, name):
    with pytest.raises(UsageError):
        save(ledger_over_time(rows), tmp_path / name)


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_without_the_packages_a_message_says_what_to_type(rows, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unavailable) as refused:
        ledger_over_time(rows)
    assert refused.value.fix.startswith("pip install 'hushquery[plot]', or in a clone: .venv/bin/pip install -e")


def test_the_command_draws_it(rows, tmp_path):
    target = tmp_path / "budget.svg"
    done = CliRunner().invoke(app, ["show", "--ledger", str(tmp_path / "ledger.db"), "--plot", str(target)])
    assert done.exit_code == 0, done.output
    assert f"wrote {target}" in done.output
    assert target.read_text().startswith("<svg")
