"""Room on the disk of a server's folder: what is kept free for what must go on, and what is refused meanwhile.

- Contributions are refused, and jobs that add to maps wait, while less than `Room.floor` is free. What deletes may use it.
- Where others fill the disk nevertheless, the database writes into room of its own (`SqliteDatabase`), and a file, `reserve`,
  is given up for what needs more: the removal of a contribution, or the start of a server.

A file of its own: routes and jobs use the room, which the service makes for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from veil.errors import CannotWrite, NoRoom
from veil.files.service.reserve import LEAST, disk_of, held, hold, let_go

Result = TypeVar("Result")
RESERVE = "reserve"
# Parts of a disk that the reserve has, and that are kept free, and how much they are at most.
_RESERVE_PART, _MOST_RESERVE = 16, 32 << 20
_FLOOR_PART, _MOST_FLOOR = 10, 1 << 30
# Multiple of its length that a contribution needs: its message, its matches, and the map with it, once more while it is made.
TIMES = 4
REFUSED = "no room: contributions are refused, and jobs that add to maps wait, until there is more room on the disk"


class Room:
    """The room of a server's folder, which several servers may share.

    Attributes: `reserve`, the file that is given up, and `floor`, the bytes that are kept free.
    """

    def __init__(self, folder: Path) -> None:
        self.reserve = folder / RESERVE
        self._folder = folder
        self._lock = threading.Lock()
        self._promised = 0
        total = disk_of(folder).total
        self.floor = min(_MOST_FLOOR, total // _FLOOR_PART)
        self._size = min(_MOST_RESERVE, total // _RESERVE_PART)

    def free(self) -> int:
        """Bytes that are free."""
        return disk_of(self._folder).free

    def is_full(self) -> bool:
        """Whether nothing should be written that can wait."""
        return self.free() < LEAST

    def left(self) -> int:
        """Bytes that what adds to the store may use, after what was promised; none or fewer while contributions are refused."""
        return self.free() - self.floor - self._promised

    def keep(self) -> bool:
        """Make the reserve if it is missing and there is room for it; returns whether it was made."""
        if held(self.reserve) or self.free() < self._size + LEAST:
            return False
        try:
            hold(self.reserve, self._size)
        except CannotWrite:
            return False
        return True

    def acting(self, act: Callable[[], Result]) -> Result:
        """Result of `act`, which runs once more without the reserve if there is no room. Raises the errors of `act`."""
        try:
            return act()
        except NoRoom:
            if not let_go(self.reserve):
                raise
            return act()

    @contextmanager
    def taking(self, length: int, *, kept: int = 0) -> Iterator[None]:
        """A block that adds a message of a number of bytes to the store, of an owner whose messages have `kept` bytes in it.

        Raises NoRoom where it does not fit, or would leave less for all others than its owner has.
        """
        with self._lock:
            asked = TIMES * length
            if self.left() < asked + kept:
                raise NoRoom("the disk has no room for more contributions of this token; delete some, or try again later")
            self._promised += asked
        try:
            yield
        finally:
            with self._lock:
                self._promised -= asked
