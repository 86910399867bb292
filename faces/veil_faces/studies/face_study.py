"""Inputs that studies of face templates share: faces, pairs of them, decoys, and the liftings that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from veil.errors import InputError, SpaceError
from veil.mechanisms.profile import Strategy
from veil_faces.collection import FacePairs, Faces, centered_alike

DIMENSIONS = (2, 4, 8, 16)
LIFTINGS: tuple[Strategy, ...] = ("random", "hybrid", "adversarial")


@dataclass(frozen=True, kw_only=True, eq=False)
class FaceStudy:
    """Faces, pairs of them, and decoys, with the liftings and dimensions m of the templates that a study compares.

    `decoys` are faces of other people. `seed` draws folds, decoys and lifting. `centered` studies lift descriptors less the
    decoys' mean, scaled to unit length again. Raises SpaceError if decoys are of another descriptor, InputError if a decoy is
    one of the faces.
    """

    faces: Faces
    pairs: FacePairs
    decoys: Faces
    seed: int
    liftings: Sequence[Strategy] = LIFTINGS
    dimensions: Sequence[int] = DIMENSIONS
    centered: bool = False

    def __post_init__(self) -> None:
        require_others(self.faces, self.decoys)

    def with_lifted_descriptors(self) -> FaceStudy:
        """The study with the descriptors that are lifted: centered ones if it is `centered`, else those that it has."""
        if not self.centered:
            return self
        faces, decoys = centered_alike(self.faces, self.decoys)
        return replace(self, faces=faces, decoys=decoys, centered=False)


def require_others(faces: Faces, decoys: Faces) -> None:
    """Raise SpaceError if `decoys` are of another descriptor than `faces`, InputError if one of them is among the faces."""
    if decoys.space != faces.space:
        raise SpaceError(f"the faces are [{faces.space}], the decoys [{decoys.space}]; describe both with one network")
    if set(map(bytes, decoys.vectors)) & set(map(bytes, faces.vectors)):
        raise InputError("a decoy is one of the faces; decoys must be other people")
