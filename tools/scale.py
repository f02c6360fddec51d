"""Fit what a release costs against rows, and write the tables of docs/scale.md and its picture.

``python tools/scale.py`` reads docs/scale.json, which benchmarks/bench_scale.py wrote, and, where it is there,
docs/scale-clients.json, which benchmarks/bench_clients.py wrote. It replaces what is between the markers of the page
and draws docs/images/scale-rows.png. No number in the page is typed by hand.

Two models are fitted to each cost: fixed + rate x rows, and fixed + rate x rows x log(rows), as for sorting.
Both are fitted again without each of the points in turn, and asked for the point that was left out. A number for
the day is the first model's; its range goes from the smallest to the largest that any of all these fits says, and at
least to where the growth between the two largest logs leads, if it goes on.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, RESULTS, CLIENTS = DOCS / "scale.md", DOCS / "scale.json", DOCS / "scale-clients.json"
PICTURE = DOCS / "images" / "scale-rows.png"
# The day of a large search engine.
DAY_ROWS, DAY_USERS = 10_000_000_000, 1_000_000_000
SECONDS = 86_400
JOBS = ("plain query", "release", "guided release")
COLOURS = ("#999999", "#2e6f9e", "#d1495b")
# A list of so many records, and an epsilon, for what sampling costs in accuracy.
LIST_SIZE, EPSILON = 100, 1
SAMPLING = (1.0, 0.1, 0.01, 0.001)

Model = Callable[[float], float]


@dataclass(frozen=True)
class Fit:
    """A cost against rows: the model, and how far it can be trusted."""

    rows: Sequence[float]
    costs: Sequence[float]

    @property
    def fixed(self) -> float:
        return _line(self.rows, self.costs)[0]

    @property
    def rate(self) -> float:
        return _line(self.rows, self.costs)[1]

    @property
    def last_power(self) -> float:
        """The slope between the two largest logs on paper with two logarithmic axes: 1 is linear."""
        (n, m), (x, y) = self.rows[-2:], self.costs[-2:]
        return math.log(y / x) / math.log(m / n)

    def at(self, rows: float) -> float:
        return _linear(self.rows, self.costs)(rows)

    def left_out(self) -> list[float]:
        """Give, for each point, how far the line through the others misses it, as a share."""
        return [_linear(*self._without(i))(self.rows[i]) / self.costs[i] - 1 for i in range(len(self.rows))]

    def span(self, rows: float) -> tuple[float, float]:
        """Give the smallest and the largest that any fit says, or the growth between the two largest logs."""
        some = [(self.rows, self.costs)]
        if len(self.rows) > 2:
            some += [self._without(i) for i in range(len(self.rows))]
        told = [model(*points)(rows) for points in some for model in (_linear, _sorting)]
        told.append(self.costs[-1] * (rows / self.rows[-1]) ** max(1.0, self.last_power))
        return min(told), max(told)

    def _without(self, i: int) -> tuple[list[float], list[float]]:
        rows, costs = ([*column[:i], *column[i + 1 :]] for column in (self.rows, self.costs))
        return rows, costs


def _line(x: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """Fit a + b x, neither below 0, by least squares of relative errors."""
    work, cost = np.array(x, dtype=float), np.array(costs, dtype=float)
    (a, b), *_ = np.linalg.lstsq(np.column_stack([1 / cost, work / cost]), np.ones(len(work)), rcond=None)
    if a < 0:
        share = work / cost
        return 0.0, float(share.sum() / (share**2).sum())
    return float(a), max(float(b), 0.0)


def _linear(rows: Sequence[float], costs: Sequence[float]) -> Model:
    fixed, rate = _line(rows, costs)
    return lambda n: fixed + rate * n


def _sorting(rows: Sequence[float], costs: Sequence[float]) -> Model:
    fixed, rate = _line([n * math.log(n) for n in rows], costs)
    return lambda n: fixed + rate * n * math.log(n)


# ---- what was measured ----------------------------------------------------------------------------------------------


def of_job(found: dict[str, Any], job: str) -> list[dict[str, Any]]:
    return sorted((row for row in found["measured"] if row["job"] == job), key=lambda row: row["rows"])


def fit(found: dict[str, Any], job: str, value: Callable[[dict[str, Any]], float | None]) -> Fit | None:
    """Fit one cost of a job; None where it was not measured on two logs at least."""
    points = [(row["rows"], value(row)) for row in of_job(found, job)]
    good = [(float(rows), float(cost)) for rows, cost in points if cost]
    return Fit([rows for rows, _ in good], [cost for _, cost in good]) if len(good) > 1 else None


def cpu(row: dict[str, Any]) -> float | None:
    seconds: float = row["cpu_seconds"]
    return seconds


def short(value: float) -> str:
    """Print a number with two or three digits and a word for its size."""
    for size, word in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{word}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def table(*rows: Sequence[str]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def made(found: dict[str, Any]) -> str:
    settings = found["settings"]
    limit = settings["engine_memory"] or "the engine's default"
    missing = f" No time was left for: {'; '.join(found['skipped'])}." if found["skipped"] else ""
    return (
        f"Measured on {found['date']} (UTC) by `{settings['command']}` on {settings['cores']} cores "
        f"({settings['machine']}); the engine's memory limited to {limit}. "
        f"Tables made by `python tools/scale.py`.{missing}"
    )


def measured_table(found: dict[str, Any]) -> list[str]:
    plain = {row["rows"]: row for row in of_job(found, JOBS[0])}
    rows = [
        ["job", "rows", "users", "CPU s", "x plain", "wall s", "us per row", "peak MiB", "on disk, MiB", "released"]
    ]
    for job in JOBS:
        for row in of_job(found, job):
            beside = plain.get(row["rows"])
            released = row.get("released", {})
            rows.append(
                [
                    job,
                    f"{row['rows']:,}",
                    f"{row['users']:,}",
                    f"{row['cpu_seconds']:.1f}",
                    f"{row['cpu_seconds'] / beside['cpu_seconds']:.2f}" if beside else "-",
                    f"{row['wall_seconds']:.1f}",
                    f"{1e6 * row['cpu_seconds'] / row['rows']:.2f}",
                    f"{row['peak_mib']:,}",
                    f"{row['spilled_mib']:,}",
                    ", ".join(f"{count:,} {name}" for name, count in released.items()) or "-",
                ]
            )
    return [made(found), "", *table(*rows)]


def model_table(found: dict[str, Any]) -> list[str]:
    rows = [["job", "fixed, CPU s", "us per row", "power, two largest", "misses a log left out by", "the largest by"]]
    for job in JOBS:
        one = fit(found, job, cpu)
        if one is None:
            continue
        errors = one.left_out() if len(one.rows) > 2 else []
        shown = f"{100 * min(errors):+.0f}% to {100 * max(errors):+.0f}%" if errors else "-"
        last = f"{100 * errors[-1]:+.0f}%" if errors else "-"
        rows.append([job, f"{one.fixed:.1f}", f"{1e6 * one.rate:.2f}", f"{one.last_power:.2f}", shown, last])
    return table(*rows)


def day_table(found: dict[str, Any]) -> list[str]:
    """Give what a day would cost, each number with its range."""
    rows = [["", *(JOBS)]]
    kinds: list[tuple[str, Callable[[dict[str, Any]], float | None], float]] = [
        ("core-hours of the engine", cpu, 1 / 3600),
        ("random words of 64 bits drawn", lambda row: row.get("random_words"), 1),
        ("MB returned to the driver", lambda row: (row.get("returned_bytes") or 0) / 1e6, 1),
        ("rows released", lambda row: sum(row.get("released", {}).values()), 1),
    ]
    for name, value, unit in kinds:
        cells = []
        for job in JOBS:
            one = fit(found, job, value)
            if one is None:
                cells.append("-")
                continue
            low, high = one.span(DAY_ROWS)
            cells.append(f"{short(one.at(DAY_ROWS) * unit)} ({short(low * unit)} to {short(high * unit)})")
        if set(cells) != {"-"}:
            rows.append([name, *cells])
    largest = max(row["rows"] for row in found["measured"])
    said = (
        f"The largest log that was measured has {largest:,} rows; this day has {DAY_ROWS / largest:,.0f} times as many."
    )
    return [said, "", *table(*rows)]


def memory_table(found: dict[str, Any]) -> list[str]:
    rows = [["job", "smallest log", "largest log", "rows x", "peak memory x", "power, two largest"]]
    for job in JOBS:
        own = of_job(found, job)
        one = fit(found, job, lambda row: row["peak_mib"])
        if one is None:
            continue
        first, last = own[0], own[-1]
        rows.append(
            [
                job,
                f"{first['rows']:,} rows: {first['peak_mib']:,} MiB",
                f"{last['rows']:,} rows: {last['peak_mib']:,} MiB",
                f"{last['rows'] / first['rows']:.3g}",
                f"{last['peak_mib'] / first['peak_mib']:.3g}",
                f"{one.last_power:.2f}",
            ]
        )
    return table(*rows)


# ---- the collector ---------------------------------------------------------------------------------------------------


def collector_table() -> list[str]:
    """Give what a collector of everybody's reports would get in a day, by the task's sampling."""
    from hushquery.local.configuration import choose_oracle
    from hushquery.local.report import HEADER_BYTES

    oracle = choose_oracle(LIST_SIZE + 1, EPSILON).oracle
    length = HEADER_BYTES + oracle.report_bytes
    rates = client_rates(oracle.name)
    heads = ["sampling", "reports a day", "requests a second", "requests, 500 in a batch", "GB a day"]
    heads += [f"standard error of a share ({oracle.name}, {LIST_SIZE} records, epsilon {EPSILON})"]
    heads += [f"core-hours to count them, {name}" for name in rates]
    rows = [heads]
    for share in SAMPLING:
        reports = DAY_USERS * share
        row = [
            f"{share:g}",
            short(reports),
            short(reports / SECONDS),
            short(reports / 500),
            short(reports * length / 1e9),
        ]
        row.append(f"{math.sqrt(oracle.variance(0.0, round(reports))):.1e}")
        row += [short(reports / rate / 3600) for rate in rates.values()]
        rows.append(row)
    return table(*rows)


def client_rates(oracle: str) -> dict[str, float]:
    """Give reports per CPU second that a server counts, by where they are, as bench_clients.py measured."""
    if not CLIENTS.exists():
        return {}
    found = json.loads(CLIENTS.read_text(encoding="utf-8"))["measured"]
    return {row["way"]: row["per_cpu_second"] for row in found if row["oracle"] == oracle and row["side"] == "server"}


# ---- the picture -----------------------------------------------------------------------------------------------------


def draw(found: dict[str, Any]) -> None:
    """Draw time and memory against rows on logarithmic axes, with the fitted lines."""
    import altair as alt

    from hushquery import plot

    used = [job for job in JOBS if of_job(found, job)]
    colour = alt.Color(
        "job:N",
        title=None,
        sort=used,
        scale=alt.Scale(domain=used, range=[COLOURS[JOBS.index(job)] for job in used]),
        legend=alt.Legend(orient="top"),
    )
    panels = []
    for name, title in (("cpu_seconds", "CPU seconds (lines: fixed + rate x rows)"), ("peak_mib", "peak memory, MiB")):
        points = [
            {"job": job, "rows": row["rows"], "value": row[name]} for job in used for row in of_job(found, job)
        ]  # fmt: skip
        base = alt.Chart(alt.InlineData(values=points)).encode(
            x=alt.X("rows:Q", title="rows of the log", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s")),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(type="log")),
            color=colour,
        )
        layers: list[Any] = [base.mark_point(filled=True, size=70)]
        if name == "cpu_seconds":
            lines = [
                {"job": job, "rows": rows, "value": one.at(rows)}
                for job in used
                if (one := fit(found, job, cpu)) is not None
                for rows in np.geomspace(one.rows[0], one.rows[-1], 40).tolist()
            ]
            layers.insert(0, base.mark_line(strokeWidth=1.5).properties(data=alt.InlineData(values=lines)))
        else:
            layers.insert(0, base.mark_line(strokeWidth=1.5))
        panels.append(alt.layer(*layers).properties(width=340, height=260))
    PICTURE.parent.mkdir(exist_ok=True)
    plot.save(alt.hconcat(*panels), PICTURE)


def filled(page: str, tables: dict[str, list[str]]) -> str:
    """Put the tables between the markers of the page; each has a place, and each place a table."""
    for name, lines in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            sys.exit(f"{PAGE.name} has no place for {name}, or two")
        before, _, rest = page.partition(start)
        page = before + start + "\n" + "\n".join(lines) + "\n\n" + end + rest.partition(end)[2]
    return page


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    if not source.exists():
        sys.exit(f"there is no {source}: run python benchmarks/bench_scale.py first")
    found = json.loads(source.read_text(encoding="utf-8"))
    tables = {
        "measured": measured_table(found),
        "memory": memory_table(found),
        "model": model_table(found),
        "day": day_table(found),
        "collector": collector_table(),
    }
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    draw(found)
    print(f"wrote {PAGE} and {PICTURE}")


if __name__ == "__main__":
    main()
