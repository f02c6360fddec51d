"""Plan a release of a search log, with its noise and cost, and draw its tables once it is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from hushquery.core.budget import Budget, Number, Unit, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.ledger.entries import clean_text
from hushquery.curator.calibrate import ReleaseSpec, ReleaseSteps, SelectorName, calibrate
from hushquery.curator.counting import Bound, Keep, released_placeholder, released_table
from hushquery.engine import as_table, fetch, no_such_column
from hushquery.errors import DataError, UsageError
from hushquery.log import Log, read_log
from hushquery.log.normalise import normal_query, normal_url
from hushquery.log.tables import read_table
from hushquery.noise.sampler import Bits
from hushquery.plan import Paid, Plan, Progress
from hushquery.release import Release

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReleasePlan", "draw_tables", "plan_release"]

UNIT = Unit("user", "add-remove")


def plan_release(
    log: Any,
    *,
    population: str,
    queries_per_user: int,
    budget: Budget | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    unit: Unit | str = UNIT,
    clicks_per_user: int | None = None,
    reformulations_per_user: int | None = None,
    selector: SelectorName = "auto",
    keep: Keep = "first",
    shares: Mapping[str, Number] | None = None,
    select_only: bool = False,
    public_pairs: Any = None,
    session_gap: float = 1800.0,
    expected_false_pairs: float = 1.0,
) -> ReleasePlan:
    """Plan the release of a search log. Reads no row; ``plan.run(ledger)`` spends first and then reads.

    Args:
        log: A log from :func:`hushquery.log.read_log`, or anything it reads.
        population: The public name of these people and of their one ledger account: the same for all files of theirs.
        queries_per_user: The most distinct queries of one user that count (searches, for ``korolova2009``).
        budget: Of the whole release, for one user, add-remove; or pass its two numbers.
        epsilon: Of the whole release.
        delta: Of the whole release. Well below one over the number of users.
        unit: Whom the release protects. It can only be one user, add-remove.
        clicks_per_user: The most (query, URL) pairs of one user that count; None for no clicks.
        reformulations_per_user: The most (query, next query) pairs of one user that count; None for none.
        selector: How queries are selected; ``auto`` takes the lower threshold of ``laplace`` and ``gaussian``.
        keep: Which of a user's keys count: ``first`` by time, or ``random``; without times always ``random``.
        shares: Of the budget, by table.
        select_only: Only the list of queries, without counts.
        public_pairs: A public list of (query, URL) pairs: a file or table with these two columns.
        session_gap: Seconds without a search after which a new session begins.
        expected_false_pairs: How many published reformulations may be pure noise, in expectation.

    Warns (:class:`~hushquery.PrivacyWarning`) above epsilon 5 or delta 1e-4; refuses real noise at delta 0.1 or more.

    **Guarantee:** (epsilon, delta) for one user, add-remove, from the exact numbers of every step: ``plan.explain()``.
    """
    if Unit.of(unit) != UNIT:
        raise UsageError(
            f"a release protects {UNIT}, not {Unit.of(unit)}",
            fix="Leave the unit out; map the column of users: --columns user=NAME",
        )
    secret = log if isinstance(log, Log) else read_log(log)
    notes = []
    if select_only and (clicks_per_user or reformulations_per_user):
        notes.append("only the list of queries is made: no clicks and no reformulations")
        clicks_per_user = reformulations_per_user = None
    for most, there, table, column in (
        (clicks_per_user, secret.has_url, "clicks", "url"),
        (reformulations_per_user, secret.has_time, "reformulations", "time"),
    ):
        if most is not None and not there:
            raise UsageError(
                f"The log has no {'URL' if column == 'url' else column} column, so {table} cannot be counted",
                fix=f"Leave out --{table}-per-user ({table}_per_user), or map the column of "
                f"{'URL' if column == 'url' else column}s: --columns {column}=NAME, or columns={{'{column}': 'NAME'}}",
            )
    listed = None if public_pairs is None or clicks_per_user is None else _read_public_pairs(public_pairs, secret)
    spec = ReleaseSpec(
        Budget.of(budget, epsilon, delta),
        queries_per_user,
        clicks_per_user,
        reformulations_per_user,
        selector,
        shares,
        select_only,
        has_public_pairs=listed is not None,
    )
    spec.budget.warn()
    steps = calibrate(spec, public_pairs=listed, session_gap=session_gap, expected_false_pairs=expected_false_pairs)
    return ReleasePlan(secret, clean_text(population, "the population"), spec, steps, Bound(keep), tuple(notes))


@dataclass(frozen=True, repr=False)
class ReleasePlan(Plan[Release]):
    """The steps of a release with all their numbers; nothing has run and no row has been read."""

    log: Log
    population: str
    spec: ReleaseSpec
    calibrated: ReleaseSteps
    bound: Bound
    notes: tuple[str, ...] = ()
    unit: ClassVar[Unit] = UNIT

    @property
    def budget(self) -> Budget:
        """The budget of the whole release."""
        return self.spec.budget

    def _steps(self) -> list[Step]:
        return [Step(s.name, s.detail, s.parameters.loss) for s in self.calibrated.steps()]

    def _explained(self) -> list[str]:
        delta, steps, which = self.budget.delta, self.calibrated, self.bound.words(self.log.table)
        shared = ", ".join(f"{name} {float(share):.3g}" for name, share in steps.shares.items())
        of = "mu^2" if steps.loss.mu_squared or steps.loss.sparse else "epsilon"
        lines = [*(f"- {step}" for step in self.log.explained), f"- the budget is shared in parts of {of}: {shared}"]
        for i, step in enumerate(steps.steps(), 1):
            parameters, cost = step.parameters.to_json(), step.parameters.loss.epsilon(delta)
            numbers = {name: parameters.get(name) for name in ("scale", "sigma", "epsilon", "delta", "threshold")}
            shown = ", ".join(
                f"{name} {f'{float(Fraction(value)):.4g}' if isinstance(value, str) else value}"
                for name, value in numbers.items()
                if value is not None
            )
            lines += [
                f"{i}. {step.name}: {step.detail}",
                f"   bound: at most {parameters['keys_per_user']} per user, {which}; {shown}",
                f"   alone it costs epsilon {format_epsilon(cost)} at delta {format_delta(delta)}",
            ]
        return lines + [f"note: {note}" for note in self.notes]

    def _ask(self) -> dict[str, Any]:
        table, steps = self.log.rows, self.calibrated
        expressions = dict(steps.selector.expressions(table, self.bound))
        if steps.clicks:
            expressions["clicks"] = steps.clicks.expression(self.log.clicks_of(released_placeholder()), self.bound)
        if steps.reformulations:
            expressions["reformulations"] = steps.reformulations.expression(table, self.bound)
        return expressions

    def _read(self, paid: Paid) -> Release:
        tables = draw_tables(self.calibrated, self.log, self.bound.keep, paid.bits, paid.tell)
        return self._release(tables, paid.guarantee)

    def _release(self, tables: Mapping[str, Any], guarantee: Guarantee) -> Release:
        steps, spec = self.calibrated, self.spec
        released, notes = tables["queries"].num_rows, []
        parameters: dict[str, Any] = {
            "epsilon": str(spec.budget.epsilon),
            "delta": str(spec.budget.delta),
            "selector": steps.selector.name,
            "chosen_by": spec.selector,
            "select_only": spec.select_only,
            "queries_per_user": spec.queries_per_user,
            "clicks_per_user": spec.clicks_per_user,
            "reformulations_per_user": spec.reformulations_per_user,
            "shares": {name: str(share) for name, share in steps.shares.items()},
            "keep": self.bound.order(self.log.table),
            "log_steps": list(self.log.steps),
            "public_results": spec.has_public_pairs,
        }
        if steps.reformulations:
            parameters |= {
                "session_gap": steps.reformulations.session_gap,
                "reformulations_published_from": steps.reformulations.publish_from(released) if released > 1 else None,
                "expected_false_reformulations": steps.reformulations.expected_false(released) if released > 1 else 0.0,
            }
            most = steps.reformulations.expected_false_pairs
            notes.append(f"At most {most:g} of the reformulations are expected to be pure noise.")
        recorded = []
        for step in steps.steps():
            numbers = step.parameters.to_json()
            # Only where the noise that met the threshold is the noise that is published can the table be checked.
            if step.final and numbers.get("threshold") is not None and not spec.select_only:
                numbers["table"] = step.table
            recorded.append({"parameters": numbers})
        return Release.make(
            tables,
            [guarantee],
            kind="curator",
            parameters=parameters,
            steps=recorded,
            meanings={name: self._meaning(name) for name in tables},
            notes=notes,
        )

    def _meaning(self, table: str) -> str:
        steps, which = self.calibrated, self.bound.words(self.log.table)
        if table == "clicks" and steps.clicks:
            return (
                "noisy number of users who clicked the URL after the query, each user counted once per pair and in at "
                f"most {steps.clicks.step.keys_per_user} pairs, {which}"
            )
        if table == "reformulations" and steps.reformulations:
            return (
                "noisy number of users who searched the second query right after the first, each user counted once per "
                f"pair and in at most {steps.reformulations.step.keys_per_user} pairs, {which}"
            )
        if steps.selector.counts is None:
            return "queries that enough users searched for; without counts"
        keys = {"laplace": "queries", "gaussian": "queries", "korolova2009": "searches"}
        most = f"{steps.selector.selection.keys_per_user} {keys.get(steps.selector.name, 'released queries')}"
        return f"noisy number of {steps.selector.counts_what}, each user counted in at most {most}, {which}"


def draw_tables(
    steps: ReleaseSteps, log: Log, keep: Keep, bits: Bits, progress: Progress | None = None
) -> dict[str, pa.Table]:
    """Draw every table of a release, queries first. The spend must have been recorded before."""
    tell = progress or (lambda *_: None)
    bound = Bound(keep, "".join(f"{word:016x}" for word in bits.words(2).tolist()))
    stages = 2 + (steps.clicks is not None) + (steps.reformulations is not None)
    tell("selecting queries", 0.0)
    tables = {"queries": steps.selector.run(log.rows, bound, bits)}
    if steps.clicks:
        tell("counting clicks", 1 / stages)
        pairs = log.clicks_of(released_table(tables["queries"]))
        tables["clicks"] = steps.clicks.run(pairs, bound, tables["queries"], bits)
    if steps.reformulations:
        tell("counting reformulations", (stages - 2) / stages)
        tables["reformulations"] = steps.reformulations.run(log.rows, bound, tables["queries"], bits)
    tell("writing", (stages - 1) / stages)
    return tables


def _read_public_pairs(public_pairs: Any, log: Log) -> Any:
    """Read the public list of pairs into memory (engines join their own tables only), in the log's normal form."""
    import ibis

    table = read_table(public_pairs, types={"query": "string", "url": "string"}, public=True)
    for column in ("query", "url"):
        if column not in table.columns:
            raise no_such_column(column, table.columns, "a public list of results has the columns query and url")
    listed = as_table(fetch(table.select("query", "url")))
    if log.normalises:
        listed = listed.mutate(query=normal_query(listed["query"], "duckdb"), url=normal_url(listed.url, "duckdb"))
    pairs = fetch(listed)
    if pairs["query"].null_count or pairs["url"].null_count:
        raise DataError("a row of the public list has no query or no url", fix="Fill it in, or delete the row")
    return ibis.memtable(pairs)
