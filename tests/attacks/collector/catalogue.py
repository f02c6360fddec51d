"""All attacks, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from attacks.collector import clock, disk_search, durability, full_disk, hanging, hostile_http, starvation, telemetry

ATTACKS: Mapping[str, ModuleType] = {
    module.__name__.rpartition(".")[2].replace("_", "-"): module
    for module in (durability, hostile_http, starvation, hanging, full_disk, clock, disk_search, telemetry)
}
