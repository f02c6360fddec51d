"""Queries and URLs in one form each, row by row and inside the engine.

A query: Unicode NFC, lower case, every run of blanks and control characters one blank, none at the ends. A URL: scheme
and host in lower case, no name and password, no default port, no fragment, no slash behind a bare host. What is in that
form already stays as it is: a client that reads a published list brings it to this form again.

Ten million rows pass here, so on DuckDB cheap tests spare the rows that are in that form already.
"""

from __future__ import annotations

from typing import Any

from hushquery.engine import call, java
from hushquery.engine.postgres import LOWER

__all__ = [
    "BLANKS",
    "HOST",
    "LONGEST",
    "PLAIN",
    "PLAIN_URL",
    "URL_CHANGES",
    "begins_visibly",
    "blanks",
    "has_text",
    "normal_query",
    "normal_url",
    "not_too_long",
    "pattern_for",
    "steps",
    "stripped",
]

#: The most characters of a query or URL, as in the domain of a task; a longer one counts as missing before anything
#: looks into it. Unicode NFC and Java's patterns take time by the square of the length, and no person's row may decide
#: whether there is a release.
LONGEST = 4096

#: Unicode's blanks and control characters as (first, last) code points.
BLANKS = (
    (0x01, 0x20),
    (0x7F, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200B),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)

#: Queries in their normal form that no pattern could find anything in, all but the first with digits: printable ASCII
#: without capitals and @, single blanks between, and at most six digits, where the shortest number that a pattern knows
#: has seven. The first, which most queries match, is an engine's fastest search.
PLAIN = (
    r"^[!-/:-?\[-~]+(?: [!-/:-?\[-~]+)*$",
    r"^[!-?\[-~](?: ?[!-/:-?\[-~])*(?: ?[0-9](?: ?[!-/:-?\[-~])*){0,5}$",
)
#: A URL in its normal form that no pattern could find anything in: short words between dots and slashes.
PLAIN_URL = "^https?://[a-z0-9-]{1,15}(?:[.][a-z0-9-]{1,15})*(?:/[a-z0-9._~-]{1,15})*$"

# The engines' own functions; a function of ours would run row by row in Python.
_NFC = {"duckdb": "nfc_normalize", "postgres": "normalize", "pyspark": "com.ibm.icu.text.Normalizer"}
# The capitals of which Spark makes small letters by other rules than DuckDB: by their neighbours, or two for one.
_CAPITALS, _SMALL = "İΣ", "iσ"
_LABELS = "[A-Za-z0-9-]+(?:[.][A-Za-z0-9-]+)*"
# The same where : / ? # a blank or the end must follow. Java needs a piece of its stack for each repetition of a group.
_LABELS_ON_JAVA = "(?![A-Za-z0-9.-]*[.][.])[A-Za-z0-9-][A-Za-z0-9.-]*"
#: Scheme and host, which are written in lower case. Without a scheme a host is all there is, or goes before : / or ?
HOST = f"^[ \t\r\n]*(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*|{_LABELS}[.][A-Za-z]{{2,}}(?:[:/?]|[ \t\r\n]*(?:#|$)))"
# A host without its port.
_NO_PORT = r"(?:\[[^]/?]*\]|[^:/?]*)"
#: What is changed in a URL, in this order and wherever it occurs: pattern and replacement. A dash stands for no URL.
URL_CHANGES = (
    ("^[ \t\r\n]+", ""),
    ("#[^#]*", ""),
    ("[ \t\r\n]+$", ""),
    ("[ \t\r\n]+", "%20"),
    ("^([a-z][a-z0-9+.-]*://)[^/?]*@", r"\1"),
    ("^(http://" + _NO_PORT + "):80([/?]|$)", r"\1\2"),
    ("^(https://" + _NO_PORT + "):443([/?]|$)", r"\1\2"),
    ("^((?:[a-z][a-z0-9+.-]*://)?[^/?]+)/$", r"\1"),
    ("^-$", ""),
)
# What needs work: capitals, what is not printable ASCII, two blanks in a row, a blank at an end.
_UNUSUAL_QUERY = r"[^ !-@\[-~]|  |^ | $"
# The common canonical forms: http://www.example.com and http://www.example.com/path
_USUAL_URL = r'^https?://[a-z0-9.-]+(?:/[!"$-~]+)?$'
_USUAL_HOST_AND_SLASH = "^https?://[a-z0-9.-]+/$"


def not_too_long(text: Any) -> Any:
    """Give a text column, missing where it has more than ``LONGEST`` characters."""
    import ibis

    return ibis.ifelse(text.length() <= LONGEST, text, ibis.null("string"))


def blanks(dialect: str) -> str:
    """Write the inside of a class of all blanks and control characters, for an engine's regular expressions."""
    if dialect in ("duckdb", "pyspark"):
        return r"\x{0}" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in BLANKS)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in BLANKS)


def steps(dialect: str, *, with_url: bool) -> list[str]:
    """Say in words what normalisation does on an engine."""
    form = "Unicode NFC, " if dialect in _NFC else ""
    missing = "" if form else f" (no Unicode NFC: the engine {dialect} has none)"
    words = [f"query: {form}lower case, runs of blanks and control characters to one blank, none at the ends{missing}"]
    if with_url:
        words.append(
            "url: scheme and host in lower case; no name, password, default port, fragment, or slash behind a bare host"
        )
    return words


def normal_query(query: Any, dialect: str) -> Any:
    """Give the normal form of a text column; empty where nothing but blanks was there."""
    import ibis

    # Blanks first: DuckDB's NFC ends a text at a null byte. NFC last: lower case can call for it again.
    changed = stripped(_nfc(_lower(query, dialect).re_replace(f"[{blanks(dialect)}]+", " "), dialect), dialect)
    return ibis.ifelse(query.re_search(_UNUSUAL_QUERY), changed, query) if dialect == "duckdb" else changed


def has_text(query: Any, dialect: str) -> Any:
    """Say whether anything but blanks is in a text column, without computing its normal form."""
    visible = query.re_search(f"[^{blanks(dialect)}]")
    if dialect != "duckdb":
        return visible
    return begins_visibly(query) | visible


def begins_visibly(query: Any) -> Any:
    """Say whether a text begins with a printable ASCII character: two comparisons instead of a search."""
    return query.between("!", "~~")


def normal_url(url: Any, dialect: str) -> Any:
    """Give the canonical form of a column of URLs; missing where there is none: empty, ``-``, or a fragment alone."""
    import ibis

    # Without a scheme only what looks like a host is taken for one: an identifier keeps its capitals.
    host = pattern_for(HOST, dialect)
    changed = ibis.ifelse(url.re_search(host), _lower(url.re_extract(host, 0), dialect) + url.re_replace(host, ""), url)
    for pattern, replacement in URL_CHANGES:
        if dialect == "pyspark":
            replacement = replacement.replace("\\", "$")
        changed = changed.re_replace(pattern_for(pattern, dialect), replacement)
    changed = changed.nullif("")
    if dialect != "duckdb":
        return changed
    # DuckDB computes for every row what an expression mentions twice, so nothing but the column itself is.
    return ibis.cases(
        (url == "", ibis.null("string")),
        (url.re_search(_USUAL_URL), url),
        (url.re_search(_USUAL_HOST_AND_SLASH), url.left(url.length() - 1)),
        else_=changed,
    )


def stripped(text: Any, dialect: str) -> Any:
    """Take ASCII blanks from both ends of a text column."""
    if dialect != "pyspark":
        return text.strip()
    # Ibis would name the vertical tab in a way that Spark reads as the letter v.
    blank = r"[ \x{9}-\x{D}]"
    # Java looks at every beginning: within a run of blanks there is one.
    return text.re_replace(rf"^{blank}+|(?<!{blank}){blank}+\z", "")


def pattern_for(pattern: str, dialect: str) -> str:
    """Write a regular expression for an engine: Java's $ also stands before a line end at the end."""
    if dialect != "pyspark":
        return pattern
    return pattern.replace(_LABELS, _LABELS_ON_JAVA).replace("$", r"\z").replace("[^]", r"[^\]")


def _lower(text: Any, dialect: str) -> Any:
    """Give small letters, one for each capital and without a look at its neighbours, as DuckDB does."""
    if dialect == "postgres":
        return call(LOWER, text, "string", "pg_temp")
    if dialect == "pyspark":
        return text.translate(_CAPITALS, _SMALL).lower()
    return text.lower()


def _nfc(text: Any, dialect: str) -> Any:
    import ibis

    if dialect == "pyspark":
        # Spark has no function for it, but the library that has one, which fails on what is missing.
        composed = java(_NFC[dialect], "compose", text.fill_null(""), False)
        return ibis.ifelse(text.isnull(), ibis.null("string"), composed)
    return call(_NFC[dialect], text, "string") if dialect in _NFC else text
