"""Queries turned over as in a mirror, and the refusal of those that fit the map better so.

A photograph that was mirrored agrees with one half of a symmetric place as a true one does with the other half. The pose lies
across the axis, and no test of its matches tells. Turned back, the query fits far better
(docs/theory/localization.md#mirror-images).

A file of its own: it serves each search, and none of them needs another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64

from veil.forms import Lines
from veil.geometry.camera import Camera
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import COIN

MIRRORED = (
    "turned over as in a mirror, the query fits the map as well or better (log10 of expected chance poses {:.1f}, as it was "
    "sent {:.1f}); is the photograph mirrored? Turn it over, and ask again"
)
# A pose that explains more than this share of the matches is not asked, as mirrored photographs have a fifth at most.
EXPLAINED = 0.5


Positions = Float32[np.ndarray, "features 2"] | Lines


def mirrored_positions(camera: Camera, positions: Positions) -> Positions:
    """Keypoints in pixels, or lines in the normalized plane, of a picture after it was turned over left to right.

    The camera stays the same: a calibrated camera took the photograph that was mirrored afterwards.
    """
    if not isinstance(positions, Lines):
        return mirrored_keypoints(camera, positions)
    shift = (camera.width_px - 2 * camera.params[camera.focal_count]) / camera.focal_px
    normal_x, normal_y, offset = positions.coefficients.astype(np.float64).T
    turned = np.column_stack([-normal_x, normal_y, offset + shift * normal_x])
    gravity = None if positions.gravity is None else mirrored_down(positions.gravity)
    return replace(positions, coefficients=turned.astype(np.float32), gravity=gravity)


def mirrored_keypoints(camera: Camera, keypoints: Float32[np.ndarray, "features 2"]) -> Float32[np.ndarray, "features 2"]:
    """Keypoints in pixels of a picture after it was turned over left to right."""
    return np.column_stack([camera.width_px - keypoints[:, 0], keypoints[:, 1]]).astype(np.float32)


def mirrored_down(gravity: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3"]:
    """Gravity in the camera frame of a picture that was turned over left to right."""
    return gravity * [-1.0, 1.0, 1.0]


def unless_mirrored(answer: Localization | NoPose, mirrored_log10_nfa: Callable[[], float | None]) -> Localization | NoPose:
    """The answer to a query, or a refusal if the mirrored query has evidence as good.

    Evidence is as good if the number of chance poses is not smaller for the query as it was sent by the factor `COIN`.

    - `mirrored_log10_nfa`: log10 of the number of chance poses as good as that of the mirrored query, or None where nobody can
      tell what a mirror makes of its descriptors; it is called for poses alone.
    """
    if isinstance(answer, NoPose):
        return answer
    other = mirrored_log10_nfa()
    if other is None or other > answer.log10_nfa - math.log10(COIN):
        return answer
    return NoPose(
        reason=MIRRORED.format(other, answer.log10_nfa),
        correspondences=answer.correspondences,
        inliers=answer.inliers,
        log10_nfa=answer.log10_nfa,
    )
