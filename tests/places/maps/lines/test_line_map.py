"""Mapping from lines alone: planted worlds are recovered, wrong images are not registered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError
from veil.mechanisms.lines import ConvergentOptions, LineRule, ParallelOptions
from veil.places.maps import NoMap
from veil.places.maps.lines import LineMap, LineMapOptions, map_from_lines
from veil.places.maps.lines.problem import of_two_halves
from veil.places.maps.lines.reconstruction import Reconstruction
from worlds import generator
from worlds.mapped_lines import OPTIONS, errors, graph_of, planted, views_of


@pytest.mark.parametrize("rule", [ConvergentOptions(), ParallelOptions()])
def test_lines_of_two_halves_are_refused(rule: LineRule) -> None:
    """The same world whose random lines give a map (below) gives none, with the reason, if one image has lines of halves."""
    place, views, graph = planted("halves")
    assert of_two_halves(views) == []
    key = sorted(views)[0]
    other = views_of(place, "halves", rule)[key]
    line_map = map_from_lines({**views, key: other}, graph, options=OPTIONS)
    assert isinstance(line_map, NoMap) and "halves" in line_map.reason and key in line_map.reason


@pytest.mark.slow
def test_a_planted_world_is_mapped_from_lines_alone() -> None:
    """Oracle: planted cameras after alignment; a tenth of the keypoints are wrong and their lines are not observed."""
    place, views, graph = planted("map", wrong=0.1)
    seen: list[tuple[int, int]] = []
    line_map = map_from_lines(views, graph, options=OPTIONS, progress=lambda done, total: seen.append((done, total)))
    assert isinstance(line_map, LineMap)
    assert set(line_map.cam_from_world) == set(place.poses)
    assert max(position for position, _ in errors(line_map, place)) < 0.03
    assert max(rotation for _, rotation in errors(line_map, place)) < 0.2
    lines = np.bincount(line_map.tracks.track[line_map.observed], minlength=len(line_map.tracks))
    assert (lines > 0).sum() > 400
    assert (lines[lines > 0] >= 4).all()
    assert seen == [(5, 6), (6, 6)]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_an_image_of_elsewhere_is_refused_with_a_reason() -> None:
    """Broken twin of a mapper that registers whatever RANSAC returns: one view's lines are shuffled."""
    place, views, graph = planted("stranger")
    lines = views["05"].lines
    views["05"] = replace(views["05"], lines=lines.take(generator("mix").permutation(len(lines))))
    line_map = map_from_lines(views, graph, options=OPTIONS)
    assert isinstance(line_map, LineMap)
    assert set(line_map.cam_from_world) == set(place.poses) - {"05"}
    assert "chance" in line_map.refused["05"]
    assert max(position for position, _ in errors(line_map, place)) < 0.03


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_weak_scene_is_mapped() -> None:
    """Oracle: planted cameras. Ninety points, so that of any four views some six tracks are purely aligned and a seed of such
    tracks alone finds nothing; every image sees too few points to be asked for thirty that agree in most of the runs."""
    place, views, _ = planted("weak 0", wrong=0.1)
    line_map = map_from_lines(views, graph_of(place, points=90), options=LineMapOptions(quads=4))
    assert isinstance(line_map, LineMap)
    assert len(line_map.cam_from_world) >= 5
    assert max(position for position, _ in errors(line_map, place)) < 0.1
    assert max(rotation for _, rotation in errors(line_map, place)) < 1.0
    assert line_map.check.doubts == [] and line_map.check.checks > 100


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("images", "elsewhere", "mapped"), [(10, 1, 9), (10, 3, 0), (6, 0, 0)])
def test_a_seed_that_chance_explains_needs_nearly_all_images(images: int, elsewhere: int, mapped: int) -> None:
    """No seed counts as beyond chance here: its map is accepted if four fifths of the images, and eight, enter on evidence.

    A few images that enter may be of a bent map, or of half of a place that repeats itself.
    """
    place, views, graph = planted("weak seed", images=images)
    for name in sorted(views)[images - elsewhere :]:
        lines = views[name].lines
        views[name] = replace(views[name], lines=lines.take(generator(f"mix {name}").permutation(len(lines))))
    options = replace(OPTIONS, seed=replace(OPTIONS.seed, max_log10_nfa=-1e6), quads=1)
    kept: list[Reconstruction] = []
    line_map = map_from_lines(views, graph, options=options, checkpoint=kept.append)
    assert not kept  # resumed, it would count as one that is beyond chance
    if mapped:
        assert isinstance(line_map, LineMap) and len(line_map.cam_from_world) == mapped
        assert max(position for position, _ in errors(line_map, place)) < 0.03
    else:
        assert isinstance(line_map, NoMap) and "chance" in line_map.reason


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_where_the_first_quads_are_one_picture_others_are_tried() -> None:
    """Five photographs from one place share most tracks, and no seed can be made of four or three of them."""
    place, _, _ = planted("standing")
    for copy in "abcd":
        place.poses["00" + copy] = place.poses["00"]
        noise = 0.3 * generator(f"standing {copy}").normal(size=place.keypoints["00"].shape)
        place.keypoints["00" + copy] = (place.keypoints["00"] + noise).astype(np.float32)
        place.visible["00" + copy] = place.visible["00"]
    views = views_of(place, "standing")
    line_map = map_from_lines(views, graph_of(place), options=OPTIONS)
    assert isinstance(line_map, LineMap)
    assert len(line_map.cam_from_world) == len(views)
    assert max(position for position, _ in errors(line_map, place)) < 0.03
    assert line_map.quad is not None and len({line_map.tracks.names[image][:2] for image in line_map.quad.images}) >= 3


@pytest.mark.slow
def test_a_map_that_contradicts_itself_is_refused() -> None:
    """Broken twin of a map that is always accepted: each number of the check, made bad by hand, speaks against it."""
    _, views, graph = planted("check")
    line_map = map_from_lines(views, graph, options=OPTIONS)
    assert isinstance(line_map, LineMap)
    good = line_map.check
    assert good.doubts == [] and good.gravity_deg is not None and good.gravity_deg < 1
    assert good.uncertainty is not None and 0 < good.uncertainty < 0.01
    assert "gravity" in replace(good, gravity_agreeing=0.3).doubts[0]
    assert "check" in replace(good, checks=10).doubts[0]
    assert "bent" in replace(good, close=0.4).doubts[0]
    assert "extent" in replace(good, uncertainty=float("nan")).doubts[0]
    assert set(good.as_json()) >= {"checks", "close", "explained_tracks", "uncertainty", "gravity_deg", "left_out"}
    assert "lines check it" in good.described()


def test_what_cannot_be_mapped_says_so() -> None:
    _, views, graph = planted("refuse")
    with pytest.raises(InputError, match="at least four"):
        map_from_lines({k: views[k] for k in ("00", "01", "02")}, graph)
    blind = {
        k: replace(v, lines=replace(v.lines, gravity=None, aligned=np.zeros(len(v.lines), dtype=bool)))
        for k, v in views.items()
    }
    with pytest.raises(InputError, match="no image has gravity"):
        map_from_lines(blind, graph)
    few = replace(
        graph, first=graph.first[::20], second=graph.second[::20], ratios=graph.ratios[::20], strong=graph.strong[::20]
    )
    result = map_from_lines(views, few, options=OPTIONS)
    assert isinstance(result, NoMap) and "a seed needs 20" in result.reason
    assert "overlap" in str(result.remedy)
