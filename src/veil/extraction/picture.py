"""Decoded photographs: upright gray pixels, a digest, and the camera read from the metadata."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import UInt8

from veil.errors import InputError
from veil.geometry.camera import MAX_FOCAL, MIN_FOCAL, Camera, checked_camera, guessed
from veil.one_line import one_line

# EXIF 2.3 tags of the Exif IFD.
_FOCAL_LENGTH_MM, _FOCAL_35MM = 0x920A, 0xA405
_PLANE_X_RESOLUTION, _PLANE_Y_RESOLUTION, _PLANE_UNIT, _PIXEL_WIDTH, _PIXEL_HEIGHT = 0xA20E, 0xA20F, 0xA210, 0xA002, 0xA003
_DIGITAL_ZOOM = 0xA404
_MM_PER_UNIT = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
_FULL_FRAME_DIAGONAL_MM = math.hypot(36.0, 24.0)
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R 601, what every image library calls gray
_ROWS = 256
# Ratios of the sides that no sensor has: squares are cut from larger pictures, and panoramas are joined from several. Phones
# take pictures of up to 21:9.
LEAST_ASPECT, MOST_ASPECT = 1.02, 2.4
# Largest difference, as a share, between ratios of sides or resolutions that should be equal, and largest digital zoom.
SAME_SHAPE, LARGEST_ZOOM = 0.02, 1.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A decoded, upright photograph.

    - `gray`, uint8 (height, width): luma of ITU-R 601.
    - `camera`: intrinsics in pixels of this image.
    - `digest`, 32 bytes: BLAKE2b of the size and the RGB pixels; it identifies the pixels, not the file.
    - `rgb`, uint8 (height, width, 3): the colors, or None where only gray is known.
    - `full_size`: width and height (pixels) in the file of a picture that was shrunk; None: as here.
    """

    gray: UInt8[np.ndarray, "height width"]
    camera: Camera
    digest: bytes
    rgb: UInt8[np.ndarray, "height width 3"] | None = None
    full_size: tuple[int, int] | None = None

    __repr__ = one_line

    @staticmethod
    def of(
        rgb: UInt8[np.ndarray, "height width 3"], exif: Mapping[int, object] | None = None, camera: Camera | None = None
    ) -> Picture:
        """The `Picture` of upright pixels `rgb`, such as a frame of a video.

        - `exif`: the Exif IFD, from which the focal length is read; without it, or where it cannot be this picture's, the focal
          length is a guess.
        - `camera`: intrinsics in pixels of this image, in place of what `exif` says.

        Raises InputError if the image is too small to hold a feature, the camera is for another size, or its intrinsics are
        impossible (RangeError).
        """
        height, width = rgb.shape[:2]
        if min(height, width) < 16:
            raise InputError(f"the image is {width}x{height} px; features need at least 16 px a side")
        if camera is not None:
            camera = _checked(camera, width, height)
        gray = np.empty((height, width), dtype=np.uint8)
        digest = hashlib.blake2b(f"{width}x{height}|".encode(), digest_size=32)
        for top in range(0, height, _ROWS):  # a float of each pixel at once would be four times the picture
            rows = np.ascontiguousarray(rgb[top : top + _ROWS])
            gray[top : top + _ROWS] = (rows.astype(np.float32) @ _LUMA + 0.5).astype(np.uint8)
            digest.update(rows.data)
        if camera is None:
            camera = checked_camera(guessed(width, height, focal_px=focal_from_exif(exif or {}, width, height)))
        return Picture(gray=gray, camera=camera, digest=digest.digest(), rgb=rgb)

    def seen_by(self, camera: Camera) -> Picture:
        """The picture with this camera. Raises InputError for a camera of another size or with impossible intrinsics."""
        return replace(self, camera=_checked(camera, self.gray.shape[1], self.gray.shape[0]))


def _checked(camera: Camera, width_px: int, height_px: int) -> Camera:
    """The camera itself. Raises InputError if it is of another size, or no photograph can have its intrinsics."""
    if (camera.width_px, camera.height_px) != (width_px, height_px):
        raise InputError(
            f"the camera is for {camera.width_px}x{camera.height_px} px but the upright image has {width_px}x{height_px}"
        )
    return checked_camera(camera)


def focal_from_exif(exif: Mapping[int, object], width_px: int, height_px: int) -> float | None:
    """Focal length in pixels that EXIF gives, or None where the metadata is missing, absurd or of another picture.

    The 35-mm equivalent relates diagonals (CIPA DCG-001); otherwise the sensor's resolution converts millimeters. Both are of
    the whole sensor. Squares, panoramas, pictures of another shape than the metadata says, and those with a digital zoom show
    a part of it, or are several pictures.
    """
    if _is_another_picture(exif, width_px, height_px):
        return None
    equivalent_mm = _number(exif.get(_FOCAL_35MM))
    if equivalent_mm is not None:
        return _plausible(equivalent_mm / _FULL_FRAME_DIAGONAL_MM * math.hypot(width_px, height_px), width_px, height_px)
    focal_mm = _number(exif.get(_FOCAL_LENGTH_MM))
    resolution = _number(exif.get(_PLANE_X_RESOLUTION))
    unit_mm = _MM_PER_UNIT.get(int(_number(exif.get(_PLANE_UNIT)) or 2))
    if focal_mm is None or resolution is None or unit_mm is None:
        return None
    if abs(math.log((_number(exif.get(_PLANE_Y_RESOLUTION)) or resolution) / resolution)) > SAME_SHAPE:
        return None
    # The sides may be listed as the sensor has them or as the picture was turned since: the longer one is the same.
    longer, original = max(width_px, height_px), max(_original_size(exif), default=0.0)
    return _plausible(focal_mm / unit_mm * resolution * longer / (original or longer), width_px, height_px)


def _original_size(exif: Mapping[int, object]) -> list[float]:
    """Width and height in pixels of the picture that the camera wrote, as far as EXIF gives them."""
    return [side for tag in (_PIXEL_WIDTH, _PIXEL_HEIGHT) if (side := _number(exif.get(tag))) is not None]


def _is_another_picture(exif: Mapping[int, object], width_px: int, height_px: int) -> bool:
    """Whether the picture cannot be the one that a camera wrote with this metadata, or shows a part of what its sensor saw."""
    aspect = max(width_px, height_px) / min(width_px, height_px)
    if not LEAST_ASPECT <= aspect <= MOST_ASPECT or (_number(exif.get(_DIGITAL_ZOOM)) or 1.0) > LARGEST_ZOOM:
        return True
    original = _original_size(exif)
    return len(original) == 2 and abs(math.log(aspect * min(original) / max(original))) > SAME_SHAPE


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _plausible(focal_px: float, width_px: int, height_px: int) -> float | None:
    """The focal length (pixels) if an image of this size can have it, else None."""
    return focal_px if MIN_FOCAL <= focal_px / max(width_px, height_px) <= MAX_FOCAL else None
