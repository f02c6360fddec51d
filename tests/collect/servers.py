"""A real server process, started and killed by tests, and clients that send to it over real sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx

from children import HANG, start
from collect.helpers import BINARY, report_path
from hushquery.collect.http.ingest import pack_batch
from hushquery.local.report import Report


class Server:
    """`hushquery serve` as a process of its own, which answers once this is made."""

    def __init__(
        self,
        store: str,
        folder: Path,
        task: Path,
        *more: str,
        port: int = 0,
        descriptors: int | str | None = None,
        code: str | None = None,
    ) -> None:
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        options = ["--store", store, "--task", str(task), "--keys", str(folder / "keys"), "--json", *more]
        program = ["-m", "hushquery"] if code is None else ["-c", code]
        command = [sys.executable, *program, "serve", "--port", str(port), "--admin-port", "0", *options]
        if descriptors is not None:
            command = ["bash", "-c", f'ulimit -n {descriptors} && exec "$@"', "-", *command]
        with self.log.open("wb") as log:
            self.process = start(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline().decode()
            assert line, self.log.read_text()
            text += line
        found = json.loads(text)
        self.address, self.admin = str(found["address"]), str(found["admin"])
        self.port = int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it and its workers at once (kill -9)."""
        with suppress(ProcessLookupError):  # it may be gone
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> int:
        """Ask it to stop, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(HANG)
        self._close()
        return code

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()


class Sender(threading.Thread):
    """A client that sends its reports until each is acknowledged: retried after every failure, some sent twice.

    It notes each acknowledgement when it comes.
    """

    def __init__(self, port: int, reports: Sequence[Report], batch: int) -> None:
        super().__init__(daemon=True)
        self.address = f"http://127.0.0.1:{port}"
        self.reports = list(reports)
        self.batch = batch
        self.acknowledged: dict[bytes, int] = {}
        self.strange: list[object] = []
        self.failures = 0
        self.stopped = False

    def run(self) -> None:
        with httpx.Client(base_url=self.address, timeout=HANG) as client:
            waiting = list(self.reports)
            while waiting and not self.stopped:
                chosen, waiting = waiting[: self.batch], waiting[self.batch :]
                try:
                    left = self._send(client, chosen)
                except (httpx.TransportError, httpx.RemoteProtocolError):
                    self.failures += 1
                    left = chosen
                    time.sleep(0.02)
                if chosen and not left and chosen[0].id[-1] % 3 == 0:
                    self._again(client, chosen)
                waiting = [*left, *waiting]

    def _again(self, client: httpx.Client, chosen: list[Report]) -> None:
        """Send what was acknowledged once more."""
        before = set(self.acknowledged)
        try:
            self._send(client, chosen)
        except (httpx.TransportError, httpx.RemoteProtocolError):
            self.failures += 1
        assert before == set(self.acknowledged)

    def _send(self, client: httpx.Client, chosen: list[Report]) -> list[Report]:
        """Send reports; gives those that were not acknowledged."""
        if self.batch == 1:
            answer = client.put(report_path(chosen[0]), content=chosen[0].to_bytes(), headers=BINARY)
            statuses = [answer.status_code]
        else:
            path = report_path(chosen[0]).rpartition("/")[0]
            answer = client.post(path, content=pack_batch([one.to_bytes() for one in chosen]), headers=BINARY)
            whole = [answer.status_code] * len(chosen)
            statuses = [one["status"] for one in answer.json()["results"]] if answer.status_code == 200 else whole
        left = []
        for report, status in zip(chosen, statuses, strict=True):
            if status in (200, 201):
                self.acknowledged.setdefault(report.id, status)
            else:
                left.append(report)
                self.failures += 1
                if status not in (429, 503):
                    self.strange.append(status)
        if left:
            time.sleep(0.05)
        return left
