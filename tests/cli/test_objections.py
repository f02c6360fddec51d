"""``--exclude-users`` and ``--drop``: what people asked to leave out is left out by every command that reads a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushquery.cli.app import app
from hushquery.release import Release

OPTIONS = ("--epsilon", "12", "--delta", "1e-6", "--population", "those of the test", "--queries-per-user", "3")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = ["user\ttime\tquery\turl"]
    for user in range(240):
        # Half of the people search for "strikes", and all of these object; everybody searches for the other two.
        for place, query in enumerate(("news", "a private illness", *(["strikes"] if user % 2 else []))):
            rows.append(f"u{user}\t{10_000 * user + 60 * place}\t{query}\thttp://{query.split()[-1]}.example.org/")
    (tmp_path / "objectors.txt").write_text("".join(f"u{user}\n" for user in range(1, 240, 2)))
    (tmp_path / "denied.txt").write_text("illness\n")
    path = tmp_path / "log.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


def released(log: Path, *more: str) -> set[str]:
    command = ["release", str(log), *OPTIONS, "--out", f"out{len(more)}", *more]
    done = CliRunner().invoke(app, [*command, "--ledger", f"ledger{len(more)}.db"])
    assert done.exit_code == 0, done.output
    return set(Release.load(Path(f"out{len(more)}")).tables["queries"]["query"].to_pylist())


def test_people_who_object_and_denied_queries_are_left_out_of_a_release(log: Path) -> None:
    assert released(log) == {"news", "a private illness", "strikes"}
    assert released(log, "--exclude-users", "objectors.txt") == {"news", "a private illness"}
    assert released(log, "--exclude-users", "objectors.txt", "--drop", "denied.txt") == {"news"}


def test_people_who_object_and_denied_queries_are_left_out_of_a_head_list(log: Path) -> None:
    assert CliRunner().invoke(app, ["task", "new", "--out", "task.toml"]).exit_code == 0

    def listed(folder: str, *more: str) -> str:
        command = ["head", str(log), "--task", "task.toml", "--out", folder, "--ledger", f"{folder}.db", *more]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, (done.output, done.exception)
        return " ".join(path.read_text(errors="replace") for path in Path(folder).rglob("*") if path.is_file())

    everything = listed("all")
    assert all(word in everything for word in ("news", "strikes", "illness"))
    left = listed("left", "--exclude-users", "objectors.txt", "--drop", "denied.txt")
    assert "news" in left
    assert "strikes" not in left
    assert "illness" not in left
