"""Planted worlds whose images hide their keypoints behind lines, and how far a map of them is off."""

from __future__ import annotations

import numpy as np

from veil.features import Features
from veil.geometry.similarity import align_poses, pose_error
from veil.mechanisms.lines import LineRule, lift_to_lines
from veil.places.maps.lines import LineMap, LineMapOptions, LineView, MatchGraph, match_graph
from veil.places.maps.lines.quad import SeedOptions
from veil.randomness import seeded
from worlds import World, generator, world

OPTIONS = LineMapOptions(seed=SeedOptions(samples=50), quads=2)


def planted(name: str, *, wrong: float = 0.0, images: int = 6) -> tuple[World, dict[str, LineView], MatchGraph]:
    """Views with gravity; a share of each image's features stands at a wrong place."""
    place = world(name, images=images, points=900)
    random = generator(f"line map {name}")
    for keypoints in place.keypoints.values():
        bad = random.random(len(keypoints)) < wrong
        keypoints[bad] = random.uniform([0, 0], [640, 480], (int(bad.sum()), 2))
    return place, views_of(place, name), graph_of(place)


def views_of(place: World, name: str, rule: LineRule | None = None) -> dict[str, LineView]:
    """Lines of every image by a rule, by default random and aligned ones, with exact gravity."""
    views = {}
    for key, pose in place.poses.items():
        image = Features(
            keypoints=place.keypoints[key],
            descriptors=place.form(key).vectors,
            space=place.form(key).space,
            camera=place.camera,
            image_digest=key.encode().ljust(32, b"\0"),
        )
        gravity = pose.rotation @ np.array([0, 1.0, 0])
        lines = lift_to_lines(image, gravity=gravity, randomness=seeded(name), options=rule)
        views[key] = LineView(camera=place.camera, lines=lines)
    return views


def graph_of(place: World, *, points: int = 10_000) -> MatchGraph:
    """Matches of equal points between all pairs, of the first `points` points."""
    keys = sorted(place.poses)
    where = {k: {int(p): row for row, p in enumerate(place.visible[k])} for k in keys}
    matches = {
        (a, b): np.array(
            [(where[a][p], where[b][p]) for p in where[a] if p in where[b] and p < points], dtype=np.int64
        ).reshape(-1, 2)
        for i, a in enumerate(keys)
        for b in keys[i + 1 :]
    }
    return match_graph({k: len(place.visible[k]) for k in keys}, matches)


def errors(line_map: LineMap, place: World) -> list[tuple[float, float]]:
    names = sorted(line_map.cam_from_world)
    alignment = align_poses([line_map.cam_from_world[n] for n in names], [place.poses[n] for n in names])
    return [pose_error(line_map.cam_from_world[n], place.poses[n], alignment) for n in names]
