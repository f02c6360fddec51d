"""``hushquery look``: what a log is and how to read it, before anything is spent; secret, whatever the file holds."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import stat
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushquery as hq
from commands import answer
from hushquery.cli.look import doubts
from hushquery.curator.advice import advise, magnitude
from hushquery.errors import UsageError

CANARY = "zebra-canary"
ROWS = [(f"u{n % 120}", ["tea", "milk", "rice"][n % 3] if n % 5 else f"{CANARY} {n}", n % 28 + 1) for n in range(600)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def seen(*words: str) -> dict:
    code, out, err = answer("look", *words, "--json")
    assert code == 0, out + err
    assert CANARY not in out + err
    return json.loads(out)


def write(name: str, text: str, encoding: str = "utf-8") -> str:
    Path(name).write_bytes(text.encode(encoding))
    return name


def lines(form: str) -> str:
    return "".join(form.format(user=user, query=query, day=day) + "\n" for user, query, day in ROWS)


AOL = "AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n------\t---\t---\t---\t---\n"
LOGS = {
    "semicolons without header": ("log.csv", "17;{user};{query};{day:02}.03.2031 12:20;https://a.example/", "utf-8"),
    "tabs": ("log.tsv", "user\tquery\tquery_time\n{user}\t{query}\t2031-03-{day:02}", "utf-8"),
    "spreadsheet": ("log.csv", '"Customer ID";"Search term";Date\r\n{user};"{query}";{day:02}.03.2031\r', "utf-8-sig"),
    "unicode text": ("log.txt", "Customer ID\tSearch term\n{user}\t{query}", "utf-16"),
    "no mark": ("log.txt", "Customer ID\tSearch term\n{user}\t{query}", "utf-16-le"),
    "aol, ragged": ("log.txt", AOL + "{user}\t{query}\t2031-03-{day:02} 10:00:00", "utf-8"),
    "brackets": ("log.log", "10:00:{day:02}\t{user}\t[{query} 天气]\t1 1\twww.a.example/x", "gb18030"),
    "other brackets": ("log.log", "{user}\t<{query} 天气>\t2031-03-{day:02}", "gb18030"),
    "bars": ("log.txt", "visitor|keywords|n\n{user}|{query}|{day}", "utf-8"),
    "json": ("log.jsonl", '{{"user": "{user}", "query": "{query}"}}', "utf-8"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOGS)
def test_what_it_recommends_is_what_a_release_reads(kind: str) -> None:
    name, form, encoding = LOGS[kind]
    *head, form = form.split("\n")
    write(name, "".join(f"{line}\n" for line in head) + lines(form), encoding)
    told = seen(name, "--users", "100", "--rows", "500")
    assert (told["users"], told["rows"], told["lines"], told["share_left_out"]) == (120, 600, 600, 0)
    assert told["secret"].startswith("SECRET")
    assert (told["queries"] >= 3, told["popular"]["10"], told["popular"]["50"]) == (True, 3, 0)
    words = shlex.split(told["advice"]["command"])
    assert words[:3] == ["hushquery", "release", name]
    code, _, err = answer(*words[1:], "--explain", "--json")
    assert code == 0, err
    options = shlex.split(told["options"])
    log = hq.read_log(name, **{key: value for key, value in told["arguments"].items() if key != "strict"})
    assert log.rows.count().to_pyarrow().as_py() == 600
    if "--unwrap" in options or "sogou" in options:
        assert (
            not log.table.filter(log.table.query.contains("[") | log.table.query.contains("<"))
            .count()
            .to_pyarrow()
            .as_py()
        )


@pytest.mark.parametrize(
    ("person", "page"),
    [
        ("K1354{n:04}", "/p/{n}-2"),
        ("{n}5401", "https://shop.example/{n}"),
        ("9f{n:04x}77", "shop.example/p/{n}"),
        ("ann{n}@mail.example", "/p/{n}"),
    ],
)
def test_the_person_is_the_column_that_is_never_empty(person: str, page: str) -> None:
    """Pages are often empty and come again too, prices and line numbers are no ids; in both orders of columns."""
    rows = [
        (
            str(n),
            person.format(n=n * n % 240),
            f"{query} {CANARY}",
            page.format(n=n * 7 % 90) if n % 9 < 5 else "",
            f"{n % 83},{n % 90 + 10}",
        )
        for n, (_, query, _) in enumerate(ROWS, 1)
    ]
    write("log.csv", "".join(";".join(row) + "\n" for row in rows))
    assert seen("log.csv")["arguments"]["columns"] == {"user": 2, "query": 3, "url": 4}
    write("back.csv", "".join(";".join(row[::-1]) + "\n" for row in rows))
    assert seen("back.csv")["arguments"]["columns"] == {"user": 4, "query": 3, "url": 2}


def test_a_second_column_that_may_be_the_person_is_named() -> None:
    write("log.csv", "".join(f"K{n % 200:05};S{n % 260:05};{query}\n" for n, (_, query, _) in enumerate(ROWS)))
    told = seen("log.csv")
    assert re.search(r"user: column (1 \(or column 2\?\)|2 \(or column 1\?\));", told["columns"])
    assert any(hint.startswith("the user may also be column") for hint in told["hints"])
    assert "?" not in seen("log.csv", "--no-header", "--columns", "user=2,query=3")["columns"]


def test_unused_columns_have_a_ready_hint() -> None:
    write("log.tsv", "user\tquery\tquery_time\tcountry\n" + lines("{user}\t{query}\t2031-03-{day:02}\tuk"))
    hints = seen("log.tsv")["hints"]
    assert any(hint.startswith("query_time is not used: --columns time=query_time") for hint in hints)
    assert "country is not used" in hints


def test_parameters_come_from_what_the_steward_types() -> None:
    """Two logs that differ in their rows have one advice, where the order of magnitude is the same."""
    advices = []
    for rows in (ROWS, ROWS[:550]):
        write("log.tsv", "user\tquery\n" + "".join(f"{user}\t{query}\n" for user, query, _ in rows))
        assert seen("log.tsv")["advice"] is None
        advices.append([seen("log.tsv", *how)["advice"] for how in (("--yes",), ("--users", "1000", "--rows", "2000"))])
    assert advices[0] == advices[1]
    assert advices[0][0]["users"] == 100
    assert advices[0][1]["users"] == 1000
    code, out, _ = answer("look", "log.tsv")
    assert (code, "--users 100 --rows 500" in out, "never from the rows" in out) == (0, True, True)
    typed = advise(1000, 2000)
    assert typed.released_low <= typed.released_high
    with pytest.raises(UsageError):
        advise(10, 5)
    assert {magnitude(n) for n in range(71, 142)} == {100}


def test_a_log_unlike_others_is_told_before_the_spend() -> None:
    plan = advise(50_000, 1_000_000)
    facts = {"users": 50_000, "lines": 9, "popular": {10: 9_000, 20: 26, 50: 0, 100: 0}}
    log = hq.Look(("log",), {}, "csv", (), **facts)
    assert 50 <= plan.threshold < 100
    assert "Only 0 queries of this log have at least 50 users" in doubts(log, plan)[0]
    rich = hq.Look(("log",), {}, "csv", (), **(facts | {"popular": dict.fromkeys((10, 20, 50, 100), 9_000)}))
    assert doubts(rich, plan) == []


def test_defects_are_told_by_kind_and_line_and_loudly() -> None:
    write("log.csv", 'user,query\nann,tea\nlonely\n,tea\nbob,"open\nann,a,b\n' + "carl,milk\n" * 20)
    code, out, err = answer("look", "log.csv")
    assert code == 0
    assert "WARNING: 16.0% OF THE LINES WOULD BE LEFT OUT" in out
    assert "16.0% of the lines would be left out" in err
    for told in ("too few columns: 1 (first: log.csv line 3)", "no user: 1 (first: log.csv line 4)"):
        assert told in out
    assert "unclosed quote: 1 (first: log.csv line 5)" in out
    assert "too many columns: 1 (first: log.csv line 6)" in out


def test_no_command_while_many_lines_would_be_left_out() -> None:
    write("log.tsv", "user\tquery\n" + lines("{user}\t{query}") + "\ttea\n" * 100)
    told = seen("log.tsv", "--yes")
    assert (told["advice"]["command"], "with_clicks" in told["advice"]) == (None, False)
    code, out, _ = answer("look", "log.tsv", "--yes", "--html", "look.html")
    page = Path("look.html").read_text(encoding="utf-8")
    for shown in (out, page):
        assert (code, "DO NOT PUBLISH YET" in shown, "hushquery release" in shown) == (0, True, False)
    assert "no user (100 lines): try another column for the user" in out


def test_it_says_why_queries_may_not_be_counted() -> None:
    odd = "ann\tann@mail.example\n" * 3 + "ann\tcall 0123 456 789 01\n" * 2 + f"ann\t{'x' * 5000}\n"
    write("log.tsv", "user\tquery\n" + lines("{user}\t{query}") + odd + "ann\tgreen tea\n" * 4)
    write("deny.txt", "green\n")
    told = seen("log.tsv", "--drop", "deny.txt")
    assert told["private"] == 10
    assert sorted(told["private_by"].values()) == [1, 4, 5]
    shown = answer("look", "log.tsv", "--drop", "deny.txt")[1]
    assert "deny list: 4, looks like personal data (mail, phone, long numbers): 5, over" in shown
    assert "Do not choose parameters by these numbers" in shown


def test_times_without_dates_are_told() -> None:
    write("log.log", lines("10:00:{day:02}\t{user}\t[{query}]\t1 1\twww.a.example/x"))
    assert "times have no dates" in answer("look", "log.log")[1]
    write("log.tsv", "user\tquery\ttime\n" + lines("{user}\t{query}\t2031-03-{day:02}"))
    assert "times have no dates" not in answer("look", "log.tsv")[1]


@pytest.mark.parametrize(("users", "rows"), [(5_000, 20_000), (10_000, 50_000), (100_000, 3_000_000)])
def test_clicks_have_bounds_of_their_own(users: int, rows: int) -> None:
    """The thresholds of both tables stay near each other, unlike those of d for queries with five clicks added."""
    plain, clicks = advise(users, rows), advise(users, rows, clicks=True)
    assert plain.click_threshold is None
    assert clicks.click_threshold is not None
    assert clicks.click_threshold < 3 * clicks.threshold
    assert f"--clicks-per-user {clicks.clicks_per_user} --selector {clicks.selector}" in clicks.options
    assert "clicked for one query" in str(clicks)


def test_look_and_plan_propose_the_same() -> None:
    write("log.tsv", "user\tquery\n" + lines("{user}\t{query}"))
    for users, rows in (("10000", "200000"), ("5000", "20000")):
        advice = seen("log.tsv", "--users", users, "--rows", rows)["advice"]
        known = ("--epsilon", advice["epsilon"], "--delta", advice["delta"], "--users", users, "--rows", rows)
        take = json.loads(answer("plan", *known, "--json")[1])["take"]
        assert (take["queries_per_user"], take["selector"]) == (advice["queries_per_user"], advice["selector"])
        assert take["command"] == advice["command"].replace("log.tsv", "LOG")
        assert take["command"].endswith("--population '<whose log it is>' --out release")
        assert f"Take this one: {take['command']}" in answer("plan", *known)[1]
    assert answer("plan", "--epsilon", "1", "--delta", "1e-6", "--rows", "20000")[0] == 2


def test_the_page_is_secret_and_only_its_owners() -> None:
    write("log.tsv", "user\tquery\n" + lines("{user}\t{query}"))
    code, _, err = answer("look", "log.tsv", "--yes", "--html", "look.html")
    assert (code, "never publish" in err) == (0, True)
    assert stat.S_IMODE(Path("look.html").stat().st_mode) == 0o600
    page = Path("look.html").read_text(encoding="utf-8")
    assert "do not publish" in page
    assert CANARY not in page
    assert "hushquery release log.tsv" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    assert answer("look", "log.tsv", "--html", "look.txt")[0] == 2


def test_a_table_of_an_engine_and_no_password() -> None:
    engine = ibis.duckdb.connect()
    engine.create_table("searches", pa.table({"uid": ["a", "b"], "query": [CANARY, "tea"]}))
    told = hq.look("searches", engine=engine)
    assert (told.users, told.arguments["columns"]) == (2, {"user": "uid"})
    assert CANARY not in str(told)
    url = hq.Look(("t",), {"engine": "postgresql://ann:pass:w@rd@db.example/web"}, "a table", ())
    assert url.options == "--engine postgresql://ann@db.example/web"
    assert "rd@" not in json.dumps(url.to_json())


def test_in_python_the_result_shows_nothing_by_accident() -> None:
    write("log.tsv", "user\tquery\n" + lines("{user}\t{query}"))
    told = hq.look("log.tsv")
    assert repr(told) == "Look(secret; print it to see what is in the log)"
    assert "users: 120" in str(told)
    with pytest.raises(TypeError, match="pickled"):
        __import__("pickle").dumps(told)


def test_parquet_folders_patterns_and_archives() -> None:
    Path("logs").mkdir()
    for part in range(3):
        rows = "".join(f"{user}\t{query}\n" for user, query, _ in ROWS[part::3])
        Path(f"logs/{part}.tsv.gz").write_bytes(gzip.compress(f"user\tquery\n{rows}".encode()))
    for name in ("logs", "logs/*.gz"):
        assert (seen(name)["users"], seen(name)["lines"]) == (120, 600)
    table = pa.table({"uid": [row[0] for row in ROWS], "term": [row[1] for row in ROWS]})
    pq.write_table(table, "log.parquet")
    told = seen("log.parquet", "--yes")
    assert (told["users"], told["options"]) == (120, "--columns user=uid,query=term")
    Path("log.xlsx").write_bytes(b"PK\x03\x04" + bytes(100))
    code, out, err = answer("look", "log.xlsx")
    assert (code, "CSV UTF-8" in out + err) in ((2, True), (4, True))


HOSTILE = {
    "empty": b"",
    "one line": f"{CANARY}\n".encode(),
    "one row": f"17\t{CANARY}\t2031-01-01\n".encode(),
    "only a header": b"user\tquery\n",
    "truncated gzip": gzip.compress(lines("{user}\t{query}").encode() * 40)[:-3000],
    "null bytes": b"user\tquery\n" + b"ann\tte\0a\n" * 20 + bytes(500) + b"\n",
    "a long line": b"user\tquery\nann\t" + b"x" * 1_000_000 + b"\n" + b"bob\ttea\n" * 20,
    "an open quote": b'user\tquery\nann\t"tea\n' + b"bob\ttea\n" * 20,
    "binary": bytes(range(256)) * 40,
    "another encoding": b"user\tquery\n" + "bob\tcafé\n".encode("latin-1") * 40,
    "wide, no mark": ("user\tquery\n" + "bob\ttea\n" * 40).encode("utf-16-be"),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "blank": b"\n\n  \n",
    "ragged": b"a\nb\tc\nd\te\tf\ng\th\ti\tj\n" * 30,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_have_a_clear_outcome(kind: str) -> None:
    ending = ("tsv", "csv", "txt")[len(kind) % 3]
    Path(f"log.{ending}").write_bytes(HOSTILE[kind])
    code, out, err = answer("look", f"log.{ending}")
    assert code in (0, 2, 4), out + err
    assert CANARY not in out + err
    assert "did not foresee" not in err
    if code:
        assert re.search("error:|can't be read yet", out + err)


def test_a_folder_of_mixed_formats() -> None:
    Path("logs").mkdir()
    write("logs/a.csv", "user,query\nann,tea\n")
    write("logs/b.tsv", "user\tquery\nann\ttea\n")
    Path("logs/c.png").write_bytes(HOSTILE["a picture"])
    code, out, err = answer("look", "logs")
    assert code in (2, 4), out + err
    assert "differ" in out + err or "is not csv" in out + err or "one format" in out + err


def test_a_column_of_rows_is_not_taken_for_people(tmp_path):
    """The number of a row as the user: everybody has one row, and one person's many rows are not hidden together."""
    lines = "".join(f"{n},ann{n % 50},tea {n % 7}\n" for n in range(500))
    (tmp_path / "log.csv").write_text("no,person,query\n" + lines)
    for user, published in (("no", False), ("person", True)):
        said = answer("look", str(tmp_path / "log.csv"), "--columns", f"user={user}", "--users", 50, "--rows", 500)[1]
        assert ("hushquery release" in said) is published
        assert ("DO NOT PUBLISH YET: 100% of the users have a single row" in said) is not published


def test_a_range_of_times_without_rows_gets_no_command(tmp_path):
    lines = "".join(f"ann{n % 50},2026-09-01 10:00:00,tea\n" for n in range(500))
    (tmp_path / "log.csv").write_text("user,time,query\n" + lines)
    asked = ("look", str(tmp_path / "log.csv"), "--since", "2030-01-01", "--users", 50, "--rows", 500)
    said = answer(*asked)[1]
    assert "hushquery release" not in said
    assert "DO NOT PUBLISH YET: no row has a query that may be counted: outside the range of times: 500." in said
