"""docs/mutants.md: every mutant with what killed it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from mutants.catalogue import AREAS
from mutants.run import Outcome

__all__ = ["page"]


def page(outcomes: Sequence[Outcome]) -> str:
    """Write the page from what came of the mutants."""
    of = {outcome.mutant.name: outcome for outcome in outcomes}
    dead = sum(outcome.dead for outcome in outcomes)
    lines = [
        "# Mutants and what killed them",
        "",
        "A mutant is a small mistake that somebody could make in production code and that would cost people their",
        "privacy. `make mutants` puts each into a copy of the code and runs the checks that should see it; `make",
        "prove` does so too, and `make test` for a few, chosen by the commit. A mutant is dead when a test of `make",
        "test` fails and, where it changes what a registered mechanism draws or claims, `hushquery audit NAME",
        "--conformance` fails too. Written by `make mutants`; do not edit. The list is in tests/mutants/.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC: **{dead} of {len(outcomes)} killed**,",
        f"in {sum(outcome.seconds for outcome in outcomes):.0f} seconds of processor time.",
    ]
    for area, mutants in AREAS.items():
        tried = [of[one.name] for one in mutants if one.name in of]
        if not tried:
            continue
        lines += [
            "",
            f"## {area.capitalize()}",
            "",
            "| mutant | what it would do | file | killed by |",
            "|---|---|---|---|",
        ]
        for outcome in tried:
            one = outcome.mutant
            killers = [f"`{killer.replace('|', '/')}`" for killer in outcome.killers]
            killers += [f"**survived** `{check.replace('|', '/')}`" for check in outcome.survived]
            lines.append(f"| {one.name} | {one.harm} | `{one.file}` | {'<br>'.join(killers)} |")
    return "\n".join(lines) + "\n"
