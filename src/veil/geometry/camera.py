"""Cameras with COLMAP's distortion models, and bounds of intrinsics that every camera meets which can have taken a photograph.

The pixel origin is at the image's top-left corner. Solvers and mappers that are handed a focal length of 1e-5 px or a
distortion of -1e5 run for hours or answer nonsense, and a map's owner cannot see where it came from. So intrinsics are bounded
in messages, files and arguments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64

from veil.errors import InputError, RangeError
from veil.one_line import one_line

# COLMAP's model name -> number of parameters, in COLMAP's order. Models whose focal length veil cannot read are absent.
MODELS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
}


FocalOrigin = Literal["guess", "EXIF", "given", "calibration", "database", "refined", "undisclosed"]
_PHRASES: dict[FocalOrigin, str] = {
    "guess": "a guess",
    "EXIF": "from EXIF",
    "given": "given",
    "calibration": "from a calibration",
    "database": "from COLMAP's database",
    "refined": "refined by a map",
    "undisclosed": "known, from where is not disclosed",
}


@dataclass(frozen=True, kw_only=True)
class FocalPrior:
    """Source of a camera's focal length, and how far the focal length may be off.

    - `origin`: "guess", "EXIF", "given" (by the user), "calibration" (from a file of one), "database" (COLMAP's), "refined" (by
      a map), or "undisclosed". No message says the origin: it stays on the device.
    - `deviation`: relative standard deviation of the focal length. A message rounds it up to one of `SENT_DEVIATIONS`.

    Raises RangeError for a deviation that is not positive and finite.
    """

    origin: FocalOrigin
    deviation: float

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 < self.deviation < math.inf:
            raise RangeError(f"the deviation of a focal length must be positive and finite, got {self.deviation!r}")

    @property
    def as_sent(self) -> FocalPrior:
        """The prior as a message says it: of an undisclosed origin, with the next larger of `SENT_DEVIATIONS`, or a guess."""
        least = next((deviation for deviation in SENT_DEVIATIONS if self.deviation <= deviation), None)
        return GUESS if self.origin == "guess" or least is None else replace(UNDISCLOSED, deviation=least)


# What is usual for each origin. A guess is off by a factor of two. EXIF gives whole millimeters, and COLMAP's databases hold
# what EXIF said; of an undisclosed source no better may be assumed.
GUESS, FROM_EXIF = FocalPrior(origin="guess", deviation=0.7), FocalPrior(origin="EXIF", deviation=0.05)
GIVEN, CALIBRATED = FocalPrior(origin="given", deviation=0.01), FocalPrior(origin="calibration", deviation=0.01)
FROM_DATABASE, REFINED = FocalPrior(origin="database", deviation=0.05), FocalPrior(origin="refined", deviation=0.01)
UNDISCLOSED = FocalPrior(origin="undisclosed", deviation=0.05)
# Deviations that a message can say: few, so that they tell little of the camera's owner (docs/reference/wire.md).
SENT_DEVIATIONS = (0.01, 0.02, 0.05, 0.1)


def described_focals(cameras: Iterable[Camera]) -> str:
    """Sentence on how many focal lengths of the cameras (one or more) are guesses, and where the others come from."""
    counts = Counter(camera.focal.origin for camera in cameras)
    total = sum(counts.values())
    parts: list[str] = []
    for origin in sorted(counts, key=lambda origin: (origin != "guess", -counts[origin], origin)):
        number = counts[origin]
        phrase = "guesses" if origin == "guess" and number > 1 else _PHRASES[origin]
        parts.append(f"{number} of {total} {'is' if number == 1 else 'are'} {phrase}" if not parts else f"{number} {phrase}")
    return f"focal lengths: {', '.join(parts)}"


@dataclass(frozen=True)
class Camera:
    """Camera intrinsics: a COLMAP model with its parameters, and the image size.

    - `model`: name of a COLMAP model, one of `MODELS`, such as "PINHOLE" or "SIMPLE_RADIAL".
    - `width_px`, `height_px`: size of the upright image in pixels.
    - `params`: as COLMAP orders them for `model`: focal lengths and principal point in pixels (origin at the top-left corner),
      then distortion coefficients without unit.
    - `focal`: where the focal length comes from, and its deviation; as given by the user if nothing else is said. A map refines
      guesses (1.2 times the longer side), and tests the others.

    Raises RangeError for unknown models, wrong counts, sizes outside 1..65535 px, a focal length that is not positive, or
    numbers that are not finite.
    """

    model: str
    width_px: int
    height_px: int
    params: tuple[float, ...]
    focal: FocalPrior = GIVEN

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise RangeError(f"camera model {self.model!r} is not supported; use one of {', '.join(MODELS)}")
        if len(self.params) != MODELS[self.model]:
            raise RangeError(f"{self.model} takes {MODELS[self.model]} parameters, got {len(self.params)}")
        if not (1 <= self.width_px <= 65535 and 1 <= self.height_px <= 65535):
            raise RangeError(f"image size must be 1..65535 px a side, got {self.width_px}x{self.height_px}")
        if not all(math.isfinite(p) for p in self.params) or not min(self.params[: self.focal_count]) > 0:
            raise RangeError(f"camera parameters must be finite with a positive focal length, got {self.params!r}")

    @staticmethod
    def parse(text: str, width_px: int, height_px: int) -> Camera:
        """The camera that `MODEL,p1,p2,...` names, as the command line writes it, for images of this size in pixels.

        `+-3%` behind it is the relative standard deviation of its focal length, 1 % without it. Raises InputError for another
        text, RangeError for intrinsics that no photograph can have.
        """
        return checked_camera(_read(text, width_px, height_px))

    @property
    def focal_count(self) -> int:
        """Number of focal lengths of the model: one for radial models and SIMPLE_PINHOLE, two (fx and fy) for the others."""
        return 1 if "RADIAL" in self.model or self.model == "SIMPLE_PINHOLE" else 2

    @property
    def focal_is_known(self) -> bool:
        """Whether the focal length is no guess."""
        return self.focal.origin != "guess"

    @property
    def as_sent(self) -> Camera:
        """The camera as a message says it: nothing of the focal length's origin, and its deviation in classes."""
        return replace(self, focal=self.focal.as_sent)

    @property
    def focal_px(self) -> float:
        """Focal length along x, pixels."""
        return self.params[0]


def guessed(width_px: int, height_px: int, *, focal_px: float | None = None) -> Camera:
    """A SIMPLE_RADIAL camera without distortion; the focal length defaults to COLMAP's guess of 1.2 times the longer side.

    With `focal_px` in pixels it counts as one of EXIF. Raises RangeError as `Camera` does.
    """
    focal = 1.2 * max(width_px, height_px) if focal_px is None else float(focal_px)
    return Camera(
        model="SIMPLE_RADIAL",
        width_px=width_px,
        height_px=height_px,
        params=(focal, width_px / 2, height_px / 2, 0.0),
        focal=GUESS if focal_px is None else FROM_EXIF,
    )


def resized(camera: Camera, width_px: int, height_px: int) -> Camera:
    """The camera of the same picture at another size: focal lengths and principal point follow, distortion stays."""
    x, y = width_px / camera.width_px, height_px / camera.height_px
    factors = [*((x, y) if camera.focal_count == 2 else (math.sqrt(x * y),)), x, y]
    params = [value * factor for value, factor in zip(camera.params, factors, strict=False)]
    return replace(camera, width_px=width_px, height_px=height_px, params=(*params, *camera.params[len(params) :]))


def zoomed(camera: Camera, factor: float) -> Camera:
    """The camera with focal lengths longer by a factor; all else stays, and so does what is known of the focal length."""
    count = camera.focal_count
    return replace(camera, params=(*(factor * value for value in camera.params[:count]), *camera.params[count:]))


def rescaled(camera: Camera, width_px: int, height_px: int) -> Camera | None:
    """The camera of a picture at another size, as in `resized`; None where the ratio of the sides is another one.

    The sides of both sizes may have been rounded, or cut, by a pixel.
    """
    x, y = width_px / camera.width_px, height_px / camera.height_px
    rounding = 1 / min(width_px, height_px) + 1 / min(camera.width_px, camera.height_px)
    return resized(camera, width_px, height_px) if abs(x - y) <= rounding * max(x, y) else None


# Projections in the picture enlarged by this factor still count as in it (lines.md#points-and-cameras).
FRAME_SLACK = 1.1


def half_extent(camera: Camera) -> Float64[np.ndarray, "2"]:
    """Largest |x| and |y| of the image's corners in the undistorted normalized image plane."""
    corners = np.array([[0.0, 0.0], [camera.width_px, camera.height_px]])
    return np.abs(np.asarray(as_colmap(camera).cam_from_img(corners), dtype=np.float64)).max(axis=0)


def as_colmap(camera: Camera) -> Any:
    """The camera as a `pycolmap.Camera`."""
    from veil.colmap import pycolmap

    return pycolmap.Camera(
        model=camera.model,
        width=camera.width_px,
        height=camera.height_px,
        params=list(camera.params),
        has_prior_focal_length=camera.focal_is_known,
    )


def from_colmap(camera: Any) -> Camera:
    """The `Camera` of a pycolmap camera; its focal length counts as refined by mapping.

    Raises RangeError for models that veil does not read.
    """
    return Camera(
        model=camera.model_name if hasattr(camera, "model_name") else camera.model.name,
        width_px=camera.width,
        height_px=camera.height,
        params=tuple(float(value) for value in camera.params),
        focal=REFINED,
    )


MAX_PIXELS = 1 << 28  # 268 megapixels; the largest sensors of phones have 200
# Focal lengths in longer sides, which is COLMAP's range as well: 0.1 is wider than any lens, 10 is 360 mm on full frame.
MIN_FOCAL, MAX_FOCAL = 0.1, 10.0
MAX_ASPECT = 2.0  # ratio of the focal lengths: anamorphic video has pixels twice as wide as high
MAX_OUTSIDE = 1.0  # distance in sides by which the principal point of a crop may lie outside the image
MAX_OFF_AXIS_RADIANS = math.radians(88)  # the normalized plane ends at 90 degrees
MAX_STRETCH = 4.0  # magnification relative to the center; pincushion distortion of real lenses stays below 2
MARGIN_PX = 2.0  # margin around the image where keypoints may lie: detectors fit parabolas at its border
MIN_SEEN = 0.1  # share of a fisheye's image that must lie on the normalized plane

_FISHEYE = "FISHEYE"
_GRID = 17  # samples along each side of the image, its corners and borders among them
_STEPS, _NEWTON = 24, 4  # steps along each ray, and Newton iterations at each step
_DIRECT = 100  # Newton iterations without steps, as in COLMAP
_OUTLINE = 16  # samples of each side of the image's outline


@lru_cache(maxsize=256)
def implausible(camera: Camera) -> str | None:
    """Reason why no photograph can have these intrinsics, with the value and a remedy, or None if one can.

    Checked are the size, the focal lengths, the principal point, then the distortion: each ray from the principal point to a
    grid of pixels that covers the image with its border is undistorted step by step, and must stay on the branch on which
    larger radii lie farther out, nowhere stretched more than four times as much as at the center; fisheyes must do so up to 88
    degrees off the axis, where the normalized plane ends. The check takes milliseconds for any parameters.
    """
    longer, pixels = max(camera.width_px, camera.height_px), camera.width_px * camera.height_px
    if pixels > MAX_PIXELS:
        return f"an image of {camera.width_px}x{camera.height_px} px is too large (at most {MAX_PIXELS} pixels); scale it down"
    focal = camera.params[: camera.focal_count]
    for value in focal:
        if not MIN_FOCAL * longer <= value <= MAX_FOCAL * longer:
            return (
                f"a focal length of {value:.6g} px is not one of an image of {camera.width_px}x{camera.height_px} px "
                f"(veil takes {MIN_FOCAL:g} to {MAX_FOCAL:g} times the longer side); give the camera in pixels of this image"
            )
    if max(focal) > MAX_ASPECT * min(focal):
        return f"focal lengths of {focal[0]:.6g} and {focal[-1]:.6g} px differ by more than {MAX_ASPECT:g}; check the camera"
    center = camera.params[camera.focal_count : camera.focal_count + 2]
    for value, side in zip(center, (camera.width_px, camera.height_px), strict=True):
        if not -MAX_OUTSIDE * side <= value <= (1 + MAX_OUTSIDE) * side:
            return (
                f"the principal point ({center[0]:.6g}, {center[1]:.6g}) lies more than a side outside the image of "
                f"{camera.width_px}x{camera.height_px} px; give the camera in pixels of this image"
            )
    return _implausible_distortion(camera)


def checked_camera(camera: Camera) -> Camera:
    """The camera itself, checked: raises RangeError, with the value and a remedy, if no photograph can have its intrinsics."""
    reason = implausible(camera)
    if reason is not None:
        raise RangeError(reason)
    return camera


def require_readable(text: str) -> None:
    """Raise InputError unless `text` names a model and its parameters; without an image's size no more can be checked."""
    _read(text, 1, 1)


def _read(text: str, width_px: int, height_px: int) -> Camera:
    """The camera that `MODEL,p1,p2,...` or `MODEL,p1,p2,...+-3%` names, its intrinsics unchecked."""
    intrinsics, *deviations = text.split("+-")
    model, *numbers = intrinsics.split(",")
    try:
        params = tuple(float(number) for number in numbers)
        percents = [float(deviation.strip().removesuffix("%")) for deviation in deviations]
        if len(percents) > 1 or not all(deviation.strip().endswith("%") for deviation in deviations):
            raise ValueError(text)
    except ValueError:
        raise InputError(
            f"camera {text!r} is not of the form MODEL,p1,p2,... with COLMAP's model names, or with a deviation of its focal "
            "length as MODEL,p1,p2,...+-3%"
        ) from None
    focal = FocalPrior(origin="given", deviation=percents[0] / 100) if percents else GIVEN
    return Camera(model=model.strip().upper(), width_px=width_px, height_px=height_px, params=params, focal=focal)


def require_inside(camera: Camera, keypoints: Float[np.ndarray, "features 2"]) -> None:
    """Raise InputError unless all keypoints (pixels) lie in the image, up to a margin of 2 px; NaN does not."""
    low, high = -MARGIN_PX, np.array([camera.width_px, camera.height_px]) + MARGIN_PX
    outside = np.flatnonzero(~((keypoints >= low) & (keypoints <= high)).all(axis=1))
    if outside.size:
        x, y = keypoints[outside[0]].tolist()
        raise InputError(
            f"{outside.size} keypoints lie outside the image of {camera.width_px}x{camera.height_px} px (first: "
            f"row {outside[0]} at ({x:.6g}, {y:.6g})); give positions in pixels of this image"
        )


def require_crossing(camera: Camera, lines: Float[np.ndarray, "features 3"]) -> None:
    """Raise InputError unless all lines n . x + c = 0 of the normalized plane meet the image, up to a margin of 2 px.

    The image's outline is a closed curve there: a line meets the image if points of it lie on both sides. Fisheyes whose
    outline leaves the normalized plane bound nothing.
    """
    outline, _ = undistorted(camera, _border(camera, _OUTLINE))
    if np.isnan(outline).any():
        return
    # Between samples the outline bulges by less than a step's width; a step is 1/16 of a side.
    margin = MARGIN_PX / min(camera.params[: camera.focal_count]) + 0.01 * float(np.abs(outline).max())
    for start in range(0, len(lines), 1 << 12):
        part = lines[start : start + (1 << 12)].astype(np.float64)
        sides = part[:, :2] @ outline.T + part[:, 2:]
        missing = np.flatnonzero(~((sides.min(axis=1) <= margin) & (sides.max(axis=1) >= -margin)))
        if missing.size:
            raise InputError(
                f"line {start + missing[0]} does not meet the image of {camera.width_px}x{camera.height_px} px; give lines in "
                "the undistorted normalized plane of this camera"
            )


def undistorted(
    camera: Camera, pixels: Float64[np.ndarray, "points 2"]
) -> tuple[Float64[np.ndarray, "points 2"], Bool[np.ndarray, "points"]]:
    """Undistorted points of pixels in the normalized plane, and a mask of pixels that a fisheye sees beyond that plane.

    Points are NaN where the distortion maps none to the pixel, and beyond the plane: more than 88 degrees off the axis. Rays
    are followed outwards from the principal point, because Newton's method alone may land on another branch; but it must arrive
    at the same point, because COLMAP uses it (sensor/models.h, IterativeUndistortion).
    """
    focal = np.array([camera.params[0], camera.params[camera.focal_count - 1]])
    target = (pixels - np.array(camera.params[camera.focal_count : camera.focal_count + 2])) / focal
    fisheye = _FISHEYE in camera.model
    lens = _Lens.of(camera)
    limit = MAX_OFF_AXIS_RADIANS if fisheye else math.tan(MAX_OFF_AXIS_RADIANS)
    with np.errstate(all="ignore"):  # what overflows or divides by zero is not finite, and becomes NaN
        points, beyond = _followed(lens, target, limit, 0.5 / focal) if lens.is_curved else (target, _radius(target) > limit)
        direct = _newton(lens, target, target, _DIRECT) if lens.is_curved else target
        points = np.where((np.abs(direct - points) * focal < 0.5).all(axis=1)[:, None], points, np.nan)
    if not fisheye:
        return points, np.zeros(len(points), dtype=bool)
    theta = _radius(points)
    scale = np.divide(np.tan(theta), theta, out=np.ones_like(theta), where=theta > 0)
    return np.where(beyond[:, None], np.nan, points * scale[:, None]), beyond


def _implausible_distortion(camera: Camera) -> str | None:
    """Reason why no photograph can have this distortion, with a remedy, or None if one can."""
    distortion = camera.params[camera.focal_count + 2 :]
    sides = np.linspace(0, 1, _GRID)
    grid = np.stack(np.meshgrid(sides * camera.width_px, sides * camera.height_px), axis=-1).reshape(-1, 2)
    points, beyond = undistorted(camera, grid)
    wrong = np.isnan(points).any(axis=1) & ~beyond
    shown = f"{camera.model} with distortion {', '.join(f'{value:.6g}' for value in distortion)}"
    if wrong.any():
        x, y = grid[np.flatnonzero(wrong)[0]].tolist()
        return (
            f"{shown} cannot be undone at pixel ({x:.6g}, {y:.6g}) of the image of {camera.width_px}x{camera.height_px} px; "
            "calibrate the camera again, or use a model that fits its lens"
        )
    if (~beyond).mean() < MIN_SEEN:
        return (
            f"{shown} sees most of its image of {camera.width_px}x{camera.height_px} px more than 88 degrees off the axis; "
            "calibrate the camera again, or use a model that fits its lens"
        )
    return None


class _Lens(NamedTuple):
    """A rational distortion that covers all of COLMAP's models: N(r^2) / D(r^2), and tangential coefficients.

    N is 1 plus `above` as coefficients of r^2, r^4, ..., D is the same of `below`:
    x' = x N / D + 2 p1 x y + p2 (r^2 + 2 x^2), y' = y N / D + 2 p2 x y + p1 (r^2 + 2 y^2) (COLMAP, sensor/models.h,
    FullOpenCVCameraModel, of which the others are parts; fisheyes are N alone, of angles in place of tangents).
    """

    above: tuple[float, ...]
    below: tuple[float, ...]
    tangential: tuple[float, float]

    @classmethod
    def of(cls, camera: Camera) -> _Lens:
        """The distortion of a camera, from its parameters in COLMAP's order."""
        distortion = camera.params[camera.focal_count + 2 :]
        if _FISHEYE in camera.model or len(distortion) <= 2:
            return cls(above=distortion, below=(), tangential=(0.0, 0.0))
        k1, k2, p1, p2, *rest = distortion
        return cls(above=(k1, k2, *rest[:1]), below=tuple(rest[1:]), tangential=(p1, p2))

    @property
    def is_curved(self) -> bool:
        """Whether any coefficient differs from zero."""
        return any(self.above) or any(self.below) or any(self.tangential)


def _followed(
    lens: _Lens, target: Float64[np.ndarray, "points 2"], limit: float, tol: Float64[np.ndarray, "2"]
) -> tuple[Float64[np.ndarray, "points 2"], Bool[np.ndarray, "points"]]:
    """Undistorted points on the branch of the principal point, NaN where it ends, and a mask of rays that pass `limit` on it.

    `target` are distorted points, `limit` bounds the radius of undistorted ones, and a point counts as reached within `tol`;
    all are in the normalized plane, or in radians for a fisheye.
    """
    points = np.zeros_like(target)
    beyond = np.zeros(len(target), dtype=bool)
    for step in range(1, _STEPS + 1):
        wanted = target * (step / _STEPS)
        points = _newton(lens, points, wanted, _NEWTON)
        at, (xx, xy, yy) = _distorted(lens, points)
        # The derivative is symmetric; where the map has not turned over, both eigenvalues are positive.
        mean, half = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
        good = (mean - half > 0) & (mean + half < MAX_STRETCH) & (np.abs(at - wanted) < tol).all(axis=1)
        beyond |= good & (_radius(points) > limit)
        points[~good & ~beyond] = np.nan
    points[beyond] = np.nan
    return points, beyond


def _newton(
    lens: _Lens, start: Float64[np.ndarray, "points 2"], wanted: Float64[np.ndarray, "points 2"], rounds: int
) -> Float64[np.ndarray, "points 2"]:
    """The points that the lens maps to `wanted`, by at most `rounds` iterations of Newton's method from `start`."""
    points = start
    for _ in range(rounds):
        at, (xx, xy, yy) = _distorted(lens, points)
        x, y = (at - wanted).T
        step = np.stack([yy * x - xy * y, xx * y - xy * x], axis=1) / (xx * yy - xy * xy)[:, None]
        points = points - step
        if not (np.abs(step) > 1e-12).any():  # nor where all that is left is NaN
            break
    return points


def _distorted(
    lens: _Lens, points: Float64[np.ndarray, "points 2"]
) -> tuple[Float64[np.ndarray, "points 2"], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The distorted points, and the derivatives xx, xy = yx, yy of the distortion there."""
    x, y = points.T
    square = x * x + y * y
    (above, above_slope), (below, below_slope) = (_polynomial(square, terms) for terms in (lens.above, lens.below))
    ratio = above / below
    slope = 2 * (above_slope - ratio * below_slope) / below
    p1, p2 = lens.tangential
    at = np.stack(
        [x * ratio + 2 * p1 * x * y + p2 * (square + 2 * x * x), y * ratio + 2 * p2 * x * y + p1 * (square + 2 * y * y)], axis=1
    )
    xx = ratio + x * x * slope + 2 * p1 * y + 6 * p2 * x
    yy = ratio + y * y * slope + 2 * p2 * x + 6 * p1 * y
    return at, (xx, x * y * slope + 2 * p1 * x + 2 * p2 * y, yy)


def _polynomial(square: np.ndarray, terms: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The polynomial 1 + k1 s + k2 s^2 + ... and its derivative, by Horner's scheme."""
    value, slope = np.zeros_like(square), np.zeros_like(square)
    for term in (*terms[::-1], 1.0):
        value, slope = value * square + term, slope * square + value
    return value, slope


def _radius(points: Float64[np.ndarray, "points 2"]) -> Float64[np.ndarray, "points"]:
    """Distances of points from the origin."""
    return np.hypot(points[:, 0], points[:, 1])


def _border(camera: Camera, steps: int) -> Float64[np.ndarray, "points 2"]:
    """Pixels along the image's outline, in order, `steps` of each side."""
    along = np.arange(steps) / steps
    width, height = float(camera.width_px), float(camera.height_px)
    zero, one = np.zeros(steps), np.ones(steps)
    x = np.concatenate([along, one, 1 - along, zero]) * width
    y = np.concatenate([zero, along, one, 1 - along]) * height
    return np.stack([x, y], axis=1)
