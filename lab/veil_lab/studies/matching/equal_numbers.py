"""Equal numbers of features of several descriptors, so that none is compared with more of them than another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from veil.features import Features

Images = Mapping[str, Features]
Name = TypeVar("Name", bound=str)


def with_equal_numbers(features: Mapping[Name, Images]) -> dict[Name, dict[str, Features]]:
    """Features by descriptor and image, of each image as many as the descriptor that gives fewest has of it.

    `features` holds features of the same images for each descriptor. Those that stay are of largest score where the detector
    gives scores, else of largest scale, else the first ones, in the order that they had.
    """
    names = next(iter(features.values()), {}).keys()
    least = {name: min(len(images[name]) for images in features.values()) for name in names}
    return {
        descriptor: {name: strongest(item, least[name]) for name, item in images.items()}
        for descriptor, images in features.items()
    }


def strongest(features: Features, count: int) -> Features:
    """At most `count` features: of largest score where there are scores, else of largest scale, else the first ones."""
    if len(features) <= count:
        return features
    worth = features.scores if features.scores is not None else features.scales
    if worth is None:
        return features.take(np.arange(count))
    order = np.argsort(-np.nan_to_num(worth.astype(np.float64)), kind="stable")
    return features.take(np.sort(order[:count]))
