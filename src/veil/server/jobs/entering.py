"""Which of the messages that are given to a map can be entered, and what a change of the map says of contributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from veil.errors import InputError, SpaceError
from veil.places.built_maps import BuiltMap
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.places.maps.contributions import degenerate
from veil.places.pairs.images import LoadedImage
from veil.places.uploads import loaded
from veil.places.weighing import Weighed
from veil.scene import Scene
from veil.wire.message import Message

# Whose contributions are tried by themselves, at most, in one job.
OWNERS = 8
Build = Callable[[Mapping[str, LoadedImage], "Map | None", str], "BuiltMap | NoMap"]


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
        if reasons := degenerate(image.form, image.positions, image.camera):
            left_out[name] = f"it is degenerate: {reasons[0]}"
    kinds = {name: images[name].kind for name in ordered if name not in left_out}
    if kinds:
        wanted = Counter(kinds.values()).most_common(1)[0][0] if base is None else _kind_of(base)
        left_out |= {name: f"it is {kind}; the map takes {wanted}" for name, kind in kinds.items() if kind != wanted}
    return {name: image for name, image in images.items() if name not in left_out}, left_out


def _kind_of(base: Scene) -> str:
    image = next(iter(base.images.values()))
    positions = image.keypoints if image.lines is None else image.lines
    return LoadedImage(camera=image.camera, positions=positions, form=image.form).kind


def built_by_any(
    images: Mapping[str, LoadedImage],
    owners: Mapping[str, str],
    base: Map | None,
    build: Build,
    *,
    doubted: Collection[str] = (),
) -> BuiltMap | NoMap:
    """The map with all images, or where these give none, with those of one owner after another.

    So what one of them gave keeps no others waiting. `owners` names the owner of each image, in the order in which they came;
    `build` makes a map of some images and of the one before, in a folder of this name. `OWNERS` are tried at most. A map that
    is made anew has its cameras from the images that are not `doubted`; these can only be added to it. Raises InputError and
    SpaceError as `build` does.
    """
    if base is None and (late := sorted(set(doubted) & set(images))):
        sure = built_by_any({name: image for name, image in images.items() if name not in late}, owners, None, build)
        if isinstance(sure, NoMap):
            return sure
        more = built_by_any({name: images[name] for name in late}, owners, sure.map, partial(_below, build, "doubted"))
        grown = replace(more, further=sure.further) if isinstance(more, BuiltMap) else sure
        return replace(grown, left_out={**sure.left_out, **more.left_out})
    together = build(images, base, "")
    if isinstance(together, BuiltMap):
        return together
    built, left_out = _one_after_another(images, owners, base, build)
    if built is not None:
        return replace(built, left_out=left_out)
    # What a map refuses is left out of it; what gives no first map waits for more.
    refused = {} if base is None else dict.fromkeys(images, together.reason)
    return replace(together, left_out={**refused, **left_out, **together.left_out})


def _below(build: Build, place: str, images: Mapping[str, LoadedImage], base: Map | None, folder: str) -> BuiltMap | NoMap:
    """Result of `build` in a folder below `place`."""
    return build(images, base, f"{place}-{folder}")


def _one_after_another(
    images: Mapping[str, LoadedImage], owners: Mapping[str, str], base: Map | None, build: Build
) -> tuple[BuiltMap | None, dict[str, str]]:
    """The map with the images of one owner after another, None where nobody's give one; and why others are left out."""
    groups: dict[str, list[str]] = {}
    rank = {name: number for number, name in enumerate(owners)}
    for name in sorted(images, key=lambda name: (rank.get(name, len(rank)), name)):
        groups.setdefault(owners.get(name, ""), []).append(name)
    last: BuiltMap | None = None
    left_out: dict[str, str] = {}
    further: list[Map] = []
    for number, names in enumerate(list(groups.values())[:OWNERS] if len(groups) > 1 else ()):
        try:
            built = build({name: images[name] for name in names}, base, f"apart-{number}")
        except (InputError, SpaceError):  # too few images for a first map
            continue
        if isinstance(built, NoMap):
            left_out |= {name: built.left_out.get(name, built.reason) for name in names}
            continue
        left_out |= built.left_out
        further += built.further
        last, base = built, built.map
    return None if last is None else replace(last, further=tuple(further)), left_out


def farthest_move(before: Scene, after: Scene) -> float:
    """The farthest that a camera of both maps moved, as a share of the first map's extent."""
    moves = [
        float(np.linalg.norm(image.cam_from_world.center - after.images[name].cam_from_world.center))
        for name, image in before.images.items()
        if name in after.images
    ]
    return max(moves, default=0.0) / before.extent


def evidence_of(weights: Weighed) -> dict[str, dict[str, Any]]:
    """Evidence for each contribution after a map change, as JSON values (docs/theory/contributions.md#evidence)."""
    evidence: dict[str, dict[str, Any]] = {}
    for name, sighting in weights.sightings.items():
        evidence[name] = {
            "model": sighting.model,
            "observed": sighting.observed,
            "confirmed": sighting.confirmed,
            "others": sighting.others,
            "own": sighting.own,
            "alone": sighting.alone,
        }
    for name, resemblance in weights.resemblances.items():
        evidence.setdefault(name, {"model": None, "observed": 0, "confirmed": 0, "others": 0, "own": 0, "alone": False})
        evidence[name] |= {
            "repeats_own": round(resemblance.own, 4),
            "repeats_others": round(resemblance.others, 4),
            "unexplained": round(resemblance.unexplained, 4),
        }
    return evidence
