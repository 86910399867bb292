"""Planted worlds in words: a dictionary that knows the world's points, maps, and queries drawn by the mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.forms import Form, Lines, Points, Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.words import randomized
from veil.randomness import seeded
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import World, generator, sift_like, unit

SIFT = Space(descriptor="sift", normalization="L2", dim=128)


def dictionary_of(place: World, *, others: int, name: str = "others") -> Codebook:
    """A word for each of the world's points, and `others`, in random order."""
    random = generator(f"dictionary {name}")
    words = np.concatenate([place.descriptors, unit(sift_like(random, others))]).astype(np.float32)
    return Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=words[random.permutation(len(words))],
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source=f"synthetic {name}", license="none", image_count=1, descriptor_count=len(words)),
    )


def scene_of(place: World, *, without: str = "", forms: Mapping[str, Form] | None = None) -> Scene:
    """The planted world as a map of all images but one, of descriptors or of the forms given."""
    images = {
        name: MappedImage(
            name=name,
            camera=place.camera,
            cam_from_world=pose,
            keypoints=place.keypoints[name],
            point_rows=place.visible[name],
            form=place.form(name) if forms is None else forms[name],
        )
        for name, pose in place.poses.items()
        if name != without
    }
    return Scene(images=images, points=place.points, mean_reprojection_error_px=0.3)


def words_of(form: Points, dictionary: Codebook, *, epsilon: float, m: int = 2, name: str = "query") -> Subsets:
    """A study's draw of the mechanism for each descriptor."""
    mechanism = SubsetMechanism(dictionary_size=len(dictionary), epsilon=epsilon, m=m)
    contexts = [b"%d" % row for row in range(len(form))]
    words = randomized(dictionary.nearest(form.vectors), mechanism, seeded(name), contexts)
    return subsets(words, mechanism, dictionary.digest)


def subsets(words: np.ndarray, mechanism: SubsetMechanism, dictionary: str) -> Subsets:
    """Given words, not releasable."""
    return Subsets(
        ids=np.asarray(words, dtype=np.uint32), mechanism=mechanism, space=SIFT, dictionary=dictionary, releasable=False
    )


def lines_of(place: World, name: str) -> Lines:
    """Random lines through a view's keypoints, with the exact gravity of a world whose down is y."""
    fx, fy, cx, cy = place.camera.params
    xy = (place.keypoints[name].astype(np.float64) - [cx, cy]) / [fx, fy]
    theta = generator(f"lines of {name}").uniform(0, np.pi, len(xy))
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    return Lines(
        coefficients=np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)]).astype(np.float32),
        aligned=np.zeros(len(xy), dtype=bool),
        gravity=place.poses[name].rotation @ np.array([0, 1.0, 0]),
        releasable=False,
    )


def with_down(scene: Scene, down: np.ndarray) -> Scene:
    """The map with a measured gravity."""
    return replace(scene, measured_down=down)
