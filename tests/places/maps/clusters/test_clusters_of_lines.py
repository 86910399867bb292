"""Maps of many images from lines, by clusters: planted cameras, parts that do not join, and what is kept of a killed run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError, Remedy
from veil.files.maps.cluster_results import OF_LINES, ClusterResults
from veil.geometry.similarity import align_centers, pose_error
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.kept_clusters import keeping, line_cluster_key
from veil.places.line_mapping import map_lines
from veil.places.maps import NoMap
from veil.places.maps.clusters import of_lines
from veil.places.maps.clusters.joined_maps import ClusteredMap, RunAll, one_after_another
from veil.places.maps.clusters.of_lines import LineClusterTask, map_lines_in_clusters, piece_of_lines, shared_tracks
from veil.places.maps.clusters.view_graph import ClusterOptions
from veil.places.maps.lines import LineMap, LineView, MatchGraph
from veil.places.maps.lines.registration import LineMapOptions
from veil.places.maps.lines.tracks import Tracks
from veil.places.pairs.images import LoadedImage
from veil.places.pairs.matching import MatchingWork
from worlds.line_worlds import graph_of, line_images_of, views_of
from worlds.streets import Street, street

# Fewer seeds than usual are compared, for time; a street's first will do.
OPTIONS = LineMapOptions(quads=1)
Answer = LineMap | NoMap
Problem = tuple[Street, dict[str, LineView], MatchGraph]


def planted(seed: int, images: int, prefix: str = "") -> Problem:
    """A street with lines in place of keypoints; names begin with `prefix`."""
    place = street(seed, images, points_each=200, closed=False)
    lines = line_images_of(place, f"street {seed}")
    views = {prefix + name: view for name, view in views_of(lines).items()}
    matches = {(prefix + a, prefix + b): rows for (a, b), rows in place.matches.items()}
    return place, views, graph_of({prefix + name: len(image.form) for name, image in lines.items()}, matches)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return planted(0, 18)


@pytest.fixture(scope="module")
def answers(problem: Problem) -> dict[str, tuple[LineClusterTask, Answer]]:
    """Clusters of the street with their maps, by keys."""
    by_key: dict[str, tuple[LineClusterTask, Answer]] = {}

    def run(task: Callable[[LineClusterTask], Answer], items: Sequence[LineClusterTask]) -> Iterator[tuple[int, Answer]]:
        """Results in another order than that of the items, as engines may give them."""
        for position in reversed(range(len(items))):
            answer = task(items[position])
            by_key[line_cluster_key(items[position])] = items[position], answer
            yield position, answer

    calls: list[tuple[int, int]] = []
    _, views, graph = problem
    joined = map_lines_in_clusters(
        views, graph, options=OPTIONS, clusters=ClusterOptions(size=10), run_all=run, progress=lambda *done: calls.append(done)
    )
    assert isinstance(joined, ClusteredMap) and calls == [(k + 1, len(by_key)) for k in range(len(by_key))]
    by_key["all"] = next(iter(by_key.values()))[0], joined.maps[0]
    assert len(joined.maps) == 1 and len(joined.clusters) == len(by_key) - 1 >= 2
    return by_key


def kept_answers(answers: dict[str, tuple[LineClusterTask, Answer]]) -> RunAll[LineClusterTask, Answer]:
    """Runs no task: gives the maps that were made of the same clusters."""

    def run(_: object, items: Sequence[LineClusterTask]) -> Iterator[tuple[int, Answer]]:
        for position, item in enumerate(items):
            yield position, answers[line_cluster_key(item)][1]

    return run


def largest_error_m(line_map: LineMap, place: Street) -> float:
    """Largest error of the positions after alignment."""
    names = sorted(line_map.cam_from_world)
    aligned = align_centers([line_map.cam_from_world[n] for n in names], [place.poses[n] for n in names])
    return max(pose_error(line_map.cam_from_world[n], place.poses[n], aligned)[0] for n in names)


@pytest.mark.slow
def test_a_street_is_mapped_from_lines_by_clusters(
    problem: Problem, answers: dict[str, tuple[LineClusterTask, Answer]]
) -> None:
    """Oracle: planted poses; the map of all has no more error than 0.3 m over 18 m, and passes its check."""
    answer = answers["all"][1]
    assert isinstance(answer, LineMap) and len(answer.cam_from_world) >= 17
    assert largest_error_m(answer, problem[0]) < 0.3
    assert not answer.check.doubts and answer.check.gravity_agreeing == 1.0


@pytest.mark.slow
def test_a_joined_map_that_is_doubted_stays_in_parts(
    problem: Problem, answers: dict[str, tuple[LineClusterTask, Answer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken twin of the last adjustment: its map is refused, the clusters' maps stay, and no image is in two."""
    _, views, graph = problem
    real = of_lines.extend_map

    def doubtful(*given: object, **more: object) -> LineMap:
        answer = real(*given, **more)  # type: ignore[arg-type]
        return replace(answer, check=replace(answer.check, close=0.1))

    monkeypatch.setattr(of_lines, "extend_map", doubtful)
    answer = map_lines_in_clusters(
        views, graph, options=OPTIONS, clusters=ClusterOptions(size=10), run_all=kept_answers(answers)
    )
    assert isinstance(answer, ClusteredMap) and len(answer.maps) >= 2
    names = [name for item in answer.maps for name in item.cam_from_world]
    assert len(names) == len(set(names)) >= 14
    assert any("cannot be trusted" in reason for reason in answer.reasons)
    for item in answer.maps:
        lines = np.bincount(item.tracks.track[item.observed])
        assert largest_error_m(item, problem[0]) < 0.3 and lines[lines > 0].min() >= 4
        assert {item.tracks.names[image] for image in item.tracks.image[item.observed]} <= item.cam_from_world.keys()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_places_that_share_no_track_give_several_maps() -> None:
    """Planted: two streets; each is mapped by itself."""
    one, views, _ = planted(2, 12)
    other, other_views, _ = planted(1, 12, "x")
    counts = {name: len(view.lines) for name, view in {**views, **other_views}.items()}
    matches = {**one.matches, **{(f"x{a}", f"x{b}"): rows for (a, b), rows in other.matches.items()}}
    outcome = map_lines_in_clusters(
        {**views, **other_views}, graph_of(counts, matches), options=OPTIONS, clusters=ClusterOptions(size=13)
    )
    assert isinstance(outcome, ClusteredMap) and len(outcome.maps) == 2
    assert sorted({name[0] for name in item.cam_from_world} == {"x"} for item in outcome.maps) == [False, True]


def test_ties_are_tracks_of_three_images() -> None:
    """Enumeration: eleven tracks of three images tie them; tracks of two images, and fewer tracks, tie nothing."""
    rows = [(track, image, track) for track in range(11) for image in (0, 1, 2)]
    rows += [(track, image, track) for track in range(11, 30) for image in (2, 3)]
    rows += [(track, image, track) for track in range(30, 39) for image in (1, 3, 4)]
    track, image, feature = np.array(rows).T
    tracks = Tracks(names=tuple("abcde"), track=track, image=image, feature=feature, left_out=0)
    assert shared_tracks(tracks) == {("a", "b"): 11, ("a", "c"): 11, ("b", "c"): 11}
    nothing = np.empty(0, dtype=np.int64)
    assert shared_tracks(Tracks(names=("a",), track=nothing, image=nothing, feature=nothing, left_out=0)) == {}


def test_too_few_images_and_no_ties_are_refused(problem: Problem) -> None:
    """Oracle: the statements; a cluster without gravity has no map, and says why."""
    _, views, graph = problem
    with pytest.raises(InputError, match="four images"):
        map_lines_in_clusters({}, graph_of({}, {}))
    apart = graph_of({name: len(view.lines) for name, view in views.items()}, {})
    answer = map_lines_in_clusters(views, apart)
    assert isinstance(answer, NoMap) and "overlap" in answer.remedy[0].object
    blind = {
        name: replace(view, lines=replace(view.lines, gravity=None, aligned=np.zeros(len(view.lines), dtype=bool)))
        for name, view in views.items()
    }
    answer = map_lines_in_clusters(blind, graph, options=OPTIONS, clusters=ClusterOptions(size=10))
    assert isinstance(answer, NoMap) and "gravity" in answer.reason


@pytest.mark.slow
def test_kept_maps_are_those_that_were_made(answers: dict[str, tuple[LineClusterTask, Answer]], tmp_path: Path) -> None:
    """Inverse pair: what is read has the arrays of what was written; the task runs once; other options are another cluster."""
    task, made = answers["all"]
    dark = NoMap("dark", {"a": "blank"}, remedy=(Remedy("give", "HideInLines.gravity"),))
    runs: list[int] = []

    def mapper(item: LineClusterTask) -> Answer:
        runs.append(item.options.quads)
        return made if item.options.quads == 1 else dark

    other = replace(task, options=LineMapOptions(quads=3))
    for _ in range(2):
        run_all = keeping(ClusterResults(tmp_path, OF_LINES), one_after_another, line_cluster_key)
        kept = dict(run_all(mapper, [task, other]))
    assert runs == [1, 3] and kept[1] == dark
    read = kept[0]
    assert isinstance(read, LineMap) and isinstance(made, LineMap) and read.check == made.check
    one, two = piece_of_lines(read), piece_of_lines(made)
    np.testing.assert_array_equal(one.points, two.points)
    for name, pose in two.cam_from_world.items():
        np.testing.assert_array_equal(one.cam_from_world[name].rotation, pose.rotation)
        np.testing.assert_array_equal(one.cam_from_world[name].translation, pose.translation)
        np.testing.assert_array_equal(one.features[name], two.features[name])
        np.testing.assert_array_equal(one.point_rows[name], two.point_rows[name])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_pipeline_goes_on_with_kept_clusters(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: the second run may map no cluster, and gives the same map; one without overlap names what is left out."""
    place = problem[0]
    images = {
        name: LoadedImage(camera=image.camera, positions=image.lines, form=image.form)
        for name, image in line_images_of(place, "street 0").items()
    }
    monkeypatch.setattr("veil.places.line_mapping.matched_as_chosen", lambda *_, **__: place.matches)
    monkeypatch.setattr("veil.places.line_mapping.line_settings", lambda options: OPTIONS)
    options = MappingOptions(cluster_size=10)
    work = MatchingWork(unfinished=tmp_path)
    first = map_lines(images, options=options, work=work)
    assert isinstance(first, BuiltMap) and len(first.map.scene.images) >= 17 and first.readings is not None
    monkeypatch.setattr(of_lines, "map_from_lines", None)
    second = map_lines(images, options=options, work=work)
    assert isinstance(second, BuiltMap)
    np.testing.assert_array_equal(first.map.scene.points, second.map.scene.points)
