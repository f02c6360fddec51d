"""Private statistics over any table: count, sum, mean, histogram, and vectors of overlapping queries.

    >>> import hushquery.statistics as basic
    >>> people = {"user": ["ann", "bob", "cem"], "age": [31, 44, 27]}
    >>> plan = basic.count(people, unit="user", epsilon=1, population="a lab")
    >>> print(plan.guarantee.summary())
    epsilon 1, delta 0 for one user, present or absent (add-remove), of "a lab"

``plan.run(ledger)`` spends first, then reads.
"""

from hushquery.statistics.plan import StatisticPlan
from hushquery.statistics.statistics import count, histogram, mean, queries, total

__all__ = ["StatisticPlan", "count", "histogram", "mean", "queries", "total"]
