"""The usual protection of a photograph, by what its message is for (docs/choose.md#the-decision)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float64

from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import ReleaseRefused, Remedy
from veil.features import Features
from veil.files.codebooks import bundled_codebook

# A message is for `veil localize`, or for `veil map`.
Purpose = Literal["localize", "map"]
# Of each feature in words that are to be localized, and how many of them leave.
EPSILON, FEATURES = 5.0, 1000
TILES = Remedy("see", "tiles")
GRAVITY = Remedy("give", "Protection.gravity")
OBFUSCATION = Remedy("give", "Protection.descriptors", "HideInSubspaces()")


def usual_protection(
    purpose: Purpose, features: Features, *, gravity: Float64[np.ndarray, "3"] | None = None, most_epsilon: float = EPSILON
) -> Protection:
    """The protection of a photograph by what its message is for: words to localize, an obfuscation for a map.

    `purpose` is one of two:

    - "localize": words of 1,000 features at epsilon 5 each, with gravity beside the positions (Pittaluga and Zhuang 2023). They
      are found on maps that have gravity. Where a map has tiles, nothing need leave at all (`veil.localize_with_tiles`).
    - "map": hardened subspaces. They are an obfuscation without proof: words do not match each other well enough for maps.

    The other arguments:

    - `features`: raw features of the photograph.
    - `gravity`: down in the camera frame (x right, y down, z forward), of any length, for `veil.measure_gravity` to find.
    - `most_epsilon`: of each feature, where a smaller one than the usual one is asked for.

    Raises ReleaseRefused for "localize" where gravity or the focal length is not known, as no map would find the words;
    InputError for a gravity that no camera has, or a descriptor that no dictionary is bundled for.
    """
    if purpose == "map":
        return Protection(descriptors=HideInSubspaces())
    require_localizable(features, gravity)
    return Protection(descriptors=usual_words(features.space.descriptor, most_epsilon=most_epsilon), gravity=gravity)


def usual_words(descriptor: str, *, most_epsilon: float = EPSILON) -> HideInWords:
    """The words that leave of a `descriptor` to be localized, at a smaller epsilon than the usual one if that is asked for."""
    return HideInWords(min(EPSILON, most_epsilon), dictionary=bundled_codebook(descriptor), features_sent=FEATURES)


def require_localizable(features: Features, gravity: Float64[np.ndarray, "3"] | None) -> None:
    """Raise ReleaseRefused where no map would find words of a photograph, so that they would leave for nothing."""
    camera = Remedy("give", "Features.camera")
    known = ((gravity is not None, "gravity", GRAVITY), (features.camera.as_sent.focal_is_known, "its focal length", camera))
    for is_known, what, remedy in known:
        if not is_known:
            raise ReleaseRefused(
                f"to be localized a photograph leaves in words, which no map finds without {what}, and that is not known",
                remedy=(TILES, remedy, OBFUSCATION),
            )
