"""Answers of localization as records and as lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from veil.cli.remedies import advised
from veil.json_records.values import Digest, PoseCovariance, PoseJson, Reasons, Vector
from veil.places.poses.answer import Localization, NoPose


class LocalizedQueryJson(TypedDict):
    """A query with a pose."""

    name: str
    status: Literal["localized"]
    cam_from_world: PoseJson
    camera_center: Vector
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


class _InTilesJson(TypedDict, total=False):
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
    center = " ".join(f"{value:.4f}" for value in answer.cam_from_world.center)
    line = f"{name}: camera center {center}, {answer.inliers} inliers of {answer.correspondences} matches"
    return f"{line}, turn known to {answer.turn_deviation_deg:.2f} deg"
