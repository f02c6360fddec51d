"""Try mutants: ``make mutants``, or ``make mutants ARGS="krr ledger"`` for those whose name or area holds a word.

Writes docs/mutants.md when all were tried (``--page`` for any). Exit code 1 if one survives, or if a check fails
without a mutant. While writing mutants: ``--no-audits`` runs tests alone, ``--no-baseline`` leaves out the run without
a mutant.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial

from mutants.catalogue import AREAS, EVERY
from mutants.model import ROOT, Mutant
from mutants.page import page
from mutants.run import Outcome, attempt, passing

JOBS = 2

_say = partial(print, flush=True)


def main(words: list[str]) -> int:
    """Try what was asked for; 1 if any survives."""
    options = {word for word in words if word.startswith("--")}
    wanted = [word for word in words if word not in options]
    chosen = [
        one
        for area, mutants in AREAS.items()
        for one in mutants
        if not wanted or any(word in (area, one.name) or word in one.name for word in wanted)
    ]
    if "--no-audits" in options:
        chosen = [replace(one, audits=()) for one in chosen]
    if not chosen:
        _say(f"no mutant is called {' or '.join(wanted)}; areas are {', '.join(AREAS)}")
        return 2
    broken = [] if "--no-baseline" in options else passing(chosen)
    for check in broken:
        _say(f"FAILS WITHOUT A MUTANT  {check}")
    with ProcessPoolExecutor(JOBS) as pool:
        outcomes = [_told(tried.result()) for tried in as_completed([pool.submit(attempt, one) for one in chosen])]
    alive = [outcome for outcome in outcomes if not outcome.dead]
    _say(f"\n{len(outcomes) - len(alive)} of {len(outcomes)} mutants killed; {len(broken)} checks fail without one")
    if "--page" in options or (len(chosen) == len(EVERY) and not options):
        target = ROOT / "docs" / "mutants.md"
        target.write_text(page(outcomes), encoding="utf-8")
        _say(f"wrote {target.relative_to(ROOT)}")
    return 1 if alive or broken else 0


def _told(outcome: Outcome) -> Outcome:
    one: Mutant = outcome.mutant
    _say(f"{'killed  ' if outcome.dead else 'SURVIVES'}  {one.name}  ({outcome.seconds:.0f} s)  {one.harm}")
    for killer in outcome.killers:
        _say(f"          by {killer}")
    for check in outcome.survived:
        _say(f"          NOT by {check}")
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
