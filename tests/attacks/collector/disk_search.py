"""Search every file after closing: for payloads, hashes that can be guessed, records, tokens, keys, and for order.

The server still runs while its files are read, so that what its database holds back is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
from scipy.stats import rankdata

from attacks.collector.devices import FEW, KIND, WIDE, put, reports
from attacks.collector.files import Places, search
from attacks.collector.frame import Check, Ground
from children import HANG
from collect.helpers import SEARCHES
from hushquery.collect.http.ingest import pack_batch, write_id
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.local.report import Report
from hushquery.task import Task

#: A correlation this many standard deviations from none is one.
_SIGMAS = 6.0
_PAGES = (4096, 8192)

_HASHES: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: hashlib.sha256(data).digest(),
    lambda data: hashlib.sha1(data).digest(),  # noqa: S324
    lambda data: hashlib.md5(data).digest(),  # noqa: S324
    lambda data: hashlib.blake2b(data, digest_size=32).digest(),
    lambda data: hashlib.blake2b(data).digest(),
    lambda data: hashlib.sha3_256(data).digest(),
)


def attack(ground: Ground) -> Iterator[Check]:
    """Let devices report and users give records, close, and search."""
    store = ground.new_store()
    tasks = [ground.task(text, f"task-{n}") for n, text in enumerate((FEW, WIDE, SEARCHES))]
    serving = ground.serve(store, *tasks, more=("--tick", "0"))
    number, pairs = ground.size(300, 1500), ground.size(60, 200)
    few, wide, two = reports(FEW, number), reports(WIDE, number), reports(WIDE, 2 * pairs)
    with httpx.Client(base_url=serving.address, timeout=HANG) as client:
        sent = _send(client, few, 20) and _send(client, two, 2)
        sent = sent and all(put(serving.port, one).status == 201 for one in wide)
        tokens, words = _give(ground, store, client, ground.size(4, 20))
    keys = _key_bytes(ground.folder / "keys")
    # That the search finds what is there is seen before closing.
    before = search([one.payload for one in wide], _files(ground, store)).found([one.payload for one in wide])
    codes = [
        ground.collect("advance", "--to", "closed", "--task", Task.loads(text).id, "--store", store)[0]
        for text in (FEW, WIDE)
    ]
    codes.append(_publish(ground, store))
    if not sent or codes != [0, 0, 0]:
        yield Check("closing", "all is sent and closed", f"sent {sent}, exit codes {codes}", held=False)
        return
    tried = f"search of {_shorten(ground)} after closing"
    files = _files(ground, store)
    payloads, whole = [one.payload for one in (*wide, *two)], [one.to_bytes()[1:] for one in few]
    ids, digests = [one.id for one in (*wide, *two)], list(_digests(few))
    places = search([*payloads, *whole, *ids, *digests, *words, *tokens, *keys], files)
    left, size = places.found(payloads), sum(path.stat().st_size for path in files) / 2**20
    seen = (
        f"{_list(left)} of {len(payloads)} ({_list(before)} of {len(wide)} before; {len(files)} files, {size:.0f} MiB)"
    )
    seen += f"; whole reports of k-RR: {_list(places.found(whole))}"
    held = not left and not places.found(whole) and len(before) > len(wide) // 2
    yield Check(f"{tried}: payloads, whole reports", "none", seen, held)
    guessed = places.found(digests)
    yield Check(
        f"{tried}: hashes, trying all payloads", "none is found", f"{_list(guessed)} of {len(few)} reports", not guessed
    )
    secret = {"records": words, "tokens": tokens, "keys": keys}
    seen = ", ".join(f"{name} {_list(places.found(of))} of {len(of)}" for name, of in secret.items())
    held = bool(keys) and not any(places.found(of) for of in secret.values())
    yield Check(f"{tried}: opt-in records, tokens, keys", "none", seen, held)
    yield _order(f"{tried}: order of arrival, by the places of ids in files and their pages", [wide, two], places)
    if ground.kind == "postgresql":
        yield _company(ground, two, files, places)
    serving.stop()


# ---- what is put in ----------------------------------------------------------------------------------------


def _send(client: httpx.Client, given: list[Report], size: int) -> bool:
    for at in range(0, len(given), size):
        part = given[at : at + size]
        answer = client.post(
            f"/v1/tasks/{part[0].task.hex()}/reports",
            content=pack_batch([one.to_bytes() for one in part]),
            headers=KIND,
        )
        if answer.status_code != 200 or {one["status"] for one in answer.json()["results"]} != {201}:
            return False
    return True


def _give(ground: Ground, store: str, client: httpx.Client, users: int) -> tuple[list[bytes], list[bytes]]:
    """Let users opt in, each with words of their own; gives the secrets of their tokens, and the words."""
    task = Task.loads(SEARCHES).id
    tokens, words = [], []
    code, out, err = ground.collect("tokens", "new", "--shared", "--task", task, "--store", store, "--json")
    if code:
        raise RuntimeError(err[-300:])
    token = str(json.loads(out)["token"])
    tokens.append(token.rpartition(".")[2].encode())
    for user in range(users):
        word = f"zebra crossing {user} quagga {hashlib.sha256(str(user).encode()).hexdigest()[:12]}"
        answer = client.put(
            f"/v1/tasks/{task}/records/{write_id(hashlib.md5(word.encode()).digest())}",  # noqa: S324
            json={"records": [[word, ""]]},
            headers={"Authorization": f"Bearer {token}"},
        )
        if answer.status_code != 201:
            raise RuntimeError(f"records were refused: {answer.text[:200]}")
        words.append(word.encode())
    return tokens, words


def _publish(ground: Ground, store: str) -> int:
    """Make the head list, which few users are too few for: whatever comes of it, their records go."""
    ledger = Ledger.open(ground.folder / "ledger.db")
    ledger.open_account("browser users", "replace-one", Budget(8, 0))
    ledger.open_account("browser users who opted in", "replace-one", Budget(8, 1e-4))
    task = Task.loads(SEARCHES).id
    code, *_ = ground.collect("advance", "--to", "head_published", "--task", task, "--store", store)
    for to in ("reports_open", "closed"):  # refused where the noise left no list: then the epoch is over already
        ground.collect("advance", "--to", to, "--task", task, "--store", store)
    return code


def _key_bytes(folder: Path) -> list[bytes]:
    """The keys in a folder of keys: the last 32 bytes of each file, and all of it in hexadecimal."""
    found = [path.read_bytes()[-32:] for path in sorted(folder.rglob("*")) if path.is_file()]
    return [one for one in found if len(one) == 32]


def _digests(given: list[Report]) -> Iterator[bytes]:
    """What somebody computes who knows all of a report but its payload, and tries them all: the one that is true."""
    for one in given:
        for data in (one.to_bytes(), one.to_bytes()[1:], one.id + one.payload, one.payload + one.id):
            for function in _HASHES:
                yield function(data)[:16]


# ---- searching ---------------------------------------------------------------------------------------------


def _shorten(ground: Ground) -> str:
    """Do what the documentation says shortens the write-ahead log; gives what is searched."""
    if ground.kind == "sqlite":
        return "the folders of store, keys and ledger"
    ground.cluster.execute(
        "ALTER SYSTEM SET wal_recycle = off", "SELECT pg_reload_conf()", "SELECT pg_switch_wal()", "CHECKPOINT",
        "SELECT pg_switch_wal()", "CHECKPOINT",
    )  # fmt: skip
    return "the whole data directory with a shortened pg_wal"


def _files(ground: Ground, store: str) -> list[Path]:
    folders = [ground.folder]
    if ground.kind == "postgresql":
        folders.append(ground.cluster.data)
    else:
        folders.append(Path(store).parent)
    found = {path for folder in folders for path in folder.rglob("*") if path.is_file() and path.stat().st_size}
    return sorted(path for path in found if path.suffix != ".toml")


def _list(found: dict[bytes, str]) -> str:
    places = Counter(re.sub(r"\d{3,}", "N", place) for place in found.values())
    return f"{len(found)}" + (f" in {', '.join(f'{name}: {n}' for name, n in places.most_common(3))}" if found else "")


# ---- order and company -------------------------------------------------------------------------------------


def _order(tried: str, groups: list[list[Report]], places: Places) -> Check:
    """Compare where ids are in a file, and in each page of it, with when they came."""
    most, place, many = 0.0, "", 0
    for given in groups:
        arrival = {one.id: number for number, one in enumerate(given)}
        for path, first in places.by_file(arrival).items():
            if len(first) < 20:
                continue
            many += len(first)
            pairs = [(at, arrival[found]) for found, at in first.items()]
            scores = [_sigmas([pairs])] + [_sigmas(_split(pairs, size)) for size in _PAGES]
            if max(scores) > most:
                most, place = max(scores), path
    seen = f"at most {most:.1f} standard deviations from no correlation ({place}; {many} ids)"
    return Check(tried, f"no correlation beyond {_SIGMAS:.0f} standard deviations", seen, most <= _SIGMAS and many > 0)


def _split(pairs: list[tuple[int, int]], size: int) -> list[list[tuple[int, int]]]:
    pages = defaultdict(list)
    for at, number in pairs:
        pages[at // size].append((at, number))
    return list(pages.values())


def _sigmas(pages: list[list[tuple[int, int]]]) -> float:
    """Spearman's rank correlation within pages, put together, in standard deviations of no correlation."""
    total, used = 0.0, 0
    for page in pages:
        if len(page) < 5:
            continue
        places, numbers = (rankdata(column) for column in zip(*page, strict=True))
        places, numbers = places - places.mean(), numbers - numbers.mean()
        rho = float((places * numbers).sum() / math.sqrt((places**2).sum() * (numbers**2).sum()))
        total += rho * math.sqrt(len(page) - 1)  # of variance 1 where there is none
        used += 1
    return abs(total) / math.sqrt(used) if used else 0.0


def _company(ground: Ground, two: list[Report], files: list[Path], places: Places) -> Check:
    """Try to link the two reports of one request by the transaction that wrote them (xmin), dead rows included."""
    partner = {}
    for first, second in zip(two[::2], two[1::2], strict=True):
        partner[first.id], partner[second.id] = second.id, first.id
    names = {name for name, first in places.by_file(partner).items() if first and "/" not in name}
    linked: set[bytes] = set()
    seen: set[bytes] = set()
    for path in files:
        if path.name not in names or ground.cluster.data not in path.parents:
            continue
        data, written = path.read_bytes(), defaultdict(set)
        rows = [(row, one) for row in _heap_rows(data) for one in partner if one in row]
        if not rows:  # not a table
            continue
        # Where the id is in a row; so the transaction is found of rows too that are dead and not overwritten yet.
        (distance, _), *_ = Counter(row.index(one) for row, one in rows).most_common(1)
        for one in partner:
            for at in places.all_of(path.name, one):
                written[data[at - distance : at - distance + 4]].add(one)
        seen |= {one for ids in written.values() for one in ids}
        # A transaction of many uploads tells nothing of one; of few it does.
        linked |= {one for ids in written.values() if len(ids) <= 4 for one in ids if partner[one] in ids}
    text = f"{len(linked) // 2} of {len(two) // 2} pairs linked ({len(seen)} ids in rows)"
    tried = "the two reports of one request, by the transaction that wrote their rows, living or dead, after closing"
    return Check(tried, "no pair is linked", text, not linked and bool(seen))


def _heap_rows(data: bytes) -> Iterator[bytes]:
    """The rows of a file of PostgreSQL pages that is a table; each begins with the transaction that wrote it."""
    for start in range(0, len(data) - 8191, 8192):
        page = data[start : start + 8192]
        lower, upper, special = (int.from_bytes(page[at : at + 2], "little") for at in (12, 14, 16))
        if not 24 <= lower <= upper <= special == 8192:  # pages of indexes have a special part
            continue
        for at in range(24, lower, 4):
            pointer = int.from_bytes(page[at : at + 4], "little")
            offset, length = pointer & 0x7FFF, pointer >> 17
            if length >= 24 and offset + length <= 8192:
                yield page[offset : offset + length]
