"""Answers of localization as records and as lines for people."""

from __future__ import annotations

from veil.cli.remedies import advised
from veil.places.poses.answer import Localization, NoPose


def pose_row(name: str, found: Localization | NoPose, seconds: float) -> dict:
    """The JSON record of the answer to one query."""
    if isinstance(found, NoPose):
        return {"name": name, "status": "no pose", "reason": advised(found.reason, found.remedy), "seconds": seconds}
    return {
        "name": name,
        "status": "localized",
        "cam_from_world": {
            "rotation": found.cam_from_world.rotation.tolist(),
            "translation": found.cam_from_world.translation.tolist(),
        },
        "camera_center": found.cam_from_world.center.tolist(),
        "covariance": None if found.covariance is None else found.covariance.tolist(),
        "turn_deviation_deg": found.turn_deviation_deg,
        "inliers": found.inliers,
        "correspondences": found.correspondences,
        "log10_nfa": found.log10_nfa,
        "seconds": seconds,
    }


def pose_line(name: str, found: Localization | NoPose) -> str:
    """The answer to one query as a line for people."""
    if isinstance(found, NoPose):
        return f"{name}: no pose: {advised(found.reason, found.remedy)}"
    center = " ".join(f"{value:.4f}" for value in found.cam_from_world.center)
    line = f"{name}: camera center {center}, {found.inliers} inliers of {found.correspondences} matches"
    return f"{line}, turn known to {found.turn_deviation_deg:.2f} deg"
