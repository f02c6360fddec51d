"""``hushquery explain``: what an epsilon means, alone, for a group, after many releases, and behind a shuffler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hushquery.cli.common import JsonFlag, emit, group, option
from hushquery.errors import CalibrationError, UsageError

app = group(
    "explain", "What an epsilon means: in words, for groups, after many releases, behind a shuffler. Reads no data."
)

Epsilon = Annotated[str, option("E", "1, 0.5, 1/3 or ln(10).")]
Delta = Annotated[str, option("D", "0, 1e-6 or 1/1000000.")]


@app.command()
def guarantee(
    epsilon: Epsilon,
    delta: Delta = "0",
    unit: Annotated[str, option("NAME", "Whom it protects.")] = "user",
    relation: Annotated[str, option("RELATION", "add-remove or replace-one.")] = "add-remove",
    population: Annotated[str, option("NAME", "Of which people.")] = "everybody in the data",
    prior: Annotated[list[float] | None, option("P", "What an attacker believed before; may be repeated.")] = None,
    plot: Annotated[Path | None, option("FILE", "Draw the two worlds in a .html, .svg or .png file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Explain what an (epsilon, delta) promises, in words a lawyer can read, and draw the two worlds.

    hushquery explain guarantee --epsilon 1 --delta 1e-6 --prior 0.01 --plot worlds.svg
    """
    from hushquery.core.budget import Budget, Unit, round_up
    from hushquery.core.guarantee import Guarantee

    budget = Budget(epsilon, delta)
    budget.warn()
    stated = Guarantee(population, "curator", Unit(unit, relation), round_up(budget.epsilon), round_up(budget.delta))
    priors = prior or [0.01, 0.1, 0.5]
    text = stated.in_words(priors)
    posteriors = [{"prior": p, "posterior": stated.posterior(p)} for p in priors]
    data = {**stated.to_json(), "words": text, "posteriors": posteriors}
    if plot is not None:
        from hushquery.plot import save, two_worlds

        text += f"\nwrote {save(two_worlds(budget.epsilon), plot)}"
        data["plot"] = str(plot)
    emit(data, text, as_json)


@app.command()
def compose(
    delta: Annotated[str, option("D", "The delta of all releases together.")],
    times: Annotated[int, option("K", "How many releases.", min=1, max=100_000)],
    epsilon: Annotated[str | None, option("E", "The pure epsilon of each (Laplace noise).")] = None,
    mu: Annotated[str | None, option("MU", "Or the mu of each (Gaussian noise: sensitivity over sigma).")] = None,
    total: Annotated[
        str | None, option("E", "Or the epsilon of all together, which is divided as `release --times` does.")
    ] = None,
    queries_per_user: Annotated[
        int, option("D", "With --total: of each release, as in `hushquery release`.", min=1)
    ] = 20,
    as_json: JsonFlag = False,
) -> None:
    r"""Add up many releases by every rule, side by side, or divide one budget over them.

    hushquery explain compose --epsilon 0.1 --times 100 --delta 1e-6
    hushquery explain compose --total 2 --times 52 --delta 1e-6
    """
    from hushquery.core.budget import exact
    from hushquery.core.composition import compose as run_compose
    from hushquery.core.loss import Loss

    if sum(given is not None for given in (epsilon, mu, total)) != 1:
        raise UsageError("use one of --epsilon (Laplace noise), --mu (Gaussian noise) and --total (to divide)")
    if total is not None:
        _divide(total, delta, times, queries_per_user, as_json)
        return
    one = Loss(pure=(epsilon,)) if epsilon is not None else Loss(mu_squared=exact(mu or 0, "mu") ** 2)
    result = run_compose([one] * times, delta)
    emit(result.to_json(), result.explain(), as_json)


def _divide(total: str, delta: str, times: int, queries_per_user: int, as_json: bool) -> None:
    """Show what each of some releases may cost, such that the ledger accepts all of them and no more."""
    from hushquery.core.budget import Budget, format_epsilon
    from hushquery.core.fitting import repeated
    from hushquery.curator.fitting import divided
    from hushquery.curator.plan import ReleaseSpec, calibrate

    whole = Budget(total, delta)
    each = divided(ReleaseSpec(whole, queries_per_user), times, calibrate)
    steps = calibrate(each)
    together = repeated(steps.loss, times).epsilon(whole.delta)
    text = (
        f"{times} releases of {each.budget} each ({steps.selector.name}, {queries_per_user} queries per user, "
        f"threshold {steps.selector.threshold:g})\n"
        f"together, as the ledger adds them up: epsilon {format_epsilon(together)} of {format_epsilon(whole.epsilon)} "
        f"at delta {delta}; their epsilons alone add up to {format_epsilon(times * each.budget.epsilon)}"
    )
    data = {"times": times, "epsilon": float(whole.epsilon), "delta": float(whole.delta), "together": together}
    part = {"epsilon": str(each.budget.epsilon), "delta": str(each.budget.delta), "selector": each.selector}
    emit(data | {"each": part, "threshold": steps.selector.threshold}, text, as_json)


@app.command("group")
def several(
    epsilon: Epsilon,
    delta: Delta = "0",
    people: Annotated[int, option("K", "Up to how many people together.", min=1, max=1000)] = 5,
    as_json: JsonFlag = False,
) -> None:
    r"""Show what a guarantee for one person is worth for several people together.

    hushquery explain group --epsilon 1 --delta 1e-9 --people 4
    """
    from hushquery.core.budget import format_delta, format_epsilon
    from hushquery.core.composition import group as run_group

    rows = [(k, *run_group(epsilon, delta, k)) for k in range(1, people + 1)]
    text = "\n".join(f"{k:>4} people  epsilon {format_epsilon(e)}, delta {format_delta(d)}" for k, e, d in rows)
    emit({"groups": [{"people": k, "epsilon": e, "delta": d} for k, e, d in rows]}, text, as_json)


@app.command()
def shuffle(
    epsilon: Annotated[str, option("E", "The local epsilon of one report.")],
    reports: Annotated[int, option("N", "How many honest reports are shuffled together.", min=2)],
    delta: Annotated[str, option("D", "The central delta.")],
    k: Annotated[int | None, option("K", "The number of values, for k-ary randomised response.", min=2)] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Show what a local guarantee is worth once a shuffler has hidden who sent what.

    hushquery explain shuffle --epsilon 1 --reports 10000 --delta 1e-6 --k 50
    """
    from hushquery.core.budget import format_epsilon
    from hushquery.core.shuffle import shuffle_any, shuffle_closed_form, shuffle_krr

    amplified = shuffle_any(epsilon, reports, delta) if k is None else shuffle_krr(epsilon, k, reports, delta)
    try:
        closed = shuffle_closed_form(epsilon, reports, delta)
    except CalibrationError:
        closed = None  # outside its range of validity
    text = (
        f"central epsilon {format_epsilon(amplified)} at delta {delta} "
        f"(replace-one, {reports:,} honest reports, and only if a shuffler really hides who sent what)\n"
        f"closed form: {'does not apply' if closed is None else format_epsilon(closed)}"
    )
    data = {"local_epsilon": epsilon, "reports": reports, "k": k, "delta": delta}
    emit(data | {"epsilon": amplified, "closed_form": closed}, text, as_json)
