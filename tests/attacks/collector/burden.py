"""What cheap hostile clients send, in a process of their own: `python burden.py KIND PORT TASK NUMBER`, until killed.

It prints a line when all its connections are open. Nothing is imported that costs anything.
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import sys
import time

ITEMS = 9_999


def batches() -> dict[str, tuple[str, bytes]]:
    """Batches that are cheap to send and were dear to read: media type and body."""
    return {
        "bare numbers": ("application/json", _listed("1")),
        "empty objects": ("application/json", _listed("{}")),
        "nested lists": ("application/json", _listed("[[[]]]")),
        "empty frames": ("application/octet-stream", bytes(4) * ITEMS),
        "frames of one byte": ("application/octet-stream", (b"\0\0\0\1x") * ITEMS),
        "one long number": ("application/json", b'{"reports":[' + b"9" * 60_000 + b"]}"),
        "deep nesting": ("application/json", b'{"reports":' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    }


def _listed(item: str) -> bytes:
    return json.dumps({"reports": []}).encode().replace(b"[]", b"[" + b",".join([item.encode()] * ITEMS) + b"]")


def request(port: int, task: str, kind: str, body: bytes, more: str = "") -> bytes:
    """One whole request with a batch."""
    head = f"POST /v1/tasks/{task}/reports HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ready() -> None:
    """Say that all is sent that comes at once."""
    sys.stdout.write("open\n")
    sys.stdout.flush()


def numbers(port: int, task: str, per_second: int) -> None:
    """Send bare numbers at a steady pace from one address, and read the answers."""
    kind, body = batches()["bare numbers"]
    data = request(port, task, kind, body, "Connection: close\r\n")
    ready()
    begin = time.monotonic()
    wires: list[tuple[float, socket.socket]] = []
    sent = 0
    while True:
        time.sleep(max(0.0, begin + sent / per_second - time.monotonic()))
        wire = socket.create_connection(("127.0.0.1", port))
        wire.setblocking(False)
        with contextlib.suppress(OSError):
            wire.send(data)
        wires.append((time.monotonic(), wire))
        sent += 1
        while len(wires) > 8 * per_second:  # whoever has had eight seconds
            wires.pop(0)[1].close()
        for _, one in wires:
            with contextlib.suppress(OSError):
                one.recv(1 << 20)


def unread(port: int, task: str, number: int) -> None:
    """Ask for much on many connections, and read nothing."""
    kind, body = batches()["bare numbers"]
    ask = f"GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    data = request(port, task, kind, body) + ask * 200
    wires = []
    for _ in range(number):
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.connect(("127.0.0.1", port))
        wire.setblocking(False)
        with contextlib.suppress(OSError):
            wire.send(data)
        wires.append(wire)
    ready()
    time.sleep(3600)


def idle(port: int, _: str, number: int) -> None:
    """Open connections and say nothing."""
    wires = []
    for _ in range(number):
        wire = socket.socket()
        wire.settimeout(5)
        with contextlib.suppress(OSError):
            wire.connect(("127.0.0.1", port))
        wires.append(wire)
    ready()
    time.sleep(3600)


def slow(port: int, task: str, number: int) -> None:
    """Send headers, and then bodies, a byte every second; who is cut off comes again."""
    head = request(port, task, "application/octet-stream", bytes(5000))[:-5000]
    wires: dict[int, tuple[socket.socket, bytes]] = {}

    def begin(place: int) -> None:
        wire = socket.create_connection(("127.0.0.1", port))
        wire.setblocking(False)
        rest = head if place % 2 else b""
        with contextlib.suppress(OSError):
            wire.send(head[: len(head) - len(rest)])
        wires[place] = (wire, rest + bytes(5000))

    for place in range(number):
        begin(place)
    ready()
    while True:
        time.sleep(1)
        for place, (wire, rest) in list(wires.items()):
            try:
                wire.send(rest[:1])
                wires[place] = (wire, rest[1:])
            except OSError:
                wire.close()
                with contextlib.suppress(OSError):
                    begin(place)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    {"numbers": numbers, "unread": unread, "idle": idle, "slow": slow}[sys.argv[1]](
        int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    )
