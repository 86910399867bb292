"""Lifting of keypoints to lines through them.

Random lines: Geppert et al. 2020, Sec. 3.1; Speciale et al., ICCV 2019. Convergent lines: Kim et al., CVPR 2026.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt64

from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Lines
from veil.geometry.anchors import DIRECTIONS, anchors, half_of
from veil.geometry.camera import GUESS, UNDISCLOSED, Camera, FocalPrior, as_colmap
from veil.geometry.gravity import checked_gravity
from veil.mechanisms.parameters import CONVERGENT_RULE, LINE_RULE, PARALLEL_RULE, line_draws
from veil.one_line import one_line
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

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 <= self.aligned_share < 1:
            raise RangeError(f"aligned_share must lie in [0, 1), got {self.aligned_share!r}; all-aligned lines show no height")


@dataclass(frozen=True, kw_only=True)
class ConvergentOptions:
    """Options of convergent lines (Kim et al. 2026): there is nothing to choose (lines.md#lines-of-two-halves).

    Each keypoint's line runs through the public anchor of its half of the picture. Nothing is drawn, so that every release of
    the image has the same lines. The halves are told, since each line shows its anchor. An anchor that was drawn for each
    keypoint by itself would tell the position instead: neighbors would have lines through both anchors, which meet near them.
    """

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True)
class ParallelOptions:
    """Options of parallel lines: there is nothing to choose (lines.md#lines-of-two-halves).

    Each keypoint's line runs along the direction of its half of the picture: along gravity, or the y-axis where gravity is
    unknown, in the first half, and along the x-axis in the second one. These are convergent lines with anchors at infinity:
    nothing is drawn, the halves are told, and the lines of neighbors say nothing of how far along its line a keypoint lies,
    save near the border of the halves, where they cross.
    """

    __repr__ = one_line


LineRule = LineOptions | ConvergentOptions | ParallelOptions
RuleName = Literal["random", "convergent", "parallel"]
RULE_NAMES: tuple[RuleName, ...] = get_args(RuleName)


def rule_of(name: RuleName, *, aligned_share: float = LineOptions().aligned_share) -> LineRule:
    """Options of the rule of this name; `aligned_share` is that of random lines along gravity. Raises RangeError as they do."""
    if name == "random":
        return LineOptions(aligned_share=aligned_share)
    return ConvergentOptions() if name == "convergent" else ParallelOptions()


def lift_to_lines(
    features: Features,
    *,
    gravity: Float64[np.ndarray, "3"] | None,
    randomness: Randomness,
    options: LineRule | None = None,
) -> Lines:
    """Draw a line through the keypoint of each feature, in the order of the features (lines.md#release).

    Lines are memoized by `randomness`, image and position (release.md#memoized-draws). Features at one position (two
    orientations of one keypoint) get the same line: independent lines would meet in the keypoint.

    - `gravity`, float64 (3,): down in the camera frame (x right, y down, z forward), of any length; None if unknown. It is
      sent with the lines; convergent lines do not follow it.
    - `randomness`: what the lines are drawn from; a study's makes lines that cannot be released.
    - `options`: which share of the lines follows gravity (half of them by default), or that they converge or are parallel.

    Raises InputError if there are no features, a keypoint cannot be undistorted, or gravity is unusable.
    """
    options = options or LineOptions()
    if len(features) == 0:
        raise InputError("there are no keypoints to lift; the image may be blank")
    xy = normalized_keypoints(features)
    if not isinstance(options, LineOptions):
        return _of_halves(xy, features.camera, gravity, options, releasable=randomness.releasable)
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
    return Lines(
        coefficients=_coefficients(normals, xy),
        aligned=aligned,
        gravity=down,
        releasable=randomness.releasable,
    )


def line_key(
    features: Features,
    *,
    gravity: Float64[np.ndarray, "3"] | None,
    randomness: Randomness,
    options: LineRule | None = None,
) -> str:
    """Text for the ledger that holds everything that an image's lines depend on: equal texts stand for equal lines.

    Two different lines through one keypoint meet in it, and so do the lines of two cameras, as lines are drawn in the
    normalized plane (release.md#memoized-draws). So the text holds the share of aligned lines, gravity, the camera, the
    keypoints and the random words that were drawn (whatever keyed them). Each is written out, not as code happens to print it.
    The rule's number stands for the way in which they make a line; lines of two halves have no draws. The image's size and how
    well its focal length is known move no random line but go into the message. The arguments are those of `lift_to_lines`.
    Raises InputError if gravity is unusable.
    """
    options = options or LineOptions()
    down = "none" if gravity is None else gravity_key(gravity)
    camera, points = features.camera, features.keypoints.astype("<f4")
    drawn: dict[str, object] = {}
    if isinstance(options, ConvergentOptions):
        rule: dict[str, object] = {"rule": CONVERGENT_RULE}
    elif isinstance(options, ParallelOptions):
        rule = {"rule": PARALLEL_RULE}
    else:
        words = _draws(features, gravity is not None, randomness, options).astype("<u8")
        rows = [point.tobytes() + draw.tobytes() for point, draw in zip(points, words, strict=True)]
        rule = {"rule": LINE_RULE, "aligned": repr(float(options.aligned_share))}
        drawn = {"draws": _digest(rows)}
    facts = {
        **rule,
        "gravity": down,
        "camera": f"{camera.model},{_numbers(camera.params)}",
        "size": f"{camera.width_px}x{camera.height_px}",
        "focal": _focal_key(camera.focal.as_sent),
        "keypoints": _digest([point.tobytes() for point in points]),
        **drawn,
    }
    return "lines " + " ".join(f"{name}={value}" for name, value in facts.items())


def _focal_key(sent: FocalPrior) -> str:
    """Text for the ledger of how well a focal length is known, as it is sent; "known" alone is what earlier releases sent."""
    if sent == GUESS:
        return "guessed"
    return "known" if sent == UNDISCLOSED else f"known:{sent.deviation:g}"


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


def _of_halves(
    xy: Float64[np.ndarray, "features 2"],
    camera: Camera,
    gravity: Float64[np.ndarray, "3"] | None,
    options: ConvergentOptions | ParallelOptions,
    *,
    releasable: bool,
) -> Lines:
    """Lines of keypoints in the normalized plane that hang on the half of the picture alone (lines.md#lines-of-two-halves)."""
    down, half = None if gravity is None else checked_gravity(gravity), half_of(xy, camera)
    aligned = np.zeros(len(xy), dtype=bool)
    if isinstance(options, ConvergentOptions):
        normals = through_anchors(xy, half, camera)
    else:
        normals = DIRECTIONS[half][:, ::-1] * [1.0, -1.0]
        if down is not None:
            along = along_gravity(xy, down)
            aligned = (half == 0) & np.isfinite(along).all(axis=1)
            normals[aligned] = along[aligned]
    return Lines(coefficients=_coefficients(normals, xy), aligned=aligned, gravity=down, releasable=releasable)


def through_anchors(
    xy: Float64[np.ndarray, "features 2"], anchor: Int64[np.ndarray, "features"], camera: Camera
) -> Float64[np.ndarray, "features 2"]:
    """Unit normals of the lines through points of the normalized plane and the anchors of the rows `anchor` (lines.md, Eq. 28).

    A point in its anchor gets the line that halves the picture.
    """
    places = anchors(camera)
    away = xy - places[anchor]
    away = np.where(np.linalg.norm(away, axis=1, keepdims=True) > 1e-9, away, places[1] - places[0])
    normals = np.stack([-away[:, 1], away[:, 0]], axis=1)
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)


def _coefficients(
    normals: Float64[np.ndarray, "features 2"], xy: Float64[np.ndarray, "features 2"]
) -> Float32[np.ndarray, "features 3"]:
    """Coefficients (n_x, n_y, c) of the lines with these unit normals through these points."""
    return np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)]).astype(np.float32)


def along_gravity(xy: Float64[np.ndarray, "features 2"], down: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "features 2"]:
    """Unit normals of the lines through each point and gravity's vanishing point; NaN for a point that is the vanishing point.

    `xy` are points of the normalized plane, `down` is gravity in the camera frame.
    """
    rays = np.hstack([xy, np.ones((len(xy), 1))])
    normal = np.cross(rays, down)[:, :2]
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    return np.where(length > 1e-9, normal / np.maximum(length, 1e-300), np.nan)
