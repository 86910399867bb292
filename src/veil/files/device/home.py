"""The folder of the secret and the ledger, and checks that private files still belong to their owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs

from veil.errors import FileFormatError


def home() -> Path:
    """The folder of the secret and the ledger: $VEIL_HOME, or the platform's folder for application data."""
    named = os.environ.get("VEIL_HOME")
    return Path(named) if named else Path(platformdirs.user_data_dir("veil", appauthor=False))


def require_own(path: Path, facts: os.stat_result, *, private: bool = True) -> None:
    """Raise FileFormatError if another user owns a file or, with `private`, if others can read or write it.

    `facts` are those of the opened file, or of `path` with symbolic links followed: the link's target counts, not the link.
    Raises FileFormatError also where it is no regular file.
    """
    if not stat.S_ISREG(facts.st_mode):
        raise FileFormatError(f"{path} is no file; choose another place or free it")
    if os.name != "posix":
        return  # access lists are not modes
    if facts.st_uid != os.geteuid():
        raise FileFormatError(
            f"{path} belongs to user {facts.st_uid}, not to you ({os.geteuid()}): whoever owns it can read and replace it; "
            "restore your own file, or choose another VEIL_HOME"
        )
    mode = stat.S_IMODE(facts.st_mode)
    if private and mode & 0o077:
        raise FileFormatError(
            f"{path} has mode {mode:04o}: others could have read or replaced it. If nobody did, run: chmod 600 {path}; "
            "if somebody may have, restore it from a backup"
        )


def make_private(path: Path) -> None:
    """Set mode 0600 where others have rights to a file of one's own. Raises OSError."""
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        path.chmod(0o600)
