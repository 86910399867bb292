"""Answers of localization as records and as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict

from veil.cli.common import Arguments, NamedJson, photograph_of, report, tell
from veil.cli.remedies import advised
from veil.files.maps.query_poses import write_poses
from veil.geometry.camera import Camera
from veil.geometry.georeference import quaternion_of
from veil.geometry.rigid import Rigid
from veil.json_records.values import Digest, PoseCovariance, PoseJson, Reasons, SolvedCameraJson, Vector
from veil.places.poses.answer import Localization, NoPose, camera_json, focal_told


class LocalizedQueryJson(TypedDict):
    """A query with a pose."""

    name: str
    status: Literal["localized"]
    cam_from_world: PoseJson
    camera_center: Vector
    camera: SolvedCameraJson
    covariance: PoseCovariance | None
    turn_deviation_deg: float | None
    inliers: int
    correspondences: int
    log10_nfa: float
    seconds: float


class QueryWithoutPoseJson(TypedDict):
    """A query without a pose, and why."""

    name: str
    status: Literal["no pose"]
    reason: str
    seconds: float


QueryJson = LocalizedQueryJson | QueryWithoutPoseJson


class FetchedTilesJson(TypedDict):
    """Tiles in which queries were localized on the device; those refused by photograph and number of the tile."""

    version: Digest
    asked: int
    record_bytes: int
    guarantee: str
    refused: Mapping[str, Reasons]


class _InTilesJson(NamedJson, total=False):
    tiles: FetchedTilesJson


class LocalizeJson(_InTilesJson):
    """Answers to queries, and why others got none."""

    queries: list[QueryJson]
    skipped: Reasons


def pose_row(name: str, answer: Localization | NoPose, seconds: float) -> QueryJson:
    """The JSON record of the answer to one query."""
    if isinstance(answer, NoPose):
        return {"name": name, "status": "no pose", "reason": advised(answer.reason, answer.remedy), "seconds": seconds}
    return {
        "name": name,
        "status": "localized",
        "cam_from_world": {
            "rotation": answer.cam_from_world.rotation.tolist(),
            "translation": answer.cam_from_world.translation.tolist(),
        },
        "camera_center": answer.cam_from_world.center.tolist(),
        "camera": camera_json(answer.camera),
        "covariance": None if answer.covariance is None else answer.covariance.tolist(),
        "turn_deviation_deg": answer.turn_deviation_deg,
        "inliers": answer.inliers,
        "correspondences": answer.correspondences,
        "log10_nfa": answer.log10_nfa,
        "seconds": seconds,
    }


def pose_line(name: str, answer: Localization | NoPose) -> str:
    """The answer to one query as a line for people."""
    if isinstance(answer, NoPose):
        return f"{name}: no pose: {advised(answer.reason, answer.remedy)}"
    line = located_line(name, answer.cam_from_world, answer.camera, answer.inliers, answer.correspondences)
    return f"{line}, turn known to {answer.turn_deviation_deg:.2f} deg"


def located_line(
    name: str, cam_from_world: Rigid, camera: Camera | None, inliers: int | None, correspondences: int | None
) -> str:
    """A pose as a line for people: the center, the rotation as the quaternion that COLMAP writes, and the focal length."""
    center = " ".join(f"{value:.4f}" for value in cam_from_world.center)
    x, y, z, w = quaternion_of(cam_from_world.rotation)
    rotation = " ".join(f"{value:.4f}" for value in (w, x, y, z))
    told = [f"{name}: camera center {center}, rotation {rotation} (qw qx qy qz, world to camera)"]
    if inliers is not None:  # a guarded map tells a pose alone
        told.append(f"{inliers} inliers of {correspondences} matches")
    return ", ".join(told if camera is None else [*told, focal_told(camera)])


def report_poses(arguments: Arguments, path: Path | None, poses: Mapping[str, Rigid]) -> None:
    """Write the poses (cam_from_world) of queries to the file of --write-poses, under the names of their photographs."""
    if path is None:
        return
    count = Counter(map(photograph_of, poses))  # two messages may be of one photograph, and keep their own names
    named = {name if count[photograph_of(name)] > 1 else photograph_of(name): pose for name, pose in poses.items()}
    unreadable = write_poses(path, named)
    for name in unreadable:
        tell(f"veil: the pose of {name!r} is not in {path}: a name with blanks cannot stand there")
    report(arguments, path, f"{len(poses) - len(unreadable)} poses")
