"""Answers of localization to forged queries and their true counterparts, in five forms, and counts of the accepted ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32

from veil.audit.statistics import clopper_pearson
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.forms import Lines, Subsets
from veil.geometry.similarity import Similarity, align_poses, pose_error
from veil.ldp.mechanism import SubsetMechanism
from veil.matching import match_pairs
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.matching.pairs import all_pairs
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.places.maps import MapImage, NoMap, build_map
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import correspondences, localize_matches
from veil.places.poses.by_words import localize_words
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.randomness import seeded
from veil.scene import Scene, mean_down, views_of
from veil.wire.message import LineUpload, Message, Upload
from veil_lab.studies.localization.acceptance_counts import RIGHT_DEG
from veil_lab.studies.localization.false_acceptance import LEVEL_DOWN, Fold, ReferencePlace, fold_without
from veil_lab.studies.localization.forged_queries import ForgedOptions, ForgedQuery
from veil_lab.studies.localization.map_dictionaries import dictionary_of

FormName = Literal["subspaces, public map", "subspaces, private map", "lines+subspaces", "words", "words+lines"]
FORMS: tuple[FormName, ...] = get_args(FormName)
EPSILON, M, WORDS = 10.0, 2, 4096  # of a query in words: epsilon of a feature, words sent for it, words of the dictionary


@dataclass(frozen=True, kw_only=True)
class ForgedAnswer:
    """Answer of localization to one query in one form; `true` is False for forgeries.

    Errors are in units of the reference and in degrees; None without a pose or for a forgery. `reason` says why a query was
    refused.
    """

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
class FormLocalizer:
    """Public and private map of one place without its held-out photographs, with all that localizes queries in every form.

    `private` is None where subspaces gave no map. `reference_from_private` aligns it with the reference, as the fold's
    `reference_from_map` does the public map. `dictionary` and `vocabulary` (its index of the public map) are those of queries
    in words.
    """

    fold: Fold
    public: Scene
    private: Scene | None
    reference_from_private: Similarity | None
    dictionary: Codebook
    vocabulary: InvertedIndex
    codebook: Codebook
    decoys: Codebook
    options: ForgedOptions = field(default_factory=ForgedOptions)

    def answers(self, query: ForgedQuery) -> Iterator[ForgedAnswer]:
        """Answers to one query, one for each form; that of the private map only if there is one."""
        down = self.fold.place.down.get(query.shows or "", LEVEL_DOWN)
        for form in FORMS:
            if form == "subspaces, private map" and self.private is None:
                continue
            result = self._words(query, form, down) if form.startswith("words") else self._subspaces(query, form, down)
            errors = self._errors(query, form, result)
            yield ForgedAnswer(
                place=query.place,
                kind=query.kind,
                name=query.name,
                true=query.shows is not None,
                form=form,
                accepted=isinstance(result, Localization),
                matches=result.correspondences,
                inliers=result.inliers,
                log10_nfa=result.log10_nfa,
                position_error=errors[0] if errors else None,
                rotation_error_deg=errors[1] if errors else None,
                reason=result.reason if isinstance(result, NoPose) else None,
            )

    def _subspaces(self, query: ForgedQuery, form: FormName, down: np.ndarray) -> Localization | NoPose:
        """Localization of a query that is sent in subspaces, with its positions or with lines, against the map of `form`."""
        profile = Profile.hardened(quantized=query.features.is_quantized)
        lines = HideInLines(gravity=down) if form == "lines+subspaces" else None
        randomness = seeded(f"forged {query.place} {query.kind} {query.name}")
        upload = privatize(
            query.features,
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
        positions = _positions(upload)
        return localize_matches(
            upload.camera, positions, keypoint_rows, point_rows, scene.points, views=views_of(scene), options=options
        )

    def _words(self, query: ForgedQuery, form: FormName, down: np.ndarray) -> Localization | NoPose:
        """Localization of a query that is sent in words, with its positions or with lines, against the public map."""
        mechanism = SubsetMechanism(dictionary_size=len(self.dictionary), epsilon=EPSILON, m=M)
        lines = HideInLines(gravity=down) if form == "words+lines" else None
        randomness = seeded(f"forged {query.place} {query.kind} {query.name}")
        upload = privatize_words(
            query.features, mechanism=mechanism, dictionary=self.dictionary, randomness=randomness, lines=lines
        ).upload
        most = self.options.iterations
        options = WordOptions(min_iterations=min(4000, most), max_iterations=most, threads=1)
        assert isinstance(upload.form, Subsets)
        return localize_words(upload.camera, _positions(upload), upload.form, self.public, self.vocabulary, options=options)

    def _errors(self, query: ForgedQuery, form: FormName, result: Localization | NoPose) -> tuple[float, float] | None:
        """Position error (units of the reference) and rotation error (degrees); None without a pose or a true one."""
        alignment = self.reference_from_private if form == "subspaces, private map" else self.fold.reference_from_map
        if isinstance(result, NoPose) or query.shows is None or alignment is None:
            return None
        return pose_error(result.cam_from_world, self.fold.place.cam_from_world[query.shows], alignment)


def _positions(upload: Message) -> Float32[np.ndarray, "features 2"] | Lines:
    """Keypoints of a message, or its lines where it hides them."""
    return upload.lines if isinstance(upload, LineUpload) else upload.keypoints


def form_localizer(
    place: ReferencePlace, codebook: Codebook, decoys: Codebook, workdir: Path, options: ForgedOptions
) -> FormLocalizer:
    """A localizer with two COLMAP maps without every `hold_out`-th photograph: of raw features, and of their subspaces.

    `codebook` and `decoys` are those of the hardened profile; the dictionary is made from the mapped photographs. `workdir`
    takes COLMAP's files. Raises InputError where the remaining photographs give no map of raw features.
    """
    names = sorted(place.features)
    held_out = tuple(names[1 :: options.hold_out])
    mapped = [name for name in names if name not in held_out]
    matches = match_pairs({name: publish(place.features[name]) for name in mapped}, all_pairs(mapped), workers=1)
    fold = fold_without(place, held_out, matches, workdir / "public")
    if fold is None:
        raise InputError(f"{place.name}: no map without {', '.join(held_out)}; give photographs with more overlap")
    public = replace(fold.scene, measured_down=mean_down(dict(place.down), fold.scene.images))
    images = {}
    for name in fold.scene.images:
        upload = privatize(
            place.features[name],
            profile=Profile.hardened(quantized=place.features[name].is_quantized),
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
    alignment = None
    if private is not None:
        poses = [image.cam_from_world for image in private.images.values()]
        alignment = align_poses(poses, [place.cam_from_world[name] for name in private.images])
    raw = [place.features[name] for name in fold.scene.images]
    words = min(WORDS, max(2, sum(map(len, raw)) // 3))
    dictionary = dictionary_of(raw, words, source=f"the map of {place.name}", seed=0)
    return FormLocalizer(
        fold=fold,
        public=public,
        private=private,
        reference_from_private=alignment,
        dictionary=dictionary,
        vocabulary=index_map(public, dictionary),
        codebook=codebook,
        decoys=decoys,
        options=options,
    )


@dataclass(frozen=True, kw_only=True)
class GroupCount:
    """How many queries of one group ("all", a form, a place or a kind) were accepted, with an exact 95 % interval.

    `astray` counts accepted true queries whose rotation error is more than `RIGHT_DEG`, `doubted` refused queries whose best
    pose is beyond chance all the same.
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


def group_counts(answers: Sequence[ForgedAnswer]) -> list[GroupCount]:
    """Counts of forged queries, then of true ones: of all together, by form, by place, and by kind."""
    counts = []
    for true in (False, True):
        own = [item for item in answers if item.true == true]
        groups: dict[str, list[ForgedAnswer]] = {"all": own} if own else {}
        for group_of in (attrgetter("form"), attrgetter("place"), attrgetter("kind")):
            for item in own:
                groups.setdefault(group_of(item), []).append(item)
        counts += [_count(true, group, items) for group, items in groups.items()]
    return counts


def _count(true: bool, group: str, items: Sequence[ForgedAnswer]) -> GroupCount:
    """The count of one group."""
    accepted = sum(item.accepted for item in items)
    low, high = clopper_pearson(accepted, len(items), confidence=0.95)
    astray = sum(item.rotation_error_deg is not None and item.rotation_error_deg > RIGHT_DEG for item in items)
    doubted = sum(not item.accepted and beyond_chance(item.inliers, item.log10_nfa) for item in items)
    return GroupCount(
        true=true, group=group, total=len(items), accepted=accepted, low=low, high=high, astray=astray, doubted=doubted
    )


def beyond_chance(inliers: int, log10_nfa: float) -> bool:
    """Whether a pose with this number of inliers and this log10 NFA passes both thresholds of the default options."""
    options = LocalizeOptions()
    return inliers >= options.min_inliers and log10_nfa <= options.max_log10_nfa
