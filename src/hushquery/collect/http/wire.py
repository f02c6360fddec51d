"""What bodies look like: one report, many reports, the records of a user who opted in.

::

    one report    application/octet-stream   the compact form (hushquery.local.report)
                  application/json           the JSON form
    many reports  application/octet-stream   each: its length as 4 bytes (unsigned, big-endian), then the compact form
                  application/json           {"reports": [JSON forms]}
    records       application/json           {"records": [[query, URL], ...]}, an empty URL where nothing was clicked

A frame that can't be read spoils its request, because nobody can say where the next report begins. A report that
can't be read spoils only itself. A body with more items than reports fit into its bytes is refused as a whole: what it
costs to answer a request is bounded by its length.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hushquery.collect.http.problems import refuse
from hushquery.errors import HushqueryError
from hushquery.local.report import HEADER_BYTES, Report, ReportError
from hushquery.task import Task
from hushquery.task.domain import LONGEST

__all__ = [
    "BINARY",
    "JSON",
    "MOST_REPORTS",
    "pack_batch",
    "read_batch",
    "read_id",
    "read_records",
    "read_report",
    "write_id",
]

#: The media type of the compact forms.
BINARY = "application/octet-stream"

#: The media type of the JSON forms.
JSON = "application/json"

#: The most reports in one request.
MOST_REPORTS = 1000

_LENGTH = struct.Struct(">I")
# No report takes less than this of a body, and a few broken ones may be among the others.
_LEAST = {
    BINARY: _LENGTH.size + HEADER_BYTES,
    JSON: len(json.dumps(Report(bytes(16), bytes(32), bytes(32), 0, b"").to_json(), separators=(",", ":"))),
}
_SPARE = 16
_ID_CHARACTERS = 22


def read_id(text: str) -> bytes:
    """Read an id in a path: 16 bytes as base64url without padding, 22 characters.

    >>> len(read_id("AAAAAAAAAAAAAAAAAAAAAA"))
    16
    """
    if len(text) == _ID_CHARACTERS and text.isascii():
        try:
            data = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if write_id(data) == text:  # there is one way to write an id
            return data
    raise refuse("malformed", "an id is 16 bytes as base64url without padding")


def write_id(data: bytes) -> str:
    """Write an id as it stands in a path."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def read_report(media_type: str, body: bytes) -> Report:
    """Read a body with one report."""
    if media_type == BINARY:
        return Report.from_bytes(body)
    if media_type == JSON:
        return Report.from_json(body)
    raise refuse("media-type")


def pack_batch(reports: list[bytes]) -> bytes:
    """Write many reports in their compact form, each with its length before it."""
    return b"".join(_LENGTH.pack(len(data)) + data for data in reports)


def read_batch(media_type: str, body: bytes) -> list[Report | HushqueryError]:
    """Read a body with many reports: each one, or what is wrong with it, in their order."""
    if media_type not in _LEAST:
        raise refuse("media-type")
    items: Iterable[Any] = _frames(body) if media_type == BINARY else _list_of(body, "reports")
    read: Any = Report.from_bytes if media_type == BINARY else _from_json
    most = min(MOST_REPORTS, _SPARE + len(body) // _LEAST[media_type])
    found: list[Report | HushqueryError] = []
    for item in items:
        if len(found) == MOST_REPORTS:
            raise refuse("too-large", f"a request has at most {MOST_REPORTS:,} reports")
        if len(found) == most:
            raise refuse("malformed", "it has more items than reports fit into its bytes")
        try:
            found.append(read(item))
        except ReportError as error:
            found.append(error)
    return found


def read_records(media_type: str, body: bytes, task: Task) -> list[list[str]]:
    """Read the records of one user, as many as the task lets a user give.

    None is fine: who opted in and has nothing to give counts as a user too, and staying away would tell it. So is a
    record that no list could hold (no query, too long, broken letters): it is left out, and its user counts.
    """
    if media_type != JSON:
        raise refuse("media-type")
    most = 1 if task.optin is None else task.optin.records_per_user
    records = _list_of(body, "records")
    if len(records) > most:
        raise refuse("malformed", f"a user of this task gives at most {most} records")
    for record in records:
        pair = isinstance(record, list) and len(record) == 2 and all(isinstance(part, str) for part in record)
        if not pair:
            raise refuse("malformed", "a record is a [query, URL] pair of texts")
    return [record for record in records if record[0].strip() and all(map(_can_be_listed, record))]


def _from_json(item: Any) -> Report:
    return Report.from_json(item if isinstance(item, Mapping) else b"")


def _frames(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        if at + _LENGTH.size > len(body):
            raise refuse("malformed", "the body ends inside a length")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + length > len(body):
            raise refuse("malformed", "the body ends inside a report")
        yield body[at : at + length]
        at += length


def _list_of(body: bytes, key: str) -> list[Any]:
    try:
        # A repeated key makes an empty object, which nothing here takes for anything.
        data = json.loads(body.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise refuse("malformed", "the body is not JSON in UTF-8") from None
    found = data.get(key) if isinstance(data, dict) and len(data) == 1 else None
    if not isinstance(found, list):
        raise refuse("malformed", f"the body is not an object with a list of {key} and nothing else")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else {}


def _can_be_listed(text: str) -> bool:
    if len(text) > LONGEST or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
