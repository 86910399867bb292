"""Answers of a server as records; all that it sends is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import WireError, remedies_of
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.one_line import line, one_line
from veil.places.poses.answer import InMap, NoPose, camera_of_json


@dataclass(frozen=True, kw_only=True)
class RemoteMap:
    """A map of a server: `id`, `name`, whether it holds images (`mapped`), and `facts`, all that the server says of it."""

    id: str
    name: str
    mapped: bool
    facts: Mapping[str, Any] = field(default_factory=dict)

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A contribution that a server acknowledged.

    - `contribution`, `map_id`: the server's names of it and of the map.
    - `message_sha256`: of the bytes that were sent.
    - `state`, `reason`: whether it is in the map yet.
    - `job`: of the work that enters it; None if it was entered before.
    - `receipts_head`: end of the server's chain of receipts at the time.
    """

    contribution: str
    map_id: str
    message_sha256: str
    state: str
    reason: str = ""
    job: str | None = None
    receipts_head: str = ""

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """State of a job of a server.

    - `id`: its name.
    - `state`: "queued", "running", "done", "failed" or "cancelled".
    - `step`: its present step, of which `done` of `total` parts are done.
    - `result`: what came of it, as JSON values.
    """

    id: str
    state: str
    step: str
    done: int
    total: int
    result: Mapping[str, Any] = field(default_factory=dict)

    __repr__ = one_line

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in ("queued", "running")


@dataclass(frozen=True, kw_only=True, eq=False)
class RemotePose(InMap):
    """The pose of a query on a server's map; `center`, `rotation`, `heading` and `center_deviation` say where the camera is.

    - `cam_from_world`: from the map's coordinates to the camera (x right, y down, z forward).
    - `camera`: intrinsics with the focal length in pixels that was solved for together with the pose, and its relative standard
      deviation (`camera.focal`); None from a server that does not tell it.
    - `covariance`, float64 (6, 6): of the pose, rotation first; None where it is not known or not told.
    - `inliers`, `correspondences`: features that agree with it, of those that were matched; None from a map that is guarded
      against attacks through answers (docs/theory/answers.md).
    - `log10_nfa`: log10 of the number of such poses that chance would give; None likewise.
    - `map_id`, `map_version`: the map that answered.
    """

    cam_from_world: Rigid
    camera: Camera | None
    covariance: Float64[np.ndarray, "6 6"] | None
    inliers: int | None
    correspondences: int | None
    log10_nfa: float | None
    map_id: str
    map_version: int

    def __repr__(self) -> str:
        deviation = self.center_deviation
        known = {} if deviation is None else {"deviation": float(f"{deviation:.2g}")}
        told = {} if self.inliers is None else {"inliers": self.inliers}
        return line(self, {"center": self.center, "heading": self.heading.round(2), **known, **told}.items())


def pose_of(value: Any) -> RemotePose | NoPose:
    """The answer to a query. Raises WireError for what is none."""
    try:
        if value["status"] == "no pose":
            return NoPose(
                reason=str(value["reason"]),
                correspondences=int(value.get("correspondences", 0)),
                remedy=remedies_of(value.get("remedy")),
            )
        pose, evidence = value["cam_from_world"], dict.fromkeys(("inliers", "correspondences", "log10_nfa"))
        if value["evidence"] is not None:
            evidence = {name: value["evidence"][name] for name in evidence}
        rotation = np.array(pose["rotation"], dtype=np.float64)
        translation = np.array(pose["translation"], dtype=np.float64)
        covariance = None if value["covariance"] is None else np.array(value["covariance"], dtype=np.float64)
        if rotation.shape != (3, 3) or translation.shape != (3,) or not np.isfinite([*rotation.ravel(), *translation]).all():
            raise ValueError("the pose is no rotation and translation")
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-6 or np.linalg.det(rotation) < 0:
            raise ValueError("the rotation is none")
        if covariance is not None and covariance.shape != (6, 6):
            raise ValueError("the covariance is not of a pose")
        return RemotePose(
            cam_from_world=Rigid(rotation=rotation, translation=translation),
            camera=None if value.get("camera") is None else camera_of_json(value["camera"]),
            covariance=covariance,
            inliers=None if evidence["inliers"] is None else int(evidence["inliers"]),
            correspondences=None if evidence["correspondences"] is None else int(evidence["correspondences"]),
            log10_nfa=None if evidence["log10_nfa"] is None else float(evidence["log10_nfa"]),
            map_id=str(value["map"]),
            map_version=int(value["map_version"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the server's answer is no pose ({error}); it may be of another version of veil") from None


def map_of(value: Any) -> RemoteMap:
    """A map. Raises WireError for what is none."""
    try:
        return RemoteMap(id=str(value["map"]), name=str(value["name"]), mapped=bool(value["mapped"]), facts=dict(value))
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the server's answer is no map ({error}); it may be of another version of veil") from None


def accepted_of(value: Any) -> Accepted:
    """A contribution. Raises WireError for what is none."""
    try:
        return Accepted(
            contribution=str(value["contribution"]),
            map_id=str(value["map"]),
            message_sha256=str(value["message_sha256"]),
            state=str(value["state"]),
            reason=str(value["reason"]),
            job=None if value.get("job") is None else str(value["job"]),
            receipts_head=str(value.get("receipts_head", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the server's answer is no contribution ({error}); it may be of another version of veil") from None


def job_of(value: Any) -> JobStatus:
    """A job. Raises WireError for what is none."""
    try:
        progress = value["progress"]
        return JobStatus(
            id=str(value["job"]),
            state=str(value["state"]),
            step=str(progress["step"]),
            done=int(progress["done"]),
            total=int(progress["total"]),
            result=dict(value["result"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the server's answer is no job ({error}); it may be of another version of veil") from None
