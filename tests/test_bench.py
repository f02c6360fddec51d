"""The bookkeeping of the benchmarks: what is measured, what a failure looks like, how ratios and the page are made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_peers  # noqa: E402
import bench_release  # noqa: E402
import install_peers  # noqa: E402
import job_log  # noqa: E402
import measure  # noqa: E402
import page  # noqa: E402
import run_all  # noqa: E402

from hushquery.errors import UsageError  # noqa: E402
from hushquery_experiments.cli import bench  # noqa: E402

CLI = [sys.executable, "-m", "hushquery", "bench"]


def python(program: str, limit: float = 60) -> measure.Run:
    return measure.run([sys.executable, "-c", program], limit=limit)


def running(pid: int) -> bool:
    """Whether a process runs; one that ended may still be in the list, because nobody asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def good(cpu: float, mib: float = 100) -> measure.Run:
    return measure.Run(cpu, cpu, mib, '{"released": 7}')


# ---- measuring ---------------------------------------------------------------------------------------------


def test_a_run_that_fails_tells_its_last_line() -> None:
    found = python("import sys; print('partial'); sys.exit('first\\nboom\\n')")
    assert (found.error, found.output) == ("boom", "partial\n")
    assert python("import sys; sys.exit(3)").error == "ended with code 3"
    assert "No such file" in measure.run(["/nowhere/at/all"], limit=1).error


def test_a_run_has_a_time_limit_that_ends_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    program = (
        "import subprocess, sys, time, pathlib\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(p.pid))\n"
        "time.sleep(600)\n"
    )
    found = python(program, limit=3)
    assert found.error == "stopped after 3 s, its time limit"
    assert not running(int(child.read_text()))


def test_cpu_of_a_child_that_nobody_waited_for_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    program = (
        "import os, subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {burn!r}], stdout=subprocess.PIPE)\n"
        "p.stdout.read()\n"  # until the child has ended; then end without asking how
        "os._exit(0)\n"
    )
    assert python(program).cpu > 0.3


def test_memory_is_that_of_the_job_and_not_of_who_started_it() -> None:
    ballast = np.ones(40_000_000)  # this process is larger than either job
    small, large = (python(f"import time; kept = b'x' * {size}; time.sleep(0.5)").mib for size in (1, 200 << 20))
    assert ballast.nbytes > 300e6
    assert 200 < large < 300
    assert small < 100


# ---- rounds, ratios, rows ----------------------------------------------------------------------------------


def test_ratios_are_taken_round_by_round() -> None:
    assert measure.ratios([2.0, None, 9.0, 5.0], [1.0, 4.0, 3.0, None]) == [2.0, 3.0]
    assert measure.spread([3.0, 1.0, 2.6]) == {"min": 1.0, "median": 2.6, "max": 3.0}
    row = measure.row("ours", [good(2, 150), good(9, 300)], [good(1, 100), good(3, 100)], lines=4)
    assert row["ratio"] == {"min": 2.0, "median": 2.5, "max": 3.0}
    assert row["memory_ratio"] == {"min": 1.5, "median": 2.25, "max": 3.0}
    assert (row["rounds"], row["lines"], row["error"]) == (2, 4, "")


def test_jobs_take_turns_and_a_failed_one_is_not_tried_again() -> None:
    order = []

    def job(name: str, error: str = "") -> measure.Run:
        order.append(name)
        return measure.Run(1, 1, 1, "", error)

    jobs = {"a": lambda: job("a"), "bad": lambda: job("bad", "no"), "slow": lambda: job("slow")}
    found = measure.in_turns(jobs, {"a": 3, "bad": 3, "slow": 1})
    assert order == ["a", "bad", "a", "a", "slow"]
    assert found["slow"][:2] == [None, None]
    bad = measure.row("bad", found["bad"], found["a"])
    assert (bad["error"], bad["rounds"], "cpu" in bad) == ("no", 0, False)
    # A slow job is compared with the reference of its own round, not of the first.
    reference = [good(1), good(1), good(4)]
    assert measure.row("slow", found["slow"], reference)["ratio"]["median"] == 0.25


def test_after_the_deadline_nothing_is_started() -> None:
    found = measure.in_turns({"late": lambda: good(1)}, {"late": 1}, until=time.monotonic() - 1)
    assert "time for all jobs was over" in measure.row("late", found["late"], [])["error"]


# ---- the log of the job ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    job_log.write(path, 20_000)
    return path


def test_the_log_has_its_shape_and_is_the_same_every_time(log: Path, tmp_path: Path) -> None:
    shape = job_log.shape(log)
    assert (shape["rows"], shape["users"]) == (20_000, 1200)
    # Three quarters of the queries are typed once, half of the rows have a click, a half survives d = 20.
    assert 0.7 < shape["singletons"] / shape["distinct_queries"] < 0.8
    assert 0.45 < shape["clicks"] / 20_000 < 0.55
    assert 0.45 < shape["rows_kept_at_20"] / 20_000 < 0.65
    job_log.write(tmp_path / "again.parquet", 20_000)
    assert pq.read_table(tmp_path / "again.parquet").equals(pq.read_table(log))


def test_no_two_ranks_share_a_query() -> None:
    words = job_log.vocabulary(np.random.default_rng(1))
    ranks = np.concatenate([np.arange(100_000), np.arange(20_000_000, 20_100_000)])
    queries = job_log.queries(ranks, words).to_pylist()
    assert len(set(queries)) == len(ranks)
    assert {len(query.split()) for query in queries} == {1, 2, 3}


def test_zipf_beyond_its_table_goes_on_as_before() -> None:
    zipf = job_log.Zipf(1_000_000)
    drawn = zipf.draw(400_000, np.random.default_rng(2))
    weights = np.arange(1, 1_000_001) ** -job_log.ZIPF
    share = weights[:300_000].sum() / weights.sum()
    assert drawn.min() >= 0
    assert drawn.max() < 1_000_000
    assert abs((drawn < 300_000).mean() - share) < 5 * np.sqrt(share * (1 - share) / 400_000)


# ---- peers -------------------------------------------------------------------------------------------------


def test_a_peer_that_fails_or_cannot_be_installed_is_a_row(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "peers").mkdir()
    source = ROOT / "benchmarks"
    for name in ("plain.py", "plain.sql"):
        (tmp_path / name).write_text((source / name).read_text())
    (tmp_path / "peers" / "breaks.py").write_text("# >>> the job\nimport nothing_of_that_name\n# <<< the job\n")

    def python_of(name: str) -> Path:
        if name == "absent":
            raise install_peers.NotInstalled("no matching distribution")
        return Path(sys.executable)

    monkeypatch.setattr(bench_peers, "HERE", tmp_path)
    monkeypatch.setattr(bench_peers.install, "python_of", python_of)
    monkeypatch.setattr(bench_peers, "job_log", lambda _: log)
    peers = [
        bench_peers.PEERS[0],
        bench_peers.Peer("breaks", "Breaks", "breaks"),
        bench_peers.Peer("absent", "Absent", "absent"),
    ]
    plain, breaks, absent = bench_peers.compared([(peer, 20_000) for peer in peers], 2, time.monotonic() + 60)
    assert (plain["error"], plain["rounds"], plain["ratio"]["max"]) == ("", 2, 1.0)
    assert plain["released"]["min"] > 5000
    assert breaks["error"] == "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    assert (breaks["lines"], breaks["released"]) == (1, {})
    assert absent["error"] == "can't be installed: no matching distribution"


def test_every_peer_has_a_script_with_marks_and_an_environment() -> None:
    private = [peer for peer in bench_peers.PEERS if peer.private]
    assert {peer.script for peer in private} == {path.stem for path in (ROOT / "benchmarks/peers").glob("*.py")}
    for peer in private:
        assert (bench_peers.lines_of_code(peer.script) or 0) > 3
    assert {peer.environment for peer in private if peer.environment} | {"local"} == set(install_peers.names())


def test_we_are_held_against_complete_peers_only() -> None:
    def row(job: str, cpu: float, released: int, bounds: str = "itself", rows: int = 10) -> dict[str, object]:
        counts = {"min": released, "max": released}
        return {"job": job, "title": job, "rows": rows, "bounds": bounds, "released": counts} | {"cpu": {"median": cpu}}

    rows = [row("ours", 1.0, 90), row("fast", 3.0, 80), row("slow", 9.0, 95), row("hand", 0.5, 99, "by hand")]
    cheaper, more = bench_peers.verdicts([*rows, row("ours", 9.0, 1, rows=5)])
    assert (cheaper["got"], cheaper["met"]) == (3.0, True)
    assert (more["got"], more["least"], more["met"]) == (90, 96, False)


def test_what_a_job_says_is_read_with_care() -> None:
    assert bench_peers.count_in('a warning\n{"released": 12}\n') == 12
    for output in ("", "[1]\n", "12", '{"other": 1}', "Traceback"):
        assert bench_peers.count_in(output) is None


# ---- the page and the runner -------------------------------------------------------------------------------


def results() -> list[dict[str, object]]:
    release = [
        measure.row(job, [good(cpu), good(cpu)], [good(2.0), good(2.0)], tables={"queries": 5})
        for job, cpu in ((bench_release.PLAIN, 2.0), (bench_release.RELEASE, 2.5), (bench_release.GUIDED, 7.0))
    ]
    common = {"rows": 10, "bounds": "itself", "private": True, "lines": 4}
    peers = [
        measure.row("ours", [good(2.0)], [good(1.0)], title="hushquery", released={"min": 7, "max": 8}, **common),
        measure.row("gone", [measure.Run(0, 0, 0, "", "no | wheel")], [], title="Gone", released={}, **common),
    ]
    logs = [{"rows": 10, "users": 3}]
    about = {"date": "2026-11-15", "machine": "a machine", "logs": logs}
    required = bench_release.verdicts(release, 10)
    return [
        {"benchmark": "release", **about, "measured": release, "required": required},
        {"benchmark": "peers", **about, "versions": {"gone": {"not installed": "x"}}, "measured": peers},
        {"benchmark": "unheard_of", "date": "2026-11-15", "measured": [{"rows": 1_000_000, "seconds": 0.25}]},
        {"benchmark": "text", "error": "ended with code 1, without JSON"},
    ]


def test_the_page_is_made_of_results_and_says_what_was_missed(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for told in results():
        (folder / f"{told['benchmark']}.json").write_text(json.dumps(told))
    text = page.write(folder, tmp_path / "docs").read_text()
    assert "Of 3 targets, 2 are met and 1 missed" in text
    assert "| release, guided, CPU, times plain query, 10 rows | 3.5 | at most 3 | **missed** |" in text
    assert "| release | 2.5 | 1.25 | 2.5 | 100 | 1 | 5 queries |" in text
    assert "| **hushquery** | itself | 2 | 2 | 2 | 100 | 7 to 8 | 4 |  |" in text
    assert "| Gone | itself |  |  |  |  |  | 4 | no \\| wheel |" in text
    assert "| 1,000,000 | 0.25 |" in text
    assert "It gave no result: ended with code 1" in text
    assert text.index("against the plain query") < text.index("by every peer") < text.index("raw text logs")
    for name in re.findall(r"\((images/.*?)\)", text):
        assert (tmp_path / "docs" / name).stat().st_size > 1000
    assert len(re.findall(r"\(images/", text)) == 2


def test_a_benchmark_that_fails_is_reported_and_one_that_misses_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_all, "HERE", tmp_path)
    (tmp_path / "bench_broken.py").write_text("raise SystemExit('no')\n")
    (tmp_path / "bench_missed.py").write_text(
        "import sys\nprint('--json --quick' if '--help' in sys.argv else '{\"got\": %d}' % len(sys.argv))\n"
        "sys.exit(1)\n"
    )
    assert run_all.names() == ["broken", "missed"]
    assert run_all.options_of("broken", quick=True) is None
    monkeypatch.setenv("BENCH_ROUNDS", "2")
    options = run_all.options_of("missed", quick=True)
    assert options == ["--json", "--quick"]
    broken, missed = run_all.run("broken", [], 60), run_all.run("missed", options, 60)
    assert broken["error"] == "ended with code 1, without JSON"
    assert (missed["got"], missed["command"]) == (3, "bench_missed.py --json --quick")
    assert "error" not in missed


# ---- the command -------------------------------------------------------------------------------------------


def test_bench_measures_both_jobs() -> None:
    command = [*CLI, "--rows", "20000", "--rounds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == {
        *("rows", "users", "rounds", "cores", "engine", "cpu_seconds", "peak_mib", "cpu_ratio", "memory_ratio"),
        *("queries_counted", "queries_released"),
    }
    assert abs(told["rows"] - 20_000) < 4_000
    assert told["queries_counted"] > told["queries_released"] > 0
    cpu = told["cpu_seconds"]
    assert told["cpu_ratio"]["median"] == pytest.approx(
        cpu["release"]["median"] / cpu["plain query"]["median"], rel=0.1
    )


def test_the_command_and_the_benchmarks_have_the_same_plain_query() -> None:
    texts = ((ROOT / "benchmarks" / "plain.sql").read_text(), bench._PLAIN_SQL)
    queries, ours = (duckdb.connect().extract_statements(text)[0].query for text in texts)
    assert re.sub(r"--.*\n", "", queries).strip().rstrip(";").split() == ours.strip().rstrip(";").split()


def test_peers_need_the_source_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "bench.py"))
    with pytest.raises(UsageError, match="not here"):
        bench.bench(peers=True)
