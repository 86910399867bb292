"""Points from lines against a slow twin, planted truth, and the rules that a point has to pass.

Theory: lines.md#points-and-cameras.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.triangulation import TrackLines, triangulate_tracks
from veil.geometry.triangulation_reference import triangulate_track
from worlds import generator

FOCAL_PX = 500.0
EXTENT = np.array([0.7, 0.5])


def looking_at(center: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rotation, translation) of a camera at `center` that looks at `target`, its y-axis near the world's."""
    forward = (target - center) / np.linalg.norm(target - center)
    right = np.cross([0, 1.0, 0], forward)
    right /= np.linalg.norm(right)
    rotation = np.array([right, np.cross(forward, right), forward])
    return rotation, -rotation @ center


def cameras(random: np.random.Generator, count: int, *, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Cameras about the origin that look at a point six ahead; every fifth one looks away from it."""
    poses = []
    for index in range(count):
        center = random.uniform(-1, 1, 3) * [spread, 0.3 * spread, 0.3 * spread]
        target = np.array([0, 0, 6.0]) + random.normal(size=3) * 0.3
        poses.append(looking_at(center, 2 * center - target if index % 5 == 4 else target))
    return np.array([r for r, _ in poses]), np.array([t for _, t in poses])


def planted(
    name: str,
    *,
    tracks: int = 150,
    size: tuple[int, int] = (2, 9),
    wrong: float = 0.0,
    noise_px: float = 0.5,
    spread: float = 3.0,
    aligned_share: float = 0.5,
    facing: bool = False,
) -> tuple[TrackLines, np.ndarray, np.ndarray]:
    """(tracks, points, which lines are wrong): lines through noisy projections, also where those are outside or behind."""
    random = generator(name)
    rotations, translations = cameras(random, 15, spread=spread)
    usable = np.flatnonzero(np.arange(15) % 5 != 4) if facing else np.arange(15)
    points = random.uniform(-1, 1, (tracks, 3)) * ([1.5, 1.0, 1.0] if facing else [3.5, 2.5, 2.0]) + [0, 0, 6.0]
    counts = random.integers(size[0], size[1] + 1, tracks)
    chosen = [np.sort(random.choice(usable, count, replace=False)) for count in counts]
    camera_of = np.concatenate([np.empty(0, dtype=np.int64), *chosen])
    of = np.repeat(np.arange(tracks), counts)
    seen = np.einsum("kij,kj->ki", rotations[camera_of], points[of]) + translations[camera_of]
    xy = seen[:, :2] / seen[:, 2:] + random.normal(size=(len(of), 2)) * noise_px / FOCAL_PX
    bad = random.random(len(of)) < wrong
    xy[bad] = random.uniform(-1, 1, (int(bad.sum()), 2)) * EXTENT
    aligned = random.random(len(of)) < aligned_share
    down = np.einsum("kij,j->ki", rotations[camera_of], [0, 1.0, 0])
    theta = random.uniform(0, np.pi, len(of))
    along = np.cross(np.hstack([xy, np.ones((len(xy), 1))]), down)[:, :2]
    normal = np.where(aligned[:, None], along, np.stack([np.cos(theta), np.sin(theta)], axis=1))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    return (
        TrackLines(
            starts=np.cumsum([0, *counts]),
            camera_of=camera_of,
            lines=np.hstack([normal, -(normal * xy).sum(axis=1, keepdims=True)]),
            aligned=aligned,
            active=np.ones(len(of), dtype=bool),
            rotations=rotations,
            translations=translations,
            focal_px=np.full(15, FOCAL_PX),
            half_extent=np.tile(EXTENT, (15, 1)),
        ),
        points,
        bad,
    )


def one_by_one(
    tracks: TrackLines, points: np.ndarray, known: np.ndarray, *, limit_px: float, min_lines: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Points and observed lines by the slow reference, track by track."""
    positions, observed = points.copy(), np.zeros(len(tracks.lines), dtype=bool)
    for t in range(len(tracks.starts) - 1):
        rows = np.arange(tracks.starts[t], tracks.starts[t + 1])
        rows = rows[tracks.active[rows]]
        camera = tracks.camera_of[rows]
        result = triangulate_track(
            tracks.lines[rows],
            tracks.aligned[rows],
            tracks.rotations[camera],
            tracks.translations[camera],
            tracks.focal_px[camera],
            tracks.half_extent[camera],
            known=points[t] if known[t] else None,
            limit_px=limit_px,
            min_lines=min_lines,
            min_angle_deg=1.5,
        )
        if result is not None:
            positions[t], observed[rows] = result
    return positions, observed


def mapped(tracks: TrackLines, observed: np.ndarray) -> np.ndarray:
    """Mask of the tracks that have a point."""
    return np.array([observed[a:b].any() for a, b in zip(tracks.starts[:-1], tracks.starts[1:], strict=True)])


def in_cameras(tracks: TrackLines, points: np.ndarray) -> np.ndarray:
    """The point of each line in the coordinates of its camera."""
    of = np.repeat(np.arange(len(points)), np.diff(tracks.starts))
    camera = tracks.camera_of
    return np.einsum("kij,kj->ki", tracks.rotations[camera], points[of]) + tracks.translations[camera]


def blank(tracks: TrackLines) -> tuple[np.ndarray, np.ndarray]:
    """Points and mask of a call in which no point is known."""
    count = len(tracks.starts) - 1
    return np.zeros((count, 3)), np.zeros(count, dtype=bool)


@pytest.mark.parametrize(
    ("name", "options", "min_lines", "least", "most"),
    [
        ("clean", {}, 4, 50, 120),
        ("wrong lines", {"wrong": 0.25}, 4, 30, 110),
        ("none along gravity", {"wrong": 0.25, "aligned_share": 0.0}, 4, 30, 110),
        ("nearly all along gravity", {"aligned_share": 0.85}, 4, 10, 100),
        ("all along gravity", {"aligned_share": 1.0}, 4, 0, 0),
        ("three lines", {"wrong": 0.1}, 3, 60, 140),
        ("only three lines", {"size": (3, 3), "facing": True}, 3, 60, 149),
        ("narrow", {"spread": 0.15}, 4, 10, 60),
        ("too narrow", {"spread": 0.03}, 4, 0, 0),
        ("all in view", {"wrong": 0.25, "facing": True}, 4, 50, 120),
    ],
)
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("with_known", [False, True])
def test_every_point_is_that_of_the_slow_twin(
    name: str, options: dict, min_lines: int, least: int, most: int, with_known: bool
) -> None:
    """Second method, up to nine lines a track, where the fast path tries all triples too; known points good and bad."""
    tracks, points, _ = planted(name, **options)
    start, known = blank(tracks)
    if with_known:
        random = generator("known")
        known = random.random(len(points)) < 0.5
        start = points + random.normal(size=points.shape) * np.where(np.arange(len(points)) % 3, 0.02, 1.0)[:, None]
    positions, observed = triangulate_tracks(tracks, start, known, limit_px=4.0, min_lines=min_lines, min_angle_deg=1.5)
    expected, agreeing = one_by_one(tracks, start, known, limit_px=4.0, min_lines=min_lines)
    np.testing.assert_array_equal(observed, agreeing)
    np.testing.assert_allclose(positions, expected, atol=1e-9)
    assert least <= mapped(tracks, observed).sum() <= most


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_long_tracks_need_not_try_all_triples() -> None:
    """Second method: with a third of wrong lines, sixty of hundreds of triples find what all of them find."""
    tracks, _, _ = planted("long", tracks=40, size=(11, 12), wrong=0.3, facing=True)
    _, observed = triangulate_tracks(tracks, *blank(tracks), limit_px=4.0)
    _, expected = one_by_one(tracks, *blank(tracks), limit_px=4.0)
    assert mapped(tracks, observed).all()
    assert (observed != expected).mean() < 0.05


def test_planted_points_are_found_and_wrong_lines_are_not_observed() -> None:
    """Planted truth: half a pixel of noise, baselines of a third of the depth: errors of a centimeter at six meters."""
    tracks, points, bad = planted("truth", size=(8, 11), wrong=0.15, facing=True)
    positions, observed = triangulate_tracks(tracks, *blank(tracks), limit_px=3.0, min_lines=4)
    right = mapped(tracks, observed)
    assert right.mean() > 0.95
    errors = np.linalg.norm(positions - points, axis=1)[right]
    assert 0.002 < np.median(errors) < 0.03
    seen = in_cameras(tracks, points)
    inside = (np.abs(seen[:, :2] / seen[:, 2:]) < EXTENT).all(axis=1) & np.repeat(right, np.diff(tracks.starts))
    assert observed[inside & ~bad].mean() > 0.98
    assert observed[inside & bad].mean() < 0.1


def test_more_noise_more_error() -> None:
    """Planted truth, bounded on both sides: errors grow as the noise does."""
    medians = []
    for noise in (0.0, 0.1, 0.4):
        tracks, points, _ = planted("noise", size=(8, 9), noise_px=noise, facing=True)
        positions, observed = triangulate_tracks(tracks, *blank(tracks), limit_px=4.0)
        medians.append(np.median(np.linalg.norm(positions - points, axis=1)[mapped(tracks, observed)]))
    assert medians[0] < 1e-9
    assert 3 < medians[2] / medians[1] < 5


def test_lines_of_cameras_that_look_away_are_not_observed() -> None:
    """Broken twin: behind a camera the plane passes through the point as well, and algebra alone would count it."""
    tracks, points, _ = planted("behind", size=(8, 12), noise_px=0.0, aligned_share=0.3)
    positions, observed = triangulate_tracks(tracks, *blank(tracks), limit_px=4.0)
    right = mapped(tracks, observed) & (np.linalg.norm(positions - points, axis=1) < 1e-6)
    assert right.sum() > 50
    seen = in_cameras(tracks, points)
    algebra = np.abs((tracks.lines * seen).sum(axis=1)) < 1e-9
    behind = seen[:, 2] < 0
    outside = ~behind & (np.abs(seen[:, :2] / seen[:, 2:]) > EXTENT).any(axis=1)
    chosen = np.repeat(right, np.diff(tracks.starts))
    assert algebra.all() and (behind & chosen).sum() > 50 and (outside & chosen).sum() > 20
    np.testing.assert_array_equal(observed[chosen], ~(behind | outside)[chosen])


def test_one_line_across_gravity_fixes_the_height() -> None:
    """Enumeration of the number of such lines in exact tracks of five: none is no point, one is enough."""
    for free in range(4):
        tracks, points, _ = planted("height", tracks=40, size=(5, 5), noise_px=0.0, aligned_share=1.0, facing=True)
        other, _, _ = planted("height", tracks=40, size=(5, 5), noise_px=0.0, aligned_share=0.0, facing=True)
        np.testing.assert_array_equal(tracks.camera_of, other.camera_of)
        across = np.tile(np.arange(5) < free, 40)
        mixed = replace(tracks, lines=np.where(across[:, None], other.lines, tracks.lines), aligned=~across)
        positions, observed = triangulate_tracks(mixed, *blank(mixed), limit_px=4.0)
        right = mapped(mixed, observed)
        assert right.sum() == 0 if free == 0 else right.sum() > 20
        np.testing.assert_allclose(positions[right], points[right], atol=1e-6)


def test_three_lines_always_agree_so_four_are_asked_for() -> None:
    """Broken twin: unrelated lines make points of three lines often, of four seldom (docs/theory/lines.md, Eq. 10)."""
    tracks, _, _ = planted("unrelated", tracks=400, size=(3, 3), wrong=1.0, facing=True)
    _, three = triangulate_tracks(tracks, *blank(tracks), limit_px=2.0, min_lines=3)
    _, none = triangulate_tracks(tracks, *blank(tracks), limit_px=2.0, min_lines=4)
    assert mapped(tracks, three).mean() > 0.1 and not none.any()
    tracks, _, _ = planted("unrelated", tracks=400, size=(4, 4), wrong=1.0, facing=True)
    _, four = triangulate_tracks(tracks, *blank(tracks), limit_px=2.0, min_lines=4)
    assert mapped(tracks, four).mean() < 0.02


def test_only_active_lines_take_part() -> None:
    """Second method: the tracks without the other lines."""
    tracks, _, _ = planted("active", wrong=0.2, facing=True)
    active = generator("active lines").random(len(tracks.lines)) < 0.7
    of = np.repeat(np.arange(len(tracks.starts) - 1), np.diff(tracks.starts))
    fewer = replace(
        tracks,
        starts=np.searchsorted(of[active], np.arange(len(tracks.starts))),
        camera_of=tracks.camera_of[active],
        lines=tracks.lines[active],
        aligned=tracks.aligned[active],
        active=np.ones(int(active.sum()), dtype=bool),
    )
    positions, observed = triangulate_tracks(replace(tracks, active=active), *blank(tracks), limit_px=4.0)
    expected, agreeing = triangulate_tracks(fewer, *blank(fewer), limit_px=4.0)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(observed[active], agreeing)
    assert not observed[~active].any() and agreeing.any()


def test_a_known_point_is_found_again_where_few_lines_are_right() -> None:
    """Planted truth: twelve lines, five right, too few for sixty triples to hit every time; and a wrong guess does no harm."""
    tracks, points, _ = planted("few right", tracks=60, size=(12, 12), noise_px=0.2, facing=True, aligned_share=0.3)
    other, _, _ = planted("elsewhere", tracks=60, size=(12, 12), wrong=1.0, facing=True)
    right = np.tile(np.arange(12) < 5, 60)
    mixed = replace(tracks, lines=np.where(right[:, None], tracks.lines, other.lines))
    shares = []
    for start, known in (
        blank(mixed),
        (points + 0.01, np.ones(60, dtype=bool)),
        (points + 1.0, np.ones(60, dtype=bool)),
    ):
        positions, observed = triangulate_tracks(mixed, start, known, limit_px=2.0)
        shares.append((mapped(mixed, observed) & (np.linalg.norm(positions - points, axis=1) < 0.1)).mean())
        np.testing.assert_array_equal(positions[~mapped(mixed, observed)], start[~mapped(mixed, observed)])
    assert shares[1] > shares[0] + 0.1 and shares[1] > 0.7
    assert abs(shares[2] - shares[0]) < 0.1


def test_the_order_of_tracks_does_not_matter() -> None:
    """Threads share the tracks; each has the same point wherever it stands."""
    tracks, _, _ = planted("order", size=(6, 6), wrong=0.2)
    order = generator("order of tracks").permutation(150)
    rows = (order[:, None] * 6 + np.arange(6)).ravel()
    mixed = replace(tracks, camera_of=tracks.camera_of[rows], lines=tracks.lines[rows], aligned=tracks.aligned[rows])
    positions, observed = triangulate_tracks(tracks, *blank(tracks), limit_px=4.0)
    again, seen = triangulate_tracks(mixed, *blank(mixed), limit_px=4.0)
    np.testing.assert_array_equal(again, positions[order])
    np.testing.assert_array_equal(seen, observed[rows])


def test_no_track_no_point() -> None:
    tracks, _, _ = planted("empty", tracks=0)
    positions, observed = triangulate_tracks(tracks, *blank(tracks), limit_px=4.0)
    assert positions.shape == (0, 3) and observed.shape == (0,)
    tracks, points, _ = planted("inactive")
    silent = replace(tracks, active=np.zeros_like(tracks.active))
    positions, observed = triangulate_tracks(silent, points, np.ones(len(points), dtype=bool), limit_px=4.0)
    np.testing.assert_array_equal(positions, points)
    assert not observed.any()
