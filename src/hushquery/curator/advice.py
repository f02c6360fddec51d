"""Advise the parameters of a release from orders of magnitude: they are published, so no row may choose them."""

from __future__ import annotations

from dataclasses import dataclass

from hushquery.core.budget import Budget, Number, format_delta, format_epsilon, suggested_delta
from hushquery.curator.forecast import forecast
from hushquery.curator.plan import ReleaseSpec
from hushquery.errors import UsageError

#: The values of d that are tried.
BOUNDS = (1, 2, 5, 10, 20, 40)


@dataclass(frozen=True)
class Advice:
    """Parameters for a release, its threshold in users, and how many queries to expect: a 90% range."""

    users: int
    rows: int
    epsilon: str
    delta: str
    queries_per_user: int
    selector: str
    threshold: float
    released_low: int
    released_high: int

    @property
    def options(self) -> str:
        """The options of ``hushquery release``."""
        numbers = f"--epsilon {self.epsilon} --delta {self.delta} --queries-per-user {self.queries_per_user}"
        return f"{numbers} --users {self.users}"

    def __str__(self) -> str:
        return (
            f"With epsilon {self.epsilon}, delta {self.delta} and at most {self.queries_per_user} "
            f"{'query' if self.queries_per_user == 1 else 'queries'} per user, "
            f"queries searched by about {self.threshold:.0f} or more users will be released. "
            f"Expect {self.released_low:,} to {self.released_high:,} queries."
        )


def magnitude(number: int) -> int:
    """Return the nearest of 1, 2, 5, 10, 20, 50, ...: all of a count that may choose a parameter, once accepted.

    >>> [magnitude(n) for n in (0, 3, 8_839, 14_000, 36_389_567)]
    [1, 2, 10000, 10000, 50000000]
    """
    digits = 10 ** (len(str(max(1, number))) - 1)
    near: list[int] = [digits * one for one in (1, 2, 5, 10)]
    return min(near, key=lambda one: max(one, number) / max(1, min(one, number)))


def advise(users: int, rows: int, *, epsilon: Number = 1) -> Advice:
    """Return parameters for a log of about so many users and rows; data-free: give public or rounded figures.

    Args:
        users: How many users there are, roughly; delta follows from it.
        rows: How many searches they made, roughly.
        epsilon: What one user may lose.

    >>> print(advise(users=10_000, rows=200_000))
    With epsilon 1, delta 1e-06 and at most 20 queries per user, queries searched by about 103 or more users will be \
released. Expect 16 to 64 queries.
    """
    if not 1 <= users <= rows:
        raise UsageError("there must be at least one user, and a row for each", fix="Give --users and --rows, roughly")
    budget = Budget(epsilon, suggested_delta(users))
    searches = rows / users
    bounds = [bound for bound in BOUNDS if bound == 1 or bound <= 2 * searches]
    plans = [forecast(ReleaseSpec(budget, bound), users, searches=searches) for bound in bounds]
    # The largest bound that costs next to nothing: of each user more is counted.
    most = max(plan.released_low + plan.released_high for plan in plans)
    best = [plan for plan in plans if 10 * (plan.released_low + plan.released_high) >= 9 * most][-1]
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
    )
