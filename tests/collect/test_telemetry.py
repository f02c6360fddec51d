"""Where a program has set up OpenTelemetry, FastAPI traces by default, with the whole path and so a report's id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import opentelemetry._logs._internal as logs_of_process
import opentelemetry.metrics._internal as metrics_of_process
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from collect.helpers import BINARY, SETTING, Clock, make_report, put, report_path, running, settings_for
from hushquery.collect.http.admin import make_admin
from hushquery.collect.http.ingest import pack_batch, write_id
from hushquery.task import Task

TASK = Task.loads(SETTING)


class Watch:
    """All that the providers of the process are told."""

    def __init__(self) -> None:
        self._spans, self._numbers, self._logs = (
            InMemorySpanExporter(),
            InMemoryMetricReader(),
            InMemoryLogRecordExporter(),
        )
        self.tracing, self.metering = TracerProvider(), MeterProvider([self._numbers])
        self.logging = LoggerProvider()
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logging.add_log_record_processor(SimpleLogRecordProcessor(self._logs))

    def seen(self) -> str:
        numbers = self._numbers.get_metrics_data()
        found = [*self._spans.get_finished_spans(), *self._logs.get_finished_logs()]
        return "".join(str(getattr(one, "attributes", one)) for one in found) + (
            "" if numbers is None else numbers.to_json()
        )


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """The providers that a program sets for the whole process, taken away again."""
    made = Watch()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.tracing)
    monkeypatch.setattr(metrics_of_process, "_METER_PROVIDER", made.metering)
    monkeypatch.setattr(logs_of_process, "_LOGGER_PROVIDER", made.logging)
    yield made
    made.metering.shutdown()


def test_fastapi_tells_all_by_default(watch: Watch) -> None:
    """So that the next test can fail."""
    app = FastAPI()

    @app.get("/reports/{id}")
    def report(id: str) -> str:
        return "" if id else id

    TestClient(app).get("/reports/the-id-of-a-report")
    assert "the-id-of-a-report" in watch.seen()
    assert "http.server.request.duration" in watch.seen()


def test_nothing_is_told_of_any_request(watch: Watch, folder: Path, clock: Clock) -> None:
    report, other = make_report(TASK), make_report(TASK, 1)
    with running(settings_for(str(folder / "collector.db"), folder, SETTING), clock) as (client, collector):
        assert put(client, report).status_code == 201
        batch = pack_batch([report.to_bytes(), other.to_bytes(), b"x"])
        assert client.post(f"/v1/tasks/{TASK.id}/reports", content=batch, headers=BINARY).status_code == 200
        records = f"/v1/tasks/{TASK.id}/records/{write_id(report.id)}"
        assert client.put(records, json={"records": []}).status_code == 401
        fields = {"task": TASK.id, "release": "0" * 64, "name": "client.mjs", "id": write_id(other.id)}
        for route in client.app.routes:  # type: ignore[attr-defined]
            for method in sorted(route.methods):
                client.request(method, route.path.replace(":path", "").format(**fields))
        client.get("/nowhere")
        client.put(report_path(report), content=b"x", headers={**BINARY, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
        admin = TestClient(make_admin(collector.store), base_url="http://127.0.0.1")
        for route in admin.app.routes:  # type: ignore[attr-defined]
            admin.get(route.path)
        admin.close()
    assert watch.seen() == ""
