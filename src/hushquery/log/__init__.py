"""Reading search logs: any format or table in, secret rows with canonical columns out."""

from __future__ import annotations

from hushquery.log.defects import Defect, Defects
from hushquery.log.read import read_log
from hushquery.log.schema import Log

__all__ = ["Defect", "Defects", "Log", "read_log"]
