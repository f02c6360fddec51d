"""The reference's CSV files: what its tools wrote comes out byte for byte, and broken files are refused in words."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, HushqueryError, Unavailable
from hushquery.local.rappor.files import (
    encode_rows,
    hash_candidates,
    read_counts,
    read_lines,
    read_map,
    read_params,
    read_values,
    sum_bits,
    write_counts,
    write_map,
    write_reports,
)
from hushquery.local.rappor.response import Encoder, Params, Variant
from hushquery.noise.sampler import SystemBits

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "rappor.json").read_text(encoding="utf-8"))
TINY = Params(4, 2, 2, 0.25, 0.75, 0.5)


class LinearCongruence:
    """The generator of the reference vectors: a byte per coin."""

    secret = False

    def __init__(self, seed: int) -> None:
        self._x = seed

    def words(self, n: int) -> Any:
        out = []
        for _ in range(n):
            self._x = (1103515245 * self._x + 12345) % 2**31
            out.append((self._x >> 16 & 255) << 56)
        return np.array(out, dtype=np.uint64)


def written(write: Callable[..., object], *arguments: object) -> str:
    out = io.StringIO(newline="")
    write(*arguments, out)
    return out.getvalue()


def opened(text: str) -> io.StringIO:
    return io.StringIO(text, newline="")


# ---- byte for byte -------------------------------------------------------------------------------------------------


def test_a_whole_simulation_of_the_reference_byte_for_byte() -> None:
    [case] = VECTORS["end_to_end"]["cases"]
    params = Params(**case["params"])
    rows = list(
        encode_rows(
            params,
            read_values(opened(case["true_values_csv"]), params),
            lambda client: Encoder(params, client.encode(), Variant.GOOGLE_PYTHON),
            LinearCongruence(case["lcg_seed"]),
        )
    )
    assert written(write_reports, rows) == case["reports_csv"]
    assert written(write_counts, sum_bits(opened(case["reports_csv"]), params)) == case["counts_csv"]


@pytest.mark.parametrize("case", VECTORS["map_csv"])
def test_maps_of_the_reference_byte_for_byte(case: dict[str, Any]) -> None:
    params = Params(**case["params"])
    strings = read_lines(opened("".join(f" {string}\r\n" for string in case["candidates"])))
    assert written(write_map, hash_candidates(params, strings)) == case["csv"]
    found = read_map(opened(case["csv"]), params)
    assert list(found.strings) == case["candidates"]


def test_a_file_without_its_steps_counts_the_same() -> None:
    hidden = "client,cohort,bloom,prr,irr\n" + "".join(
        f"c{i},{i % 2},,,{bits}\n" for i, bits in enumerate(["0011"] * 5)
    )
    assert sum_bits(opened(hidden), TINY).tolist() == [[3, 3, 3, 0, 0], [2, 2, 2, 0, 0]]
    rows = list(encode_rows(TINY, [("c1", 0, "v")], lambda _: Encoder(TINY, bytes(16)), SystemBits(), hide_steps=True))
    assert rows[0][:4] == ("c1", "0", "", "")
    assert set(rows[0][4]) <= {"0", "1"}


def test_counting_does_not_depend_on_how_the_file_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    [case] = VECTORS["end_to_end"]["cases"]
    params = Params(**case["params"])
    whole = sum_bits(opened(case["reports_csv"]), params)
    monkeypatch.setattr("hushquery.local.rappor.files._CHUNK", 7)
    assert np.array_equal(sum_bits(opened(case["reports_csv"]), params), whole)


@given(
    st.integers(1, 99),
    st.integers(1, 16),
    st.integers(1, 99),
    st.decimals(0, "0.49", places=4),
    st.decimals("0.5", 1, places=4),
    st.decimals(0, 1, places=4),
)
def test_params_round_trip(k: int, h: int, m: int, p: object, q: object, f: object) -> None:
    params = Params(k, h, m, p, q, f)
    assert read_params(opened(f"k,h,m,p,q,f\n{k},{h},{m},{p:f},{q:f},{f:f}\n")) == params


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=2, max_size=2))
def test_counts_round_trip(bits: list[list[int]]) -> None:
    counts = np.array([[5, *row] for row in bits])
    assert np.array_equal(read_counts(opened(written(write_counts, counts)), TINY), counts)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=4))
def test_maps_of_any_strings_round_trip(strings: list[str]) -> None:
    found = read_map(opened(written(write_map, hash_candidates(TINY, strings))), TINY)
    assert list(found.strings) == list(dict.fromkeys(string or "Empty" for string in strings))


def test_old_maps_may_have_empty_cells_and_repeated_strings() -> None:
    found = read_map(opened("a,1,,5,5\n,2,3,6,7\na,4,4,8,8\n"), TINY)
    assert found.strings == ("a", "Empty")
    assert [bits.tolist() for bits in found.bits] == [[0, 4], [1, 2, 5, 6]]


# ---- broken files --------------------------------------------------------------------------------------------------

GOOD = "k,h,m,p,q,f\n4,2,2,.25,.75,.5\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1"),
        ("k, h, m, p, q, f\n4,2,2,.25,.75,.5\n", "without blanks"),
        ("k,h,m,q,p,f\n4,2,2,.75,.25,.5\n", "header"),
        ("k,h,m,p,q,f\n", "exactly one row"),
        (GOOD + "4,2,2,.25,.75,.5\n", "line 3.*exactly one row"),
        ("k,h,m,p,q,f\n4,2,2,.25,.75\n", "six columns"),
        ("k,h,m,p,q,f\n4,2,2, .25,.75,.5\n", "plain numbers"),
        ("k,h,m,p,q,f\n4,2,2,.25,nan,.5\n", "plain numbers"),
        ("k,h,m,p,q,f\n4.0,2,2,.25,.75,.5\n", "whole number"),
        ("k,h,m,p,q,f\n-4,2,2,.25,.75,.5\n", "whole number"),
        ("k,h,m,p,q,f\n4,2,2,.75,.25,.5\n", "below"),
        ("k,h,m,p,q,f\n99999999,2,2,.25,.75,.5\n", "whole number"),
        ('k,h,m,p,q,f\n"4,2\n', "no CSV"),
    ],
)
def test_broken_params(text: str, says: str) -> None:
    with pytest.raises(HushqueryError, match=says):
        read_params(opened(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 rows"),
        ("5,1,1,1,1\n", "1 rows"),
        ("5,1,1,1,1\n" * 3, "3 rows"),
        ("5,1,1,1\n" * 2, "columns"),
        ("5,1,1,1,-1\n" * 2, "whole number"),
        ("5,1,1,1,1.5\n" * 2, "whole number"),
        ("5,1,1,1,6\n" * 2, "more often"),
        ("5, 1,1,1,1\n" * 2, "whole number"),
        ("5,1,1,1,9999999999999999999999\n" * 2, "whole number"),
        ("５,1,1,1,1\n" * 2, "whole number"),
    ],
)
def test_broken_counts(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_counts(opened(text), TINY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no candidate"),
        ("hidden,1,2,5\n", "columns"),
        ("hidden,0,2,5,6\n", "outside"),
        ("hidden,1,2,5,9\n", "outside"),
        ("hidden,,,,\n", "outside"),
        ("hidden,5,2,1,6\n", "another cohort"),
        ("hidden,x,2,5,6\n", "whole number"),
    ],
)
def test_broken_maps(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_map(opened(text), TINY)


HEAD = "client,cohort,bloom,prr,irr\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "header"),
        ("client,cohort,irr\n", "header"),
        (HEAD + "hidden,0,0011,0011\n", "line 2.*5 columns"),
        (HEAD + "hidden,2,0011,0011,0011\n", "line 2.*out of range"),
        (HEAD + "hidden,-1,0011,0011,0011\n", "whole number"),
        (HEAD + "hidden,0,0011,0011,001\n", "k = 4 bits"),
        (HEAD + "hidden,0,0011,0011,00é1\n", "k = 4 bits"),
        (HEAD + "a,0,,,0011\nhidden,0,,,0021\n", "line 3.*neither 0 nor 1"),
        (HEAD + "hidden,0,,,001/\n", "neither 0 nor 1"),
    ],
)
def test_broken_reports(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        sum_bits(opened(text), TINY)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client,cohort\n", "header"),
        ("client, cohort, value\n", "header"),
        ("client,cohort,value\nhidden,0\n", "line 2.*3 columns"),
        ("client,cohort,value\nhidden,2,hidden\n", "line 2.*out of range"),
        ("client,cohort,value\nhidden,1,hidden\nhidden,one,hidden\n", "line 3.*whole number"),
    ],
)
def test_broken_values_never_show_themselves(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        list(read_values(opened(text), TINY))
    assert "hidden" not in str(caught.value)


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="can't be read"):
        read_params(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_bytes(b"k,h,m,p,q,f\n\xff\xfe\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_params(tmp_path / "bad.csv")


@given(st.text(alphabet='0123456789,."\n\r -akhmpqf', max_size=80))
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (
        lambda: read_params(opened(GOOD + text)),
        lambda: read_counts(opened(text), TINY),
        lambda: read_map(opened(text), TINY),
        lambda: sum_bits(opened(HEAD + text), TINY),
    ):
        with suppress(HushqueryError):
            read()
