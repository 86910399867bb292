"""Open connections by who holds them: where there are too many, whoever has most loses one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

# Whoever came just now has this time to say who it is, while there is room to spare.
GRACE_S = 1.0


@runtime_checkable
class Loser(Protocol):
    """A connection that can be taken from its holder."""

    @property
    def is_asked(self) -> bool:
        """Whether a whole request waits for its answer; if not, its client has to send a head or a body."""

    @property
    def since(self) -> float:
        """When it, its last request or the wait for another one began, by the clock of `ConnectionPool.add`."""

    def lose(self) -> None:
        """End the connection."""


class ConnectionPool:
    """Connections by holder.

    - `most`: connections; beyond it, the holder of most loses one for each that comes, so that another one always has room.
    - `spare`: more, for those that are younger than `GRACE_S`.
    """

    def __init__(self, most: int, *, spare: int) -> None:
        self._most, self._spare = most, spare
        self._of: dict[str, dict[Loser, None]] = {}
        self._holders: dict[Loser, str] = {}

    def add(self, holder: str, connection: Loser, now: float) -> None:
        """Have a connection count for this holder alone, and take one from whoever has most if there is no room."""
        if self._holders.get(connection) == holder:
            return
        self.remove(connection)
        self._holders[connection] = holder
        self._of.setdefault(holder, {})[connection] = None
        while len(self._holders) > self._most:
            loser = self._loser(now)
            if now - loser.since < GRACE_S and len(self._holders) <= self._most + self._spare:
                return
            self.remove(loser)
            loser.lose()

    def remove(self, connection: Loser) -> None:
        """Forget a connection, if it is here."""
        holder = self._holders.pop(connection, None)
        if holder is not None:
            del self._of[holder][connection]
            if not self._of[holder]:
                del self._of[holder]

    def count(self, holder: str) -> int:
        """Connections of a holder."""
        return len(self._of.get(holder, {}))

    def _loser(self, now: float) -> Loser:
        """The connection that goes: of whoever has most (the longest), the oldest that waits for its client, if one does."""
        most = max(len(found) for found in self._of.values())
        holders = [found for found in self._of.values() if len(found) == most]
        loses = min(holders, key=lambda found: min(connection.since for connection in found))
        return min(loses, key=lambda found: (now - found.since < GRACE_S, found.is_asked, found.since))
