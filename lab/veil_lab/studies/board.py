"""Study of the board: any scene in every form, under one rule of which photographs are mapped and which are queries.

A hash of each photograph's name decides, so that nobody chooses. The others of a scene are mapped from raw features, which
makes the public map that queries are asked on, and from the releases of each form, which makes a private map. Queries are
released in each form and localized, and some of them attacked: alone, with the uploads of the nearest photographs, and with
those of near repeats if the scene has any. Where a scene has no reference cameras, the raw map of all its photographs is the
reference.
"""

from __future__ import annotations

import hashlib
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from veil.attacks.attack import Attack
from veil.attacks.registry import ATTACKS
from veil.audit.finding import Score, Share
from veil.audit.run import Examined, findings
from veil.codebooks.codebook import Codebook
from veil.device.doors import localize, map_images
from veil.errors import InputError, VeilError
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_centers, align_poses
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.public import publish
from veil.mechanisms.selection import Selection
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.maps import MapImage, NoMap
from veil.places.poses.answer import Localization, NoPose
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.randomness import Secret, memoized
from veil.scene import Scene
from veil.wire.message import Message
from veil_lab.studies.attacks.aligned_repeats import Alignment, aligned_attacks, alignment_of
from veil_lab.studies.attacks.form_releases import FormOptions, FormPools, FormScene, FormSetting
from veil_lab.studies.localization.answer_counts import AnswerCounts, counted, extent_of
from veil_lab.studies.localization.false_acceptance import Fold, ReferencePlace
from veil_lab.studies.mapping.reconstruction import distinctive, plain_map

BOARD_FORMS = (
    FormSetting(name="raw", descriptors="raw"),
    FormSetting(name="subspaces", descriptors="subspaces", selection=Selection()),
    FormSetting(name="subspaces, lines", descriptors="subspaces", selection=Selection(), lines=True),
    FormSetting(name="words, epsilon 10", descriptors="words", epsilon=10.0, gravity=False),
    FormSetting(name="words, epsilon 5, gravity", descriptors="words", epsilon=5.0),
    FormSetting(name="positions alone", descriptors="words", epsilon=0.0),
)
"""Forms of the board: the defaults of each, and words at an epsilon that localizes with and without gravity."""
COLMAP = "COLMAP, raw"
# Distance within which a descriptor counts as recovered, in parts of its length.
WITHIN = 0.2
# Queries of a scene that are attacked, further uploads beside the attacked one, and processor seconds of each run.
ATTACKED, OTHERS, RUN_SECONDS = 2, 4, 60.0
Made = TypeVar("Made")
Sent = Mapping[str, Message | Features]


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Reason why a part of a row holds no number."""

    reason: str

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {"not_run": self.reason}


@dataclass(frozen=True, kw_only=True)
class MapCounts:
    """A map of what was sent: number of images `registered`, beside `by_raw` that raw features register.

    `median_error` and `largest_error` are distances of its camera centers from the reference's after similarity alignment, as
    shares of the extent of the reference's cameras; None for fewer than three images in both. `seconds` are of the processor.
    """

    registered: int
    by_raw: int
    median_error: float | None
    largest_error: float | None
    seconds: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "registered": self.registered,
            "by_raw": self.by_raw,
            "median_error": self.median_error,
            "largest_error": self.largest_error,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Share of attacked descriptors that the best `attack` estimates within 0.2 of their length.

    `features` of `photographs` were attacked, each with at most `uploads` uploads, the attacked one among them. `named` is the
    largest share of words that an attack names right, None where no words are sent. A right word gives the descriptor to
    the size of its cell, which is mostly more than 0.2.
    """

    attack: str
    share: float
    features: int
    photographs: int
    uploads: int
    named: float | None = None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "share": self.share,
            "features": self.features,
            "photographs": self.photographs,
            "uploads": self.uploads,
            "named": self.named,
        }


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """One form of one scene.

    - `built`: the map of what is sent; `answers`: those of queries on the public map.
    - `one`, `five`, `near`: recovered descriptors with one upload, with those of the nearest photographs, with near repeats.
    - `upload_bytes`: mean size of a query's message; `query_seconds`: mean processor seconds of a query on the server.
    """

    form: str
    built: MapCounts | NotRun
    answers: AnswerCounts | NotRun
    one: Recovered | NotRun
    five: Recovered | NotRun
    near: Recovered | NotRun
    upload_bytes: float | None = None
    query_seconds: float | None = None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "form": self.form,
            "map": self.built.as_json(),
            "answers": self.answers.as_json(),
            "one_upload": self.one.as_json(),
            "five_uploads": self.five.as_json(),
            "near_repeats": self.near.as_json(),
            "upload_bytes": self.upload_bytes,
            "query_seconds": self.query_seconds,
        }


@dataclass(frozen=True, kw_only=True)
class BoardScene:
    """Facts of a scene and its rows, or the `reason` why it has none.

    - `photographs`: number that were taken, of which `mapped` are map images and `queries` are asked. Those of `unjudged`
      would be queries, but have no reference pose.
    - `has_reference`: whether the folder has reference cameras; else the raw map of all photographs is the reference.
    - `has_gravity`: whether gravity is known for each photograph.
    """

    scene: str
    photographs: int = 0
    mapped: int = 0
    queries: int = 0
    unjudged: int = 0
    has_reference: bool = False
    has_gravity: bool = False
    reason: str = ""
    rows: Sequence[BoardRow] = ()

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "scene": self.scene,
            "photographs": self.photographs,
            "mapped": self.mapped,
            "queries": self.queries,
            "unjudged": self.unjudged,
            "has_reference": self.has_reference,
            "has_gravity": self.has_gravity,
            "reason": self.reason,
            "rows": [row.as_json() for row in self.rows],
        }


@dataclass(frozen=True, kw_only=True)
class BoardOptions:
    """Options of the study: every `queries_every`-th photograph is a query, `features` of an attacked one are attacked.

    `seed` draws releases and attacked features; it has no say in which photographs are queries.
    """

    queries_every: int = 4
    features: int = 200
    seed: int = 0


def ranked(names: Iterable[str], most: int | None = None) -> list[str]:
    """At most `most` image names in the order of the SHA-256 of each (UTF-8), which nobody chooses."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:most]


def split(names: Iterable[str], every: int) -> tuple[list[str], list[str]]:
    """Image names of the map and of the queries: of the `ranked` ones every `every`-th is a query."""
    order = ranked(names)
    queries = order[every - 1 :: every]
    return [name for name in order if name not in queries], queries


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardStudy:
    """The study of any number of scenes: what the device, the server and the attacker have, and what is measured.

    - `dictionary`: public words of all releases in words.
    - `attacks`: those of one upload and of several; attacks on aligned near repeats join them.
    """

    pools: FormPools
    dictionary: Codebook
    settings: Sequence[FormSetting] = BOARD_FORMS
    options: BoardOptions = BoardOptions()
    attacks: Sequence[Attack] = ATTACKS

    def scene(self, place: ReferencePlace, *, progress: StepProgress = ignore_steps) -> BoardScene:
        """The rows of a scene: `place` has its photographs, reference poses if there are any, and gravity where it is known."""
        facts = BoardScene(
            scene=place.name,
            photographs=len(place.features),
            has_reference=bool(place.cam_from_world),
            has_gravity=_has_gravity(place),
        )
        count = StepCount(progress, 2 + len(self.settings))
        try:
            count.begin(f"{place.name}: mapping raw features")
            subject = Subject.of(place, self.options.queries_every)
            facts = replace(
                facts,
                mapped=len(subject.mapped),
                queries=len(subject.fold.held_out),
                unjudged=facts.photographs - len(subject.mapped) - len(subject.fold.held_out),
            )
            count.begin(f"{place.name}: {COLMAP}")
            rows = [colmap_row(subject)]
            released = self._released(subject.fold)
            for setting in self.settings:
                count.begin(f"{place.name}: {setting.name}")
                rows.append(self._row(setting, subject, released))
        except VeilError as error:
            return replace(facts, reason=error.cause)
        return replace(facts, rows=rows)

    def _released(self, fold: Fold) -> FormScene:
        key = hashlib.sha256(f"board {self.options.seed} {fold.place.name}".encode()).digest()
        options = FormOptions(
            photographs=ATTACKED,
            others=OTHERS,
            features=self.options.features,
            seconds=RUN_SECONDS,
            seed=self.options.seed,
        )
        return FormScene(fold=fold, pools=self.pools, options=options, words=self.dictionary, secret=memoized(Secret(key)))

    def _row(self, setting: FormSetting, subject: Subject, released: FormScene) -> BoardRow:
        if _needs_gravity(setting) and not _has_gravity(subject.fold.place):
            return _unknown(setting.name, "gravity is not known")
        queries = subject.fold.held_out
        try:
            sizes = [released.size(setting, name)[0] for name in queries]
            self._answer(setting, released, queries[0])  # compiles, and makes the map's index, which a server does once
            answers, seconds = timed(lambda: {name: self._answer(setting, released, name) for name in queries})
            one, five, near = self._recovered(setting, released)
            return BoardRow(
                form=setting.name,
                built=self._map(setting, subject, released),
                answers=counted(answers, subject.reference, subject.fold.reference_from_map),
                one=one,
                five=five,
                near=near,
                upload_bytes=float(np.mean(sizes)),
                query_seconds=seconds / len(queries),
            )
        except VeilError as error:
            return _unknown(setting.name, error.cause)

    def _answer(self, setting: FormSetting, released: FormScene, name: str) -> Localization | NoPose:
        """The public map's answer to one query. Positions alone are asked near the two nearest mapped photographs."""
        query = released.fold.place.features[name] if setting.descriptors == "raw" else released.released(setting, name)[0]
        near = released.scene_neighbors(name) if setting.epsilon == 0 else None
        return localize(query, released.where, codebook=self.pools.codebook, dictionary=self.dictionary, near=near)

    def _map(self, setting: FormSetting, subject: Subject, released: FormScene) -> MapCounts | NotRun:
        """The private map of what the mapped photographs send."""
        if setting.descriptors == "raw":
            return subject.counts(subject.poses, subject.seconds)
        if setting.epsilon == 0:
            return NotRun(reason="no map of positions alone")
        if setting.lines and not _has_gravity(subject.fold.place):
            return NotRun(reason="a map of lines needs gravity")
        sent: Sent = {name: released.released(setting, name)[0] for name in subject.mapped}
        try:
            built, seconds = timed(lambda: map_images(sent, options=MappingOptions(workers=1)))
        except VeilError as error:
            return NotRun(reason=f"no map: {error.cause}")
        return (
            NotRun(reason=f"no map: {built.reason}") if isinstance(built, NoMap) else subject.counts(poses_of(built), seconds)
        )

    def _recovered(self, setting: FormSetting, released: FormScene) -> Iterator[Recovered | NotRun]:
        """What attacks recover with one upload, with those of the nearest photographs, and with near repeats."""
        if setting.descriptors == "raw" or setting.epsilon == 0:
            reason = "all descriptors are sent" if setting.descriptors == "raw" else "no descriptors are sent"
            yield from [NotRun(reason=reason)] * 3
            return
        neighbors = {name: released.neighbors(name) for name in released.victims}
        for others in (dict.fromkeys(neighbors, ()), neighbors):
            examined = [released.attacked(setting, name, some, self.attacks) for name, some in others.items()]
            yield best(examined, 1 + max(map(len, others.values())))
        repeats = {name: repeats_of(released.fold.place, name, some) for name, some in neighbors.items()}
        repeats = {name: some for name, some in repeats.items() if some}
        if not repeats:
            yield NotRun(reason="no near repeats")
            return
        examined = [
            released.attacked(setting, name, list(some), (*self.attacks, *aligned_attacks(list(some.values()))))
            for name, some in repeats.items()
        ]
        yield best(examined, 1 + max(map(len, repeats.values())))


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A scene that is split, with its raw map.

    `mapped` are names of map images, and `seconds` processor seconds of their raw map, which `fold` holds with the queries
    that have a reference pose.
    """

    mapped: Sequence[str]
    fold: Fold
    seconds: float

    @staticmethod
    def of(place: ReferencePlace, every: int) -> Subject:
        """The scene of a place. Raises InputError where raw features give no map, or one that contradicts the reference."""
        mapped, queries = split(place.features, every)
        raw, seconds = timed(lambda: raw_map(place.features, mapped))
        if not place.cam_from_world:
            place = replace(place, cam_from_world=poses_of(raw_map(place.features, list(place.features))))
        asked = tuple(name for name in queries if name in place.cam_from_world)
        if not asked:
            raise InputError(f"no reference pose of any of the {len(queries)} queries among {len(place.features)} photographs")
        own = {name: pose for name, pose in poses_of(raw).items() if name in place.cam_from_world}
        aligned = align_poses(list(own.values()), [place.cam_from_world[name] for name in own])
        fold = Fold(place=place, held_out=asked, scene=raw.map.scene, reference_from_map=aligned)
        return Subject(mapped=mapped, fold=fold, seconds=seconds)

    @property
    def reference(self) -> Mapping[str, Rigid]:
        """Reference poses by image name."""
        return self.fold.place.cam_from_world

    @cached_property
    def poses(self) -> dict[str, Rigid]:
        """Poses of the raw map by image name."""
        return {name: image.cam_from_world for name, image in self.fold.scene.images.items()}

    def counts(self, poses: Mapping[str, Rigid], seconds: float) -> MapCounts:
        """Counts of a map with these poses by image name."""
        distances = map_errors(poses, self.reference)
        extent = extent_of(self.reference.values())
        return MapCounts(
            registered=len(poses),
            by_raw=len(self.poses),
            median_error=float(np.median(distances)) / extent if distances else None,
            largest_error=max(distances) / extent if distances else None,
            seconds=seconds,
        )


def raw_map(features: Mapping[str, Features], names: Sequence[str]) -> BuiltMap:
    """The map of raw features of some photographs. Raises InputError if there is none."""
    built = map_images({name: features[name] for name in names}, options=MappingOptions(workers=1))
    if isinstance(built, NoMap):
        raise InputError(f"no raw map of {len(names)} photographs: {built.reason}")
    return built


def colmap_row(subject: Subject) -> BoardRow:
    """The row of plain COLMAP on the raw features: its own verification and incremental mapping, and no queries."""

    def mapped() -> Scene | NoMap:
        features = {name: subject.fold.place.features[name] for name in subject.mapped}
        forms = {name: publish(item) for name, item in features.items()}
        images = {n: MapImage(camera=item.camera, keypoints=item.keypoints, form=forms[n]) for n, item in features.items()}
        matches = distinctive(match_pairs(forms, all_pairs(sorted(forms)), workers=1))
        with tempfile.TemporaryDirectory(prefix="veil-board-") as folder:
            return plain_map(images, matches, workdir=Path(folder))[0]

    row = _unknown(COLMAP, "COLMAP only maps here")
    scene, seconds = timed(mapped)
    if isinstance(scene, NoMap):
        return replace(row, built=NotRun(reason=f"no map: {scene.reason}"))
    return replace(row, built=subject.counts({n: image.cam_from_world for n, image in scene.images.items()}, seconds))


def repeats_of(place: ReferencePlace, name: str, others: Sequence[str]) -> dict[str, Alignment]:
    """Those of `others` that are near repeats of a photograph, each with the map from its pixels to those of the photograph."""
    found = {other: alignment_of(place.features[name], place.features[other]) for other in others}
    return {other: alignment for other, alignment in found.items() if alignment is not None}


def best(examined: Sequence[Sequence[Examined]], uploads: int) -> Recovered | NotRun:
    """The attack that recovers most descriptors of all photographs that it ran on; `examined` has the runs by photograph.

    Oracles do not count. An attack that ran on fewer photographs than another is not the best.
    """
    scores: dict[str, list[Score]] = {}
    for runs in examined:
        for finding in findings(runs):
            if finding.score is not None and finding.score.unit != "px" and not finding.hypothetical:
                scores.setdefault(finding.attack, []).append(finding.score)
    most = max(map(len, scores.values()), default=0)
    whole = {attack: parts for attack, parts in scores.items() if len(parts) == most}
    if not whole:
        return NotRun(reason="no attack could be run")
    shares = {attack: _pooled([score.within[WITHIN] for score in parts]) for attack, parts in whole.items()}
    named = [_pooled([score.recovered for score in parts]) for parts in whole.values() if parts[0].unit == "word"]
    attack = max(shares, key=lambda name: shares[name])
    return Recovered(
        attack=attack,
        share=shares[attack],
        features=sum(score.recovered.total for score in whole[attack]),
        photographs=most,
        uploads=uploads,
        named=max(named, default=None),
    )


def _pooled(shares: Sequence[Share]) -> float:
    """The share of the features of several photographs together."""
    return sum(share.count for share in shares) / sum(share.total for share in shares)


def map_errors(own: Mapping[str, Rigid], reference: Mapping[str, Rigid]) -> list[float]:
    """Distances of a map's camera centers from the reference's after similarity alignment, in the reference's unit.

    None at all for fewer than three images in both, or where the centers coincide.
    """
    names = sorted(own.keys() & reference.keys())
    try:
        aligned = align_centers([own[name] for name in names], [reference[name] for name in names])
    except InputError:
        return []
    return [float(np.linalg.norm(aligned.apply(own[name].center) - reference[name].center)) for name in names]


def poses_of(built: BuiltMap) -> dict[str, Rigid]:
    """Poses of the images of a map by name, cam_from_world."""
    return {name: image.cam_from_world for name, image in built.map.scene.images.items()}


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """The value of `make` and the processor seconds that it took."""
    begun = processor_seconds()
    made = make()
    return made, processor_seconds() - begun


def processor_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _has_gravity(place: ReferencePlace) -> bool:
    """Whether gravity is known for each photograph of a place."""
    return all(name in place.down for name in place.features)


def _needs_gravity(setting: FormSetting) -> bool:
    """Whether a form is nothing without gravity: words that come with it, and positions alone."""
    return setting.descriptors == "words" and setting.gravity


def _unknown(form: str, reason: str) -> BoardRow:
    """A row without numbers, for one reason."""
    why = NotRun(reason=reason)
    return BoardRow(form=form, built=why, answers=why, one=why, five=why, near=why)
