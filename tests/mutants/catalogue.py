"""All mutants, by area; and which of them a commit tries out."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping

from mutants import of_accounting, of_clients, of_curator, of_hybrid, of_noise, of_randomizers
from mutants.model import ROOT, Mutant

__all__ = ["AREAS", "EVERY", "sample"]

AREAS: Mapping[str, tuple[Mutant, ...]] = {
    "randomizers": of_randomizers.MUTANTS,
    "noise": of_noise.MUTANTS,
    "accounting": of_accounting.MUTANTS,
    "curator": of_curator.MUTANTS,
    "clients": of_clients.PYTHON,
    "browser": of_clients.BROWSER,
    "hybrid": of_hybrid.MUTANTS,
}

EVERY: tuple[Mutant, ...] = tuple(one for mutants in AREAS.values() for one in mutants)


def sample(most: int) -> list[Mutant]:
    """Choose some mutants by the commit, or where there is none by what the code says: the same all over a run."""
    mark = _commit() or _content()
    return sorted(EVERY, key=lambda one: hashlib.sha256(f"{mark} {one.name}".encode()).digest())[:most]


def _commit() -> str:
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.stdout.strip()


def _content() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
