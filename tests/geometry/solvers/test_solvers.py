"""Solvers of the line pipeline on exact cameras, and what they do where the problem is degenerate."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError
from veil.geometry.gravity import aligned_from_cam, checked_gravity
from veil.geometry.solvers.out_of_plane import determinant_rows, solve_out_of_plane
from veil.geometry.solvers.planar import PlanarViews, in_front, planar_residuals, triangulate_planar
from veil.geometry.solvers.planes import plane_of_line, triangulate_planes
from veil.geometry.solvers.resection_planar import resect_planar
from veil.geometry.solvers.trifocal import estimate_tensor, factor_tensor, three_planar_views
from worlds import generator


def planar_world(name: str, count: int, views: int = 3) -> tuple[PlanarViews, np.ndarray, np.ndarray]:
    """Points 4 to 8 ahead, cameras that look at them from about -30 to 30 degrees; view 1 is the identity."""
    random = generator(name)
    points = np.stack([random.uniform(-2, 2, count), random.uniform(4, 8, count)], axis=1)
    angles, translations = [0.0], [np.zeros(2)]
    for _ in range(views - 1):
        angle = random.uniform(0.15, 0.5) * random.choice([-1, 1])
        center = np.array([6 * np.sin(angle), 6 - 6 * np.cos(angle)]) + random.normal(size=2) * 0.3
        angles.append(angle)
        translations.append(-np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) @ center)
    poses = PlanarViews(angle=np.array(angles), translation=np.array(translations))
    in_camera = poses.apply(points)
    return poses, points, in_camera[..., 0] / in_camera[..., 1]


def full_tensor(poses: PlanarViews) -> np.ndarray:
    """The tensor T_ijk from its definition: (J x2 . R2 x1)(J x3 . t3) - (J x3 . R3 x1)(J x2 . t2) on the unit vectors."""
    turn = np.array([[0, -1.0], [1.0, 0]])
    (_, r2, r3), (_, t2, t3) = poses.rotation, poses.translation
    tensor = np.empty((2, 2, 2))
    for i, j, k in np.ndindex(2, 2, 2):
        x1, x2, x3 = np.eye(2)[i], np.eye(2)[j], np.eye(2)[k]
        tensor[i, j, k] = (turn @ x2) @ r2 @ x1 * ((turn @ x3) @ t3) - (turn @ x3) @ r3 @ x1 * ((turn @ x2) @ t2)
    return tensor


def joined(a: PlanarViews, b: PlanarViews) -> PlanarViews:
    """The views of both problems for each candidate, along the axis of views."""
    return PlanarViews(
        angle=np.concatenate([a.angle, b.angle], axis=-1), translation=np.concatenate([a.translation, b.translation], axis=-2)
    )


def test_the_printed_constraints_hold_on_exact_cameras() -> None:
    """Geppert et al. 2020, Eq. 4, 6 and 7 with index i for view 1 (lines.md#planar-views)."""
    poses, _, x = planar_world("constraints", 20)
    t = full_tensor(poses)
    homogeneous = np.stack([x, np.ones_like(x)], axis=2)
    np.testing.assert_allclose(np.einsum("ijk,pi,pj,pk->p", t, *homogeneous), 0, atol=1e-12)
    assert t[0, 0, 0] - t[0, 1, 1] - t[1, 0, 1] - t[1, 1, 0] == pytest.approx(0, abs=1e-12)
    assert t[0, 0, 1] + t[0, 1, 0] + t[1, 0, 0] - t[1, 1, 1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [5, 6, 40])
def test_the_tensor_is_estimated_up_to_sign(count: int) -> None:
    """Oracle: the complex coordinates of the defined tensor."""
    poses, _, x = planar_world(f"tensor {count}", count)
    t, unit = full_tensor(poses), np.array([1, 1j])
    exact = np.array(
        [
            np.einsum("ijk,i,j,k", t, unit, unit, unit.conj()),
            np.einsum("ijk,i,j,k", t, unit, unit.conj(), unit),
            np.einsum("ijk,i,j,k", t, unit.conj(), unit, unit),
        ]
    )
    estimate = estimate_tensor(x)
    sign = np.sign((exact.conj() @ estimate).real)
    np.testing.assert_allclose(estimate, sign * exact / np.linalg.norm(exact), atol=1e-7)


@pytest.mark.parametrize("index", range(20))
def test_the_factorization_contains_the_truth(index: int) -> None:
    """Planted truth among the solutions in front of all cameras; the fourth view picks it (lines.md#planar-views)."""
    poses, points, x = planar_world(f"factor {index}", 30, views=4)
    scale = np.linalg.norm(poses.translation[1:3])
    three, problem = three_planar_views(x[None, :3])
    assert 1 <= len(problem) <= 2
    np.testing.assert_array_equal(three.angle[:, 0], 0)
    np.testing.assert_array_equal(three.translation[:, 0], 0)
    points_of = triangulate_planar(three, np.broadcast_to(x[:3], (len(problem), 3, 30)))
    four = joined(three, resect_planar(points_of, np.broadcast_to(x[3], (len(problem), 30))))
    residual = np.abs(planar_residuals(four, points_of, x)).max(axis=(1, 2))
    best = int(residual.argmin())
    assert residual[best] < 1e-9
    np.testing.assert_allclose(np.cos(four.angle[best] - poses.angle), 1, atol=1e-12)
    np.testing.assert_allclose(four.translation[best] * scale, poses.translation, atol=1e-7)
    np.testing.assert_allclose(points_of[best] * scale, points, atol=1e-6)


def test_the_mirror_ambiguity_is_real() -> None:
    """With five exact points many problems have two solutions in front of three cameras: none may be dropped."""
    worlds = [planar_world(f"mirror {i}", 5) for i in range(60)]
    views, problem = three_planar_views(np.stack([x for _, _, x in worlds]), min_in_front=1.0)
    counts = np.bincount(problem, minlength=60)
    assert counts.min() >= 1
    assert (counts == 2).sum() > 10
    for index, (poses, _, _) in enumerate(worlds):
        assert np.cos(views.angle[problem == index] - poses.angle).min(axis=1).max() == pytest.approx(1, abs=1e-6)


def test_a_batch_is_its_problems_one_by_one() -> None:
    """Second method: the same solvers on each problem alone."""
    x = np.stack([planar_world(f"batch {i}", 12)[2] for i in range(7)])
    views, problem = three_planar_views(x)
    for index in range(7):
        alone, _ = three_planar_views(x[index : index + 1])
        mine = views.take(problem == index)
        np.testing.assert_allclose(mine.angle, alone.angle, atol=1e-12)
        np.testing.assert_allclose(mine.translation, alone.translation, atol=1e-12)
        together = triangulate_planar(mine, np.broadcast_to(x[index], (len(mine.angle), 3, 12)))
        for row in range(len(mine.angle)):
            np.testing.assert_allclose(together[row], triangulate_planar(mine.take(row), x[index]), atol=1e-12)


def test_only_given_views_triangulate() -> None:
    """Coordinates that are not given are nonsense, so a mask that is ignored (the broken twin) moves the points."""
    poses, points, x = planar_world("given", 30, views=4)
    given = np.ones((4, 30), dtype=bool)
    given[np.arange(30) % 4, np.arange(30)] = False
    spoiled = np.where(given, x, 7.0)
    np.testing.assert_allclose(triangulate_planar(poses, spoiled, given), points, atol=1e-9)
    assert np.abs(triangulate_planar(poses, spoiled) - points).max(axis=1).min() > 0.1


def test_parallel_rays_are_refused_by_their_depth() -> None:
    """Two cameras side by side that look the same way at a point of no finite distance."""
    poses = PlanarViews(angle=np.zeros(2), translation=np.array([[0.0, 0.0], [-1.0, 0.0]]))
    points = triangulate_planar(poses, np.full((2, 1), 0.25))
    assert not in_front(poses, points).any()
    assert np.isinf(planar_residuals(poses, points, np.full((2, 1), 0.25))).all()


def test_pure_rotation_is_refused() -> None:
    """A view that only turns about gravity has no translation to find; others of its batch are not harmed."""
    assert np.isnan(factor_tensor(np.array([[0j, 1 + 0j, -1 + 0j]])).translation).all()
    poses, points, good = planar_world("turned", 20)
    still = PlanarViews(angle=poses.angle, translation=poses.translation * [[1], [0], [1]])
    in_camera = still.apply(points)
    _, problem = three_planar_views(np.stack([in_camera[..., 0] / in_camera[..., 1], good]), min_in_front=0.99)
    assert set(problem.tolist()) == {1}


def test_too_few_points_say_so() -> None:
    with pytest.raises(InputError, match="needs 5"):
        estimate_tensor(np.zeros((3, 4)))
    with pytest.raises(InputError, match="needs 3"):
        resect_planar(np.zeros((2, 2)), np.zeros(2))
    with pytest.raises(InputError, match="need 3"):
        solve_out_of_plane(np.zeros((2, 4, 3)), np.zeros((4, 3, 3)), np.zeros((4, 3)))
    with pytest.raises(InputError, match="needs 3"):
        triangulate_planes(np.zeros((2, 3)), np.zeros(2))


@pytest.mark.parametrize("count", [3, 25])
def test_resection_of_a_planar_view(count: int) -> None:
    poses, points, x = planar_world(f"resect {count}", count)
    view = resect_planar(points, x[1])
    np.testing.assert_allclose(np.cos(view.angle - poses.angle[1]), [1], atol=1e-12)
    np.testing.assert_allclose(view.translation, poses.translation[1:2], atol=1e-8)
    assert in_front(view, points).all()


def spatial_world(name: str, tracks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gravity-aligned rotations, translations, points and random unit lines through their projections, four views."""
    random = generator(name)
    planar, _, _ = planar_world(name, 5, views=4)
    rotations = np.array(
        [[[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]] for angle in planar.angle]
    )
    translations = np.array([[x, random.normal() * 0.3, z] for x, z in planar.translation])
    translations[0] = 0
    points = np.stack([random.uniform(-2, 2, tracks), random.uniform(-1, 1, tracks), random.uniform(4, 8, tracks)], axis=1)
    in_camera = np.einsum("vij,tj->tvi", rotations, points) + translations
    # A line through a point of the image: any direction crossed with the ray.
    lines = np.cross(in_camera, random.normal(size=in_camera.shape))
    return rotations, translations, points, lines / np.linalg.norm(lines, axis=2, keepdims=True)


@pytest.mark.parametrize("tracks", [3, 40])
def test_translations_along_gravity(tracks: int) -> None:
    """Planted truth; and the rows are Eq. 11's determinant (defining equation, by numpy.linalg.det)."""
    rotations, translations, _, lines = spatial_world(f"vertical {tracks}", tracks)
    heights = solve_out_of_plane(lines, rotations, translations * [1, 0, 1])
    assert heights is not None
    np.testing.assert_allclose(heights, translations[1:, 1], atol=1e-7)
    guess = np.array([0.3, -0.2, 0.7])
    moved = translations.copy()
    moved[1:, 1] = guess
    moved[0, 1] = 0
    matrix, right = determinant_rows(lines, rotations, translations)
    stacked = np.concatenate(
        [np.einsum("tvi,vij->tvj", lines, rotations), np.einsum("tvi,vi->tv", lines, moved)[..., None]], axis=2
    )
    ratio = np.linalg.det(stacked) / (matrix @ guess - right)
    normals = stacked[:, :, :3]
    scale = np.max([np.abs(np.linalg.det(np.delete(normals, v, axis=1))) for v in range(4)], axis=0)
    np.testing.assert_allclose(np.abs(ratio), scale, rtol=1e-6)


def test_gravity_aligned_lines_say_nothing_of_height() -> None:
    rotations, translations, _, lines = spatial_world("aligned", 12)
    vertical = lines * [1, 0, 1]
    assert solve_out_of_plane(vertical, rotations, translations) is None


@pytest.mark.parametrize("views", [3, 4])
def test_triangulation_from_planes(views: int) -> None:
    rotations, translations, points, lines = spatial_world("triangulate", 15)
    planes = [plane_of_line(lines[:, v], rotations[v], translations[v]) for v in range(views)]
    normals, offsets = np.stack([p[0] for p in planes], axis=1), np.stack([p[1] for p in planes], axis=1)
    np.testing.assert_allclose(triangulate_planes(normals, offsets), points, atol=1e-8)
    assert np.isnan(triangulate_planes(normals * [1, 0, 1], offsets)).all()


def test_gravity_frames() -> None:
    random = generator("gravity")
    for _ in range(20):
        gravity = random.normal(size=3)
        gravity /= np.linalg.norm(gravity)
        rotation = aligned_from_cam(gravity)
        np.testing.assert_allclose(rotation @ gravity, [0, 1, 0], atol=1e-12)
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(rotation) == pytest.approx(1)
    np.testing.assert_allclose(aligned_from_cam(np.array([0, -1.0, 0])) @ [0, -1, 0], [0, 1, 0])
    np.testing.assert_allclose(checked_gravity(np.array([0, 9.8, 0])), [0, 1, 0])
    with pytest.raises(InputError, match="negate"):
        checked_gravity(np.array([0.1, -0.9, 0.1]))
    with pytest.raises(InputError, match="finite"):
        checked_gravity(np.array([0, np.nan, 0]))
