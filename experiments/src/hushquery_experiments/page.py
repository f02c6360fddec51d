"""What an experiment's page is made of, and how it becomes HTML to look at or Markdown for the docs.

An experiment says in plain text what is on its page (:class:`Page`): headings, paragraphs, tables and figures. Words in
`backticks` are code. A cell may have several lines; the first is the number, the others explain it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hushquery import plot
from hushquery._version import __version__
from hushquery.errors import Unavailable
from hushquery.templates import STYLE, macro, shown

#: What ``results.json`` of an experiment holds.
Data = Mapping[str, Any]
#: An experiment's figures: a name, how to draw it from the data, and its caption.
Figures = Mapping[str, tuple[Callable[[Data], Any], str]]

#: What a page says first whose people are all invented.
INVENTED = (
    "Everybody here is invented, so this page may be published. The noise came from a seed, to let you repeat the "
    "numbers; a client that drew its noise so would protect nobody."
)
_VERDICTS = {True: "pass", False: "FAIL", None: "not measured"}
_STYLES = {"pass": "holds", "FAIL": "fails"}
_EXTRA_STYLE = """
body { max-width: 68rem }
figure svg { max-width: 100%; height: auto; background: #fff; border-radius: 8px; padding: .4rem }
table { border-collapse: collapse; margin: .8rem 0; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; overflow-wrap: normal }
th:first-child, td:first-child { text-align: left; white-space: normal }
th.words, td.words { text-align: left; white-space: normal }
thead th { color: var(--soft); font-weight: 600 }
td small { display: block } .wide { overflow-x: auto }
.facts { margin: 1.2rem 0 }
.big { font-size: 1.35rem; letter-spacing: .01em; text-align: center }
.holds { color: var(--accent); font-weight: 650 } .fails { color: var(--alarm); font-weight: 650 }
"""
_WORD = re.compile("[A-Za-z]{3,}")


@dataclass(frozen=True)
class Claim:
    """Something that has to hold, with the numbers that say whether it does; None where they were not measured."""

    what: str
    measured: str
    holds: bool | None


def made_at(began: datetime) -> dict[str, Any]:
    """Return what the settings of every experiment end with: version, date, and the seconds since it began."""
    seconds = round((datetime.now(UTC) - began).total_seconds(), 1)
    return {"version": __version__, "date": began.date().isoformat(), "seconds": seconds}


@dataclass(frozen=True)
class Heading:
    """The beginning of a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Facts:
    """A few numbers that stand out, each with its name."""

    numbers: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A table; the first column holds names."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A chart with its name and caption."""

    name: str
    draw: Callable[[], Any]
    caption: str


@dataclass(frozen=True)
class Details:
    """A table that is folded away."""

    summary: str
    table: Table


#: What can stand on a page.
Part = Heading | Text | Facts | Table | Figure | Details


@dataclass(frozen=True)
class Page:
    """A whole page.

    Args:
        title: The question that the experiment answers.
        intro: What a reader must know first.
        parts: What is on the page, in order.
        command: What measures the same again.
        data: The results; name, version, date and time of the run are taken from their settings.
        note: How the numbers were made, beyond the command.
        mark: A warning that nobody may miss, or nothing.
    """

    title: str
    intro: str
    parts: Sequence[Part]
    command: str
    data: Data
    note: str
    mark: str = ""

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.data["settings"]["experiment"])

    @property
    def figures(self) -> list[Figure]:
        """The figures, in order."""
        return [part for part in self.parts if isinstance(part, Figure)]


def figure(figures: Figures, name: str, data: Data) -> Figure:
    """Return one of an experiment's figures, to be drawn from the data when the page is written."""
    draw, caption = figures[name]
    return Figure(name, partial(draw, data), caption)


def verdict(holds: bool | None) -> str:
    """Return a word for whether a claim holds.

    >>> verdict(True), verdict(None)
    ('pass', 'not measured')
    """
    return _VERDICTS[holds]


def claim_table(data: Data) -> Table:
    """Return the claims of an experiment, what was measured of each, and whether it holds."""
    rows = [(claim["what"], claim["measured"], verdict(claim["holds"])) for claim in data["claims"]]
    return Table(("claim", "measured", ""), rows)


def claim_lines(data: Data) -> list[str]:
    """Return the same for a terminal."""
    return [f"{verdict(claim['holds']):6}{claim['what']}: {claim['measured']}" for claim in data["claims"]]


def as_html(page: Page) -> str:
    """Return the page as HTML that needs neither network nor script."""
    settings, name = page.data["settings"], shown(page.name)
    alarm = f"<p class='alarm big'>{shown(page.mark)}</p>" if page.mark else ""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{'Not publishable: ' if page.mark else ''}hushquery experiment {name}</title>",
        f"<style>{STYLE}{_EXTRA_STYLE}</style>",
        f"<p class=over>hushquery experiment {name}</p>",
        f"<h1>{shown(page.title)}</h1>",
        f"{alarm}<p>{_words(page.intro)}</p>",
        *map(_part_as_html, page.parts),
        "<h2>How this was made</h2>",
        f"<pre>{shown(page.command)}</pre>",
        f"<p class=soft>hushquery {shown(settings['version'])}, {shown(settings['date'])}, {settings['seconds']:,.0f} "
        f"seconds. {_words(page.note)}</p>{alarm}</html>",
    ]
    return "\n".join(parts)


def _part_as_html(part: Part) -> str:
    match part:
        case Heading(text):
            return f"<h2>{_words(text)}</h2>"
        case Text(text):
            return f"<p>{_words(text)}</p>"
        case Facts(numbers):
            rows = (f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in numbers.items())
            return f"<dl class=facts>{''.join(rows)}</dl>"
        case Table(heads, rows):
            kinds = [" class=words" if _says_words(rows, i) else "" for i in range(len(heads))]
            head = "".join(f"<th{kind}>{_words(one)}</th>" for kind, one in zip(kinds, heads, strict=True))
            lines = (_name_cell(row[0]) + "".join(map(_cell, kinds[1:], row[1:])) for row in rows)
            body = "".join(f"<tr>{line}</tr>" for line in lines)
            return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        case Figure(_, draw, caption):
            try:
                return f"<figure>{plot.svg(draw())}<figcaption>{_words(caption)}</figcaption></figure>"
            except Unavailable as error:
                return f"<p>(no picture: {shown(error.fix)})</p>"
        case Details(summary, table):
            return f"<details><summary>{_words(summary)}</summary>{_part_as_html(table)}</details>"


def _says_words(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Return whether a column holds words, which begin at the left, or numbers."""
    return column == 0 or any(len(_WORD.findall(row[column])) > 1 for row in rows)


def _name_cell(text: str) -> str:
    # A name can come from a log and run from right to left.
    first, *others = text.split("\n")
    return f"<td>{_coded(macro('key')(first))}{''.join(f'<small>{shown(line)}</small>' for line in others)}</td>"


def _cell(kind: str, text: str) -> str:
    first, *others = text.split("\n")
    html = f"<span class={_STYLES[first]}>{first}</span>" if first in _STYLES else _words(first)
    return f"<td{kind}>{html}{''.join(f'<small>{shown(line)}</small>' for line in others)}</td>"


def _words(text: str) -> str:
    return _coded(shown(text))


def _coded(html: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", html)


def as_markdown(page: Page, pictures: str) -> str:
    """Return the page as Markdown; ``pictures`` is the folder of its figures, relative to the page."""
    settings = page.data["settings"]
    blocks = [
        f"# {page.title}",
        f"Made on {settings['date']} (UTC) with hushquery {settings['version']} by",
        f"```console\n$ {page.command}\n$ python tools/experiments.py experiment-{page.name}/results.json\n```",
        "Do not edit: run it again; the same seed gives the same numbers.",
        f"> **{page.mark}.** {page.intro}" if page.mark else page.intro,
        *(_part_as_markdown(part, f"{pictures}/{page.name}") for part in page.parts),
        page.note,
    ]
    return "\n\n".join(blocks) + "\n"


def _part_as_markdown(part: Part, pictures: str) -> str:
    match part:
        case Heading(text):
            return f"## {text}"
        case Text(text):
            return text
        case Facts(numbers):
            return "\n".join(f"- {name}: {value}" for name, value in numbers.items())
        case Table(heads, rows):
            sides = ["---" if _says_words(rows, i) else "---:" for i in range(len(heads))]
            return "\n".join("| " + " | ".join(map(_markdown_cell, row)) + " |" for row in (heads, sides, *rows))
        case Figure(name, _, caption):
            return f"![{name}]({pictures}-{name}.png)\n\n{caption}"
        case Details(summary, table):
            inner = _part_as_markdown(table, pictures)
            return f"<details><summary>{summary}</summary>\n\n{inner}\n\n</details>"


def _markdown_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
