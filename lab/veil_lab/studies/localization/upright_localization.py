"""Localization of held-out queries in words with keypoints and gravity, at small epsilons of the image.

The protocol is that of `veil_lab.studies.localization.word_localization`: maps of the photographs that are not held out, and
dictionaries of the map's own photographs. Gravity is the reference's, tilted about a random axis. No answer but a refusal is
right for photographs of other places, and for mirrored photographs of the place: their words are right, and no camera has seen
them.

Plans of releases in words are searched by localizing with them: what arithmetic cannot know is measured. Every plan spends at
most the epsilon of the image that is asked for (`veil.ldp.planning`). All are tried on the photographs that a first map leaves
out, and the better third on those of the other maps (successive halving, Jamieson and Talwalkar 2016), so that most time goes
to plans that are worth it. Theory: release.md#plans-that-were-tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.audit.statistics import clopper_pearson
from veil.codebooks.codebook import Codebook
from veil.device.protection import usual_words
from veil.errors import InputError
from veil.features import Features
from veil.geometry.camera import UNDISCLOSED
from veil.geometry.similarity import pose_error
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.planning import ReleasePlan
from veil.matching.inverted_index import index_map
from veil.mechanisms.release import privatize_words
from veil.places.poses.answer import Localization
from veil.places.poses.by_words import localize_words
from veil.places.poses.options import WordOptions
from veil.progress import Progress
from veil.randomness import seeded
from veil.scene import mean_down
from veil_lab.studies.localization.false_acceptance import LEVEL_DOWN, Fold
from veil_lab.studies.localization.map_dictionaries import dictionary_of, mapped
from veil_lab.studies.localization.word_localization_settings import METRIC, RELATIVE

DELTA = 1e-6
Kind = Literal["true", "foreign", "mirrored"]


@dataclass(frozen=True, kw_only=True)
class UprightSetting:
    """Content of a query, and knowledge of its place.

    `features` features are sent as `m` of `words` words each, under `epsilon` a feature, with gravity off by |N(0, s)| degrees,
    s = `gravity_sigma_deg`. The `near` nearest images of the map are known, or none where it is 0. Words are those
    of the `bundled` dictionary, or of one made from the mapped photographs.
    """

    features: int
    epsilon: float
    m: int = 2
    words: int = 4096
    gravity_sigma_deg: float = 0.5
    near: int = 0
    bundled: bool = False

    @property
    def mechanism(self) -> SubsetMechanism:
        """The law of the words."""
        return SubsetMechanism(dictionary_size=self.words, epsilon=self.epsilon, m=self.m)

    @property
    def epsilon_image(self) -> float:
        """Epsilon of all features of an image together, at `DELTA`."""
        return composed_epsilon({self.mechanism: self.features}, DELTA)


@dataclass(frozen=True, kw_only=True)
class UprightTrial:
    """Answer to one query. Errors, in units of the reference and degrees, are None without a pose or for a false query.

    `seconds` are those of the processor, of one thread; None for the first query of a process, which compiles code.
    """

    setting: UprightSetting
    scene: str
    query: str
    kind: Kind
    accepted: bool
    log10_nfa: float | None
    position: float | None
    rotation_deg: float | None
    seconds: float | None


def run_upright(
    fold: Fold,
    settings: Sequence[UprightSetting],
    foreign: Mapping[str, Features],
    *,
    mirrored: bool,
    true: bool = True,
    options: WordOptions | None = None,
    progress: Progress | None = None,
) -> Iterator[UprightTrial]:
    """Trials of a fold's held-out photographs in every setting, and of false queries, each in one setting in turn.

    - `foreign`: photographs of other places, by name.
    - `mirrored`: whether each photograph of the place, mapped or held out, is also asked mirrored.
    - `true`: whether held-out photographs are asked as they are.
    - `options`: of localization, on one thread.
    """
    options = replace(options or WordOptions(), threads=1)
    scene = replace(fold.scene, measured_down=mean_down(dict(fold.place.down), fold.scene.images))
    books = {key: _dictionary(fold, *key) for key in sizes(settings)}
    vocabularies = {key: index_map(scene, book) for key, book in books.items()}
    queries: list[tuple[UprightSetting, str, Features, np.ndarray, Kind]] = []
    if true:
        for setting in settings:
            for name in fold.held_out:
                queries.append((setting, name, fold.place.features[name], fold.place.down.get(name, LEVEL_DOWN), "true"))
    # A guessed focal length counts as known: else another search would be asked, the one without gravity.
    sure = {name: replace(item, camera=replace(item.camera, focal=UNDISCLOSED)) for name, item in foreign.items()}
    false: list[tuple[str, Features, np.ndarray, Kind]] = [(name, item, LEVEL_DOWN, "foreign") for name, item in sure.items()]
    if mirrored:
        for name, item in fold.place.features.items():
            down = fold.place.down.get(name, LEVEL_DOWN) * [-1.0, 1.0, 1.0]
            false.append((name, mirrored_features(item), down, "mirrored"))
    queries += [(settings[index % len(settings)], *query) for index, query in enumerate(false)]
    for done, (setting, name, features, down, kind) in enumerate(queries, start=1):
        case = f"{kind} {fold.place.name} {name} {setting}"
        upload = privatize_words(
            features,
            mechanism=setting.mechanism,
            dictionary=books[setting.words, setting.bundled],
            randomness=seeded(case),
            features_sent=setting.features,
            allow_private_dictionary=True,  # mirrored photographs may be mapped ones
        ).upload
        assert hasattr(upload, "keypoints")
        near = _near(fold, name, setting.near, case) if setting.near else None
        started = time.thread_time()
        answer = localize_words(
            upload.camera,
            upload.keypoints,
            upload.form,  # type: ignore[arg-type]
            scene,
            vocabularies[setting.words, setting.bundled],
            gravity=tilted(down, setting.gravity_sigma_deg, case),
            near=near,
            options=options,
        )
        seconds = time.thread_time() - started
        position = rotation = None
        if kind == "true" and isinstance(answer, Localization):
            reference = fold.place.cam_from_world[name]
            position, rotation = pose_error(answer.cam_from_world, reference, fold.reference_from_map)
        yield UprightTrial(
            setting=setting,
            scene=fold.place.name,
            query=name,
            kind=kind,
            accepted=isinstance(answer, Localization),
            log10_nfa=answer.log10_nfa if math.isfinite(answer.log10_nfa) else None,
            position=position,
            rotation_deg=rotation,
            seconds=None if done == 1 else seconds,
        )
        if progress is not None:
            progress(done, len(queries))


def sizes(settings: Sequence[UprightSetting]) -> list[tuple[int, bool]]:
    """Sizes of the settings' dictionaries, and whether they are bundled ones, each once."""
    return sorted({(setting.words, setting.bundled) for setting in settings})


def _dictionary(fold: Fold, words: int, bundled: bool) -> Codebook:
    """The bundled dictionary, or one of the mapped photographs."""
    return (
        usual_words(mapped(fold)[0].space.descriptor).book
        if bundled
        else dictionary_of(mapped(fold), words, source=f"the map of {fold.place.name}")
    )


def _near(fold: Fold, name: str, count: int, case: str) -> list[str]:
    """Names of the `count` mapped photographs that the reference places nearest to a photograph of the place.

    A foreign photograph is nowhere near: for it they are drawn by the name of the case.
    """
    poses = fold.place.cam_from_world
    if name not in poses:
        return np.random.default_rng([*case.encode()]).permutation(sorted(fold.scene.images))[:count].tolist()
    distance = {other: float(np.linalg.norm(poses[other].center - poses[name].center)) for other in fold.scene.images}
    return sorted(distance, key=lambda other: distance[other])[:count]


def mirrored_features(features: Features) -> Features:
    """Features of the photograph's mirror image, with descriptors as they were: no camera can have seen the place so."""
    keypoints = features.keypoints.copy()
    keypoints[:, 0] = np.float32(features.camera.width_px) - keypoints[:, 0]
    return replace(features, keypoints=keypoints)


def tilted(down: Float64[np.ndarray, "3"], sigma_deg: float, case: str) -> Float64[np.ndarray, "3"]:
    """Gravity turned by |N(0, sigma)| degrees about a random axis at right angles to it, drawn by the name of the case."""
    random = np.random.default_rng([*case.encode()])
    axis = np.cross(random.normal(size=3), down)
    axis /= np.linalg.norm(axis)
    angle = math.radians(abs(random.normal()) * sigma_deg)
    return down * math.cos(angle) + np.cross(axis, down) * math.sin(angle)


@dataclass(frozen=True, kw_only=True)
class UprightRow:
    """Results of one setting on one scene (or all: "all").

    `right` true queries are accepted within 0.25 m, or 1 % of the extent where the reference has no scale, and 2 degrees;
    `accepted` are all that got a pose. `astray` poses are turned by more than five degrees. `false_accepts` of `false_queries`
    got a pose. Seconds are of the processor, on one thread.
    """

    scene: str
    setting: UprightSetting
    queries: int
    right: int
    accepted: int
    astray: int
    false_queries: int
    false_accepts: int
    least_false_log10_nfa: float | None
    median_seconds: float
    most_seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        setting = self.setting
        low, high = clopper_pearson(self.right, self.queries, confidence=0.95) if self.queries else (0.0, 1.0)
        return {
            "scene": self.scene,
            "features": setting.features,
            "epsilon": setting.epsilon,
            "m": setting.m,
            "words": setting.words,
            "gravity_sigma_deg": setting.gravity_sigma_deg,
            "near": setting.near,
            "epsilon_image": setting.epsilon_image,
            "queries": self.queries,
            "right": self.right,
            "right_low": low,
            "right_high": high,
            "accepted": self.accepted,
            "astray": self.astray,
            "false_queries": self.false_queries,
            "false_accepts": self.false_accepts,
            "least_false_log10_nfa": self.least_false_log10_nfa,
            "median_seconds": self.median_seconds,
            "most_seconds": self.most_seconds,
        }


def upright_row(
    trials: Sequence[UprightTrial], scene: str, metric: Mapping[str, bool], extent: Mapping[str, float]
) -> UprightRow:
    """The row that sums up trials of one setting.

    `metric` and `extent` say by scene whether the reference is in meters, and how far apart its cameras are. Raises InputError
    without a trial.
    """
    if not trials:
        raise InputError("a row needs at least one query")
    true, false = [item for item in trials if item.kind == "true"], [item for item in trials if item.kind != "true"]
    right = 0
    for item in true:
        position, degrees = next(iter((METRIC if metric[item.scene] else RELATIVE).values()))
        limit = position * (1.0 if metric[item.scene] else extent[item.scene])
        close = item.position is not None and item.position <= limit
        right += close and item.rotation_deg is not None and item.rotation_deg <= degrees
    chances = [item.log10_nfa for item in false if item.log10_nfa is not None]
    seconds = [item.seconds for item in trials if item.seconds is not None] or [0.0]
    return UprightRow(
        scene=scene,
        setting=trials[0].setting,
        queries=len(true),
        right=right,
        accepted=sum(item.accepted for item in true),
        astray=sum(item.rotation_deg is not None and item.rotation_deg > 5 for item in true),
        false_queries=len(false),
        false_accepts=sum(item.accepted for item in false),
        least_false_log10_nfa=min(chances) if chances else None,
        median_seconds=float(np.median(seconds)),
        most_seconds=max(seconds),
    )


# Share of the plans that go on after the first map, as one in a number, and the least number of them.
ONE_IN, LEAST = 3, 4


@dataclass(frozen=True, kw_only=True)
class TriedPlan:
    """A plan with what became of it: `row` sums up its queries; `finished` tells whether all photographs were asked."""

    plan: ReleasePlan
    row: UprightRow
    finished: bool

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "words": self.plan.mechanism.dictionary_size,
            "m": self.plan.mechanism.m,
            "features": self.plan.features,
            "epsilon": self.plan.mechanism.epsilon,
            "image_epsilon": self.plan.image_epsilon,
            "queries": self.row.queries,
            "right": self.row.right,
            "accepted": self.row.accepted,
            "astray": self.row.astray,
            "median_seconds": self.row.median_seconds,
            "finished": self.finished,
        }


def setting_of(plan: ReleasePlan, *, gravity_sigma_deg: float) -> UprightSetting:
    """The plan as a setting of the study of queries with gravity."""
    law = plan.mechanism
    return UprightSetting(
        features=plan.features,
        epsilon=law.epsilon,
        m=law.m,
        words=law.dictionary_size,
        gravity_sigma_deg=gravity_sigma_deg,
    )


def search_plans(
    plans: Sequence[ReleasePlan],
    ask: Callable[[Sequence[UprightSetting], int], Sequence[UprightTrial]],
    *,
    folds: int,
    gravity_sigma_deg: float,
    metric: Mapping[str, bool],
    extent: Mapping[str, float],
) -> list[TriedPlan]:
    """Plans with their results, the best first: those that were asked everything, by share of right poses, then by time.

    - `ask`: trials of the settings with the photographs that map `index` leaves out; each setting is asked at least one.
    - `folds`: number of maps. `metric` and `extent` are those of `upright_row`.

    Raises InputError without a plan or a map.
    """
    if not plans or folds < 1:
        raise InputError("a search among plans needs at least one plan and one map")
    settings = {setting_of(plan, gravity_sigma_deg=gravity_sigma_deg): plan for plan in plans}
    trials: dict[UprightSetting, list[UprightTrial]] = {setting: [] for setting in settings}

    def rows(of: Sequence[UprightSetting]) -> list[UprightRow]:
        summaries = [upright_row(trials[setting], "all", metric, extent) for setting in of]
        return sorted(summaries, key=lambda row: (-row.right / row.queries, row.median_seconds, row.setting.features))

    going = list(settings)
    for index in range(folds):
        if index == 1:
            going = [row.setting for row in rows(going)[: max(LEAST, -(-len(going) // ONE_IN))]]
        for trial in ask(going, index):
            trials[trial.setting].append(trial)
    dropped = [setting for setting in settings if setting not in going]
    return [
        TriedPlan(plan=settings[row.setting], row=row, finished=finished)
        for part, finished in ((going, True), (dropped, False))
        for row in rows(part)
    ]
