"""``hushquery collect upload``: give a collector the searches of people who opted in, from a log, once each.

A person's upload has a name that only the token and the person's id make, so whatever is killed and started again, or
tried again after a failure, sends the same bytes under the same name and counts once. No row is printed or logged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from hushquery.cli.common import JsonFlag, LogFiles, LogOptions, emit, option, progress, takes_options, warn
from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError

if TYPE_CHECKING:
    from hushquery.log import Log

# Uploads under way at once: the collector writes those that come together in one transaction.
_AT_ONCE = 8
_CHUNK = 1000
_TIMEOUT = 30.0
_PAUSES = (1, 2, 4, 8, 16, 32)  # seconds before each new try
_TAKEN = {http.HTTPStatus.CREATED: "accepted", http.HTTPStatus.OK: "repeated"}
# What says something about all uploads, and not about one.
_NEVER = {
    401: UsageError("the collector refuses the token", fix="Ask the operator for a token of this task"),
    404: UsageError("the collector does not have this task", fix="Check --server and --task"),
    410: NotReady("the opt-in phase of the task is over", fix="Wait for the next epoch, and run it again"),
    425: NotReady("the opt-in phase of the task is not open yet", fix="Run it again later"),
}

#: One upload: its name, and its body.
Upload = tuple[str, bytes]


@takes_options
def upload(
    log: LogFiles,
    task: Annotated[str, option("ID", "The task's id: `hushquery task id FILE` prints it.")],
    token_file: Annotated[
        Path, option("FILE", "The token of `hushquery collect tokens new`, which only you can read.")
    ],
    *,
    server: Annotated[str, option("URL", "The collector's address.")] = "http://127.0.0.1:8080",
    reading: LogOptions,
    as_json: JsonFlag = False,
) -> None:
    r"""Upload the log of people who opted in: for each of them as many records as the task takes, once in an epoch.

    Run it again after whatever happened: what the collector has is not counted twice. A personal token gives the
    records of one person, a shared one those of many. Somebody without a usable search takes part too, with none.

        hushquery collect tokens new --task searches --shared > token.txt
        hushquery collect upload optin.csv --task 63caf... --token-file token.txt --server https://collect.example.org
    """
    from hushquery.local.device.fetch import fetch_document

    _refuse_plain(server)
    token = _read_token(token_file)
    agreed, served = fetch_document(server, task, _TIMEOUT)
    if agreed.optin is None:
        raise UsageError("the task takes no opt-in records", fix="Use a task with an [optin] table")
    epoch = served.get("epoch") or {}
    if not epoch.get("takes_records"):
        raise NotReady("the task takes no opt-in records now", fix="Run it again when its opt-in phase is open")
    key = hmac.new(token.encode(), b"hushquery-v1 upload\0" + agreed.digest, hashlib.sha256).digest()
    uploads = _uploads(reading.open(log), key, agreed.optin.records_per_user)
    with (
        closing(Uploader(server, task, token)) as sender,
        progress("uploading", float(len(uploads))) as show,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        for start in range(0, len(uploads), _CHUNK):
            chunk = uploads[start : start + _CHUNK]
            sender.outcomes.update(pool.map(sender.give, chunk))
            show("uploading", min(len(uploads), start + _CHUNK))
            if sender.stopped is not None:
                break
    _tell(sender, len(uploads), as_json)


def _tell(sender: Uploader, users: int, as_json: bool) -> None:
    """Print how uploads ended, by reason; nothing else of them."""
    counted = sender.outcomes
    refused = {reason: counted[reason] for reason in sorted(counted.keys() - {"accepted", "repeated", "left"})}
    taken = {name: counted[name] for name in ("accepted", "repeated")}
    left = users - sum(taken.values()) - sum(refused.values())
    if sender.stopped is not None and not as_json:
        stopped = sender.stopped
        raise type(stopped)(stopped.what, why=f"{sum(taken.values()):,} of {users:,} were taken", fix=stopped.fix)
    lines = [f"{users:,} users: {taken['accepted']:,} accepted, {taken['repeated']:,} were there already"]
    lines += [f"refused, {reason}: {number:,}" for reason, number in refused.items()]
    stop = None if sender.stopped is None else sender.stopped.as_dict()
    emit({"users": users, **taken, "refused": refused, "left": left, "stopped": stop}, "\n".join(lines), as_json)
    if sender.stopped is not None:
        raise typer.Exit(sender.stopped.exit_code)
    if refused:
        raise typer.Exit(DataError.exit_code)


def _refuse_plain(server: str) -> None:
    """Refuse to send searches and a token in clear over a network."""
    local = server.startswith("https:")
    with suppress(ValueError):  # no address: refused when it is asked
        host = urlsplit(server).hostname or ""
        local = local or host == "localhost" or ip_address(host).is_loopback
    if not local:
        raise UsageError("the token and the searches would travel unencrypted", fix="Use the https:// address")


def _read_token(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
        if path.stat().st_mode & 0o077:
            warn(f"others on this machine can read {path.name}, and give records with it: chmod 600 {path.name}")
    except (OSError, ValueError):
        raise UsageError(
            f"the token file {path.name} can't be read", fix="Check its path, and that it is yours"
        ) from None
    if not re.fullmatch(r"[!-~]{1,200}", text):
        raise UsageError(f"{path.name} holds no token", fix="Save there what `hushquery collect tokens new` printed")
    return text


def _uploads(log: Log, key: bytes, most: int) -> list[Upload]:
    """Return the upload of each user, in an order that tells nothing: at most ``most`` records, also with none."""
    from hushquery.curator.counting import Bound
    from hushquery.engine.execute import fetch
    from hushquery.hybrid.headlist import records_of

    try:
        users = fetch(log.rows.select(user=log.rows.user.cast("string")).distinct())["user"].to_pylist()
        rows = records_of(log, Bound("random", key.hex()), most)
        chosen = fetch(rows.mutate(user=rows.user.cast("string"))).to_pylist()
    except Exception as error:  # an engine's message may quote a row
        fix = "`hushquery look` shows what is wrong with it"
        raise DataError("the log can't be read", why=type(error).__name__, fix=fix) from None
    records: dict[str, list[list[str]]] = {user: [] for user in users if user is not None}
    for row in chosen:
        records[row["user"]].append([row["query"], row["url"]])
    return sorted((_name(key, user), records_body(own)) for user, own in records.items())


def _name(key: bytes, user: str) -> str:
    digest = hmac.new(key, user.encode(), hashlib.sha256).digest()[:16]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def records_body(records: Sequence[Sequence[str]]) -> bytes:
    """Return what is uploaded for a person's records: the same bytes whatever their order."""
    return json.dumps({"records": sorted(records)}, separators=(",", ":")).encode()


class Uploader:
    """Gives uploads to a collector, several at once; stops all of them at what will not change for any."""

    def __init__(self, server: str, task: str, token: str) -> None:
        self._server, self._task = server, task
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._own = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self.outcomes: Counter[str] = Counter()
        self.stopped: HushqueryError | None = None

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def give(self, one: Upload) -> str:
        """Send one upload until it is accepted or refused; return the outcome, ``left`` if all had to stop."""
        for pause in (*_PAUSES, None):
            if self.stopped is not None:
                break
            status, reason = self._put(*one)
            if status in _TAKEN:
                return _TAKEN[http.HTTPStatus(status)]
            if status in _NEVER:
                self.stopped = _NEVER[status]
            elif status and status < 500 and status not in (408, 429):
                return reason
            elif pause is None:
                fix = "Run the same command again later: what was taken is not counted twice"
                self.stopped = Unavailable("the collector takes nothing now", fix=fix)
            else:
                time.sleep(pause)
        return "left"

    def _put(self, name: str, body: bytes) -> tuple[int, str]:
        from hushquery.local.device.send import connection_to, within

        if not hasattr(self._own, "connection"):
            self._own.connection, self._own.path = connection_to(self._server, _TIMEOUT)
            self._connections.append(self._own.connection)
        connection = self._own.connection
        try:
            with within(connection, _TIMEOUT):
                connection.request("PUT", f"{self._own.path}/v1/tasks/{self._task}/records/{name}", body, self._headers)
                response = connection.getresponse()
                text = response.read(1 << 16)
        except (OSError, http.client.HTTPException):
            connection.close()  # the next request opens it anew
            return 0, ""
        return response.status, _reason(response.status, text)


def _reason(status: int, text: bytes) -> str:
    """Return the name of a problem, if it is one."""
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        found: Any = json.loads(text)["type"]
        if match := re.fullmatch("urn:hushquery:problem:([a-z-]{1,40})", found):
            return match[1]
    return f"status {status}"
