"""A disk that is full gets back what can be missed, and is then tried again."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

FULL = (errno.ENOSPC, errno.EDQUOT)
"""No room on the disk, or within the user's quota."""
_Result = TypeVar("_Result")


class FullDisk:
    """What a store of files does where a disk takes no more; several threads use it."""

    def __init__(self) -> None:
        self._give_back: Callable[[], object] | None = None
        self._giving, self._given = threading.Lock(), 0

    @contextmanager
    def making_room(self, give_back: Callable[[], object]) -> Iterator[None]:
        """While the block runs, room is made by ``give_back``."""
        before, self._give_back = self._give_back, give_back
        try:
            yield
        finally:
            self._give_back = before

    def tried(self, change: Callable[[], _Result]) -> _Result:
        """What a change of a file gives, which does all or nothing; where there is no room for it,
        that of a second try after some was made.

        Raises:
            OSError: of the second try, or one that is not about room.
        """
        given = self._given
        try:
            return change()
        except OSError as error:
            if error.errno not in FULL or self._give_back is None:
                raise
            with self._giving:
                # What another thread has made room for meanwhile is room for us, too.
                if self._given == given:
                    self._give_back()
                    self._given += 1
        return change()
