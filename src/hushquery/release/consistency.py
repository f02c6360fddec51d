"""What a release says in two places, which has to be the same in both: people, kinds, sums and numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery._version import __version__
from hushquery.core.guarantee import Guarantee
from hushquery.release.manifest import steps_of
from hushquery.release.page import card
from hushquery.release.release import Release
from hushquery.release.tables import REST, release_measure

__all__ = ["card_problems", "people_problems", "share_problems"]

# Whom a release protects, by who is trusted.
_UNITS = {"curator": "user", "local": "client"}
# Who is trusted in each kind of release, and what its numbers are.
_KINDS: Mapping[str, tuple[tuple[tuple[str, ...], ...], tuple[str | None, ...]]] = {
    "curator": ((("curator",),), ("count", None)),
    "hybrid": ((("curator",), ("curator", "local")), ("share",)),
}
# Shares add up to this much.
_ROUNDING = 1e-6
# The chance of a false alarm that the two groups are compared with; one half of it is for single records.
_FALSE_ALARMS = 0.01
# What reports in two stages are called: they alone are blended in another mode than the best.
_TWO_STAGE = "two-stage"


def people_problems(release: Release) -> Iterator[str]:
    """Compare whom steps, guarantees and the kind of the release speak of."""
    manifest, guarantees = release.manifest, release.guarantees
    owners = [guarantee for guarantee in guarantees for _ in guarantee.steps]
    for number, ((_, ran), owner) in enumerate(zip(steps_of(manifest), owners, strict=True), 1):
        if ran["population"] != owner.population:
            yield f"step {number} speaks of other people than its guarantee"
    for guarantee in guarantees:
        if guarantee.unit.name != _UNITS[guarantee.model]:
            yield f"a {guarantee.model} guarantee protects one {_UNITS[guarantee.model]}, and this one says otherwise"
    if len({guarantee.test_noise for guarantee in guarantees}) > 1:
        yield "some guarantees say that the noise came from a test, and some say it did not"
    models, numbers = _KINDS.get(manifest["kind"], ((), ()))
    if tuple(g.model for g in guarantees) not in models or release_measure(release.tables) not in numbers:
        yield "the kind of the release does not fit its guarantees and tables"
    level = manifest["interval_level"]
    if isinstance(level, bool) or not 0 < level < 1:
        yield "the level of its intervals is not between 0 and 1"


def share_problems(release: Release) -> Iterator[str]:
    """Compare the tables of a blend with each other and with what its parameters say of them."""
    tables, told = release.tables, release.manifest["parameters"]
    if release.manifest["kind"] != "hybrid" or not {"queries", "clicks", "records"} <= set(tables):
        return
    keys = [{(r["query"], r["url"]) for r in tables[n].select(["query", "url"]).to_pylist()} for n in _OF_RECORDS]
    if keys[0] != keys[1]:
        yield "clicks and records do not list the same"
    if "head_size" in told and told["head_size"] != tables["records"].num_rows:
        yield "the head list does not have the size that the parameters state"
    if not _same_sums(tables):
        yield "the share of a query is not the sum of the shares of its clicks"
    if abs(math.fsum(tables["clicks"]["share"].to_pylist()) + told[REST] - 1) > _ROUNDING:
        yield "the shares of clicks and the rest are not the whole"
    if "shifted_records" in told and told["shifted_records"] != _shifted(tables["records"]["shift_z"]):
        yield "the number of records that differ between the groups does not follow from their column shift_z"
    if not 0 <= told.get("shift_p_value", 0) <= 1 or not 0 <= told.get("rest_stderr", 0) < math.inf:
        yield "a chance or a standard error in the parameters is none"
    if not 0 <= told.get("rest_low", 0) <= told[REST] + _ROUNDING <= told.get("rest_high", 1) + 2 * _ROUNDING:
        yield "the share of the rest is outside its own interval"
    if "optin_users" in told and not _whole_counts(release, told["optin_users"]):
        yield "the shares of the opt-in users are no counts of as many users as the parameters state"
    local = [step.name for guarantee in release.guarantees for step in guarantee.steps if guarantee.model == "local"]
    if "mode" in told and local and (told["mode"] == "best") is (_TWO_STAGE in local):
        yield "the mode of blending does not fit the clients' reports"


_OF_RECORDS = ("clicks", "records")


def _same_sums(tables: Mapping[str, pa.Table]) -> bool:
    sums = tables["clicks"].group_by("query").aggregate([("share", "sum")])
    summed = dict(zip(sums["query"].to_pylist(), sums["share_sum"].to_pylist(), strict=True))
    stated = tables["queries"].select(["query", "share"]).to_pylist()
    return all(abs(summed.pop(row["query"], math.inf) - row["share"]) <= _ROUNDING for row in stated) and not summed


def _shifted(scores: pa.ChunkedArray) -> int:
    """Count the records that differ, by Holm's rule at half the chance of a false alarm."""
    chances = sorted(2 * NormalDist().cdf(-abs(z)) for z in pc.drop_null(scores).to_pylist())
    tested = len(chances)
    # The first chance that is too large ends the list.
    rejected = [chance * (tested - place) <= _FALSE_ALARMS / 2 for place, chance in enumerate(chances)]
    return rejected.index(False) if False in rejected else tested


def _whole_counts(release: Release, users: int) -> bool:
    """Say whether opt-in shares times users, times the records of each, are whole numbers for some step."""
    per_user = [ran["parameters"].get("keys_per_user", 1) for _, ran in steps_of(release.manifest)]
    shares = release.tables["records"]["optin"].to_pylist()
    for number in {1, *per_user}:
        counts = [share * users * number for share in shares]
        if all(abs(count - round(count)) <= _ROUNDING * max(1.0, abs(count)) for count in counts):
            return True
    return False


def card_problems(
    tables: Mapping[str, pa.Table], guarantees: tuple[Guarantee, ...], manifest: Mapping[str, Any], text: str
) -> Iterator[str]:
    """Compare the data card with the one that this manifest gives; of another version, what it says of its making."""
    made = f"Made with hushquery {manifest['hushquery']} on {manifest['created']}."
    same = text == card(tables, guarantees, manifest) if manifest["hushquery"] == __version__ else made in text
    if not same:
        yield "README.md does not say what the manifest says"
