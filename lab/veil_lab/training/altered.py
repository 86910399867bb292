"""Altered copies of a photograph, mirrored or of another size: more can be learned from them than from one picture."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

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
