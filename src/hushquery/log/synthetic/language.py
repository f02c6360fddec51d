"""Make the synthetic log's queries from lists of words: their text, their relatives and their results.

Queries are "topic", "topic modifier" or "topic modifier place", from disjoint lists without a person or a company. A
query is one number, its *code*; every rank has its own code and every code its own text::

    bits  0-19  topic (or: which fear)      bits 52-53  0 as meant, 1-3 one of three misspellings
    bits 20-35  modifier + 1, or 0          bits 56-57  0 topic, 1 fear, 2 private
    bits 36-51  place + 1, or 0             (private: the number in bits 0-39, the kind in bits 40-43)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hushquery.log.synthetic.private import WORDS, private_texts

#: What people fear in the synthetic log, the most common first, for "fear of X" and "X phobia".
FEARS: tuple[str, ...] = tuple(fear.replace("_", " ") for fear in WORDS["fears"].split())

#: Eight topics for each theme.
THEMES: dict[str, tuple[str, ...]] = {theme: tuple(topics.split()) for theme, topics in WORDS["themes"].items()}

#: The second word of a query: what a person wants of the topic.
MODIFIERS: tuple[str, ...] = tuple(WORDS["modifiers"].split())

#: The third word: where.
PLACES: tuple[str, ...] = tuple(WORDS["places"].split())

#: Sites that have a page for every topic.
SERVICES: tuple[str, ...] = ("encyclopedia", "clips", "marketplace", "answers", "herald", "phobias", "directory")

#: An array of whole numbers.
Ints = npt.NDArray[np.int64]

#: How many results a page has.
RESULTS = 10

_MODIFIER, _PLACE, _SLIP, _KIND = 20, 36, 52, 56
_FEAR, _PRIVATE = 1 << _KIND, 2 << _KIND
_THEME_SIZE = 8
_TERM_STEP, _TERM_PRIME = 48_271, 4_999_999  # a prime: the terms of the yandex profile are numbers below it
_URL_STEP, _URL_PRIME = 2_147_483_629, 2**32 + 15  # the next prime above the number of (host, path) pairs

# What the results of a query are, best first, by its number of words. Letters are explained in `Language.results`.
_PAGES = ("HEFTCSGAND", "FHMTECASDN", "PFMHTEACNS")
_FEAR_PAGES = "BECAMOSNKL"
_PAGE_TABLE = np.array([[ord(letter) for letter in row] for row in (*_PAGES, _FEAR_PAGES)], dtype=np.int64)


def misspell(word: str, taken: set[str]) -> list[str]:
    """Return three misspellings of a word, none of them in ``taken``, and add them to it.

    >>> misspell("guitar", {"guitar"})
    ['giutar', 'gitar', 'guuitar']
    """
    inside = range(1, len(word) - 1)
    kinds = (
        [word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in inside],  # two letters exchanged
        [word[:at] + word[at + 1 :] for at in inside],  # a letter left out
        [word[: at + 1] + word[at:] for at in inside],  # a letter typed twice
    )
    slips = [next(slip for slip in kind if slip not in taken) for kind in kinds]
    taken.update(slips)
    return slips


def private_code(kind: Ints, number: Ints) -> Ints:
    """Return the code of a private query."""
    return np.asarray(_PRIVATE | kind << 40 | number, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Language:
    """The words of a profile and how queries are made of them."""

    topics: int  # number of topics, a multiple of eight
    modifiers: int  # number of modifiers, a power of two
    places: int  # number of places, a power of two
    lexicon: Any  # every text a query begins or goes on with: topics, their misspellings, modifiers, places, fears
    hosts: Any  # the front of a URL by host: topics, modifiers, places, themes, services
    paths: Any  # the end of a URL: nothing, then topics, modifiers, fears
    fear_ranks: Ints  # the ranks of the queries on fears, rising
    terms: bool  # whether words are term ids, as in the yandex profile

    def codes(self, rank: Ints) -> Ints:
        """Return the code of each rank, 0 the most popular: one or two words first, then two or three, then three."""
        before = np.searchsorted(self.fear_ranks, rank)
        fear = self.fear_ranks[np.minimum(before, len(self.fear_ranks) - 1)] == rank
        plain = rank - before
        half, odd = plain // 2, plain % 2 == 1
        topics, pairs = self.topics, self.topics * self.modifiers
        one = ~odd & (plain < 2 * topics)
        two = (odd & (plain < 2 * topics)) | (~odd & (plain >= 2 * topics) & (plain < 2 * pairs))
        alternating = odd & (plain >= 2 * topics) & (plain < 2 * pairs)
        index = np.where(one | two, half, np.where(alternating, half - topics, plain - pairs - topics))
        topic = self._topic_at(index % topics, 1 + (~one).astype(np.int64) + ~(one | two))
        turn = index // topics
        modifier = self.favourite(topic, turn)
        place = self.favourite_place(topic, modifier, turn // self.modifiers)
        code = topic | np.where(one, 0, modifier + 1) << _MODIFIER | np.where(one | two, 0, place + 1) << _PLACE
        return np.where(fear, before | _FEAR, code)

    def _topic_at(self, index: Ints, words: Ints) -> Ints:
        """Return the topic at an index; three words are moved away from two words of the same topic."""
        mixed = index // 32 * 32 + (index * 13 + 7) % 32
        mixed = np.where(mixed < self.topics, mixed, index)
        # Spreads the topics of a theme over all ranks.
        moved = np.where(words == 1, index, mixed) + np.where(words == 3, self.topics // 2, 0)
        return (moved * _odd_step(self.topics) + self.topics // 3) % self.topics

    def favourite(self, topic: Ints, turn: Ints) -> Ints:
        """Return the modifier that people add to a topic first (turn 0), second, and so on."""
        return (topic * 37 + 11 + turn * 45) % self.modifiers

    def favourite_place(self, topic: Ints, modifier: Ints, turn: Ints) -> Ints:
        """Return the place that people add to a topic and a modifier first, second, and so on."""
        return (topic * 29 + modifier * 7 + 3 + turn * 45) % self.places

    def reformulate(self, code: Ints, way: npt.NDArray[np.float64], turn: Ints) -> Ints:
        """Return a next query on the same subject; ``way`` (0 to 1) picks how, ``turn`` which favourite (0: first)."""
        topic, modifier, place = _fields(code)
        bare, full = modifier < 0, place >= 0
        special = np.where(bare, way < 0.7, ~full & (way < 0.45))
        general = ~bare & np.where(full, way < 0.3, (way >= 0.45) & (way < 0.65))
        cousin = ~special & ~general & (bare | (way >= 0.8))
        other = ~special & ~general & ~cousin
        next_modifier = self.favourite(topic, turn)
        # Another favourite, should the first be what was typed already.
        next_modifier = np.where(next_modifier == modifier, self.favourite(topic, turn + 1), next_modifier)
        next_place = self.favourite_place(topic, modifier, turn)
        next_topic = np.where(cousin, topic // _THEME_SIZE * _THEME_SIZE + (topic + 3) % _THEME_SIZE, topic)
        swapped_place = np.where(next_place == place, self.favourite_place(topic, modifier, turn + 1), next_place)
        then_modifier = np.where((special & bare) | (other & ~full), next_modifier, modifier)
        then_modifier = np.where(general & ~full, -1, then_modifier)
        then_place = np.where(special & ~bare, next_place, np.where(other & full, swapped_place, place))
        then_place = np.where(general & full, -1, then_place)
        then = next_topic | (then_modifier + 1) << _MODIFIER | (then_place + 1) << _PLACE
        # People go from "fear of X" to "X phobia" and back.
        return np.where(code & _FEAR != 0, code ^ 1, then)

    def misspelt(self, code: Ints, variant: Ints) -> Ints:
        """Return a misspelling of public queries on topics: variant 1, 2 or 3."""
        return code | variant << _SLIP

    def can_slip(self, code: Ints) -> npt.NDArray[np.bool_]:
        """Return which queries have misspellings."""
        return np.asarray(code >> _KIND == 0)

    def is_secret(self, code: Ints) -> npt.NDArray[np.bool_]:
        """Return which queries are of the private tail."""
        return np.asarray(code & _PRIVATE != 0)

    def navigational(self, code: Ints) -> npt.NDArray[np.bool_]:
        """Return which queries only name a site: every third one-word topic."""
        topic, modifier, _ = _fields(code)
        return np.asarray((code >> _KIND == 0) & (modifier < 0) & (topic % 3 == 0))

    def text(self, code: Ints) -> Any:
        """Write queries as an Arrow array of text."""
        topic, modifier, place = _fields(code)
        topics, fear = self.topics, code & _FEAR != 0
        slip = code >> _SLIP & 3
        first = np.where(fear, 4 * topics + self.modifiers + self.places + topic, topic + slip * topics)
        secret = self.is_secret(code)
        parts = [
            # Never null: Arrow 26 leaves out the rows whose parts are all skipped.
            self.lexicon.take(pa.array(np.where(secret, 0, first))),
            self.lexicon.take(pa.array(4 * topics + modifier, mask=secret | fear | (modifier < 0))),
            self.lexicon.take(pa.array(4 * topics + self.modifiers + place, mask=secret | fear | (place < 0))),
        ]
        text = pc.binary_join_element_wise(*parts, " ", null_handling="skip")
        if not secret.any():
            return text
        hidden = code[secret]
        private = private_texts(hidden >> 40 & 15, hidden & (1 << 40) - 1, terms=self.terms)
        return pc.replace_with_mask(text, pa.array(secret), private)

    def results(self, code: Ints, position: Ints) -> tuple[Ints, Ints]:
        """Return host and path of the result at a position, 0 the best; queries that mean like things share sites."""
        topic, modifier, place = _fields(code)
        fear, secret = code & _FEAR != 0, self.is_secret(code)
        row = np.where(fear, len(_PAGES), (modifier >= 0).astype(np.int64) + (place >= 0))
        row = np.where(secret, 0, row)
        # All but the best are turned by some steps, so that the same sites come in another order.
        turned = np.where(position == 0, 0, 1 + (position - 1 + (code >> 3) + (code >> _MODIFIER)) % (RESULTS - 1))
        page = _PAGE_TABLE[row, turned]
        # Both queries on a fear have the same results.
        topic = np.where(fear, topic // 2, np.where(secret, 0, topic))
        theme = self.topics + self.modifiers + self.places
        service = theme + self.topics // _THEME_SIZE
        best = self.favourite(topic, np.zeros_like(topic))
        second = self.favourite(topic, np.ones_like(topic))
        fear_path = 1 + self.topics + self.modifiers + topic
        on_topic = np.where(fear, fear_path, 1 + topic)
        wanted = np.where(modifier >= 0, modifier, best)
        cousin = topic // _THEME_SIZE * _THEME_SIZE + (topic + 3) % _THEME_SIZE
        modifier_path = 1 + self.topics
        nothing = np.zeros_like(topic)
        sites = {
            "H": (topic, nothing),  # the site of the topic
            "F": (topic, modifier_path + wanted),  # its page for the modifier
            "G": (topic, modifier_path + second),  # its page for another one
            "M": (self.topics + wanted, on_topic),  # the modifier's site
            "P": (self.topics + self.modifiers + place, on_topic),  # the place's site
            "T": (theme + topic // _THEME_SIZE, nothing),  # the site of the theme
            "D": (cousin, nothing),  # the site of a related topic
            **{letter: (np.full_like(topic, service + place), on_topic) for place, letter in enumerate("ECSAN")},
            "B": (np.full_like(topic, service + 5), fear_path),
            "O": (np.full_like(topic, service + 5), nothing),
            "K": (self.topics + second, on_topic),
            "L": (self.topics + (second + 1) % self.modifiers, on_topic),
        }
        host, path = nothing.copy(), nothing.copy()
        for letter, (its_host, its_path) in sites.items():
            here = page == ord(letter)
            host[here], path[here] = its_host[here], its_path[here]
        # Whatever is private is looked up in a directory, whose addresses say nothing.
        host = np.where(secret, service + 6, host)
        return host, np.where(secret, 1 + turned % self.topics, path)

    def url(self, host: Ints, path: Ints, mask: npt.NDArray[np.bool_] | None = None) -> Any:
        """Write URLs as an Arrow array of text, null where ``mask`` is true."""
        if self.terms:
            return pa.array(self.url_ids(host, path), mask=mask).cast(pa.string())
        return pc.binary_join_element_wise(self.hosts.take(pa.array(host, mask=mask)), self.paths.take(path), "")

    def url_ids(self, host: Ints, path: Ints) -> Ints:
        """Number the URLs, for the yandex profile; the domain of a host is its URL with path 0."""
        return (host << 16 | path) * _URL_STEP % _URL_PRIME


def _fields(code: Ints) -> tuple[Ints, Ints, Ints]:
    """Split a code into topic, modifier and place; -1 where there is none. A private query has neither."""
    secret = code & _PRIVATE != 0
    modifier = np.where(secret, -1, (code >> _MODIFIER & 0xFFFF) - 1)
    place = np.where(secret, -1, (code >> _PLACE & 0xFFFF) - 1)
    return code & 0xFFFFF, modifier, place


def _odd_step(size: int) -> int:
    """Return a step near the golden ratio that visits every index below a size."""
    step = int(size * 0.618) | 1
    while np.gcd(step, size) != 1:
        step += 2
    return step


@cache
def language(themes: int, modifiers: int, places: int, *, terms: bool = False) -> Language:
    """Build the language of a profile: so many themes of eight topics, modifiers and places."""
    topics = themes * _THEME_SIZE
    steps = np.arange(2 * len(FEARS))
    fear_ranks = 20 + 6 * steps + steps**2 // 8
    if terms:
        ids = (np.arange(4 * topics + modifiers + places + len(fear_ranks), dtype=np.int64) + 1) * _TERM_STEP
        lexicon = pa.array(ids % _TERM_PRIME).cast(pa.string())
        return Language(topics, modifiers, places, lexicon, None, None, fear_ranks, terms)
    names = tuple(THEMES)[:themes]
    words = [topic for theme in names for topic in THEMES[theme]]
    endings, towns = list(MODIFIERS[:modifiers]), list(PLACES[:places])
    taken = {*(topic for theme in THEMES.values() for topic in theme), *THEMES, *MODIFIERS, *PLACES, *FEARS}
    slips = [misspell(word, taken) for word in words]
    fears = [text for fear in FEARS for text in (f"fear of {fear}", f"{fear} phobia")]
    by_variant = [slip[variant] for variant in range(3) for slip in slips]
    hosts = [f"https://{name}.example.com" for name in (*words, *endings, *towns, *names, *SERVICES)]
    paths = ["", *(f"/{name.replace(' ', '-')}" for name in (*words, *endings, *FEARS))]
    lexicon = pa.array([*words, *by_variant, *endings, *towns, *fears])
    return Language(topics, modifiers, places, lexicon, pa.array(hosts), pa.array(paths), fear_ranks, terms)
