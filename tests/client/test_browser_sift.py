"""SIFT in TypeScript against COLMAP's through pycolmap, on photographs; skipped without Node.js."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.examples import lund_door, other_place
from veil.files.photographs.pictures import read_picture
from worlds.node_sift import agreement, no_node, node_sift

pytestmark = [pytest.mark.slow, pytest.mark.skipif(no_node() is not None, reason=no_node() or "")]


def alike(reference: Features, other: Features) -> bool:
    """Whether two extractions are the same up to the rounding of single precision: 99.5 % of features, and their bytes."""
    for agreed in (agreement(reference, other), agreement(other, reference)):
        if agreed.share < 0.995 or np.percentile(agreed.distances, 99) > 0.01 or np.percentile(agreed.offsets_px, 99) > 0.02:
            return False
    return abs(len(other) - len(reference)) <= 0.005 * len(reference)


def portal() -> Picture:
    with lund_door() as example:
        return read_picture(example.folder / "DSC_0003.jpg", camera=example.camera)


def test_features_are_colmaps() -> None:
    """Oracle: COLMAP. Broken twins: directions counted the other way around, cells by columns, keypoints half a pixel off."""
    picture, options = portal(), SiftOptions(max_features=1536)
    reference = extract_sift(picture, options)
    features, _ = node_sift(picture, options)
    assert alike(reference, features)
    cells = features.descriptors.reshape(-1, 4, 4, 8)
    turned = np.roll(cells[..., ::-1], 1, axis=-1).reshape(-1, 128)
    assert not alike(reference, replace(features, descriptors=np.ascontiguousarray(turned)))
    by_columns = cells.transpose(0, 2, 1, 3).reshape(-1, 128)
    assert not alike(reference, replace(features, descriptors=np.ascontiguousarray(by_columns)))
    assert not alike(reference, replace(features, keypoints=features.keypoints - np.float32(0.5)))


def test_a_doubled_image_and_root_sift_are_colmaps() -> None:
    """The same, with an image of another camera, RootSIFT, and the octave that both choose themselves."""
    with other_place() as path:
        picture = read_picture(path)
    options = SiftOptions(max_features=4096, normalization="L1_ROOT", first_octave=None)
    reference = extract_sift(picture, options)
    features, _ = node_sift(picture, options)
    assert alike(reference, features)


def test_a_blank_picture_is_refused() -> None:
    picture = portal()
    blank = replace(picture, gray=np.full_like(picture.gray, 90))
    with pytest.raises(subprocess.CalledProcessError) as raised:
        node_sift(blank, SiftOptions())
    assert "no features were found" in raised.value.stderr
