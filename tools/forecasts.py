"""Compare forecasts with releases of synthetic logs and write docs/forecasts.md: ``python tools/forecasts.py``."""

from __future__ import annotations

import datetime
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hushquery import PrivacyWarning
from hushquery.curator.counting import Bound
from hushquery.curator.forecast import forecast
from hushquery.curator.plan import SELECTORS, SelectorName, plan_release
from hushquery.log.synthetic.logs import PROFILE_NAMES, write_log
from hushquery.noise.sampler import SystemBits

PAGE = Path(__file__).parents[1] / "docs" / "forecasts.md"
#: Of users, evenly on a scale of ratios; the profiles take turns.
SIZES = [round(500 * 200 ** (i / 19)) for i in range(20)]
#: Epsilon, delta and d; they take turns too, each with every profile.
BUDGETS = [("1", "1e-6", 10), ("ln 10", "1e-5", 20), ("2", "1e-6", 5), ("0.5", "1e-5", 20)]


def logs() -> Iterator[tuple[str, int, tuple[str, str, int]]]:
    """Yield the twenty logs: profile, users, and what is asked of them."""
    for i, users in enumerate(SIZES):
        yield PROFILE_NAMES[i % len(PROFILE_NAMES)], users, BUDGETS[i % len(BUDGETS)]


def compare(
    path: Path, profile: str, users: int, asked: tuple[str, str, int], selector: SelectorName
) -> tuple[int, int, int]:
    """Return the range that was forecast and what a release gave, with real noise."""
    epsilon, delta, d = asked
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # of a delta that is large for so few made-up people
        plan = plan_release(
            path, epsilon=epsilon, delta=delta, queries_per_user=d, selector=selector, population="nobody"
        )
    seen = forecast(plan.spec, users, plan.calibrated, profile)
    bits = SystemBits()
    bound = Bound(plan.bound.keep, "".join(f"{word:016x}" for word in bits.words(2).tolist()))
    return seen.released_low, seen.released_high, plan.calibrated.selector.run(plan.log.rows, bound, bits).num_rows


def main() -> None:
    """Make the logs, run every selector on each, and write the page."""
    selectors = SELECTORS[1:]
    rows, inside = [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for seed, (profile, users, asked) in enumerate(logs(), 1):
            path = write_log(Path(folder) / "log.parquet", profile, users, seed, force=True)
            cells = []
            for selector in selectors:
                low, high, result = compare(path, profile, users, asked, selector)
                within = low <= result <= high
                inside[selector] += within
                cells.append(f"{low:,} to {high:,}: {f'{result:,}' if within else f'**{result:,}**'}")
            epsilon, delta, d = asked
            rows.append(f"| {profile} | {users:,} | {epsilon}, {delta}, {d} | {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    lines = [
        "# Forecasts and results",
        "",
        f"Made by `python tools/forecasts.py` on {datetime.date.today():%Y-%m-%d}. For each of twenty synthetic logs:",
        "how many queries `hushquery plan --users N --like PROFILE` forecasts, and after the colon how many a release",
        "with real noise gave, **bold** where that is outside. A forecast is a 90% range, at most four times wide; one",
        "that ends at ten or less begins at zero, because no such range of so few holds nine of ten results. It uses",
        "the numbers of the plan and what is public of the profile, never the log.",
        "",
        f"| log | users | epsilon, delta, d | {' | '.join(selectors)} |",
        f"| --- | ---: | --- |{' ---: |' * len(selectors)}",
        *rows,
        f"| inside | | of {len(rows)} | {' | '.join(str(inside[s]) for s in selectors)} |",
        "",
        "A log in which people search for few different things (`tiny`) releases three to six times as many queries as",
        "an ordinary one of the same size, so no range of four holds both: say with `--like` which one yours is like.",
        "A log of your own may differ from all three. The forecast says whether a plan is worth its budget, not more.",
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
