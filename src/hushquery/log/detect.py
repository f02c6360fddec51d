"""Guess the format, encoding and columns of a file from a sample, to advise the steward; a release never guesses."""

from __future__ import annotations

import codecs
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hushquery.log.columns import COLUMNS, OPTIONAL, SYNONYMS, looks_like_data, option_for, squeezed
from hushquery.log.defects import looks_like, sample_lines
from hushquery.log.files import decodes, read_head
from hushquery.log.formats import ENDINGS, FIXED, header_cells, separator_of

#: How spreadsheets and programs write times that are neither ISO nor numbers; both orders of day and month.
_DAYS = ["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%d-%b-%Y", "%d.%m.%y", "%m/%d/%y"]
_CLOCKS = ("", " %H:%M:%S", " %H:%M", " %I:%M %p", " %I:%M:%S %p")
TIME_FORMS = [day + clock for day in _DAYS for clock in _CLOCKS]
TIME_FORMS += ["%Y%m%d%H%M%S", "%y%m%d%H%M%S", "%d/%b/%Y:%H:%M:%S", "%d/%b/%Y:%H:%M:%S %z"]
#: What some logs put around each query.
WRAPS = ("[]", "<>", "()", "''", "«»", "【】", "“”", "`'")
# The letters that text in an encoding is mostly made of, besides ASCII.
_LETTERS = {
    "gb18030": "[\u4e00-\u9fff]",
    "big5": "[\u4e00-\u9fff]",
    "shift_jis": "[\u3040-\u30ff]",
    "euc_jp": "[\u3040-\u30ff]",
    "euc_kr": "[\uac00-\ud7a3]",
    "cp1251": "[а-яё]{2,}",
    "koi8-r": "[а-яё]{2,}",
}
_ENOUGH = 200
_TIME = re.compile(
    r"\d{4}-\d\d?-\d\d?([T ]\d\d?:\d\d.*)?|\d{1,4}[./-]\w{2,3}[./-]\d{2,4}([: ]\d\d?:\d\d.*)?|\d\d?:\d\d(:\d\d.*)?"
    r"|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*|1[0-9]{9}([.]\d+)?|1[0-9]{12}|(19|20)\d{12}"
)
_ADDRESS = re.compile(r"(https?://|www[.])\S+|/\S*|([\w-]+[.])+[a-z]{2,}(/\S*)?", re.IGNORECASE)
_AMOUNT = re.compile(r"[-+]?\d+([.,]\d{3})*[.,]\d{1,2}")
_ID = re.compile(r"[\w.@+:-]*\d[\w.@+:-]*")
# Two columns whose likeness to ids differs by less are near.
_NEAR = 0.3


@dataclass(frozen=True)
class Column:
    """What a column of a file looks like in a sample."""

    place: int  # from 1
    name: str  # as the header line has it; empty where there is none
    what: str  # what most of its cells are, in words
    distinct: float  # how many of its cells, from 0 to 1, are different
    words: float = 0.0  # how many blanks a cell has, on average
    empty: float = 0.0  # how many of its cells, from 0 to 1, are empty
    like_ids: float = 0.0  # how much its cells look like ids, from 0 to 1


@dataclass(frozen=True)
class Guess:
    """How a log is probably read: arguments of :func:`hushquery.read_log`, why, and what its columns look like."""

    arguments: dict[str, Any]
    why: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    notes: tuple[str, ...] = ()
    rival: str = ""  # another column that may be the user's


def guess_encoding(lines: Sequence[bytes]) -> str:
    """Return the encoding that lines are probably in: UTF-8 if most of the lines with more than ASCII are.

    >>> guess_encoding(["天气预报".encode("gb18030")]), guess_encoding(["café au lait".encode("cp1252")])
    ('gb18030', 'cp1252')
    """
    special = [line for line in lines if not line.isascii()][:2000]
    if 2 * sum(decodes(line) for line in special) >= len(special):
        return "utf-8"
    runs = re.findall(rb"[\x80-\xff]+", b"\n".join(special))
    if sum(len(run) == 1 for run in runs) > 0.7 * len(runs):
        return "cp1252"  # single letters with accents, between others without
    scores = {}
    for encoding, letters in _LETTERS.items():
        good = [line.decode(encoding) for line in special if decodes(line, encoding)]
        text = re.sub(r"[\x00-\x7f]+", lambda run: run[0][:1], "\n".join(good))
        there = len(re.findall(r"[^\x00-\x7f]", text))
        common = sum(map(len, re.findall(letters, text)))
        if encoding == "gb18030":  # the 6,763 usual characters: all others look Chinese to it too
            common = len("".join(re.findall(letters, text)).encode("gb2312", "ignore").decode("gb2312"))
        scores[encoding] = common / max(1, there) * len(good) / len(special)
    return max(scores, key=lambda encoding: scores[encoding])


def guess_layout(paths: Sequence[Path], given: Mapping[str, Any]) -> Guess:
    """Return how files are probably read, given what the steward says already; reads a sample spread over them."""
    head = read_head(paths[0])
    if head.type == "a Parquet file" and not given.get("format"):
        given = {**given, "format": "parquet"}
    if given.get("format") == "parquet" or (head.type and head.type != "UTF-16 text"):
        return Guess(dict(given), ("its first bytes",))
    why, found = [], {key: value for key, value in given.items() if value is not None}
    if found.get("encoding", "utf-8") == "utf-8" and head.type == "UTF-16 text":
        marked = head.data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        found["encoding"] = "utf-16" if marked else "utf-16-le" if head.data[1:2] == b"\0" else "utf-16-be"
        why.append("its first bytes are UTF-16")
    encoding = found.get("encoding", "utf-8")
    raw = [line for _, line in sample_lines(paths, encoding)]
    if encoding == "utf-8" and (encoding := guess_encoding(raw)) != "utf-8":
        found["encoding"] = encoding
        why.append(f"its text is not UTF-8, and looks like {encoding}: check it")
        raw = [line for _, line in sample_lines(paths, encoding)]
    lines = [line.decode() for line in raw if decodes(line)]
    first = next(iter(read_head(paths[0], encoding).lines(encoding)), "")
    thin = lines[:: max(1, len(lines) // 2000)]
    kind = found.get("format") or _kind_of(paths, first, thin, why)
    if kind is None:
        return Guess(found, (*why, "no format fits most of its lines"))
    found["format"] = kind
    if kind not in ("csv", "tsv"):
        return Guess(found, tuple(why))
    return _with_columns(kind, first, thin, found, why)


def _kind_of(paths: Sequence[Path], first: str, lines: Sequence[str], why: list[str]) -> str | None:
    ending = ENDINGS.get((paths[0].with_suffix("") if paths[0].suffix.lower() == ".gz" else paths[0]).suffix.lower())
    looks = looks_like(lines)
    kind = looks.partition(" ")[0] or None
    named = not looks_like_data([cell.strip() for cell in re.split(r"[\t,;|]", first)])
    if ending == kind or (ending in ("csv", "tsv") and (named or kind in ("csv", "tsv", None))):
        why.append("its name ends so")
        return ending if kind not in ("csv", "tsv") or ending == kind else kind
    if kind in FIXED and named and not first.startswith("AnonID\t") and "\t" in first:
        why.append("its first line names columns")
        return "tsv"
    if kind:
        why.append("most lines of a sample are such rows" if kind in FIXED else "most lines of a sample have its shape")
    return kind


def _with_columns(kind: str, first: str, lines: Sequence[str], found: dict[str, Any], why: list[str]) -> Guess:
    separator = found.get("separator") or ("\t" if kind == "tsv" else _separator(lines))
    header = header_cells(first, separator, kind)
    rows = [header_cells(line, separator, kind) for line in lines if line != first]
    named = found.get("header")
    if named is None:
        named = not looks_like_data([cell.strip() for cell in header], rows[:100])
        why.append("its first line names columns" if named else "its first line looks like a row")
    found["header"] = None if named and found.get("header") is None else named
    if separator != separator_of(kind, first if named else ","):
        found["separator"] = separator
    names = [cell.strip() for cell in header] if named and len(header) > 1 else []
    width = len(names) or max((len(row) for row in rows), default=0)
    cells = [[row[place].strip() for row in rows if len(row) > place and row[place].strip()] for place in range(width)]
    seen = tuple(_column(place, names[place] if names else "", cells[place], len(rows)) for place in range(width))
    said = dict(found.get("columns") or {})
    places = places_of(seen, said, names)
    chosen = {
        ours: (names[place] if names and names.count(names[place]) == 1 else place + 1)
        for ours, place in places.items()
    }
    found["columns"] = said | {ours: name for ours, name in chosen.items() if ours not in said and name != ours}
    notes = guess_notes(chosen, said, named=bool(names))
    by_name = squeezed(str(chosen.get("user"))) in ("user", *SYNONYMS["user"].split())
    rival = "" if "user" in said or by_name else _rival(seen, places)
    if rival:
        notes.append(f"the user may also be column {rival}: --columns user={rival}")
    _guess_values({ours: cells[place] for ours, place in places.items()}, found, notes)
    return Guess(found, tuple(why), seen, tuple(notes), rival)


def _rival(seen: Sequence[Column], places: Mapping[str, int]) -> str:
    """Return the place, from 1, of the column that is nearly as much like a user's as the one taken; else nothing."""
    free = [column for column in seen if column.place - 1 not in places.values() and _like_users(column) > 0]
    best = max(free, key=_like_users, default=None)
    taken = seen[places["user"]] if places.get("user", len(seen)) < len(seen) else None
    if best is None or taken is None or _like_users(best) < _like_users(taken) - _NEAR:
        return ""
    return str(best.place)


def _like_users(column: Column) -> float:
    """Return how much a column looks like people: never empty, ids, which come again but are not always the same."""
    if not column.what.endswith(("numbers", "words", "text")) or column.distinct <= 0.001:
        return 0.0
    often_empty = 3 * max(0.0, column.empty - 0.05)  # a few are lines that something cut short
    return max(0.001, 1.5 - abs(column.distinct - 0.4) + column.like_ids / 2 - often_empty)


def guess_notes(chosen: Mapping[str, str | int], said: Mapping[str, Any], *, named: bool) -> list[str]:
    """Name the columns that were guessed, each with the option that makes sure of it."""
    guessed = {ours: name for ours, name in chosen.items() if ours not in said and name != ours}
    if not named:
        ordered = option_for({ours: guessed[ours] for ours in COLUMNS if ours in guessed})
        return [f"which column is which was guessed from what is in them; check it: {ordered}"] if guessed else []
    used = "(this look and the command below use it)"
    return [
        f"{name} is not used: {option_for({ours: name})} {used}"
        if ours in OPTIONAL
        else f"the {ours} is taken to be the column {name}; check it: {option_for({ours: name})}"
        for ours, name in guessed.items()
    ]


def _separator(lines: Sequence[str]) -> str:
    def even(sign: str) -> tuple[int, int]:
        counts = Counter(len(header_cells(line, sign, "csv")) for line in lines)
        width, times = max(counts.items(), key=lambda one: (one[0] > 1, one[1]), default=(0, 0))
        return (times if width > 1 else 0, width)

    return max((",", ";", "|", "\t", "\x01"), key=even)


def _column(place: int, name: str, cells: Sequence[str], rows: int) -> Column:
    kinds = Counter(
        "times" if _TIME.fullmatch(cell) else "numbers" if cell.isdecimal() else "addresses" if _ADDRESS.fullmatch(cell)
        else "amounts" if _AMOUNT.fullmatch(cell) else "text" if " " in cell or not cell.isascii()
        else "words" for cell in cells
    )  # fmt: skip
    what, many = kinds.most_common(1)[0] if kinds else ("empty", 1)
    if what in ("words", "text") and kinds["text"] * 5 > len(cells):
        what, many = "text", kinds["text"] + kinds["words"]
    blanks = sum(cell.count(" ") + (not cell.isascii()) for cell in cells) / max(1, len(cells))
    mixed = "" if many * 10 >= 9 * len(cells) else "mostly "
    distinct, empty = len(set(cells)) / max(1, len(cells)), 1 - len(cells) / max(1, rows)
    return Column(place + 1, name, mixed + what, distinct, blanks, empty, _like_ids(cells))


def _like_ids(cells: Sequence[str]) -> float:
    """Return how much cells look like ids: one token with a digit, about as long as the others; no line numbers.

    >>> _like_ids(["K13546", "K73970", "K13546"]), _like_ids(["tea", "cheap flights"]), _like_ids(["1", "2", "3"])
    (1.0, 0.0, 0.0)
    """
    tokens = [cell for cell in cells if _ID.fullmatch(cell) and len(cell) > 1]
    numbers = [int(cell) for cell in cells if cell.isdecimal() and len(cell) < 20]
    if not tokens or (len(numbers) == len(cells) and all(map(operator.lt, numbers, numbers[1:]))):
        return 0.0
    usual = Counter(map(len, tokens)).most_common(1)[0][0]
    return sum(abs(len(token) - usual) <= 1 for token in tokens) / len(cells)


def places_of(seen: Sequence[Column], said: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """Return which column is probably which of ours, from 0: as the steward says, by name, else by what is in it."""
    places: dict[str, int] = {}
    for ours in COLUMNS:
        known = [ours, *SYNONYMS[ours].split()]
        wanted = said.get(ours, ours)
        if wanted in ("", None):
            continue
        if str(wanted).isdecimal() and str(wanted) not in names:
            places[ours] = int(wanted) - 1
        elif ours in said:
            same = [place for place, name in enumerate(names) if name.lower() == str(wanted).lower()]
            places |= {ours: same[0]} if same else {}
        else:
            near = sorted(
                (known.index(squeezed(name)), place) for place, name in enumerate(names) if squeezed(name) in known
            )
            near = [one for one in near if one[1] not in places.values()]
            places |= {ours: near[0][1]} if near else {}
    free = [column for column in seen if column.place - 1 not in places.values()]

    def take(ours: str, fits: Callable[[Column], object]) -> None:
        able = [column for column in free if fits(column)]
        if ours not in places and ours not in said and able:
            best = max(able, key=lambda column: (float(fits(column)), -column.place))  # type: ignore[arg-type]
            places[ours] = best.place - 1
            free.remove(best)

    take("time", lambda column: column.what.endswith("times"))
    take("url", lambda column: column.what.endswith("addresses"))
    take("query", lambda column: column.what.endswith(("text", "words")) and 0.01 + column.words + column.distinct / 10)
    take("user", _like_users)
    return {ours: place for ours, place in places.items() if place < len(seen)}


def _guess_values(cells: Mapping[str, Sequence[str]], found: dict[str, Any], notes: list[str]) -> None:
    """Guess what is around queries and how times are written, from the cells of a sample."""
    queries, times = cells.get("query", ()), cells.get("time", ())[:_ENOUGH]
    for wrap in WRAPS if not found.get("unwrap") else ():
        if queries and sum(q[0] == wrap[0] and q[-1] == wrap[1] for q in queries) * 5 > 4 * len(queries):
            found["unwrap"] = wrap
            notes.append(f"most queries are enclosed in {wrap[0]} and {wrap[1]}, which --unwrap takes off")
    odd = [one for one in times if not re.fullmatch(r"\d{4}-\d\d-\d\d.*|\d{1,10}([.]\d*)?|\d{13}", one)]
    if found.get("time_format") or found.get("time_unit") or 2 * len(odd) <= len(times):
        return
    forms = [form for form in TIME_FORMS if sum(_is_time(one, form) for one in odd) * 10 > 9 * len(odd)]
    if len(forms) == 1:
        found["time_format"] = forms[0]
        notes.append(f"times are written {forms[0]}")
    elif forms:
        notes.append(f"times are written {' or '.join(forms[:2])}: say which, --time-format")
        found["columns"] = {**found["columns"], "time": None}
    else:
        notes.append("times are written in a way that is not known: say how, --time-format")
        found["columns"] = {**found["columns"], "time": None}


def _is_time(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True
