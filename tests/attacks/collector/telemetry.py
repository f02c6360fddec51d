"""A global OpenTelemetry provider in the server's process, as many operators have one: it must see nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2 as httpx

from attacks.collector.devices import FEW, put, reports
from attacks.collector.frame import Check, Ground
from attacks.collector.inside import telemetry
from hushquery.collect.http.ingest import write_id
from hushquery.task import Task


def attack(ground: Ground) -> Iterator[Check]:
    """Send what is good and what is bad to both listeners, and read what the providers were told."""
    env, path = telemetry(ground.folder)
    serving = ground.serve(ground.new_store(), ground.task(FEW), env=env)
    given = reports(FEW, 5)
    statuses = {put(serving.port, one).status for one in given}
    task = Task.loads(FEW).id
    for address in (f"{serving.address}/v1/tasks/{task}", f"{serving.address}/nothing", f"{serving.admin}/metrics"):
        httpx.get(address, timeout=10)
    serving.stop()
    lines = path.read_text().splitlines()
    told = [line for line in lines if not line.partition(" ")[2].startswith("installed")]
    named = sum(any(write_id(one.id) in line for line in told) for one in given)
    seen = f"{len(told)} records, {named} of {len(given)} report ids in them"
    installed = len(lines) > len(told) and statuses == {201}
    yield Check(
        "providers of traces, metrics and logs installed in the server process",
        "they see no request of either listener",
        seen if installed else f"the providers were not installed, uploads answered {statuses}",
        installed and not told,
    )
