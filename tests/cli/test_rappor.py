"""``hushquery rappor``: a whole round over files and pipes, and every refusal in words."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hushquery.cli.rappor import app
from hushquery.errors import HushqueryError

VECTORS = Path(__file__).parents[2] / "vectors"
REFERENCE = json.loads((VECTORS / "rappor.json").read_text(encoding="utf-8"))
[SIMULATION] = REFERENCE["end_to_end"]["cases"]


def invoke(*arguments: object, stdin: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin, env={"COLUMNS": "120"})


def run(*arguments: object, stdin: str | bytes | None = None) -> str:
    result = invoke(*arguments, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return str(result.stdout)


def refused(*arguments: object, stdin: str | bytes | None = None) -> HushqueryError:
    error = invoke(*arguments, stdin=stdin).exception
    assert isinstance(error, HushqueryError), error
    return error


def rows_of(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n16,2,64,0.5,0.75,0.5\n", encoding="utf-8")
    (tmp_path / "values.csv").write_text(SIMULATION["true_values_csv"], encoding="utf-8")
    (tmp_path / "reports.csv").write_bytes(SIMULATION["reports_csv"].encode())
    (tmp_path / "words.txt").write_text("v1\nv2\nv3\nv5\nv9\n", encoding="utf-8")
    (tmp_path / "key").write_bytes(bytes(range(32)))
    return tmp_path


def demo(name: str, *more: object) -> list[object]:
    folder = VECTORS / "rappor_decode" / name
    options = [("--params", "params.csv"), ("--counts", "counts.csv"), ("--map", "map.csv")]
    return ["decode", *(part for option, file in options for part in (option, folder / file)), *more]


# ---- the round -----------------------------------------------------------------------------------------------------


def test_encoding_gives_the_reference_steps_and_fresh_reports(files: Path) -> None:
    out = files / "new.csv"
    told = json.loads(run("encode", files / "values.csv", "--params", files / "params.csv", "--out", out, "--json"))
    assert told["reports"] == 200
    assert told["epsilon_permanent"] == pytest.approx(4.394449154672439)
    made, wanted = rows_of(out), rows_of(files / "reports.csv")
    assert made[0] == wanted[0] == ["client", "cohort", "bloom", "prr", "irr"]
    assert [row[:4] for row in made] == [row[:4] for row in wanted]
    assert [row[4] for row in made] != [row[4] for row in wanted]


def test_pipes_say_the_same_as_files(files: Path) -> None:
    params = ("--params", files / "params.csv")
    piped = invoke("sum-bits", *params, stdin=SIMULATION["reports_csv"]).stdout_bytes
    assert piped == SIMULATION["counts_csv"].encode()
    run("sum-bits", files / "reports.csv", *params, "--out", files / "counts.csv")
    assert (files / "counts.csv").read_bytes() == SIMULATION["counts_csv"].encode()
    piped = invoke("hash-candidates", *params, stdin=(files / "words.txt").read_bytes()).stdout_bytes
    run("hash-candidates", files / "words.txt", *params, "--out", files / "map.csv")
    assert (files / "map.csv").read_bytes() == piped != b""
    told = json.loads(
        run(
            "decode",
            *params,
            "--counts",
            files / "counts.csv",
            "--map",
            files / "map.csv",
            "--rule",
            "two-sd",
            "--json",
        )
    )
    assert told["metrics"]["sample_size"] == 200
    assert told["metrics"]["num_candidates"] == 5


def test_a_native_round_hides_its_steps(files: Path) -> None:
    common = ("--params", files / "params.csv", "--variant", "native")
    options = ("--key", files / "key", "--task", "example", "--hide-steps", "--out", files / "out.csv")
    result = invoke("encode", files / "values.csv", *common, *options)
    assert result.exit_code == 0
    assert "simulation" not in result.stderr
    rows = rows_of(files / "out.csv")[1:]
    assert len(rows) == 200
    assert {(row[2], row[3]) for row in rows} == {("", "")}
    assert "simulation" in invoke("encode", files / "values.csv", "--params", files / "params.csv").stderr


# ---- decode and plan -----------------------------------------------------------------------------------------------


def test_decode_prints_the_fields_of_the_issue(tmp_path: Path) -> None:
    told = json.loads(run(*demo("demo3", "--rule", "bonferroni", "--json", "--results", tmp_path / "results.csv")))
    fields = ["string", "estimate", "std_error", "proportion", "prop_std_error", "prop_low_95", "prop_high_95"]
    assert all(list(found) == fields for found in told["results"])
    estimates = [found["estimate"] for found in told["results"]]
    assert estimates == sorted(estimates, reverse=True)
    assert len(estimates) == told["metrics"]["num_detected"] >= 34
    written = rows_of(tmp_path / "results.csv")
    assert written[0] == fields
    assert len(written) == len(estimates) + 1
    more = json.loads(run(*demo("demo3", "--rule", "two-sd", "--json")))
    assert len(more["results"]) >= 49


def test_warnings_go_to_standard_error_and_into_json() -> None:
    result = invoke(*demo("demo1", "--json"))
    assert "not among the candidates" in result.stderr
    assert json.loads(result.stdout)["warnings"]
    assert "candidates found" in run(*demo("demo1"))


def test_plan_reproduces_the_lecture() -> None:
    told = json.loads(run("plan", "--clients", 14_000_000, "--json"))
    assert told["smallest_count"] == pytest.approx(14_000, rel=0.05)
    assert told["metrics"] == 100
    assert round(told["epsilon_metric"], 1) == 4.4
    assert round(told["epsilon_report"]) == 2
    text = run("plan", "--clients", 14_000_000)
    assert "14,000,000 clients" in text
    assert "4.39" in text


def test_plan_of_a_file(files: Path) -> None:
    told = json.loads(
        run("plan", "--clients", 10**6, "--params", files / "params.csv", "--variant", "google-python", "--json")
    )
    assert told["params"] == {"k": 16, "h": 2, "m": 64, "p": 0.5, "q": 0.75, "f": 0.5}
    (files / "params.csv").write_text("k,h,m,p,q,f\n16,2,64,0.5,0.75,0\n", encoding="utf-8")
    told = json.loads(run("plan", "--clients", 10**6, "--params", files / "params.csv", "--json"))
    assert told["epsilon_metric"] is None


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_refusals_say_what_to_do_and_leave_no_half_file(files: Path) -> None:
    params, out = ("--params", files / "params.csv"), files / "out.csv"
    bad = "client,cohort,value\nhidden,0,hidden\nhidden,64,hidden\n"
    error = refused("encode", *params, "--out", out, stdin=bad)
    assert "line 3" in str(error)
    assert "hidden" not in str(error)
    assert not out.exists()
    assert [path.name for path in files.iterdir() if "unfinished" in path.name] == []
    assert "no whole number" in str(refused("encode", *params, stdin="client,cohort,value\nhidden,zero,hidden\n"))
    assert "not UTF-8" in str(refused("hash-candidates", *params, stdin=b"\xff\xfe\n"))
    assert "neither 0 nor 1" in str(
        refused("sum-bits", *params, stdin="client,cohort,bloom,prr,irr\nc,0,,,000000000000000x\n")
    )
    assert "can't be read" in str(refused("sum-bits", files / "none.csv", *params))
    assert "can't be written" in str(
        refused("sum-bits", files / "reports.csv", *params, "--out", files / "no" / "x.csv")
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--variant", "native"), "needs --key"),
        (("--variant", "java"), "no variant"),
        (("--key", "missing"), "can't be read"),
        (("--task", "t"), "no task"),
    ],
)
def test_encode_refuses_what_would_not_protect(files: Path, more: tuple[str, ...], says: str) -> None:
    assert says in str(refused("encode", files / "values.csv", "--params", files / "params.csv", *more))


def test_a_short_key_and_a_large_k_are_refused(files: Path) -> None:
    (files / "key").write_bytes(b"swordfish")
    error = refused("encode", files / "values.csv", "--params", files / "params.csv", "--key", files / "key")
    assert "too short" in str(error)
    assert "swordfish" not in str(error)
    (files / "params.csv").write_text("k,h,m,p,q,f\n33,2,64,0.5,0.75,0.5\n", encoding="utf-8")
    error = refused("hash-candidates", files / "words.txt", "--params", files / "params.csv")
    assert "too large for the google-python" in str(error)
    run("hash-candidates", files / "words.txt", "--params", files / "params.csv", "--variant", "native")


def test_an_unknown_rule_is_refused_and_nonsense_not_planned() -> None:
    assert "two-sd or bonferroni" in str(refused(*demo("demo3", "--rule", "fdr")))
    assert "whole number" in str(refused("plan", "--clients", 0))


def test_help_teaches_with_an_example() -> None:
    for command in ("encode", "sum-bits", "hash-candidates", "decode", "plan"):
        assert f"hushquery rappor {command}" in run(command, "--help")
