"""Every error that veil raises on purpose; each message says what was wrong and what to do about it."""

from __future__ import annotations


class VeilError(Exception):
    """Any failure that veil foresees; the command line prints it without a traceback."""


class InputError(VeilError, ValueError):
    """What came in cannot be used: empty, NaN, of the wrong size, or without something that is needed."""


class NoFace(InputError):
    """A photograph shows no face that can be used, or several where there may be one: no fault, and an answer of its own."""


class RangeError(InputError):
    """A parameter lies outside the range in which its definition holds."""


class SpaceError(InputError):
    """Two things were to be compared whose descriptors do not live in the same space."""


class WireError(VeilError):
    """A message is truncated, damaged, hostile, or of a version that this veil does not read."""


class FileFormatError(VeilError):
    """A file is not what its name or place promises."""


class ReleaseRefused(VeilError):
    """Releasing would break a promise made to the user, for example a second draw for one image."""


class VeilWarning(VeilError, UserWarning):
    """The answer is right, and something about how it came about should be known; the command line prints it as a note."""
