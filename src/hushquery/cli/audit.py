"""``hushquery audit``: attack a mechanism and see whether its claim holds."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, argument, emit, flag, option, progress
from hushquery.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from hushquery.core.registry import Mechanism


# At this delta a few million runs tell every broken threshold from an honest one.
_CONTROL_DELTA, _CONTROL_RUNS = "1e-3", 4_000_000


def audit(
    context: typer.Context,
    name: Annotated[str | None, argument("[NAME]", "A registered mechanism, or your own as FILE.py:Class.")] = None,
    epsilon: Annotated[str | None, option("E", "The epsilon it is asked to keep.")] = None,
    delta: Annotated[str, option("D", "The delta it is asked to keep; an audit spends nothing.")] = "1e-5",
    runs: Annotated[int | None, option("N", "Runs per world; by default what comes near epsilon 1.")] = None,
    seed: Annotated[int | None, option("S", "Make the runs repeatable.")] = None,
    confidence: Annotated[float, option("P", "That the bound is below the true epsilon.")] = 0.999,
    method: Annotated[str, option("METHOD", "events, or one-run (canaries in a single release).")] = "events",
    conformance: Annotated[
        bool, flag("--conformance", "Check it against its own law and claim, as the test suite does.")
    ] = False,
    list_: Annotated[bool, flag("--list", "List the registered mechanisms.")] = False,
    controls: Annotated[
        bool, flag("--controls", "In a clone: audit mechanisms that are broken on purpose; all must be flagged.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Attack a mechanism: a lower bound on its true epsilon, from many runs on neighbouring inputs.

    An audit can prove a claim false (exit code 1, "flagged"), never true.

        hushquery audit --list
        hushquery audit discrete-laplace --epsilon 1
        hushquery audit my_mechanism.py:MyNoise --epsilon 0.5 --delta 1e-6
        hushquery audit my_mechanism.py:MyNoise --conformance
        hushquery audit --controls
    """
    if conformance:
        if name is None or _given(context) != {"name", "conformance"}:
            raise UsageError(
                "a check of conformance takes a mechanism and nothing else",
                why="its budgets and its runs are those of the test suite",
                fix="For example: hushquery audit gaussian --conformance",
            )
        _conformance(name, as_json)
    elif list_:
        _list(as_json)
    elif controls:
        _controls(epsilon or "1", seed, as_json)
    elif name is None or epsilon is None:
        fix = "For example: hushquery audit gaussian --epsilon 1"
        raise UsageError("an audit needs a mechanism and an epsilon", fix=fix)
    elif method not in ("events", "one-run"):
        raise UsageError(f"no audit method is called {method!r}", fix="Give --method events or --method one-run")
    else:
        _one(name, epsilon, delta, as_json, runs=runs, seed=seed, confidence=confidence, method=method)


def _given(context: typer.Context) -> set[str]:
    """Return which parameters were given, though it be with their defaults; --json changes no check."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and not source.name.startswith("DEFAULT")}
    return given - {"as_json"}


def _list(as_json: bool) -> None:
    from hushquery.core.registry import find, names

    classes = {name: find(name) for name in names()}
    rows = [{"name": n, "kind": c.kind, "relation": c.relation.value, "summary": c.summary} for n, c in classes.items()]
    text = "\n".join("{name:20} {kind:11} {relation:12} {summary}".format(**row) for row in rows)
    emit({"mechanisms": rows}, text, as_json)


def _one(name: str, epsilon: str, delta: str, as_json: bool, **how: Any) -> None:
    from hushquery.auditing.attacks import audit as run_audit

    with progress(f"auditing {name}", 1.0) as show:
        result = run_audit(name, epsilon, delta, **how, progress=lambda done: show(done=done))
    verdict = "not flagged: the runs do not contradict the claim (which does not prove it)"
    if result.flagged:
        verdict = "FLAGGED: this mechanism loses more than it claims"
    text = (
        f"{result.mechanism} claims epsilon {result.claimed_epsilon:g}, delta {result.claimed_delta:g}\n"
        f"lower bound on the true epsilon: {result.lower_bound:.4f} "
        f"(confidence {result.confidence:g}, {result.runs:,} runs per world, method {result.method})\n"
        f"best event: {result.event}, between two datasets that differ by {result.pair}\n{verdict}"
    )
    emit(result.to_json(), text, as_json)
    if result.flagged:
        raise typer.Exit(1)


def _conformance(name: str, as_json: bool) -> None:
    from hushquery.auditing.conformance import DELTA, EPSILON
    from hushquery.auditing.conformance import conformance as run_checks
    from hushquery.core.registry import find

    cls = find(name)
    with progress(f"checking {name}", 1.0) as show:
        findings = run_checks(cls, progress=lambda done: show(done=done))
    lines = []
    for finding in findings:
        lines.append(f"{'ok' if finding.holds else 'FAILS':6} {finding.check}")
        lines += [f"       {text}" for text in finding.found]
    conforms = all(finding.holds for finding in findings)
    pairs, at = len(list(cls.calibrate(EPSILON, DELTA).pairs())), f"epsilon {float(EPSILON):g}, delta {float(DELTA):g}"
    loses = "what it claims" if cls.tight else "no more than it claims (it is not stated to be tight)"
    lines.append(
        f"{name} conforms at {at}, on {pairs} pair{'' if pairs == 1 else 's'} of datasets:\n"
        f"       it draws what it states and loses {loses}; other pairs are not checked"
        if conforms
        else f"{name} does NOT conform: fix it before it touches anybody's data"
    )
    data = {"mechanism": name, "conforms": conforms, "epsilon": float(EPSILON), "delta": float(DELTA), "pairs": pairs}
    data |= {"tight": cls.tight, "checks": [finding.to_json() for finding in findings]}
    emit(data, "\n".join(lines), as_json)
    if not conforms:
        raise typer.Exit(1)


def _find_controls() -> dict[str, Callable[[Fraction, Fraction], Mechanism[Any]]]:
    """Import the negative controls, which are tests: only a clone has them."""
    tests = Path(__file__).resolve().parents[3] / "tests"
    if not (tests / "controls" / "__init__.py").is_file():
        raise Unavailable(
            "the broken mechanisms are not here",
            why="they are tests, and this is an installed package",
            fix="Clone the repository, run `make setup` and there `.venv/bin/hushquery audit --controls`",
        )
    sys.path.insert(0, str(tests))
    try:
        controls: dict[str, Callable[[Fraction, Fraction], Mechanism[Any]]] = import_module("controls").CONTROLS
        return controls
    finally:
        sys.path.remove(str(tests))


def _controls(epsilon: str, seed: int | None, as_json: bool) -> None:
    from hushquery.auditing.attacks import audit as run_audit
    from hushquery.core.budget import exact

    controls, rows = _find_controls(), list[dict[str, Any]]()
    with progress("auditing broken mechanisms", len(controls)) as show:
        for name, build in controls.items():
            broken = build(exact(epsilon, "epsilon"), exact(_CONTROL_DELTA))
            result = run_audit(broken, epsilon, broken.loss.delta(epsilon), runs=_CONTROL_RUNS, seed=seed)
            rows.append({**result.to_json(), "mechanism": name})
            show(more=1)
    missed = [row["mechanism"] for row in rows if not row["flagged"]]
    lines = [
        f"{r['mechanism']:34} lower bound {float(r['lower_bound']):8.3f}  {'flagged' if r['flagged'] else 'MISSED'}"
        for r in rows
    ]
    emit({"controls": rows, "all_flagged": not missed}, "\n".join(lines), as_json)
    if missed:
        raise typer.Exit(1)
