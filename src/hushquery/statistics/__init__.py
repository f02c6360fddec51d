"""Private statistics over any table: count, sum, mean, histogram, and vectors of overlapping queries.

    >>> from hushquery import statistics
    >>> people = {"user": ["ann", "bob", "cem"], "age": [31, 44, 27]}
    >>> plan = statistics.plan_count(people, unit="user", epsilon=1, population="a lab")
    >>> print(plan.guarantee.summary())
    epsilon 1, delta 0 for one user, present or absent (add-remove), of "a lab"

``plan.run(ledger)`` spends first, then reads.
"""

from hushquery.statistics.plan import (
    StatisticPlan,
    plan_count,
    plan_histogram,
    plan_mean,
    plan_queries,
    plan_statistic,
    plan_sum,
)

__all__ = ["StatisticPlan", "plan_count", "plan_histogram", "plan_mean", "plan_queries", "plan_statistic", "plan_sum"]
