"""Hostile HTTP over real sockets: none of it gets through, and no answer repeats what was sent."""

from __future__ import annotations

import gzip
import json
import secrets
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx2 as httpx

from attacks.collector.devices import FEW, put, reports
from attacks.collector.frame import Check, Ground, Serving, until
from children import HANG
from collect.helpers import SEARCHES, report_path
from hushquery.local.report import Report
from hushquery.task import Task

#: What stands in every probe where the collector might repeat it.
MARK = "zqMarkqz"
EVIL = f"<img src=x onerror={MARK}>"
#: A task whose values are hostile too.
SCRIPTED = FEW.replace('"dark"', f'"{EVIL}"')
_TYPE = "application/problem+json"


@dataclass(frozen=True)
class Answer:
    """What came back: 0 where the connection was closed without an answer."""

    status: int
    head: str
    body: bytes


@dataclass(frozen=True)
class Probe:
    """One hostile request, as bytes, and the statuses that it may get."""

    name: str
    data: bytes
    allowed: tuple[int, ...]


def attack(ground: Ground) -> Iterator[Check]:
    """Try all probes, then look what became of them: answers, store, log."""
    store = ground.new_store()
    tasks = [ground.task(FEW, "few"), ground.task(SEARCHES, "searches"), ground.task(SCRIPTED, "scripted")]
    serving = ground.serve(store, *tasks, more=("--tick", "0"))
    good = reports(FEW, 4)
    started = put(serving.port, good[0]).status
    wanted = "each is refused by a problem document that repeats nothing of it"
    for name, probes in _groups(good[1], serving.port).items():
        odd = [f"{probe.name} ({why})" for probe in probes if (why := _wrong(probe, talk(serving.port, probe.data)))]
        yield Check(f"{name}: {len(probes)} probes", wanted, _told(odd, len(probes)), not odd)
    odd = [one for one in _slow(serving, good[1]) if one]
    yield Check("bodies that stop, or come byte by byte: 2 probes", "408 or closed", _told(odd, 2), not odd)
    odd = _tokens(serving)
    yield Check("tokens guessed: 40, and 5 that are none", "401, always the same answer", _told(odd, 45), not odd)
    odd = _hosts(serving)
    yield Check("Host of others on the operator's listener: 6", "refused; 127.0.0.1 is not", _told(odd, 6), not odd)
    yield _pages(ground, serving, store)
    yield _log(serving)
    task = Task.loads(FEW).id
    (found,) = (one for one in ground.status(store) if one["id"] == task)
    accepted = found["uploads"].get("accepted")
    serving.stop()
    yield Check(
        "all of the above", "nothing was stored", f"{accepted} accepted, 1 sent", (started, accepted) == (201, 1)
    )


# ---- the wire ----------------------------------------------------------------------------------------------


def talk(port: int, data: bytes, seconds: float = HANG) -> Answer:
    """Send bytes as they are; gives the first answer."""
    found = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as wire:
            with suppress(OSError):  # cut off before all was sent: there may be an answer all the same
                wire.sendall(data)
            while True:
                part = wire.recv(65536)
                if not part:
                    break
                found += part
                head, _, body = found.partition(b"\r\n\r\n")
                if b"\r\n\r\n" in found and len(body) >= _length(head):
                    break
    except OSError:
        pass
    head, _, body = found.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.") else 0
    return Answer(status, head.decode("latin-1"), body[: _length(head)])


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)


def ask(method: str, path: str, *headers: str, body: bytes = b"", host: str = "collect.example.org") -> bytes:
    """Write a request."""
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def _wrong(probe: Probe, answer: Answer) -> str:
    """What is wrong with an answer, or nothing."""
    if answer.status not in probe.allowed:
        return f"status {answer.status}"
    text = answer.head + answer.body.decode("latin-1")
    if MARK.lower() in text.lower() or "Traceback" in text or "sqlite" in text.lower() or "uvicorn" in text.lower():
        return "repeats or tells"
    if answer.status < 400 or probe.data.startswith(b"HEAD"):
        return ""
    if _TYPE not in answer.head.lower():
        return f"{answer.status} is no problem document"
    document = json.loads(answer.body)
    return "" if document.get("status") == answer.status and document.get("type", "").startswith("urn:") else "no type"


def _told(odd: list[str], number: int) -> str:
    return f"{number - len(odd)} of {number} held" + (f"; not: {', '.join(odd[:6])}" if odd else "")


# ---- probes ------------------------------------------------------------------------------------------------


def _groups(report: Report, port: int) -> dict[str, list[Probe]]:
    path, body, kind = report_path(report), report.to_bytes(), "Content-Type: application/octet-stream"
    batch = path.rpartition("/")[0]
    inner = ask("PUT", path, kind, f"Content-Length: {len(body)}", body=body)
    no = (400, 403, 404, 405, 408, 411, 413, 414, 415, 421, 422, 425, 431, 501, 505)
    shut = (0, *no)
    length = f"Content-Length: {len(inner)}"
    smuggled = {
        "both lengths": ask("PUT", path, kind, length, "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + inner),
        "both, other order": ask("PUT", path, kind, "Transfer-Encoding: chunked", length, body=b"0\r\n\r\n" + inner),
        "two lengths": ask("PUT", path, kind, "Content-Length: 0", length, body=inner),
        "a list of lengths": ask("PUT", path, kind, f"Content-Length: 0, {len(inner)}", body=inner),
        "xchunked": ask("PUT", path, kind, "Transfer-Encoding: xchunked", length, body=inner),
        "chunked twice": ask("PUT", path, kind, "Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n" + inner),
        "a space before the colon": ask("PUT", path, kind, f"Content-Length : {len(inner)}", body=inner),
        "a folded header": ask("PUT", path, kind, f"X-A: {MARK}\r\n Content-Length: {len(body)}", body=b""),
        "a bare line feed": ask("PUT", path, kind, f"X-A: {MARK}\nContent-Length: 5", body=b"12345"),
        "a chunk of no number": ask("PUT", path, kind, "Transfer-Encoding: chunked", body=b"zz\r\n" + inner),
        "a chunk below zero": ask("PUT", path, kind, "Transfer-Encoding: chunked", body=b"-1\r\n" + inner),
    }
    lengths = {
        "no number": ask("PUT", path, kind, f"Content-Length: {MARK}"),
        "below zero": ask("PUT", path, kind, "Content-Length: -5", body=b"12345"),
        "underscores": ask("PUT", path, kind, "Content-Length: 1_0", body=b"1234567890"),
        "a plus": ask("PUT", path, kind, "Content-Length: +5", body=b"12345"),
        "hexadecimal": ask("PUT", path, kind, "Content-Length: 0x5", body=b"12345"),
        "99 GB": ask("PUT", path, kind, "Content-Length: 99999999999"),
        "400 digits": ask("PUT", path, kind, "Content-Length: " + "9" * 400),
        "chunks without end": ask(
            "PUT",
            path,
            kind,
            "Transfer-Encoding: chunked",
            body=b"10000\r\n" + bytes(65536) + b"\r\n10000\r\n" + bytes(65536),
        ),
    }
    headers = {
        "one of 200 kB": ask("GET", "/v1/tasks", f"X-A: {MARK * 25_000}"),
        "20,000 of them": ask("GET", "/v1/tasks", *(f"X-{n}: {MARK}" for n in range(20_000))),
        "a target of 100 kB": ask("GET", "/v1/tasks/" + MARK * 12_500),
        "a zero byte": ask("GET", "/v1/tasks", f"X-A: a\0{MARK}"),
        "no name": ask("GET", "/v1/tasks", f": {MARK}"),
        "no request at all": f"{MARK}\r\n\r\n".encode(),
        "a TLS hello": bytes.fromhex("16030100ca010000c60303") + MARK.encode() + b"\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/9": f"GET /{MARK} HTTP/9.9\r\n\r\n".encode(),
        "no Host": ask("GET", f"/{MARK}", host=""),
        "two Hosts": ask("GET", f"/{MARK}", f"Host: {MARK}.example"),
    }
    bomb, flat = gzip.compress(bytes(10**7)), zlib.compress(body)
    zipped = {
        "gzip bomb": ask("PUT", path, kind, "Content-Encoding: gzip", f"Content-Length: {len(bomb)}", body=bomb),
        "deflate": ask("PUT", path, kind, "Content-Encoding: deflate", f"Content-Length: {len(flat)}", body=flat),
        "unknown": ask("PUT", path, kind, f"Content-Encoding: {MARK}", "Content-Length: 3", body=b"abc"),
        "two codings": ask("POST", batch, kind, "Content-Encoding: identity, gzip", "Content-Length: 3", body=b"abc"),
        "another media type": ask("PUT", path, f"Content-Type: text/{MARK}", "Content-Length: 3", body=b"abc"),
    }
    task = report.task.hex()
    places = ("/v1/tasks/../admin", "/v1/tasks/%2e%2e/%2e%2e/etc/passwd", "//v1/tasks", "/v1/tasks/%00", "/metrics")
    places += (f"/v1/tasks/{task.upper()}", f"/v1/tasks/{task}%20", f"/v1/tasks/{task};x={MARK}", "/readyz", "/healthz")
    places += (
        f"/v1/tasks/{task}/reports/..%2f..%2f{MARK}",
        f"/v1/releases/%ff{MARK}",
        "/docs",
        f"/sites/{task}/..%2f{MARK}",
    )
    places += (f"/sites/{task}/%2e%2e/%2e%2e/{MARK}", f"/sites/{MARK}", f"/%3Cscript%3E{MARK}", f"/x?q={MARK}")
    paths = {one: ask("GET", one) for one in places}
    methods = {
        one: ask(one, path if one != "PATCH" else f"/{MARK}", kind, "Content-Length: 0")
        for one in ("DELETE", "PATCH", "TRACE", "CONNECT", "OPTIONS", "GET", "POST", MARK)
    }
    hosts = {
        "of another": ask("GET", f"/{MARK}", host=f"{MARK}.example"),
        "with a script": ask("GET", f"/sites/{task}x", host=f"<script>{MARK}</script>"),
        "forwarded": ask(
            "GET", "/nothing", *(f"{name}: {MARK}" for name in ("X-Forwarded-Host", "X-Forwarded-For", "Forwarded"))
        ),
    }
    redirect = Probe(
        "a redirect", ask("GET", f"/sites/{task}", f"X-Forwarded-Host: {MARK}", host=f"{MARK}.example"), (307,)
    )
    return {
        "smuggling": [Probe(name, data, shut) for name, data in smuggled.items()],
        "lengths": [Probe(name, data, shut) for name, data in lengths.items()],
        "headers": [Probe(name, data, shut) for name, data in headers.items()],
        "compressed bodies": [Probe(name, data, no) for name, data in zipped.items()],
        "paths": [Probe(name, data, no) for name, data in paths.items()],
        "methods": [Probe(name, data, shut) for name, data in methods.items()],
        "Host": [*(Probe(name, data, no) for name, data in hosts.items()), redirect],
    }


def _slow(serving: Serving, report: Report) -> Iterator[str]:
    kind = "Content-Type: application/octet-stream"
    data = ask("PUT", report_path(report), kind, "Content-Length: 500")
    yield _wrong(Probe("stopped", data, (408,)), talk(serving.port, data + b"x"))
    with socket.create_connection(("127.0.0.1", serving.port), timeout=0.5) as wire:
        wire.sendall(data)

        def over() -> bool:
            try:
                wire.sendall(b"x")
                wire.recv(65536)  # an answer, or its end
            except TimeoutError:
                return False
            except OSError:
                pass
            return True

        yield "" if until(over, 60, 0) else "a body byte by byte is still read after 60 s"


def _tokens(serving: Serving) -> list[str]:
    path = f"/v1/tasks/{Task.loads(SEARCHES).id}/records/{'A' * 22}"
    body = json.dumps({"records": [[MARK, ""]]}).encode()
    guesses = [f"Bearer hq_{secrets.token_hex(8)}.{secrets.token_urlsafe(32)}" for _ in range(40)]
    guesses += ["", "Basic eDp5", f"Bearer {MARK}", "Bearer hq_", f"Bearer hq_{'0' * 16}.{'A' * 43}' OR '1'='1"]
    odd, texts = [], set()
    for guess in guesses:
        headers = ("Content-Type: application/json", f"Authorization: {guess}", f"Content-Length: {len(body)}")
        data = ask("PUT", path, *headers, body=body)
        answer = talk(serving.port, data)
        texts.add(answer.body)
        if why := _wrong(Probe("a token", data, (401,)), answer):
            odd.append(f"{guess[:12]} ({why})")
    return odd if len(texts) == 1 else [*odd, f"{len(texts)} different answers"]


def _hosts(serving: Serving) -> list[str]:
    odd = []
    # Names: whose page chose one can give it our address. No page can do that with an address.
    for host in (f"{MARK}.example", "rebound.example:8081", "127.0.0.1.rebound.example", "localhost.example", "0"):
        answer = talk(serving.admin_port, ask("GET", "/metrics", host=host))
        if answer.status not in (400, 403, 404, 421) or MARK in answer.head + answer.body.decode("latin-1"):
            odd.append(f"{host} (status {answer.status})")
    right = talk(serving.admin_port, ask("GET", "/metrics", host=f"127.0.0.1:{serving.admin_port}"))
    return odd if right.status == 200 else [*odd, f"its own address (status {right.status})"]


def _pages(ground: Ground, serving: Serving, store: str) -> Check:
    """Publish values that are scripts, and look at every page."""
    task = Task.loads(SCRIPTED).id
    sent = [put(serving.port, one).status for one in reports(SCRIPTED, 5)]
    codes = [
        ground.collect("advance", "--to", to, "--task", task, "--store", store)[0] for to in ("closed", "released")
    ]
    time.sleep(1.5)  # servers look at the store once a second
    odd, seen = [], 0
    for name in ("", "index.html", f"?q={EVIL}"):
        answer = httpx.get(f"{serving.address}/sites/{task}/{name}", timeout=HANG)
        seen += answer.status_code == 200
        if EVIL in answer.text:
            odd.append(name or "the page")
        if (
            "script-src" not in (policy := answer.headers.get("content-security-policy", ""))
            and "default-src" not in policy
        ):
            odd.append(f"{name}: no policy")
        if "unsafe-inline" in policy.partition("script-src")[2].partition(";")[0]:
            odd.append(f"{name}: inline scripts")
    held = sent == [201] * 5 and codes == [0, 0] and seen > 0 and not odd
    text = f"{seen} pages, {len(odd)} with it{': ' + ', '.join(odd) if odd else ''}; exit codes {codes}"
    return Check("a released value that is a script, in pages", "escaped, no inline scripts allowed", text, held)


def _log(serving: Serving) -> Check:
    before = serving.logged()
    number = 200
    for _ in range(number):
        talk(serving.port, f"{MARK}\r\n\r\n".encode())
        talk(serving.port, ask("GET", f"/{MARK}"))
    grown = serving.logged() - before
    held = grown <= 1024 and MARK not in serving.log.read_text(errors="replace")
    seen = f"log +{grown} bytes, {'repeats' if MARK in serving.log.read_text(errors='replace') else 'repeats nothing'}"
    return Check(f"{2 * number} bad requests", "the log does not grow with them", seen, held)
