"""Names in requests: ids and names of maps, and the nearest known name to one that somebody misspelled."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from veil.errors import InputError

# Ids of maps, as servers make them; no map has a name of this form, which would be taken for one.
MAP_ID = re.compile(r"m[0-9a-f]{16}")
# Largest number of characters of an unknown name that are shown, and of known names.
_SHOWN, _LISTED = 60, 40


@runtime_checkable
class HasName(Protocol):
    """A thing with an id, which is its own, and a name."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=HasName)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence about a name that is not known: the nearest one that is, or those that there are.

    `what` says of what it is a name, as "setting". What cannot be printed is escaped, as names come from others.
    """
    from difflib import get_close_matches

    names = sorted(set(known))
    near = get_close_matches(name[:_SHOWN].lower(), names, n=1, cutoff=0.6)
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    rest = f"did you mean {near[0]!r}?" if near else f"there are {listed}" if names else "there is none"
    return f"there is no {what} {name[:_SHOWN]!r}; {rest}"


def require_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise InputError, with the nearest name, if one of `names` is not among the known ones."""
    if problems := [unknown(what, str(name), known) for name in names if name not in known]:
        raise InputError("; ".join(problems[:3]))


def require_map_name(name: str) -> None:
    """Raise InputError for what cannot be the name of a map: without letters, hidden or turned around, or taken for an id."""
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise InputError("a map needs a printable name of 1 to 200 characters")
    if name != name.strip():
        raise InputError(f"the name {name!r} begins or ends with a blank, which nobody sees; leave it out")
    if MAP_ID.fullmatch(name):
        raise InputError(f"{name!r} is of the form of a map's id; give the map another name")


def chosen(items: Sequence[Named], text: str) -> Named:
    """The map of an id, or of a name that no other map has.

    Raises InputError for one that there is not, with the nearest name, and for a name of several, with their ids.
    """
    for item in items:
        if item.id == text:
            return item
    named = [item for item in items if item.name == text]
    if len(named) > 1:
        raise InputError(f"{len(named)} maps are called {text!r}; give the id of one: {', '.join(item.id for item in named)}")
    if not named:
        raise InputError(unknown("map", text, [item.name for item in items]))
    return named[0]
