"""The study of the board: which photographs are queries, and counts of planted scenes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from veil.attacks.attack import attempted
from veil.attacks.registry import chosen, inapplicable
from veil.attacks.target import ReleasedImage
from veil.audit.finding import Finding, Score
from veil.audit.score import share
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.geometry.rigid import Rigid
from veil_lab.studies.attacks.aligned_repeats import alignment_of
from veil_lab.studies.attacks.form_releases import FormPools, FormSetting
from veil_lab.studies.board.recovery import SCORED, best, compares
from veil_lab.studies.board.rows import BoardOptions, BoardScene, MapCounts, NotRun, RecoveredShare
from veil_lab.studies.board.split import SplitScene, map_errors, ranked, split
from veil_lab.studies.board.study import BOARD_FORMS, COLMAP, BoardStudy
from veil_lab.studies.localization.answer_counts import AnswerCounts
from veil_lab.studies.localization.false_acceptance import ReferencePlace
from worlds import World, features, generator, sift_like, world

NAMES = [f"{number:03d}.jpg" for number in range(23)]
RAW = tuple(setting for setting in BOARD_FORMS if setting.name == "raw")
WORLD = world("board", images=8, points=300)


def test_a_hash_of_the_name_chooses_the_queries() -> None:
    """Second method: SHA-256 sorted by hand. The order of the names changes nothing, and every fourth is a query."""
    mapped, queries = split(NAMES, 4)
    by_hand = sorted((hashlib.sha256(name.encode()).hexdigest(), name) for name in NAMES)
    assert queries == [name for _, name in by_hand[3::4]] and sorted([*mapped, *queries]) == NAMES
    shuffled = generator("board names").permutation(NAMES).tolist()
    assert split(shuffled, 4) == (mapped, queries) and split(set(NAMES), 4) == (mapped, queries)
    assert ranked(shuffled, 5) == [name for _, name in by_hand[:5]]
    assert split(["a.jpg", "b.jpg"], 4)[1] == []


def test_which_photographs_are_queries_is_fixed() -> None:
    """Golden: boards of different days compare, also with those that others made."""
    assert split(NAMES[:9], 4)[1] == GOLDEN


GOLDEN = ["001.jpg", "008.jpg"]


def place_of(planted: World, poses: Mapping[str, Rigid] | None = None) -> ReferencePlace:
    """The planted world as photographs with these reference poses, by default those of the world; without gravity."""
    images = {
        key: Features(
            keypoints=planted.keypoints[key],
            descriptors=np.clip(np.round(512 * planted.form(key).vectors), 0, 255).astype(np.uint8),
            space=planted.form(key).space,
            camera=planted.camera,
            image_digest=hashlib.blake2b(f"board {key}".encode(), digest_size=32).digest(),
        )
        for key in planted.poses
    }
    return ReferencePlace(name="arc", features=images, cam_from_world=planted.poses if poses is None else poses, down={})


def pushed(pose: Rigid, distance: float) -> Rigid:
    """A camera that is moved by a distance along its vertical axis."""
    return replace(pose, translation=pose.translation + np.array([0.0, distance, 0.0]))


def measured(place: ReferencePlace, settings: Sequence[FormSetting] = RAW) -> BoardScene:
    """The scene's rows, with two quick attacks, one on descriptors and one on words."""
    study = BoardStudy(
        pools=FormPools.split(bundled_codebook(), bundled_decoys()),
        dictionary=bundled_codebook(),
        settings=settings,
        options=BoardOptions(queries_every=4, features=20),
        attacks=chosen(("inliers", "posterior")),
    )
    return study.scene(place)


def with_repeat(place: ReferencePlace, name: str, repeat: str) -> ReferencePlace:
    """The place with a near repeat of one photograph: its keypoints half a pixel off, from nearly the same pose."""
    item, pose, random = place.features[name], place.cam_from_world[name], generator("board repeat")
    shift = random.normal(scale=0.2, size=item.keypoints.shape)
    keypoints = np.clip(item.keypoints + shift, 0.1, [item.camera.width_px - 0.1, item.camera.height_px - 0.1])
    digest = hashlib.blake2b(repeat.encode(), digest_size=32).digest()
    taken = replace(item, keypoints=keypoints.astype(np.float32), image_digest=digest)
    return replace(
        place,
        features={**place.features, repeat: taken},
        cam_from_world={**place.cam_from_world, repeat: pushed(pose, 0.001)},
    )


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_subspaces_lines_and_words_are_measured_where_gravity_is_known() -> None:
    """Bounded on both sides: subspaces localize planted queries, and a near repeat is attacked."""
    query = split([*WORLD.poses, "repeat"], 4)[1][0]
    place = with_repeat(place_of(WORLD), query, "repeat")
    down = {name: pose.rotation @ np.array([0.0, 1.0, 0.0]) for name, pose in place.cam_from_world.items()}
    scene = measured(replace(place, down=down), BOARD_FORMS[1:4])
    assert scene.has_gravity and scene.reason == ""
    _, subspaces, lines, words = scene.rows
    assert [row.form for row in scene.rows[1:]] == [setting.name for setting in BOARD_FORMS[1:4]]
    for row in (subspaces, lines, words):
        assert isinstance(row.answers, AnswerCounts), row
        assert row.upload_bytes is not None and row.query_seconds is not None
    assert isinstance(subspaces.answers, AnswerCounts) and subspaces.answers.localized == 2
    assert isinstance(subspaces.built, MapCounts) and subspaces.built.registered >= 3
    for row in (subspaces, lines, words):
        for part, most in ((row.one, 1), (row.five, 5), (row.near, 5)):
            assert isinstance(part, RecoveredShare) and part.uploads <= most and part.photographs <= 2, (row.form, part)
    assert isinstance(words.near, RecoveredShare) and words.near.photographs == 1 and words.near.uploads == 2
    assert isinstance(words.one, RecoveredShare) and words.one.named is not None and words.near.named is not None
    assert 0.1 < words.one.named < words.near.named < 0.9
    assert isinstance(subspaces.one, RecoveredShare) and subspaces.one.named is None


def crowded(place: ReferencePlace, count: int = 1000) -> ReferencePlace:
    """The place with larger features in front, 14 px apart: in each photograph `count` others, so that none has a match."""
    random, images = generator("board crowd"), {}
    for name, item in place.features.items():
        across, down = np.meshgrid(np.arange(4, 640, 14), np.arange(4, 480, 14))
        grid = np.stack([across.ravel(), down.ravel()], axis=1)
        images[name] = replace(
            item,
            keypoints=np.concatenate([item.keypoints, random.permutation(grid)[:count]]).astype(np.float32),
            descriptors=np.concatenate([item.descriptors, sift_like(random, count)]),
            scales=np.repeat([2.0, 9.0], [len(item), count]).astype(np.float32),
        )
    return replace(place, features=images)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_mapped_photographs_leave_as_one_folder_and_queries_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: a planted crowd of large features, which fills the usual selection. The device's own map uses none of it.

    So the private map is whole, and no query is localized. Broken twin: releases one by one give no map.
    """
    place = crowded(place_of(WORLD))
    subject = SplitScene.of(place, 4)
    assert len(subject.mapped) == 6
    for name in subject.mapped:
        seen = set(map(tuple, subject.raw.map.scene.images[name].keypoints.tolist()))
        left = set(map(tuple, place.features[name].keypoints[subject.chosen[name].rows].tolist()))
        assert left <= seen and len(left) > 50
    row = measured(place, BOARD_FORMS[1:2]).rows[1]
    assert isinstance(row.built, MapCounts) and (row.built.registered, row.built.by_raw) == (6, 6)
    assert isinstance(row.answers, AnswerCounts) and (row.answers.localized, row.answers.wrong) == (0, 0)
    monkeypatch.setattr(SplitScene, "chosen", {})
    built = measured(place, BOARD_FORMS[1:2]).rows[1].built
    assert isinstance(built, NotRun) and built.reason.startswith("no map: ")


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_planted_scene_is_counted_right() -> None:
    """Oracle: the planted poses. The reference of one query is planted a tenth of the extent off, so that its answer is wrong.

    Its region does not hold that reference, and other counts stay.
    """
    right = measured(place_of(WORLD))
    assert (right.mapped, right.queries, right.unjudged, right.reason) == (6, 2, 0, "")
    colmap, raw = right.rows
    assert colmap.form == COLMAP and isinstance(colmap.built, MapCounts) and isinstance(colmap.answers, NotRun)
    assert colmap.built.registered == colmap.built.by_raw == 6
    assert isinstance(raw.built, MapCounts) and raw.built.median_error is not None and raw.built.median_error < 0.01
    assert isinstance(raw.answers, AnswerCounts)
    assert (raw.answers.queries, raw.answers.localized, raw.answers.wrong, raw.answers.regions) == (2, 2, 0, 2)
    assert raw.answers.median_error is not None and raw.answers.median_error < 0.01
    query = split(WORLD.poses, 4)[1][0]
    moved = {**WORLD.poses, query: pushed(WORLD.poses[query], 0.6)}
    answers = measured(place_of(WORLD, moved)).rows[1].answers
    assert isinstance(answers, AnswerCounts)
    assert (answers.queries, answers.localized, answers.wrong, answers.regions) == (2, 1, 1, 2)
    assert answers.covered <= raw.answers.covered and answers.covered <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_without_reference_cameras_the_raw_map_of_all_is_the_reference() -> None:
    """Special case: the same features give the same map, so that its queries are right. Gravity is not there."""
    with_gravity = tuple(setting for setting in BOARD_FORMS if setting.name in ("positions alone", "words, epsilon 5, gravity"))
    scene = measured(place_of(WORLD, {}), (*RAW, *with_gravity))
    assert not scene.has_reference and not scene.has_gravity and scene.reason == ""
    _, raw, *others = scene.rows
    assert isinstance(raw.answers, AnswerCounts) and (raw.answers.localized, raw.answers.wrong) == (2, 0)
    assert [row.answers for row in others] == [NotRun(reason="gravity is not known")] * 2


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_scene_that_cannot_be_measured_says_why() -> None:
    """Planted failures: photographs of nothing in common, and a reference that knows none of the queries."""
    random = generator("strangers")
    strangers = {name: features(random, 60, name=name) for name in NAMES[:5]}
    apart = measured(ReferencePlace(name="apart", features=strangers, cam_from_world={}, down={}))
    assert apart.rows == () and apart.reason.startswith("no raw map of 4 photographs: ")
    mapped, queries = split(WORLD.poses, 4)
    unknown = measured(place_of(WORLD, {name: WORLD.poses[name] for name in mapped}))
    assert (
        unknown.rows == () and unknown.reason == f"no reference pose of any of the {len(queries)} queries among 8 photographs"
    )


class Uploads(Mapping[str, ReleasedImage]):
    """Other uploads, of which every look is counted."""

    def __init__(self, images: Mapping[str, ReleasedImage]) -> None:
        self.images, self.looks = images, 0

    def __getitem__(self, name: str) -> ReleasedImage:
        self.looks += 1
        return self.images[name]

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return iter(self.images)

    def __len__(self) -> int:
        self.looks += 1
        return len(self.images)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("setting", BOARD_FORMS[1:4], ids=lambda setting: setting.name)
def test_attacks_that_run_once_look_at_no_other_upload(setting: FormSetting) -> None:
    """Second method: other uploads that count looks. Broken twin: the attacks that compare uploads do look."""
    place = place_of(WORLD)
    study = BoardStudy(
        pools=FormPools.split(bundled_codebook(), bundled_decoys()),
        dictionary=bundled_codebook(),
        options=BoardOptions(features=2),
    )
    released = study.released(SplitScene.of(place, 4))
    name, *others = sorted(place.features)
    target = released.target(setting, name, others[:2])
    for attack in SCORED:
        if not inapplicable(attack, target.image) and attack.name != "matched candidates":  # it begins with what networks say
            uploads = Uploads(target.knowledge.others)
            attempted(attack, replace(target, knowledge=replace(target.knowledge, others=uploads)))
            assert bool(uploads.looks) == compares(attack), attack.name


def finding(attack: str, unit: Literal["descriptor", "px", "word"], hits: int, total: int, *, named: int = 0) -> Finding:
    """A finding of which `hits` of `total` features are within 0.2, and `named` words are right."""
    score = Score(
        unit=unit,
        recovered=share(named, total),
        exact=None,
        within={0.2: share(hits, total)} if unit != "px" else {},
        mean_distance=None,
        median_distance=None,
        identified=None,
        false_certificates=0,
        errors=np.zeros(total),
    )
    return Finding(attack=attack, family="distribution", assumes="", features=total, score=score)


def test_the_best_attack_is_that_of_all_photographs() -> None:
    """By hand: an oracle, an attack on positions, and one that ran on one photograph of two or on few features never count."""
    one = [
        finding("context", "descriptor", 30, 50),
        finding("modes", "descriptor", 20, 50),
        finding("once", "descriptor", 50, 50),
    ]
    two = [
        finding("context", "descriptor", 10, 50),
        finding("modes", "descriptor", 21, 50),
        finding("line density", "px", 50, 50),
        replace(finding("oracle", "descriptor", 50, 50), hypothetical=True),
        Finding(attack="lattice", family="structural", assumes="", skipped="planted"),
    ]
    assert best([one, two], 5) == RecoveredShare(attack="modes", share=0.41, features=100, photographs=2, uploads=5)
    words = [finding("posterior", "word", 1, 100, named=45), finding("votes", "word", 2, 100, named=40)]
    assert best([words], 1) == RecoveredShare(attack="votes", share=0.02, features=100, photographs=1, uploads=1, named=0.45)
    assert best([two[2:3]], 1) == NotRun(reason="no attack could be run")
    hurried = finding("lattice", "descriptor", 9, 9)
    by_modes = RecoveredShare(attack="modes", share=0.01, features=100, photographs=1, uploads=1)
    assert best([[finding("modes", "descriptor", 1, 100), hurried]], 1) == by_modes


def test_errors_of_a_map_are_those_after_alignment() -> None:
    """Oracle: a planted map of twice the size is exact; one camera that is moved across is off, and two cameras say nothing."""
    doubled = {name: replace(pose, translation=2 * pose.translation) for name, pose in WORLD.poses.items()}
    assert max(map_errors(doubled, WORLD.poses)) < 1e-9
    moved = {**doubled, "03": pushed(doubled["03"], 1.0)}
    assert np.argmax(map_errors(moved, WORLD.poses)) == 3 and max(map_errors(moved, WORLD.poses)) > 0.2
    assert map_errors({name: doubled[name] for name in ("00", "01")}, WORLD.poses) == []


def test_near_repeats_are_those_that_an_affine_map_leads_onto_each_other() -> None:
    """Oracle: a planted affine map comes back; the same descriptors at other places, or other ones, are no near repeat."""
    random = generator("near repeats")
    photograph = features(random, 200, name="photograph")
    affine = np.array([[1.01, 0.02, -4.0], [-0.02, 0.99, 3.0]])
    places = (photograph.keypoints - affine[:, 2]) @ np.linalg.inv(affine[:, :2]).T
    noisy = (places + random.normal(scale=0.3, size=places.shape)).astype(np.float32)
    repeat = replace(photograph, keypoints=noisy)
    alignment = alignment_of(photograph, repeat)
    assert alignment is not None and np.abs(alignment - affine).max() < 0.5
    assert alignment_of(photograph, replace(photograph, keypoints=random.permutation(photograph.keypoints))) is None
    other = replace(photograph, descriptors=sift_like(random, 200).astype(np.uint8))
    assert alignment_of(photograph, other) is None
    assert alignment_of(photograph.take(np.arange(20)), repeat) is None
