"""Localization of held-out photographs from raw features and from private forms: the protocol of `veil demo`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, cast

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_poses, pose_error
from veil.ldp.composition import composed_epsilon
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.public import publish
from veil.one_line import in_full
from veil.places.maps import MapImage, NoMap, build_map
from veil.places.poses.answer import Localization, NoPose
from veil.scene import Scene
from veil.trials.form_answers import FormAnswer, FormSetup, Variant, VariantDistance, answered, sent_keypoints
from veil.wire import Upload, decode

DELTA = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """Features of a photograph to localize; `reference` is its true cam_from_world, or None for one of another place.

    `gravity` is down in the camera's frame where it is known; lines follow it.
    """

    name: str
    features: Features
    reference: Rigid | None
    gravity: Float64[np.ndarray, "3"] | None = None


Status = Literal["localized", "no pose"]
ProfileName = Literal["raw", "hardened", "paper", "words"]


class TrialOutcomeJson(TypedDict):
    """One query through one variant."""

    name: str
    form: Literal["points", "subspaces", "lines", "words"]
    profile: ProfileName
    m: int
    epsilon: float | None
    epsilon_image: float | None
    distance: VariantDistance
    status: Status
    position_error: float | None
    rotation_error_deg: float | None
    inliers: int
    upload_bytes: int
    device_seconds: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialOutcome:
    """Result of localizing one query through one variant, with its errors, the size of the upload and the server's seconds.

    `device_seconds` are those of making the message; `message` is what was sent, None for raw features.
    `keypoints` (pixels) are the positions that were sent. `scene` is the
    map that answered, or the reason why there is none of what this variant sends. Errors are in units of the reference and in
    degrees, None without a pose or a reference; infinity (null in JSON) and 180 where the map contradicts the reference.
    """

    query: Query
    variant: Variant
    pose: Localization | NoPose
    keypoints: np.ndarray
    scene: Scene | NoMap
    position_error: float | None
    rotation_error_deg: float | None
    upload_bytes: int
    message: bytes | None
    device_seconds: float
    seconds: float

    def as_json(self) -> TrialOutcomeJson:
        """The stable record of docs/reference/json.md."""
        profile, mechanism = self.variant.profile, self.variant.mechanism
        return {
            "name": self.query.name,
            "form": "lines" if self.variant.lines else "subspaces" if profile else ("words" if mechanism else "points"),
            "profile": cast(ProfileName, profile.name) if profile else ("words" if mechanism else "raw"),
            "m": profile.m if profile else (mechanism.m if mechanism else 0),
            "epsilon": mechanism.epsilon if mechanism else None,
            "epsilon_image": composed_epsilon({mechanism: len(self.query.features)}, DELTA) if mechanism else None,
            "distance": self.variant.distance,
            "status": "localized" if isinstance(self.pose, Localization) else "no pose",
            "position_error": None if self.position_error == math.inf else self.position_error,
            "rotation_error_deg": self.rotation_error_deg,
            "inliers": self.pose.inliers,
            "upload_bytes": self.upload_bytes,
            "device_seconds": self.device_seconds,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutSetup(FormSetup):
    """Inputs that all variants share: those of the forms, features to map, and reference poses.

    `references` are true poses (cam_from_world) by image name. `workdir` must exist and takes one folder of COLMAP's files
    for each map.
    """

    mapped: Mapping[str, Features]
    references: Mapping[str, Rigid]
    workdir: Path


def run_variants(
    setup: HeldOutSetup,
    queries: Sequence[Query],
    variants: Sequence[Variant],
    *,
    progress: Callable[[str], None] = lambda step: None,
) -> Iterator[TrialOutcome]:
    """Outcomes of all queries, variant by variant; every upload goes through the wire, every map is built from releases.

    `progress` is called with a sentence for each step. Raises InputError if raw features give no map; a private map that
    cannot be built answers no query.
    """
    scenes: dict[str, Scene | NoMap] = {}
    for variant in variants:
        key = in_full(variant.profile) if variant.distance == "s2s" else "public"
        if key not in scenes:
            progress(f"mapping: {'raw features' if key == 'public' else variant.label}")
            scenes[key] = scene = _map(setup, variant if variant.distance == "s2s" else None, len(scenes))
            if isinstance(scene, NoMap) and key == "public":
                raise InputError(f"no map could be built: {scene.reason}", remedy=scene.remedy)
        progress(f"localizing: {variant.label}")
        for query in queries:
            yield _localize(setup, query, variant, scenes[key])


def _map(setup: HeldOutSetup, variant: Variant | None, number: int) -> Scene | NoMap:
    """The map of raw features, or of what is sent of them in one way; `number` names its folder."""
    images = {}
    for name, features in setup.mapped.items():
        if variant is None:
            images[name] = MapImage(camera=features.camera, keypoints=features.keypoints, form=publish(features))
        else:
            upload = decode(setup.message(features, variant) or b"")
            assert isinstance(upload, Upload)
            images[name] = MapImage(camera=upload.camera, keypoints=upload.keypoints, form=upload.form)
    forms = {name: image.form for name, image in images.items()}
    matches = match_pairs(forms, all_pairs(sorted(images)), workers=setup.workers)
    workdir = setup.workdir / str(number)
    workdir.mkdir()
    return build_map(images, matches, workdir=workdir)


def _localize(setup: HeldOutSetup, query: Query, variant: Variant, scene: Scene | NoMap) -> TrialOutcome:
    """The outcome of one query through one variant."""
    if isinstance(scene, NoMap):
        answer = _without_map(setup, query, variant, scene)
    else:
        answer = answered(setup, query.features, variant, scene, gravity=query.gravity)
    position = rotation = None
    if isinstance(scene, Scene) and isinstance(answer.pose, Localization) and query.reference is not None:
        position, rotation = reference_errors(setup.references, scene, answer.pose, query.reference)
    return TrialOutcome(
        query=query,
        variant=variant,
        pose=answer.pose,
        keypoints=answer.keypoints,
        scene=scene,
        position_error=position,
        rotation_error_deg=rotation,
        upload_bytes=answer.upload_bytes,
        message=answer.message,
        device_seconds=answer.device_s,
        seconds=answer.server_s,
    )


def _without_map(setup: HeldOutSetup, query: Query, variant: Variant, missing: NoMap) -> FormAnswer:
    """The answer where the variant gave no map: no pose, for the reason of `missing`."""
    message = setup.message(query.features, variant, query.gravity)
    assert message is not None  # raw features and words are compared with the public map
    return FormAnswer(
        pose=NoPose(reason=f"there is no map of such uploads: {missing.reason}", correspondences=0, remedy=missing.remedy),
        message=message,
        upload_bytes=len(message),
        keypoints=sent_keypoints(query.features, decode(message)),
        device_s=0.0,
        server_s=0.0,
    )


def reference_errors(
    references: Mapping[str, Rigid], scene: Scene, pose: Localization, reference: Rigid
) -> tuple[float, float]:
    """Position error (units of the reference) and rotation error (degrees) of a pose.

    The map's cameras are aligned with their reference poses; the query has no part in that. Where they contradict these, the
    map is wrong, and so is every pose in it: the errors are infinity and 180.
    """
    names = [name for name in scene.images if name in references]
    mapped = [scene.images[name].cam_from_world for name in names]
    true = [references[name] for name in names]
    try:
        return pose_error(pose.cam_from_world, reference, align_poses(mapped, true))
    except InputError:
        return math.inf, 180.0
