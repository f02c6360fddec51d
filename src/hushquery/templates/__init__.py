"""Every page, card and notebook cell: Jinja2 templates, and the one environment that escapes all their text.

What a template prints may come from strangers: it is escaped, as HTML with visible control characters or as Markdown.
A missing value or None is an error, not a blank.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context, Macro
from markupsafe import Markup, escape

__all__ = [
    "STYLE",
    "amount",
    "asset",
    "bundled",
    "lasting",
    "macro",
    "markdown",
    "number",
    "percent",
    "plural",
    "render",
    "shown",
]

# Longer keys are cut on a page; the tables have them whole.
_LONGEST = 160
# Behind these an address may go on in a new line; the slashes of its scheme stay together.
_JOINT = re.compile(r"(?<=[^:/][/?&=_#])(?=[^/])")
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufff9-\uffff]")


def render(template: str, /, **values: Any) -> str:
    """Fill a template of this folder."""
    return _environment().get_template(template).render(values)


def macro(name: str) -> Macro:
    """Return a macro of ``parts.html`` as a function that returns HTML."""
    part: Macro = getattr(_environment().get_template("parts.html").module, name)
    return part


def shown(text: object) -> Markup:
    """Return any text as text of a page: nothing in it is markup, and control characters are visible."""
    return escape(_CONTROL.sub(_visible, str(text)))


def _visible(control: re.Match[str]) -> str:
    code = ord(control[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"


def markdown(text: object) -> Markup:
    r"""Return any text as text of a Markdown document, in one line.

    >>> print(markdown("1. <b>\n# a_b"))
    1\. \<b\> # a\_b
    """
    escaped = re.sub(r"([\\`*_\[\]<>|~&])", r"\\\1", " ".join(str(text).split()))
    return Markup(re.sub(r"^([-+#=])|^([0-9]+)([.)])(?= |$)", _no_list, escaped))  # noqa: S704 -- escaped above


def _no_list(start: re.Match[str]) -> str:
    return f"\\{start[1]}" if start[1] else f"{start[2]}\\{start[3]}"


def _literal(text: str) -> Markup:
    """Return a name of ours for a code span or block of Markdown, where a backslash would be seen."""
    return Markup(re.sub(r"[`\s]", "", text))  # noqa: S704 -- it can't end the code it stands in


@cache
def asset(name: str) -> Markup:
    """Return a style sheet or a script of this folder: our own words, as they are."""
    return Markup(resources.files("hushquery.templates").joinpath(name).read_text("utf-8"))  # noqa: S704 -- ours


def bundled(*modules: str) -> Markup:
    """Join modules of ours, each after those it imports, into one script; a page opened as a file loads no module.

    Lines of comment are left out: every page carries it, and the modules have them.
    """
    bare = "".join(re.sub(r"(?m)^import .*\n|^export |^ *//.*\n|^ */\*\* .*\*/\n", "", module) for module in modules)
    return Markup(f'"use strict";\n(() => {{\n{bare}}})();\n')  # noqa: S704 -- ours


#: The style sheet of every page.
STYLE = asset("style.css")


def plural(many: int, name: str) -> str:
    """Return a plural noun as it is, or without its ending where ``many`` is one.

    >>> plural(1, "queries"), plural(1, "reformulations"), plural(2, "clicks")
    ('query', 'reformulation', 'clicks')
    """
    one = f"{name.removesuffix('ies')}y" if name.endswith("ies") else name.removesuffix("s")
    return one if many == 1 else name


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
    printed = f"{hundred:.{digits}f}%"
    return f"−{printed}" if share < 0 and any(digit in printed for digit in "123456789") else printed


def lasting(seconds: int) -> str:
    """Print a length of time in the largest unit that divides it.

    >>> lasting(604800), lasting(5400), lasting(3600)
    ('7 days', '90 minutes', 'hour')
    """
    unit, name = next((unit, name) for unit, name in _UNITS if seconds % unit == 0)
    return name if seconds == unit else f"{seconds // unit:,} {name}s"


def amount(value: float, measure: str | None) -> str:
    """Print a share in per cent, an average with four digits, or a whole number.

    >>> amount(0.5, "share"), amount(12345.6, "mean"), amount(3.14159, "mean"), amount(12345.6, "count")
    ('50.00%', '12,350', '3.142', '12,346')
    """
    if measure == "mean":
        return f"{float(f'{value:.4g}'):,.12g}".replace("-", "−")
    return percent(value) if measure == "share" else number(value)


def _interval(row: dict[str, Any], measure: str | None) -> str:
    """Print an interval; nothing is below zero but the tables' numbers, which noise made."""
    low, high = (amount(max(0.0, row[end]), measure) for end in ("low", "high"))
    return f"{low.removesuffix('%')} to {high}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _runs(text: str) -> list[tuple[bool, list[str]]]:
    """Split plain text into runs of lines that are indented or not."""
    return [(indented, list(lines)) for indented, lines in groupby(text.splitlines(), lambda line: line[:2] == "  ")]


def _json(value: object) -> str:
    """Write compact JSON; the filter ``tojson`` keeps it from ending the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[\u2028\u2029\x7f]", lambda one: f"\\u{ord(one[0]):04x}", text)


@pass_context
def _as_text(context: Context, value: object) -> object:
    """Make text of what a template prints, in the language that the template is written in."""
    if value is None:
        raise TypeError(f"{context.name} prints a value that is missing")
    if hasattr(value, "__html__"):
        return value
    return markdown(value) if str(context.name).endswith(".md") else shown(value)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hushquery"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_as_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters.update(
        amount=amount, cut=_cut, interval=_interval, joints=_JOINT.split, lasting=lasting, literal=_literal,
        number=number, percent=percent, plural=plural, runs=_runs,
    )  # fmt: skip
    environment.globals["asset"] = asset
    environment.policies |= {"json.dumps_function": _json, "json.dumps_kwargs": {}}
    return environment
