"""Lifting of keypoints to random lines through them (Geppert et al. 2020, Sec. 3.1; Speciale et al., ICCV 2019)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, UInt64

from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Lines
from veil.geometry.camera import as_colmap
from veil.geometry.gravity import checked_gravity
from veil.mechanisms.parameters import LINE_RULE, line_draws
from veil.randomness import Randomness, uniform


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """Options of lines: which share of them follows gravity.

    - `aligned_share`: probability that a line follows gravity, where gravity is known (the paper's 50 %); the others have a
      uniform angle. At 50 %, a track of four views is purely aligned with probability 1/16 and has two or more random lines
      with 11/16 (lines.md#release; docs/theory/lines.md, Eq. 2).

    Raises RangeError for a share outside [0, 1): lines that are all aligned do not show height.
    """

    aligned_share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.aligned_share < 1:
            raise RangeError(f"aligned_share must lie in [0, 1), got {self.aligned_share!r}; all-aligned lines show no height")


def lift_to_lines(
    features: Features,
    *,
    gravity: Float64[np.ndarray, "3"] | None,
    randomness: Randomness,
    options: LineOptions | None = None,
) -> Lines:
    """Draw a line through the keypoint of each feature, in the order of the features (lines.md#release).

    Lines are memoized by `randomness`, image and position (release.md#memoized-draws). Features at one position (two
    orientations of one keypoint) get the same line: independent lines would meet in the keypoint.

    - `gravity`, float64 (3,): down in the camera frame (x right, y down, z forward), of any length; None if unknown.
    - `randomness`: what the lines are drawn from; a study's makes lines that cannot be released.
    - `options`: which share of the lines follows gravity; half of them by default.

    Raises InputError if there are no features, a keypoint cannot be undistorted, or gravity is unusable.
    """
    options = options or LineOptions()
    if len(features) == 0:
        raise InputError("there are no keypoints to lift; the image may be blank")
    xy = normalized_keypoints(features)
    words = _draws(features, gravity is not None, randomness, options)
    theta = np.pi * uniform(words[:, 0])
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    aligned = np.zeros(len(features), dtype=bool)
    down = None
    if gravity is not None:
        down = checked_gravity(gravity)
        along = along_gravity(xy, down)
        aligned = (uniform(words[:, 1]) < options.aligned_share) & np.isfinite(along).all(axis=1)
        normals[aligned] = along[aligned]
    offsets = -(normals * xy).sum(axis=1, keepdims=True)
    return Lines(
        coefficients=np.hstack([normals, offsets]).astype(np.float32),
        aligned=aligned,
        gravity=down,
        releasable=randomness.releasable,
    )


def line_key(
    features: Features, *, gravity: Float64[np.ndarray, "3"] | None, randomness: Randomness, options: LineOptions | None = None
) -> str:
    """Text for the ledger that holds everything that an image's lines depend on: equal texts stand for equal lines.

    Two different lines through one keypoint meet in it, and so do the lines of two cameras, as lines are drawn in the
    normalized plane (release.md#memoized-draws). So the text holds the share of aligned lines, gravity, the camera, the
    keypoints and the random words that were drawn (whatever keyed them). Each is written out, not as code happens to print it.
    `LINE_RULE` stands for the way in which they make a line. The image's size and whether its focal length is known move no
    line but go into the message. The arguments are those of `lift_to_lines`. Raises InputError if gravity is unusable.
    """
    options = options or LineOptions()
    down = "none" if gravity is None else gravity_key(gravity)
    camera, points = features.camera, features.keypoints.astype("<f4")
    words = _draws(features, gravity is not None, randomness, options).astype("<u8")
    drawn = [point.tobytes() + draw.tobytes() for point, draw in zip(points, words, strict=True)]
    facts = {
        "rule": LINE_RULE,
        "aligned": repr(float(options.aligned_share)),
        "gravity": down,
        "camera": f"{camera.model},{_numbers(camera.params)}",
        "size": f"{camera.width_px}x{camera.height_px}",
        "focal": "known" if camera.focal_is_known else "guessed",
        "keypoints": _digest([point.tobytes() for point in points]),
        "draws": _digest(drawn),
    }
    return "lines " + " ".join(f"{name}={value}" for name, value in facts.items())


def gravity_key(gravity: Float64[np.ndarray, "3"]) -> str:
    """Text that names gravity in the ledger: its direction, as it is sent. Raises InputError if gravity is unusable."""
    return _numbers(checked_gravity(gravity))


def _draws(features: Features, upright: bool, randomness: Randomness, options: LineOptions) -> UInt64[np.ndarray, "features 2"]:
    """Two random 64-bit words for each keypoint: one for the angle, one for whether the line follows gravity."""
    opening = line_draws(options, upright=upright)
    contexts = [opening + features.image_digest + point.tobytes() for point in features.keypoints]
    return randomness.bits64(contexts, 2)


def _numbers(values: Iterable[float]) -> str:
    """Shortest decimals that read back as these doubles, separated by commas."""
    return ",".join(repr(float(value)) for value in values)


def _digest(rows: list[bytes]) -> str:
    """First 16 hex digits of the SHA-256 of a set of rows; order and repeats do not count."""
    return hashlib.sha256(b"".join(sorted(set(rows)))).hexdigest()[:16]


def normalized_keypoints(features: Features) -> Float64[np.ndarray, "features 2"]:
    """Keypoints in the undistorted normalized image plane. Raises InputError where the distortion cannot be undone."""
    xy = np.asarray(as_colmap(features.camera).cam_from_img(features.keypoints.astype(np.float64)), dtype=np.float64)
    if not np.isfinite(xy).all():
        raise InputError("some keypoints cannot be undistorted with this camera; check its distortion parameters")
    return xy


def along_gravity(xy: Float64[np.ndarray, "features 2"], down: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "features 2"]:
    """Unit normals of the lines through each point and gravity's vanishing point; NaN for a point that is the vanishing point.

    `xy` are points of the normalized plane, `down` is gravity in the camera frame.
    """
    rays = np.hstack([xy, np.ones((len(xy), 1))])
    normal = np.cross(rays, down)[:, :2]
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    return np.where(length > 1e-9, normal / np.maximum(length, 1e-300), np.nan)
