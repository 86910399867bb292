"""Errors that veil raises on purpose: the cause, the facts behind it, and the remedy as data."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from veil.one_line import one_line

Error = TypeVar("Error", bound="VeilError")
Action = Literal["give", "raise", "lower", "allow", "leave out", "make", "renew", "restore", "adopt", "see", "start", "install"]
_PHRASES: Mapping[Action, str] = {
    "give": "give {}",
    "raise": "give a larger {}",
    "lower": "give a smaller {}",
    "allow": "allow it with {}",
    "leave out": "leave out {}",
    "make": "make {}",
    "renew": "make {} again",
    "restore": "restore {}",
    "adopt": "adopt {}",
    "see": "see {}",
    "start": "start {}",
    "install": "install {}",
}


@dataclass(frozen=True)
class Remedy:
    """A thing that helps: an action and its object. `str` gives it as a phrase for whoever calls from Python.

    - `action`: one of `Action`. A parameter is given, raised, lowered or left out, or allows something. A thing is made, made
      again ("renew"), restored, adopted, started or looked at ("see"). A package is installed.
    - `object`: a parameter as `owner.name`, the owner being a class or function of veil ("localize.codebook"); else a thing
      ("index"), or the name of a package.
    - `value`: of the parameter or thing; empty where only the caller knows it.
    """

    action: Action
    object: str
    value: str = ""

    __repr__ = one_line

    def __str__(self) -> str:
        owner, _, name = self.object.rpartition(".")
        if owner:
            target = f"{owner}({name}={self.value or ('True' if self.action == 'allow' else '...')})"
        else:
            article = "" if self.action in ("give", "install") else "the "
            target = f"{article}{self.object} {self.value}".rstrip()
        return _PHRASES[self.action].format(target)

    def as_json(self) -> dict[str, str]:
        """The remedy as JSON values; `remedies_of` reads them."""
        return {"action": self.action, "object": self.object, "value": self.value}


# What turns a remedy into a phrase: `str` for callers from Python.
Say = Callable[[Remedy], str]


def remedies_of(value: Any) -> tuple[Remedy, ...]:
    """The remedies in JSON values of a server; those that this veil does not know are left out."""
    read = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict) and item.get("action") in get_args(Action) and isinstance(item.get("object"), str):
            read.append(Remedy(item["action"], item["object"], str(item.get("value", ""))))
    return tuple(read)


def told_as_json(remedy: tuple[Remedy, ...]) -> dict[str, list[dict[str, str]]]:
    """The member `remedy` of a JSON record; none where there is no remedy."""
    return {"remedy": [item.as_json() for item in remedy]} if remedy else {}


def sentence(cause: str, remedy: tuple[Remedy, ...], say: Say = str) -> str:
    """The cause and its remedies as one sentence; `say` turns a remedy into a phrase."""
    if not remedy:
        return cause
    *others, last = map(say, remedy)
    return f"{cause}; {', '.join(others)}, or {last}" if others else f"{cause}; {last}"


class VeilError(Exception):
    """Root of all errors that veil raises on purpose; the command line prints them without a traceback.

    - `cause`: a sentence about what is wrong.
    - `facts`: by name, numbers and names that the cause speaks of.
    - `remedy`: what helps, any one of them; empty where veil knows nothing. One remedy may be given without a tuple.

    `str` gives the cause and the remedies.
    """

    def __init__(
        self, cause: object = "", *, facts: Mapping[str, Any] | None = None, remedy: Remedy | tuple[Remedy, ...] = ()
    ) -> None:
        super().__init__(cause)
        self.cause = str(cause)
        self.facts: Mapping[str, Any] = MappingProxyType(dict(facts or {}))
        self.remedy = (remedy,) if isinstance(remedy, Remedy) else remedy

    def __str__(self) -> str:
        return sentence(self.cause, self.remedy)

    def __reduce__(self) -> Any:
        """How errors cross processes: without their constructors, which differ."""
        return _restored, (type(self), self.args, self.__dict__ | {"facts": dict(self.facts)})

    def at(self: Error, place: object) -> Error:
        """This error with the place (a file, a line, an image) before its cause; the same error if the cause names it."""
        if str(place) in self.cause:
            return self
        placed = copy.copy(self)
        placed.cause = f"{place}: {self.cause}"
        placed.args = (placed.cause,)
        return placed


def _restored(kind: type[VeilError], args: tuple[Any, ...], state: dict[str, Any]) -> VeilError:
    """The error with these values, made without its constructor."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state | {"facts": MappingProxyType(state["facts"])})
    return error


def portable(error: VeilError) -> VeilError:
    """The error if another process can read it, else one of its nearest kind here, with its cause and remedies.

    Its facts are kept too if they can be read there. An error cannot be read elsewhere if a function defines its class, or it
    holds what cannot be pickled, such as a lock.
    """
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == __name__)
    for candidate in (error, kind(error.cause, facts=error.facts, remedy=error.remedy)):
        try:
            pickle.loads(pickle.dumps(candidate))
        except Exception:  # whatever a part of an error raises
            continue
        return candidate
    return kind(error.cause, remedy=error.remedy)


class InputError(VeilError, ValueError):
    """An argument or input cannot be used: it is empty, NaN, of the wrong size, or lacks something that is needed."""


class CannotWrite(InputError):
    """A file cannot be written: the disk is full, or the place is not to be written to; nothing half-written is left."""


class NoRoom(CannotWrite):
    """The disk is full, or what is left of it is kept for other things."""


class NoFace(InputError):
    """A photograph shows no usable face, or several where only one is allowed; callers treat this as an answer, not a fault."""


class RangeError(InputError):
    """A parameter lies outside the range in which its definition holds."""


class SpaceError(InputError):
    """Descriptors of different spaces (`veil.space.Space`), or words of different dictionaries, were to be compared."""


class WireError(VeilError):
    """A message is truncated, damaged, hostile, or of a version that this veil does not read."""


class PirError(VeilError):
    """A query, an answer or a hint of private retrieval is truncated, damaged, of another database, or was used before."""


class FileFormatError(VeilError):
    """A file is missing, damaged, or not of the format that its name or place promises."""


class StorageTrouble(VeilError):
    """A server's storage cannot be read or written now; nothing was acknowledged that is not kept."""


class ReleaseRefused(VeilError):
    """A release would break a promise made to the user, for example by a second draw for one image; nothing was released."""


class EngineError(VeilError):
    """Tasks could not be run: workers ended or needed too much memory, a scheduler does not answer, or versions differ."""


class TaskError(EngineError):
    """A task raised an error, which is the cause of this one; the message names the task's item."""


class Cancelled(EngineError):
    """The tasks of an engine were cancelled by its `cancel`."""


class VeilWarning(VeilError, UserWarning):
    """A warning about how a correct answer was computed; the command line prints it as a note."""


def require_positive(record: object, *names: str) -> None:
    """Raise RangeError unless each field of `record` that is named is a positive, finite number."""
    for name in names:
        value = getattr(record, name)
        if not 0 < value < math.inf:  # also refuses NaN
            raise RangeError(f"{name} must be positive and finite, got {value!r}")
