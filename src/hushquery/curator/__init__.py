"""The curator model: publish a search log that a trusted party holds."""

from __future__ import annotations

from hushquery.curator.plan import ReleasePlan, plan_release

__all__ = ["ReleasePlan", "plan_release"]
