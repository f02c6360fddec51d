"""What a collector serves and answers is valid by the schemas of the wire, and so is what it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from collect.helpers import SETTING, Clock, make_report, put, running, settings_for
from collect.test_hybrid_work import TASK as HYBRID_TASK
from collect.test_hybrid_work import TEXT, open_accounts, whole_epoch
from hushquery.collect.http.ingest import JSON, read_batch, read_records
from hushquery.collect.http.problems import PROBLEMS, document, refuse
from hushquery.errors import HushqueryError
from hushquery.task import Task
from mutations import STRANGE, instead, spoiled, without

SCHEMAS = Path(__file__).resolve().parents[2] / "src" / "hushquery" / "schemas"
TASK = Task.loads(SETTING)
SENT = {"Content-Type": JSON}


def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8")))


def faults(name: str, found: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(found)]


def test_a_local_epoch(tmp_path: Path) -> None:
    reports = [make_report(TASK, number) for number in range(5)]
    bad = {**reports[0].to_json(), STRANGE: 1}
    with running(settings_for(str(tmp_path / "c.db"), tmp_path, SETTING), Clock()) as (client, collector):
        path = f"/v1/tasks/{TASK.id}"
        sent = {"reports": [*(report.to_json() for report in reports), bad, None, reports[0].to_json()]}
        assert faults("batch", sent) == []
        answer = client.post(f"{path}/reports", content=json.dumps(sent), headers=SENT).json()
        assert [result["status"] for result in answer["results"]] == [201] * 5 + [400, 400, 200]
        assert faults("results", answer) == []
        assert faults("served-task", client.get(path).json()) == []
        assert faults("tasks", client.get("/v1/tasks").json()) == []
        for phase in ("closed", "released"):
            collector.phases.advance(TASK, 1, 0, phase)
        collector.cache.refresh()
        served = client.get(path).json()
        assert faults("served-task", served) == []
        release = client.get(f"/v1/releases/{served['releases'][0]['id']}").json()
        assert faults("served-release", release) == []
        late = put(client, make_report(TASK, 99))
        for refused in (late, client.get("/v1/tasks/none"), client.get("/nowhere"), client.delete(path)):
            assert refused.status_code >= 400
            assert faults("problem", refused.json()) == []
    assert not validator("served-release").is_valid(without(release, "guarantees"))
    assert not validator("served-task").is_valid(instead(served, {"name": "theme"}, "task"))


def test_a_hybrid_epoch(tmp_path: Path) -> None:
    clock = Clock()
    open_accounts(tmp_path, epochs=1)
    with running(settings_for(str(tmp_path / "c.db"), tmp_path, TEXT), clock) as (client, collector):
        path = f"/v1/tasks/{HYBRID_TASK.id}"
        before = client.get(path).json()
        assert before["configuration"] is None
        assert faults("served-task", before) == []
        released = whole_epoch(client, collector, clock)
        after = client.get(path).json()
        assert faults("served-task", after) == []
        assert faults("head", after["optin"]) == []
        release = client.get(f"/v1/releases/{released.release}").json()
    assert faults("served-release", release) == []
    for part in ("manifest", "guarantees", "tables", "epoch"):
        assert not validator("served-release").is_valid(without(release, part))


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem(name: str) -> None:
    found = document(refuse(name, "a reason"))
    assert faults("problem", found) == []
    for required in ("type", "title", "status", "fix"):
        assert not validator("problem").is_valid(without(found, required))
    assert not validator("problem").is_valid(instead(found, "urn:hushquery:problem:other", "type"))
    result = {"id": None, "status": found["status"], "problem": 0}
    answer = {"version": 2, "results": [result], "problems": [found]}
    assert faults("results", answer) == []
    assert not validator("results").is_valid({**answer, "results": [without(result, "problem")]})
    assert not validator("results").is_valid({**answer, "results": [{**result, "status": 201}]})
    assert not validator("results").is_valid({**answer, "problems": [without(found, "type")]})


@pytest.mark.parametrize(("name", "sent"), [("batch", {"reports": []}), ("records", {"records": [["news", ""]]})])
def test_bodies_are_judged_alike(name: str, sent: dict[str, Any]) -> None:
    def accepted(body: Any) -> bool:
        data = json.dumps(body).encode()
        try:
            if name == "batch":
                read_batch(JSON, data)
            else:
                read_records(JSON, data, HYBRID_TASK)
        except HushqueryError:
            return False
        return True

    check = validator(name)
    assert check.is_valid(sent)
    assert accepted(sent)
    for what, changed in spoiled(sent):
        assert check.is_valid(changed) == accepted(changed), what
