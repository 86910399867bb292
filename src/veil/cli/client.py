"""The client's secret and ledger, as commands open them: whoever makes a new one is told."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from veil.chance import Secret
from veil.files.client import Ledger, home, load_secret
from veil.files.secret import MadeUnder


def client_secret(*, needed_by: Sequence[MadeUnder] = (), replace_lost: bool = False) -> Secret:
    """The client's secret; a line on standard error says so if it had to be made. Raises what `load_secret` raises."""
    return load_secret(home(), needed_by=needed_by, on_new=_tell, replace_lost=replace_lost)


def client_files(*, replace_lost: bool = False) -> tuple[Secret, Ledger]:
    """The secret and the ledger that fits it, for a release. Raises what `load_secret` and `Ledger` raise."""
    made: list[str] = []
    secret = load_secret(home(), on_new=made.append, replace_lost=replace_lost)
    ledger = Ledger(home())
    if made:
        _tell(made[0])
    elif ledger.is_new:
        _tell(f"note: a new ledger was made beside an older secret: {ledger.path}. It does not know what was released before")
    ledger.require_secret(secret, replace_lost=replace_lost)
    return secret, ledger


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
