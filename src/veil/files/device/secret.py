"""The file of the client's secret, on which every memoized release depends: made once, private, never replaced in silence."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.errors import FileFormatError, InputError, ReleaseRefused, Remedy
from veil.files.atomic import PART, clear_leftovers, writing
from veil.files.device.home import require_own
from veil.files.device.ledger import LEDGER, released_under
from veil.randomness import KEY_BYTES, Secret

SECRET = "secret"


@dataclass(frozen=True, kw_only=True)
class MadeUnder:
    """Something that was made under a client's secret: `what` it is, for messages, and the secret's `Secret.fingerprint`.

    `fingerprint` is None where something else compares it: then any existing secret fits.
    """

    what: str
    fingerprint: str | None


def load_secret(
    folder: Path,
    *,
    needed_by: Sequence[MadeUnder] = (),
    on_new: Callable[[str], None] | None = None,
    replace_lost: bool = False,
) -> Secret:
    """The client's secret in `folder`, made on first use and readable by its owner only.

    - `needed_by`: things that were made under the secret, beside the releases of the ledger in `folder`.
    - `on_new`: called with a sentence for the user when a secret is made.
    - `replace_lost`: makes a new secret although the old one is needed, and accepts one that does not fit.

    A needed secret that is missing is not replaced by itself: under a new one the same photographs would be released a second
    time, and no template would be recognized. Raises ReleaseRefused in this case, for a secret under which the needed things
    were not made, and if there is no randomness to make one; FileFormatError if the secret is damaged, or if others own it or
    could have read or replaced it; InputError if `folder` cannot hold one.
    """
    path, ledger = folder / SECRET, folder / LEDGER
    lost = not os.path.lexists(path) and ledger.exists()
    known = (
        [MadeUnder(what=f"what {ledger} lists", fingerprint=fingerprint) for fingerprint in released_under(ledger)]
        if lost
        else []
    )
    return read_or_make(path, needed_by=[*known, *needed_by], on_new=on_new, replace_lost=replace_lost)


def read_or_make(
    path: Path, *, needed_by: Sequence[MadeUnder], on_new: Callable[[str], None] | None = None, replace_lost: bool = False
) -> Secret:
    """The secret in the file `path`, made on first use; `load_secret` documents arguments and errors."""
    with writing(path):
        clear_leftovers(path.parent, name=path.name)
        if not os.path.lexists(path):
            if not replace_lost:
                _require_nothing_lost(path, needed_by)
            secret = Secret.generate()
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                _create(path, secret.key)
            except FileExistsError:  # another process was first
                return _read(path)
            if on_new is not None:
                on_new(_made(path, secret))
            return secret
    secret = _read(path)
    for other in () if replace_lost else needed_by:
        if other.fingerprint not in (None, secret.fingerprint):
            raise ReleaseRefused(
                f"{other.what} was made under the client secret {other.fingerprint}, but {path} holds {secret.fingerprint}; "
                "restore the right one from a backup, or from the device that has it"
            )
    return secret


def _require_nothing_lost(path: Path, made: Sequence[MadeUnder]) -> None:
    """Raise ReleaseRefused if anything was made under the missing secret."""
    if not made:
        return
    named = ", ".join(f"{item.what} ({item.fingerprint or 'fingerprint not kept'})" for item in made[:3])
    raise ReleaseRefused(
        f"the client secret {path} is gone, and under it was made: {named}. A new one would draw every release anew: the same "
        "photograph, released again, gives its descriptors and positions away, and templates are not recognized. Only a backup "
        "brings it back",
        remedy=(Remedy("restore", "client secret"), Remedy("allow", "Device.replace_lost")),
    )


def _made(path: Path, secret: Secret) -> str:
    """The note for the user about a new secret."""
    return (
        f"note: a new client secret was made: {path} ({secret.fingerprint}). Keep it, and a copy of it: it repeats your "
        "releases. What was released under another one must not be released again under this one"
    )


def _create(path: Path, key: bytes) -> None:
    """Create the file, whole or not at all: a kill must not leave half a secret. Raises FileExistsError if it exists."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)  # readable by the owner only
    try:
        _write(handle, key)
        try:
            os.link(name, path)
        except FileExistsError:
            raise
        except OSError:  # no hard links here; then a kill may leave an empty file, which is refused
            _write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), key)
    finally:
        os.unlink(name)


def _write(handle: int, key: bytes) -> None:
    with os.fdopen(handle, "wb") as stream:
        stream.write(key)
        stream.flush()
        os.fsync(stream.fileno())


def _read(path: Path) -> Secret:
    """The secret of an existing file. Raises FileFormatError if it is damaged, or others own it or could have read it."""
    try:
        for _ in range(50):  # without hard links another process may be between creating and writing the file
            with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
                facts, key = os.fstat(stream.fileno()), stream.read(KEY_BYTES + 1)
            if key:
                break
            time.sleep(0.02)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        if len(key) == KEY_BYTES and not any(key):
            raise InputError("it holds zeros only, as a crash of the file system leaves them")
        secret = Secret(key)
    except InputError as error:
        raise FileFormatError(f"{path}: {error}; restore it from a backup, or start over with a new VEIL_HOME") from None
    require_own(path, facts)
    return secret
