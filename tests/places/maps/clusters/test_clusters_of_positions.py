"""Maps by clusters recover planted cameras, and give several models with a reason where a place falls apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.geometry.camera import FROM_EXIF
from veil.geometry.similarity import align_centers, pose_error
from veil.places.maps import MapOptions, NoMap, build_map
from veil.places.maps.clusters import joined_maps, of_positions
from veil.places.maps.clusters.joined_maps import ClusteredMap
from veil.places.maps.clusters.of_positions import ClusterTask, map_in_clusters
from veil.places.maps.clusters.view_graph import Cluster, ClusterOptions
from veil.scene import Scene
from worlds.map_scenes import CHECK
from worlds.streets import Street, street

OPTIONS = MapOptions(max_ratio=0.9)
Task = Callable[[ClusterTask], "Scene | NoMap"]


def backwards(task: Task, items: Sequence[ClusterTask]) -> Iterator[tuple[int, Scene | NoMap]]:
    """Results in another order than that of the items, as engines may give them."""
    for position in reversed(range(len(items))):
        yield position, task(items[position])


def largest_error_m(scene: Scene, place: Street) -> float:
    """Largest error of the positions after alignment."""
    names = sorted(scene.images)
    aligned = align_centers([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    return max(pose_error(scene.images[n].cam_from_world, place.poses[n], aligned)[0] for n in names)


@pytest.mark.slow
def test_a_street_is_mapped_by_clusters(tmp_path: Path) -> None:
    """Oracle: planted poses, and planted points through their observations: none stands twice for one feature."""
    place = street(0, 26, points_each=90, closed=False)
    calls: list[tuple[int, int]] = []
    answer = map_in_clusters(
        place.images,
        place.matches,
        workdir=tmp_path,
        options=OPTIONS,
        clusters=ClusterOptions(size=14, overlap=0.5),
        run_all=backwards,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert isinstance(answer, ClusteredMap)
    assert len(answer.clusters) >= 2
    assert calls == [(k + 1, len(answer.clusters)) for k in range(len(answer.clusters))]
    assert len(answer.maps) == 1 and len(answer.maps[0].images) == 26
    assert largest_error_m(answer.maps[0], place) < 0.15
    assert answer.maps[0].check is not None and answer.maps[0].check.explained_pairs >= 0.98 * answer.maps[0].check.pairs
    for image in answer.maps[0].images.values():
        assert len(np.unique(image.keypoints, axis=0)) == len(image.keypoints)


def two_places() -> tuple[Street, Street, dict, dict]:
    """Two streets that share nothing, and their images and matches together; the second's names begin with x."""
    first, second = (street(seed, count, closed=False) for seed, count in ((0, 16), (1, 12)))
    images = {**first.images, **{f"x{name}": image for name, image in second.images.items()}}
    matches = {**first.matches, **{(f"x{a}", f"x{b}"): rows for (a, b), rows in second.matches.items()}}
    return first, second, images, matches


def renamed(scene: Scene) -> Scene:
    """The second street's map by the street's own names."""
    return replace(scene, images={name.removeprefix("x"): image for name, image in scene.images.items()})


@pytest.mark.slow
def test_few_images_of_two_places_give_two_maps(tmp_path: Path) -> None:
    """Oracle: planted poses. Nothing is said to be left out that the second map has; once cut, one map remains."""
    first, second, images, matches = two_places()
    answer = map_in_clusters(images, matches, workdir=tmp_path, options=OPTIONS, clusters=ClusterOptions(size=50))
    assert isinstance(answer, ClusteredMap) and len(answer.maps) == 2
    assert set(answer.maps[0].images) <= set(first.images) and len(answer.maps[0].images) >= 15
    assert len(answer.maps[1].images) == 12
    assert largest_error_m(answer.maps[0], first) < 0.15 and largest_error_m(renamed(answer.maps[1]), second) < 0.15
    assert any("none of the images of model 2 (12) could be added" in reason for reason in answer.reasons)
    assert answer.maps[0].check is not None
    assert set(answer.maps[0].check.left_out) == set(first.images) - set(answer.maps[0].images)


@pytest.mark.slow
def test_a_refused_map_does_not_take_other_places_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of all images is refused, and so is that of the first place: that of the second stays, with the reason."""
    _, second, images, matches = two_places()
    real = of_positions.build_map

    def refusing(images: dict, matches: dict, **more: object) -> Scene | NoMap:
        return real(images, matches, **more) if len(images) == 12 else NoMap("it cannot be trusted", {}, CHECK)  # type: ignore[arg-type]

    monkeypatch.setattr(of_positions, "build_map", refusing)
    answer = map_in_clusters(images, matches, workdir=tmp_path, options=OPTIONS, clusters=ClusterOptions(size=50))
    assert isinstance(answer, ClusteredMap) and len(answer.maps) == 1
    assert largest_error_m(renamed(answer.maps[0]), second) < 0.15
    assert sum("cannot be trusted" in reason for reason in answer.reasons) == 2
    monkeypatch.setattr(of_positions, "build_map", lambda *_, **__: NoMap("it cannot be trusted", {}, answer.maps[0].check))
    (tmp_path / "again").mkdir()
    alone = map_in_clusters(
        second.images, second.matches, workdir=tmp_path / "again", options=OPTIONS, clusters=ClusterOptions(size=50)
    )
    assert isinstance(alone, NoMap) and alone.reason == "it cannot be trusted"


def test_fewer_than_two_images_are_refused(tmp_path: Path) -> None:
    """Oracle: the statement."""
    with pytest.raises(InputError, match="two images"):
        map_in_clusters({}, {}, workdir=tmp_path)


@pytest.mark.slow
def test_unverified_pairs_give_no_map(tmp_path: Path) -> None:
    """Oracle: matches that are all accidents."""
    place = street(0, 8, outliers=1.0)
    answer = map_in_clusters(
        place.images, place.matches, workdir=tmp_path, options=OPTIONS, clusters=ClusterOptions(size=4, least_shared=2)
    )
    assert isinstance(answer, NoMap)
    assert "verified" in answer.reason


@pytest.mark.slow
def test_the_global_mapper_finds_the_planted_cameras(tmp_path: Path) -> None:
    """Oracle: planted poses; cameras of known focal length keep it."""
    place = street(0, 16, points_each=90, closed=False)
    scene = build_map(place.images, place.matches, workdir=tmp_path, options=MapOptions(max_ratio=0.9, global_mapper=True))
    assert isinstance(scene, Scene)
    assert len(scene.images) == 16
    assert largest_error_m(scene, place) < 0.15
    assert {image.camera.params for image in scene.images.values()} == {place.images["00000.jpg"].camera.params}


@pytest.mark.slow
def test_what_a_cluster_leaves_is_mapped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places in one cluster, of which a mapper maps one alone: the other is mapped in the next round, and it is said."""
    first, second, images, matches = two_places()
    monkeypatch.setattr(joined_maps, "overlapping_clusters", lambda graph, _: [Cluster(core=frozenset(graph.names))])
    answer = map_in_clusters(images, matches, workdir=tmp_path, options=OPTIONS, clusters=ClusterOptions(size=20))
    assert isinstance(answer, ClusteredMap) and len(answer.maps) == 2
    assert largest_error_m(answer.maps[0], first) < 0.15 and largest_error_m(renamed(answer.maps[1]), second) < 0.15
    assert any("no pair of images joins model 2 (12 images)" in reason for reason in answer.reasons)


@pytest.mark.slow
def test_a_joined_map_is_asked_for_doubtful_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted answer: one image of the joined map is doubtful. It is left out with the reason, and the map is checked anew.

    Broken twin: where too few images are not doubtful, there is no map.
    """
    place = street(0, 26, points_each=90, closed=False)
    wrong = sorted(place.images)[3]
    for name, planted in (("one", {wrong}), ("most", set(sorted(place.images)[:25]))):

        def doubted(scene: Scene, *_: object, planted: set[str] = planted) -> dict[str, str]:
            return dict.fromkeys(planted & set(scene.images), "planted")

        monkeypatch.setattr(of_positions, "doubtful_images", doubted)
        (tmp_path / name).mkdir()
        clusters = ClusterOptions(size=14, overlap=0.5)
        answer = map_in_clusters(
            place.images, place.matches, workdir=tmp_path / name, options=OPTIONS, clusters=clusters, run_all=backwards
        )
        if name == "most":
            told = answer.reason if isinstance(answer, NoMap) else "; ".join(answer.reasons)
            assert "cannot be trusted" in told and "planted" in told
            continue
        assert isinstance(answer, ClusteredMap)
        (scene,) = answer.maps
        assert set(scene.images) == set(place.images) - {wrong} and largest_error_m(scene, place) < 0.15
        assert scene.check is not None and scene.check.left_out[wrong] == "planted"


@pytest.mark.slow
def test_a_wrong_focal_length_is_named_where_clusters_are_joined(tmp_path: Path) -> None:
    """Oracle: planted poses and focal length; all images claim 1.4 times as much, as EXIF of another lens would."""
    place = street(0, 26, points_each=90, closed=False)
    right = next(iter(place.images.values())).camera
    focal = tuple(1.4 * value for value in right.params[: right.focal_count])
    wrong = replace(right, params=(*focal, *right.params[right.focal_count :]), focal=FROM_EXIF)
    answer = map_in_clusters(
        {name: image.with_camera(wrong) for name, image in place.images.items()},
        place.matches,
        workdir=tmp_path,
        options=OPTIONS,
        clusters=ClusterOptions(size=14, overlap=0.5),
    )
    assert isinstance(answer, ClusteredMap) and len(answer.clusters) >= 2
    (scene,) = answer.maps
    assert len(scene.images) >= 24 and largest_error_m(scene, place) < 0.3
    assert scene.check is not None
    (claim,) = scene.check.contradicted_focals
    assert claim.images == len(scene.images) and claim.given_px == pytest.approx(1.4 * right.focal_px)
    assert claim.refined_px == pytest.approx(right.focal_px, rel=0.02)
