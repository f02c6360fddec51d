"""Plan a release of a search log: share one budget among its tables, and draw them once it is paid for.

Laplace selectors share epsilon and split delta equally among thresholds. Gaussian ones share mu^2, which adds up where
epsilons would waste, and spend a tenth of delta on thresholds. All tables use the noise of the selector's family;
core/calibration.py has the formulas of each scale and threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from hushquery.core.budget import Budget, Number, Unit, exact, format_delta, format_epsilon
from hushquery.core.calibration import WEIGHT_GRID, knapsack_threshold, mu_for, sigma_for
from hushquery.core.description import UNDESCRIBED, Description, clean_text
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.iterated import IteratedSelection, calibrate_rounds
from hushquery.core.loss import (
    GaussianHistogram,
    GaussianWeights,
    LaplaceHistogram,
    Loss,
    OptimalSelection,
)
from hushquery.curator import fitting
from hushquery.curator.clicks import Clicks, read_public_pairs
from hushquery.curator.counting import Bound, Keep, released_placeholder, released_table
from hushquery.curator.reformulations import Reformulations
from hushquery.curator.selectors import PlannedStep, Selector
from hushquery.curator.selectors.guided import SKETCHED_QUERIES, Guided
from hushquery.curator.selectors.iterated import Iterated
from hushquery.curator.selectors.korolova2009 import Korolova, calibrate_korolova
from hushquery.curator.selectors.optimal import Optimal
from hushquery.curator.selectors.thresholded import ThresholdedCounts, gaussian_step, laplace_step, lowest_threshold
from hushquery.curator.selectors.weighted import Weighted, weighted_threshold
from hushquery.errors import CalibrationError, UsageError
from hushquery.log import Log, read_log
from hushquery.noise.sampler import Bits
from hushquery.plan import Charge, Paid, Plan, Progress
from hushquery.release import Release

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEFAULT_SHARES", "SELECTORS", "ReleasePlan", "ReleaseSpec", "ReleaseSteps", "SelectorName"]
__all__ += ["calibrate", "draw_tables", "plan_release"]

#: The selectors, by name; ``auto`` takes whichever of laplace and gaussian has the lower threshold.
SelectorName = Literal["auto", "laplace", "gaussian", "korolova2009", "optimal", "weighted", "guided", "iterated"]
#: Their names, ``auto`` first.
SELECTORS: tuple[SelectorName, ...] = get_args(SelectorName)
_LAPLACE = ("laplace", "korolova2009", "optimal")

#: How a budget is shared among the tables of a release, before shares of tables that are not made are left out.
DEFAULT_SHARES: Mapping[str, Fraction] = {
    "queries": Fraction(3, 5),
    "clicks": Fraction(2, 5),
    "reformulations": Fraction(1, 5),
}

# Within `queries`; measured by `hushquery experiment korolova2009` (docs/experiments/korolova2009.md).
_KOROLOVA_SELECTION = Fraction(76, 100)
_SELECTION = Fraction(7, 10)
_GUIDED = (Fraction(2, 10), Fraction(5, 10), Fraction(3, 10))
_GUIDED_SELECT_ONLY = (Fraction(35, 100), Fraction(65, 100), Fraction(0))
_THRESHOLDS_SHARE_OF_DELTA = Fraction(1, 10)
# Of delta for the strings of one user alone, and of that for the threshold of clicks beside them.
_ITERATED_SHARE_OF_DELTA, _CLICKS_SHARE = Fraction(1, 2), Fraction(1, 10)
_MOST_KEYS = 10_000
_LEAST_DELTA = Fraction(1, 10**300)
_LARGEST_FLOOR = 1_000_000
UNIT = Unit("user", "add-remove")


@dataclass(frozen=True)
class ReleaseSpec:
    """What a release contains and how its budget is shared; None omits a table, shares are of the tables made."""

    budget: Budget
    queries_per_user: int
    clicks_per_user: int | None = None
    reformulations_per_user: int | None = None
    selector: SelectorName = "auto"
    shares: Mapping[str, Number] | None = None
    select_only: bool = False
    has_public_pairs: bool = False
    min_users: int = 1

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise UsageError(f"no selector is called {self.selector!r}", fix=f"Give one of {', '.join(SELECTORS)}")
        if self.budget.epsilon <= 0 or not 0 < self.budget.delta < 1:
            raise UsageError(
                "a release needs epsilon > 0 and 0 < delta < 1",
                why="a query that only one person posed may always come out with some probability",
                fix="Give, say, --epsilon 1 --delta 1e-7, or epsilon=1, delta=1e-7",
            )
        if self.budget.delta < _LEAST_DELTA:
            raise UsageError("a delta below 1e-300 can't be told from zero", fix="Give --delta or delta= of 1e-12, say")
        limits = {
            "queries": self.queries_per_user,
            "clicks": self.clicks_per_user,
            "reformulations": self.reformulations_per_user,
        }
        for name, most in limits.items():
            if most is not None and not 1 <= most <= _MOST_KEYS:
                raise UsageError(
                    f"{name} per user must be from 1 to {_MOST_KEYS:,}", fix=f"Give, say, --{name}-per-user 20"
                )
        if type(self.min_users) is not int or not 1 <= self.min_users <= _LARGEST_FLOOR:
            raise UsageError(f"the floor must be from 1 to {_LARGEST_FLOOR:,} users", fix="Use, say, --min-users 5")
        unproven = self.selector not in ("auto", "laplace", "gaussian") or self.has_public_pairs
        if self.min_users > 1 and (unproven or (self.reformulations_per_user and not self.select_only)):
            raise UsageError(
                "--min-users works with the selectors laplace and gaussian, and with clicks that need a threshold",
                why="for other selectors, for reformulations and for public lists of results nothing is proven",
                fix="Leave out --min-users (min_users), or the table or selector that it does not work with",
            )

    def normalised_shares(self) -> dict[str, Fraction]:
        """Return the share of each table that is made; they add up to one.

        >>> ReleaseSpec(Budget(1, 1e-6), 20, clicks_per_user=5).normalised_shares()
        {'queries': Fraction(3, 5), 'clicks': Fraction(2, 5)}
        """
        tables = ["queries"]
        if not self.select_only:
            tables += ["clicks"] * (self.clicks_per_user is not None)
            tables += ["reformulations"] * (self.reformulations_per_user is not None)
        given = dict(DEFAULT_SHARES)
        for name, share in (self.shares or {}).items():
            if name not in given:
                raise UsageError(f"no table is called {name!r}", fix=f"Share among {', '.join(given)}")
            given[name] = exact(share, "a share")
        chosen = {name: given[name] for name in tables}
        if min(chosen.values()) <= 0:
            raise UsageError(
                "the share of a table that is made must be above zero", fix="Give, say, queries=.6,clicks=.4"
            )
        return {name: share / sum(chosen.values()) for name, share in chosen.items()}


@dataclass(frozen=True)
class ReleaseSteps:
    """The steps of a release with all their numbers; nothing has run."""

    selector: Selector
    clicks: Clicks | None
    reformulations: Reformulations | None
    shares: Mapping[str, Fraction]

    def steps(self) -> list[PlannedStep]:
        """Return every randomised step in order."""
        return self.selector.steps() + [table.planned() for table in (self.clicks, self.reformulations) if table]

    @property
    def loss(self) -> Loss:
        """What all steps cost together."""
        return sum((step.parameters.loss for step in self.steps()), Loss())


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
    min_users: int = 1,
    description: Description | None = None,
    times: int = 1,
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
        min_users: The floor N: a query (or clicked pair) of fewer users never comes out, with certainty.
        description: What the release says of itself; its period follows from the log's since and until by default.
        times: How many releases like this one the budget is for; this one takes its part, and the account the whole.

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
    listed = None if public_pairs is None or clicks_per_user is None else read_public_pairs(public_pairs, secret)
    spec = ReleaseSpec(
        Budget.of(budget, epsilon, delta),
        queries_per_user,
        clicks_per_user,
        reformulations_per_user,
        selector,
        shares,
        select_only,
        has_public_pairs=listed is not None,
        min_users=min_users,
    )
    spec.budget.warn()
    series = spec.budget
    if times != 1:
        spec = fitting.divided(spec, times, calibrate)
        notes.append(f"this is one of {times} releases, {spec.budget} each, which together cost {series}")
    steps = calibrate(spec, public_pairs=listed, session_gap=session_gap, expected_false_pairs=expected_false_pairs)
    about, people = (description or UNDESCRIBED).within(secret.times), clean_text(population, "the population")
    return ReleasePlan(secret, people, spec, steps, Bound(keep), tuple(notes), about, series)


@dataclass(frozen=True, repr=False)
class ReleasePlan(Plan[Release]):
    """The steps of a release with all their numbers; nothing has run and no row has been read."""

    log: Log
    population: str
    spec: ReleaseSpec
    calibrated: ReleaseSteps
    bound: Bound
    notes: tuple[str, ...] = ()
    description: Description = UNDESCRIBED
    series: Budget | None = None  #: what this release and those like it may cost together; else the release's budget
    unit: ClassVar[Unit] = UNIT

    @property
    def budget(self) -> Budget:
        """The budget of the whole release."""
        return self.spec.budget

    def _promises(self) -> list[Budget]:
        return [self.series or self.budget]

    def _charges(self) -> list[Charge]:
        (charge,) = super()._charges()
        return [replace(charge, budget=self.series or self.budget, files=self.log.paths)]

    def _check_data(self) -> None:
        self.log.check_files()

    def _loss_at(self, budget: Budget) -> Loss:
        return calibrate(replace(self.spec, budget=budget)).loss

    def _out_of_reach(self, users: int) -> str | None:
        return fitting.out_of_reach(self.calibrated, users)

    def _least_epsilon(self, users: int, delta: Fraction | None = None) -> float | None:
        start = self.budget if delta is None else Budget(self.budget.epsilon, delta)
        return fitting.least_epsilon(lambda budget: calibrate(replace(self.spec, budget=budget)), start, users)

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
            if "min_users" in parameters:
                numbers["threshold"] += parameters["min_users"] - 1  # in users
            if isinstance(step.parameters, IteratedSelection):
                sigmas = [str(sigma / step.parameters.grid) for sigma in step.parameters.sigmas]
                numbers = {f"sigma of round {r}": sigma for r, sigma in enumerate(sigmas, 1)}
            elif isinstance(step.parameters, GaussianWeights):  # in users' weights; the detail has the threshold
                numbers |= {"sigma": str(step.parameters.sigma / WEIGHT_GRID), "threshold": None}
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
            **self.log.times,
            "public_results": spec.has_public_pairs,
        }
        if spec.min_users > 1:
            parameters["min_users"] = spec.min_users
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
            description=self.description,
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


def calibrate(
    spec: ReleaseSpec, *, public_pairs: Any = None, session_gap: float = 1800.0, expected_false_pairs: float = 1.0
) -> ReleaseSteps:
    """Choose every scale and threshold for a release, so that all steps together fit its budget.

    >>> steps = calibrate(ReleaseSpec(Budget("ln 10", 1e-5), 20))
    >>> steps.selector.name, steps.selector.threshold
    ('gaussian', 40.0)
    """
    if spec.selector == "auto":
        given = {"public_pairs": public_pairs, "session_gap": session_gap, "expected_false_pairs": expected_false_pairs}
        options = [calibrate(replace(spec, selector=name), **given) for name in ("laplace", "gaussian")]
        return min(options, key=lambda option: option.selector.threshold)
    budget, shares = spec.budget, spec.normalised_shares()
    secret_pairs = "clicks" in shares and not spec.has_public_pairs
    if spec.selector in _LAPLACE:
        total, delta = budget.epsilon, budget.delta
        noise: Callable[[int, Fraction, Fraction | None], LaplaceHistogram | GaussianHistogram] = laplace_step
    else:
        part = _ITERATED_SHARE_OF_DELTA if spec.selector == "iterated" else _THRESHOLDS_SHARE_OF_DELTA
        total = mu_for(budget.epsilon, budget.delta * (1 - part)) ** 2
        delta, noise = budget.delta * part, gaussian_step
    # Queries and pairs have a threshold each.
    of_pairs = _CLICKS_SHARE if spec.selector == "iterated" else Fraction(1, 2)
    for_pairs = delta * of_pairs if secret_pairs else Fraction(0)
    delta -= for_pairs
    clicks = reformulations = None
    if "clicks" in shares and spec.clicks_per_user:
        step = noise(spec.clicks_per_user, total * shares["clicks"], for_pairs or None)
        clicks = Clicks(replace(step, min_users=spec.min_users), public_pairs)
    if "reformulations" in shares and spec.reformulations_per_user:
        step = noise(spec.reformulations_per_user, total * shares["reformulations"], None)
        reformulations = Reformulations(step, session_gap, expected_false_pairs)
    beside = sum((table.step.loss for table in (clicks, reformulations) if table), Loss())
    selector = _selector(spec, total * shares["queries"], delta, beside)
    if isinstance(selector, ThresholdedCounts):
        selector = replace(selector, selection=replace(selector.selection, min_users=spec.min_users))
    steps = ReleaseSteps(selector, clicks, reformulations, shares)
    if not steps.loss.fits(budget.epsilon, budget.delta):
        raise CalibrationError(  # a seat belt: every selector is calibrated to fit
            "the calibrated steps do not fit the budget", fix="This is a defect of hushquery; please report it"
        )
    return steps


def _selector(spec: ReleaseSpec, part: Fraction, delta: Fraction, beside: Loss) -> Selector:
    """Calibrate the selector for its part of epsilon or mu^2 and its threshold's delta, given all other tables."""
    d, counted = spec.queries_per_user, not spec.select_only
    if spec.selector == "laplace":
        return ThresholdedCounts("laplace", laplace_step(d, part, delta), counted)
    if spec.selector == "gaussian":
        return ThresholdedCounts("gaussian", lowest_threshold(d, part, beside, spec.budget), counted)
    if spec.selector == "guided":
        for_sketch, for_selection, for_counts = _GUIDED if counted else _GUIDED_SELECT_ONLY
        sketch = GaussianWeights(SKETCHED_QUERIES, sigma_for(WEIGHT_GRID**2, part * for_sketch))
        sigma = sigma_for(WEIGHT_GRID**2, part * for_selection)
        selection = GaussianWeights(d, sigma, knapsack_threshold(sigma / WEIGHT_GRID, d, delta))
        return Guided(sketch, selection, gaussian_step(d, part * for_counts, None) if counted else None)
    share = Fraction(1) if not counted else _KOROLOVA_SELECTION if spec.selector == "korolova2009" else _SELECTION
    if spec.selector == "iterated":
        rounds = IteratedSelection.certified(calibrate_rounds(part * share, delta))
        return Iterated(rounds, gaussian_step(d, part * (1 - share), None) if counted else None)
    if spec.selector == "weighted":
        weights = weighted_threshold(d, sigma_for(WEIGHT_GRID**2, part * share), delta)
        return Weighted(weights, gaussian_step(d, part * (1 - share), None) if counted else None)
    counts = laplace_step(d, part * (1 - share), None) if counted else None
    if spec.selector == "korolova2009":
        return Korolova(calibrate_korolova(d, part * share, delta), counts)
    return Optimal(OptimalSelection(d, part * share / d, delta / d), counts)
