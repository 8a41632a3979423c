"""Reading ahead and writing behind: the order, what is in flight, errors, and that threads end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from embertide.errors import StorageError
from embertide.kernels.disk_threads import DiskThreads
from tests.support.patience import WAIT_SECONDS

MESSAGE = "the disk is broken"


class Part:
    """Some values, of which it is seen whether anything refers to them."""

    def __init__(self, number: int) -> None:
        self.number = number


def fail(*_values: object) -> Part:
    raise StorageError(MESSAGE)


def threads() -> list[str]:
    """The disk's threads that there are."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("scratch-")]


def wait(event: threading.Event) -> None:
    assert event.wait(WAIT_SECONDS)


def test_parts_come_in_order_and_are_written_in_order() -> None:
    written: list[int] = []
    with DiskThreads() as disk:
        for part in disk.ahead(partial(Part, number) for number in range(50)):
            disk.write(lambda of: written.append(of.number), part)
    assert written == list(range(50))
    assert not threads()


def test_the_next_part_is_read_while_one_is_used_and_none_after_it() -> None:
    begun = [threading.Event() for _ in range(4)]

    def read(number: int) -> int:
        begun[number].set()
        return number

    with DiskThreads() as disk:
        parts = disk.ahead(partial(read, number) for number in range(4))
        assert next(parts) == 0
        wait(begun[1])
        assert not begun[2].wait(0.05)
        assert list(parts) == [1, 2, 3]


def test_one_write_goes_on_beside_the_caller() -> None:
    begun, over = threading.Event(), threading.Event()

    def write(_values: object) -> None:
        begun.set()
        wait(over)

    with DiskThreads() as disk:
        disk.write(write, None)
        wait(begun)
        second = threading.Thread(target=disk.write, args=(lambda _values: None, None))
        second.start()
        second.join(0.05)
        assert second.is_alive(), "two writes are in flight"
        over.set()
        second.join(WAIT_SECONDS)
        assert not second.is_alive()


def test_what_is_written_is_gone_as_the_write_ends() -> None:
    """Before the read that waits for it, which takes its memory."""
    gone: list[bool] = []
    left = threading.Event()

    def write(part: Part) -> None:
        wait(left)
        seen = weakref.ref(part)
        del part
        gone.append(seen() is None)

    with DiskThreads() as disk:
        disk.write(write, Part(0))
        left.set()
    assert gone == [True]


@pytest.mark.parametrize("which", ["first read", "later read", "write", "last write"])
def test_an_error_of_a_thread_is_the_callers_and_no_thread_stays(which: str) -> None:
    reads: list[Callable[[], Part]] = [partial(Part, number) for number in range(5)]
    bad = {"first read": 0, "later read": 3}.get(which)
    if bad is not None:
        reads[bad] = fail
    last = {"write": 2, "last write": 4}.get(which)

    def go_over() -> None:
        with DiskThreads() as disk:
            for number, part in enumerate(disk.ahead(reads, after_writes=True)):
                disk.write(fail if number == last else lambda _values: None, part)

    with pytest.raises(StorageError, match=MESSAGE):
        go_over()
    assert not threads()


def test_an_error_of_the_caller_comes_before_those_of_threads() -> None:
    def go_over() -> None:
        with DiskThreads() as disk:
            parts = disk.ahead([partial(Part, 0), fail, fail])
            disk.write(fail, next(parts))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        go_over()
    assert not threads()
