"""The client's secret and ledger, as commands open them: whoever makes a new one is told."""

from __future__ import annotations

from veil.cli.common import tell
from veil.files.client import Ledger, home, load_secret
from veil.randomness import Secret


def client_files(*, replace_lost: bool = False) -> tuple[Secret, Ledger]:
    """The secret and the ledger that fits it, for a release. Raises what `load_secret` and `Ledger` raise."""
    made: list[str] = []
    secret = load_secret(home(), on_new=made.append, replace_lost=replace_lost)
    ledger = Ledger(home())
    if made:
        tell(made[0])
    elif ledger.is_new:
        tell(f"note: a new ledger was made beside an older secret: {ledger.path}. It does not know what was released before")
    ledger.require_secret(secret, replace_lost=replace_lost)
    return secret, ledger
