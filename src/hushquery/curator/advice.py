"""Advise the parameters of a release from orders of magnitude: they are published, so no row may choose them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hushquery.core.budget import Budget, Number, format_delta, format_epsilon, suggested_delta
from hushquery.curator.forecast import BOUNDS, Forecast, compare
from hushquery.curator.plan import SelectorName
from hushquery.errors import UsageError

#: What stands for the population in a command that is not ready yet; a ledger refuses it.
WHOSE = "--population '<whose log it is>'"
_CLICKS = (1, 2, 10)  # besides the first that is tried
_FIRST_CLICKS = 5


@dataclass(frozen=True)
class Advice:
    """Parameters for a release, its thresholds in users, and how many queries to expect: a 90% range."""

    users: int
    rows: int
    epsilon: str
    delta: str
    queries_per_user: int
    selector: str
    threshold: float
    released_low: int
    released_high: int
    noise: float | None = None
    clicks_per_user: int | None = None
    click_threshold: float | None = None
    longer: str = ""  # what another selector buys, in words

    @property
    def options(self) -> str:
        """The options of ``hushquery release``."""
        numbers = f"--epsilon {self.epsilon} --delta {self.delta} --queries-per-user {self.queries_per_user}"
        if self.clicks_per_user is not None:
            numbers += f" --clicks-per-user {self.clicks_per_user} --selector {self.selector}"
        return f"{numbers} --users {self.users}"

    def __str__(self) -> str:
        each = f"at most {_few(self.queries_per_user, 'query', 'queries')}"
        if self.clicks_per_user is None:
            passed = f"queries searched by about {self.threshold:.0f} or more users"
        else:
            each += f" and {_few(self.clicks_per_user, 'click', 'clicks')}"
            passed = (
                f"queries searched by about {self.threshold:.0f} or more users, and pages that about "
                f"{self.click_threshold:.0f} or more users clicked for one query,"
            )
        return (
            f"With epsilon {self.epsilon}, delta {self.delta} and {each} per user, {passed} will be released. "
            f"Expect {self.released_low:,} to {self.released_high:,} queries if people search as they do on the "
            "web; where more people search for the same things, as in a shop, it may be several times as many."
        )

    @property
    def why(self) -> str:
        """Why d is what it is, in a sentence."""
        return why(self.queries_per_user, self.users, self.rows)


def why(queries_per_user: int, users: int, rows: int | None) -> str:
    """Explain the proposed number of queries per user in a sentence."""
    each = "" if rows is None else f" with {rows / users:.3g} rows each"
    best = f"Why {queries_per_user}: for {users:,} users{each}"
    if queries_per_user == 1:
        return f"{best}, a second query of each user would add less than the noise that it needs takes away."
    return f"{best}, no other number of queries per user is forecast to release clearly more with less noise."


def _few(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def choose(forecasts: Sequence[Forecast]) -> Forecast:
    """Return the forecast with most queries (and clicks), or one with a smaller d that has nearly as many.

    >>> from hushquery.curator.forecast import compare
    >>> choose(compare(Budget(1, 1e-7), 65_000, selectors=("gaussian",))).queries_per_user
    20
    """
    worth = {id(one): (1 + one.expected) * (1 + one.expected_clicks) for one in forecasts}
    near = [one for one in forecasts if worth[id(one)] >= 0.97 * max(worth.values())]
    return min(near, key=lambda one: (one.queries_per_user, one.clicks_per_user or 0, -worth[id(one)]))


def longer_list(best: Forecast, others: Sequence[Forecast]) -> str:
    """Name a selector that releases clearly more queries at the same d, with the noise it costs; empty if none does."""
    same = [one for one in others if one.queries_per_user == best.queries_per_user and one.noise is not None]
    most = max(same, key=lambda one: one.expected, default=best)
    if most.expected < 1.2 * best.expected or most.released_high <= best.released_high:
        return ""
    return (
        f"For a longer list add --selector {most.selector}: expect {most.released_low:,} to {most.released_high:,} "
        f"queries, but counts with more noise (standard deviation {most.noise or 0:.1f} instead of "
        f"{best.noise or 0:.1f})."
    )


def magnitude(number: int) -> int:
    """Return the nearest of 1, 2, 5, 10, 20, 50, ...: all of a count that may choose a parameter, once accepted.

    >>> [magnitude(n) for n in (0, 3, 8_839, 14_000, 36_389_567)]
    [1, 2, 10000, 10000, 50000000]
    """
    digits = 10 ** (len(str(max(1, number))) - 1)
    near: list[int] = [digits * one for one in (1, 2, 5, 10)]
    return min(near, key=lambda one: max(one, number) / max(1, min(one, number)))


def advise(users: int, rows: int, *, epsilon: Number = 1, clicks: bool = False) -> Advice:
    """Return parameters for a log of about so many users and rows; data-free: give public or rounded figures.

    Args:
        users: How many users there are, roughly; delta follows from it.
        rows: How many searches they made, roughly.
        epsilon: What one user may lose.
        clicks: Whether to publish clicks too; d and the selector then serve both tables.

    >>> print(advise(users=10_000, rows=200_000))
    With epsilon 1, delta 1e-06 and at most 10 queries per user, queries searched by about 71 or more users will be \
released. Expect 15 to 58 queries if people search as they do on the web; ...
    """
    if not 1 <= users <= rows:
        raise UsageError("there must be at least one user, and a row for each", fix="Give --users and --rows, roughly")
    budget = Budget(epsilon, suggested_delta(users))

    def tried(bounds: Sequence[int], selector: SelectorName, most: int | None = None) -> list[Forecast]:
        return compare(budget, users, bounds, (selector,), searches=rows / users, clicks_per_user=most)

    longer = ""
    if not clicks:
        best = choose(tried(BOUNDS, "auto"))
        longer = longer_list(best, tried((best.queries_per_user,), "iterated"))
    else:
        # The threshold of queries depends on d alone, that of clicks on theirs: one after the other.
        both: tuple[SelectorName, ...] = ("gaussian", "laplace")
        first = choose([one for name in both for one in tried(BOUNDS[:6], name, _FIRST_CLICKS)])
        d = (first.queries_per_user,)
        best = choose([first, *(one for name in both for most in _CLICKS for one in tried(d, name, most))])
    return Advice(
        users,
        rows,
        format_epsilon(budget.epsilon),
        format_delta(budget.delta),
        best.queries_per_user,
        best.selector,
        best.threshold,
        best.released_low,
        best.released_high,
        best.noise,
        best.clicks_per_user,
        best.click_threshold,
        longer,
    )
