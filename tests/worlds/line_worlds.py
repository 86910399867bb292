"""Planted worlds as mapping from lines gets them: features, lines, matches of equal points."""

from __future__ import annotations

import numpy as np

from veil.features import Features
from veil.forms import Points
from veil.matching import Matches
from veil.mechanisms.lines import lift_to_lines
from veil.places.maps.lines import LineView, MatchGraph, match_graph
from veil.places.maps.lines.stored_maps import LineImage
from veil.randomness import seeded
from worlds import World, generator, sift_like
from worlds.streets import Street


def features_of(place: World, name: str) -> dict[str, Features]:
    """Features of every view: keypoints with the descriptors of their points."""
    quantized = sift_like(generator(f"descriptors {name}"), len(place.points))
    return {
        key: Features(
            keypoints=place.keypoints[key],
            descriptors=quantized[place.visible[key]],
            space=place.form(key).space,
            camera=place.camera,
            image_digest=f"{name}{key}".encode().ljust(32, b"\0"),
        )
        for key in place.poses
    }


def images_of(place: World, name: str) -> dict[str, LineImage]:
    """Images of all views, as messages with exact gravity would give them."""
    down = np.array([0.0, 1.0, 0.0])
    return {
        key: LineImage(
            camera=place.camera,
            lines=lift_to_lines(item, gravity=place.poses[key].rotation @ down, randomness=seeded(name)),
            form=place.form(key),
        )
        for key, item in features_of(place, name).items()
    }


def views_of(images: dict[str, LineImage]) -> dict[str, LineView]:
    """Camera and lines of every image, without descriptors."""
    return {key: image.view for key, image in images.items()}


def matches_of(place: World) -> dict[tuple[str, str], Matches]:
    """Matches of equal points between all pairs, all of them distinctive."""
    keys = sorted(place.poses)
    where = {key: {int(p): row for row, p in enumerate(place.visible[key])} for key in keys}
    matches = {}
    for i, a in enumerate(keys):
        for b in keys[i + 1 :]:
            pairs = np.array([(where[a][p], where[b][p]) for p in where[a] if p in where[b]], dtype=np.int64).reshape(-1, 2)
            matches[a, b] = Matches(indices=pairs, distances=np.zeros(len(pairs)), ratios=np.full(len(pairs), 0.5))
    return matches


def graph_of(counts: dict[str, int], matches: dict[tuple[str, str], Matches]) -> MatchGraph:
    """Match graph of these matches."""
    return match_graph(
        counts, {pair: m.indices for pair, m in matches.items()}, ratios={pair: m.ratios for pair, m in matches.items()}
    )


def line_images_of(place: Street, name: str) -> dict[str, LineImage]:
    """Images of a street, as messages with exact gravity would give them."""
    images = {}
    for key, image in place.images.items():
        assert isinstance(image.form, Points)
        features = Features(
            keypoints=image.keypoints,
            descriptors=np.ones((len(image.form), 128), dtype=np.uint8),
            space=image.form.space,
            camera=image.camera,
            image_digest=f"{name}{key}".encode().ljust(32, b"\0"),
        )
        gravity = place.poses[key].rotation @ np.array([0.0, 0.0, -1.0])
        lines = lift_to_lines(features, gravity=gravity, randomness=seeded(name))
        images[key] = LineImage(camera=image.camera, lines=lines, form=image.form)
    return images
