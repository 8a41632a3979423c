"""Files that are read by ranges: what is read, and what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from embertide.io.storage.protocol import Span
from embertide.io.storage.s3_streams import RangedFile

BLOCK = 16
DATA = bytes(range(256)) * 2


class Store:
    """An object that notes which of its bytes were asked for."""

    def __init__(self) -> None:
        self.asked: list[Span] = []

    def fetch(self, start: int, length: int) -> bytes:
        self.asked.append((start, start + length))
        return DATA[start : start + length]

    def file(self, spans: Sequence[Span] = ()) -> RangedFile:
        return RangedFile(self.fetch, len(DATA), AtOnce(), BLOCK, spans)


class AtOnce(Executor):
    """Answers before anybody can change their mind."""

    def submit(self, act: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(act(*args, **kwargs))
        return done


@st.composite
def spans_of(draw: st.DrawFn) -> list[Span]:
    """Some ranges, ascending and apart or touching; the last may end behind the object."""
    cuts = sorted(draw(st.sets(st.integers(0, len(DATA) + 9), max_size=6)))
    return list(zip(cuts[::2], cuts[1::2], strict=False))


READS = st.lists(st.tuples(st.integers(0, len(DATA) + 5), st.integers(0, 90)), max_size=12)


@given(spans=spans_of(), reads=READS)
def test_any_bytes_can_be_read_whatever_is_expected(spans: list[Span], reads: list[Span]) -> None:
    with Store().file(spans) as file:
        for position, length in reads:
            file.seek(position)
            assert file.read(length) == DATA[position : position + length]


@given(spans=spans_of(), piece=st.integers(1, 3 * BLOCK))
def test_of_spans_that_are_read_in_order_each_byte_is_asked_for_once(
    spans: list[Span], piece: int
) -> None:
    store = Store()
    with store.file(spans) as file:
        for first, last in spans:
            file.seek(first)
            while rest := max(0, last - file.tell()):
                if not file.read(min(piece, rest)):
                    break
    wanted = [byte for first, last in spans for byte in range(first, min(last, len(DATA)))]
    assert sorted(byte for span in store.asked for byte in range(*span)) == wanted
    assert max((last - first for first, last in store.asked), default=0) <= BLOCK


def test_what_follows_is_asked_for_before_it_is_read_but_nothing_behind_a_span() -> None:
    store, span = Store(), (5, 5 + 4 * BLOCK + 3)
    with store.file([span]) as file:
        file.seek(5)
        file.read(1)
        assert store.asked == [(5, 5 + BLOCK)]
        file.read(BLOCK)
        file.read(BLOCK)
        assert file.tell() < 5 + 3 * BLOCK
        file.read(1)
    ends = sorted(last for _, last in store.asked)
    assert ends == [5 + BLOCK * number for number in range(1, 5)] + [span[1]]


def test_without_spans_all_of_an_object_is_expected() -> None:
    store = Store()
    with store.file() as file:
        while file.read(BLOCK // 2):
            assert len(file._blocks) <= 6
    assert sorted(store.asked) == [(at, at + BLOCK) for at in range(0, len(DATA), BLOCK)]
