"""A facade that stands in the map twice: the copy's pose is not given, whichever of both the first images show."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from veil.errors import RangeError
from veil.forms import Points
from veil.matching.point_index import RankedImages, ranked_images
from veil.matching.point_indexing import index_points
from veil.places.poses import judge as rival_poses
from veil.places.poses import search as ranked_search
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize
from veil.places.poses.evidence import COIN, PoseEvidence, ShownPoints, coin, covisible
from veil.places.poses.options import LocalizeOptions
from veil.places.poses.search import MatchedImages
from veil.progress import Progress
from veil.scene import Scene
from worlds import generator, sift_like, unit
from worlds.copied_places import COUNT, LEFT_TO_RIGHT, OTHERS, QUERY, SPACE, WORLD, City

WORDS = unit(sift_like(generator("words of copies"), 200)).astype(np.float32)
ALONE = LocalizeOptions(retrieved=(10,), compared=0)
COMPARED = LocalizeOptions(retrieved=(10,))


def answer_of(city: City, options: LocalizeOptions, ranked: RankedImages | list[str] | None = None) -> Localization | NoPose:
    """The answer to a query of the first place; by default all images of the copy rank before those of the place."""
    scene = city.scene
    names = ranked or sorted(scene.images)  # "copy" stands before "other", and that before "own"
    return localize(WORLD.camera, WORLD.keypoints[QUERY], WORLD.form(QUERY), scene, ranked=names, options=options)


def index_of(scene: Scene) -> RankedImages:
    """The images of a map as its index ranks them for the query."""
    forms = {name: (image.form, image.point_rows) for name, image in scene.images.items()}
    return ranked_images(index_points(forms, WORDS, len(scene.points)), WORLD.form(QUERY))  # type: ignore[arg-type]


def off(answer: Localization | NoPose) -> float:
    """Distance of a pose from the query's true one."""
    assert isinstance(answer, Localization), answer
    return float(np.linalg.norm(answer.cam_from_world.center - WORLD.poses[QUERY].center))


@pytest.mark.slow
def test_a_copy_in_the_first_images_is_refused() -> None:
    """Planted truth. Broken twin: without the comparison, as it was once, the answer is the copy's pose, 40 units aside."""
    city = City(alike=COUNT, own_images=4)
    assert off(answer_of(city, ALONE)) == pytest.approx(40, abs=0.1)
    refused = answer_of(city, COMPARED)
    assert isinstance(refused, NoPose) and "two p" in refused.reason and "of 16 images" in refused.reason


def test_a_place_that_the_map_hardly_knows_rivals_its_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: three images know two fifths of the place. Broken twin: the copy has clearly more inliers if all are counted."""
    city = City(alike=COUNT, own_images=3, own_share=0.4)
    assert isinstance(answer_of(city, COMPARED), NoPose)
    monkeypatch.setattr(rival_poses, "counted", lambda matched, own, other, *_: len(np.setdiff1d(own.rows, other.rows)))
    assert off(answer_of(city, COMPARED)) == pytest.approx(40, abs=0.1)


@pytest.mark.slow
def test_a_copy_is_refused_though_another_copy_is_clearly_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the other copy, half of which looks different, ranks before the place. Broken twin: one rival is compared."""
    city = City(alike=COUNT, alike_third=COUNT // 2, own_images=4)
    assert isinstance(answer_of(city, COMPARED), NoPose)
    rivals = ranked_search.rivals
    monkeypatch.setattr(ranked_search, "rivals", lambda *given, **more: replace(rivals(*given, **more), worse=[]))
    assert off(answer_of(city, COMPARED)) == pytest.approx(40, abs=0.1)


@pytest.mark.slow
def test_where_there_are_copies_ten_images_that_show_none_do_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten images of elsewhere stand before those of the query's own place. Broken twin: the search ends there."""
    city = City(alike=COUNT, alike_third=COUNT // 2, strangers=10)
    ranked = [
        name for kind in ("copy", "other", "strange", "own") for name in sorted(city.scene.images) if name.startswith(kind)
    ]
    assert isinstance(answer_of(city, COMPARED, ranked), NoPose)
    monkeypatch.setattr(ranked_search, "EMPTY", 1)
    assert off(answer_of(city, COMPARED, ranked)) == pytest.approx(40, abs=0.1)


@pytest.mark.slow
def test_all_copies_among_the_matched_images_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all images of all three places are matched at once. Broken twin: only the strongest rival is compared."""
    city = City(alike=COUNT, alike_third=COUNT // 2, own_images=3, own_share=0.4)
    everything = LocalizeOptions(retrieved=(40,), compared=0)
    assert isinstance(answer_of(city, everything), NoPose)
    may_hold, asked = rival_poses._may_hold, []

    def once(*given: Any) -> bool:
        asked.append(given)
        return len(asked) < 2 and may_hold(*given)

    monkeypatch.setattr(rival_poses, "_may_hold", once)
    assert off(answer_of(city, everything)) == pytest.approx(40, abs=0.1)


def test_what_the_map_knows_around_a_rival_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the first image of a copy ends where it differs. Broken twin: nothing is asked for, and the place is refused."""
    scene = City(alike=COUNT // 2).scene
    first = scene.images[f"copy {OTHERS[5]}"]
    left = np.isin(first.point_rows - COUNT, LEFT_TO_RIGHT[: COUNT // 2])
    form = Points(vectors=first.form.vectors[left], space=SPACE)  # type: ignore[union-attr]
    part = replace(first, name="part", keypoints=first.keypoints[left], point_rows=first.point_rows[left], form=form)
    scene = replace(scene, images={**scene.images, "part": part})
    names = sorted(scene.images, reverse=True)
    names.remove("part")
    names.insert(12, "part")  # after all images of the place
    few = LocalizeOptions(retrieved=(10,), compared=1)

    def answer() -> Localization | NoPose:
        return localize(WORLD.camera, WORLD.keypoints[QUERY], WORLD.form(QUERY), scene, ranked=names, options=few)

    assert off(answer()) < 0.02
    monkeypatch.setattr(ranked_search.RankedSearch, "_around", lambda *_: [])
    assert isinstance(answer(), NoPose)


def test_a_place_of_which_the_first_image_shows_little_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the image elsewhere shows 30 features, all around it the like of the copy. Broken twin: 30 are too few."""
    scene = City(alike=COUNT).scene
    first = scene.images[f"own {OTHERS[5]}"]
    some = np.linspace(0, len(first.point_rows) - 1, 30).astype(int)
    form = Points(vectors=first.form.vectors[some], space=SPACE)  # type: ignore[union-attr]
    part = replace(first, name="part", keypoints=first.keypoints[some], point_rows=first.point_rows[some], form=form)
    scene = replace(scene, images={**scene.images, "part": part})
    names = sorted(scene.images, key=lambda name: ("copy", "part", "own").index(name.split()[0]))
    few = LocalizeOptions(retrieved=(10,), compared=1)

    def answer() -> Localization | NoPose:
        return localize(WORLD.camera, WORLD.keypoints[QUERY], WORLD.form(QUERY), scene, ranked=names[:13], options=few)

    assert isinstance(answer(), NoPose)
    rivals = ranked_search.rivals

    def of_forty(contest: Any, pose: Any, limits: LocalizeOptions, **more: Any) -> rival_poses.Rivals:
        return rivals(contest, pose, replace(limits, min_inliers=40), **more)

    monkeypatch.setattr(ranked_search, "rivals", of_forty)
    assert off(answer()) == pytest.approx(40, abs=0.1)


@pytest.mark.slow
def test_of_many_copies_none_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: nine lesser copies among all images. With room for five of them there is no pose; with room for all there is."""
    city = City(alike=0, lesser=9)
    everything = LocalizeOptions(retrieved=(60,))
    assert off(answer_of(city, everything)) < 0.02
    for module in (rival_poses, ranked_search):
        monkeypatch.setattr(module, "MOST_RIVALS", 5)
    assert isinstance(answer_of(city, everything), NoPose)


@pytest.mark.slow
def test_no_query_is_compared_with_images_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: nine places of two images that look alike in a third. All are compared; or none is told from the rest."""
    city = City(alike=0, lesser=9)
    names = sorted(city.scene.images, key=lambda name: ("own", "place", "copy").index(name.split()[0]))
    few = LocalizeOptions(retrieved=(10,), compared=4)
    looked_at: list[int] = []
    match = MatchedImages.match

    def counted(self: MatchedImages, names: list[str], progress: Progress | None = None) -> None:
        match(self, names, progress)
        looked_at.append(len(self.examined))

    monkeypatch.setattr(MatchedImages, "match", counted)
    assert off(answer_of(city, few, ranked=names)) < 0.02
    assert looked_at[-1] >= 10 + 18
    monkeypatch.setattr(ranked_search, "MOST_COMPARED", 3)
    looked_at.clear()
    refused = answer_of(city, few, ranked=names)
    assert isinstance(refused, NoPose) and "12 more images of the map were not enough" in refused.reason
    assert looked_at[-1] == 10 + 12


def test_a_camera_is_taken_to_see_what_images_show_that_observe_its_inliers() -> None:
    """By hand: of ten inliers, one image observes two, one observes one, one observes none."""
    observed = [np.array([0, 1, 20]), np.array([9, 21]), np.array([22, 23])]
    assert covisible(np.arange(10), observed, 24) == [True, True, False]
    assert covisible(np.arange(11), observed, 24) == [True, False, False]


@pytest.mark.usefixtures("unchecked")
def test_features_that_two_poses_explain_say_nothing() -> None:
    """By hand: 20 features have a point at both places, 14 at the first alone. Broken twin: ties count."""
    matched: Any = SimpleNamespace(
        keypoint_rows=np.r_[np.arange(34), np.arange(20)], point_rows=np.r_[np.arange(34), 100 + np.arange(20)]
    )
    first, second = PoseEvidence(rows=np.arange(34), log10_nfa=-9.0), PoseEvidence(rows=np.arange(34, 54), log10_nfa=-9.0)
    places = np.column_stack([np.r_[np.arange(20.0), 500 + np.arange(14.0)], np.zeros(34)])
    here, there = (ShownPoints(point_rows=start + np.arange(34), xy=places) for start in (0, 100))
    assert rival_poses.clearly_better(matched, first, second, here, there)
    assert not rival_poses.clearly_better(matched, second, first, there, here)
    assert coin(14, 0) < COIN < coin(34, 20)


@pytest.mark.slow
def test_what_surrounds_a_place_tells_it_from_its_copy() -> None:
    """Planted: the right third of the place looks different at the copy. The copy ranks first; and the place does."""
    city = City(alike=2 * COUNT // 3)
    assert off(answer_of(city, ALONE)) == pytest.approx(40, abs=0.1)
    assert off(answer_of(city, COMPARED)) < 0.02
    assert off(answer_of(city, COMPARED, ranked=sorted(city.scene.images, reverse=True))) < 0.02


def test_places_without_a_copy_keep_their_answer() -> None:
    """Second method: the answer without the comparison, to the last bit; the images of another place were matched, too."""
    city = City(alike=0)
    names = sorted(city.scene.images, reverse=True)
    alone, compared = answer_of(city, ALONE, ranked=names), answer_of(city, COMPARED, ranked=names)
    assert isinstance(alone, Localization) and isinstance(compared, Localization)
    np.testing.assert_array_equal(alone.cam_from_world.rotation, compared.cam_from_world.rotation)
    np.testing.assert_array_equal(alone.point_rows, compared.point_rows)


def test_the_index_names_images_that_look_alike_elsewhere() -> None:
    """Planted: of what the pose at one place does not explain, the other place's images come first, and all of them."""
    city = City(alike=COUNT, own_images=4)
    scene = city.scene
    ranked = index_of(scene)
    place = ranked.point_rows // COUNT
    for explained in (0, 1):
        shown = np.arange(0, COUNT, 3) + explained * COUNT
        names = ranked.elsewhere(place == explained, shown, lambda one, other: one // COUNT == other // COUNT)
        expected = {name for name in scene.images if name.startswith(("own", "copy")[1 - explained])}
        assert set(names[: len(expected)]) == expected
    # Broken twin: if nothing is explained, both places are named.
    everything = ranked.elsewhere(np.zeros(len(place), dtype=bool), np.empty(0, dtype=np.int64), np.equal)
    assert everything == ranked.names and {name.split()[0] for name in everything} == {"own", "copy"}


def test_points_that_look_like_points_of_the_map_get_their_votes() -> None:
    """Planted: every point has one copy; nearly all votes are for the point itself or for its copy, and most copies get one."""
    scene = City(alike=COUNT).scene
    index = index_of(scene).index
    asked = np.arange(0, COUNT, 2)
    rows, near, ratios = index.alike(asked)
    rows, near = rows[ratios <= 0.4], near[ratios <= 0.4]
    assert (near % COUNT == asked[rows]).mean() > 0.98
    assert len(np.unique(near[near >= COUNT])) > 0.5 * len(asked)


@pytest.mark.slow
def test_images_that_an_index_ranks_are_compared() -> None:
    """Planted truth, from votes: the copy is refused, and a place that looks different around keeps its pose."""
    for alike, options, right in ((COUNT, ALONE, None), (COUNT, COMPARED, False), (COUNT // 2, COMPARED, True)):
        city = City(alike=alike, own_images=4)
        answer = answer_of(city, options, ranked=index_of(city.scene))
        assert isinstance(answer, NoPose) if right is False else right is None or off(answer) < 0.02


def test_a_number_of_images_below_zero_is_refused() -> None:
    with pytest.raises(RangeError, match="compared"):
        LocalizeOptions(compared=-1)
