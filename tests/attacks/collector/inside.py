"""What is put into a server process from outside, by a sitecustomize module: a clock of ours, a telemetry provider.

No part of the product knows of it. The clock adds what a file says to the time of day and leaves the monotonic clock
alone, as a wrong setting of the machine's clock does.
"""

from __future__ import annotations

from pathlib import Path

_CLOCK = """
import os, time
_path = {path!r}
_real, _real_ns, _real_get = time.time, time.time_ns, time.clock_gettime
def _offset():
    try:
        with open(_path) as file:
            return int(file.read() or 0)
    except OSError:
        return 0
time.time = lambda: _real() + _offset()
time.time_ns = lambda: _real_ns() + _offset() * 10**9
time.clock_gettime = lambda which: _real_get(which) + (_offset() if which == time.CLOCK_REALTIME else 0)
"""

_TELEMETRY = """
import os
from opentelemetry import _logs, metrics, trace
_path = {path!r}
def _note(kind, *what):
    with open(_path, "a") as file:
        file.write(f"{{os.getpid()}} {{kind}} {{what!r}}\\n")
class _Span(trace.NonRecordingSpan):
    def is_recording(self):
        return True
    def set_attribute(self, key, value):
        _note("attribute", key, value)
    def set_attributes(self, attributes):
        _note("attributes", dict(attributes))
    def add_event(self, name, *more, **named):
        _note("event", name, more, named)
    def record_exception(self, error, *more, **named):
        _note("exception", repr(error))
    def update_name(self, name):
        _note("name", name)
class _Tracer(trace.Tracer):
    def start_span(self, name, *more, **named):
        _note("span", name, named.get("attributes"))
        return _Span(trace.SpanContext(1, 1, False))
    def start_as_current_span(self, name, *more, **named):
        return trace.use_span(self.start_span(name, *more, **named))
class _Tracers(trace.TracerProvider):
    def get_tracer(self, *more, **named):
        return _Tracer()
class _Instrument:
    def __init__(self, name):
        self.name = name
    def add(self, amount, attributes=None, context=None):
        _note("metric", self.name, attributes)
    record = set = add
class _Meter(metrics.NoOpMeter):
    def __getattribute__(self, name):
        if name.startswith("create_") and "observable" not in name:
            return lambda called, *more, **named: _Instrument(called)
        return super().__getattribute__(name)
class _Meters(metrics.MeterProvider):
    def get_meter(self, name, *more, **named):
        return _Meter(name)
class _Logger(_logs.Logger):
    def enabled(self, *more, **named):
        return True
    def emit(self, *more, **named):
        _note("log", more, named)
class _Loggers(_logs.LoggerProvider):
    def get_logger(self, name, *more, **named):
        return _Logger(name)
trace.set_tracer_provider(_Tracers())
metrics.set_meter_provider(_Meters())
_logs.set_logger_provider(_Loggers())
_note("installed")
"""


def _write(folder: Path, text: str) -> dict[str, str]:
    place = folder / "inside"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(place)}


class Clock:
    """A clock for processes: what they take for the time of day is shifted by what is set here."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.set(0)
        self.env = _write(folder, _CLOCK.format(path=str(self._file)))

    def set(self, seconds: int) -> None:
        """Shift the time by so many seconds against the true one."""
        draft = self._file.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self._file)


def telemetry(folder: Path) -> tuple[dict[str, str], Path]:
    """Install providers of traces, metrics and logs in a process; gives its environment, and where they write."""
    seen = folder / "telemetry.txt"
    return _write(folder, _TELEMETRY.format(path=str(seen))), seen
