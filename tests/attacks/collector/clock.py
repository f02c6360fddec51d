"""A clock that jumps: by a wrong setting, for a moment or for good, forwards, back, or while the server was down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from attacks.collector.devices import FEW, audit, put, reports
from attacks.collector.frame import Check, Ground, Serving, until
from attacks.collector.inside import Clock
from hushquery.task import Task

DAY = 86400
#: A task with periods, whose epochs time moves.
WEEKLY = FEW.replace('kind = "setting"', 'kind = "setting"\nperiod = "7d"')
STILL = "nothing is closed or released, readiness says so"


def attack(ground: Ground) -> Iterator[Check]:
    """Let the clock jump under a running server, and across a stop; then let the operator confirm."""
    # In `make test` each store has one direction.
    jumps = [8 if ground.kind == "sqlite" else -8] if ground.short else [8, 200, -8]
    for days in jumps:
        yield from _jump(ground, days)
    yield from _long_stop(ground)


def _jump(ground: Ground, days: int) -> Iterator[Check]:
    clock, store = Clock(ground.folder), ground.new_store()
    task = ground.task(WEEKLY)
    serving = ground.serve(store, task, more=("--tick", "0.2"), env=clock.env)
    given = reports(WEEKLY, 6)
    sent = [one.id for one in given[:5] if put(serving.port, one).status == 201]
    number = Task.loads(WEEKLY).period_at(time.time())
    clock.set(days * DAY)
    told = until(lambda: serving.ready()[0] == 503, ground.size(5, 10), 0.1)
    _, text = serving.ready()
    phase = _epoch(ground, store, number)
    held = len(sent) == 5 and phase.get("phase") == "reports_open" and told and "clock" in text.lower()
    seen = f"epoch {phase.get('phase')}, readiness {'503' if told else 'still 200'}: {text.strip()[:80]}"
    name = f"the clock jumps {abs(days)} days {'forwards' if days > 0 else 'back'} under a running server"
    yield Check(name, STILL, seen, held)
    clock.set(0)
    yield _goes_on(ground, serving, store, clock, number, sent, given[5], f"{name}, and is set right again")


def _long_stop(ground: Ground) -> Iterator[Check]:
    clock, store = Clock(ground.folder), ground.new_store()
    task = ground.task(WEEKLY)
    serving = ground.serve(store, task, more=("--tick", "0.2"), env=clock.env)
    given = reports(WEEKLY, 5)
    sent = [one.id for one in given if put(serving.port, one).status == 201]
    number = Task.loads(WEEKLY).period_at(time.time())
    serving.stop()
    clock.set(200 * DAY)
    serving = ground.serve(store, task, more=("--tick", "0.2"), env=clock.env, port=serving.port)
    told = until(lambda: serving.ready()[0] == 503, ground.size(5, 10), 0.1)
    _, text = serving.ready()
    found = _epoch(ground, store, number)
    held = len(sent) == 5 and found.get("phase") == "reports_open" and told and "clock" in text.lower()
    seen = f"epoch {found.get('phase')}, readiness {'503' if told else 'still 200'}: {text.strip()[:80]}"
    yield Check("the server is down, and 200 days later on the clock it starts again", STILL, seen, held)
    # This time the clock is right: the operator says so, and time moves on.
    code, _, err = ground.collect("clock", "--confirm", "--store", store, env=clock.env)
    moved = until(lambda: _epoch(ground, store, number).get("phase") in ("closed", "released"), 30, 0.5)
    found = _epoch(ground, store, number)
    ready = until(lambda: serving.ready()[0] == 200, 20, 0.1)
    seen = f"exit code {code} {err.strip()[:80]}; epoch {found.get('phase')} with {found.get('reports')} reports, "
    seen += f"readiness {'200' if ready else 'not 200'}"
    right = (found.get("reports"), found.get("checksum")) == audit(sent)
    yield Check(
        "the same, then `collect clock --confirm`",
        "the epoch is closed with all its reports, readiness 200",
        seen,
        code == 0 and moved and right and ready,
    )
    serving.stop()


def _goes_on(
    ground: Ground, serving: Serving, store: str, clock: Clock, number: int, sent: list[bytes], extra: Any, name: str
) -> Check:
    """Confirm the clock once it is right again: the epoch takes reports as before."""
    code, _, err = ground.collect("clock", "--confirm", "--store", store, env=clock.env)
    ready = until(lambda: serving.ready()[0] == 200, 20, 0.1)
    upload = put(serving.port, extra)
    found = _epoch(ground, store, number)
    serving.stop()
    closing, _, _ = ground.collect("advance", "--to", "closed", "--epoch", str(number), "--store", store, env=clock.env)
    after = _epoch(ground, store, number)
    right = (after.get("reports"), after.get("checksum")) == audit([*sent, extra.id])
    seen = f"`collect clock --confirm` {code} {err.strip()[:60]}, readiness {'200' if ready else 'not 200'}, "
    seen += f"epoch {found.get('phase')}, upload {upload.status}, {after.get('reports')} counted of {len(sent) + 1}"
    held = code == 0 and ready and found.get("phase") == "reports_open" and upload.status == 201 and closing == 0
    return Check(name, "after `collect clock --confirm` all goes on, nothing is lost", seen, held and right)


def _epoch(ground: Ground, store: str, number: int) -> dict[str, Any]:
    for task in ground.status(store):
        for epoch in task["epochs"]:
            if epoch["number"] == number:
                return dict(epoch)
    return {}
