"""Localization of held-out photographs from raw features and from private forms: the protocol of `veil demo`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.codebooks.decoys import in_runs
from veil.errors import InputError
from veil.features import Features
from veil.forms import Form, Subsets, Subspaces
from veil.geometry.rigid import Rigid
from veil.geometry.robust.grouped import GroupedOptions
from veil.geometry.similarity import align_poses, pose_error
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.localization.by_distance import Localization, LocalizeOptions, NoPose, localize
from veil.localization.by_words import WordOptions, localize_words
from veil.mapping import MapImage, NoMap, build_map
from veil.matching import match_pairs
from veil.matching.inverted_index import index_map
from veil.matching.pairs import all_pairs
from veil.mechanisms.profile import Profile, hardened, paper
from veil.mechanisms.public import publish
from veil.mechanisms.release import Release, privatize, privatize_words
from veil.mechanisms.selection import usual_selection
from veil.randomness import Secure
from veil.scene import Scene
from veil.studies.matching.homographies import Distance
from veil.wire import Upload, decode, encode

DEMO_EPSILON = 10.0
DELTA = 1e-6
RAW_POSITION_BYTES = 8  # two float32, as today's services would send


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to send a query: raw features, a profile with a public (p2s) or private (s2s) map, or words by a mechanism."""

    profile: Profile | None
    distance: Distance | Literal["words"]
    mechanism: SubsetMechanism | None = None

    @property
    def label(self) -> str:
        """The variant's name in tables and figures."""
        if self.mechanism is not None:
            return f"words m={self.mechanism.m}, epsilon {self.mechanism.epsilon:g} a feature"
        if self.profile is None:
            return "raw features"
        map_kind = "public map" if self.distance == "p2s" else "private map"
        return f"{self.profile.name} m={self.profile.m}, {map_kind}"


def demo_variants(words: int) -> list[Variant]:
    """The variants that the demo compares; `words` is the number of words of its dictionary."""
    default = hardened(quantized=True)
    return [
        Variant(profile=None, distance="point"),
        Variant(profile=default, distance="p2s"),
        Variant(profile=default, distance="s2s"),
        *(Variant(profile=paper(m), distance="p2s") for m in (2, 4, 8, 16)),
        *(Variant(profile=paper(m), distance="s2s") for m in (2, 4)),
        Variant(profile=None, distance="words", mechanism=SubsetMechanism(dictionary_size=words, epsilon=DEMO_EPSILON, m=2)),
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """Features of a photograph to localize; `reference` is its true cam_from_world, or None for one of another place."""

    name: str
    features: Features
    reference: Rigid | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Result of localizing one query through one variant, with its errors, the size of the upload and the server's seconds.

    `message` is what was sent, None for raw features. `keypoints` (pixels) are the positions that were sent. `scene` is the
    map that answered, or the reason why there is none of what this variant sends. Errors are in units of the reference and in
    degrees, None without a pose or a reference; infinity (null in JSON) and 180 where the map contradicts the reference.
    """

    query: Query
    variant: Variant
    found: Localization | NoPose
    keypoints: np.ndarray
    scene: Scene | NoMap
    position_error: float | None
    rotation_error_deg: float | None
    upload_bytes: int
    message: bytes | None
    seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        profile, mechanism = self.variant.profile, self.variant.mechanism
        status: Literal["localized", "no pose"] = "localized" if isinstance(self.found, Localization) else "no pose"
        return {
            "name": self.query.name,
            "form": "subspaces" if profile else ("words" if mechanism else "points"),
            "profile": profile.name if profile else ("words" if mechanism else "raw"),
            "m": profile.m if profile else (mechanism.m if mechanism else 0),
            "epsilon": mechanism.epsilon if mechanism else None,
            "epsilon_image": composed_epsilon({mechanism: len(self.query.features)}, DELTA) if mechanism else None,
            "distance": self.variant.distance,
            "status": status,
            "position_error": None if self.position_error == math.inf else self.position_error,
            "rotation_error_deg": self.rotation_error_deg,
            "inliers": self.found.inliers,
            "upload_bytes": self.upload_bytes,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutSetup:
    """Inputs that all variants share: features to map, reference poses, codebook and decoys, and the randomness of releases.

    `references` are true poses (cam_from_world) by image name. `workdir` must exist and takes one folder of COLMAP's files
    for each map.
    """

    mapped: Mapping[str, Features]
    references: Mapping[str, Rigid]
    codebook: Codebook
    decoys: Codebook
    randomness: Secure
    workdir: Path
    workers: int = 2
    seed: int = 0

    def release(self, features: Features, profile: Profile) -> Release:
        """The release that a client would make of one image."""
        selection = usual_selection(profile)
        decoys = self.decoys if profile.decoys == "descriptors" else self.codebook
        return privatize(
            features,
            profile=profile,
            compression=self.codebook.compression,
            decoys=in_runs(decoys, (selection.features or len(features)) * profile.decoy_count),
            randomness=self.randomness,
            selection=selection,
        )


def run_variants(
    setup: HeldOutSetup,
    queries: Sequence[Query],
    variants: Sequence[Variant],
    *,
    progress: Callable[[str], None] = lambda step: None,
) -> Iterator[Outcome]:
    """Outcomes of all queries, variant by variant; every upload goes through the wire, every map is built from releases.

    `progress` is called with a sentence for each step. Raises InputError if raw features give no map; a private map that
    cannot be built answers no query.
    """
    scenes: dict[str, Scene | NoMap] = {}
    for variant in variants:
        key = repr(variant.profile) if variant.distance == "s2s" else "public"
        if key not in scenes:
            progress(f"mapping: {'raw features' if key == 'public' else variant.label}")
            scenes[key] = scene = _map(setup, variant.profile if variant.distance == "s2s" else None, len(scenes))
            if isinstance(scene, NoMap) and key == "public":
                raise InputError(f"no map could be built: {scene.reason}")
        progress(f"localizing: {variant.label}")
        for query in queries:
            yield _localize(setup, query, variant, scenes[key])


def _map(setup: HeldOutSetup, profile: Profile | None, number: int) -> Scene | NoMap:
    """The map of raw features, or of what `profile` releases of them; `number` names its folder."""
    images = {}
    for name, features in setup.mapped.items():
        if profile is None:
            images[name] = MapImage(camera=features.camera, keypoints=features.keypoints, form=publish(features))
        else:
            upload, _ = _sent(setup, features, profile)
            images[name] = MapImage(camera=upload.camera, keypoints=upload.keypoints, form=upload.form)
    forms = {name: image.form for name, image in images.items()}
    matches = match_pairs(forms, all_pairs(sorted(images)), workers=setup.workers)
    workdir = setup.workdir / str(number)
    workdir.mkdir()
    return build_map(images, matches, workdir=workdir)


class _Answer(NamedTuple):
    """The server's answer, the positions that were sent (pixels), the message, and the server's seconds."""

    found: Localization | NoPose
    keypoints: np.ndarray
    message: bytes | None
    seconds: float


def _sent(setup: HeldOutSetup, features: Features, profile: Profile) -> tuple[Upload, bytes]:
    """The upload as the server decodes it, and the message itself."""
    message = encode(setup.release(features, profile).upload, dtype=profile.dtype)
    upload = decode(message)
    assert isinstance(upload, Upload)
    return upload, message


def _without_map(setup: HeldOutSetup, query: Query, profile: Profile, missing: NoMap) -> _Answer:
    """The answer where `profile` gave no map: no pose, for the reason of `missing`."""
    upload, message = _sent(setup, query.features, profile)
    found = NoPose(reason=f"there is no map of such uploads: {missing.reason}", correspondences=0)
    return _Answer(found, upload.keypoints, message, 0.0)


def _by_words(setup: HeldOutSetup, query: Query, mechanism: SubsetMechanism, scene: Scene) -> _Answer:
    """The answer to a query that is sent in words."""
    release = privatize_words(query.features, mechanism=mechanism, dictionary=setup.codebook, randomness=setup.randomness)
    message = encode(release.upload)
    upload = decode(message)
    assert isinstance(upload, Upload) and isinstance(upload.form, Subsets)
    vocabulary = index_map(scene, setup.codebook)  # a server makes it once a map: no part of a query's time
    start = time.perf_counter()
    options = WordOptions(search=GroupedOptions(seed=setup.seed), threads=setup.workers)
    found = localize_words(upload.camera, upload.keypoints, upload.form, scene, vocabulary, options=options)
    return _Answer(found, upload.keypoints, message, time.perf_counter() - start)


def _localize(setup: HeldOutSetup, query: Query, variant: Variant, scene: Scene | NoMap) -> Outcome:
    """The outcome of one query through one variant."""
    position = rotation = None
    if isinstance(scene, NoMap):
        assert variant.profile is not None  # raw features and words are compared with the public map
        found, keypoints, message, seconds = _without_map(setup, query, variant.profile, scene)
    elif variant.mechanism is not None:
        found, keypoints, message, seconds = _by_words(setup, query, variant.mechanism, scene)
    else:
        found, keypoints, message, seconds = _by_distance(setup, query, variant, scene)
    if isinstance(scene, Scene) and isinstance(found, Localization) and query.reference is not None:
        position, rotation = _errors(setup, scene, found, query.reference)
    return Outcome(
        query=query,
        variant=variant,
        found=found,
        keypoints=keypoints,
        scene=scene,
        position_error=position,
        rotation_error_deg=rotation,
        upload_bytes=len(message) if message else len(query.features) * (query.features.space.dim + RAW_POSITION_BYTES),
        message=message,
        seconds=seconds,
    )


def _by_distance(setup: HeldOutSetup, query: Query, variant: Variant, scene: Scene) -> _Answer:
    """The answer to a query that is sent as raw features or in subspaces."""
    form: Form
    if variant.profile is None:
        form, keypoints, camera = publish(query.features), query.features.keypoints, query.features.camera
        message = None
    else:
        upload, message = _sent(setup, query.features, variant.profile)
        form, keypoints, camera = upload.form, upload.keypoints, upload.camera
    start = time.perf_counter()
    options = LocalizeOptions(workers=setup.workers, seed=setup.seed)
    codebook = setup.codebook if isinstance(form, Subspaces) and scene.is_public else None
    found = localize(camera, keypoints, form, scene, codebook=codebook, options=options)
    return _Answer(found, keypoints, message, time.perf_counter() - start)


def _errors(setup: HeldOutSetup, scene: Scene, found: Localization, reference: Rigid) -> tuple[float, float]:
    """Position error (units of the reference) and rotation error (degrees) of a pose.

    The map's cameras are aligned with their reference poses; the query has no part in that. Where they contradict these, the
    map is wrong, and so is every pose in it: the errors are infinity and 180.
    """
    names = [name for name in scene.images if name in setup.references]
    mapped = [scene.images[name].cam_from_world for name in names]
    references = [setup.references[name] for name in names]
    try:
        return pose_error(found.cam_from_world, reference, align_poses(mapped, references))
    except InputError:
        return math.inf, 180.0
