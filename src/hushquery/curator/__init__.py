"""The curator: publish a search log that somebody is trusted with.

bound -> count -> select -> counts -> clicks -> reformulations, one file each; ``plan.py`` ties them to a budget and the
ledger, ``calibrate.py`` chooses every number beforehand, ``forecast.py`` says what to expect.
"""

from __future__ import annotations

from hushquery.curator.plan import ReleasePlan, curate

__all__ = ["ReleasePlan", "curate"]
