"""docs/glossary.md has every word that the product uses as a name, once, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from hushquery.collect.epochs.epochs import EXPIRED, PHASES
from hushquery.core.budget import Relation
from hushquery.curator.plan import SelectorName
from hushquery.hybrid.blend import Mode
from hushquery.local.configuration import ORACLES
from hushquery.task.model import TaskPart

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"

# The vocabulary that every module and page shares.
VOCABULARY = """
log record budget guarantee ledger task plan randomizer estimator report batch release relation population neighbours
epsilon delta wildcard curator local hybrid client collector epoch selector threshold memo
""".split()  # noqa: SIM905 - lists of words are read as text


def entries():
    return dict(re.findall(r"^- \*\*([^*]+)\*\*: (.+?)(?=\n- |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S))


def test_every_word_of_the_vocabulary_is_there():
    assert {*VOCABULARY, "unit of protection", "head list", "add-remove", "replace-one"} <= set(entries())


def test_words_are_in_order_and_there_once():
    words = re.findall(r"^- \*\*([^*]+)\*\*:", PAGE.read_text(encoding="utf-8"), re.M)
    assert words == sorted(set(words), key=str.lower)
    assert len(words) == len(entries())


def test_names_that_one_can_type_are_explained():
    said = entries()
    for word, names in {
        "selector": get_args(SelectorName),
        "oracle": [*ORACLES, "auto"],
        "mode": get_args(Mode),
        "phase": [*PHASES, EXPIRED],
        "setting": [kind for kind in get_args(TaskPart.model_fields["kind"].annotation) if kind != "setting"],
    }.items():
        assert not [name for name in names if f"`{name}`" not in said[word]], word
    assert {str(relation.value) for relation in Relation} <= set(said)


def test_a_word_that_points_to_another_points_to_one_that_is_there():
    said = entries()
    pointed = {word for text in said.values() for word in re.findall(r"See \*([^*]+)\*", text)}
    assert pointed <= set(said)
    assert pointed
