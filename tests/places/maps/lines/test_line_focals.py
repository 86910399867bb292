"""Focal lengths that a map from lines measures: planted ones are found, right ones stay, wrong ones are told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.camera import GUESS, FocalPrior
from veil.places.maps.lines import LineMap, LineView, map_from_lines, match_graph
from veil.places.maps.lines.focal import _Fit, with_focal
from veil.places.maps.lines.problem import mapping_problem
from veil.places.maps.lines.stored_maps import LineImage, reconstruction_of, scene_of
from worlds import World, world
from worlds.mapped_lines import OPTIONS, errors, graph_of, planted, views_of

GIVEN = FocalPrior(origin="given", deviation=0.01)


def claimed(views: dict[str, LineView], ratio: float, focal: FocalPrior) -> dict[str, LineView]:
    """The same lines of pixels from a camera that claims another focal length, known so well."""
    stretched = {name: with_focal(view, ratio) for name, view in views.items()}
    return {name: replace(view, camera=replace(view.camera, focal=focal)) for name, view in stretched.items()}


def mapped(views: dict[str, LineView], place: World, *, hold_focals: bool = False) -> LineMap:
    answer = map_from_lines(views, graph_of(place), options=OPTIONS, hold_focals=hold_focals)
    assert isinstance(answer, LineMap), answer
    return answer


def worst(line_map: LineMap, place: World) -> float:
    return max(position for position, _ in errors(line_map, place))


def test_lines_of_another_focal_length_are_those_of_the_same_pixels() -> None:
    """Oracle: points of each line, projected by both cameras, are one pixel."""
    view = planted("pixels")[1]["00"]
    other = with_focal(view, 1.3)
    for seen in (view, other):
        assert seen.camera.params[2:] == view.camera.params[2:]
    lines = view.lines.coefficients.astype(np.float64)
    points = -lines[:, 2:] * lines[:, :2] + 0.2 * np.stack([-lines[:, 1], lines[:, 0]], axis=1)
    moved = points * view.camera.focal_px / other.camera.focal_px
    again = other.lines.coefficients.astype(np.float64)
    assert np.abs((again[:, :2] * moved).sum(axis=1) + again[:, 2]).max() < 1e-6
    assert other.camera.focal_px == pytest.approx(1.3 * view.camera.focal_px)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.75, 1.3])
def test_a_guess_is_measured(ratio: float) -> None:
    """Planted focal length, claimed as a guess that is far off. Broken twin: held, its map is bent ten times as much."""
    place, views, _ = planted("guess", images=8)
    guessed = claimed(views, ratio, GUESS)
    line_map, held = mapped(guessed, place), mapped(guessed, place, hold_focals=True)
    assert set(line_map.cam_from_world) == set(place.poses)
    assert np.allclose(list(line_map.focal_ratios.values()), 1 / ratio, rtol=0.005) and len(line_map.focal_ratios) == 8
    assert held.focal_ratios == {} and worst(held, place) > 10 * worst(line_map, place)
    assert line_map.check.focal_deviation is not None and line_map.check.focal_deviation < 0.03
    assert not line_map.check.contradicted_focals and held.check.focal_deviation is None


@pytest.mark.slow
def test_a_known_focal_length_is_held_or_told() -> None:
    """What is right stays to the bit; what is off by a fifth is named with both numbers, and the map is made without it."""
    place, views, _ = planted("known", images=8)
    right = mapped(claimed(views, 1.0, GIVEN), place)
    assert right.focal_ratios == {} and not right.check.contradicted_focals
    wrong = mapped(claimed(views, 1.2, GIVEN), place)
    (told,) = wrong.check.contradicted_focals
    true = place.camera.focal_px
    assert (told.images, round(told.given_px)) == (8, round(1.2 * true)) and told.refined_px == pytest.approx(true, rel=0.005)
    assert worst(wrong, place) < 0.03 and "8 images have another focal length" in wrong.check.described()
    assert wrong.check.as_json()["contradicted_focals"][0]["images"] == 8


@pytest.mark.slow
def test_images_of_one_camera_share_its_focal_length() -> None:
    """Two cameras, of which one is known: the other is measured by its own images."""
    place, views, _ = planted("two", images=8)
    names = sorted(views)
    mixed = claimed(views, 1.0, GIVEN) | claimed({name: views[name] for name in names[::2]}, 1.25, GUESS)
    line_map = mapped(mixed, place)
    assert set(line_map.focal_ratios) == set(names[::2])
    assert np.allclose(list(line_map.focal_ratios.values()), 0.8, rtol=0.01)
    images = {name: LineImage(camera=view.camera, lines=view.lines, form=place.form(name)) for name, view in mixed.items()}
    scene = scene_of(line_map, images)
    for name, image in scene.images.items():
        assert image.camera.focal_px == pytest.approx(place.camera.focal_px, rel=0.01), name
    assert scene.mean_reprojection_error_px < 0.3


def test_the_gradient_is_that_of_the_adjusted_cost() -> None:
    """Eq. 30 against central differences of the cost, at focal lengths beside the minimum. Eq. 31: the curvature there."""
    place = world("slope", images=6, points=300)
    views = claimed(views_of(place, "slope"), 1.05, GUESS)
    line_map = mapped(views, place, hold_focals=True)
    images = {name: LineImage(camera=view.camera, lines=view.lines, form=place.form(name)) for name, view in views.items()}
    scene = scene_of(line_map, images)
    kept = {
        name: replace(images[name], lines=item.lines, form=item.form)
        for name, item in scene.images.items()
        if item.lines is not None
    }
    alone = match_graph({name: len(image.form) for name, image in kept.items()}, {})
    tracks, reconstruction = reconstruction_of(scene, alone)
    problem = mapping_problem({name: image.view for name, image in kept.items()}, alone, tracks)
    fit = _Fit(problem, reconstruction, [0] * len(alone.names), [views["00"].camera])
    noise, at, step = 0.5, np.array([-0.03]), 1e-3
    fit._cost(at, noise)
    fit._cost(at, noise)
    gradient, normal = fit._linear(at, noise)
    ends = []
    for offset in (step, -step):
        for _ in range(3):
            cost = fit._cost(at + offset, noise)
        ends.append(cost)
    assert gradient[0] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=0.03)
    least, deviations = fit.minimum()
    assert least[0] == pytest.approx(-np.log(1.05), abs=5e-3) and deviations[0] == pytest.approx(normal[0, 0] ** -0.5, rel=0.3)
