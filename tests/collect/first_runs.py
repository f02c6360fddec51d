"""First runs for tests: forms for every kind of task, and a page in this process with somebody's browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
from fastapi.testclient import TestClient

from children import HANG, start
from hushquery.collect.http.setup import ENTER, PATH, FirstRun, make_setup

HERE = "http://127.0.0.1:8081"
OWN = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
SETTING = {
    "kind": "setting", "name": "theme", "values": "light\ndark\r\nsystem\n", "population": "app users", "period": "7d",
    "epsilon": "1", "lifetime": "16", "file": "task.toml", "do": "write",
}  # fmt: skip
NUMBER = SETTING | {"kind": "number", "highest": "1440", "period": "once"}
TEXT = SETTING | {"kind": "text", "epsilon": "4.5", "lifetime": "18"}
SEARCHES = SETTING | {"kind": "searches", "optin": "yes", "optin_epsilon": "4", "optin_delta": "1e-5", "epsilon": "4"}
LISTED = SEARCHES | {"optin": "no", "values": "weather leeds https://weather.example\nbus times"}
NASTY = "<script>alert(1)</script>\"'&{{ 7*7 }}"


class Visit:
    """A first run in this process, and somebody's browser."""

    def __init__(self, folder: Path) -> None:
        self.run, self.ended = FirstRun(folder), 0
        self.token = self.run.token or ""
        self.client = TestClient(make_setup(self.run, done=self._end), base_url=HERE, follow_redirects=False)

    def _end(self) -> None:
        self.ended += 1

    def enter(self) -> httpx.Response:
        return self.client.get(ENTER, params={"token": self.token})

    def send(self, form: dict[str, str], **headers: str) -> httpx.Response:
        return self.client.post(PATH, data=form, headers=OWN | headers)


def written(visit: Visit) -> list[str]:
    """Name every file in the folder of a visit, and beside it."""
    return sorted(file.name for file in visit.run.folder.parent.rglob("*") if file.is_file())


@contextmanager
def serving(folder: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """Run `hushquery serve` in a folder, and return what it says next; it must end well when it is asked to."""
    command = [sys.executable, "-m", "hushquery", "serve", "--port", "0", "--admin-port", "0", "--json"]
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as errors:
        process = start(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    lines = process.stdout

    def said() -> dict[str, str]:
        text = ""
        while not text.rstrip().endswith("}"):
            line = lines.readline().decode()
            assert line, log.read_text()
            text += line
        return dict(json.loads(text))

    try:
        yield said
    finally:
        process.terminate()
        code = process.wait(HANG)
        lines.close()
    assert code == 0
    assert log.read_text() == ""
