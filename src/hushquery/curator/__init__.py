"""The curator: publish a search log that somebody is trusted with.

``plan.py`` ties a release to a budget and the ledger and draws its tables, ``calibrate.py`` chooses every number
beforehand, ``forecast.py`` estimates what to expect. ``counting.py`` bounds and counts; ``selectors/``, ``clicks.py``
and ``reformulations.py`` make a table each, with what the audit needs to know of it beside it.
"""

from __future__ import annotations

from hushquery.curator.plan import ReleasePlan, plan_release

__all__ = ["ReleasePlan", "plan_release"]
