"""Planted maps as they are stored: every pose, point and observation is known, and so is who sees what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from veil.forms import Form, Lines, Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.lines import lift_to_lines
from veil.randomness import seeded
from veil.scene import MapCheck, MappedImage, Scene
from worlds import World, generator, subspaces, world
from worlds.line_worlds import features_of

CHECK = MapCheck(
    pairs=15, explained_pairs=15, contradicting_pairs=0, explained_matches=0.99, neck=90, uncertainty=0.001, step_ratio=1.2
)
KINDS = ("public", "subspaces", "words", "lines")


def image_name(key: str) -> str:
    """The name that the view `key` of a world has in its map."""
    return f"contribution {key}.jpg"


def planted_map(
    name: str,
    kind: str = "public",
    *,
    images: int = 6,
    points: int = 80,
    seen: float = 0.7,
    sees: Callable[[int, np.ndarray], np.ndarray] | None = None,
) -> tuple[Scene, World]:
    """A map of one of the KINDS with the true poses and points, and its world; each view misses points at random.

    `sees` decides in place of chance: it gets a view's number and the points, and returns a mask. Points that too few see are
    not in the map.
    """
    place = world(name, images=images, points=points, noise_px=0.1)
    random = generator(f"planted map {name}")
    visible = {}
    for number, key in enumerate(place.poses):
        mask = random.random(points) < seen if sees is None else sees(number, place.points)
        visible[key] = np.flatnonzero(mask[place.visible[key]])
    counts = np.zeros(points, dtype=int)
    for key, rows in visible.items():
        counts[place.visible[key][rows]] += 1
    kept = np.flatnonzero(counts >= (4 if kind == "lines" else 2))
    row_of = {int(point): row for row, point in enumerate(kept)}
    down = np.array([0.0, 1.0, 0.0])
    features = features_of(place, name)
    mapped = {}
    for key, pose in place.poses.items():
        rows = np.array([row for row in visible[key] if int(place.visible[key][row]) in row_of], dtype=np.int64)
        lines: Lines | None = None
        if kind == "lines":
            lines = lift_to_lines(features[key], gravity=pose.rotation @ down, randomness=seeded(f"{name} {key}")).take(rows)
        mapped[image_name(key)] = MappedImage(
            name=image_name(key),
            camera=place.camera,
            cam_from_world=pose,
            keypoints=place.keypoints[key][rows],
            point_rows=np.array([row_of[int(point)] for point in place.visible[key][rows]], dtype=np.int64),
            form=_form(place, name, key, kind).take(rows),
            lines=lines,
        )
    check = None if kind == "lines" else CHECK
    return Scene(images=mapped, points=place.points[kept], mean_reprojection_error_px=0.3, check=check), place


def _form(place: World, name: str, key: str, kind: str) -> Form:
    form = place.form(key)
    if kind == "public":
        return form
    if kind == "words":
        random = generator(f"words {name} {key}")
        ids = np.array([np.sort(random.choice(60_000, 8, replace=False)) for _ in range(len(form))], dtype=np.uint32)
        law = SubsetMechanism(dictionary_size=60_000, epsilon=9.0, m=8)
        return Subsets(ids=ids, mechanism=law, space=form.space, dictionary="ab" * 32, releasable=True)
    return subspaces(generator(f"lift {name} {key}"), form.vectors, 2, form.space)


def survivors(scene: Scene, gone: set[str], least: int) -> set[int]:
    """Points, by row, that `least` images not in `gone` see, one not by a line along gravity: counted one by one."""
    kept = set()
    for point in range(len(scene.points)):
        lines = 0
        firm = False
        for name, image in scene.images.items():
            rows = np.flatnonzero(image.point_rows == point)
            if name not in gone and len(rows):
                lines += 1
                firm = firm or image.lines is None or not bool(image.lines.aligned[rows].all())
        if lines >= least and firm:
            kept.add(point)
    return kept
