"""Folding, words, n-grams and typing mistakes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.publish.text import allowed_edits, edits, fold, grams, has_digits_changed, key_of, tokens


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café Olé", "cafe ole"),
        ("Cafe\u0301", "café"),
        ("STRASSE", "straße"),
        ("İstanbul", "istanbul"),
        ("ＡＢＣ１２３", "abc123"),
        ("ｱｲｽ", "アイス"),
        ("  a \t b\n", "a b"),
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("أحمد", "احمد"),
        ("مدرسة", "مدرسه"),
        ("محـــمد", "محمد"),
        ("می‌خواهم", "میخواهم"),
        ("❤️", "❤"),
        ("a\u202eb", "ab"),
        ("co\u00adop", "coop"),
    ],
)
def test_texts_that_mean_the_same(one, other):
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("か", "が"), ("ที่", "ท"), ("कि", "क"), ("c", "c++"), ("北京", "南京"), ("😀", "😁"), ("ab", "a b")],
)
def test_texts_that_do_not(one, other):
    assert fold(one) != fold(other)


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing(text):
    assert fold(fold(text)) == fold(text)


@given(st.text(st.characters(min_codepoint=0xD700, max_codepoint=0xE010, categories=None), max_size=20))
def test_broken_text_becomes_text(text):
    fold(text).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weather, leeds!", ("weather", "leeds")),
        ("don't", ("dont",)),
        ("北京天气", ("北京", "京天", "天气")),
        ("天", ("天",)),
        ("iphone手机壳", ("iphone", "手机", "机壳")),
        ("東京タワー 2026", ("東京", "京タ", "タワ", "ワー", "2026")),
        ("สวัสดี", ("สว", "วั", "ัส", "สด", "ดี")),
        ("हिन्दी समाचार", ("हिन्दी", "समाचार")),
        ("날씨 서울", ("날씨", "서울")),
        ("🐶🐱 food", ("🐶", "🐱", "food")),
        ("???", ("???",)),
        ("", ()),
    ],
)
def test_words_in_any_script(text, expected):
    assert tokens(key_of(fold(text))) == expected


def test_ngrams_ignore_the_order_of_words_and_count_once():
    one, other = (set(grams([key])[0].tolist()) for key in ("weather leeds", "leeds weather leeds"))
    assert one == other
    codes, owners = grams(["aaaa", "aaaa b"])
    assert len(set(zip(codes.tolist(), owners.tolist(), strict=True))) == len(codes)
    assert np.all(np.diff(codes) >= 0)


def test_ngrams_of_unspaced_script_are_pairs_anywhere_in_a_sentence():
    inside, whole = (set(grams([key])[0].tolist()) for key in ("天气", "北京天气预报"))
    assert inside
    assert inside < whole
    assert len(grams(["天"])[0]) == 1
    assert len(grams([])[0]) == len(grams([""])[0]) == 0


def test_digits_make_another_thing():
    assert has_digits_changed("iphone 14", "iphone 15")
    assert not has_digits_changed("ihpone 14", "iphone 14")


@cache
def slow(one, other):
    """The definition, without a thought for speed: optimal string alignment."""
    if not one or not other:
        return len(one) + len(other)
    found = min(
        slow(one[:-1], other) + 1, slow(one, other[:-1]) + 1, slow(one[:-1], other[:-1]) + (one[-1] != other[-1])
    )
    if len(one) > 1 and len(other) > 1 and one[-1] == other[-2] and one[-2] == other[-1]:
        found = min(found, slow(one[:-2], other[:-2]) + 1)
    return found


# Few letters, so that mistakes of every kind come together.
words = st.text(alphabet="abc", max_size=9)


@given(words, words, st.integers(0, 9))
def test_mistakes_are_those_of_the_definition(one, other, limit):
    exact = slow(one, other)
    assert edits(one, other, limit) == (exact if exact <= limit else None)


@given(words, st.data())
def test_an_exchange_is_one_mistake(word, data):
    if len(word) > 1:
        at = data.draw(st.integers(0, len(word) - 2))
        exchanged = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        assert edits(word, exchanged, 1) == (word != exchanged)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("ca", "abc", 3), ("weather", "waether", 1), ("", "", 0), ("", "ab", 2), ("ab", "ba", 1)],
)
def test_known_distances(one, other, expected):
    assert edits(one, other, 5) == edits(other, one, 5) == expected


def test_long_texts_far_apart_are_given_up_at_once():
    assert edits("a" * 100_000, "b" * 100_000, 3) is None
    assert edits("a" * 100_000, "a" * 99_998, 3) == 2


def test_longer_texts_may_have_more_mistakes():
    allowed = [allowed_edits("x" * length) for length in range(30)]
    assert allowed == sorted(allowed)
    assert allowed[2] == 0
    assert max(allowed) == 3
