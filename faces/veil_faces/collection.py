"""Descriptors of faces with names and labels, from any network: the raw input of enrollment and studies, never sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.decoys import DecoyPool
from veil.errors import InputError
from veil.features import Features, unit_length
from veil.geometry.camera import guessed
from veil.space import Space

IDENTITY = "identity"
# Suffix of the name of a centered descriptor.
CENTERED = "+c"


@dataclass(frozen=True, kw_only=True, eq=False)
class Faces:
    """Descriptors of faces, one a face.

    - `vectors`, float32 (N, dim): rows of unit length.
    - `names`: N distinct names of the pictures.
    - `space`: the space of the descriptors.
    - `labels`: by the label's name, N values, such as the person, gender or race of each face.

    Raises InputError if lengths disagree, names repeat, or a descriptor is not finite and of unit length.
    """

    vectors: Float32[np.ndarray, "_ _"]
    names: tuple[str, ...]
    space: Space
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vectors.shape != (len(self.names), self.space.dim):
            raise InputError(f"{len(self.names)} faces need descriptors of {self.space.dim} numbers, got {self.vectors.shape}")
        if len(set(self.names)) < len(self.names):
            raise InputError("two faces have one name; rename their pictures")
        for name, values in self.labels.items():
            if len(values) != len(self.names):
                raise InputError(f"label {name!r} has {len(values)} values for {len(self.names)} faces")
        lengths = np.linalg.norm(self.vectors.astype(np.float64), axis=1)
        wrong = np.flatnonzero(~(np.abs(lengths - 1) < 1e-3))  # also catches NaN
        if wrong.size:
            raise InputError(
                f"{wrong.size} descriptors are not finite and of unit length (first: {self.names[wrong[0]]}); normalize them"
            )

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: np.ndarray) -> Faces:
        """The faces of `rows` (indices or a mask)."""
        chosen = np.arange(len(self))[rows].tolist()
        return Faces(
            vectors=self.vectors[rows],
            names=tuple(self.names[k] for k in chosen),
            space=self.space,
            labels={name: tuple(values[k] for k in chosen) for name, values in self.labels.items()},
        )

    def label(self, name: str) -> tuple[str, ...]:
        """The values of the label `name`, one a face. Raises InputError where these faces have no such label."""
        if name not in self.labels:
            known = ", ".join(sorted(self.labels)) or "none"
            raise InputError(f"these faces have no label {name!r}; there are: {known}")
        return self.labels[name]

    def classes(self, name: str) -> tuple[Int64[np.ndarray, "faces"], tuple[str, ...]]:
        """The values of the label `name` as class numbers, int64 (N,), and the names of the classes, sorted."""
        classes, numbers = np.unique(np.array(self.label(name)), return_inverse=True)
        return numbers.reshape(-1).astype(np.int64), tuple(str(item) for item in classes)

    @property
    def middle(self) -> Float64[np.ndarray, "dim"]:
        """The mean descriptor, float64 (dim,); not of unit length."""
        return self.vectors.mean(axis=0, dtype=np.float64)

    def centered(self, middle: Float[np.ndarray, "dim"]) -> Faces:
        """The faces with `middle` subtracted and unit length again, in a space whose descriptor name says so."""
        space = replace(self.space, descriptor=self.space.descriptor[: 32 - len(CENTERED)] + CENTERED)
        return replace(self, vectors=centered(self.vectors, middle), space=space)

    @property
    def features(self) -> Features:
        """The descriptors as features of one picture, to be lifted like any others; their positions are zero."""
        return as_features(self.vectors, self.space)

    def pool(self, source: str) -> Codebook:
        """The descriptors as a pool of decoys; `source` says where they come from."""
        return pool_of(self.vectors, self.space, source=source, license="")


def centered_alike(faces: Faces, decoys: Faces) -> tuple[Faces, Faces]:
    """Faces and decoys, both with the decoys' mean subtracted and of unit length again."""
    middle = decoys.middle
    return faces.centered(middle), decoys.centered(middle)


@dataclass(frozen=True, kw_only=True, eq=False)
class FacePairs:
    """Pairs of faces to verify.

    - `left`, `right`, int64 (pairs,): rows of the two faces.
    - `same`, bool (pairs,): whether they show one person.
    - `fold`, int64 (pairs,): the fold that the list puts the pair in.
    - `missing`: number of pairs of the list that had a face that is not at hand.
    """

    left: Int64[np.ndarray, "_"]
    right: Int64[np.ndarray, "_"]
    same: Bool[np.ndarray, "_"]
    fold: Int64[np.ndarray, "_"]
    missing: int = 0

    def __len__(self) -> int:
        return len(self.left)


def centered(vectors: Float32[np.ndarray, "faces dim"], middle: Float[np.ndarray, "dim"]) -> Float32[np.ndarray, "faces dim"]:
    """Descriptors with the public mean of a crowd subtracted, of unit length again.

    The translation changes no distance of lifted descriptors, but the new length does: all are then equally far from the mean,
    while otherwise faces near it are near everybody's subspaces (docs/theory/faces.md, Eq. 5). Raises InputError where a
    descriptor is the mean itself.
    """
    offset = vectors.astype(np.float64) - middle
    if not (np.linalg.norm(offset, axis=1) > 1e-6).all():
        raise InputError("a descriptor is the mean of the others; give more faces, of different people")
    return unit_length(offset).astype(np.float32)


def pool_of(vectors: Float32[np.ndarray, "faces dim"], space: Space, *, source: str, license: str) -> Codebook:
    """Real descriptors as a pool of decoys, in one sub-database."""
    return DecoyPool(
        descriptor=space.descriptor,
        normalization=space.normalization,
        stored=vectors,
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source=source, license=license, image_count=len(vectors), descriptor_count=len(vectors)),
    )


def as_features(vectors: Float32[np.ndarray, "faces dim"], space: Space) -> Features:
    """Descriptors as `Features` whose positions are zero; the image digest is the BLAKE2b of the descriptors."""
    return Features(
        keypoints=np.zeros((len(vectors), 2), dtype=np.float32),
        descriptors=vectors,
        space=space,
        camera=guessed(1, 1),
        image_digest=hashlib.blake2b(vectors.tobytes(), digest_size=32).digest(),
    )
