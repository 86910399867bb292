"""Answers of localization as records and as lines for people."""

from __future__ import annotations

from veil.cli.remedies import advised
from veil.places.poses.answer import Localization, NoPose


def pose_row(name: str, answer: Localization | NoPose, seconds: float) -> dict:
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
