"""Names of a server's maps: each is given once, and stands for the map that has it."""

from __future__ import annotations

from collections.abc import Sequence

from veil.errors import InputError
from veil.names import HasName, chosen, require_map_name
from veil.server.store.database import Statements


class NameTaken(InputError):
    """A name that another map of the server has."""


class UnknownMap(InputError):
    """An id or name that no map of the server has, or that several have."""


def require_free(found: Statements, name: str) -> None:
    """Raise InputError for what cannot be the name of a map, NameTaken for that of another one, within a transaction."""
    require_map_name(name)
    row = found.one("SELECT id FROM maps WHERE name = :name", name=name)
    if row is not None:
        raise NameTaken(f"the map {row['id']} is called {name!r} already; give this one another name, or use that one")


def map_ids(records: Sequence[HasName], names: Sequence[str]) -> list[str]:
    """Ids of maps that are given by id, or by a name that no other map has. Raises UnknownMap for others."""
    try:
        return [chosen(records, name).id for name in names]
    except InputError as error:
        raise UnknownMap(error.cause, remedy=error.remedy) from None
