"""Positions attack: whoever has a map of the place localizes a photograph from keypoint positions and gravity alone.

No descriptor and no word is used, so that no form of these and no epsilon says anything about it. The attacker does not know
where the camera was and tries the images of the map in groups of neighbors (docs/theory/words_upright.md#positions-alone).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64

from veil.geometry.camera import Camera
from veil.places.poses.answer import Localization
from veil.places.poses.options import PositionOptions
from veil.scene import Scene

# Images of a group: one, and those whose cameras are nearest to it.
GROUP = 2


def groups_of_images(scene: Scene) -> list[tuple[str, ...]]:
    """Groups of `GROUP` neighboring images, sorted by name, that together hold every image of a map; no two are the same."""
    groups = (scene.nearest(image.cam_from_world.center, GROUP) for image in scene.images.values())
    return sorted({tuple(sorted(group)) for group in groups})


def localized_near(
    camera: Camera,
    keypoints: Float32[np.ndarray, "features 2"],
    gravity: Float64[np.ndarray, "3"],
    scene: Scene,
    group: Sequence[str],
    *,
    groups: int,
    options: PositionOptions,
) -> Localization | None:
    """The pose of a photograph near a group of images, from positions (pixels) alone; None where chance gives one as good.

    Chance has a turn in each of the `groups` that are tried, and the threshold is stricter by their number. Raises what
    `localize_positions` raises.
    """
    stricter = replace(options, max_log10_nfa=options.max_log10_nfa - math.log10(groups))
    from veil.places.poses.upright import localize_positions  # loads SciPy and COLMAP

    found = localize_positions(camera, keypoints, scene, gravity=gravity, near=group, options=stricter)
    return found if isinstance(found, Localization) else None
