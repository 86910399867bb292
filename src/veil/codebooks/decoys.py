"""Pools of decoys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from veil.codebooks.codebook import Codebook, Kind


@dataclass(frozen=True, kw_only=True, eq=False)
class DecoyPool(Codebook):
    """Real descriptors of photographs, to hide among; whoever has the pool can tell decoys from descriptors."""

    kind: ClassVar[Kind] = "descriptors"
