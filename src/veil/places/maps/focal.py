"""Focal lengths of a map against what images say of theirs: deviations from the map, contradictions, and refinements.

A focal length that comes with an image is a measurement with a deviation. The map's points are another measurement of it. Where
both disagree the focal length is freed, and the photographs are mapped anew (mapping.md#focal-lengths).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from veil.geometry.camera import GUESS, Camera
from veil.places.maps.images import MapImage
from veil.places.maps.uncertainty import FLOOR, known_lenses
from veil.scene import ContradictedFocal, MappedImage, Scene

# Deviations from which on a map contradicts a stated focal length, and determines a distortion that nobody stated.
CONTRADICTION = 3.0
# A claim is confirmed by a map that measures the focal length as well as this, and does not contradict it.
TELLING = 0.03
# Observations that a camera needs for a test of its focal length; COLMAP registers an image by as many.
LEAST_OBSERVATIONS = 30
# Maps, each anew with other focal lengths than those that the photographs contradicted in the map before.
CALIBRATIONS = 3
# The clearer one of two maps has less than this part of the other's mean error.
CLEARLY_LESS = 0.8

# The model of guessed cameras; its last parameter is the only one of distortion.
WITH_DISTORTION = "SIMPLE_RADIAL"

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, eq=False)
class FocalTest:
    """Cameras whose focal length a map contradicts, and those whose focal length it measures better than it was known.

    `freed` holds a guess, which begins at the map's focal length, for each contradicted camera; `refined` are the cameras that
    may be refined without being contradicted. `doubted` holds such guesses for cameras that the adjustment moved as far, but
    that the map does not determine: it may be wrong itself. Of the freed ones `untested` are not contradicted: they are not
    believed, as most others are.
    """

    freed: Mapping[Camera, Camera] = field(default_factory=dict)
    untested: frozenset[Camera] = frozenset()
    doubted: Mapping[Camera, Camera] = field(default_factory=dict)
    refined: frozenset[Camera] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False)
class Doubted(Generic[Answer]):
    """A map, or the reason for none, and a guess for each camera whose focal length it neither determines nor confirms."""

    answer: Answer
    cameras: Mapping[Camera, Camera] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Freed(Generic[Answer]):
    """The last answer, the images that it was made from, and their cameras before these were freed, by image name.

    The answer is None if each one freed cameras. Cameras of the images `untested` were freed without being contradicted.
    """

    answer: Answer | None
    images: Mapping[str, MapImage]
    claimed: Mapping[str, Camera]
    untested: frozenset[str] = frozenset()


def with_freed(
    images: Mapping[str, MapImage],
    workdir: Path,
    once: Callable[[Mapping[str, MapImage], Path], FocalTest | Doubted[Answer]],
    is_clearer: Callable[[Answer, Answer], bool],
) -> Freed[Answer]:
    """The answer of `once(images, folder)`, asked again with the cameras that it freed as long as it frees any.

    Where it doubts cameras it is asked once more without them; the new answer is taken if `is_clearer(new, doubted)`.
    """
    claimed: dict[str, Camera] = {}
    untested = frozenset[str]()
    doubted: Freed[Answer] | None = None
    for attempt in range(CALIBRATIONS):
        folder = workdir / f"freed-{attempt}" if attempt else workdir
        folder.mkdir(exist_ok=True)
        answer = once(images, folder)
        if isinstance(answer, FocalTest):
            freed = answer.freed
            untested |= {name for name, image in images.items() if image.camera in answer.untested}
        elif answer.cameras and doubted is None and attempt + 1 < CALIBRATIONS:
            doubted = Freed(answer=answer.answer, images=images, claimed=dict(claimed), untested=untested)
            freed = answer.cameras
        else:
            if doubted is not None and doubted.answer is not None and not is_clearer(answer.answer, doubted.answer):
                return doubted
            return Freed(answer=answer.answer, images=images, claimed=claimed, untested=untested)
        claimed |= {name: image.camera for name, image in images.items() if image.camera in freed}
        images = {name: image.with_camera(freed.get(image.camera, image.camera)) for name, image in images.items()}
    return doubted or Freed(answer=None, images=images, claimed=claimed, untested=untested)


def is_clearer(scene: Scene, other: Scene) -> bool:
    """Whether a map has all images of another one or more, more observations, and a clearly smaller mean error."""
    return (
        len(scene.images) >= len(other.images)
        and scene.observation_count > other.observation_count
        and scene.mean_reprojection_error_px < CLEARLY_LESS * other.mean_reprojection_error_px
    )


def focal_test(adjusted: Scene, images: Mapping[str, MapImage], fixed: Iterable[str] = ()) -> FocalTest:
    """Test of the focal lengths of images against a map of them that was adjusted with free focal lengths.

    `images` are those that the map was made from, by name, with their own cameras. Guesses are not tested, nor are the images
    `fixed`. Images with equal intrinsics have one camera. Where more images contradict theirs than confirm it, the cameras of
    those that tell neither are freed, too.
    """
    tested = {name: images[name].camera for name in adjusted.images if images[name].camera.focal_is_known}
    for name in fixed:
        tested.pop(name, None)
    freed, doubted, untold = {}, {}, {}
    refined, confirmed = set[Camera](), set[Camera]()
    for camera, lens in known_lenses(adjusted).items() if tested else ():
        names = [name for name in adjusted.images if name in tested and adjusted.images[name].camera == camera]
        for claimed in dict.fromkeys(tested[name] for name in names):
            own = [name for name in names if tested[name] == claimed]
            ratio = focal_of(camera) / focal_of(claimed)
            untold[claimed] = replace(claimed, focal=GUESS)
            if sum(len(adjusted.images[name].keypoints) for name in own) < LEAST_OBSERVATIONS:
                continue
            guess = untold[claimed] = replace(claimed, params=scaled(claimed, ratio), focal=GUESS)
            if abs(math.log(ratio)) > CONTRADICTION * math.hypot(lens.focal, claimed.focal.deviation):
                freed[claimed] = guess
                continue
            if lens.focal <= TELLING:
                confirmed.add(claimed)
            if lens.focal < claimed.focal.deviation:
                refined.add(claimed)
            elif abs(math.log(ratio)) > CONTRADICTION * math.hypot(FLOOR, claimed.focal.deviation):
                doubted[claimed] = guess
    if sum(claimed in freed for claimed in tested.values()) > sum(claimed in confirmed for claimed in tested.values()):
        # What most images claim is wrong where it can be tested: it is not believed where it cannot be.
        unbelieved = frozenset(untold).difference(freed, refined, confirmed)
        freed |= {claimed: untold[claimed] for claimed in untold if claimed in unbelieved}
        return FocalTest(freed=freed, untested=unbelieved, doubted=doubted, refined=frozenset(refined))
    return FocalTest(freed=freed, doubted=doubted, refined=frozenset(refined))


def contradicted_focals(
    claimed: Mapping[str, Camera],
    images: Mapping[str, MapImage],
    mapped: Mapping[str, MappedImage],
    untested: Set[str] = frozenset(),
) -> tuple[ContradictedFocal, ...]:
    """Focal lengths that maps contradicted, and those that are in their place in the last map, where these differ so much.

    `claimed` are the cameras that were freed, by image, `images` those that the last map was made from, and `mapped` its own.
    Cameras of the images `untested` were not contradicted.
    """
    now = {name: mapped[name].camera if name in mapped else images[name].camera for name in claimed}
    grouped: dict[tuple[Camera, bool], list[str]] = {}
    for name, camera in sorted(claimed.items()):
        grouped.setdefault((camera, name in untested), []).append(name)
    refined = {key: float(np.median([focal_of(now[name]) for name in names])) for key, names in grouped.items()}
    return tuple(
        ContradictedFocal(
            images=len(names),
            given_px=focal_of(key[0]),
            refined_px=refined[key],
            names=tuple(names),
            untested=key[1],
        )
        for key, names in grouped.items()
        if abs(math.log(refined[key] / focal_of(key[0]))) > CONTRADICTION * math.hypot(FLOOR, key[0].focal.deviation)
    )


def departed_cameras(images: Mapping[str, MapImage], mapped: Mapping[str, MappedImage]) -> dict[str, Camera]:
    """Cameras of images, by name, whose known focal length a map has changed by more than its deviation allows."""
    return {
        name: camera
        for name, image in mapped.items()
        if (camera := images[name].camera).focal_is_known
        and abs(math.log(focal_of(image.camera) / focal_of(camera))) > CONTRADICTION * math.hypot(FLOOR, camera.focal.deviation)
    }


def known_before(scene: Scene, images: Mapping[str, MapImage], doubted: Container[Camera] = ()) -> dict[str, float]:
    """Relative standard deviation of the focal length of each image of a map, as its own camera has it.

    `images` are those that the map was made from, by name. What a `doubted` camera says counts as a guess.
    """
    cameras = {name: images[name].camera for name in scene.images}
    return {name: (GUESS if camera in doubted else camera.focal).deviation for name, camera in cameras.items()}


def known_to(scene: Scene, known: Mapping[str, float]) -> float | None:
    """Relative standard deviation of the focal length in the middle of a map's images, by the map and as `known` before it.

    None for more than `MAX_IMAGES` images.
    """
    measured = known_lenses(scene)
    if not measured:
        return None
    deviations = [1 / math.hypot(1 / measured[image.camera].focal, 1 / known[name]) for name, image in scene.images.items()]
    return float(np.median(deviations))


def undetermined_distortions(adjusted: Scene, images: Mapping[str, MapImage]) -> frozenset[str]:
    """Names of images whose distortion a map moved from zero by less than it can tell (mapping.md#distortion).

    `images` are those that the map was made from, by name, with their own cameras.
    """
    bent = {
        name: abs(image.camera.params[-1])
        for name, image in adjusted.images.items()
        if image.camera.model == WITH_DISTORTION and images[name].camera.params[-1] == 0 != image.camera.params[-1]
    }
    lenses = known_lenses(adjusted) if bent else {}
    return frozenset(
        name
        for name in bent
        if (lens := lenses.get(adjusted.images[name].camera)) is not None and bent[name] < CONTRADICTION * lens.distortion
    )


def vague_focals(adjusted: Scene, images: Mapping[str, MapImage]) -> frozenset[str]:
    """Names of images whose focal length was a guess, and that a map of them measures worse than `TELLING`."""
    guessed = frozenset(name for name in adjusted.images if not images[name].camera.focal_is_known)
    lenses = known_lenses(adjusted) if guessed else {}
    return frozenset(
        name for name in guessed if (lens := lenses.get(adjusted.images[name].camera)) is not None and lens.focal > TELLING
    )


def focal_of(camera: Camera) -> float:
    """Geometric mean of a camera's focal lengths, pixels."""
    return math.exp(float(np.mean(np.log(camera.params[: camera.focal_count]))))


def scaled(camera: Camera, ratio: float) -> tuple[float, ...]:
    """Parameters of the camera with focal lengths that are `ratio` times as long."""
    count = camera.focal_count
    return (*(value * ratio for value in camera.params[:count]), *camera.params[count:])
