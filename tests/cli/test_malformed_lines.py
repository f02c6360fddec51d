"""What the command line does with lines that are no rows, and with a failure that nobody foresaw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import answer

MARKER = "Zyxwvut-Marker"
COST = ["--unit", "user", "--epsilon", "0.5", "--population", "p"]
#: Files with lines that are no rows: those are left out, and what is left has a result.
MALFORMED = {
    "broken.csv": b"user,x\n" + MARKER.encode() + b",1\n\xff\xfe,2\n",
    "ragged.csv": f"user,x\n{MARKER},1,2,3,4\nbob,1\n".encode(),
    "another delimiter.csv": f"user;x\n{MARKER};1\n{MARKER};2\n".encode(),
    "last row odd.csv": f"user,x\nann,1\nbob,2\n{MARKER};1|\"'x';2\n".encode(),
    "quote.csv": f'user,x\n"{MARKER},1\nbob,2\n'.encode(),
    "broken.jsonl": f'{{"user": "{MARKER}", "x": 1}}\n{{"user": "{MARKER}\n'.encode(),
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_lines_are_left_out_and_not_shown(name, tmp_path):
    (tmp_path / name).write_bytes(MALFORMED[name])
    code, out, err = answer("stat", "sum", name, "x", "--lower", 0, "--upper", 1, *COST, "--json")
    assert code == 0
    assert MARKER not in out + err
    assert len(json.loads(out)["estimates"]) == 1


@pytest.mark.parametrize("poison", ['"ann,1', "ann,1,2", "ann", "\0", "ann,1e400", "x" * 3_000_000])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_one_line_does_not_end_a_statistic(ending, poison):
    lines = (
        ["user,minutes", *(f"u{n},1" for n in range(999))] if ending == "csv" else ['{"user": "u", "minutes": 1}'] * 999
    )
    Path(f"visits.{ending}").write_text("\n".join([*lines, poison]) + "\n")
    code, out, err = answer("stat", "sum", f"visits.{ending}", "minutes", "--lower", 0, "--upper", 1, *COST)
    assert code == 0, out + err


def test_what_nobody_foresaw_shows_no_row_and_no_traceback(monkeypatch):
    def fail(*_arguments, **_more):
        raise RuntimeError("zebra-row")

    Path("visits.csv").write_text("user,minutes\nann,1\n")
    monkeypatch.setattr("hushquery.statistics.plan_count", fail)
    for more in ((), ("--json",)):
        code, out, err = answer("stat", "count", "visits.csv", *COST, *more)
        assert code == 1
        assert "RuntimeError" in out + err
        assert "zebra" not in out + err
        assert "Traceback" not in out + err
    monkeypatch.setenv("HUSHQUERY_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="zebra"):
        answer("stat", "count", "visits.csv", *COST)
