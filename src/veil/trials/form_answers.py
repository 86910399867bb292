"""A photograph in each form in which a query can be sent, and the answer of a server that holds a map.

`veil demo` and studies of tiles ask here. All that is sent goes through the wire as bytes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64

from veil.codebooks.codebook import Codebook
from veil.codebooks.decoys import in_runs
from veil.features import Features
from veil.forms import Form, Lines, Subsets, Subspaces
from veil.geometry.camera import Camera
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, LineHiding, Release, privatize, privatize_words
from veil.mechanisms.selection import usual_selection
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.randomness import Secure
from veil.scene import Scene
from veil.wire import LineUpload, Message, Upload, decode, encode

Distance = Literal["point", "p2s", "s2s"]
VariantDistance = Literal[Distance, "words"]
DEMO_EPSILON = 10.0
RAW_POSITION_BYTES = 8  # two float32, as today's services would send


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to send a query: raw features, a profile with a public (p2s) or private (s2s) map, or words by a mechanism.

    With `lines` a line through each keypoint is sent in place of its position.
    """

    profile: Profile | None
    distance: VariantDistance
    mechanism: SubsetMechanism | None = None
    lines: bool = False

    @property
    def label(self) -> str:
        """The variant's name in tables and figures."""
        if self.mechanism is not None:
            return f"words m={self.mechanism.m}, epsilon {outward(self.mechanism.epsilon, 6)} a feature"
        if self.profile is None:
            return "raw features"
        map_kind = "public map" if self.distance == "p2s" else "private map"
        return f"{self.profile.name} m={self.profile.m}{', lines' * self.lines}, {map_kind}"


def demo_variants(words: int) -> list[Variant]:
    """The variants that the demo compares; `words` is the number of words of its dictionary."""
    default = Profile.hardened(quantized=True)
    return [
        Variant(profile=None, distance="point"),
        Variant(profile=default, distance="p2s"),
        Variant(profile=default, distance="p2s", lines=True),
        Variant(profile=default, distance="s2s"),
        *(Variant(profile=Profile.paper(m), distance="p2s") for m in (2, 4, 8, 16)),
        *(Variant(profile=Profile.paper(m), distance="s2s") for m in (2, 4)),
        in_words(words),
    ]


def in_words(words: int) -> Variant:
    """Two words a feature, of a dictionary of `words`, with the epsilon of the demo."""
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=DEMO_EPSILON, m=2)
    return Variant(profile=None, distance="words", mechanism=mechanism)


@dataclass(frozen=True, kw_only=True, eq=False)
class FormSetup:
    """Setting of all forms: codebook (and dictionary), pool of decoys, randomness of releases, and the server's threads."""

    codebook: Codebook
    decoys: Codebook
    randomness: Secure
    workers: int = 2
    seed: int = 0

    def release(self, features: Features, profile: Profile, lines: LineHiding | None = None) -> Release:
        """The release that a client would make of one image."""
        selection = usual_selection(profile)
        decoys = self.decoys if profile.decoys == "descriptors" else self.codebook
        return privatize(
            features,
            profile=profile,
            compression=self.codebook.compression,
            decoys=in_runs(decoys, (selection.features or len(features)) * profile.decoy_count),
            randomness=self.randomness,
            lines=lines,
            selection=selection,
        )

    def message(self, features: Features, variant: Variant, gravity: Float64[np.ndarray, "3"] | None = None) -> bytes | None:
        """Message of a client; None for raw features. `gravity` is down in the camera's frame, which lines follow."""
        if variant.mechanism is not None:
            released = privatize_words(
                features, mechanism=variant.mechanism, dictionary=self.codebook, randomness=self.randomness
            )
            return encode(released.upload)
        if variant.profile is None:
            return None
        lines = HideInLines(gravity=gravity) if variant.lines else None
        return encode(self.release(features, variant.profile, lines).upload, dtype=variant.profile.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class FormAnswer:
    """A server's answer to one query.

    - `message`: what was sent, None for raw features, and `upload_bytes` its size, for raw features as services take them.
    - `keypoints` (pixels): the positions that were sent, none where lines were.
    - `device_s`, `server_s`: seconds of making the message, and of matching and pose estimation.
    """

    pose: Localization | NoPose
    message: bytes | None
    upload_bytes: int
    keypoints: np.ndarray
    device_s: float
    server_s: float


def answered(
    setup: FormSetup,
    features: Features,
    variant: Variant,
    scene: Scene,
    *,
    gravity: Float64[np.ndarray, "3"] | None = None,
    vocabulary: InvertedIndex | None = None,
) -> FormAnswer:
    """Send a photograph in one form and return the answer of a server that holds `scene`.

    `vocabulary` is the map's index by the setup's words; it is made for a query in words that lacks it, and its time does not
    count, as a server makes it once a map.
    """
    start = time.perf_counter()
    message = setup.message(features, variant, gravity)
    device_s = time.perf_counter() - start
    upload = None if message is None else decode(message)
    if variant.mechanism is not None and vocabulary is None:
        vocabulary = index_map(scene, setup.codebook)
    start = time.perf_counter()
    if upload is None:
        pose = _by_distance(setup, features.camera, features.keypoints, publish(features), scene)
    elif isinstance(upload.form, Subsets):
        assert vocabulary is not None
        pose = _by_words(setup, upload, scene, vocabulary)
    else:
        pose = _by_distance(setup, upload.camera, _positions(upload), upload.form, scene)
    return FormAnswer(
        pose=pose,
        message=message,
        upload_bytes=len(message) if message else len(features) * (features.space.dim + RAW_POSITION_BYTES),
        keypoints=sent_keypoints(features, upload),
        device_s=device_s,
        server_s=time.perf_counter() - start,
    )


def sent_keypoints(features: Features, upload: Message | None) -> np.ndarray:
    """The positions (pixels) that a server got: of raw features where there is no message, and none with lines."""
    if upload is None:
        return features.keypoints
    return upload.keypoints if isinstance(upload, Upload) else np.empty((0, 2), dtype=np.float32)


def _positions(upload: Message) -> Float32[np.ndarray, "_ 2"] | Lines:
    return upload.lines if isinstance(upload, LineUpload) else upload.keypoints


def _by_words(setup: FormSetup, upload: Message, scene: Scene, vocabulary: InvertedIndex) -> Localization | NoPose:
    """The answer to a query that is sent in words."""
    assert isinstance(upload.form, Subsets)
    options = WordOptions(seed=setup.seed, threads=setup.workers)
    from veil.places.poses.by_words import localize_words

    return localize_words(upload.camera, _positions(upload), upload.form, scene, vocabulary, options=options)


def _by_distance(
    setup: FormSetup, camera: Camera, positions: Float32[np.ndarray, "_ 2"] | Lines, form: Form, scene: Scene
) -> Localization | NoPose:
    """The answer to a query that is sent as raw features or in subspaces."""
    options = LocalizeOptions(workers=setup.workers, seed=setup.seed)
    codebook = setup.codebook if isinstance(form, Subspaces) and scene.is_public else None
    from veil.places.poses.by_distance import localize  # loads SciPy and COLMAP

    return localize(camera, positions, form, scene, codebook=codebook, options=options)
