"""Axes of an accelerometer from edges: planted conventions of both frames, wrong readings and edges, and refusals."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from veil.errors import InputError, Remedy
from veil.geometry.device_axes import NAMED, axes_as_told, axes_from_edges, in_g, parse_axes
from veil.geometry.gravity import Gravity, NoGravity, gravity_from_accelerometer
from veil.geometry.gravity_consensus import apart_deg
from worlds import generator

QUARTER = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
MATRICES = [np.diag(s) @ np.eye(3)[list(p)] for p in permutations(range(3)) for s in product((1.0, -1.0), repeat=3)]


def held(random: np.random.Generator, images: int, spread_deg: float = 12.0) -> np.ndarray:
    """Directions of down in pictures of a camera held upright, with random pitch and roll."""
    roll, pitch = np.deg2rad(random.normal(0, spread_deg, (2, images)))
    return np.stack([np.sin(roll) * np.cos(pitch), np.cos(roll) * np.cos(pitch), np.sin(pitch)], axis=1)


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def errors_deg(readings: tuple[Gravity | NoGravity, ...], downs: np.ndarray) -> np.ndarray:
    """Errors of readings in degrees, infinite where a reading is refused."""
    pairs = zip(readings, downs, strict=True)
    return np.array([float(apart_deg(r.direction, d)) if isinstance(r, Gravity) else np.inf for r, d in pairs])


@pytest.mark.parametrize("matrix", range(48))
def test_every_convention_of_the_pictures_frame_is_found(matrix: int) -> None:
    """Planted: each signed permutation, eight pictures, edges in half of them, noise of 1.5 and 0.5 degrees."""
    random = generator(f"picture's frame {matrix}")
    downs = held(random, 8)
    acceleration = unit(downs + np.deg2rad(1.5) * random.normal(size=downs.shape)) @ MATRICES[matrix]
    edges = unit(downs + np.deg2rad(0.5) * random.normal(size=downs.shape))
    edges[4:] = np.nan
    axes = axes_from_edges(acceleration, np.zeros(8, dtype=bool), edges, np.full(8, 0.5))
    assert (errors_deg(axes.readings, downs) < 6).all() and axes.probability > 0.99


@pytest.mark.parametrize("name", ["ios", "android"])
def test_a_phone_is_read_in_every_way_of_holding_it(name: str) -> None:
    """Second method: the reader of maker notes, which knows the orientation. Half of the pictures are portraits, half are
    upside down; only the landscape ones have edges, and the portraits follow from how pictures turn."""
    random = generator(f"phone {name}")
    orientations = np.array([1, 3, 6, 8, 1, 3, 6, 8, 1, 3, 6, 8])
    portrait = orientations >= 6
    downs = held(random, len(orientations))
    turns = {1: np.eye(3), 3: np.diag([-1.0, -1, 1]), 6: QUARTER, 8: QUARTER.T}
    gravity = np.array([turns[o].T @ d for o, d in zip(orientations, downs, strict=True)]) @ NAMED["ios"].picture_from_table
    for row, orientation in enumerate(orientations):  # the planted readings are what the other reader takes them for
        told = gravity_from_accelerometer(gravity[row], int(orientation))
        assert isinstance(told, Gravity) and apart_deg(told.direction, downs[row]) < 1e-6
    acceleration = gravity if name == "ios" else -gravity
    as_told = axes_as_told(acceleration, portrait, parse_axes(name))
    assert errors_deg(as_told.readings, downs).max() < 1e-6
    edges = np.where(portrait[:, None], np.nan, downs)
    axes = axes_from_edges(acceleration, portrait, edges, np.full(len(downs), 0.5))
    assert errors_deg(axes.readings, downs).max() < 1e-4
    # With landscape pictures of one side down alone the table could as well be in the picture's frame: the portraits are
    # refused until one of them has edges.
    rows = np.isin(orientations, (1, 6))
    few = (acceleration[rows], portrait[rows])
    axes = axes_from_edges(*few, edges[rows], np.full(rows.sum(), 0.5))
    assert [isinstance(reading, NoGravity) for reading in axes.readings] == portrait[rows].tolist()
    axes = axes_from_edges(*few, np.where(np.arange(rows.sum())[:, None] < 4, downs[rows], np.nan), np.full(rows.sum(), 0.5))
    assert errors_deg(axes.readings, downs[rows]).max() < 1e-4


def test_a_wrong_reading_and_wrong_edges_do_not_change_the_axes() -> None:
    """Planted: of ten pictures one reading is 35 degrees off and the edges of another are a floor's."""
    random = generator("faults")
    downs = held(random, 10)
    acceleration = downs @ MATRICES[17]
    edges = downs.copy()
    acceleration[2] = unit((downs[2] + [0, 0, 0.7])[None])[0] @ MATRICES[17]
    edges[5] = unit(np.array([[0.1, 0.5, -0.85]]))[0]
    axes = axes_from_edges(acceleration, np.zeros(10, dtype=bool), edges, np.full(10, 0.5))
    assert (np.delete(errors_deg(axes.readings, downs), 2) < 1).all()


def test_what_edges_do_not_tell_is_refused_or_said_by_sigma() -> None:
    """No edges at all: refused. Level pictures: the sign of what is nearly zero makes no difference, and sigma covers it."""
    random = generator("level")
    downs = held(random, 5, spread_deg=0.5)
    none = axes_from_edges(downs, np.zeros(5, dtype=bool), np.full((5, 3), np.nan), np.ones(5))
    axes = Remedy("give", "axes_as_told.convention")
    assert all(isinstance(reading, NoGravity) and reading.remedy[0] == axes for reading in none.readings)
    fitted = axes_from_edges(downs, np.zeros(5, dtype=bool), downs, np.full(5, 1.0))
    errors = errors_deg(fitted.readings, downs)
    assert (errors < 3).all()
    for reading, error in zip(fitted.readings, errors, strict=True):
        assert isinstance(reading, Gravity) and reading.sigma_deg is not None and error < 3 * reading.sigma_deg


@pytest.mark.slow
def test_pure_chance_is_not_taken_for_axes() -> None:
    """Null: readings that have nothing to do with the edges, four pictures each. Of 60 tables at most 6 tell anything (1 %
    wrong conventions of one are promised, if edges are right and readings are of this device; here they are neither)."""
    told = 0
    for trial in range(60):
        random = generator(f"nonsense {trial}")
        axes = axes_from_edges(unit(random.normal(size=(4, 3))), np.zeros(4, dtype=bool), held(random, 4), np.full(4, 0.5))
        told += any(isinstance(reading, Gravity) for reading in axes.readings)
    assert told <= 6


def test_units_and_names() -> None:
    """Golden: g, m/s^2, and what is neither; axes by name."""
    random = generator("units")
    readings = unit(random.normal(size=(6, 3)))
    np.testing.assert_allclose(in_g(readings * 9.80665), readings)
    np.testing.assert_allclose(in_g(readings), readings)
    for factor in (0.01, 1000.0, np.nan):
        with pytest.raises(InputError):
            in_g(readings * factor)
    np.testing.assert_array_equal(parse_axes("-y, +x, -z").picture_from_table, [[0, -1, 0], [1, 0, 0], [0, 0, -1]])
    assert parse_axes("+y+x-z").told(False) == "down is (+y, +x, -z)"
    for text in ("", "xyz", "+x+x+z", "+x-y", "phone"):
        with pytest.raises(InputError, match="names no axes"):
            parse_axes(text)


def test_a_phone_in_motion_is_refused() -> None:
    """Bound: 1.4 g is no gravity."""
    downs = held(generator("motion"), 3)
    axes = axes_as_told(downs * [[1.0], [1.4], [1.02]], np.zeros(3, dtype=bool), parse_axes("+x+y+z"))
    assert [isinstance(reading, NoGravity) for reading in axes.readings] == [False, True, False]
