"""Reports in Parquet, counted on a Spark cluster: the sums of one machine, integer by integer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hushquery.cli.app import app
from hushquery.engine import connect
from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.server import spark as counting
from hushquery.local.server.counting import CONFLICT
from hushquery.local.server.estimate import estimate
from hushquery.task import Task
from meter import metered
from setting_reports import DAY, FIXED, REPORTS, SETTING, TASK, changed, made
from spark_cluster import HANGS_AFTER, Cluster

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
NAMES = ["b x.parquet", "a+\u00e9.parquet", "c%20[1].parquet"]


def spoilt(reports: Sequence[Any], unknown: bytes) -> list[bytes | None]:
    """Reports with everything among them that is refused, comes again, or has another one's id."""
    good = [report.to_bytes() for report in reports]
    other = next(r for r in reports if r.payload != reports[5].payload)
    bad: list[bytes | None] = [
        b"",
        b"x",
        b"\xff" * len(good[0]),
        b"\x01" * 200,
        b"z" * 100_000,
        None,
        good[3],
        good[3],
        changed(reports[5], payload=other.payload),
        changed(reports[7], time=3 * DAY),
        changed(reports[8], id=b"i" * 16, time=3 * DAY),
        changed(reports[9], task=b"t" * 32),
        changed(reports[10], id=b"u" * 16, payload=unknown),
        good[11] + b"\x00",
    ]
    # The second one of an id comes first in the file.
    return [*bad[:9], *good, *bad[9:], bad[8]]


def write(folder: Path, rows: Sequence[bytes | None], names: Sequence[str] = NAMES) -> list[Path]:
    """Write every so many-th row into each file, in groups of few rows."""
    for start, name in enumerate(names):
        some = rows[start :: len(names)]
        table = pa.table({"other": pa.array(range(len(some))), "report": pa.array(some, pa.binary())})
        pq.write_table(table, folder / name, row_group_size=200)
    return [folder / name for name in names]


def estimated(task: Task, reports: Any, **options: Any) -> Any:
    """Return the whole estimate, or the refusal."""
    try:
        return estimate(task, reports, **options).to_json()
    except HushqueryError as error:
        return error.as_dict()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write(tmp_path_factory.mktemp("reports"), spoilt(REPORTS, b"\xff"))


@pytest.mark.parametrize("period", [None, "all", 0])
def test_the_sums_are_those_of_one_machine(period: Any, files: list[Path], spark: Any) -> None:
    here = estimated(TASK, files, period=period)
    assert (here["n"], here["repeated"]) == ({None: 1000, "all": 1001, 0: 1000}[period], 3)
    assert here["refused"][CONFLICT] == (1 if period == 0 else 2)
    assert len(here["refused"]) >= 5
    assert estimated(TASK, files, period=period, engine=spark) == here


KINDS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "searches": (QUERIES, [("news", "https://a.example"), ("news", "else"), ("x",)], {"head": HEAD}),
    "searches, hashed": (
        QUERIES.replace('"two-stage"', '"olh"').replace('"paper"', '"best"'),
        [("maps", ""), ("x",)],
        {"head": HEAD},
    ),
    "number": (NUMBER, [7, 20, 50], {}),
    "histogram": (NUMBER.replace("[collect]", 'oracle = "dbitflip"\nbuckets = 4\nbits = 2\n[collect]'), [3, 50], {}),
    "text": (TEXT, ["alpha", "beta"], {"candidates": ["alpha", "beta", "gamma"]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task(kind: str, spark: Any, tmp_path: Path) -> None:
    text, values, options = KINDS[kind]
    task = Task.loads(text)
    reports = made(Configuration.of(task, options.get("head")), values * 80, name=kind)
    paths = write(tmp_path, spoilt(reports, b"\xff" * len(reports[0].payload)))
    here = estimated(task, paths, **options)
    assert here["n"] >= len(reports) - 1  # one has a forged time
    assert here["refused"][CONFLICT] == 2
    assert estimated(task, paths, engine=spark, **options) == here


def test_the_order_of_the_files_decides_between_two_reports_of_one_id(spark: Any, tmp_path: Path) -> None:
    others = [next(r for r in REPORTS if r.payload != report.payload) for report in REPORTS]
    again = [changed(report, payload=other.payload) for report, other in zip(REPORTS, others, strict=True)]
    [first] = write(tmp_path, [report.to_bytes() for report in REPORTS], ["z.parquet"])
    [second] = write(tmp_path, again, ["a.parquet"])
    ways = [[first, second], [second, first]]
    here = [estimated(TASK, files) for files in ways]
    assert here[0]["support"] != here[1]["support"]
    assert [estimated(TASK, files, engine=spark) for files in ways] == here


def test_a_worker_that_dies_neither_loses_nor_doubles_a_report(
    spark: Any, spark_cluster: Cluster, files: list[Path]
) -> None:
    here = estimated(TASK, files)
    status = spark._session.sparkContext.statusTracker()
    there: list[Any] = []
    job = threading.Thread(target=lambda: there.append(estimated(TASK, files, engine=spark)))
    job.start()
    # The counting stage has begun, so what the dead worker sorted for the other one is lost with it.
    while not any(_counts(status.getStageInfo(stage)) for stage in status.getActiveStageIds()):
        assert job.is_alive()
        time.sleep(0.002)
    spark_cluster.kill_worker()
    assert job.is_alive()
    job.join(HANGS_AFTER)
    assert there == [here]
    assert spark_cluster.alive() == 1


def _counts(stage: Any) -> bool:
    return stage is not None and stage.numActiveTasks > 0 and "toArrow" in stage.name


# ---- what leaves the workers ---------------------------------------------------------------------------------


def test_what_comes_to_the_driver_does_not_grow_with_the_reports(spark: Any, tmp_path: Path) -> None:
    rows = [report.to_bytes() for report in REPORTS]
    came = []
    for number in (200, 1000):
        paths = write(tmp_path, rows[:number])
        with metered(counting, "_fetched") as meter:
            estimate(TASK, paths, engine=spark)
        came.append((len(meter.tables), meter.rows, meter.bytes))
    assert came[0] == came[1]
    # The chosen period; then read, n, repeated, the period's number, and the support of each cell.
    assert came[0][:2] == (2, 1 + 4 + FIXED.channel.length)


# ---- what is refused -----------------------------------------------------------------------------------------


def test_too_few_and_bad_ones_are_refused_as_here(spark: Any, files: list[Path], tmp_path: Path) -> None:
    few = write(tmp_path, [report.to_bytes() for report in REPORTS[:50]])
    assert estimated(TASK, few, engine=spark) == estimated(TASK, few)
    with pytest.raises(DataError, match="there are bad reports"):
        estimate(TASK, files, strict=True, engine=spark)


def test_files_that_can_not_be_read_are_named(spark: Any, files: list[Path], tmp_path: Path) -> None:
    [good] = write(tmp_path, [report.to_bytes() for report in REPORTS], ["good.parquet"])
    text = tmp_path / "reports.txt"
    text.write_text("\n".join(report.to_text() for report in REPORTS))
    hidden = tmp_path / "_hidden.parquet"
    hidden.write_bytes(good.read_bytes())
    named = tmp_path / "named.parquet"
    pq.write_table(pa.table({"Report": pa.array([b"x"])}), named)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(good.read_bytes()[:-3000])
    for wrong, message in (
        (tmp_path / "none.parquet", "none.parquet can't be read"),
        (text, "Spark counts Parquet files only"),
        (hidden, "Spark leaves out some of the files"),
        (named, "no binary column"),
        (cut, "cut.parquet can't be read as Parquet"),
    ):
        with pytest.raises(DataError, match=message):
            estimate(TASK, [good, wrong], engine=spark)


def test_a_damaged_page_is_an_error_that_shows_no_report(spark: Any, tmp_path: Path) -> None:
    [path] = write(tmp_path, [report.to_bytes() for report in REPORTS], ["damaged.parquet"])
    data = bytearray(path.read_bytes())
    data[1000:9000] = b"secret!!" * 1000
    path.write_bytes(data)
    with pytest.raises(DataError, match="Spark could not count the reports") as caught:
        estimate(TASK, path, engine=spark)
    assert "secret" not in str(caught.value)


def test_only_spark_and_only_files(files: list[Path], spark: Any) -> None:
    with pytest.raises(UsageError, match="on Spark or in this process"):
        estimate(TASK, files, engine=connect("duckdb"))
    wrong: Any
    for wrong in (REPORTS, [], iter(files)):
        with pytest.raises(UsageError, match="given as Parquet files"):
            estimate(TASK, wrong, engine=spark)


def test_the_command_counts_on_the_cluster(
    files: list[Path], spark: Any, spark_cluster: Cluster, tmp_path: Path
) -> None:
    assert spark is not None
    (tmp_path / "task.toml").write_text(SETTING)
    command = ["estimate", *map(str, files), "--task", str(tmp_path / "task.toml"), "--json"]
    here, there = (CliRunner().invoke(app, [*command, *more]) for more in ([], ["--engine", spark_cluster.url]))
    assert there.exit_code == 0, there.output
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert json.loads(here.stdout)["n"] == 1000
