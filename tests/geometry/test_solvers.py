"""Solvers of the line pipeline on exact cameras, and what they do where the problem is degenerate."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError
from veil.geometry.gravity import aligned_from_cam, checked_gravity
from veil.geometry.solvers.out_of_plane import determinant_rows, solve_out_of_plane
from veil.geometry.solvers.planar import IDENTITY, PlanarPose, in_front, planar_residuals, triangulate_planar
from veil.geometry.solvers.resection_planar import resect_planar
from veil.geometry.solvers.triangulate import plane_of_line, triangulate_planes
from veil.geometry.solvers.trifocal import estimate_tensor, factor_tensor, three_planar_views
from worlds import generator


def planar_world(name: str, count: int, views: int = 3) -> tuple[list[PlanarPose], np.ndarray, np.ndarray]:
    """Points 4 to 8 ahead, cameras that look at them from about -30 to 30 degrees; view 1 is the identity."""
    random = generator(name)
    points = np.stack([random.uniform(-2, 2, count), random.uniform(4, 8, count)], axis=1)
    poses = [IDENTITY]
    for _ in range(views - 1):
        angle = random.uniform(0.15, 0.5) * random.choice([-1, 1])
        center = np.array([6 * np.sin(angle), 6 - 6 * np.cos(angle)]) + random.normal(size=2) * 0.3
        pose = PlanarPose(angle=-angle, translation=np.zeros(2))
        poses.append(PlanarPose(angle=-angle, translation=-pose.rotation @ center))
    x = np.stack([(c := pose.apply(points))[:, 0] / c[:, 1] for pose in poses])
    return poses, points, x


def full_tensor(poses: list[PlanarPose]) -> np.ndarray:
    """T_ijk from its definition: (J x2 . R2 x1)(J x3 . t3) - (J x3 . R3 x1)(J x2 . t2) on the unit vectors."""
    turn = np.array([[0, -1.0], [1.0, 0]])
    tensor = np.empty((2, 2, 2))
    for i, j, k in np.ndindex(2, 2, 2):
        x1, x2, x3 = np.eye(2)[i], np.eye(2)[j], np.eye(2)[k]
        tensor[i, j, k] = (turn @ x2) @ poses[1].rotation @ x1 * ((turn @ x3) @ poses[2].translation) - (turn @ x3) @ poses[
            2
        ].rotation @ x1 * ((turn @ x2) @ poses[1].translation)
    return tensor


def test_the_printed_constraints_hold_on_exact_cameras() -> None:
    """Geppert et al. 2020, Eq. 4, 6 and 7 with index i for view 1 (traps S2)."""
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
    found = estimate_tensor(x)
    sign = np.sign((exact.conj() @ found).real)
    np.testing.assert_allclose(found, sign * exact / np.linalg.norm(exact), atol=1e-7)


@pytest.mark.parametrize("index", range(20))
def test_the_factorization_contains_the_truth(index: int) -> None:
    """Planted truth among the solutions in front of all cameras; the fourth view picks it (traps S4)."""
    poses, points, x = planar_world(f"factor {index}", 30, views=4)
    scale = float(np.hypot(np.linalg.norm(poses[1].translation), np.linalg.norm(poses[2].translation)))
    candidates = three_planar_views(x[:3])
    assert 1 <= len(candidates) <= 2
    scored = []
    for second, third in candidates:
        found = triangulate_planar([IDENTITY, second, third], x[:3])
        fourth = resect_planar(found, x[3])
        assert fourth is not None
        residual = np.abs(planar_residuals([IDENTITY, second, third, fourth], found, x)).max()
        scored.append((residual, second, third, fourth, found))
    residual, second, third, fourth, found = min(scored, key=lambda item: item[0])
    assert residual < 1e-9
    for estimate, truth in ((second, poses[1]), (third, poses[2]), (fourth, poses[3])):
        assert np.cos(estimate.angle - truth.angle) == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(estimate.translation * scale, truth.translation, atol=1e-7)
    np.testing.assert_allclose(found * scale, points, atol=1e-6)


def test_the_mirror_ambiguity_is_real() -> None:
    """With five exact points many problems have two solutions in front of three cameras: none may be dropped."""
    counts = [len(three_planar_views(planar_world(f"mirror {i}", 5)[2], min_in_front=1.0)) for i in range(60)]
    assert min(counts) >= 1
    assert sum(count == 2 for count in counts) > 10


def test_pure_rotation_is_refused() -> None:
    """A view that only turns about gravity has no translation to find."""
    assert factor_tensor(np.array([0j, 1 + 0j, -1 + 0j])) == []


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
    found = resect_planar(points, x[1])
    assert found is not None
    assert np.cos(found.angle - poses[1].angle) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.translation, poses[1].translation, atol=1e-8)
    assert in_front([found], points).all()


def spatial_world(name: str, tracks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gravity-aligned rotations, translations, points and random unit lines through their projections, four views."""
    random = generator(name)
    planar, _, _ = planar_world(name, 5, views=4)
    rotations = np.array(
        [[[np.cos(p.angle), 0, np.sin(p.angle)], [0, 1, 0], [-np.sin(p.angle), 0, np.cos(p.angle)]] for p in planar]
    )
    translations = np.array([[p.translation[0], random.normal() * 0.3, p.translation[1]] for p in planar])
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
    found = solve_out_of_plane(lines, rotations, translations * [1, 0, 1])
    assert found is not None
    np.testing.assert_allclose(found, translations[1:, 1], atol=1e-7)
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
