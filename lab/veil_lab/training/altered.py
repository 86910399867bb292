"""Altered copies of a photograph: mirrored or of another size, a second view, and near repeats.

More can be learned from mirrored and resized copies than from one picture. Second views and near repeats stand for photographs
that were not taken.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, UInt8

from veil.errors import RangeError
from veil.extraction.picture import Picture
from veil.geometry.camera import guessed

# Whether a copy is mirrored, and how many times larger it is, in the order in which copies are made.
ALTERATIONS = ((True, 1.0), (False, 0.7), (True, 1.4), (False, 1.4), (True, 0.7))
# A copy with a side below this, in pixels, is not made: it would hold next to no features.
LEAST_SIDE_PX = 64


def altered_copies(picture: Picture, count: int) -> Iterator[Picture]:
    """The first `count` copies of a photograph (at most five) that are mirrored or of another size, with its own digest.

    A mirrored photograph is as likely as the photograph itself, and features of another size are other features. Raises
    RangeError for more copies than there are.
    """
    from PIL import Image

    if not 0 <= count <= len(ALTERATIONS):
        raise RangeError(f"there are at most {len(ALTERATIONS)} altered copies of a photograph, not {count}")
    height, width = picture.gray.shape
    for mirrored, factor in ALTERATIONS[:count]:
        size = round(width * factor), round(height * factor)
        if factor != 1.0 and min(size) < LEAST_SIDE_PX:
            continue
        pixels = [part for part in (picture.gray, picture.rgb) if part is not None]
        if factor != 1.0:
            pixels = [np.asarray(Image.fromarray(part).resize(size, Image.Resampling.LANCZOS)) for part in pixels]
        if mirrored:
            pixels = [np.ascontiguousarray(part[:, ::-1]) for part in pixels]
        rgb = None if picture.rgb is None else pixels[1]
        yield Picture(gray=pixels[0], camera=guessed(*size), digest=picture.digest, rgb=rgb)


# Corners of a second view in the photograph, as shares of its sides: upper left, lower left, lower right, upper right.
_VIEW = ((0.06, 0.03), (0.02, 0.95), (0.97, 0.99), (0.93, 0.02))


def second_view(picture: Picture) -> Picture:
    """The photograph as a second camera sees it if all that it shows is flat: enlarged, turned a little, in perspective.

    Of the same size, with a digest of its own, as a second photograph has one.
    """
    from PIL import Image

    height, width = picture.gray.shape
    quad = tuple(value for x, y in _VIEW for value in (x * width, y * height))
    pixels = [part for part in (picture.gray, picture.rgb) if part is not None]
    seen = [
        np.asarray(
            Image.fromarray(part).transform(
                (width, height), Image.Transform.PERSPECTIVE, _perspective(quad, width, height), Image.Resampling.BICUBIC
            )
        )
        for part in pixels
    ]
    digest = hashlib.blake2b(b"second view|" + picture.digest, digest_size=32).digest()
    rgb = None if picture.rgb is None else seen[1]
    return Picture(gray=seen[0], camera=guessed(width, height), digest=digest, rgb=rgb)


def _perspective(quad: tuple[float, ...], width: int, height: int) -> list[float]:
    """The eight coefficients by which Pillow takes the corners of a picture to `quad`."""
    corners = ((0, 0), (0, height), (width, height), (width, 0))
    rows, values = [], []
    for (x, y), (u, v) in zip(corners, zip(quad[::2], quad[1::2], strict=True), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return [float(value) for value in np.linalg.solve(np.array(rows, dtype=np.float64), np.array(values))]


RepeatKind = Literal["frame", "shot"]
# Frames and shots differ by noise of this standard deviation, and are stored as JPEG of this quality.
NOISE_LEVELS, JPEG_QUALITY = 2.0, 90
# Largest turn, shift and change of scale between the photograph and a handheld shot of it.
MOST_TURN_DEG, MOST_SHIFT_PX, MOST_SCALE = 1.0, 6.0, 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class NearRepeat:
    """A picture that is nearly a photograph, and the affine map from its pixels to those of the photograph."""

    picture: Picture
    to_photograph: Float64[np.ndarray, "2 3"]


def near_repeats(picture: Picture, kind: RepeatKind, count: int, *, seed: int) -> list[NearRepeat]:
    """Frames of a static video that shows a photograph, or handheld shots of it, each with a digest of its own.

    - "frame": the same picture with noise of 2 gray levels, as JPEG of quality 90.
    - "shot": turned by at most 1 degree, moved by at most 6 px and scaled within 2 %, without the margin that would be empty;
      then noise and JPEG.

    Raises RangeError for a picture too small for shots.
    """
    random = np.random.default_rng([seed, ("frame", "shot").index(kind), *picture.digest])
    pixels = np.repeat(picture.gray[..., None], 3, axis=2) if picture.rgb is None else picture.rgb
    repeats = []
    for _ in range(count):
        seen, to_photograph = (pixels, np.eye(2, 3)) if kind == "frame" else _moved(pixels, random)
        camera = picture.camera if kind == "frame" else None
        repeats.append(NearRepeat(picture=Picture.of(_taken(seen, random), camera=camera), to_photograph=to_photograph))
    return repeats


def _moved(
    pixels: UInt8[np.ndarray, "height width 3"], random: np.random.Generator
) -> tuple[UInt8[np.ndarray, "seen_height seen_width 3"], Float64[np.ndarray, "2 3"]]:
    """The middle of a picture as a hand that moved a little takes it, and the map from its pixels to those of the picture."""
    from PIL import Image

    middle = np.array(pixels.shape[1::-1]) / 2
    turn = np.radians(random.uniform(-MOST_TURN_DEG, MOST_TURN_DEG))
    scale, shift = 1 + random.uniform(-MOST_SCALE, MOST_SCALE), random.uniform(-MOST_SHIFT_PX, MOST_SHIFT_PX, 2)
    margin = np.ceil(MOST_SHIFT_PX + MOST_SCALE * middle + np.sin(np.radians(MOST_TURN_DEG)) * middle[::-1]).astype(int)
    size = np.array(pixels.shape[1::-1]) - 2 * margin
    if size.min() < LEAST_SIDE_PX:
        raise RangeError(f"handheld shots need pictures of {LEAST_SIDE_PX} px a side beside their margin of {margin.max()} px")
    linear = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    affine = np.column_stack([linear, middle + shift - linear @ (size / 2)])
    width, height = size.tolist()
    coefficients = affine.ravel().tolist()
    seen = Image.fromarray(pixels).transform((width, height), Image.Transform.AFFINE, coefficients, Image.Resampling.BICUBIC)
    return np.asarray(seen), affine


def _taken(pixels: UInt8[np.ndarray, "height width 3"], random: np.random.Generator) -> UInt8[np.ndarray, "height width 3"]:
    """Pixels with the noise of a camera, stored as JPEG and read again."""
    from PIL import Image

    noisy = np.clip(pixels + random.normal(0, NOISE_LEVELS, pixels.shape), 0, 255).round().astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(noisy).save(stored, "JPEG", quality=JPEG_QUALITY)
    return np.array(Image.open(stored))
