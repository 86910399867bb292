"""Planted people: pictures of one person lie near each other, two people as far apart as chance has it."""

from __future__ import annotations

import numpy as np

from veil.features import unit_length
from veil.space import Space
from veil_faces.collection import IDENTITY, FacePairs, Faces
from worlds import generator

SPACE = Space(descriptor="planted-face", normalization="L2", dim=64)


def crowd(name: str, people: int, pictures: int, *, spread: float = 0.5) -> Faces:
    """`pictures` of each of `people`; their labels are who they are, and one of two sexes that shifts the descriptors."""
    random = generator(f"crowd {name}")
    sexes = random.integers(0, 2, people)
    shift = np.where(sexes == 1, 0.7, -0.7)[:, None] * generator("the sexes").normal(size=64)
    centers = unit_length(random.normal(size=(people, 64)) + shift)
    vectors = unit_length(np.repeat(centers, pictures, axis=0) + spread / 8 * random.normal(size=(people * pictures, 64)))
    who = [f"{name}{k:03d}" for k in range(people) for _ in range(pictures)]
    names = tuple(f"{person}/{person}_{k % pictures + 1:04d}.jpg" for k, person in enumerate(who))
    labels = {IDENTITY: tuple(who), "sex": tuple("ab"[sex] for sex in np.repeat(sexes, pictures))}
    return Faces(vectors=vectors.astype(np.float32), names=names, space=SPACE, labels=labels)


def pairs_of(faces: Faces, count: int) -> FacePairs:
    """As many pairs of one person as of two."""
    people, _ = faces.classes(IDENTITY)
    left, right = np.triu_indices(len(faces), 1)
    order = generator("pairs").permutation(len(left))
    same = people[left] == people[right]
    rows = np.concatenate([[k for k in order if same[k] == kind][:count] for kind in (True, False)]).astype(np.int64)
    return FacePairs(left=left[rows], right=right[rows], same=same[rows], fold=np.zeros(len(rows), dtype=np.int64))
