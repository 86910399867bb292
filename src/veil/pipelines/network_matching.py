"""Matching of raw images by LightGlue in pipelines: what it reads of images whose descriptors are read from files on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veil.mapping.images import MapImage, OnDemand
from veil.matching.lightglue import LightGlue
from veil.matching.placed_points import PlacedPoints, placed, require_raw
from veil.pipelines.uploads import LoadedImage


class PlacedImages(OnDemand[LoadedImage, PlacedPoints]):
    """What LightGlue reads of images by name, each taken from its image when it is asked for.

    Raises InputError at once, without reading any descriptor, if one of the images is protected.
    """

    def __init__(self, images: Mapping[str, LoadedImage]) -> None:
        for name, image in images.items():
            require_raw(image.form_type, image.positions, what=name)
        super().__init__(images, lambda name, image: placed(image.form, image.positions, image.camera, what=name))


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkMatching:
    """LightGlue and what it reads of each image, by name."""

    network: LightGlue
    images: Mapping[str, PlacedPoints]


def of_map_images(network: LightGlue, images: Mapping[str, MapImage]) -> NetworkMatching:
    """LightGlue with images of a map and new ones. Raises InputError if one of them is protected."""
    read = {name: placed(image.form, image.keypoints, image.camera, what=name) for name, image in images.items()}
    return NetworkMatching(network=network, images=read)
