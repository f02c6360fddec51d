"""The opt-in half of BLENDER as audited mechanisms: head lists with reused counts, and split measurement."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from hushquery.core.budget import Relation
from hushquery.core.loss import LaplaceHistogram, Loss
from hushquery.core.registry import SUPPRESSED, Kind, Law, Pair
from hushquery.curator.audit import (
    COPIES,
    Key,
    LogMechanism,
    Rows,
    arrow_of,
    copies_of,
    exact_counts,
    first_keys,
    many_logs,
    passing_law,
    read_dataset,
    rows_of,
    searcher,
    seen_in,
    totals,
)
from hushquery.curator.counting import QUERY, Bound, law_of, noisy_on_public_keys, passing, tally
from hushquery.hybrid.headlist import RECORD, calibrate_head, draw_head, number_of_users, records_of
from hushquery.hybrid.remeasure import Parts, calibrate_split, head_counts, measure_parts, noisy_rest, split_users
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import Bits, IntArray

#: The URL of the audited logs.
CLICKED = "https://x.example/"
#: The records of the audited logs: one query with and without a click, and another one.
RECORDS: tuple[Key, ...] = (("ant", CLICKED), ("ant", ""), ("bee", CLICKED))

Outcome = tuple[int, ...]


def holders(name: str, size: int, record: Key) -> Rows:
    """Return the rows of so many users who hold one record each."""
    query, url = record
    return tuple(row for i in range(size) for row in searcher(f"{name} {i}", query, url=url or None))


def _records_in(dataset: Rows, most: int) -> list[list[Key]]:
    """Return each user's first records by the definition; a search without a query is none."""
    return first_keys(((user, time, (query, url or "")) for user, time, query, url in dataset if query), most)


@dataclass(frozen=True)
class HeadDraws:
    """What is published of exact counts; the audit's last column is high if the first is high and the second low."""

    step: LaplaceHistogram

    @property
    def level(self) -> int:
        """A count that is published nearly always."""
        return (self.step.threshold or 0) + 3

    def runs(self, counts: Sequence[int], users: int, n: int, bits: Bits) -> IntArray:
        """Draw the step of a head list on ``n`` copies of the counts."""
        del users
        copies = copies_of(np.tile(np.array(counts, dtype=np.int64), (n, 1)))
        return self.shown(rows_of(passing(copies, QUERY, self.step, bits), (n, len(counts))))

    def shown(self, out: IntArray) -> IntArray:
        """Add the last column."""
        hidden = (out[:, :2] == SUPPRESSED).any(axis=1)
        first, second = np.where(hidden, 0, out[:, 0]), np.where(hidden, 0, out[:, 1])
        apart = np.minimum(first - self.level, self.level - second)
        return np.column_stack([out, np.where(hidden, SUPPRESSED, apart)])

    def law(self, counts: Sequence[int], users: int) -> Mapping[Outcome, float]:
        """Enumerate what is published."""
        del users
        law = product_law([passing_law(count, self.step) for count in counts])
        shown = self.shown(np.array(list(law), dtype=np.int64))
        return dict(zip(map(tuple, shown.tolist()), law.values(), strict=True))


@dataclass(frozen=True)
class HeadList(LogMechanism):
    """The head list of the opt-in users with the noisy counts that selected it, one record per user.

    **Guarantee:** (2 m_O/b, 1 - (1 - a^(R-1)/(1+a))^m_O) for one opt-in user, replace-one (docs/proofs/headlist.md).
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough.
    **Reference:** Avent et al. 2017, figure 3, with the noise reused and the smallest integer threshold.

    >>> HeadList.calibrate(Fraction(1), Fraction(1, 10**5)).draws.step.threshold
    24
    """

    draws: HeadDraws
    neighbours: tuple[Pair[Rows], ...] = ()
    keys: tuple[Key, ...] = RECORDS
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "headlist"
    summary: ClassVar[str] = "records of opt-in users with discrete Laplace noise and a threshold, counts reused"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    audit_runs: ClassVar[int] = 1_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> HeadList:
        """Calibrate as a head list of one record per user would."""
        return cls(HeadDraws(calibrate_head(epsilon=epsilon, delta=delta)))

    @property
    def loss(self) -> Loss:
        """What the step costs."""
        return self.draws.step.loss

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Count users per record, and last the users themselves."""
        log = read_dataset(arrow_of(dataset))
        records = records_of(log, self.bound, self.draws.step.keys_per_user)
        return (*exact_counts(tally(records, RECORD), self.keys, RECORD), number_of_users(log))

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Each user once per record, in their first m_O; and last the users themselves."""
        records = _records_in(dataset, self.draws.step.keys_per_user)
        return (*totals(records, self.keys), len({user for user, *_ in dataset}))

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the head list, ``n`` times."""
        *counts, users = self.counts(dataset)
        return self.draws.runs(counts, users, n, bits)

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Make the head list of a log of many copies of the dataset."""
        import pyarrow as pa

        log = read_dataset(many_logs(dataset, COPIES))
        head = draw_head(log, self.draws.step, bound=self.bound, bits=bits)
        listed = pa.table({"query": head.query, "url": head.url, "count": head.counts})
        return self.draws.shown(seen_in(listed, self.keys, RECORD, COPIES)), self.law(dataset)

    def law(self, dataset: Rows) -> Mapping[Outcome, float]:
        """Enumerate the head list."""
        *counts, users = self.exact(dataset)
        return self.draws.law(counts, users)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user's records exchanged: shared, new, none at all, or more than the cap."""
        if self.neighbours:
            return self.neighbours
        around = self.draws.level
        first, second, third = self.keys
        both = holders("a", around, first) + holders("b", around, second)
        one = holders("a", around, first)
        greedy = searcher("zoe", *("bee", "ant") * 20, apart=0, url=CLICKED) + searcher("zoe", "ant", apart=0)
        return [
            Pair("a shared record for another", both + holders("zoe", 1, first), both + holders("zoe", 1, second)),
            Pair("a new record for another", holders("zoe", 1, first), holders("zoe", 1, third)),
            Pair("a shared record for a new one", one + holders("zoe", 1, first), one + holders("zoe", 1, third)),
            Pair("a user with a record for one without", holders("zoe", 1, first), (("zoe 0", 0, "", None),)),
            Pair("more records than the cap for none", one + greedy, (*one, ("zoe", 0, "", None))),
        ]


@dataclass(frozen=True)
class SplitEstimate(LogMechanism):
    """Fresh noisy counts of a head list and its wildcard (as what it leaves), on opt-in users that did not find it.

    **Guarantee:** pure 2 m_O/b for a user of T, replace-one, and nothing for a user of S, who pays for the head list; a
    user is in one part (docs/proofs/headlist.md).
    **Estimator:** the noisy count, unbiased; variance 2a/(1-a)^2, a = e^(-1/b).
    **Reference:** Avent et al. 2017, figure 4.

    >>> SplitEstimate.calibrate(Fraction(1), Fraction(1, 10**5)).loss.epsilon(0)
    1.0
    """

    step: LaplaceHistogram
    head: tuple[Key, ...] = RECORDS[:2]
    key: str = "parts"
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "headlist-split"
    summary: ClassVar[str] = "a head list and the wildcard counted by the opt-in users who did not find it"
    kind: ClassVar[Kind] = "mechanism"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    audit_runs: ClassVar[int] = 400_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> SplitEstimate:
        """Calibrate as a split with one record per user would."""
        return cls(calibrate_split(epsilon=epsilon, delta=delta)[1])

    @property
    def loss(self) -> Loss:
        """What a user of T pays."""
        return self.step.loss

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Split, count the head records of T, and last what the wildcard leaves: as much as they have together."""
        log = read_dataset(arrow_of(dataset))
        parts = split_users(log, Fraction(1, 2), self.key)
        records, most = [(query, url) for query, url in self.head], self.step.keys_per_user
        counts = exact_counts(head_counts(log, records, self.bound, most, parts.measurers), self.head, RECORD)
        return (*counts, sum(counts))

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """The same by the definition: of the users in the order of their digests, the second half measures."""
        measurers = self.ranked(sorted({user for user, *_ in dataset}))[1]
        rows = tuple(row for row in dataset if row[0] in measurers)
        counts = totals(_records_in(rows, self.step.keys_per_user), self.head)
        return (*counts, sum(counts))

    def ranked(self, users: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Split users as the key does: who finds the head list, and who measures it."""
        order = sorted(users, key=lambda name: hashlib.md5(f"{self.key}|{name}".encode()).hexdigest())  # noqa: S324
        return order[: len(order) // 2], order[len(order) // 2 :]

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Measure ``n`` copies of the counts, and the rest of each; the noise is symmetric, its sign no matter."""
        import pyarrow as pa

        *records, rest = self.counts(dataset)
        exact = np.tile(np.array(records, dtype=np.int64), (n, 1))
        public = pa.table({"query": pa.array(np.arange(exact.size), pa.int64())})
        noisy = rows_of(noisy_on_public_keys(copies_of(exact), public, QUERY, self.step, bits), exact.shape)
        return np.column_stack([noisy, noisy_rest(np.full(n, rest, dtype=np.int64), self.step, bits)])

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Measure the head records of a log of many copies, the same users of each; not the wildcard, there is one."""
        import ibis
        import pyarrow as pa

        users = [sorted(part) for part in self.ranked(sorted({user for user, *_ in dataset}))]
        named = [[f"{copy:06} {user}" for copy in range(COPIES) for user in part] for part in users]
        tables = [ibis.memtable(pa.table({"user": part})) for part in named]
        parts = Parts(*tables, *(len(part) for part in named))
        head = [(f"{copy:06} {query}", url) for copy in range(COPIES) for query, url in self.head]
        measured = measure_parts(
            read_dataset(many_logs(dataset, COPIES)), head, (), self.step, parts, len(head), self.bound, bits
        )
        counts = np.rint(measured.values * measured.n).astype(np.int64)
        query, url = zip(*measured.records, strict=True)
        listed = pa.table({"query": query, "url": url, "count": counts})
        law = product_law([noisy_law(count, law_of(self.step)) for count in self.exact(dataset)[:-1]])
        return seen_in(listed, self.head, RECORD, COPIES), law

    def law(self, dataset: Rows) -> Mapping[Outcome, float]:
        """Enumerate the noisy counts."""
        return product_law([noisy_law(count, law_of(self.step)) for count in self.exact(dataset)])

    def truth(self, dataset: Rows) -> Sequence[float]:
        """The counts themselves."""
        return self.exact(dataset)

    def variance(self, dataset: Rows) -> Sequence[float]:
        """The variance of the noise."""
        return [law_of(self.step).variance] * len(self.exact(dataset))

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user's record exchanged, a user of T or of S."""
        names = [f"user {i}" for i in range(6)]
        (finder, *_), (*_, measurer) = self.ranked(names)
        first, second, other = RECORDS

        def dataset(user: str, record: Key) -> Rows:
            records = dict.fromkeys(names, first) | {user: record}
            return tuple(
                row for name, (query, url) in records.items() for row in searcher(name, query, url=url or None)
            )

        return [
            Pair("a measured head record for one outside", dataset(measurer, first), dataset(measurer, other)),
            Pair("a measured head record for another", dataset(measurer, first), dataset(measurer, second)),
            Pair("a measured head record for none", dataset(measurer, first), dataset(measurer, ("", ""))),
            Pair("a record of a user who found the head list", dataset(finder, first), dataset(finder, other)),
        ]
