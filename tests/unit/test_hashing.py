"""Hashes of ids: equal for equal ids and no others, however the arrays are cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels import hashing, native
from embertide.kernels.hashing import (
    hash_integers,
    hash_strings,
    mix,
    random_words,
    unhash_integers,
)

INTEGERS = [16294208416658607535, 10451216379200822465, 1635312068028924514]
STRINGS = [
    (16294208416658607535, 3246858695411730098),
    (6774081908283191102, 15034767603879408131),
    (14360971431600744186, 1833971736897262950),
    (9501447833425779875, 17971267297666064827),
    (7245347390365026150, 15546733296654232208),
]
WORDS = st.lists(st.text(max_size=20) | st.sampled_from(["", "a", "a\0", "a\0\0", "é", "12345678"]))


@pytest.fixture(params=["native", "fallback"], autouse=True, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native" and native.lib is None:
        pytest.skip(native.describe())
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "fallback":
            patch.setattr(native, "lib", None)
        yield


def hashes(words: list[str], kind: pa.DataType | None = None) -> list[tuple[int, ...]]:
    found = hash_strings(pa.array(words, kind or pa.large_string()))
    return [tuple(pair) for pair in found.tolist()]


@given(WORDS)
def test_strings_are_equal_iff_their_hashes_are(words: list[str]) -> None:
    found = hashes(words)
    assert len(set(found)) == len(set(words))
    assert dict(zip(words, found, strict=True)) == {w: hashes([w])[0] for w in words}


@given(WORDS, st.data())
def test_a_slice_of_an_array_hashes_alike(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words)))
    array = pa.array(words, pa.large_string())[start:]
    assert [tuple(pair) for pair in hash_strings(array).tolist()] == hashes(words)[start:]


def test_prefixes_and_zero_bytes_differ() -> None:
    text = "x" * 40
    words = [text[:length] for length in range(41)] + ["a", "a\0", "a\0\0", "\0", "\0\0"]
    assert len(set(hashes(words))) == len(words)


def test_batches_and_types_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [str(n) * (n % 7) + "ü" for n in range(200)]
    whole = hashes(words)
    assert hashes(words, pa.string()) == whole
    monkeypatch.setattr(hashing, "_BATCH_BYTES", 16)
    assert hashes(words) == whole


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_integers_never_collide_and_can_be_had_back(ids: list[int]) -> None:
    words = hash_integers(np.array(ids, np.int64))
    assert len(set(words.tolist())) == len(ids)
    assert unhash_integers(words).tolist() == ids


def test_hashes_are_those_of_earlier_versions() -> None:
    """Samples are drawn by them: other hashes are other embeddings."""
    assert hash_integers(np.array([0, 1, -5])).tolist() == INTEGERS
    assert hashes(["", "a", "ünïcode", "12345678", "x" * 1000]) == STRINGS


def test_random_words_depend_on_everything() -> None:
    keys = np.arange(5, dtype=np.uint64)
    draws = [
        random_words(seed, layer, keys, counter).tolist()
        for seed in (0, 1, 2**63)
        for layer in (0, 1)
        for counter in (0, 1)
    ]
    assert len({word for words in draws for word in words}) == 12 * 5
    # A key's words do not depend on what else is in the array.
    assert random_words(0, 0, keys[3:], 0).tolist() == draws[0][3:]


def test_mix_spreads_neighbours_over_all_bits() -> None:
    words = mix(np.arange(1 << 14, dtype=np.uint64))
    ones = [float((words >> np.uint64(bit) & np.uint64(1)).mean()) for bit in range(64)]
    # 16384 fair coins: six standard deviations are 0.024.
    assert max(abs(share - 0.5) for share in ones) < 0.024
