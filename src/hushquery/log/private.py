"""Rows that must not be counted: personal numbers and addresses, a deny list, people who object, times outside a range.

Each rule looks at one row at a time. The patterns prefer to remove too much: a search that names a number is worth
less than the person it may name. Differential privacy does not need them; they guard against the delta.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hushquery.engine import call
from hushquery.errors import DataError
from hushquery.log.normalise import blanks, normal_query, pattern_for

__all__ = [
    "PATTERN_STEPS",
    "entries",
    "holds_private_text",
    "without_denied",
    "without_private_url",
    "without_users",
]

#: What the patterns remove, in words.
PATTERN_STEPS = (
    "queries with an e-mail address or a personal number removed: nine or more digits with only blanks, dots, dashes, "
    "slashes, plus signs or brackets between them (phone, payment card without check of its check digit, social "
    "security and other identity numbers), or three and four digits with a dash or dot between them (local phone)",
    "urls with an e-mail address, an access token, or 16 or more hexadecimal digits removed; the search stays",
)

_LOCAL_PHONE = "(?:^|[^0-9])[0-9]{3}[.-][0-9]{4}(?:[^0-9]|$)"
_TOKEN_NAME = "[?&;][^=&;]*(?:token|sess|auth|passw|secret|api_?key)"  # noqa: S105
_TOKEN = f"(?i){_TOKEN_NAME}[^=&;]*=[^&;]|[?&;](?:sid|pwd|pass|key)=[^&;]"
# The same, but Java looks for the value once for each name and not once for each word in it.
_TOKEN_ON_JAVA = _TOKEN.replace(f"{_TOKEN_NAME}[^=&;]*=[^&;]", "[?&;](?=[^=&;]*=[^&;])" + _TOKEN_NAME[5:])
_LONG_HEX = "[0-9A-Fa-f]{16}"
_MAIL_IN_URL = "[A-Za-z0-9._+-](?:@|%40)[A-Za-z0-9-]+[.][A-Za-z]"
_DIGITS = ("０１２３４５６７８９", "٠١٢٣٤٥٦٧٨٩", "۰۱۲۳۴۵۶۷۸۹", "०१२३४५६७८९", "০১২৩৪৫৬৭৮৯", "๐๑๒๓๔๕๖๗๘๙")


def holds_private_text(query: Any, dialect: str) -> Any:
    """Say for each row whether its query holds an e-mail address or a personal number.

    The answer is the same before and after normalisation.
    """
    import ibis

    ascii_only = query.translate("".join(_DIGITS) + "＠．－", "0123456789" * len(_DIGITS) + "@.-")
    found = _found_in(ascii_only, dialect)
    if dialect != "duckdb":
        return found
    return ibis.ifelse(call("strlen", query, "int64") == query.length(), _found_in(query, dialect), found)


def _found_in(query: Any, dialect: str) -> Any:
    # One search for all: what an expression mentions twice, DuckDB computes for every row beforehand.
    blank = blanks(dialect)
    number = f"[0-9](?:[{blank}.()/+-]*[0-9]){{8}}|{pattern_for(_LOCAL_PHONE, dialect)}"
    address = f"[^{blank}@]@[^{blank}@]+[.][^{blank}@.]"
    return query.re_search(f"{number}|{address}")


def without_private_url(url: Any, dialect: str) -> Any:
    """Give each URL, missing where it holds an e-mail address, a token, or a long identifier."""
    import ibis

    if dialect in ("duckdb", "pyspark"):
        # The URL is mentioned once: DuckDB computes beforehand, and for every row, what an expression mentions twice.
        token = _TOKEN if dialect == "duckdb" else _in_any_case(_TOKEN_ON_JAVA)
        private = pattern_for(f"(?s)^.*(?:{_LONG_HEX}|{_MAIL_IN_URL}|{token}).*$", dialect)
        return url.re_replace(private, "").nullif("")
    private = url.re_search(_LONG_HEX) | url.re_search(_in_any_case(_TOKEN)) | url.re_search(_MAIL_IN_URL)
    return ibis.ifelse(private, ibis.null("string"), url)


def _in_any_case(pattern: str) -> str:
    """Spell out what DuckDB takes for the same letters; engines differ in what (?i) means beyond ASCII."""
    folded = {"k": "kK\u212a", "s": "sS\u017f"}
    return "".join(f"[{folded.get(c, c + c.upper())}]" if c.isalpha() else c for c in pattern.removeprefix("(?i)"))


def without_users(table: Any, users: Iterable[str]) -> Any:
    """Leave out every row of the people who object: by their ids, which no search of anybody changes."""
    listed = _listed("objects", users)
    return table.anti_join(listed, table.user.cast("string") == listed.objects).select(*table.columns)


def without_denied(table: Any, denied: Iterable[str], dialect: str, *, normalise: bool) -> Any:
    """Take away queries that equal an entry or contain it as whole words, words being what blanks separate.

    The rows stay, with a missing query: a user with such queries only is still one of the users.

    A query that contains an entry contains the entry's first word, so candidates are found by an equality that engines
    are fast at, and only they are compared.
    """
    import ibis

    listed = _listed("entry", denied)
    if normalise:
        listed = listed.select(entry=normal_query(listed.entry, dialect))
    listed = listed.filter(listed.entry != "")
    listed = listed.mutate(word=listed.entry.split(" ")[0])
    queries = table.select("query").distinct()
    words = queries.mutate(word=queries.query.split(" ").unnest())
    near = words.join(listed, "word")
    padded = ibis.literal(" ") + near.query + " "
    hit = near.filter(padded.contains(ibis.literal(" ") + near.entry + " ")).select(denied="query").distinct()
    marked = table.left_join(hit, table["query"] == hit.denied)
    left = ibis.ifelse(marked.denied.isnull(), marked["query"], ibis.null("string"))
    return marked.mutate(query=left).select(*table.columns)


def _listed(column: str, texts: Iterable[str]) -> Any:
    """Give texts as a table, so that they do not stand in the SQL that a plan shows."""
    import ibis
    import pyarrow as pa

    return ibis.memtable(pa.table({column: pa.array(sorted(set(texts)), pa.string())}))


def entries(source: str | Path | Iterable[str], name: str) -> list[str]:
    """Read a list: a UTF-8 file with one entry per line, compressed or not, or the entries themselves."""
    if not isinstance(source, str | Path):
        listed = list(source)
        if not all(isinstance(entry, str | int) for entry in listed):
            raise DataError(f"{name} must list text", fix="Give a file name or text entries")
        return [text for entry in listed if (text := str(entry).strip())]
    path = Path(source)
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"the {name} file {path} can't be read", why=type(error).__name__, fix="Check the name"
        ) from None
    except (ValueError, EOFError):
        raise DataError(
            f"the {name} file {path} is not UTF-8 text", fix="Save it as UTF-8, one entry per line"
        ) from None
    # Lines as a log has them: other separators of Unicode may be a part of a user's id.
    return [line for raw in re.split("\r\n|\n|\r", text) if (line := raw.strip())]
