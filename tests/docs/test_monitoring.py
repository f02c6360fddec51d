"""The dashboard and the alert rules of the deployment example ask for what a running collector really counts."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from collect.helpers import SETTING, WEEKLY, Clock, make_report, put, running, settings_for
from hushquery.collect.epochs.epochs import PHASES
from hushquery.collect.http.admin import make_admin
from hushquery.task import Task

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "deployment"
RULES = yaml.safe_load((EXAMPLE / "prometheus-rules.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((EXAMPLE / "grafana-dashboard.json").read_text(encoding="utf-8"))
# What Prometheus adds to every series, and what a query itself makes.
ADDED = {"instance", "job", "short"}
Labels = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """Each metric of a collector at work, with its labels and their values."""
    folder, clock = tmp_path_factory.mktemp("metrics"), Clock()
    task = Task.loads(SETTING)
    found: Labels = defaultdict(lambda: defaultdict(set))
    with running(settings_for(f"sqlite:///{folder}/collector.db", folder, SETTING, WEEKLY), clock) as (
        client,
        collector,
    ):
        for number in range(3):
            assert put(client, make_report(task, number)).status_code == 201
        collector.phases.advance(task, 1, 0, "closed")
        with closing(TestClient(make_admin(collector.store), base_url="http://127.0.0.1")) as admin:
            text = admin.get("/metrics").text
    for name, labels in re.findall(r"^(hushquery_\w+)(?:\{(.*)\})? \S+$", text, flags=re.MULTILINE):
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            found[name][label].add(value)
        found[name].setdefault("", set())
    found["hushquery_epoch_phase"]["phase"] |= set(PHASES)
    return found


def asked() -> Iterator[tuple[str, str]]:
    """Every query, with where it is."""
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


def test_every_metric_and_label_is_there(known: Labels) -> None:
    queries = dict(asked())
    assert len(queries) > 15
    for where, query in queries.items():
        names = re.findall(r"hushquery_\w+", query)
        assert set(names) <= set(known), where
        assert names or query.startswith("up{"), where
        labels = {label for name in names for label in known[name]} | ADDED
        for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
            assert set(re.split(r", ", grouped)) <= labels, where
        for name, matchers in re.findall(r"(hushquery_\w+)\{([^}]*)\}", query):
            for label, how, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
                assert label in known[name], (where, label)
                if not value.startswith("$"):
                    assert set(value.split("|") if "~" in how else [value]) <= known[name][label], (where, value)


def test_every_metric_is_on_the_dashboard_or_alerts(known: Labels) -> None:
    """What is counted and shown nowhere is seen by nobody; the version of the tables is for the curious."""
    shown = set(re.findall(r"hushquery_\w+", " ".join(query for _, query in asked())))
    assert set(known) - shown == {"hushquery_schema_version"}


def test_alerts_say_what_to_do_and_panels_do_not_overlap() -> None:
    rules: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert used <= {"instance"} | {
            name for grouped in re.findall(r"by \(([^)]*)\)", rule["expr"]) for name in grouped.split(", ")
        }, rule["alert"]
    cells = [
        (column, row)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_pages_name_every_alert() -> None:
    told = (EXAMPLE.parent.parent / "docs" / "howto" / "operate-the-collector.md").read_text(encoding="utf-8")
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert f"`{rule['alert']}`" in told
    read = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert {"`prometheus-rules.yml`", "`grafana-dashboard.json`"} <= set(re.findall(r"`[a-z-]+\.(?:yml|json)`", read))
