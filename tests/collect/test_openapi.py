"""The published OpenAPI document, and Schemathesis against a server that runs: it finds nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collect.helpers import SEARCHES, SETTING, Clock, running, settings_for
from collect.servers import Server
from hushquery.collect.http.problems import PROBLEMS

# Left out: that a body which fits the schema is accepted. No schema can say which hash a report has to carry.
UNFIT = "positive_data_acceptance"


def attack(folder: Path, examples: int, phases: str) -> None:
    for name, text in (("setting", SETTING), ("searches", SEARCHES)):
        (folder / f"{name}.toml").write_text(text)
    server = Server(
        str(folder / "collector.db"), folder, folder / "setting.toml", "--task", str(folder / "searches.toml")
    )
    program = Path(sys.executable).with_name("schemathesis")
    options = ["--checks", "all", "--exclude-checks", UNFIT, "--seed", "20261115", "--phases", phases]
    done = subprocess.run(
        [program, "run", f"{server.address}/v1/openapi.json", "--max-examples", str(examples), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert server.stop() == 0
    assert done.returncode == 0, done.stdout[-3000:]
    assert "6/6" in done.stdout
    assert server.log.read_text() == ""


def test_schemathesis_finds_nothing(folder: Path) -> None:
    attack(folder, 3, "coverage,fuzzing")


@pytest.mark.prove
def test_schemathesis_finds_nothing_for_long(folder: Path) -> None:
    attack(folder, 200, "coverage,fuzzing,stateful")


def test_the_document_says_what_there_is(folder: Path, clock: Clock) -> None:
    with running(settings_for(str(folder / "collector.db"), folder, SETTING), clock) as (client, _):
        document = client.get("/v1/openapi.json").json()
    assert set(document["paths"]) == {
        "/v1/tasks",
        "/v1/tasks/{task}",
        "/v1/tasks/{task}/reports",
        "/v1/tasks/{task}/reports/{id}",
        "/v1/tasks/{task}/records/{id}",
        "/v1/releases/{release}",
    }
    put = document["paths"]["/v1/tasks/{task}/reports/{id}"]["put"]
    assert set(put["responses"]) >= {str(n) for n in (200, 201, 400, 404, 409, 410, 413, 422, 425, 429, 503)}
    for name in ("not-in-domain", "wrong-task", "clock"):
        assert PROBLEMS[name].uri in put["responses"]["422"]["description"]
    assert "HTTPValidationError" not in str(document)
