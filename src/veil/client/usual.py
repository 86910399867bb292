"""What a client sends to a map where its user names no protection: the usual one for the purpose, if the map takes it.

What a server says of its map can make this protection stronger, never weaker: an obfuscation leaves for a query only where the
user asks for it by its name. A file of its own: what a server may ask for is read on one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.client.answers import RemoteMap
from veil.device.protection import EPSILON, OBFUSCATION, TILES, HideInWords, Protection, Purpose, usual_protection
from veil.errors import ReleaseRefused, Remedy
from veil.features import Features
from veil.mechanisms.release import HideInLines

WORDS = Remedy("give", "HideInWords")
LINES = Remedy("give", "Protection.lines")


def protection_for(
    remote: RemoteMap, purpose: Purpose, features: Features, gravity: Float64[np.ndarray, "3"] | None
) -> Protection:
    """The usual protection of a photograph for a map of a server, as its policy asks for it.

    Raises ReleaseRefused where the map does not take it, and what `usual_protection` raises.
    """
    policy = _policy(remote)
    forms = policy.get("forms")
    form = "words" if purpose == "localize" else "subspaces"
    if isinstance(forms, list) and form not in forms:
        if purpose == "localize":
            raise ReleaseRefused(
                f"the map {remote.name} answers no words, and subspaces are an obfuscation without proof: a query leaves so "
                "only where its user asks for them by name",
                remedy=OBFUSCATION,
            )
        raise ReleaseRefused(f"the map {remote.name} takes words alone, of a dictionary and an epsilon to name", remedy=WORDS)
    most = policy.get("max_epsilon")
    most_epsilon = float(most) if isinstance(most, int | float) and most >= 0 else EPSILON
    usual = usual_protection(purpose, features, gravity=gravity, most_epsilon=most_epsilon)
    if isinstance(usual.descriptors, HideInWords):
        if remote.facts.get("gravity") is False:
            raise ReleaseRefused(
                f"the map {remote.name} does not know gravity, and finds no usual words without it", remedy=(TILES, OBFUSCATION)
            )
        known = remote.facts.get("dictionaries")
        if isinstance(known, list) and usual.descriptors.book.digest not in known:
            raise ReleaseRefused(f"the map {remote.name} takes words of another dictionary than the bundled one", remedy=WORDS)
        if policy.get("lines_only") is True:
            raise ReleaseRefused(
                f"the map {remote.name} takes lines alone, and no usual words are found in lines", remedy=(LINES, WORDS)
            )
        return usual
    return replace(usual, lines=HideInLines(gravity=gravity)) if policy.get("lines_only") is True else usual


def _policy(remote: RemoteMap) -> Mapping[str, Any]:
    policy = remote.facts.get("policy")
    return policy if isinstance(policy, dict) else {}
