"""``hushquery plan`` and ``hushquery release``: forecast a release, and publish one."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.common import (
    Anyway,
    Described,
    Explain,
    JsonFlag,
    LogFiles,
    LogOptions,
    Spending,
    emit,
    emit_plan,
    flag,
    named,
    note,
    option,
    pairs,
    progress,
    sizes_in_words,
    takes_options,
    tell_left_out,
    warn,
)
from hushquery.cli.keys import SignWith, signing_key
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.core.budget import Budget
    from hushquery.curator.forecast import Forecast
    from hushquery.curator.selectors.korolova2009 import Theorem1


Times = Annotated[
    int, option("N", "Divide epsilon and delta over N releases like this one, such as 52 for a year of weeks.", min=1)
]


@dataclass(frozen=True)
class Tables:
    """Which tables are published, and how they share the budget."""

    clicks_per_user: Annotated[
        int | None, option("D", "Also publish clicks; the most (query, URL) pairs of a user that count.")
    ] = None
    reformulations_per_user: Annotated[
        int | None, option("D", "Also publish what is searched next; the most pairs of a user that count.")
    ] = None
    selector: Annotated[
        str | None,
        option("NAME", "auto, laplace, gaussian, korolova2009, optimal, weighted, guided or iterated (most queries)."),
    ] = "auto"
    shares: Annotated[
        str | None, option("TABLE=S,...", "How tables share the budget: queries=.6,clicks=.4,reformulations=.2.")
    ] = None
    select_only: Annotated[bool, flag("--select-only", "Only the list of queries, without counts.")] = False
    min_users: Annotated[
        int, option("N", "A floor: what fewer users searched never comes out, with certainty (laplace, gaussian).")
    ] = 1


@dataclass(frozen=True)
class Published(Tables):
    """What a release is made of."""

    keep: Annotated[str, option("RULE", "Which of a user's queries count: first (by time) or random.")] = "first"
    results: Annotated[
        Path | None, option("FILE", "A public list of (query, url); then every listed pair gets a noisy count.")
    ] = None
    session_gap: Annotated[float, option("SECONDS", "A pause after which a new session begins.")] = 1800.0
    false_edges: Annotated[
        float, option("F", "How many published reformulations may be pure noise, in expectation.")
    ] = 1.0
    population: Annotated[
        str | None,
        option(
            "NAME",
            "Whose log it is: always the same name for the same people. Public: it names the ledger's account and the "
            "release. Only --explain does without.",
        ),
    ] = None


@takes_options
def release(
    log: LogFiles,
    epsilon: Annotated[str, option("E", "Of the whole release, for one user: 1, 0.5, ln(10).")],
    delta: Annotated[str, option("D", "Of the whole release; well below 1 over the number of users.")],
    queries_per_user: Annotated[int, option("D", "The most distinct queries of a user that count.")],
    *,
    out: Annotated[
        Path | None, option("DIR", "The folder to make; only --explain does without. It must not exist (see --force).")
    ] = None,
    tables: Published,
    spending: Spending,
    users: Annotated[
        int | None,
        option(
            "N",
            "How many users there are, a public figure, stated in the release: what can't work for so many is refused.",
        ),
    ] = None,
    times: Times = 1,
    described: Described,
    sign: SignWith = None,
    explain: Explain = False,
    force: Annotated[bool, flag("--force", "Replace an older release at --out.")] = False,
    no_normalise: Annotated[bool, flag("--no-normalise", "Take queries and URLs exactly as they are.")] = False,
    reading: LogOptions,
    as_json: JsonFlag = False,
) -> None:
    r"""Publish a search log: queries, clicks and reformulations, safe to give away.

        hushquery release log.txt --format aol --epsilon 1 --delta 1e-7 --queries-per-user 20 --clicks-per-user 5 \
            --population "users of example.org" --out release/

        hushquery release searches --engine postgresql://analyst@db.example/web --epsilon 1 --delta 1e-7 ...

    The budget is spent before a row is read; killed half-way, it stays spent and no half release is left. An account
    that does not exist yet is opened with this budget as its whole lifetime. Look first: --explain, or hushquery plan.
    """
    from hushquery.curator.forecast import forecast
    from hushquery.curator.plan import plan_release
    from hushquery.release import check_target

    if not explain:
        if out is None:
            raise UsageError("a release needs a folder", fix="Give --out DIR, or --explain to see the plan only")
        check_target(out, force)
    people, key = (
        named(tables.population, spending.ledger, explain=explain),
        None if sign is None else signing_key(sign),
    )
    opened = reading.open(log, normalise=not no_normalise)
    settings = vars(tables) | {"shares": pairs(tables.shares, "--shares"), "population": people}
    settings |= {"public_pairs": settings.pop("results"), "expected_false_pairs": settings.pop("false_edges")}
    settings["description"] = described.with_people(users)
    plan = plan_release(
        opened, epsilon=epsilon, delta=delta, queries_per_user=queries_per_user, times=times, **settings
    )
    for line in plan.notes:
        note(line)
    for line in forecast(plan.spec, users, plan.calibrated).warnings if users is not None else ():
        warn(line)
    if explain or out is None:
        emit_plan(plan, as_json, users, anyway=spending.anyway)
        return
    with spending.open(plan, plan.population, users) as (book, accounts), progress("starting", 1.0) as show:
        made = plan.run(book, **accounts, progress=show)
        account = book.account(plan.population, "add-remove")
        left = {
            "population": plan.population,
            "epsilon": str(account.terms.budget.epsilon),
            "delta": str(account.terms.budget.delta),
            "remaining_epsilon": account.remaining_epsilon,
        }
        folder = made.save(out, force, budget=left, sign=key)
    tell_left_out(opened)
    sizes, guarantee = {name: table.num_rows for name, table in made.tables.items()}, made.guarantees[0]
    data = {"release": str(folder), "tables": sizes, "selector": plan.calibrated.selector.name}
    text = f"{folder}: {sizes_in_words(sizes)}\n{guarantee.summary()}\nopen {folder / 'report.html'}"
    emit(data | {"guarantee": guarantee.to_json()}, text, as_json)
    if not sizes["queries"]:
        warn("no query reached the threshold; `hushquery look` with the same options shows what was read")


@dataclass(frozen=True)
class Planned(Tables):
    """What a plan is asked for: a release, a comparison of many, or Algorithm 1 backwards."""

    selector: Annotated[
        str | None, option("NAME", "One selector; without it and without d, all are compared (else auto).")
    ] = None
    users: Annotated[int | None, option("N", "How many users the log has, a public figure; else a million.")] = None
    rows: Annotated[
        int | None, option("N", "About how many searches they made, a public figure; d follows from both.", min=1)
    ] = None
    like: Annotated[str, option("KIND", "What the log is like: aol, yandex, or tiny (few different queries).")] = "aol"
    threshold: Annotated[
        str | None, option("K", "Algorithm 1 the other way round: what do a threshold K and a scale promise?")
    ] = None
    scale: Annotated[str | None, option("B", "With --threshold: the scale b of the selection's noise.")] = None
    count_scale: Annotated[str | None, option("BQ", "The scale of the noise on counts.")] = None
    click_scale: Annotated[str | None, option("BC", "The scale of the noise on clicks.")] = None
    plot: Annotated[Path | None, option("FILE", "Draw the comparison: .html, .svg or .png.")] = None
    times: Times = 1
    anyway: Anyway = False

    @property
    def searches(self) -> float | None:
        """How many searches a user made on average, if that is known."""
        return None if self.rows is None or self.users is None else self.rows / self.users


@takes_options
def plan(
    *,
    epsilon: Annotated[str | None, option("E", "Of the whole release: 1, 0.5, ln(10).")] = None,
    delta: Annotated[str | None, option("D", "Of the whole release.")] = None,
    queries_per_user: Annotated[int | None, option("D", "One value of d; without it, several are compared.")] = None,
    asked: Planned,
    as_json: JsonFlag = False,
) -> None:
    r"""Forecast a release, without a log: threshold, noise, and what delta lets through.

        hushquery plan --epsilon 1 --delta 1e-7 --users 65000 --rows 2000000 # compare selectors and values of d
        hushquery plan --epsilon 1 --delta 1e-7 --queries-per-user 20        # one plan, every step
        hushquery plan --threshold 140 --scale 8.69 --queries-per-user 20    # Theorem 1 of Korolova 2009, backwards

    To see the plan for a log of yours, with its SQL: hushquery release LOG ... --explain
    """
    if asked.threshold is not None or asked.scale is not None:
        if epsilon is not None or delta is not None or (asked.selector or "korolova2009") != "korolova2009":
            raise UsageError(
                "--threshold and --scale are Algorithm 1 backwards: epsilon and delta come out of it",
                fix="Leave out --epsilon, --delta and --selector",
            )
        if asked.min_users != 1:
            raise UsageError("Algorithm 1 counts searches, so it has no floor of users", fix="Leave out --min-users")
        _backwards(asked, queries_per_user, as_json)
        return
    if epsilon is None or delta is None:
        message = "a plan needs --epsilon and --delta (or --threshold and --scale)"
        raise UsageError(message, fix="See hushquery plan --help")
    if asked.count_scale is not None or asked.click_scale is not None:
        raise UsageError("--count-scale and --click-scale go with --threshold", fix="Leave them out")
    from hushquery.core.budget import Budget, format_delta, format_epsilon
    from hushquery.curator.fitting import divided, out_of_reach
    from hushquery.curator.forecast import forecast, theorem_table
    from hushquery.curator.plan import ReleaseSpec, calibrate
    from hushquery.curator.selectors.korolova2009 import Korolova

    budget = Budget(epsilon, delta)
    budget.check_publishable(asked.users, anyway=asked.anyway)
    if asked.rows is not None and (asked.users is None or asked.rows < asked.users):
        raise UsageError("--rows goes with --users, and is not below it", fix="Use, say, --users 10000 --rows 200000")
    if queries_per_user is None:
        if asked.times > 1:
            raise UsageError("--times divides the budget of one plan", fix="Use --queries-per-user too")
        _compare(asked, budget, (epsilon, delta), as_json)
        return
    if asked.plot is not None:
        raise UsageError("--plot draws a comparison", fix="Leave out --queries-per-user")
    request = ReleaseSpec(
        budget,
        queries_per_user,
        asked.clicks_per_user,
        asked.reformulations_per_user,
        asked.selector or "auto",  # type: ignore[arg-type]  # checked by the request
        pairs(asked.shares, "--shares"),
        asked.select_only,
        min_users=asked.min_users,
    )
    request = divided(request, asked.times, calibrate)
    steps = calibrate(request)
    expected = forecast(request, asked.users, steps, asked.like, asked.searches)
    data = _as_data(expected) | {
        "epsilon": steps.loss.epsilon(request.budget.delta),
        "delta": float(request.budget.delta),
        "delta_exact": steps.loss.delta(request.budget.epsilon),
        "shares": {name: float(share) for name, share in steps.shares.items()},
        "steps": [{"name": s.name, "detail": s.detail, "parameters": s.parameters.to_json()} for s in steps.steps()],
    }
    lines = [_in_words(expected, asked.like, asked.min_users)]
    lines += [f"  {i}. {step.name}: {step.detail}" for i, step in enumerate(steps.steps(), 1)]
    if isinstance(steps.selector, Korolova):
        data |= theorem_table(steps.selector.theorem)
        lines.append(_theorem_in_words(steps.selector.theorem))
    in_all = f"epsilon {format_epsilon(data['epsilon'])}, delta {format_delta(request.budget.delta)}"
    lines.append(f"  in all: {in_all} for one user, add-remove")
    if asked.times > 1:
        lines.append(f"  this is one of {asked.times} releases, {request.budget} each, which together cost {budget}")
        data |= {
            "times": asked.times,
            "each": {"epsilon": str(request.budget.epsilon), "delta": str(request.budget.delta)},
        }
    lacking = None if asked.users is None else out_of_reach(steps, asked.users)
    missed = [] if lacking is None else [f"{lacking}, and {asked.users:,} users are declared: `release` refuses it"]
    concerns = budget.concerns(asked.users)
    if asked.users is not None and expected.warnings:  # which say the same of delta and these users, and in queries
        concerns = [concern for concern in concerns if not concern.startswith("delta")]
    data["warnings"] = [*concerns, *missed, *expected.warnings]
    emit(data, "\n".join([*lines, *(f"warning: {warning}" for warning in data["warnings"])]), as_json)


def _backwards(asked: Planned, queries_per_user: int | None, as_json: bool) -> None:
    from hushquery.core.budget import LARGEST_EPSILON, Budget, exact, format_delta, format_epsilon, suggested_delta
    from hushquery.curator.forecast import checked_users, theorem_table
    from hushquery.curator.selectors.korolova2009 import Korolova, Theorem1

    if asked.threshold is None or asked.scale is None or queries_per_user is None:
        raise UsageError(
            "Theorem 1 backwards needs --threshold, --scale and --queries-per-user",
            fix="Try: hushquery plan --threshold 140 --scale 8.69 --queries-per-user 20",
        )
    if asked.click_scale is not None and asked.clicks_per_user is None:
        raise UsageError("--click-scale needs --clicks-per-user", fix="Give both or neither")
    theorem = Theorem1(
        queries_per_user,
        exact(asked.threshold, "the threshold"),
        exact(asked.scale, "the scale"),
        None if asked.count_scale is None else exact(asked.count_scale, "the scale of counts"),
        asked.clicks_per_user or 0,
        None if asked.click_scale is None else exact(asked.click_scale, "the scale of clicks"),
    )
    people = checked_users(asked.users)
    stated = Budget(min(theorem.epsilon_alg, LARGEST_EPSILON), max(theorem.delta_alg, theorem.delta_exact))
    stated.check_publishable(asked.users, anyway=asked.anyway)
    rare = people * Korolova(theorem, None).rare_chance()
    delta, warnings = max(theorem.delta_alg, theorem.delta_exact), []
    if people * delta > 0.1:
        small = suggested_delta(people)
        warnings.append(f"delta {delta:.3g} is not small for {people:,} users; consider one of {small:.0e}")
    data = {
        "selector": "korolova2009",
        "epsilon": theorem.epsilon_alg,
        "delta": delta,
        "queries_per_user": queries_per_user,
        **theorem_table(theorem),
        "expected_rare": rare,
        "users": people,
        "warnings": warnings,
    }
    lines = [
        f"epsilon {format_epsilon(theorem.epsilon_alg)}, delta {format_delta(delta)} for one user, add-remove",
        _theorem_in_words(theorem),
        f"  expected near-unique queries among {people:,} users: {rare:.3g} at most",
        *(f"warning: {warning}" for warning in warnings),
    ]
    emit(data, "\n".join(lines), as_json)


def _compare(asked: Planned, budget: Budget, typed: tuple[str, str], as_json: bool) -> None:
    from hushquery.core.budget import in_full
    from hushquery.curator.forecast import TYPICAL_QUERIES, compare, few_people
    from hushquery.curator.plan import SELECTORS

    every = ("laplace", "gaussian") if asked.min_users > 1 else SELECTORS[1:]
    chosen = every if asked.selector in (None, "auto") else (asked.selector,)
    rows = compare(
        budget,
        asked.users,
        selectors=chosen,  # type: ignore[arg-type]  # checked there
        like=asked.like,
        searches=asked.searches,
        clicks_per_user=asked.clicks_per_user,
        reformulations_per_user=asked.reformulations_per_user,
        shares=pairs(asked.shares, "--shares"),
        select_only=asked.select_only,
        min_users=asked.min_users,
    )
    people = rows[0].users
    lines = [
        f"Selectors for {people:,} users at {budget}. Released: 90% range for a log like {asked.like}.",
        f"Untouched: typical users ({TYPICAL_QUERIES} distinct queries a month on average) with at most d queries.",
        "",
        f"{'selector':14}{'d':>5}{'threshold':>11}{'noise sd':>10}{'released':>20}{'rare':>9}{'untouched':>11}",
    ]
    for row in rows:
        noise = "-" if row.noise is None else f"{row.noise:.1f}"
        lines.append(
            f"{row.selector:14}{row.queries_per_user:>5}{in_full(row.threshold, 5):>11}{noise:>10}{_released(row):>20}"
            f"{row.expected_rare:>9.2g}{row.untouched:>11.0%}"
        )
    warnings = [*budget.concerns(), *sorted({warning for row in rows for warning in row.warnings})[-1:]]
    lines += [
        "",
        "Thresholds are in users (searches for korolova2009; users' weights for weighted, guided and iterated).",
        f"Rare: queries that only {few_people(asked.min_users)} posed and that come out anyway, expected at most.",
        *(f"warning: {warning}" for warning in warnings),
    ]
    forecasts, taken = [_as_data(row) for row in rows], _conclusion(asked, typed, rows)
    lines += ["", *taken["why"], f"Take this one: {taken['command']}"]
    if asked.plot is not None:
        from hushquery import plot as charts

        lines.append(f"open {charts.save(charts.forecasts(forecasts), asked.plot)}")
    data = {"epsilon": float(budget.epsilon), "delta": float(budget.delta), "users": people}
    emit(data | {"forecasts": forecasts, "warnings": warnings, "take": taken}, "\n".join(lines), as_json)


def _conclusion(asked: Planned, typed: tuple[str, str], rows: list[Forecast]) -> dict[str, Any]:
    """Choose among forecasts as `hushquery look` does, and write the command for a log that is still to be named."""
    from hushquery.curator.advice import WHOSE, choose, longer_list, why

    best = choose([row for row in rows if row.selector in ("laplace", "gaussian")] or rows)
    options = {
        "epsilon": typed[0],
        "delta": typed[1],
        "queries-per-user": best.queries_per_user,
        "clicks-per-user": asked.clicks_per_user,
        "reformulations-per-user": asked.reformulations_per_user,
        "selector": None if asked.selector in (None, "auto") and not asked.clicks_per_user else best.selector,
        "shares": asked.shares,
        "min-users": None if asked.min_users == 1 else asked.min_users,
        "users": asked.users,
    }
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    words += ["--select-only"] if asked.select_only else []
    longer = longer_list(best, rows)
    reason = [why(best.queries_per_user, best.users, asked.rows), *([longer] if longer else [])]
    command = f"hushquery release LOG {' '.join(words)} {WHOSE} --out release"
    return {"queries_per_user": best.queries_per_user, "selector": best.selector, "why": reason, "command": command}


def _as_data(row: Forecast) -> dict[str, Any]:
    return asdict(row) | {"warnings": list(row.warnings)}


def _released(row: Forecast) -> str:
    return f"{row.released_low:,} to {row.released_high:,}"


def _in_words(row: Forecast, like: str, min_users: int) -> str:
    from hushquery.core.budget import in_full
    from hushquery.curator.forecast import few_people

    unit = {
        "korolova2009": "searches",
        "weighted": "users (summed by weight)",
        "guided": "users (summed by weight)",
        "iterated": "users (summed by weight)",
    }.get(row.selector, "users")
    noise = "" if row.noise is None else f" Counts have noise of standard deviation {in_full(row.noise, 3)}."
    return (
        f"{row.selector}, d = {row.queries_per_user}: "
        f"a query needs about {in_full(round(row.threshold), 5)} {unit} to be released.{noise}\n"
        f"  a log like {like} with {row.users:,} users releases {_released(row)} queries (90% range),\n"
        f"  at most {row.expected_rare:.3g} of them, in expectation, posed by {few_people(min_users)} only;\n"
        f"  d leaves {row.untouched:.0%} of typical users untouched"
    )


def _theorem_in_words(theorem: Theorem1) -> str:
    return (
        f"  Theorem 1: K = {float(theorem.threshold):.2f}, b = {float(theorem.scale):.2f}; delta_alg "
        f"{theorem.delta_alg:.4g}, exact delta of what runs {theorem.delta_exact:.4g}, naive {theorem.delta_naive:.4g}"
    )
