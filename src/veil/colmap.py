"""COLMAP's Python module, `from veil.colmap import pycolmap`: signals reach whom they reached before, and its log is silent.

`import pycolmap` replaces the handlers of SIGTERM and of crashes, also those that Python has set and goes on to report. A
process that is told to end would then print a stack trace of C++ and abort, and nothing would be cleaned up or finished.
COLMAP's log tells of its steps on standard error. Whoever loaded it before, or set GLOG_minloglevel, has chosen what it tells.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["pycolmap"]

# Those that glog's InstallFailureSignalHandler takes, where the system has them.
_TAKEN = ("SIGSEGV", "SIGILL", "SIGFPE", "SIGABRT", "SIGBUS", "SIGTERM")
# Bytes that hold a `struct sigaction` of any system; it is kept and given back as it is.
_ACTION_BYTES = 512
_ERRORS = 2  # glog's severity of errors
_is_chosen = "pycolmap" in sys.modules or "GLOG_minloglevel" in os.environ


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """A block after which these signals have the handlers that they had before, of whichever library.

    Python's own `signal` knows its handlers only, and sets them in the main thread alone.
    """
    try:
        sigaction = ctypes.CDLL(None).sigaction
    except (OSError, AttributeError, TypeError):  # Windows has none, and pycolmap's handlers do not reach there
        yield
        return
    before = {}
    for number in (int(getattr(signal, name)) for name in _TAKEN if hasattr(signal, name)):
        before[number] = ctypes.create_string_buffer(_ACTION_BYTES)
        sigaction(number, None, before[number])
    yield
    for number, action in before.items():
        sigaction(number, action, None)


with _kept_handlers():
    import pycolmap

if not _is_chosen:
    pycolmap.logging.minloglevel = _ERRORS
