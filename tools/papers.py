"""Write docs/papers.md: what papers state, and what was measured here, side by side.

``python tools/papers.py`` reads the committed pages of the experiments and tools/paper_values.json, which has each
statement with its place in the paper. It measures nothing. ``--check`` fails if the page is not current.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushquery.local.rappor.plan import POWER, forecast

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "papers.md"
PAPERS = Path(__file__).resolve().parent / "paper_values.json"

SOURCES = ("experiments/korolova2009.md", "experiments/local.md", "experiments/blender.md")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
STAMP = re.compile(r"`benchmarks/|Measured on ")


@dataclass(frozen=True)
class Table:
    """A table of a page: under which heading, what was said right before it, folded under which summary."""

    heading: str
    caption: str
    lines: Sequence[str]
    folded: str | None = None

    @property
    def rows(self) -> list[list[str]]:
        """The cells, heads first, without the line of dashes."""
        split = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in self.lines]
        return [split[0], *split[2:]]


@dataclass
class Source:
    """A page that some other program wrote."""

    name: str
    title: str = ""
    made: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def dates(self) -> list[str]:
        """When its numbers were made."""
        told = [*self.made, *(table.caption for table in self.tables)]
        return sorted({date for text in told for date in DATE.findall(text)})

    def under(self, heading: str, head: str = "") -> Table:
        """Give the first table under a heading, or the first whose own first head is this."""
        found = [t for t in self.tables if t.heading.startswith(heading) and (not head or head in t.rows[0])]
        if not found:
            sys.exit(f"{self.name} has no table under {heading!r}")
        return found[0]


# ---- reading -------------------------------------------------------------------------------------------------------


def read(name: str) -> Source:
    """Read the tables of a page, and when, where and by which command it was made."""
    source = Source(name)
    folder = name.rpartition("/")[0]
    section, heading, folded, said, stamp = "", "", None, "", ""
    for block in _blocks((DOCS / name).read_text(encoding="utf-8")):
        first, text = block[0], " ".join(line.strip() for line in block)
        if first.startswith("```"):
            if folder and not heading:  # how an experiment says what made it
                source.made += [f"`{line[2:]}`" for line in block if line.startswith("$ ")][:1]
        elif first.startswith("# "):
            source.title = first[2:]
        elif first.startswith("## "):
            section = heading = first[3:]
            said = stamp = ""
        elif first.startswith("### "):
            heading, said = f"{section}: {first[4:]}", ""
        elif first.startswith("|"):
            caption = _relinked(f"{stamp} {said}".strip(), folder)
            source.tables.append(Table(heading, caption, block, folded))
            said = stamp = ""
        elif found := re.match(r"<details><summary>(.*?)</summary>", first):
            folded = found[1]
        elif first.startswith("</details>"):
            folded = None
        elif first.startswith("- "):
            source.made += ["; ".join(line.strip("- ") for line in block)] if first.startswith("- date") else []
        elif not heading:
            source.made += [text] if text.startswith(("Made on", "Written by")) else []
        elif STAMP.match(text):  # what was measured where and when is said once, before all tables of its section
            stamp = text
        elif not first.startswith(("![", "<!--", ">")):
            said = text
    if not source.tables or not source.dates:
        sys.exit(f"{name} is not the page of results that it was")
    return source


def _blocks(text: str) -> Iterator[list[str]]:
    """Cut a page into blocks of lines that belong together; a fence is one block."""
    block: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            if not fenced and block:
                yield block
                block = []
            block.append(line)
            fenced = not fenced
            if not fenced:
                yield block
                block = []
        elif fenced or line.strip():
            if block and not fenced and block[0].startswith("|") != line.startswith("|"):
                yield block
                block = []
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _relinked(text: str, folder: str) -> str:
    """Give a text of a page in a folder as it must be written one folder up."""

    def moved(link: re.Match[str]) -> str:
        if not folder or "://" in link[1] or link[1].startswith("#"):
            return link[0]
        target = link[1].removeprefix("../") if link[1].startswith("../") else f"{folder}/{link[1]}"
        return f"]({target})"

    return re.sub(r"\]\(([^)]+)\)", moved, text)


# ---- beside the papers ---------------------------------------------------------------------------------------------


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    return [_row(*heads), _row(*["---"] * len(heads)), *(_row(*row) for row in rows), ""]


def _korolova(source: Source, paper: Any) -> Iterator[str]:
    yield f"## {paper['paper']}\n"
    stated, ours = paper["thresholds"], {row[0]: row[1:] for row in source.under("The setting", "d").rows}
    yield f"The thresholds: {stated['where']}. Ours are computed by Theorem 1.\n"
    rows: list[list[object]] = []
    for name, label in (("K", "K, in searches"), ("b", "b")):
        rows.append([f"{name}, the paper", *stated[name]])
        rows.append([f"{name}, ours", *ours[label]])
    if [str(d) for d in stated["d"]] != source.under("The setting", "d").rows[0][1:]:
        sys.exit("the experiment has other values of d than the paper's table")
    yield from _table(["d", *map(str, stated["d"])], rows)
    volume = {row[0]: row for row in _saying(source, "Their share of the search volume").rows}
    distinct = {row[0]: row for row in _saying(source, "Their share of all distinct queries").rows}
    place = volume["selector"].index("d = 20")
    keywords = source.under("Keywords").rows
    fears = [row for row in source.under("Human fears").rows[1:] if int(row[3]) <= 10]
    said = paper["statements"]
    covered = "; ".join(
        f"{name}: {distinct[f'`{name}`'][place]} of the distinct queries, {volume[f'`{name}`'][place]} of the volume"
        for name in ("korolova2009", "gaussian", "guided")
    )
    closest = "; ".join(f"gamma {row[0]}: precision {row[5]}, recall of released {row[7]}" for row in keywords[1:])
    yield "What its text says of its experiments, on the log of a search engine; ours is on a synthetic log.\n"
    yield from _table(
        ["where", "the paper says", "ours"],
        [
            [said["coverage"]["where"], said["coverage"]["said"], f"d = 20: {covered}"],
            [said["keywords"]["where"], said["keywords"]["said"], closest],
            [
                said["fears"]["where"],
                said["fears"]["said"],
                f"{len(fears)} of the release's top 10 are the log's top 10",
            ],
        ],
    )
    yield f"{paper['not_at_hand']}\n"


def _blender(source: Source, paper: Any) -> Iterator[str]:
    yield f"## {paper['paper']}\n"
    all_ndcg = [row for row in _folded(source, "Figure 12").rows[1:] if row[3] != "-"]
    ranks = [row for row in _folded(source, "Figure 12").rows[1:] if row[0] == "AOL, LDPMiner"]
    lists = {
        mode: [float(row[3].split()[0]) for row in all_ndcg if f", {mode}," in row[0]] for mode in ("paper", "best")
    }
    found = [float(row[5].split()[0]) for row in ranks]
    yield from _table(
        ["where", "the paper says", "the paper's algorithm, measured here", "`best`, measured here", "verdict"],
        [
            [
                paper["abstract"]["where"],
                paper["abstract"]["said"],
                *(f"{min(values):.3f} to {max(values):.3f} (figure 12, epsilon 1 to 5)" for values in lists.values()),
                "-",
            ],
            [
                paper["ldpminer"]["where"],
                paper["ldpminer"]["said"],
                f"LDPMiner, ten queries by ranks: {min(found):.3f} to {max(found):.3f}",
                "-",
                "-",
            ],
            *([_place(row[0]), *row[1:]] for row in source.under("What the paper says").rows[1:]),
        ],
    )
    yield f"{paper['not_at_hand']} The variance of Theorem 5 is corrected ([proof](proofs/two-stage.md)).\n"


def _place(told: str) -> str:
    """Say where a statement stands: in a figure, or in the choice of a parameter."""
    figure, _, profile = told.partition(", ")
    names = {"fo": "f_O", "mc": "m_C", "m": "M"}
    if figure == "ablation":
        return f"section 4, the metrics, {profile}"
    return f"section 4, the choice of {names[figure]}, {profile}" if figure in names else f"figure {told}"


def _rappor(paper: Any) -> Iterator[str]:
    yield f"## {paper['paper']}\n"
    powers = (0.8, POWER, 0.9)
    ours = [forecast(paper["clients"], power=power) for power in powers]
    counts = ", ".join(f"{one.smallest_count:,} ({one.power:.0%})" for one in ours)
    stated, p = paper["values"], ours[0].params
    yield (
        f"{paper['where']}. Ours by `hushquery rappor plan`: k = {p.k}, h = {p.h}, {p.m} cohorts, p = {float(p.p):g}, "
        f"q = {float(p.q):g}, f = {float(p.f):g}. How often a value that many share is seen, the notes do not say; "
        "ours in brackets.\n"
    )
    yield from _table(
        ["said", "the paper", "ours"],
        [
            [stated["smallest_count"]["said"], stated["smallest_count"]["value"], counts],
            [stated["epsilon_report"]["said"], stated["epsilon_report"]["value"], f"{ours[0].epsilon_report:.2f}"],
            [stated["epsilon_metric"]["said"], stated["epsilon_metric"]["value"], f"{ours[0].epsilon_metric:.2f}"],
        ],
    )


def _onebit(source: Source, paper: Any) -> Iterator[str]:
    yield f"## {paper['paper']}\n"
    yield f"Beside what was measured (for histograms the largest error): {paper['where']}.\n"
    means = [row for row in source.under("1BitMean").rows[1:] if row[0] == "1BitMean"]
    histograms = source.under("dBitFlip").rows[1:]
    yield from _table(
        ["", "epsilon", "the paper's bound", "ours, error", "runs beyond the bound"],
        [
            *([f"{row[0]}, mean of numbers", row[1], row[4], row[2], row[5]] for row in means),
            *([f"dBitFlip, {row[0]}", row[1], row[4], row[2], row[5]] for row in histograms),
        ],
    )


def _saying(source: Source, caption: str) -> Table:
    return next(table for table in source.tables if table.caption.startswith(caption))


def _folded(source: Source, heading: str) -> Table:
    return next(table for table in source.tables if table.heading.startswith(heading) and table.folded)


# ---- the page ------------------------------------------------------------------------------------------------------


def page() -> str:
    """Return the whole page."""
    sources = {name: read(name) for name in SOURCES}
    papers = json.loads(PAPERS.read_text(encoding="utf-8"))
    dates = sorted({date for source in sources.values() for date in source.dates})
    when = f"on {dates[0]}" if len(dates) == 1 else f"between {dates[0]} and {dates[-1]}"
    lines = [
        "# Beside the papers\n",
        f"{papers['note']} Ours were measured {when} by `make figures`, whose pages "
        f"({', '.join(f'[{name}]({name})' for name in SOURCES)}) explain them; `python tools/papers.py` writes this "
        "one from them and from `tools/paper_values.json`. Do not edit.\n",
        *_korolova(sources["experiments/korolova2009.md"], papers["korolova2009"]),
        *_blender(sources["experiments/blender.md"], papers["blender"]),
        *_rappor(papers["rappor"]),
        *_onebit(sources["experiments/local.md"], papers["onebit"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    made = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != made:
            sys.exit("docs/papers.md is not current: run `python tools/papers.py`")
        print("docs/papers.md is current")
    elif sys.argv[1:]:
        sys.exit("python tools/papers.py [--check]")
    else:
        PAGE.write_text(made, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
