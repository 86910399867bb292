"""Learned descriptors on SIFT's keypoints, which are dense, signed, and never stored in 8 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from veil.errors import InputError
from veil.extraction.patches import sample_patches
from veil.extraction.picture import Picture
from veil.features import Features
from veil.space import Space


def describe_keypoints(picture: Picture, features: Features, name: str, network: Any) -> Features:
    """The features with their descriptors replaced by learned ones, float32 of unit length.

    `name` is "hardtfeat" or "hardnet", `network` as `veil.extraction.extract` takes it. Raises InputError if the network is
    missing or does not fit, or the features carry no scale and orientation.
    """
    if features.scales is None or features.orientations is None:
        raise InputError("a patch descriptor needs each keypoint's scale and orientation; extract from the photograph")
    patches = sample_patches(picture.gray, features.keypoints, scales=features.scales, orientations=features.orientations)
    if name == "hardnet":
        from veil.extraction.hardnet import hardnet_describe

        descriptors = hardnet_describe(patches, weights=network)
    elif network is None:
        raise InputError(f"{name} needs its network; load it with veil.files.weights.load_network({name!r})")
    else:
        descriptors = network.describe(patches)
    return replace(
        features,
        descriptors=np.ascontiguousarray(descriptors, dtype=np.float32),
        space=Space(descriptor=name, normalization="L2", dim=descriptors.shape[1]),
    )
