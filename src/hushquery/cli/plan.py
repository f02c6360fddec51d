"""``hushquery plan``: what a release would be like, before a row is read and a budget spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli import release as shared
from hushquery.cli.common import JsonFlag, emit
from hushquery.cli.log_options import pairs
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.curator.forecast import Forecast
    from hushquery.curator.selectors.korolova2009 import Theorem1

__all__ = ["plan"]

Scale = Annotated[str | None, typer.Option(metavar="B", help="With --threshold: the scale b of the selection's noise.")]


def plan(
    epsilon: Annotated[str | None, typer.Option(metavar="E", help="Of the whole release: 1, 0.5, ln(10).")] = None,
    delta: Annotated[str | None, typer.Option(metavar="D", help="Of the whole release.")] = None,
    queries_per_user: Annotated[
        int | None, typer.Option(metavar="D", help="One value of d; without it, several are compared.")
    ] = None,
    clicks_per_user: shared.ClicksPerUser = None,
    reformulations_per_user: shared.ReformulationsPerUser = None,
    selector: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="One selector; without it and without d, all are compared (else auto)."),
    ] = None,
    shares: shared.Shares = None,
    select_only: shared.SelectOnly = False,
    users: Annotated[
        int | None, typer.Option(metavar="N", help="How many users the log has, a public figure; else a million.")
    ] = None,
    like: Annotated[
        str, typer.Option(metavar="KIND", help="What the log is like: aol, yandex, or tiny (few different queries).")
    ] = "aol",
    threshold: Annotated[
        str | None,
        typer.Option(metavar="K", help="Algorithm 1 the other way round: what do a threshold K and a scale promise?"),
    ] = None,
    scale: Scale = None,
    count_scale: Annotated[str | None, typer.Option(metavar="BQ", help="The scale of the noise on counts.")] = None,
    click_scale: Annotated[str | None, typer.Option(metavar="BC", help="The scale of the noise on clicks.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the comparison: .html, .svg or .png.")] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Forecast a release, without a log: threshold, noise, and what delta lets through.

        hushquery plan --epsilon 1 --delta 1e-7 --users 65000             # compare selectors and values of d
        hushquery plan --epsilon 1 --delta 1e-7 --queries-per-user 20     # one plan, every step
        hushquery plan --threshold 140 --scale 8.69 --queries-per-user 20 # Theorem 1 of Korolova et al. 2009, backwards

    To see the plan for a log of yours, with its SQL: hushquery release LOG ... --explain
    """
    if threshold is not None or scale is not None:
        if epsilon is not None or delta is not None or (selector or "korolova2009") != "korolova2009":
            raise UsageError(
                "--threshold and --scale are Algorithm 1 backwards: epsilon and delta come out of it",
                fix="Leave out --epsilon, --delta and --selector",
            )
        _backwards(threshold, scale, count_scale, click_scale, queries_per_user, clicks_per_user, users, as_json)
        return
    if epsilon is None or delta is None:
        raise UsageError(
            "a plan needs --epsilon and --delta (or --threshold and --scale)", fix="See hushquery plan --help"
        )
    if count_scale is not None or click_scale is not None:
        raise UsageError("--count-scale and --click-scale go with --threshold", fix="Leave them out")
    if queries_per_user is None:
        tables = {
            "clicks_per_user": clicks_per_user,
            "reformulations_per_user": reformulations_per_user,
            "shares": pairs(shares, "--shares"),
            "select_only": select_only,
        }
        _compare(epsilon, delta, selector, users, like, plot, as_json, tables)
        return
    if plot is not None:
        raise UsageError("--plot draws a comparison", fix="Leave out --queries-per-user")
    from hushquery.core.budget import Budget, format_delta, format_epsilon
    from hushquery.curator.calibrate import ReleaseSpec, calibrate
    from hushquery.curator.forecast import forecast, theorem_table
    from hushquery.curator.selectors.korolova2009 import Korolova

    request = ReleaseSpec(
        Budget(epsilon, delta),
        queries_per_user,
        clicks_per_user,
        reformulations_per_user,
        selector or "auto",  # type: ignore[arg-type]  # checked by the request
        pairs(shares, "--shares"),
        select_only,
    )
    made = calibrate(request)
    seen = forecast(request, users, made, like)
    loss = made.loss
    data = _as_data(seen) | {
        "epsilon": loss.epsilon(request.budget.delta),
        "delta": float(request.budget.delta),
        "delta_exact": loss.delta(request.budget.epsilon),
        "shares": {name: float(share) for name, share in made.shares.items()},
        "steps": [{"name": s.name, "detail": s.detail, "parameters": s.parameters.to_json()} for s in made.steps()],
    }
    if isinstance(made.selector, Korolova):
        data |= theorem_table(made.selector.theorem)
    lines = [_in_words(seen, like)]
    for i, step in enumerate(made.steps(), 1):
        lines.append(f"  {i}. {step.name}: {step.detail}")
    if isinstance(made.selector, Korolova):
        lines.append(_theorem_in_words(made.selector.theorem))
    in_all = f"epsilon {format_epsilon(data['epsilon'])}, delta {format_delta(request.budget.delta)}"
    lines.append(f"  in all: {in_all} for one user, add-remove")
    data["warnings"] = [*request.budget.concerns(), *seen.warnings]
    lines += [f"warning: {warning}" for warning in data["warnings"]]
    emit(data, "\n".join(lines), as_json=as_json)


def _backwards(
    threshold: str | None,
    scale: str | None,
    count_scale: str | None,
    click_scale: str | None,
    queries_per_user: int | None,
    clicks_per_user: int | None,
    users: int | None,
    as_json: bool,
) -> None:
    from hushquery.core.budget import format_delta, format_epsilon, suggested_delta
    from hushquery.core.rounding import exact
    from hushquery.curator.forecast import checked_users, theorem_table
    from hushquery.curator.selectors.korolova2009 import Korolova, Theorem1

    if threshold is None or scale is None or queries_per_user is None:
        raise UsageError(
            "Theorem 1 backwards needs --threshold, --scale and --queries-per-user",
            fix="Try: hushquery plan --threshold 140 --scale 8.69 --queries-per-user 20",
        )
    if click_scale is not None and clicks_per_user is None:
        raise UsageError("--click-scale needs --clicks-per-user", fix="Give both or neither")
    theorem = Theorem1(
        queries_per_user,
        exact(threshold, "the threshold"),
        exact(scale, "the scale"),
        None if count_scale is None else exact(count_scale, "the scale of counts"),
        clicks_per_user or 0,
        None if click_scale is None else exact(click_scale, "the scale of clicks"),
    )
    people = checked_users(users)
    rare = people * Korolova(theorem, None).rare_chance()
    delta = max(theorem.delta_alg, theorem.delta_exact)
    warnings = []
    if people * delta > 0.1:
        warnings.append(
            f"delta {delta:.3g} is not small for {people:,} users; consider one of {suggested_delta(people):.0e}"
        )
    data: dict[str, Any] = {
        "selector": "korolova2009",
        "epsilon": theorem.epsilon_alg,
        "delta": delta,
        "queries_per_user": queries_per_user,
        **theorem_table(theorem),
        "expected_rare": rare,
        "users": people,
        "warnings": warnings,
    }
    text = "\n".join(
        [
            f"epsilon {format_epsilon(theorem.epsilon_alg)}, delta {format_delta(delta)} for one user, add-remove",
            _theorem_in_words(theorem),
            f"  expected near-unique queries among {people:,} users: {rare:.3g} at most",
            *(f"warning: {warning}" for warning in warnings),
        ]
    )
    emit(data, text, as_json=as_json)


def _compare(
    epsilon: str,
    delta: str,
    selector: str | None,
    users: int | None,
    like: str,
    plot: Path | None,
    as_json: bool,
    tables: dict[str, Any],
) -> None:
    from hushquery.core.budget import Budget, in_full
    from hushquery.curator.calibrate import SELECTORS
    from hushquery.curator.forecast import TYPICAL_QUERIES, compare

    budget = Budget(epsilon, delta)
    chosen = tuple(s for s in SELECTORS if s != "auto") if selector in (None, "auto") else (selector,)
    rows = compare(budget, users, selectors=chosen, like=like, **tables)  # type: ignore[arg-type]  # checked there
    people = rows[0].users
    lines = [
        f"Selectors for {people:,} users at {budget}. Released: 90% range for a log like {like}.",
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
    lines += [
        "",
        "Thresholds are in users (searches for korolova2009; users' weights, 1/sqrt(t) each, for weighted and guided).",
        "Rare: queries that only one person posed and that come out all the same, expected at most.",
    ]
    warnings = [*budget.concerns(), *sorted({warning for row in rows for warning in row.warnings})[-1:]]
    lines += [f"warning: {warning}" for warning in warnings]
    if plot is not None:
        from hushquery import plot as charts

        lines.append(f"open {charts.save(charts.forecasts([_as_data(row) for row in rows]), plot)}")
    data = {"epsilon": float(budget.epsilon), "delta": float(budget.delta), "users": people}
    emit(data | {"forecasts": [_as_data(row) for row in rows], "warnings": warnings}, "\n".join(lines), as_json=as_json)


def _as_data(seen: Forecast) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(seen) | {"warnings": list(seen.warnings)}


def _released(seen: Forecast) -> str:
    return f"{seen.released_low:,} to {seen.released_high:,}"


def _in_words(seen: Forecast, like: str) -> str:
    from hushquery.core.budget import in_full

    noise = "" if seen.noise is None else f" Counts have noise of standard deviation {in_full(seen.noise, 3)}."
    return (
        f"{seen.selector}, d = {seen.queries_per_user}: "
        f"a query comes out from about {in_full(seen.threshold, 5)} on.{noise}\n"
        f"  a log like {like} with {seen.users:,} users releases {_released(seen)} queries (90% range),\n"
        f"  at most {seen.expected_rare:.3g} of them, in expectation, posed by one person only;\n"
        f"  d leaves {seen.untouched:.0%} of typical users untouched"
    )


def _theorem_in_words(theorem: Theorem1) -> str:
    return (
        f"  Theorem 1: K = {float(theorem.threshold):.2f}, b = {float(theorem.scale):.2f}; delta_alg "
        f"{theorem.delta_alg:.4g}, exact delta of what runs {theorem.delta_exact:.4g}, naive {theorem.delta_naive:.4g}"
    )
