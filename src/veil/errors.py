"""Errors that veil raises on purpose; each message says what was wrong and what to do about it."""

from __future__ import annotations


class VeilError(Exception):
    """Base of all failures that veil foresees; the command line prints them without a traceback."""


class InputError(VeilError, ValueError):
    """An input cannot be used: it is empty, NaN, of the wrong size, or lacks something that is needed."""


class NoFace(InputError):
    """A photograph shows no usable face, or several where one is asked for; this is an answer by itself, not a fault."""


class RangeError(InputError):
    """A parameter lies outside the range in which its definition holds."""


class SpaceError(InputError):
    """Descriptors of different spaces, or words of different dictionaries, were to be compared."""


class WireError(VeilError):
    """A message is truncated, damaged, hostile, or of a version that this veil does not read."""


class FileFormatError(VeilError):
    """A file is not what its name or place promises."""


class ReleaseRefused(VeilError):
    """Releasing would break a promise made to the user, for example a second draw for one image."""


class VeilWarning(VeilError, UserWarning):
    """A warning beside a right answer, about how it came about; the command line prints it as a note."""
