"""What a mutant is: a small, realistic mistake in production code, and the checks that must see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Edit", "Mutant", "mutant"]

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Edit:
    """One place that is changed: ``old`` stands exactly once in the file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A mistake that would cost people their privacy.

    Args:
        name: How to ask for it; unique.
        harm: What somebody would learn, or what would be claimed wrongly.
        edits: The places that are changed.
        tests: What of ``make test`` must fail: pytest node ids, and files of js/test for vitest.
        audits: Registered mechanisms that ``hushquery audit NAME --conformance`` must say does not conform, each.
    """

    name: str
    harm: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    audits: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Give the first file that is changed."""
        return self.edits[0].file

    def applied(self, root: Path = ROOT) -> Mapping[str, str]:
        """Give the text of every changed file; refuses an edit whose place is gone or not the only one."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            text = texts.get(edit.file) or (root / edit.file).read_text(encoding="utf-8")
            if text.count(edit.old) != 1:
                raise ValueError(f"{self.name}: {text.count(edit.old)} places in {edit.file} read {edit.old!r}")
            if edit.old == edit.new:
                raise ValueError(f"{self.name}: nothing is changed")
            texts[edit.file] = text.replace(edit.old, edit.new)
        return texts


def mutant(
    name: str, harm: str, file: str, *changes: tuple[str, str], tests: str | tuple[str, ...], audits: str = ""
) -> Mutant:
    """Make a mutant of one file: pairs of old and new text; names of audits are separated by spaces."""
    edits = tuple(Edit(file, old, new) for old, new in changes)
    return Mutant(name, harm, edits, (tests,) if isinstance(tests, str) else tests, tuple(audits.split()))
