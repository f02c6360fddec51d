"""ReleasePlan: what will be published from a log, with what noise and at what cost, before anything has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hushquery.core.budget import Budget, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.ledger.names import clean_text
from hushquery.core.rounding import Number
from hushquery.core.unit import Unit
from hushquery.curator.bound import Bound, Keep
from hushquery.curator.calibrate import Calibrated, Request, SelectorName, calibrate
from hushquery.curator.draw import draw_tables
from hushquery.curator.select import released_placeholder
from hushquery.engine import as_table, fetch, no_such_column
from hushquery.errors import DataError, UsageError
from hushquery.log import Log, read_log
from hushquery.log.normalise import normal_query, normal_url
from hushquery.log.sources import read_table
from hushquery.plan import Charge, Paid, Plan
from hushquery.release import Release

__all__ = ["ReleasePlan", "curate"]

UNIT = Unit("user", "add-remove")


def curate(
    log: Any,
    *,
    epsilon: Number,
    delta: Number,
    queries_per_user: int,
    population: str,
    clicks_per_user: int | None = None,
    reformulations_per_user: int | None = None,
    selector: SelectorName = "auto",
    keep: Keep = "first",
    shares: Mapping[str, Number] | None = None,
    select_only: bool = False,
    results: Any = None,
    session_gap: float = 1800.0,
    false_edges: float = 1.0,
) -> ReleasePlan:
    """Plan the release of a search log. Reads no row; ``plan.run(ledger)`` spends first and then reads.

    Args:
        log: What :func:`hushquery.log.read_log` gives, or anything it reads.
        epsilon: Of the whole release, for one user, add-remove.
        delta: Of the whole release. Well below one over the number of users.
        queries_per_user: The most distinct queries of one user that count (searches, for ``korolova2009``).
        population: Whose log it is, as it will be named in public. It names their one account in the ledger: always
            the same name for the same people, whatever file their data is in.
        clicks_per_user: The most (query, URL) pairs of one user that count; None for no clicks.
        reformulations_per_user: The most (query, next query) pairs of one user that count; None for none.
        selector: How queries are selected; ``auto`` takes the lower threshold of ``laplace`` and ``gaussian``.
        keep: Which of a user's keys count: ``first`` by time, or ``random``; without times always ``random``.
        shares: Of the budget, by table.
        select_only: Only the list of queries, without counts.
        results: A public list of (query, URL) pairs: a file or table with these two columns.
        session_gap: Seconds without a search after which a new session begins.
        false_edges: How many published reformulations may be pure noise, in expectation.

    Warns (:class:`~hushquery.PrivacyWarning`) of an epsilon above 5 and of a delta above 1e-4; with a delta of 0.1 or
    more the plan does not run on real noise.

    **Guarantee:** (epsilon, delta) for one user, add-remove, from the exact numbers of every step: ``plan.explain()``.
    """
    secret = log if isinstance(log, Log) else read_log(log)
    notes = []
    if select_only and (clicks_per_user or reformulations_per_user):
        notes.append("only the list of queries is made: no clicks and no reformulations")
        clicks_per_user = reformulations_per_user = None
    if clicks_per_user is not None and not secret.has_url:
        raise UsageError(
            "The log has no URL column, so clicks cannot be counted",
            fix="Leave out --clicks-per-user (clicks_per_user), or map the column of URLs: --columns url=NAME, or "
            "columns={'url': 'NAME'}",
        )
    if reformulations_per_user is not None and not secret.has_time:
        raise UsageError(
            "The log has no time column, so reformulations cannot be counted",
            fix="Leave out --reformulations-per-user (reformulations_per_user), or map the column of times: "
            "--columns time=NAME, or columns={'time': 'NAME'}",
        )
    listed = None if results is None or clicks_per_user is None else _public_results(results, secret)
    request = Request(
        Budget(epsilon, delta),
        queries_per_user,
        clicks_per_user,
        reformulations_per_user,
        selector,
        shares,
        select_only,
        public_results=listed is not None,
    )
    request.budget.warn()
    made = calibrate(request, results=listed, session_gap=session_gap, false_edges=false_edges)
    return ReleasePlan(secret, clean_text(population, "the population"), request, made, Bound(keep), tuple(notes))


@dataclass(frozen=True)
class ReleasePlan(Plan[Release]):
    """The steps of a release with all their numbers; nothing has run and no row has been read. Made by :func:`curate`.

    Args:
        log: The secret rows.
        population: Whose they are.
        request: What was asked for.
        steps: The calibrated steps.
        bound: Which of a user's rows count.
        notes: What the steward should know.
    """

    log: Log = field(repr=False)
    population: str
    request: Request
    calibrated: Calibrated
    bound: Bound
    notes: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """What running the plan promises, from the exact numbers of its steps."""
        steps = [Step(s.name, s.detail, s.parameters.loss) for s in self.calibrated.steps()]
        return Guarantee.of(self.population, "curator", UNIT, steps, delta=self.request.budget.delta)

    def explain(self) -> str:
        """Describe every step, its bound, its noise and its cost; generated from the objects that run."""
        delta, made = self.request.budget.delta, self.calibrated
        lines = [f'Plan for "{self.population}", protecting {UNIT}:']
        lines += [f"  - {step}" for step in self.log.steps]
        shared = ", ".join(f"{name} {float(share):.3g}" for name, share in made.shares.items())
        of = "mu^2" if made.loss.mu_squared or made.loss.sparse else "epsilon"
        lines.append(f"  - the budget is shared in parts of {of}: {shared}")
        for i, step in enumerate(made.steps(), 1):
            alone = step.parameters.loss
            cost = alone.epsilon(delta)
            numbers = ", ".join(
                f"{name} {value}" for name, value in _numbers(step.parameters.to_json()).items() if value is not None
            )
            lines += [
                f"  {i}. {step.name}: {step.detail}",
                f"     bound: at most {step.parameters.to_json()['keys_per_user']} per user, "
                f"{self.bound.words(self.log.table)}; {numbers}",
                f"     alone it costs epsilon {format_epsilon(cost)} at delta {format_delta(delta)}",
            ]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  warning: {concern}" for concern in self.request.budget.concerns()]
        lines.append(f"  in all: {self.guarantee.summary()}")
        return "\n".join(lines)

    def _ask(self) -> dict[str, Any]:
        table, made = self.log.rows, self.calibrated
        asked = dict(made.selector.expressions(table, self.bound))
        if made.clicks:
            asked["clicks"] = made.clicks.expression(self.log.clicks_of(released_placeholder()), self.bound)
        if made.reformulations:
            asked["reformulations"] = made.reformulations.expression(table, self.bound)
        return asked

    def _charges(self) -> list[Charge]:
        what = "; ".join(step.detail for step in self.calibrated.steps())
        return [Charge(self.population, UNIT.relation, self.loss, what, self.request.budget)]

    def _read(self, paid: Paid) -> Release:
        tables = draw_tables(self.calibrated, self.log, self.bound.keep, paid.bits, paid.tell)
        return self._release(tables, paid.guarantee)

    def _release(self, tables: Mapping[str, Any], guarantee: Guarantee) -> Release:
        made, request = self.calibrated, self.request
        released, notes = tables["queries"].num_rows, []
        parameters: dict[str, Any] = {
            "epsilon": str(request.budget.epsilon),
            "delta": str(request.budget.delta),
            "selector": made.selector.name,
            "chosen_by": request.selector,
            "select_only": request.select_only,
            "queries_per_user": request.queries_per_user,
            "clicks_per_user": request.clicks_per_user,
            "reformulations_per_user": request.reformulations_per_user,
            "shares": {name: str(share) for name, share in made.shares.items()},
            "keep": self.bound.order(self.log.table),
            "log_steps": list(self.log.steps),
            "public_results": request.public_results,
        }
        if made.reformulations:
            parameters |= {
                "session_gap": made.reformulations.session_gap,
                "reformulations_published_from": made.reformulations.publish_from(released) if released > 1 else None,
                "expected_false_reformulations": made.reformulations.expected_false(released) if released > 1 else 0.0,
            }
            notes.append(
                f"At most {made.reformulations.false_edges:g} of the reformulations are expected to be pure noise."
            )
        steps = []
        for step in made.steps():
            numbers = step.parameters.to_json()
            # Only where the noise that met the threshold is the noise that is published can the table be checked.
            if step.final and numbers.get("threshold") is not None and not request.select_only:
                numbers["table"] = step.table
            steps.append({"parameters": numbers})
        return Release.make(
            tables,
            [guarantee],
            kind="curator",
            parameters=parameters,
            steps=steps,
            meanings={name: self._meaning(name) for name in tables},
            notes=notes,
        )

    def _meaning(self, table: str) -> str:
        made, which = self.calibrated, self.bound.words(self.log.table)
        if table == "clicks" and made.clicks:
            return (
                "noisy number of users who clicked the URL after the query, each user counted once per pair and in at "
                f"most {made.clicks.clicks_per_user} pairs, {which}"
            )
        if table == "reformulations" and made.reformulations:
            return (
                "noisy number of users who searched the second query right after the first, each user counted once per "
                f"pair and in at most {made.reformulations.reformulations_per_user} pairs, {which}"
            )
        if made.selector.counts is None:
            return "queries that enough users searched for; without counts"
        again = "" if made.selector.name in ("laplace", "gaussian", "korolova2009") else " released"
        unit = "searches" if made.selector.name == "korolova2009" else f"{again} queries".strip()
        return (
            f"noisy number of {made.selector.counts_what}, each user counted in at most "
            f"{made.selector.queries_per_user} {unit}, {which}"
        )


def _numbers(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Pick what a reader wants to see of a step's numbers."""
    from fractions import Fraction

    shown = {}
    for name in ("scale", "sigma", "epsilon", "delta", "threshold"):
        value = parameters.get(name)
        shown[name] = f"{float(Fraction(value)):.4g}" if isinstance(value, str) else value
    return shown


def _public_results(results: Any, log: Log) -> Any:
    """Read the public list of results, two columns of text, into memory: engines join their own tables only.

    Where the log's queries and URLs are brought into one form, so are the list's.
    """
    import ibis

    table = read_table(results, types={"query": "string", "url": "string"}, public=True)
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
