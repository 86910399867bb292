"""Line adjustment by Ceres, the independent second method of tests and benchmarks.

Neither pycolmap nor pyceres has a residual for lines, so this uses pycolmap's point residual with a covariance that is one
pixel across the line and `ALONG_PX` along it. pyceres cannot build the manifold of a pose itself: pycolmap's own adjuster makes
a problem whose poses carry it, from one meaningless point a camera, and the residuals of the lines are added to that problem.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import pyceres
import pycolmap
from pycolmap.cost_functions import ReprojErrorCost

from veil.geometry.bundle.adjustment import LineProblem
from veil.geometry.rigid import Rigid

# Less lets the position along the line count, more loses digits when the covariance is inverted.
ALONG_PX = 1e5


@dataclass(frozen=True, kw_only=True, eq=False)
class CeresAdjusted:
    """The adjusted problem, Ceres' own cost before and after, its steps, and the time to build and to solve."""

    problem: LineProblem
    initial_cost: float
    final_cost: float
    iterations: int
    build_s: float
    solve_s: float


def adjust_by_ceres(
    problem: LineProblem,
    *,
    constant: np.ndarray,
    loss_px: float,
    tol: float,
    max_iterations: int = 50,
    threads: int = 2,
    solver: str = "SPARSE_SCHUR",
) -> CeresAdjusted:
    """The result of Ceres, which minimizes the robust cost of `veil.geometry.bundle.adjustment.adjust` from the same start."""
    start = time.perf_counter()
    reconstruction = _cameras(problem)
    adjuster = _adjuster(reconstruction)  # owns the problem: it must outlive the solution
    poses = [_pose(reconstruction, index) for index in range(len(constant))]
    points, intrinsics = np.ascontiguousarray(problem.points).copy(), np.array([1.0, 1.0, 0.0, 0.0])
    ceres, loss = adjuster.problem, pyceres.CauchyLoss(loss_px) if np.isfinite(loss_px) else pyceres.TrivialLoss()
    blocks, model = list(points), pycolmap.CameraModelId.PINHOLE
    across = zip(*_as_keypoints(problem.lines), problem.camera_of.tolist(), problem.point_of.tolist(), strict=True)
    for covariance, keypoint, camera, point in across:
        ceres.add_residual_block(ReprojErrorCost(model, covariance, keypoint), loss, [blocks[point], poses[camera], intrinsics])
    ceres.set_parameter_block_constant(intrinsics)
    for camera in np.flatnonzero(constant).tolist():
        ceres.set_parameter_block_constant(poses[camera])
    built = time.perf_counter()
    options, summary = _options(tol, max_iterations, threads, solver), pyceres.SolverSummary()
    pyceres.solve(options, ceres, summary)
    solved = time.perf_counter()
    cameras = [reconstruction.images[1 + index].cam_from_world() for index in range(len(constant))]
    return CeresAdjusted(
        problem=replace(
            problem,
            rotations=np.array([pose.rotation.matrix() for pose in cameras]),
            translations=np.array([pose.translation for pose in cameras]),
            points=points,
        ),
        initial_cost=summary.initial_cost,
        final_cost=summary.final_cost,
        iterations=summary.num_successful_steps + summary.num_unsuccessful_steps,
        build_s=built - start,
        solve_s=solved - built,
    )


def _pose(reconstruction: pycolmap.Reconstruction, index: int) -> np.ndarray:
    """Quaternion and translation of a camera, the memory that Ceres writes to."""
    pose = reconstruction.frames[1 + index].rig_from_world
    assert pose is not None
    return pose.params


def _as_keypoints(lines: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Covariance (1 / f across, `ALONG_PX` / f along) and foot of each line l at depth 1, with f = |(l_x, l_y)|."""
    focal = np.linalg.norm(lines[:, :2], axis=1)
    normal = lines[:, :2] / focal[:, None]
    along = normal[:, ::-1] * [-1, 1]
    foot = -normal * (lines[:, 2] / focal)[:, None]
    covariance = normal[:, :, None] * normal[:, None] + ALONG_PX**2 * along[:, :, None] * along[:, None]
    return list(covariance / focal[:, None, None] ** 2), list(foot)


def _cameras(problem: LineProblem) -> pycolmap.Reconstruction:
    """Ideal cameras at the poses; each sees a point on its axis twice, as pycolmap adjusts no camera without points."""
    reconstruction = pycolmap.Reconstruction()
    reconstruction.add_camera_with_trivial_rig(
        pycolmap.Camera(camera_id=1, model="PINHOLE", width=2, height=2, params=[1.0, 1.0, 0.0, 0.0])
    )
    for index, (rotation, translation) in enumerate(zip(problem.rotations, problem.translations, strict=True)):
        image = pycolmap.Image(image_id=1 + index, camera_id=1, name=str(index))
        image.points2D = pycolmap.Point2DList([pycolmap.Point2D(np.zeros(2)), pycolmap.Point2D(np.zeros(2))])
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(rotation), translation)
        reconstruction.add_image_with_trivial_frame(image, pose)
        ahead = Rigid(rotation=rotation, translation=translation - [0.0, 0.0, 1.0])
        key = reconstruction.add_point3D(-ahead.rotation.T @ ahead.translation, pycolmap.Track(), np.zeros(3, np.uint8))
        for row in range(2):
            reconstruction.add_observation(key, pycolmap.TrackElement(1 + index, row))
    return reconstruction


def _adjuster(reconstruction: pycolmap.Reconstruction) -> pycolmap.CeresBundleAdjuster:
    options = pycolmap.BundleAdjustmentOptions(refine_focal_length=False, refine_extra_params=False, print_summary=False)
    config = pycolmap.BundleAdjustmentConfig()
    for key in reconstruction.images:
        config.add_image(key)
    return pycolmap.create_default_ceres_bundle_adjuster(options, config, reconstruction)


def _options(tol: float, max_iterations: int, threads: int, solver: str) -> pyceres.SolverOptions:
    options = pyceres.SolverOptions()
    options.linear_solver_type = getattr(pyceres.LinearSolverType, solver)
    options.function_tolerance, options.gradient_tolerance, options.parameter_tolerance = tol, 0.0, 0.0
    options.max_num_iterations, options.num_threads = max_iterations, threads
    return options
