"""From reports to a table: every form they come in, what is refused and counted, and what the numbers mean."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hushquery as hq
from hushquery.cli.app import app
from hushquery.core.estimates import project_on_simplex
from hushquery.errors import DataError, NotReady, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.report import HEADER_BYTES, Report
from hushquery.local.server.counting import CONFLICT, Block, ReportCount, read_blocks
from hushquery.local.server.estimate import ClientEstimate, estimate
from hushquery.task import Task
from setting_reports import FIXED, REPORTS, SETTING, TASK, changed, made

GOOD = REPORTS[0]
EXPECTED = estimate(TASK, REPORTS)


def write(path: Path, reports: list[Report], form: str) -> Path:
    if form.startswith("parquet"):
        kind = {"": pa.binary(), "-large": pa.large_binary(), "-fixed": pa.binary(len(GOOD.to_bytes()))}[form[7:]]
        column = pa.array([report.to_bytes() for report in reports], kind)
        pq.write_table(pa.table({"other": list(range(len(reports))), "report": column}), path, row_group_size=300)
        return path
    lines = [report.to_text() if "json" not in form else json.dumps(report.to_json()) for report in reports]
    data = ("\n".join(lines) + ("\r\n\n" if form == "text-crlf" else "")).encode()
    path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    return path


# ---- the numbers ---------------------------------------------------------------------------------------------


def test_the_table_is_raw_and_near_the_truth() -> None:
    assert [row.label for row in EXPECTED] == ["dark", "light", "system", "*"]
    for row, truth in zip(EXPECTED, (0.5, 0.25, 0.0, 0.25), strict=True):
        assert abs(row.value - truth) < 6 * row.stderr
        assert row.low == pytest.approx(row.value - 1.959964 * row.stderr, abs=0.2 * row.stderr)
        assert row.low < row.value < row.high
    assert EXPECTED.table.marks == ()
    assert math.fsum(EXPECTED.values) == pytest.approx(1)
    said = [FIXED.oracle.unpack(report.payload) for report in REPORTS]
    assert EXPECTED.support.tolist() == [said.count(cell) for cell in range(4)]
    assert (EXPECTED.n, EXPECTED.read, EXPECTED.repeated, EXPECTED.refused) == (1000, 1000, 0, {})
    assert EXPECTED.digest == FIXED.digest
    assert EXPECTED["dark"] == EXPECTED.table.rows[0]


def test_the_guarantee_is_the_reports() -> None:
    promise = EXPECTED.guarantee
    assert promise is not None
    assert (promise.population, promise.model, promise.unit.relation.value) == ("app users", "local", "replace-one")
    assert promise.delta == 0
    assert 0 <= promise.epsilon - float(FIXED.oracle.epsilon) < 1e-12


def test_post_processing_is_named_and_marked() -> None:
    raw = EXPECTED.table.values
    clipped = estimate(TASK, REPORTS, post="clip")
    assert clipped.table.values == [min(max(value, 0.0), 1.0) for value in raw]
    assert clipped.table.marks == ("clipped to 0..1",)
    shifted, nearest = estimate(TASK, REPORTS, post="norm-sub"), estimate(TASK, REPORTS, post="simplex")
    assert shifted.table.values == nearest.table.values == project_on_simplex(raw)
    assert shifted.table.marks != nearest.table.marks
    assert "norm-sub" in shifted.table.marks[0]
    assert shifted.support.tolist() == EXPECTED.support.tolist()
    assert min(row.low for row in EXPECTED.table) < 0
    for row, before in zip(shifted.table, EXPECTED.table, strict=True):  # shares, and intervals of shares
        assert 0 <= row.low <= row.value <= row.high <= 1
        assert row.low == max(0.0, min(before.low, row.value))
        assert row.high == min(1.0, max(before.high, row.value))
    with pytest.raises(UsageError, match="no post-processing"):
        estimate(TASK, REPORTS, post="magic")  # type: ignore[arg-type]


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_norm_sub_is_the_projection(values: list[float]) -> None:
    """Norm-Sub by its own definition: the shift d for which the sum of max(v + d, 0) is 1, found by bisection."""
    low, high = -3.0, 2.0
    for _ in range(80):
        middle = (low + high) / 2
        if math.fsum(max(value + middle, 0.0) for value in values) < 1:
            low = middle
        else:
            high = middle
    assert [max(value + low, 0.0) for value in values] == pytest.approx(project_on_simplex(values), abs=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan, 2.0, 1])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(UsageError, match="level"):
        estimate(TASK, REPORTS, level=level)


# ---- the other kinds -----------------------------------------------------------------------------------------

NUMBER = SETTING.replace('"setting"', '"number"').replace('domain = ["dark", "light", "system"]', "highest = 50")
TEXT = (
    SETTING.replace('"setting"', '"text"')
    .replace('domain = ["dark", "light", "system"]', "")
    .replace(
        "epsilon = 2\nlifetime_epsilon = 5",
        "epsilon = 8\nlifetime_epsilon = 8\nrappor = {k=32, h=1, m=4, p=0.1, q=0.9, f=0.05}",
    )
)
QUERIES = (
    SETTING.replace('"setting"', '"searches"')
    .replace('domain = ["dark", "light", "system"]', "")
    .replace("[collect]", 'oracle = "two-stage"\n[head]\nsize = 2\nmode = "paper"\n[collect]')
)
HEAD = [["news", "https://a.example"], ["maps", ""]]


def test_numbers_give_an_average() -> None:
    task = Task.loads(NUMBER)
    found = estimate(task, made(Configuration.of(task), [number % 51 for number in range(1000)]))
    assert [row.label for row in found] == ["mean"]
    assert abs(found["mean"].value - 25) < 6 * found["mean"].stderr
    assert found.support.sum() == found.n == 1000
    low = estimate(task, made(Configuration.of(task), [0] * 1000), post="clip")
    assert 0 <= low["mean"].value <= 50
    with pytest.raises(UsageError, match="an average is no share"):
        estimate(task, [], post="simplex")


def test_numbers_give_a_histogram() -> None:
    task = Task.loads(NUMBER.replace("[collect]", 'oracle = "dbitflip"\nbuckets = 4\nbits = 2\n[collect]'))
    found = estimate(task, made(Configuration.of(task), [3] * 700 + [50] * 300), post=None)
    assert [row.label for row in found] == ["0..12", "13..25", "26..38", "39..50"]
    for row, truth in zip(found, (0.7, 0.0, 0.0, 0.3), strict=True):
        assert abs(row.value - truth) < 6 * row.stderr


def test_texts_are_decoded_with_candidates() -> None:
    task = Task.loads(TEXT)
    reports = made(Configuration.of(task), ["alpha"] * 600 + ["beta"] * 400)
    found = estimate(task, reports, candidates=["beta", "alpha ", "gamma", "beta"])
    assert sorted(row.label for row in found) == ["alpha", "beta"]
    for label, truth in (("alpha", 0.6), ("beta", 0.4)):
        assert abs(found[label].value - truth) < 6 * found[label].stderr < 0.4
    assert "2 of 3 candidates" in found.notes[0]
    assert "intervals allow for that" in found.notes[0]
    assert any("selected" in mark and "given selection" in mark for mark in found.table.marks)
    assert found.guarantee is not None
    assert found.guarantee.epsilon == pytest.approx(2 * math.log(39))
    with pytest.raises(UsageError, match="needs candidates"):
        estimate(task, reports)
    with pytest.raises(UsageError, match="no candidate"):
        estimate(task, reports, candidates=[])
    with pytest.raises(UsageError, match="list of texts"):
        estimate(task, reports, candidates="alpha")
    with pytest.raises(UsageError, match="not all there is"):
        estimate(task, reports, candidates=["alpha"], post="norm-sub")
    with pytest.raises(UsageError, match="takes candidates"):
        estimate(TASK, REPORTS, candidates=["dark"])


def test_two_stage_has_a_row_for_the_other_urls_of_a_query() -> None:
    task = Task.loads(QUERIES)
    values = [("news", "https://a.example")] * 400 + [("news", "https://z.example")] * 300 + [("x",)] * 300
    found = estimate(task, made(Configuration.of(task, HEAD), values), head=HEAD)
    assert [row.label for row in found] == ["news\thttps://a.example", "news\t*", "maps", "maps\t*", "*"]
    for row, truth in zip(found, (0.4, 0.3, 0.0, 0.0, 0.3), strict=True):
        assert abs(row.value - truth) < 6 * row.stderr
    with pytest.raises(UsageError, match="head list"):
        estimate(task, [])


# ---- the forms reports come in -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", ["text", "text-crlf", "text.gz", "json", "json.gz", "parquet", "parquet-large", "parquet-fixed"]
)
def test_every_file_gives_the_same_table(tmp_path: Path, form: str) -> None:
    found = estimate(TASK, write(tmp_path / f"reports.{form}", REPORTS, form))
    assert found.table == EXPECTED.table
    assert found.support.tolist() == EXPECTED.support.tolist()
    assert estimate(TASK, str(tmp_path / f"reports.{form}")).n == 1000


def test_several_files_are_counted_together(tmp_path: Path) -> None:
    forms = ["text", "json.gz", "parquet"]
    parts = [REPORTS[:400], REPORTS[300:700], REPORTS[700:]]
    paths = [write(tmp_path / form, part, form) for form, part in zip(forms, parts, strict=True)]
    found = estimate(TASK, paths)
    assert found.table == EXPECTED.table
    assert (found.n, found.read, found.repeated) == (1000, 1100, 100)
    (tmp_path / "task.toml").write_text(SETTING)
    done = CliRunner().invoke(app, ["estimate", *map(str, paths), "--task", str(tmp_path / "task.toml"), "--json"])
    assert json.loads(done.stdout) == found.to_json()
    with pytest.raises(DataError, match="in none can't be read"):
        estimate(TASK, [*paths, tmp_path / "none"])


def test_python_gives_them_in_every_form() -> None:
    mixed = [
        one if turn == 0 else one.to_bytes() if turn == 1 else one.to_text() if turn == 2 else one.to_json()
        for one, turn in zip(REPORTS, [0, 1, 2, 3] * 250, strict=True)
    ]
    assert hq.estimate(TASK, iter(mixed)).table == EXPECTED.table


@pytest.mark.parametrize("wrong", [7, None, b"x", REPORTS[0], REPORTS[0].to_json()])
def test_a_single_report_is_no_list(wrong: Any) -> None:
    with pytest.raises(UsageError, match="path or as an iterable"):
        estimate(TASK, wrong)
    with pytest.raises(UsageError, match="bytes, text, a JSON object or a Report"):
        estimate(TASK, [1.5])  # type: ignore[list-item]


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read"):
        estimate(TASK, tmp_path / "nowhere.txt")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"\n".join(report.to_text().encode() for report in REPORTS))[:-2000])
    with pytest.raises(DataError, match="damaged or cut off"):
        estimate(TASK, cut)
    table = tmp_path / "other.parquet"
    pq.write_table(pa.table({"report": ["text"]}), table)
    with pytest.raises(DataError, match="no binary column"):
        estimate(TASK, table)
    table.write_bytes(b"PAR1 but nothing else PAR1")
    with pytest.raises(DataError, match="as Parquet"):
        estimate(TASK, table)


# ---- what is refused and counted -----------------------------------------------------------------------------


BAD = {
    "ReportMalformed": [
        b"",
        GOOD.to_bytes()[:-1],
        GOOD.to_bytes() + b"\0",
        b"\x01",
        GOOD.to_bytes()[:81] + b"\xff" * 8 + GOOD.to_bytes()[89:],
    ],
    "ReportVersionUnknown": [b"\x02" + GOOD.to_bytes()[1:], b"\x00"],
    "ReportOfAnotherTask": [changed(GOOD, task=bytes(32))],
    "ReportOfAnotherConfiguration": [
        changed(GOOD, configuration=bytes(32)),
        changed(GOOD, configuration=bytes(32), payload=b""),
    ],
    "ReportTimeInvalid": [changed(GOOD, time=1801)],
    "ReportOutOfDomain": [
        changed(GOOD, payload=b"\x04"),
        changed(GOOD, payload=b""),
        changed(GOOD, payload=b"\x00\x00"),
    ],
}


@pytest.mark.parametrize("form", ["list", "parquet", "text"])
def test_bad_reports_are_counted_by_kind_and_left_out(tmp_path: Path, form: str) -> None:
    bad = [data for kind in BAD.values() for data in kind]
    everything: list[bytes] = [*bad, *(report.to_bytes() for report in REPORTS), *bad]
    given: Any = everything
    if form == "parquet":
        given = tmp_path / "reports.parquet"
        pq.write_table(pa.table({"report": pa.array([*everything, None], pa.binary())}), given)
    elif form == "text":
        given = tmp_path / "reports.txt"
        import base64

        lines = [base64.urlsafe_b64encode(data).rstrip(b"=") for data in everything if data]
        given.write_bytes(b"\n".join([*lines, b"\xff\xfe", b"x" * 400_000, b'{"version": 1}']))
    found = estimate(TASK, given)
    assert found.table == EXPECTED.table
    counts = {kind: 2 * len(tried) for kind, tried in BAD.items()}
    counts["ReportMalformed"] += {"list": 0, "parquet": 1, "text": 1}[form]
    assert found.refused == dict(sorted(counts.items()))
    assert found.n == 1000
    assert found.read == 1000 + sum(counts.values())
    with pytest.raises(DataError, match="bad reports") as caught:
        estimate(TASK, given, strict=True)
    assert "ReportMalformed" in caught.value.why


def test_a_report_that_comes_again_counts_once_and_one_with_its_id_not_at_all() -> None:
    other_time = Report.from_bytes(changed(GOOD, time=1800))
    found = estimate(TASK, [GOOD, *REPORTS, GOOD, other_time, *REPORTS[:10], other_time])
    assert found.table == EXPECTED.table
    assert (found.n, found.repeated, found.refused) == (1000, 12, {CONFLICT: 2})
    assert "12 came more than once" in str(found)
    with pytest.raises(DataError, match=CONFLICT):
        estimate(TASK, [*REPORTS, other_time], strict=True)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3)), max_size=40), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_ids_are_remembered_over_blocks(drawn: list[tuple[int, int, int]], size: int) -> None:
    """Against a dictionary: whatever the blocks are, the first report of an id counts, and equal ones repeat it."""
    # Ids that agree in one half or the other, as an attacker could make them.
    ids = [bytes([half]) * 8 + bytes([number]) * 8 for half in (1, 2) for number in (1, 2, 3)]
    reports = [changed(GOOD, id=ids[which], time=1800 * time, payload=bytes([cell])) for which, time, cell in drawn]
    seen: dict[bytes, bytes] = {}
    same = other = 0
    for report in reports:
        first = seen.setdefault(report[1:17], report)
        same, other = same + (first == report), other + (first != report)
    count = ReportCount(FIXED)
    for start in range(0, len(reports), size):
        rows = np.frombuffer(b"".join(reports[start : start + size]), dtype=np.uint8).reshape(-1, count.length)
        count.add(Block(rows))
    assert count.n == len(seen)
    assert (count.repeated, count.refused[CONFLICT]) == (same - len(seen), other)
    cells = [data[HEADER_BYTES] for data in seen.values()]
    assert count.support.tolist() == [cells.count(cell) for cell in range(4)]


def test_blocks_keep_the_order_and_lose_nothing() -> None:
    many = [changed(GOOD, id=number.to_bytes(16, "big")) for number in range(70_000)]
    blocks = list(read_blocks(many, len(many[0])))
    assert len(blocks) > 1
    assert b"".join(block.rows.tobytes() for block in blocks) == b"".join(many)


def test_too_few_reports_are_refused() -> None:
    with pytest.raises(NotReady) as caught:
        estimate(TASK, REPORTS[:99])
    assert "99 good reports" in caught.value.what
    assert "min_batch is 100" in caught.value.why
    with pytest.raises(NotReady) as caught:
        estimate(TASK, [changed(report, task=bytes(32)) for report in REPORTS])
    assert "1,000 were refused: ReportOfAnotherTask" in caught.value.why
    assert "task file" in caught.value.fix


def test_no_error_shows_what_was_in_a_report(tmp_path: Path) -> None:
    path = tmp_path / "reports.txt"
    path.write_text("secret-word\n" * 200)
    with pytest.raises(NotReady) as caught:
        estimate(TASK, path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("line", ["Report(id=b'0', task=b'1')", "dark", "{}"])
def test_lines_that_are_no_reports_are_said_to_be_none(tmp_path: Path, line: str) -> None:
    path = tmp_path / "reports.txt"
    path.write_text(f"{line}\n" * 200)
    with pytest.raises(NotReady) as caught:
        estimate(TASK, path)
    assert "no report at all" in caught.value.fix
    assert "task file" not in caught.value.fix
    path.write_text("".join(f"{report}\n" for report in REPORTS))
    assert estimate(TASK, path).n == len(REPORTS)


# ---- the command ---------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["estimate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(SETTING)
    reports = write(tmp_path / "reports.txt", REPORTS, "text")
    text = run(reports, "--task", tmp_path / "task.toml")
    assert "dark" in text
    assert "1,000 reports counted of 1,000 read" in text
    assert "epsilon 2" in text
    told = json.loads(
        run(reports, "--task", tmp_path / "task.toml", "--out", tmp_path / "est", "--json", "--post", "norm-sub")
    )
    assert told == ClientEstimate.load(tmp_path / "est").to_json()
    assert told["post_processing"][0].startswith("norm-sub")
    with pytest.raises(UsageError, match="exists already"):
        run(reports, "--task", tmp_path / "task.toml", "--out", tmp_path / "est")
    again = run(reports, "--task", tmp_path / "task.toml", "--out", tmp_path / "est", "--force")
    assert again.endswith(f"open {tmp_path / 'est' / 'report.html'}\n")
    with pytest.raises(UsageError, match="post-processing"):
        run(reports, "--task", tmp_path / "task.toml", "--post", "x")


def test_the_command_with_a_head_list_and_with_candidates(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(QUERIES)
    task = Task.loads(QUERIES)
    reports = write(tmp_path / "r.txt", made(Configuration.of(task, HEAD), [("maps",)] * 200), "json")
    (tmp_path / "list.json").write_text(json.dumps(HEAD))
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "head.json").write_text(json.dumps({"format": "x", "records": HEAD}))
    one = run(reports, "--task", tmp_path / "task.toml", "--head", tmp_path / "list.json")
    assert run(reports, "--task", tmp_path / "task.toml", "--head", tmp_path / "head") == one
    assert "maps" in one
    texts = Task.loads(TEXT)
    (tmp_path / "text.toml").write_text(TEXT)
    (tmp_path / "names.txt").write_text("alpha\n\nbeta\n")
    reports = write(tmp_path / "t.gz", made(Configuration.of(texts), ["alpha"] * 500), "text.gz")
    told = json.loads(run(reports, "--task", tmp_path / "text.toml", "--candidates", tmp_path / "names.txt", "--json"))
    assert [row["label"] for row in told["estimates"]] == ["alpha"]
