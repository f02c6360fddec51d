"""The whole way from a value to a payload, as docs/report-format.md tells it, in plain Python and nothing of ours."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS: list[dict[str, Any]] = json.loads((ROOT / "vectors" / "report_v1.json").read_text())["clients"]


def mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def four(number: int) -> bytes:
    return number.to_bytes(4, "big")


def eight(number: int) -> bytes:
    return number.to_bytes(8, "big")


def upper(word: int | bytes) -> int:
    return (word if isinstance(word, int) else int.from_bytes(word[:8], "big")) >> 11


def step(word: int, cell: int, k: int, lie: int) -> int:
    return (cell + 1 + min(upper(word) // lie, k - 1)) % k


class Device:
    """What a client in another language has to do."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.secret, self.task = bytes.fromhex(case["secret"]), bytes.fromhex(case["task"])
        fixed = json.loads(case["configuration"])
        # Coins that are kept and not stored belong to one configuration.
        configuration = hashlib.sha256(case["configuration"].encode()).digest()
        self.coins = mac(self.secret, b"hushquery-v1 coins\0", self.task, configuration)
        self.domain, self.oracle = fixed["domain"], fixed["oracle"]

    def krr(self, value: list[Any], words: list[int]) -> tuple[Any, bytes]:
        records = self.domain["records"]
        cell = records.index(value) if value in records else len(records)
        return cell, bytes([step(words[0], cell, self.oracle["k"], self.oracle["lie"])])

    def two_stage(self, value: list[Any], words: list[int]) -> tuple[Any, bytes]:
        query, url = value[0].lower(), (value[1] if len(value) > 1 else "")
        queries = list(dict.fromkeys(record[0] for record in self.domain["records"]))
        urls = [[record[1] for record in self.domain["records"] if record[0] == one] for one in queries]
        sizes = [len(known) + 1 for known in urls] + [1]
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        q = queries.index(query) if query in queries else len(queries)
        u = 0 if q == len(queries) else urls[q].index(url) if url in urls[q] else len(urls[q])
        sent = step(words[0], q, len(sizes), self.oracle["query_lie"])
        if sent != q:  # a uniform URL, from the first word below the largest multiple of the size
            size = sizes[sent]
            answer = next(word for word in words[1:] if word < 2**64 // size * size) % size
        else:
            lies = dict(self.oracle["url_lies"])
            answer = step(words[1], u, sizes[q], lies[sizes[q]]) if sizes[q] > 1 else 0
        return starts[q] + u, bytes([starts[sent] + answer])

    def onebit(self, value: list[Any], words: list[int]) -> tuple[Any, bytes]:
        assert not words

        def kept(key: bytes, what: bytes, number: int) -> int:
            return upper(mac(key, four(32), self.task, four(len(what)), what, eight(number)))

        s = self.oracle["step"]
        attempt = 0
        while (alpha := kept(self.secret, b"alpha", attempt)) >= 2**53 // s * s:
            attempt += 1
        left = value[0] // s * s
        point = left + s if value[0] + alpha % s >= left + s else left
        bit = kept(self.coins, b"bit", point) < self.oracle["low"] + self.oracle["unit"] * point
        return point // s, bytes([bit])

    def stream(self, secret: bytes, what: bytes, n: int) -> list[int]:
        key = mac(secret, four(32), self.task, what)
        data = b"".join(mac(key, eight(block)) for block in range(-(-n // 4)))
        return [int.from_bytes(data[8 * i : 8 * i + 8], "big") for i in range(n)]

    def dbitflip(self, value: list[Any], words: list[int]) -> tuple[Any, bytes]:
        assert not words
        k, d = self.oracle["k"], self.oracle["d"]
        drawn = self.stream(self.secret, b"sample", k)
        sampled = sorted(sorted(range(k), key=lambda bucket: drawn[bucket])[:d])
        bucket = value[0] * k // (self.oracle["most"] + 1)
        place = sampled.index(bucket) if bucket in sampled else -1
        coins = self.stream(self.coins, b"bits:%d" % place, d)
        bits = [
            (one == bucket) == (upper(coin) < self.oracle["keep"]) for one, coin in zip(sampled, coins, strict=True)
        ]
        packed = sum(bit << i for i, bit in enumerate(bits)).to_bytes(-(-d // 8), "little")
        return (d if place < 0 else place), bytes(sampled) + packed

    def rappor(self, value: list[Any], words: list[int]) -> tuple[Any, bytes]:
        assert not words
        k, m = self.oracle["k"], self.oracle["m"]
        framed = four(32) + self.task
        cohort = int.from_bytes(mac(self.secret, b"hushquery rappor cohort v1\0", framed)[:16], "big") % m
        hashed = hashlib.shake_256(b"hushquery rappor bloom v1\0" + four(cohort) + value[0].encode())
        stream = hashed.digest(8 * self.oracle["h"])
        bloom = 0
        for j in range(self.oracle["h"]):
            bloom |= 1 << int.from_bytes(stream[8 * j : 8 * j + 8], "big") % k
        message = b"hushquery rappor permanent v1\0" + framed + four(k) + bloom.to_bytes(-(-k // 8), "big")
        blocks = b"".join(mac(self.coins, message, four(block)) for block in range(-(-k // 4)))
        flips = sum((upper(blocks[8 * i :]) < self.oracle["flip"]) << i for i in range(k))
        width = -(-k // 8)
        return bloom.to_bytes(width, "little").hex(), cohort.to_bytes(2, "little") + (bloom ^ flips).to_bytes(
            width, "little"
        )

    def fresh(self, kept: bytes, words: list[int]) -> bytes:
        """RAPPOR's instantaneous response: k coins of p, then k of q."""
        k = self.oracle["k"]
        permanent = int.from_bytes(kept[2:], "little")
        ones = 0
        for i in range(k):
            on = permanent >> i & 1
            ones |= (upper(words[k + i if on else i]) < self.oracle["q" if on else "p"]) << i
        return kept[:2] + ones.to_bytes(-(-k // 8), "little")


@pytest.mark.parametrize("case", CLIENTS, ids=lambda case: json.loads(case["configuration"])["oracle"]["name"])
def test_a_client_of_another_language_answers_alike(case: dict[str, Any]) -> None:
    device = Device(case)
    name = device.oracle["name"]
    configuration = hashlib.sha256(case["configuration"].encode()).digest()
    for golden in case["values"]:
        words = [int(word, 16) for word in golden["words"]]
        found, kept = getattr(device, name.replace("-", "_"))(golden["value"], words)
        assert (found, kept.hex()) == (golden["class"], golden["kept"])
        told = hashlib.sha256(bytes.fromhex(found)).digest() if isinstance(found, str) else four(found)
        key = mac(device.secret, b"hushquery-v1 memo\0", device.task, configuration, four(0), told)
        assert key.hex() == golden["memo_key"]
        for report in golden["reports"]:
            fresh = [int(word, 16) for word in report["words"]]
            assert (device.fresh(kept, fresh) if name == "rappor" else kept).hex() == report["payload"]


def test_every_branch_is_in_the_vectors() -> None:
    pairs = next(case for case in CLIENTS if '"two-stage"' in case["configuration"])
    taken = {len(golden["words"]) for golden in pairs["values"]}
    assert {1, 2} < taken, "no query that was exchanged, none that was kept with a URL, or no wildcard"
    assert {json.loads(case["configuration"])["oracle"]["name"] for case in CLIENTS} == {
        "krr",
        "two-stage",
        "onebit",
        "dbitflip",
        "rappor",
    }
