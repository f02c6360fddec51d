"""Show a release of estimates to people: the data card and the page, for what clients reported of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from hushquery.core.budget import exact, format_epsilon
from hushquery.release.axis import Axis
from hushquery.release.manifest import task_of
from hushquery.release.page import (
    card_table,
    nothing_promised,
    populations,
    promise,
    promise_lines,
    settings,
    weakness,
)
from hushquery.templates import number, render

if TYPE_CHECKING:
    from hushquery.release.release import Release

# Of a longer list the page shows the largest.
_MOST = 100

# The share of false texts in all that the test of candidates allows.
_ALPHA = 0.05

# What is for programs.
_HIDDEN = ("post", "task_text", "configuration_text")

#: How everything that is not on the list is called in a table.
OTHERS = "*"


def measure_shown(manifest: Mapping[str, Any]) -> str:
    """Return how estimates are printed: ``share``, in per cent, or ``mean``."""
    task = task_of(manifest["parameters"])
    return "mean" if task["task"]["kind"] == "number" and task["client"]["oracle"] != "dbitflip" else "share"


def card(release: Release) -> str:
    """Write the data card as Markdown."""
    guarantees, manifest = release.guarantees, release.manifest
    name = task_of(manifest["parameters"])["task"]["name"]
    return render(
        "card.md",
        title=f"{name}: what {populations(guarantees)} reported",
        subject=f"What people reported of “{name}”, randomised on their own devices",
        facts=list(release.description.facts()),
        nothing_promised=nothing_promised(guarantees),
        two_promises="",
        promises=[promise_lines(guarantee) for guarantee in guarantees],
        tables=[card_table(name, table, manifest) for name, table in release.tables.items()],
        rest=None,
        limits=limits(release),
        settings=settings(_shown_parameters(manifest)),
        manifest=manifest,
    )


def page(release: Release, signed: str = "") -> str:
    """Write the page; ``signed`` is the fingerprint of the key."""
    guarantees, manifest = release.guarantees, release.manifest
    weak, void = any(map(weakness, guarantees)), nothing_promised(guarantees)
    return render(
        "estimates.html",
        **results(release),
        facts=list(release.description.facts()),
        signed=signed,
        what="Not private" if void else "Private estimates with a weak promise" if weak else "Private estimates",
        manifest=manifest,
        nothing_promised=void,
        promises=[promise(guarantee, manifest) for guarantee in guarantees],
        settings=settings(_shown_parameters(manifest)),
    )


def results(release: Release, most: int = _MOST) -> dict[str, Any]:
    """Return what pages show of a release of estimates: what was asked, what came out, and what it can't tell."""
    manifest, tables = release.manifest, release.tables
    parameters, measure = manifest["parameters"], measure_shown(manifest)
    asked = task_of(parameters)["task"]
    texts = tables["candidates"]["text"].to_pylist() if "candidates" in tables else []
    rows = [
        {**row, measure: row["estimate"], "close": bool(texts) and _just_passed(row, len(texts))}
        for row in tables["estimates"].to_pylist()
    ]
    drawn = rows if len(rows) <= most else sorted(rows, key=lambda row: -row["estimate"])[:most]
    found = {row["value"] for row in rows}
    ends = [0.0, float(asked.get("highest") or 0.0)] if measure == "mean" else [0.0]
    meaning = str(manifest["meanings"]["estimates"])
    return {
        "name": asked["name"],
        "kind": asked["kind"],
        "people": populations(release.guarantees),
        "reports": parameters["reports"],
        "answer": format_epsilon(exact(parameters["answer_epsilon"])),
        "lifetime": format_epsilon(exact(parameters["lifetime_epsilon"])),
        "measure": measure,
        "heading": "The average" if measure == "mean" else "Texts that were found" if texts else "Shares",
        "meaning": meaning[:1].upper() + meaning[1:],
        "rows": drawn,
        "all": len(rows),
        "axis": Axis.over([*ends, *(row[end] for row in drawn for end in ("estimate", "low", "high"))]),
        "looked_for": len(texts),
        "missing": [text for text in texts if text not in found][:most],
        "close": "A text that just passed the test is within a standard error of where it would not have been found.",
        "level": f"{100 * float(manifest['interval_level']):g}",
        "limits": limits(release),
    }


def _just_passed(row: Mapping[str, Any], candidates: int) -> bool:
    """Return whether a text is within a standard error of the bar that its test set, 5% for all candidates together."""
    bar = NormalDist().inv_cdf(1 - _ALPHA / candidates)
    return bool(row["estimate"] < (bar + 1) * row["stderr"])


def limits(release: Release) -> list[str]:
    """Return what the estimates can't tell, a sentence each."""
    manifest, tables = release.manifest, release.tables
    level, what = 100 * float(manifest["interval_level"]), measure_shown(manifest)
    sentences = [
        f"Every report was randomised on its device. An interval covers the true {what} among those who reported in "
        f"about {level:g} of 100 cases; a small difference may be noise alone.",
        "The estimates speak of those who reported, not of everybody. Anybody can send reports, and whoever sends many "
        "false ones shifts them.",
    ]
    if "candidates" in tables:
        sentences.append(
            f"Only {number(tables['candidates'].num_rows)} texts were looked for. A text that is not among them can't "
            "be found, and one that was not found may still be held by a few."
        )
    elif OTHERS in tables["estimates"]["value"].to_pylist():
        sentences.append(f"Everything else, {OTHERS} in the tables, is what is not on the list.")
    done = manifest["parameters"]["post_processing"]
    if done and "candidates" not in tables:
        sentences.append(f"The estimates were post-processed ({', '.join(done)}): start sums from raw ones.")
    sentences.append("It must not be used to look for individual people, nor joined with other data for that purpose.")
    return sentences


def _shown_parameters(manifest: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in manifest["parameters"].items() if name not in _HIDDEN}
    return {**shown, "refused": shown["refused"] or "none"}
