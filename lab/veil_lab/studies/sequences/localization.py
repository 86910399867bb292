"""Sequences of neighboring photographs against single ones, at one epsilon of all that leaves.

Neighboring photographs are left out of a map together, so that no image of the map is near: a walk into what was not mapped.
Each is asked alone with all of the features that the epsilon buys, and all together, each with its part of them. Both use one
map, one dictionary and one number of features. The motions of the frames are the reference's, moved by the stated drift.

False queries are sequences of photographs of other places, and the place's own mirrored. Their motions are those of a true
sequence, so that nothing but the pictures is wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from veil.audit.statistics import clopper_pearson
from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.forms import Subsets
from veil.geometry.camera import UNDISCLOSED
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import pose_error
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.mechanisms.release import privatize_words
from veil.mechanisms.sequence_selection import rows_of_sequence
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_words import localize_words
from veil.places.poses.options import PositionOptions, WordOptions
from veil.places.poses.sequences.by_words import localize_positions_of_frames, localize_words_of_frames
from veil.places.poses.sequences.frames import Frames, answer_of_frames
from veil.places.poses.upright import localize_positions
from veil.randomness import seeded
from veil.scene import Scene, mean_down
from veil.wire.message import Upload
from veil_lab.studies.localization.false_acceptance import LEVEL_DOWN, Fold
from veil_lab.studies.localization.map_dictionaries import dictionary_of, mapped
from veil_lab.studies.localization.upright_localization import DELTA, mirrored_features, tilted
from veil_lab.studies.localization.word_localization_settings import METRIC, RELATIVE

GRAVITY_SIGMA_DEG = 0.5
Kind = Literal["true", "foreign", "mirrored"]
# How a query is sent: one image with features at random (the usual words), one with those that a sequence prefers, or frames.
Sent = Literal["one image", "one image, medium features", "frames"]


@dataclass(frozen=True, kw_only=True)
class SequenceSetting:
    """Content of a query: `features` features of all frames together, `m` of `words` words each, under `epsilon` a feature.

    `frames` frames are asked together; 1: one image. The `near` images of the map that are nearest to the first one are known,
    or none where it is 0; positions alone (epsilon 0) need some.
    """

    sent: Sent
    frames: int
    features: int
    epsilon: float
    m: int = 2
    words: int = 4096
    near: int = 0

    @property
    def mechanism(self) -> SubsetMechanism:
        """The law of the words."""
        return SubsetMechanism(dictionary_size=self.words, epsilon=self.epsilon, m=self.m)

    @property
    def epsilon_of_all(self) -> float:
        """Epsilon of all that leaves together, at `DELTA`."""
        return composed_epsilon({self.mechanism: self.features}, DELTA)


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Drift of a device's tracking from frame to frame: a turn in degrees, and a share of the way between them."""

    turn_deg: float
    share: float


@dataclass(frozen=True, kw_only=True)
class SequenceTrial:
    """Answer to one query. `photographs` are those that it shows, `right` how many of them have a right pose.

    `seconds` are those of the processor, of one thread; None for the first query of a process, which compiles code.
    """

    setting: SequenceSetting
    scene: str
    query: str
    kind: Kind
    photographs: int
    right: int
    accepted: bool
    log10_nfa: float | None
    seconds: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceStudy:
    """One map that leaves out neighboring photographs, and what it is asked with them.

    `limits` are the largest errors of a right pose: in units of the reference, and in degrees.
    """

    fold: Fold
    drift: Drift
    limits: tuple[float, float]
    words: int = 4096

    def true_trials(self, settings: Sequence[SequenceSetting]) -> Iterator[SequenceTrial]:
        """Each held-out photograph alone, or neighboring ones together, by what each setting asks."""
        world = self._world()
        for setting in settings:
            for names in groups(self.fold.held_out, setting.frames):
                features = [self.fold.place.features[name] for name in names]
                downs = [self.fold.place.down.get(name, LEVEL_DOWN) for name in names]
                yield self._trial(world, setting, "true", names, features, downs, self._motions(names))

    def false_trials(
        self, settings: Sequence[SequenceSetting], foreign: Mapping[str, Features], *, mirrored: bool
    ) -> Iterator[SequenceTrial]:
        """Sequences of photographs of other places, and of the place's own mirrored, each in one setting in turn."""
        world, sure = self._world(), {name: _sure(item) for name, item in foreign.items()}
        asked: list[tuple[Kind, tuple[str, ...]]] = []
        count = max(setting.frames for setting in settings)
        asked += [("foreign", names) for names in groups(tuple(sure), count)]
        if mirrored:
            asked += [("mirrored", names) for names in groups(tuple(sorted(self.fold.place.features)), count)]
        for index, (kind, names) in enumerate(asked):
            setting = settings[index % len(settings)]
            own = self.fold.place
            if kind == "foreign":
                features, downs = [sure[name] for name in names], [LEVEL_DOWN] * len(names)
                motions = self._motions(self.fold.held_out[: len(names)])
            else:
                features = [mirrored_features(own.features[name]) for name in names]
                downs = [own.down.get(name, LEVEL_DOWN) * [-1.0, 1.0, 1.0] for name in names]
                flip = np.diag([-1.0, 1.0, 1.0])
                motions = [
                    Rigid(rotation=flip @ one.rotation @ flip, translation=flip @ one.translation)
                    for one in self._motions(names)
                ]
            yield self._trial(world, setting, kind, names, features, downs, motions)

    def _world(self) -> tuple[Scene, Codebook, InvertedIndex]:
        fold = self.fold
        scene = replace(fold.scene, measured_down=mean_down(dict(fold.place.down), fold.scene.images))
        book = dictionary_of(mapped(fold), self.words, source=f"the map of {fold.place.name}")
        return scene, book, index_map(scene, book)

    def _motions(self, names: Sequence[str]) -> list[Rigid]:
        """Motions of photographs in units of the map: the reference's with drift that adds up from one to the next."""
        poses = [self.fold.place.cam_from_world[name] for name in names]
        random = np.random.default_rng([*f"drift {self.fold.place.name} {names}".encode()])
        motions = [Rigid(rotation=np.eye(3), translation=np.zeros(3))]
        for last, pose in pairwise(poses):
            step = pose @ last.inverse()
            way = self.drift.share * float(np.linalg.norm(step.translation))
            noise = Rigid(
                rotation=_turn(math.radians(self.drift.turn_deg) / math.sqrt(3) * random.normal(size=3)),
                translation=way / math.sqrt(3) * random.normal(size=3),
            )
            motions.append(noise @ step @ motions[-1])
        scale = self.fold.reference_from_map.scale
        return [Rigid(rotation=one.rotation, translation=one.translation / scale) for one in motions]

    def _near(self, name: str, count: int) -> list[str]:
        """Names of the mapped photographs nearest to one of the place; of others any, by name."""
        poses = self.fold.place.cam_from_world
        images = sorted(self.fold.scene.images)
        if name not in poses:
            return images[:count]
        return sorted(images, key=lambda other: float(np.linalg.norm(poses[other].center - poses[name].center)))[:count]

    def _trial(
        self,
        world: tuple[Scene, Codebook, InvertedIndex],
        setting: SequenceSetting,
        kind: Kind,
        names: Sequence[str],
        features: Sequence[Features],
        downs: Sequence[np.ndarray],
        motions: Sequence[Rigid],
    ) -> SequenceTrial:
        scene, book, index = world
        cases = [f"{kind} {self.fold.place.name} {name} {setting}" for name in names]
        uploads = sent(setting, features, motions, book, cases)
        gravity = [tilted(down, GRAVITY_SIGMA_DEG, case) for down, case in zip(downs, cases, strict=True)]
        near = self._near(names[0], setting.near) if setting.near else None
        started = time.thread_time()
        if len(uploads) == 1:
            answer = _asked_alone(uploads[0], scene, index, gravity[0], near)
            poses = [answer.cam_from_world] if isinstance(answer, Localization) else []
        else:
            frames, keypoints, form = joined(uploads, motions)
            answer = _asked_together(frames, keypoints, form, scene, index, gravity, near)
            told = answer_of_frames(answer, frames, 1.0).frames if isinstance(answer, Localization) else ()
            poses = [one.cam_from_world for one in told]
        seconds = time.thread_time() - started
        right = 0
        if kind == "true" and poses:
            for name, pose in zip(names, poses, strict=True):
                error = pose_error(pose, self.fold.place.cam_from_world[name], self.fold.reference_from_map)
                right += error[0] <= self.limits[0] and error[1] <= self.limits[1]
        return SequenceTrial(
            setting=setting,
            scene=self.fold.place.name,
            query=" ".join(names),
            kind=kind,
            photographs=len(names),
            right=right,
            accepted=bool(poses),
            log10_nfa=answer.log10_nfa if math.isfinite(answer.log10_nfa) else None,
            seconds=seconds,
        )


def _asked_alone(
    one: Upload, scene: Scene, index: InvertedIndex, gravity: np.ndarray, near: Sequence[str] | None
) -> Localization | NoPose:
    """The answer to one image in words, or of positions alone."""
    assert isinstance(one.form, Subsets)
    if one.form.mechanism.epsilon == 0:
        return localize_positions(one.camera, one.keypoints, scene, gravity=gravity, near=near or ())
    options = WordOptions(threads=1)
    return localize_words(one.camera, one.keypoints, one.form, scene, index, gravity=gravity, near=near, options=options)


def _asked_together(
    frames: Frames,
    keypoints: np.ndarray,
    form: Subsets,
    scene: Scene,
    index: InvertedIndex,
    gravity: Sequence[np.ndarray],
    near: Sequence[str] | None,
) -> Localization | NoPose:
    """The answer to several frames in words, or of positions alone, as the pose of the rig."""
    if form.mechanism.epsilon == 0:
        return localize_positions_of_frames(
            frames, keypoints, scene, gravity=gravity, near=near or (), options=PositionOptions()
        )
    options = WordOptions(threads=1)
    return localize_words_of_frames(frames, keypoints, form, scene, index, gravity=gravity, near=near, options=options)


def sent(
    setting: SequenceSetting, features: Sequence[Features], motions: Sequence[Rigid], book: Codebook, cases: Sequence[str]
) -> list[Upload]:
    """The words that leave of one image, or of the frames of a sequence, by the law of its setting."""
    if setting.sent == "one image":
        chosen, count = list(features), setting.features
    else:
        rows = rows_of_sequence(features, motions, setting.features, seeded(cases[0]))
        chosen, count = [one.take(own) for one, own in zip(features, rows, strict=True)], None
    uploads = []
    for one, case in zip(chosen, cases, strict=True):
        release = privatize_words(
            one,
            mechanism=setting.mechanism,
            dictionary=book,
            randomness=seeded(case),
            features_sent=count,
            allow_private_dictionary=True,  # mirrored photographs may be mapped ones
        )
        assert isinstance(release.upload, Upload)
        uploads.append(release.upload)
    return uploads


def joined(uploads: Sequence[Upload], motions: Sequence[Rigid]) -> tuple[Frames, np.ndarray, Subsets]:
    """The frames of a sequence, their keypoints and their words, as localization takes them."""
    frame_of = np.concatenate([np.full(len(one), frame, dtype=np.int64) for frame, one in enumerate(uploads)])
    frames = Frames(cameras=tuple(one.camera for one in uploads), cams_from_rig=tuple(motions), frame_of=frame_of)
    first = uploads[0].form
    assert isinstance(first, Subsets)
    ids = np.concatenate([one.form.ids for one in uploads if isinstance(one.form, Subsets)])
    return frames, np.concatenate([one.keypoints for one in uploads]), replace(first, ids=ids)


def groups(names: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """The names in groups of `size` in their order; a rest that is too small is left out."""
    return [tuple(names[start : start + size]) for start in range(0, len(names) - size + 1, size)]


def limits_of(metric: bool, extent: float) -> tuple[float, float]:
    """Largest errors of a right pose: 0.25 m, or 1 % of the extent where the reference has no scale, and 2 degrees."""
    position, degrees = next(iter((METRIC if metric else RELATIVE).values()))
    return position * (1.0 if metric else extent), degrees


def _turn(vector: np.ndarray) -> np.ndarray:
    """The rotation by a small vector in radians."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_rotvec(vector).as_matrix()


def _sure(features: Features) -> Features:
    """Features whose focal length counts as known: else another search would be asked, the one without gravity."""
    return replace(features, camera=replace(features.camera, focal=UNDISCLOSED))


@dataclass(frozen=True, kw_only=True)
class SequenceRow:
    """Results of one setting on one scene (or all: "all"): photographs with a right pose, and false answers."""

    scene: str
    setting: SequenceSetting
    queries: int
    photographs: int
    right: int
    accepted: int
    false_queries: int
    false_accepts: int
    least_false_log10_nfa: float | None
    median_seconds: float

    def as_json(self) -> dict:
        """The stable record of lab/reference/json.md."""
        setting = self.setting
        low, high = clopper_pearson(self.right, self.photographs, confidence=0.95) if self.photographs else (0.0, 1.0)
        return {
            "scene": self.scene,
            "sent": setting.sent,
            "frames": setting.frames,
            "features": setting.features,
            "epsilon": setting.epsilon,
            "m": setting.m,
            "words": setting.words,
            "near": setting.near,
            "epsilon_of_all": setting.epsilon_of_all,
            "queries": self.queries,
            "photographs": self.photographs,
            "right": self.right,
            "right_low": low,
            "right_high": high,
            "accepted": self.accepted,
            "false_queries": self.false_queries,
            "false_accepts": self.false_accepts,
            "least_false_log10_nfa": self.least_false_log10_nfa,
            "median_seconds": self.median_seconds,
        }


def sequence_row(trials: Sequence[SequenceTrial], scene: str) -> SequenceRow:
    """The row that sums up trials of one setting, of which there is one or more."""
    true, false = [item for item in trials if item.kind == "true"], [item for item in trials if item.kind != "true"]
    chances = [item.log10_nfa for item in false if item.log10_nfa is not None]
    return SequenceRow(
        scene=scene,
        setting=trials[0].setting,
        queries=len(true),
        photographs=sum(item.photographs for item in true),
        right=sum(item.right for item in true),
        accepted=sum(item.accepted for item in true),
        false_queries=len(false),
        false_accepts=sum(item.accepted for item in false),
        least_false_log10_nfa=min(chances) if chances else None,
        median_seconds=float(np.median([item.seconds for item in trials if item.seconds is not None] or [0.0])),
    )
