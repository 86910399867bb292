"""Altered copies of a photograph, mirrored or of another size: more can be learned from them than from one picture."""

from __future__ import annotations

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
