"""Reading ahead: the next batch is fetched and decoded while this one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterable[T], depth: int = 1) -> Iterator[T]:
    """Yield ``items`` in order from a thread that is at most ``depth`` items ahead.

    An error in the source is raised here, in its place. Closing the iterator ends the thread.
    """
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(entry: tuple[bool, T | BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
        except BaseException as error:
            put((False, error))
        else:
            put((False, None))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            more, item = ready.get()
            if more:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return
    finally:
        stopped.set()
        thread.join()
