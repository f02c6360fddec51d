"""``hushquery release`` end to end: spent before read, whole or not at all, and no secret on any channel."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import answer
from hushquery.core.ledger.ledger import Ledger
from hushquery.release import Release, verify

OPTIONS = ("--epsilon", "12", "--delta", "1e-6", "--queries-per-user", "4", "--population", "searchers")
CANARY = "zqcanary"
HEAD = ("weather leeds", "news", "maps")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = ["user\ttime\tquery\turl"]
    for user in range(120):
        for place, query in enumerate((*HEAD, f"{CANARY} {user}")):
            url = f"http://{query.split()[0]}.example.org/{'' if place < 3 else user}"
            rows.append(f"{CANARY}-u{user}\t{10_000 * user + 60 * place}\t{query}\t{url}")
    path = tmp_path / f"{CANARY}-log.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


def spends(ledger: str = "ledger.db") -> int:
    """Count what a ledger holds; a ledger that was never made holds nothing."""
    return sum(entry.loss is not None for entry in Ledger.open(ledger).history()) if Path(ledger).exists() else 0


# ---- a release -----------------------------------------------------------------------------------------------------


def test_one_command_makes_a_folder_that_verifies(log: Path) -> None:
    code, out, err = answer(
        "release", log, *OPTIONS, "--clicks-per-user", "3", "--reformulations-per-user", "3", "--out", "r", "--json"
    )
    assert code == 0, err
    told = json.loads(out)
    assert told["tables"]["queries"] == 3
    assert told["tables"]["clicks"] == 3
    assert told["guarantee"]["epsilon"] <= 12
    assert {p.name for p in Path("r").iterdir()} == {
        *("queries.parquet", "clicks.parquet", "reformulations.parquet", "manifest.json", "README.md", "report.html"),
    }
    assert verify("r").ok
    made = Release.load("r")
    assert not made.test_noise
    assert made.queries is not None
    assert set(made.queries["query"].to_pylist()) == set(HEAD)
    assert all(abs(n - 120) < 20 for n in made.queries["count"].to_pylist())
    assert "Created account" in err
    assert spends() == 1
    everything = out + err + "".join(p.read_bytes().decode(errors="replace") for p in Path("r").iterdir())
    everything += "".join(str(table.to_pydict()) for table in made.tables.values())
    assert CANARY not in everything
    assert [p.name for p in Path().iterdir() if p.name.startswith(".")] == []  # no partial folder is left


def test_a_second_identical_run_is_refused(log: Path) -> None:
    assert answer("release", log, *OPTIONS, "--out", "r")[0] == 0
    before = {p.name: p.read_bytes() for p in Path("r").iterdir()}
    code, out, err = answer("release", log, *OPTIONS, "--out", "other")
    assert code == 3
    assert out == ""
    assert CANARY not in err
    assert not Path("other").exists()
    code, _, _ = answer("release", log, *OPTIONS, "--out", "r", "--force")
    assert code == 3
    assert {p.name: p.read_bytes() for p in Path("r").iterdir()} == before  # the older release stays
    assert spends() == 1


def test_out_is_checked_before_anything_is_spent(log: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    Path("file").write_text("x")
    for out, force in (("mine", ()), ("mine", ("--force",)), ("file", ()), ("file", ("--force",)), (".", ("--force",))):
        code, _, err = answer("release", log, *OPTIONS, "--out", out, *force)
        assert code == 2, out
        assert err
    assert Path("mine/thesis.txt").read_text() == "years of work"
    assert spends() == 0
    assert not Path("ledger.db").exists()


@pytest.mark.parametrize("out", ["file/r", "file/deep/r"])
def test_an_out_that_can_not_be_written_is_refused_before_anything_is_spent(out: str, log: Path) -> None:
    """A release that can't be saved is a budget thrown away."""
    Path("file").write_text("x")
    code, _, err = answer("release", log, *OPTIONS, "--out", out)
    assert code in (2, 4)
    assert spends() == 0, err


def test_force_replaces_an_older_release_and_nothing_else(log: Path) -> None:
    assert answer("release", log, *OPTIONS, "--out", "r", "--population", "one")[0] == 0
    first = Release.load("r")
    Path("r/notes.txt").write_text("mine")
    code, _, err = answer("release", log, *OPTIONS, "--out", "r", "--population", "two", "--new-population", "--force")
    assert code == 2
    assert "notes.txt" in err
    assert spends() == 1
    Path("r/notes.txt").unlink()
    again = ("--population", "two", "--new-population", "--force")  # the same file, of other people
    assert answer("release", log, *OPTIONS, "--out", "r", *again)[0] == 0
    second = Release.load("r")
    assert (first.guarantees[0].population, second.guarantees[0].population) == ("one", "two")
    assert verify("r").ok


def test_no_create_needs_an_account(log: Path) -> None:
    asked = (
        "release",
        log,
        "--epsilon",
        "4",
        "--delta",
        "1e-6",
        "--queries-per-user",
        "4",
        "--out",
        "r",
        "--population",
        "searchers",
        "--no-create",
    )
    assert answer(*asked)[0] == 3
    assert not Path("ledger.db").exists()
    terms = ("--relation", "add-remove", "--epsilon", "4", "--delta", "1e-6", "--ledger", "ledger.db")
    assert answer("budget", "open", "--population", "others", *terms)[0] == 0
    assert answer(*asked)[0] == 3
    assert not Path("r").exists()
    assert answer(*asked, "--population", "others")[0] == 0
    assert verify("r").ok


def test_explain_spends_and_reads_nothing(tmp_path: Path) -> None:
    # The second row can't even be decoded, and nobody notices.
    bad = tmp_path / "bad.tsv"
    bad.write_bytes(
        b"user\ttime\tquery\turl\n" + b"u1\t1\tzqcanary\thttp://a.example/\n" + b"\xff\xfe\x00zqcanary\n" * 5
    )
    for more in ((), ("--json",)):
        code, out, err = answer("release", bad, *OPTIONS, "--clicks-per-user", "3", "--out", "r", "--explain", *more)
        assert code == 0, err
        assert CANARY not in out + err
        assert "at most 4 per user" in out
    told = json.loads(out)
    assert set(told) == {"plan", "sql", "guarantee"}
    assert "SELECT" in told["sql"]
    assert {p.name for p in tmp_path.iterdir()} == {"bad.tsv"}


def test_the_plan_that_is_explained_is_the_one_that_runs(log: Path) -> None:
    asked = (*OPTIONS, "--clicks-per-user", "2", "--selector", "korolova2009", "--shares", "queries=.5,clicks=.5")
    _, out, _ = answer("release", log, *asked, "--out", "r", "--explain", "--json")
    planned = json.loads(out)["guarantee"]
    assert answer("release", log, *asked, "--out", "r")[0] == 0
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert manifest["guarantees"] == [planned]
    assert manifest["parameters"]["shares"] == {"queries": "1/2", "clicks": "1/2"}


def test_select_only_says_what_it_leaves_out(log: Path) -> None:
    code, out, err = answer("release", log, *OPTIONS, "--clicks-per-user", "2", "--select-only", "--out", "r", "--json")
    assert code == 0
    assert set(json.loads(out)["tables"]) == {"queries"}
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert manifest["parameters"]["clicks_per_user"] is None or "no clicks" in err


# ---- killed --------------------------------------------------------------------------------------------------------

KILLED_AT = {
    "just after the spend": ("hushquery.core.ledger.ledger:Ledger.spend", "after", 1),
    "while selecting": ("hushquery.curator.selectors.thresholded:passing", "before", 1),
    "between the tables": ("hushquery.curator.clicks:Clicks.run", "before", 1),
    "while writing": ("os:fsync", "after", 3),
    "before the folder gets its name": ("hushquery.release.release:_move_in", "before", 1),
    "after the folder got its name": ("hushquery.release.release:_move_in", "after", 1),
}

KILLER = """
import importlib, os, signal, sys
place, when, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
module, _, path = place.partition(":")
owner = importlib.import_module(module)
*outer, name = path.split(".")
for part in outer:
    owner = getattr(owner, part)
real, calls = getattr(owner, name), 0
def killing(*args, **more):
    global calls
    calls += 1
    if when == "before" and calls >= count:
        os.kill(os.getpid(), signal.SIGKILL)
    done = real(*args, **more)
    if when == "after" and calls >= count:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
setattr(owner, name, killing)
sys.argv = ["hushquery", *sys.argv[4:]]
from hushquery.cli import main
main()
"""


@pytest.mark.parametrize("moment", KILLED_AT)
def test_killed_at_any_moment_there_is_no_half_release_and_the_spend_stands(moment: str, log: Path) -> None:
    place, when, count = KILLED_AT[moment]
    arguments = ["release", str(log), *OPTIONS, "--clicks-per-user", "3", "--out", "r"]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, place, when, str(count), *arguments], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert CANARY not in (done.stdout + done.stderr).decode()
    if moment == "after the folder got its name":
        assert verify("r").ok
    else:
        assert not Path("r").exists()
    assert spends() == 1
    # The budget is gone, and a leftover is in nobody's way.
    assert answer("release", log, *OPTIONS, "--clicks-per-user", "3", "--out", "r2")[0] == 3
    assert not Path("r2").exists()


def test_killed_while_it_replaces_an_older_release_one_of_the_two_is_left(log: Path) -> None:
    assert answer("release", log, *OPTIONS, "--out", "r", "--population", "one")[0] == 0
    arguments = ["release", str(log), *OPTIONS, "--out", "r", "--population", "two", "--new-population", "--force"]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, "os:rename", "after", "1", *arguments], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    whole = [p for p in Path().iterdir() if p.is_dir() and (p / "manifest.json").exists()]
    assert whole
    assert all(verify(p).ok for p in whole)
    assert not Path("r").exists() or verify("r").ok


# ---- bad logs ------------------------------------------------------------------------------------------------------

HEADER = "user\ttime\tquery\turl\n"


def _write(name: str) -> Path:
    path = Path(f"{name.replace(' ', '-')}.tsv")
    texts = {
        "header only": HEADER,
        "one row": HEADER + f"{CANARY}\t1\t{CANARY}\thttp://{CANARY}.example.org/\n",
        "one user": HEADER + "".join(f"{CANARY}\t{i}\t{CANARY} {i}\t\n" for i in range(3000)),
        "no queries": HEADER + "".join(f"{CANARY}{i}\t{i}\t\t\n" for i in range(50)),
        "no time that can be read": HEADER + "".join(f"{CANARY}{i}\t{CANARY}\tnews\t\n" for i in range(200)),
    }
    path.write_text(texts[name])
    return path


EMPTY = ("header only", "one row", "one user")


def test_a_log_without_queries_is_refused_before_the_spend() -> None:
    code, out, err = answer("release", _write("no queries"), *OPTIONS, "--out", "r")
    assert code == 4, err
    assert "hushquery look" in err
    assert CANARY not in out + err
    assert not Path("ledger.db").exists()
    assert not Path("r").exists()


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_release_is_a_release_like_any_other(name: str) -> None:
    code, out, err = answer(
        "release", _write(name), *OPTIONS, "--clicks-per-user", "3", "--reformulations-per-user", "2", "--out", "r"
    )
    assert code == 0, err
    assert "0 queries" in out
    made = Release.load("r")
    assert {name: table.num_rows for name, table in made.tables.items()} == dict.fromkeys(
        ("queries", "clicks", "reformulations"), 0
    )
    said = out + err
    for command in (
        ("verify", "r"),
        ("show", "r"),
        ("search", "r", "news"),
        ("trends", "r"),
        ("suggest", "r", "news"),
        ("find", "r", "*"),
    ):
        code, out, err = answer(*command)
        assert code == 0, (command, err)
        said += out + err
    assert "<html" in Path("r/report.html").read_text()
    assert CANARY not in said + "".join(p.read_bytes().decode(errors="replace") for p in Path("r").iterdir())


@pytest.mark.parametrize("selector", ["korolova2009", "optimal", "weighted", "guided"])
def test_every_selector_can_release_nothing(selector: str) -> None:
    code, out, err = answer("release", _write("header only"), *OPTIONS, "--selector", selector, "--out", "r", "--json")
    assert code == 0, err
    assert json.loads(out)["tables"] == {"queries": 0}
    assert verify("r").ok


@pytest.mark.parametrize(
    ("name", "data", "more"),
    [
        ("empty.tsv", b"", ()),
        ("binary.tsv", bytes(range(256)) * 40 + CANARY.encode(), ()),
        ("binary.parquet", b"PAR1" + CANARY.encode() * 40, ()),
        ("broken.gz.tsv", b"\x1f\x8b\x08" + CANARY.encode() * 9, ()),
        ("wrong.tsv", f"{CANARY} {CANARY}\n{CANARY}\n".encode(), ()),
        ("wrong.txt", f"{CANARY}\t{CANARY}\t{CANARY}\n".encode() * 5, ("--format", "aol")),
        ("wrong.jsonl", f"{CANARY}\n".encode(), ()),
        ("noend", HEADER.encode(), ()),
        ("defects only.tsv", (HEADER + f"{CANARY}\n" * 20).encode(), ()),
        ("missing columns.tsv", f"who\twhat\n{CANARY}\t{CANARY}\n".encode(), ()),
        ("strict.tsv", (HEADER + f"{CANARY}\n").encode(), ("--strict",)),
    ],
)
def test_what_is_no_log_is_refused_for_free(name: str, data: bytes, more: tuple[str, ...]) -> None:
    Path(name).write_bytes(data)
    for as_json in ((), ("--json",)):
        code, out, err = answer("release", name, *OPTIONS, "--out", "r", *more, *as_json)
        assert code in (2, 4), (code, out, err)
        assert len(out + err) > 20
        assert CANARY not in out + err
        assert "Traceback" not in out + err
    assert set(json.loads(out)) == {"error", "what", "why", "fix"}
    assert spends() == 0
    assert not Path("r").exists()


def test_a_hundred_thousand_people_with_one_query() -> None:
    n = 100_000
    table = pa.table(
        {
            "user": pa.array(range(n)).cast(pa.string()),
            "query": ["the same"] * n,
            "time": pa.array(range(n), pa.int64()),
        }
    )
    pq.write_table(table, "log.parquet")
    code, out, err = answer(
        "release", "log.parquet", *OPTIONS, "--reformulations-per-user", "2", "--out", "r", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["tables"] == {"queries": 1, "reformulations": 0}
    made = Release.load("r")
    assert made.queries is not None
    assert abs(made.queries["count"].to_pylist()[0] - n) < 50
    assert str(n) not in (out + err)


def test_all_the_same_query_of_the_same_user() -> None:
    Path("log.tsv").write_text(HEADER + f"u\t1\t{CANARY}\t\n" * 5000)
    for selector in ("gaussian", "korolova2009"):  # a user may add d searches to one query, and not one more
        code, out, _ = answer(
            "release",
            "log.tsv",
            *OPTIONS,
            "--selector",
            selector,
            "--out",
            selector,
            "--population",
            selector,
            "--new-population",
            "--json",
        )
        assert code == 0
        assert json.loads(out)["tables"] == {"queries": 0}


def test_times_that_can_not_be_read_lose_no_row() -> None:
    log = _write("no time that can be read")
    code, out, err = answer("release", log, *OPTIONS, "--out", "r", "--json")
    assert (code, spends()) == (4, 0)  # not one of the first lines: that is the file's fault, not a row's
    assert CANARY not in json.loads(out)["why"] + json.loads(out)["fix"] + err
    log.write_text(log.read_text().replace(f"{CANARY}7\t{CANARY}", f"{CANARY}7\t7"))
    code, out, err = answer("release", log, *OPTIONS, "--out", "r", "--json")
    assert code == 0, err
    assert json.loads(out)["tables"]["queries"] == 1
    assert CANARY not in out + err


# ---- nonsense ------------------------------------------------------------------------------------------------------

NONSENSE: dict[str, tuple[str, ...]] = {
    "--epsilon": ("nan", "-1", "0", "inf", "1e999", "text", "", "1001"),
    "--delta": ("nan", "-1", "0", "1", "inf", "text", "1e-999"),
    "--queries-per-user": ("0", "-1", "1.5", "text", "10001"),
    "--clicks-per-user": ("0", "-1", "text", "10001"),
    "--reformulations-per-user": ("0", "-1", "text"),
    "--selector": ("nonsense", ""),
    "--keep": ("last", ""),
    "--shares": ("queries=0", "queries=nan", "nothing=1", "queries", "=", ","),
    "--users": ("0", "-5", "text", "1e3"),
    "--session-gap": ("nan", "-1", "0", "inf"),
    "--false-edges": ("nan", "-1", "0", "inf"),
    "--results": ("missing.csv", "log.unknown"),
    "--columns": ("user", "nobody=x", "user=,query="),
    "--time-unit": ("hours",),
    "--time-format": ("", "%d", "yyyy-mm-dd", "%Y-%m-%d %Q"),
    "--population": ("", "a\x00b"),
    "--since": ("yesterday-ish",),
}


@pytest.mark.parametrize("option", NONSENSE)
def test_nonsense_is_refused_before_anything_is_spent(option: str, log: Path) -> None:
    base: dict[str, Any] = dict(zip(OPTIONS[::2], OPTIONS[1::2], strict=True)) | {
        "--out": "r",
        "--reformulations-per-user": "2",
    }
    if option == "--results":
        base["--clicks-per-user"] = "2"
    for value in NONSENSE[option]:
        code, out, err = answer("release", log, *(f"{name}={v}" for name, v in (base | {option: value}).items()))
        assert code in (2, 4), (option, value, code, out, err)
        assert "Traceback" not in err
        assert CANARY not in (out + err).replace(str(log), "")
        assert "defect of hushquery" not in err
    assert spends() == 0
    assert not Path("r").exists()


def test_the_help_shows_the_way() -> None:
    code, out, _ = answer("release", "--help")
    assert code == 0
    for word in ("--epsilon", "--explain", "--force", "--no-create", "aol"):
        assert word in out
