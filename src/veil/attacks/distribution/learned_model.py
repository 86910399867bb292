"""Networks that an attacker trained on photographs of its own, for attacks on hardened subspaces."""

from __future__ import annotations

from dataclasses import dataclass

from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.positions.pair_network import PairNetwork
from veil.errors import InputError
from veil.space import Space


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedModel:
    """The networks of the attacks `modes` and `context`, for releases in one space.

    Raises InputError if the networks are of different spaces.
    """

    density: DensityNetwork
    pairs: PairNetwork

    def __post_init__(self) -> None:
        if self.density.space != self.pairs.space:
            raise InputError(f"the networks are of different spaces: [{self.density.space}] and [{self.pairs.space}]")

    @property
    def space(self) -> Space:
        """Space of the descriptors that both networks read."""
        return self.density.space
