"""Negative controls: mechanisms that are broken on purpose, in the ways real libraries were.

Each claims more privacy than it gives. An audit that does not flag every one of them is worth nothing, so they are part
of the tests, and in a clone ``hushquery audit --controls`` runs them for whoever wants to see the audit work.
"""

from __future__ import annotations

from controls.curator import CURATOR_CONTROLS
from controls.hybrid import HYBRID_CONTROLS
from controls.local import LOCAL_CONTROLS

__all__ = ["CONTROLS"]

#: Every negative control: its name, and how to build it for an honest mechanism's (epsilon, delta).
CONTROLS = {**CURATOR_CONTROLS, **LOCAL_CONTROLS, **HYBRID_CONTROLS}
