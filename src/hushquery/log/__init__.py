"""Reading search logs: any format or table in, secret rows with canonical columns out."""

from __future__ import annotations

from hushquery.log.defects import Defect, Defects
from hushquery.log.look import MANY, SECRET, Look, first_places, look
from hushquery.log.read import Log, read_log

__all__ = ["MANY", "SECRET", "Defect", "Defects", "Log", "Look", "first_places", "look", "read_log"]
