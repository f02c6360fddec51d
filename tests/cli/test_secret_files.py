"""What only the steward may see is never in a file that others can read, not even for a moment."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.test_release import OPTIONS
from commands import answer
from hushquery.cli.common import write_secret
from hushquery.errors import UsageError
from hushquery_experiments.cli.experiment import _write


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o377], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The permissions of every file, at the moment it is made or takes its name."""
    seen: list[int] = []
    real_open, real_replace = os.open, Path.replace

    def watched(path: Any, flags: int, mode_given: int = 0o777, **more: Any) -> int:
        handle = real_open(path, flags, mode_given, **more)
        if flags & os.O_CREAT and not Path(path).is_dir():
            seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    def replaced(path: Path, target: Any) -> Path:
        seen.append(mode(path))
        return real_replace(path, target)

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(Path, "replace", replaced)
    return seen


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("there", [False, True])
def test_a_secret_file_is_its_owners_from_the_start(there: bool, tmp_path: Path, opened: list[int]) -> None:
    path = tmp_path / "report.json"
    if there:  # somebody made it readable before, and perhaps reads it
        path.write_text("old")
        path.chmod(0o644)
        reader = path.open()
    write_secret(path, "secret")
    assert len(opened) >= 2
    assert all(one & 0o077 == 0 for one in opened)
    assert (mode(path), path.read_text()) == (0o600, "secret")
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]
    if there:
        with reader:
            assert reader.read() == "old"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    public = tmp_path / "public.txt"
    public.write_text("x")
    (tmp_path / "report.json").symlink_to(public)
    write_secret(tmp_path / "report.json", "secret")
    assert public.read_text() == "x"
    assert not (tmp_path / "report.json").is_symlink()


def test_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    for bad in (tmp_path / "no" / "report.json", tmp_path):
        with pytest.raises(UsageError, match="can't be written"):
            write_secret(bad, "secret")
    assert list(tmp_path.iterdir()) == []


def test_the_private_report_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[int]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text("user,query\nann,news\nbob\n")
    asked = ("release", "log.csv", *OPTIONS, "--explain", "--private-report", "report.json")
    code, _, err = answer(*asked)
    assert code == 0, err
    assert mode("report.json") == 0o600
    assert json.loads(Path("report.json").read_text())
    assert opened[-1] == 0o600
    code, _, err = answer(*asked[:-1], "nowhere/report.json")
    assert (code, "can't be written" in err) == (2, True)


def test_results_of_a_real_log_are_their_owners(tmp_path: Path) -> None:
    page = _write(tmp_path / "new", {"results.md": "true counts"}, secret=True)
    assert (mode(page.parent), mode(tmp_path / "new" / "results.md")) == (0o700, 0o600)
