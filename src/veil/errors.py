"""Errors that veil raises on purpose; each message says what was wrong and what to do about it."""

from __future__ import annotations

import math


class VeilError(Exception):
    """Root of all errors that veil raises on purpose; the command line prints them without a traceback."""


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
