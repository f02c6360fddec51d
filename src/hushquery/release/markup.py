"""Small pieces of HTML: text that can't be markup, and bars with their intervals as static SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Bar", "bars", "isolated", "number", "percent", "shown", "words_as_html"]

# Longer keys are cut on the page; the tables have them whole.
_LONGEST = 160
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufff9-\uffff]")


def shown(text: object) -> str:
    """Give any text as text of a page: nothing in it is markup, and control characters become visible."""
    return html.escape(_CONTROL.sub(_visible, str(text)))


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"


def isolated(text: str) -> str:
    """Give a key of a table as text that runs in its own direction and can't change that of its neighbours."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return f'<bdi dir="auto">{shown(cut) if cut.strip() else "<i>(blank)</i>"}</bdi>'


def number(value: float) -> str:
    """Print a number of a table with thousands set apart and a true minus sign."""
    return f"{round(value):,}".replace("-", "−")


def percent(share: float) -> str:
    """Print a share in per cent: two digits behind the point, more where it would be nothing.

    >>> percent(0.1234), percent(0.00042), percent(0.0000042), percent(0), percent(-0.01)
    ('12.34%', '0.042%', '0.0004%', '0.00%', '−1.00%')
    """
    hundred = abs(100 * share)
    digits = 2 if hundred >= 0.1 or hundred < 5e-7 else 3 if hundred >= 0.01 else 4 if hundred >= 0.0001 else 6
    said = f"{hundred:.{digits}f}%"
    return f"−{said}" if share < 0 and any(digit in said for digit in "123456789") else said


@dataclass(frozen=True)
class Bar:
    """One row of a chart: its label as HTML, its value and its interval."""

    label: str
    value: float
    low: float
    high: float


def bars(rows: Sequence[Bar], caption: str = "", say: Callable[[float], str] = number, *, doubt: bool = False) -> str:
    """Draw values as bars with their intervals; all rows share one axis that includes zero.

    With ``doubt`` a row whose interval reaches zero is marked as one that may be noise alone.
    """
    least = min(0.0, *(min(row.low, row.value) for row in rows))
    most = max(0.0, *(max(row.high, row.value) for row in rows))
    reach = (most - least) or 1.0

    def place(value: float) -> float:
        return 100 * (value - least) / reach

    lines = []
    for row in rows:
        start, end = sorted((place(0), place(row.value)))
        low, high = place(row.low), place(row.high)
        drawn = (
            f'<rect class="bar" x="{start:.2f}%" y="3" width="{end - start:.2f}%" height="10" rx="2"/>'
            f'<line class="range" x1="{low:.2f}%" x2="{high:.2f}%" y1="8" y2="8"/>'
            f'<line class="range" x1="{low:.2f}%" x2="{low:.2f}%" y1="4.5" y2="11.5"/>'
            f'<line class="range" x1="{high:.2f}%" x2="{high:.2f}%" y1="4.5" y2="11.5"/>'
        )
        noise = doubt and row.low <= 0
        mark = '<small class="may">may be noise alone</small>' if noise else ""
        lines.append(
            f'<li{" class=doubtful" if noise else ""}><span class="label">{row.label}{mark}</span>'
            f'<span class="drawn"><svg aria-hidden="true" height="16">{drawn}</svg></span>'
            f'<span class="value">{say(row.value)} '
            f"<small>{say(row.low).removesuffix('%')} to {say(row.high)}</small></span></li>"
        )
    told = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure>{told}<ol class="bars">{"".join(lines)}</ol></figure>'


def words_as_html(text: str) -> str:
    """Turn plain text into paragraphs, and its indented lines into lists."""
    parts: list[str] = []
    for indented, lines in _runs(text.splitlines()):
        if indented:
            parts.append(
                "<ul>" + "".join(f"<li>{shown(line.strip()).replace('-&gt;', '→')}</li>" for line in lines) + "</ul>"
            )
        else:
            parts += [f"<p>{shown(line)}</p>" for line in lines if line]
    return "\n".join(parts)


def _runs(lines: Sequence[str]) -> list[tuple[bool, list[str]]]:
    found: list[tuple[bool, list[str]]] = []
    for line in lines:
        indented = line.startswith("  ")
        if not found or found[-1][0] != indented:
            found.append((indented, []))
        found[-1][1].append(line)
    return found
