"""The release itself: made once by a curator, saved, loaded, and read by everybody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from hushquery.core.guarantee import Guarantee
from hushquery.errors import DataError, UsageError
from hushquery.release import release as files
from hushquery.release.manifest import make_manifest
from hushquery.release.tables import KINDS, check_references, checked_table, measures_of

__all__ = ["Release"]


@dataclass(frozen=True, repr=False)
class Release:
    """Public tables, what their publication promises, and how they were made. Made by :meth:`make` or :meth:`load`.

    Args:
        tables: Any of ``queries``, ``clicks``, ``reformulations`` and ``records``.
        guarantees: One per population.
        manifest: How it was made, as plain JSON data.

    >>> from hushquery.core.guarantee import Guarantee, Step
    >>> from hushquery.core.loss import LaplaceHistogram
    >>> from hushquery.core.budget import Unit
    >>> from fractions import Fraction
    >>> ran = LaplaceHistogram(1, Fraction(2), 30)
    >>> step = Step("laplace", "queries with noise of scale 2, released from 30 on", ran.loss)
    >>> promise = Guarantee.of("readers of example.org", "curator", Unit("user", "add-remove"), [step], delta=1e-6)
    >>> release = Release.make(
    ...     {"queries": pa.table({"query": ["weather", "news"]})},
    ...     [promise],
    ...     kind="curator",
    ...     parameters={"epsilon": "1/2", "delta": 1e-6},
    ...     steps=[{"parameters": ran.to_json()}],
    ...     meanings={"queries": "queries that enough users searched for"},
    ... )
    >>> release
    Release(2 queries; epsilon 0.5, delta 1e-06 for one user, present or absent (add-remove), of "readers of
    example.org")
    >>> release.queries["query"].to_pylist()
    ['news', 'weather']
    """

    tables: Mapping[str, pa.Table]
    guarantees: tuple[Guarantee, ...]
    manifest: Mapping[str, Any]

    @classmethod
    def make(
        cls,
        tables: Mapping[str, pa.Table],
        guarantees: Sequence[Guarantee],
        *,
        kind: str,
        parameters: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        meanings: Mapping[str, str],
        notes: Sequence[str] = (),
        created: date | None = None,
        level: float = 0.95,
    ) -> Release:
        """Make a release from what may be published, in one order and form whatever made it.

        Args:
            tables: The tables, by name; their rows in any order. Their columns say whether they hold counts or
                shares; a release holds one of the two.
            guarantees: What is promised, one per population.
            kind: How it came about, such as ``curator`` or ``hybrid``.
            parameters: What the steward chose. Nothing that was computed from the log. A release of shares also states
                ``rest`` here: the share of everything that is not listed.
            steps: One mapping per randomised step, in the order of the guarantees' steps, with ``parameters``: the
                exact numbers it ran with, from which :func:`hushquery.release.verify` computes its cost anew.
                ``threshold`` and ``table`` among them say that no count in that table is below the threshold.
            meanings: What a count or a share is, in a sentence per table.
            notes: What else a reader should know.
            created: The day; today in UTC by default.
            level: The coverage of the intervals.
        """
        if not tables:
            raise UsageError("a release needs a table", fix=f"Give any of: {', '.join(KINDS)}")
        if not guarantees or len({g.population for g in guarantees}) < len(guarantees):
            raise UsageError("a release needs one guarantee per population", fix="State what is promised, and to whom")
        ready = {name: checked_table(name, tables[name]) for name in sorted(tables, key=_rank)}
        check_references(ready, parameters)
        if set(meanings) != set(ready):
            raise UsageError(
                "a release says of each of its tables what a number in it is", fix="Give meanings by table"
            )
        manifest = make_manifest(
            guarantees,
            kind=kind,
            parameters=parameters,
            steps=steps,
            meanings={name: meanings[name] for name in ready},
            measures=measures_of(ready),
            notes=notes,
            created=created,
            level=level,
        )
        return cls(ready, tuple(guarantees), manifest)

    @property
    def queries(self) -> pa.Table | None:
        """The queries, or None."""
        return self.tables.get("queries")

    @property
    def clicks(self) -> pa.Table | None:
        """The clicks, or None."""
        return self.tables.get("clicks")

    @property
    def reformulations(self) -> pa.Table | None:
        """The reformulations, or None."""
        return self.tables.get("reformulations")

    @property
    def records(self) -> pa.Table | None:
        """The two estimates behind each blended share, or None."""
        return self.tables.get("records")

    @property
    def test_noise(self) -> bool:
        """Whether the noise came from a test's seed, so that nothing is promised."""
        return any(guarantee.test_noise for guarantee in self.guarantees)

    def save(self, folder: Path | str, force: bool = False, *, budget: Mapping[str, Any] | None = None) -> Path:
        """Save the release as a folder: whole, or not at all.

        Args:
            folder: Where to; must not exist.
            force: Replace an older release there. Nothing else is ever replaced.
            budget: What is left of the population's budget, to show on the page if the steward wants it public:
                ``population, epsilon, delta, remaining_epsilon``.
        """
        files.check_target(folder, force)
        data = {f"{name}.parquet": files.parquet_bytes(table) for name, table in self.tables.items()}
        listed: dict[str, dict[str, Any]] = {
            f"{name}.parquet": {"rows": table.num_rows, "columns": table.column_names}
            for name, table in self.tables.items()
        }
        data |= {files.CARD: self.card().encode(), files.PAGE: self.page(budget=budget).encode()}
        manifest = {
            **self.manifest,
            "files": {name: {"sha256": files.sha256(body), **listed.get(name, {})} for name, body in data.items()},
        }
        data[files.MANIFEST] = files.manifest_bytes(files.sign(manifest))
        return files.write_folder(folder, data, force)

    @classmethod
    def load(cls, folder: Path | str) -> Release:
        """Load a release; refuse one whose files do not have the hashes that its manifest states."""
        from hushquery.release.verification import read_release

        files.check_there(Path(folder))
        release, problems, _ = read_release(Path(folder))
        if release is None or problems:
            raise DataError(
                f"{folder} can't be used as a release",
                why="; ".join(problems[:5]),
                fix="Get it again; `hushquery verify` tells everything that is wrong",
            )
        return release

    def card(self) -> str:
        """Give the data card: what this is and what it promises, in plain words, as Markdown."""
        from hushquery.release.page import card

        return card(self.tables, self.guarantees, self.manifest)

    def page(self, *, budget: Mapping[str, Any] | None = None) -> str:
        """Give the page to look at, as HTML that needs no network; only the search box of shares needs a script."""
        from hushquery.release.page import page

        return page(self.tables, self.guarantees, self.manifest, budget=budget)

    def to_csv(self, folder: Path | str, force: bool = False) -> Path:
        """Write every table as CSV (RFC 4180) into a new folder, with the manifest and the data card."""
        from hushquery.release.export import to_csv

        return to_csv(self.tables, self.manifest, self.card(), folder, force)

    def to_sqlite(self, file: Path | str, force: bool = False) -> Path:
        """Write every table, and the manifest as a table of its own, into a new SQLite file."""
        from hushquery.release.export import to_sqlite

        return to_sqlite(self.tables, self.manifest, file, force)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{table.num_rows:,} {name}" for name, table in self.tables.items())
        return f"Release({sizes}; {'; '.join(g.summary() for g in self.guarantees)})"

    def _repr_html_(self) -> str:
        from hushquery.release.page import summary

        return summary(self.tables, self.guarantees, self.manifest)


def _rank(name: str) -> int:
    known = list(KINDS)
    return known.index(name) if name in known else len(known)
