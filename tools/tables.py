"""Write docs/composition.md: what each rule of composition gives, side by side, with groups and shuffling."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

from hushquery.core.budget import format_delta
from hushquery.core.calibration import agd, mu_for
from hushquery.core.composition import compose, group
from hushquery.core.loss import Loss
from hushquery.core.pld import LaplaceStep
from hushquery.core.shuffle import shuffle_any, shuffle_closed_form, shuffle_krr
from hushquery.errors import CalibrationError

PAGE = Path(__file__).parent.parent / "docs" / "composition.md"
COMMAND = "python tools/tables.py"
EPSILON, DELTA = "0.1", "1e-6"
TIMES = (1, 10, 100)


def up(value: float, digits: int = 4) -> str:
    """Print a number with some significant digits, rounded up."""
    # A double that stands for 0.3 must not print as 0.3001.
    number = Decimal(repr(value)) * (1 - Decimal("1e-12"))
    if not number:
        return "0"
    unit = Decimal(1).scaleb(number.adjusted() - digits + 1)
    rounded = (number / unit).to_integral_value(ROUND_CEILING) * unit
    return f"{rounded.normalize():f}" if rounded > Decimal("1e-3") else f"{float(rounded):.{digits - 1}e}"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def rules(steps: Sequence[Loss | LaplaceStep]) -> list[str]:
    """Give the table of all rules for 1, 10 and 100 releases, the smallest epsilon of each column in bold."""
    found = [compose(list(steps) * times, DELTA) for times in TIMES]
    lines = [row("rule", *(f"{times} release{'s' if times > 1 else ''}" for times in TIMES), "how (100 releases)")]
    lines.append(row(*["---"] * (len(TIMES) + 2)))
    for rule in found[0].alternatives:
        cells = []
        for one in found:
            value = one.alternatives[rule]
            cell = up(value) if isinstance(value, float) else "-"
            cells.append(f"**{cell}**" if rule == one.rule else cell)
        last = found[-1].alternatives[rule]
        lines.append(row(rule, *cells, found[-1].notes[rule] if isinstance(last, float) else last))
    return lines


def group_table() -> list[str]:
    mu = mu_for(EPSILON, DELTA)
    lines = [
        row("people", "epsilon", "delta of any such release", "delta of Gaussian noise", "mu of that noise"),
        row(*["---"] * 5),
    ]
    for people in range(1, 6):
        epsilon, delta = group(EPSILON, DELTA, people)
        together = people * mu
        cells = (up(epsilon), format_delta(delta), format_delta(agd(epsilon, together)), up(float(together)))
        lines.append(row(str(people), *cells))
    return lines


def shuffle_table() -> list[str]:
    lines = [
        row("local epsilon", "values k", "reports n", "k-ary response", "any randomizer", "closed form"),
        row(*["---"] * 6),
    ]
    sizes = [(50, 10_000), (500, 100_000), (50, 1_000_000)]
    for epsilon0, k, n in [(e, k, n) for k, n in sizes for e in (1, 2, 4)]:
        try:
            closed = up(shuffle_closed_form(epsilon0, n, DELTA))
        except CalibrationError:
            closed = "not proved"
        krr, anything = shuffle_krr(epsilon0, k, n, DELTA), shuffle_any(epsilon0, n, DELTA)
        lines.append(row(str(epsilon0), str(k), f"{n:,}", up(krr), up(anything), closed))
    return lines


def page(date: str) -> str:
    """Give the whole page."""
    count = LaplaceStep(1, 10)
    total = LaplaceStep(10, 100)
    mu = mu_for(EPSILON, DELTA)
    noise = Loss(mu_squared=mu**2)
    parts = [
        "# Composition, group privacy and shuffling in numbers",
        "",
        f"Made on {date} (UTC) by `{COMMAND}`; numbers are rounded up. Do not edit: run it again.",
        "",
        f"Every table is at delta {DELTA} for everything together. Bold: the smallest epsilon proved.",
        "The rules and their proofs are in `hushquery.core.composition`, `.pld` and `.loss`.",
        "",
        f"## Counts with Laplace noise, epsilon {EPSILON} each",
        "",
        "Discrete Laplace noise of scale 10 on counts to which one user adds at most 1. Loss by loss this is",
        "a randomised response, so no rule can be below `mixed`, which is exact for it.",
        "",
        *rules([count]),
        "",
        f"## Sums with Laplace noise, epsilon {EPSILON} each",
        "",
        "The same epsilon, but noise of scale 100 on sums to which one user adds at most 10. Only PLD sees",
        "the difference.",
        "",
        *rules([total]),
        "",
        f"## Gaussian noise, epsilon {EPSILON} at delta {DELTA} each",
        "",
        f"The same (epsilon, delta) for a single release: mu = {float(mu):.6f}.",
        "",
        *rules([noise]),
        "",
        "## Mixed: each release is one count with Laplace and one with Gaussian noise, as above",
        "",
        *rules([count, noise]),
        "",
        "## Groups",
        "",
        f"A release that is (epsilon {EPSILON}, delta {DELTA})-DP for one person, for some people together.",
        "The column for Gaussian noise holds for noise alone: with thresholds a key that all of them share",
        "has to be charged, and the column before it applies.",
        "",
        *group_table(),
        "",
        "## Shuffling",
        "",
        f"The central epsilon of n honest, shuffled reports at delta {DELTA}, under replace-one. It needs a",
        "real shuffler; towards the shuffler only the local epsilon holds.",
        "",
        *shuffle_table(),
        "",
    ]
    return "\n".join(parts)


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(datetime.now(UTC).date().isoformat()), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
