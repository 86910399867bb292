"""What localization answers to forged queries and their true counterparts, in five forms, and how often it is deceived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32

from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.forms import Lines, Subsets
from veil.geometry.robust.grouped import GroupedOptions
from veil.geometry.similarity import Similarity, align_poses, pose_error
from veil.ldp.mechanism import SubsetMechanism
from veil.localization.by_distance import Localization, LocalizeOptions, NoPose, correspondences, localize_matches
from veil.localization.by_words import WordOptions, localize_words
from veil.mapping import MapImage, NoMap, build_map
from veil.matching import match_pairs
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.matching.pairs import all_pairs
from veil.mechanisms.profile import hardened
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.randomness import seeded
from veil.scene import Scene, mean_down
from veil.statistics import clopper_pearson
from veil.studies.localization.acceptance_counts import RIGHT_DEG
from veil.studies.localization.false_acceptance import LEVEL, Fold, Place, fold_without
from veil.studies.localization.forged_queries import Asked, ForgedOptions
from veil.studies.localization.map_dictionaries import dictionary_of
from veil.wire.message import LineUpload, Message, Upload

FormName = Literal["subspaces, public map", "subspaces, private map", "lines+subspaces", "words", "words+lines"]
FORMS: tuple[FormName, ...] = get_args(FormName)
EPSILON, M, WORDS = 10.0, 2, 4096


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What localization said to one query in one form; errors in units of the reference and degrees."""

    place: str
    kind: str
    name: str
    true: bool
    form: FormName
    accepted: bool
    matches: int
    inliers: int
    log10_nfa: float
    position_error: float | None
    rotation_error_deg: float | None
    reason: str | None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "place": self.place,
            "kind": self.kind,
            "name": self.name,
            "true": self.true,
            "form": self.form,
            "accepted": self.accepted,
            "matches": self.matches,
            "inliers": self.inliers,
            "log10_nfa": self.log10_nfa,
            "position_error": self.position_error,
            "rotation_error_deg": self.rotation_error_deg,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Answerer:
    """A fold's map, public and private, with what answers queries in every form."""

    fold: Fold
    public: Scene
    private: Scene | None
    reference_from_private: Similarity | None
    dictionary: Codebook
    vocabulary: InvertedIndex
    codebook: Codebook
    decoys: Codebook
    options: ForgedOptions = field(default_factory=ForgedOptions)

    def answers(self, asked: Asked) -> Iterator[Answer]:
        """One for each form; the private map's only if there is one."""
        down = self.fold.place.down.get(asked.shows or "", LEVEL)
        for form in FORMS:
            if form == "subspaces, private map" and self.private is None:
                continue
            found = self._words(asked, form, down) if form.startswith("words") else self._subspaces(asked, form, down)
            errors = self._errors(asked, form, found)
            yield Answer(
                place=asked.place,
                kind=asked.kind,
                name=asked.name,
                true=asked.shows is not None,
                form=form,
                accepted=isinstance(found, Localization),
                matches=found.correspondences,
                inliers=found.inliers,
                log10_nfa=found.log10_nfa,
                position_error=errors[0] if errors else None,
                rotation_error_deg=errors[1] if errors else None,
                reason=found.reason if isinstance(found, NoPose) else None,
            )

    def _subspaces(self, asked: Asked, form: FormName, down: np.ndarray) -> Localization | NoPose:
        profile = hardened(quantized=asked.features.is_quantized)
        lines = HideInLines(gravity=down) if form == "lines+subspaces" else None
        randomness = seeded(f"forged {asked.place} {asked.kind} {asked.name}")
        upload = privatize(
            asked.features,
            profile=profile,
            compression=self.codebook.compression,
            decoys=self.decoys,
            randomness=randomness,
            lines=lines,
        ).upload
        scene = self.private if form == "subspaces, private map" else self.public
        assert scene is not None
        options = LocalizeOptions(workers=1)
        book = self.codebook if scene.is_public else None
        keypoint_rows, point_rows = correspondences(upload.form, scene, book, options)
        seen = _seen(upload)
        return localize_matches(
            upload.camera, seen, keypoint_rows, point_rows, scene.points, views=scene.views, options=options
        )

    def _words(self, asked: Asked, form: FormName, down: np.ndarray) -> Localization | NoPose:
        mechanism = SubsetMechanism(dictionary_size=len(self.dictionary), epsilon=EPSILON, m=M)
        lines = HideInLines(gravity=down) if form == "words+lines" else None
        randomness = seeded(f"forged {asked.place} {asked.kind} {asked.name}")
        upload = privatize_words(
            asked.features, mechanism=mechanism, dictionary=self.dictionary, randomness=randomness, lines=lines
        ).upload
        search = GroupedOptions(min_iterations=min(4000, self.options.iterations), max_iterations=self.options.iterations)
        options = WordOptions(search=search, threads=1)
        assert isinstance(upload.form, Subsets)
        return localize_words(upload.camera, _seen(upload), upload.form, self.public, self.vocabulary, options=options)

    def _errors(self, asked: Asked, form: FormName, found: Localization | NoPose) -> tuple[float, float] | None:
        aligned = self.reference_from_private if form == "subspaces, private map" else self.fold.reference_from_map
        if isinstance(found, NoPose) or asked.shows is None or aligned is None:
            return None
        return pose_error(found.cam_from_world, self.fold.place.cam_from_world[asked.shows], aligned)


def _seen(upload: Message) -> Float32[np.ndarray, "features 2"] | Lines:
    return upload.lines if isinstance(upload, LineUpload) else upload.keypoints


def answerer(place: Place, codebook: Codebook, decoys: Codebook, workdir: Path, options: ForgedOptions) -> Answerer:
    """The maps that leave every `hold_out`-th photograph out: COLMAP's of raw features, and of their subspaces.

    The dictionary is made from the mapped photographs. Raises InputError where the rest gives no map.
    """
    names = sorted(place.features)
    held_out = tuple(names[1 :: options.hold_out])
    kept = [name for name in names if name not in held_out]
    matches = match_pairs({name: publish(place.features[name]) for name in kept}, all_pairs(kept), workers=1)
    fold = fold_without(place, held_out, matches, workdir / "public")
    if fold is None:
        raise InputError(f"{place.name}: no map without {', '.join(held_out)}; give photographs with more overlap")
    public = replace(fold.scene, measured_down=mean_down(dict(place.down), fold.scene.images))
    images = {}
    for name in fold.scene.images:
        upload = privatize(
            place.features[name],
            profile=hardened(quantized=place.features[name].is_quantized),
            compression=codebook.compression,
            decoys=decoys,
            randomness=seeded(f"map {place.name} {name}"),
        ).upload
        assert isinstance(upload, Upload)
        images[name] = MapImage(camera=upload.camera, keypoints=upload.keypoints, form=upload.form)
    matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)), workers=1)
    (workdir / "private").mkdir(parents=True)
    built = build_map(images, matches, workdir=workdir / "private")
    private = None if isinstance(built, NoMap) or len(built.images) < 2 else built
    aligned = None
    if private is not None:
        ours = [image.cam_from_world for image in private.images.values()]
        aligned = align_poses(ours, [place.cam_from_world[name] for name in private.images])
    raw = [place.features[name] for name in fold.scene.images]
    words = min(WORDS, max(2, sum(map(len, raw)) // 3))
    dictionary = dictionary_of(raw, words, source=f"the map of {place.name}", seed=0)
    return Answerer(
        fold=fold,
        public=public,
        private=private,
        reference_from_private=aligned,
        dictionary=dictionary,
        vocabulary=index_map(public, dictionary),
        codebook=codebook,
        decoys=decoys,
        options=options,
    )


@dataclass(frozen=True, kw_only=True)
class Count:
    """Answers of one group ("all", a form, a place or a kind): how many were accepted, with an exact 95 % interval.

    `astray` counts accepted true queries whose pose is turned by more than `RIGHT_DEG`, `doubted` refused ones whose best pose
    is beyond chance.
    """

    true: bool
    group: str
    total: int
    accepted: int
    low: float
    high: float
    astray: int
    doubted: int

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "true": self.true,
            "group": self.group,
            "total": self.total,
            "accepted": self.accepted,
            "low": self.low,
            "high": self.high,
            "astray": self.astray,
            "doubted": self.doubted,
        }


def counted(answers: Sequence[Answer]) -> list[Count]:
    """Forged answers, then true ones: all of them, by form, by place, and by kind."""
    found = []
    for true in (False, True):
        own = [item for item in answers if item.true == true]
        groups: dict[str, list[Answer]] = {"all": own} if own else {}
        for group_of in (attrgetter("form"), attrgetter("place"), attrgetter("kind")):
            for item in own:
                groups.setdefault(group_of(item), []).append(item)
        found += [_count(true, group, items) for group, items in groups.items()]
    return found


def _count(true: bool, group: str, items: Sequence[Answer]) -> Count:
    accepted = sum(item.accepted for item in items)
    low, high = clopper_pearson(accepted, len(items), confidence=0.95)
    astray = sum(item.rotation_error_deg is not None and item.rotation_error_deg > RIGHT_DEG for item in items)
    doubted = sum(not item.accepted and beyond_chance(item.inliers, item.log10_nfa) for item in items)
    return Count(
        true=true, group=group, total=len(items), accepted=accepted, low=low, high=high, astray=astray, doubted=doubted
    )


def beyond_chance(inliers: int, log10_nfa: float) -> bool:
    """Whether the default options see more than chance in a pose."""
    options = LocalizeOptions()
    return inliers >= options.min_inliers and log10_nfa <= options.max_log10_nfa
