"""All attacks, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from attacks.collector import clock, disk_search, durability, hanging, telemetry

ATTACKS: Mapping[str, ModuleType] = {
    module.__name__.rpartition(".")[2].replace("_", "-"): module
    for module in (durability, hanging, clock, disk_search, telemetry)
}
