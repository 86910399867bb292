"""COLMAP's SIFT: the first octave that suits a photograph."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from worlds import camera, generator


def blobs(count: int) -> Picture:
    """Gray Gaussian blobs of 1 and 3 px at random places of an image of 320x240 px."""
    random = generator(f"blobs {count}")
    y, x = np.mgrid[:240, :320]
    image = np.full((240, 320), 128.0)
    for index in range(count):
        cx, cy = random.uniform(10, 230, 2)
        image += (-1) ** index * 100 * np.exp(-((x - cx - 80 * (index % 2)) ** 2 + (y - cy) ** 2) / (2 + 16 * (index % 2)))
    return Picture(gray=np.clip(image, 0, 255).astype(np.uint8), camera=camera(320, 240), digest=bytes(32))


def test_the_image_is_doubled_only_where_it_gives_few_features() -> None:
    """Oracle: the octaves one by one; `None` is octave 0 while that gives half of what is asked, and -1 otherwise."""
    picture = blobs(100)
    counts = {octave: len(extract_sift(picture, SiftOptions(first_octave=octave))) for octave in (0, -1)}
    assert counts[-1] > counts[0] > 20
    for most, expected in ((counts[0], counts[0]), (2 * counts[0], counts[0]), (8192, counts[-1])):
        assert len(extract_sift(picture, SiftOptions(first_octave=None, max_features=most))) == expected
    with pytest.raises(InputError, match="first_octave"):
        SiftOptions(first_octave=2)
