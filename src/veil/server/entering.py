"""Which of the messages that are given to a map can be entered, and what a change of the map says of contributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from veil.mapping.resemblance import degenerate
from veil.pipelines.uploads import LoadedImage, loaded
from veil.pipelines.weighing import Weighed
from veil.scene import Scene
from veil.wire.message import Message


def degenerate_message(message: Message) -> list[str]:
    """Why a message can say nothing of geometry, as sentences; empty if it may."""
    image = loaded(message)
    return degenerate(image.form, image.positions, image.camera)


def usable_images(
    images: Mapping[str, LoadedImage], base: Scene | None, *, order: Sequence[str]
) -> tuple[dict[str, LoadedImage], dict[str, str]]:
    """The images that can be entered into a map, and the reasons why others are left out.

    Left out is what is degenerate, and what is of another kind than the map `base`, or, where there is none, than most: one
    message of another kind must not keep the others waiting. `order` is that in which contributions came, for a draw.
    """
    left_out = {}
    rank = {name: number for number, name in enumerate(order)}
    ordered = sorted(images, key=lambda name: (rank.get(name, len(rank)), name))
    for name in ordered:
        image = images[name]
        if told := degenerate(image.form, image.positions, image.camera):
            left_out[name] = f"it is degenerate: {told[0]}"
    kinds = {name: images[name].kind for name in ordered if name not in left_out}
    if kinds:
        wanted = Counter(kinds.values()).most_common(1)[0][0] if base is None else _kind_of(base)
        left_out |= {name: f"it is {kind}; the map takes {wanted}" for name, kind in kinds.items() if kind != wanted}
    return {name: image for name, image in images.items() if name not in left_out}, left_out


def _kind_of(base: Scene) -> str:
    image = next(iter(base.images.values()))
    positions = image.keypoints if image.lines is None else image.lines
    return LoadedImage(camera=image.camera, positions=positions, form=image.form).kind


def farthest_move(before: Scene, after: Scene) -> float:
    """The farthest that a camera of both maps moved, as a share of the first map's extent."""
    moves = [
        float(np.linalg.norm(image.cam_from_world.center - after.images[name].cam_from_world.center))
        for name, image in before.images.items()
        if name in after.images
    ]
    return max(moves, default=0.0) / before.extent


def evidence_of(found: Weighed) -> dict[str, dict[str, Any]]:
    """What a change of a map says of contributions, as JSON values by contribution (docs/theory/contributions.md#evidence)."""
    evidence: dict[str, dict[str, Any]] = {}
    for name, sighting in found.sightings.items():
        evidence[name] = {
            "model": sighting.model,
            "observed": sighting.observed,
            "confirmed": sighting.confirmed,
            "others": sighting.others,
            "own": sighting.own,
            "alone": sighting.alone,
        }
    for name, resemblance in found.resemblances.items():
        evidence.setdefault(name, {"model": None, "observed": 0, "confirmed": 0, "others": 0, "own": 0, "alone": False})
        evidence[name] |= {
            "repeats_own": round(resemblance.own, 4),
            "repeats_others": round(resemblance.others, 4),
            "unexplained": round(resemblance.unexplained, 4),
        }
    return evidence
