"""The log of the benchmarks' one job, made once and kept: what every peer, the plain query and our release all read.

    python benchmarks/job_log.py [--rows 100000,1000000,10000000]

Rows are (user int64, time timestamp, query text, url text or null), in random order. Queries follow Zipf(0.93) over a
pool that grows with the log, each of one to three words; rows per user are log-normal with sigma 1.4; about half of the
rows have a click, on one of the few addresses of the query, the first one most often. The same number of rows gives the
same file. Files lie in the folder that HUSHQUERY_BENCH_CACHE names, or else in benchmarks/.cache.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SIZES = (100_000, 1_000_000, 10_000_000)
ROWS_PER_USER, SIGMA, ZIPF = 1000 / 60, 1.4, 0.93
# With this pool a log of any size has as many distinct queries and singletons as the one the peers were first measured
# on: 39, 353 and 3,243 thousand distinct ones in 0.1, 1 and 10 million rows.
POOL_AT_100K, POOL_SHRINKS = 3.0, 0.07
EXACT_RANKS = 100_000
BATCH = 1_000_000
DAYS, FIRST_MICROSECOND = 30, 1_790_000_000_000_000
WORDS = 30_000
SCHEMA = pa.schema([("user", pa.int64()), ("time", pa.timestamp("us")), ("query", pa.string()), ("url", pa.string())])


def cache() -> Path:
    """Give the folder for what benchmarks make once: logs and the environments of peers."""
    folder = Path(os.environ.get("HUSHQUERY_BENCH_CACHE") or Path(__file__).resolve().parent / ".cache")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def job_log(rows: int) -> Path:
    """Give the log of this many rows; makes it at the first call."""
    path = cache() / f"log-{rows}.parquet"
    if not path.exists():
        print(f"making {path.name}, once", file=sys.stderr)
        unfinished = path.with_suffix(f".{os.getpid()}")
        write(unfinished, rows)
        unfinished.rename(path)
    return path


def write(path: Path, rows: int) -> None:
    """Write a log, batch by batch; only the users of all rows, four bytes each, are held at once."""
    generator = np.random.default_rng(rows)
    users = users_of_rows(rows, generator)
    zipf = Zipf(round(rows * POOL_AT_100K * (rows / 100_000) ** -POOL_SHRINKS))
    words = vocabulary(generator)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for start in range(0, rows, BATCH):
            some = users[start : start + BATCH]
            time = FIRST_MICROSECOND + generator.integers(0, DAYS * 86_400_000_000, len(some))
            rank = zipf.draw(len(some), generator)
            columns = [some.astype(np.int64), time, queries(rank, words), urls(rank, words, generator)]
            arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))


def users_of_rows(rows: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Give the user of each row, in random order; every user has a row at least."""
    users = max(1, round(rows / ROWS_PER_USER))
    weights = generator.lognormal(0, SIGMA, users)
    # A little too few, because rounding up to one row adds some; the rest go to users by their size.
    sizes = np.maximum(1, np.rint(weights * (0.99 * rows / weights.sum()))).astype(np.int64)
    found = np.repeat(np.arange(users, dtype=np.int32), sizes)[:rows]
    found = np.concatenate([found, found[generator.integers(0, len(found), rows - len(found))]])
    generator.shuffle(found)
    return found


class Zipf:
    """Zipf's law over the ranks 0 to n - 1: exact for the first ranks, its integral beyond, so that n costs nothing."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.head = np.cumsum(np.arange(1, min(n, EXACT_RANKS) + 1) ** -ZIPF)
        self.total = self.head[-1] + (self._integral(n) if n > EXACT_RANKS else 0.0)

    def draw(self, size: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
        mass = generator.random(size) * self.total
        rank = np.searchsorted(self.head, mass, side="right")
        tail = mass >= self.head[-1]
        power = (mass[tail] - self.head[-1]) * (1 - ZIPF) + (EXACT_RANKS + 0.5) ** (1 - ZIPF)
        rank[tail] = np.rint(power ** (1 / (1 - ZIPF))).astype(np.int64) - 1
        clipped: np.ndarray[Any, Any] = np.minimum(rank, self.n - 1)
        return clipped

    def _integral(self, n: int) -> float:
        return float(((n + 0.5) ** (1 - ZIPF) - (EXACT_RANKS + 0.5) ** (1 - ZIPF)) / (1 - ZIPF))


def vocabulary(generator: np.random.Generator) -> pa.Array:
    """Make words of three syllables, all different."""
    syllables = np.array([c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"])
    number = generator.permutation(len(syllables) ** 3)[:WORDS]
    first, second, third = number // len(syllables) ** 2, number // len(syllables) % len(syllables), number
    made = np.char.add(np.char.add(syllables[first], syllables[second]), syllables[third % len(syllables)])
    return pa.array(made)


def mixed(number: np.ndarray[Any, Any], salt: int) -> np.ndarray[Any, Any]:
    """Scatter numbers over 31 bits, the same way every time."""
    bits = number.astype(np.uint64) + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(factor)
    return (bits >> np.uint64(33)).astype(np.int64)


def queries(rank: np.ndarray[Any, Any], words: pa.Array) -> pa.Array:
    """Write the query of each rank; no two ranks share one, and only frequent queries have a single word."""
    # An odd factor below 30,000 squared, prime to it, walks through all pairs of words before it repeats one.
    pair = rank * 552_315_611 % WORDS**2
    kind = mixed(rank, 1) % 10
    alone = (rank < WORDS) & (kind < 4)
    three = (kind >= 8) | (rank >= WORDS**2)
    second = pa.array(pair % WORDS, mask=alone)
    third = pa.array(mixed(rank, 2) % WORDS, mask=~three)
    # A single word is that of its rank, which no other rank below 30,000 has.
    first = np.where(alone, rank, pair // WORDS)
    parts = [words.take(pa.array(first)), words.take(second), words.take(third)]
    return pc.binary_join_element_wise(*parts, " ", null_handling="skip")


def urls(rank: np.ndarray[Any, Any], words: pa.Array, generator: np.random.Generator) -> pa.Array:
    """Write the address that was clicked: one of at most six of the query, the first most; none on half the rows."""
    place = np.minimum(generator.geometric(0.55, len(rank)), 1 + mixed(rank, 3) % 6)
    silent = generator.random(len(rank)) < 0.5
    host = words.take(pa.array(mixed(rank * 8 + place // 2, 4) % WORDS, mask=silent))
    page = words.take(pa.array(mixed(rank * 8 + place, 5) % WORDS))
    return pc.binary_join_element_wise("https://", host, pa.scalar(".example.org/"), page, "")


def shape(path: Path) -> dict[str, int]:
    """Count what a log has."""
    import duckdb

    found = duckdb.execute(
        """
        WITH queries AS (SELECT query, count(*) AS n FROM read_parquet($log) GROUP BY 1),
             users AS (SELECT "user", count(*) AS n FROM read_parquet($log) GROUP BY 1)
        SELECT (SELECT sum(n) FROM users), (SELECT count(*) FROM users), (SELECT count(*) FROM queries),
               (SELECT count(*) FROM queries WHERE n = 1), (SELECT max(n) FROM users),
               (SELECT sum(least(n, 20)) FROM users), (SELECT count(url) FROM read_parquet($log))
        """,
        {"log": str(path)},
    ).fetchone()
    names = ("rows", "users", "distinct_queries", "singletons", "most_rows_of_a_user", "rows_kept_at_20", "clicks")
    told = dict(zip(names, map(int, found or ()), strict=True))
    return {**told, "megabytes": round(path.stat().st_size / 1e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(map(str, SIZES)), help="numbers of rows, with commas between")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = [shape(job_log(int(rows))) for rows in given.rows.split(",")]
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(" ".join(f"{name:>20}" for name in found[0]))
    for one in found:
        print(" ".join(f"{value:>20,}" for value in one.values()))


if __name__ == "__main__":
    main()
