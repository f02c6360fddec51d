"""Draw the people of the synthetic log, a chunk at once: what each searches for, when, and what they click."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from hushquery.log.synthetic.language import RESULTS, Ints, Language, language, private_code
from hushquery.log.synthetic.private import ITEMS_PER_USER, KINDS, private_numbers

_Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

_DAY = 86_400
_DAYS = 92  # from 1 March to 31 May
_PERIOD = _DAYS * _DAY
_HOURS = (22, 14, 9, 6, 5, 6, 10, 18, 30, 40, 46, 49, 50, 51, 52, 53, 54, 55, 57, 61, 64, 62, 50, 35)
# Shortest time between two sessions of a person: longer than any gap inside one.
_BETWEEN_SESSIONS = 45 * 60
_LONGEST_PAUSE = 20 * 60


@dataclass(frozen=True)
class Profile:
    """The size and shape of a synthetic log; by default fitted to AOL's, as tests/log/test_synthetic.py measures."""

    name: str = "aol"  # its name
    number: int = 1  # its part of the seed
    themes: int = 64  # themes of eight topics each
    modifiers: int = 128  # second words of queries
    places: int = 128  # third words
    vocabulary: int = 8_000_000  # how many ranks are drawn from
    exponent: float = 0.9  # the s of Zipf-Mandelbrot, p proportional to (rank + shift)^-s, ranks from 1
    shift: float = 0.5  # the q of it
    searches: float = 13.5  # median searches of a user
    spread: float = 1.25  # standard deviation of their logarithm
    most: int = 2500  # searches of the busiest user at most
    chunk: int = 10_000  # users drawn together
    terms: bool = False  # whether queries and URLs are numbers
    starts_session: float = 0.35  # share of searches that begin a session
    finds_again: float = 0.27  # share of those that are a query of the person's own once more
    finds_again_inside: float = 0.12  # the same, of the other searches
    reformulates: float = 0.42  # share of the other searches that reformulate the one before
    is_private: float = 0.012  # share of new queries that are of the private tail
    slips: float = 0.02  # share of searches that are misspelt at first

    def language(self) -> Language:
        """Return the words of the profile; built once."""
        return language(self.themes, self.modifiers, self.places, terms=self.terms)


_YANDEX = Profile("yandex", 2, themes=4096, modifiers=1024, places=1024, vocabulary=20_000_000, terms=True)
# So few users share a query only where there are few queries.
_TINY = Profile("tiny", 3, 8, modifiers=16, places=16, vocabulary=6_000, exponent=1.0, spread=1.0, most=400, chunk=500)

#: The profiles by name.
PROFILES: dict[str, Profile] = {profile.name: profile for profile in (Profile(), _YANDEX, _TINY)}


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows of a chunk of users, by user and time."""

    user: Ints  # index of the user in the whole log
    session: Ints  # index of the session in the chunk
    session_start: Ints  # seconds from the start of the period, per row
    search: Ints  # index of the search in the chunk; the clicks of one search share it
    seconds: Ints  # time from the start of the period
    code: Ints  # the query
    rank: Ints  # position of the click from 1, or 0 where nothing was clicked
    host: Ints  # of the clicked URL
    path: Ints  # of the clicked URL


def draw_chunk(profile: Profile, seed: int, number: int, users: int) -> Chunk:
    """Draw the first ``users`` of a chunk from profile, seed and number alone; fewer users are the first rows."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([profile.number, number, seed])))
    words = profile.language()
    searches = np.exp(np.log(profile.searches) + profile.spread * rng.standard_normal(profile.chunk))
    count = np.clip(np.rint(searches), 1, profile.most).astype(np.int64)
    owner = np.repeat(np.arange(profile.chunk), count)
    first = np.repeat(np.cumsum(count) - count, count)
    place = np.arange(len(owner)) - first
    begins = (place == 0) | (rng.random(len(owner)) < profile.starts_session)
    code, reformulated = _queries(profile, words, rng, number * profile.chunk + owner, first, place, begins)
    slip = words.can_slip(code) & (rng.random(len(code)) < profile.slips)
    correction = np.where(slip, 3 + (38 * rng.random(len(code))).astype(np.int64), 0)
    seconds, session, session_start = _times(rng, owner, begins, reformulated, correction)
    clicks = _clicks(words, rng, code)

    # Each search may have a misspelling before it, so it has two slots.
    rows = np.stack([slip.astype(np.int64), np.maximum(clicks, 1)], axis=1).ravel()
    slot = np.repeat(np.arange(len(rows)), rows)
    event, typo = slot // 2, slot % 2 == 0
    nth = np.arange(len(slot)) - np.repeat(np.cumsum(rows) - rows, rows)
    rank = _ranks(words, rng, code[event], nth, typo | (clicks[event] == 0))
    # The first favourite slip is the most common.
    variant = 1 + np.searchsorted([0.7, 0.9], rng.random(len(code)))
    typed = np.where(typo, words.misspelt(code, variant)[event], code[event])
    # Whoever clicks on and on leaves the page at its end.
    shown = (rank <= RESULTS) & (owner[event] < users)
    event, typo, slot, rank, typed = (column[shown] for column in (event, typo, slot, rank, typed))
    host, path = words.results(typed, np.maximum(rank - 1, 0))
    return Chunk(
        user=number * profile.chunk + owner[event],
        session=session[event],
        session_start=session_start[event],
        search=slot,
        seconds=seconds[event] - np.where(typo, correction[event], 0),
        code=typed,
        rank=rank,
        host=host,
        path=path,
    )


def _queries(
    profile: Profile, words: Language, rng: np.random.Generator, user: Ints, first: Ints, place: Ints, begins: _Flags
) -> tuple[Ints, _Flags]:
    """Draw what is searched: something new, the person's own query again, or a reformulation of the one before."""
    total = len(user)
    code = words.codes(_zipf(profile, rng.random(total)))
    item = (rng.random(total) * ITEMS_PER_USER).astype(np.int64)
    secret = rng.random(total) < profile.is_private
    # The recipe belongs to the item, so that a number never comes in two shapes.
    number = private_numbers(user, item)
    code = np.where(secret, private_code(number % len(KINDS), number), code)

    choice = rng.random(total)
    reformulated = ~begins & (choice < profile.reformulates)
    again = np.where(begins, choice < profile.finds_again, choice < profile.reformulates + profile.finds_again_inside)
    again = again & ~reformulated & (place > 0)
    parent = np.where(reformulated, np.arange(total) - 1, first + (rng.random(total) * place).astype(np.int64))
    way, favourite = rng.random(total), np.searchsorted([0.6, 0.8, 0.9, 0.95], rng.random(total)).astype(np.int64)

    # A search is known once the one it comes from is; each pass goes one step further from the new ones.
    known = ~(reformulated | again)
    open_ = np.flatnonzero(~known)
    while len(open_):
        ready = known[parent[open_]]
        now = open_[ready]
        before = code[parent[now]]
        onward = reformulated[now] & ~words.is_secret(before)
        next_ = words.reformulate(before, way[now], favourite[now])
        # Nobody refines what is private; the search after it is a new one.
        code[now] = np.where(again[now], before, np.where(onward, next_, code[now]))
        known[now] = True
        open_ = open_[~ready]
    return code, reformulated


def _zipf(profile: Profile, uniform: _Floats) -> Ints:
    """Draw ranks from 0 by the inverse of the distribution: exact at the head, smooth behind it."""
    table, (low, high, power) = _zipf_table(profile)
    head = np.searchsorted(table, uniform, side="right").astype(np.int64)
    share = np.clip((uniform - table[-1]) / (1 - table[-1]), 0, 1)
    far = np.floor((low**power + share * (high**power - low**power)) ** (1 / power) - profile.shift - 0.5)
    behind = np.clip(far.astype(np.int64), len(table), profile.vocabulary - 1)
    return np.where(head < len(table), head, behind)


@cache
def _zipf_table(profile: Profile) -> tuple[_Floats, tuple[float, float, float]]:
    """Return the distribution of the first ranks, and bounds and power of the integral that stands for the others."""
    size = min(4096, profile.vocabulary)
    head = (np.arange(1, size + 1) + profile.shift) ** -profile.exponent
    # Zipf's s = 1 would make the integral a logarithm.
    power = 1 - profile.exponent if profile.exponent != 1 else 1e-9
    low, high = size + 0.5 + profile.shift, profile.vocabulary + 0.5 + profile.shift
    behind = (high**power - low**power) / power
    return np.cumsum(head) / (head.sum() + behind), (low, high, power)


def _times(
    rng: np.random.Generator, owner: Ints, begins: _Flags, reformulated: _Flags, correction: Ints
) -> tuple[Ints, Ints, Ints]:
    """Draw when each search happens: its second, its session, and the second in which that began."""
    total = len(owner)
    # Reformulating takes half a minute, something new two minutes, each with a wide spread.
    pause = np.exp(np.where(reformulated, 3.3, 4.7) + 0.8 * rng.standard_normal(total))
    pause = np.clip(pause, 2, _LONGEST_PAUSE).astype(np.int64)
    pause = np.where(begins, 0, pause) + correction
    session = np.cumsum(begins) - 1
    of_user = owner[begins]
    elapsed = np.cumsum(pause)
    # The correction of a session's first slip is inside the session.
    at_begin = (elapsed - pause)[begins]
    length = np.diff(np.append(at_begin, elapsed[-1] if total else 0))
    hours = np.cumsum(_HOURS) / sum(_HOURS)
    where = rng.random(len(of_user))
    hour = np.searchsorted(hours, where, side="right")
    second = (where - np.concatenate([[0], hours])[hour]) / np.diff(hours, prepend=0)[hour] * 3600
    day = np.floor(rng.random(len(of_user)) * _DAYS)
    wish = (day * _DAY + hour * 3600 + second).astype(np.int64)
    start = _apart(of_user, wish, length + _BETWEEN_SESSIONS)
    return start[session] + elapsed - at_begin[session], session, start[session]


def _apart(of_user: Ints, wish: Ints, needed: Ints) -> Ints:
    """Sort each user's session starts and move them until every session ends before the next, inside the period."""
    # Far more than a period with all its sessions, so that a user never reaches into the next one's.
    stride = 8 * _PERIOD
    wish = np.sort(of_user * stride + wish)
    before = np.cumsum(needed) - needed
    offset = before - before[np.searchsorted(of_user, of_user)]
    later = np.maximum.accumulate(wish - offset) + offset
    after = np.append(of_user[1:] != of_user[:-1], True)
    last = np.flatnonzero(after)[np.searchsorted(of_user[after], of_user)]
    remaining = offset[last] + needed[last] - offset
    return np.minimum(later - of_user * stride, _PERIOD - remaining)


def _clicks(words: Language, rng: np.random.Generator, code: Ints) -> Ints:
    """Draw how many results are clicked: often none, seldom several; one for a query that names a site."""
    chance = rng.random(len(code))
    sites = words.navigational(code)
    many = np.searchsorted([0.42, 0.84, 0.95, 0.99], chance)
    few = np.searchsorted([0.15, 0.97], chance)
    return np.where(words.is_secret(code), (chance < 0.3).astype(np.int64), np.where(sites, few, many))


def _ranks(words: Language, rng: np.random.Generator, code: Ints, nth: Ints, none: _Flags) -> Ints:
    """Draw the positions of clicks: the first by position bias, each next one further down the page; 0 for none."""
    places = np.arange(1, RESULTS + 1, dtype=np.float64)
    informed, sites = (np.cumsum(places**-bias) / (places**-bias).sum() for bias in (1.3, 4.0))
    chance = rng.random(len(code))
    start = np.where(words.navigational(code), np.searchsorted(sites, chance), np.searchsorted(informed, chance)) + 1
    step = np.where(nth == 0, start, 1 + (chance * 3).astype(np.int64))
    run = np.cumsum(step)
    base = np.maximum.accumulate(np.where(nth == 0, np.arange(len(code)), 0))
    return np.where(none, 0, run - run[base] + start[base])
