"""Networks that an attacker trained on photographs of its own, for attacks on hardened subspaces."""

from __future__ import annotations

from dataclasses import dataclass, field

from veil.attacks.distribution.context import ContextNetwork
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.same_photograph import PhotographModel
from veil.attacks.distribution.whole_photograph import PhotographTransformer
from veil.attacks.matches.view_weights import ViewWeights
from veil.errors import InputError
from veil.one_line import one_line
from veil.space import Space


@dataclass(frozen=True, kw_only=True)
class AttackTraining:
    """Data and options that networks were trained with.

    `image_digests` are the first 8 bytes (hex) of each photograph's digest, `descriptors` is their number of features. `steps`
    and `context_steps` are those of the density and of context, on subspaces of `decoys` decoys, drawn by
    `seed`.
    """

    image_digests: tuple[str, ...] = ()
    descriptors: int = 0
    steps: int = 0
    context_steps: int = 0
    decoys: int = 0
    seed: int = 0

    def has_seen(self, image_digest: bytes) -> bool:
        """Whether the photograph with this digest is one of those that the networks were trained on."""
        return image_digest[:8].hex() in self.image_digests


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedModel:
    """The networks of the attacks `modes` and `context`, for releases in one space, and what they were trained with.

    `photograph` is the law of the attack `same photograph`, and `whole` the transformer of `whole photograph`; None in files
    that were written without them. `views` are the weights of other views in `matched candidates`, those that ship with veil
    unless an attacker fitted its own.

    Raises InputError if these are of different spaces.
    """

    density: DensityNetwork
    context: ContextNetwork
    photograph: PhotographModel | None = None
    whole: PhotographTransformer | None = None
    training: AttackTraining = field(default_factory=AttackTraining)
    views: ViewWeights = field(default_factory=ViewWeights)

    __repr__ = one_line

    def __post_init__(self) -> None:
        for other in (self.context, self.photograph, self.whole):
            if other is not None and other.space != self.density.space:
                raise InputError(f"the networks are of different spaces: [{self.density.space}] and [{other.space}]")

    @property
    def space(self) -> Space:
        """Space of the descriptors that the networks read."""
        return self.density.space
