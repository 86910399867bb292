"""Entry of the list of attacks for the attack on positions in the clear, and that attack.

Whoever has a map of the place localizes a photograph from keypoint positions and gravity alone. No descriptor and no word is
used, so that no form of these and no epsilon says anything about it. The attacker does not know where the camera was and tries
the images of the map in groups of neighbors (docs/theory/words_upright.md#positions-alone).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64

from veil.attacks.attack import Attack, Attempt
from veil.attacks.claims import CannotRun, Pose
from veil.attacks.target import Target
from veil.errors import Remedy
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

    answer = localize_positions(camera, keypoints, scene, gravity=gravity, near=group, options=stricter)
    return answer if isinstance(answer, Localization) else None


# Samples in each group of images, and the seconds of the processor after which it is left in any case.
SAMPLES, MOST_SECONDS = 10_000_000, 30.0
# An attacker tells no user where a camera stood: it believes poses of less evidence.
MARGIN = 6.0


def _positions(target: Target) -> Attempt:
    image, scene = target.image, target.knowledge.scene
    if scene is None:
        raise CannotRun("no map of the place was given", remedy=Remedy("give", "Attacker.where"))
    if scene.down is None:
        raise CannotRun("the map has no gravity", remedy=Remedy("give", "map_images.gravity"))
    if image.keypoints is None or image.gravity is None or image.camera is None:
        raise CannotRun("gravity was not sent; whoever guesses it, or holds the phone upright, is not stopped by that")
    camera, keypoints, gravity = image.camera, image.keypoints, image.gravity
    groups = groups_of_images(scene)
    options = PositionOptions(
        upright=replace(PositionOptions().upright, samples=SAMPLES, margin=MARGIN),
        max_seconds=min(MOST_SECONDS, target.time.allowance(POSITIONS_ATTACK.name)),
        seed=target.effort.seed,
    )
    poses: list[Localization] = []

    def tried(group: Sequence[str]) -> bool:
        if poses:
            return False
        pose = localized_near(camera, keypoints, gravity, scene, group, groups=len(groups), options=options)
        poses.extend([pose] if pose is not None else [])
        return True

    with target.timer() as clock:
        runs = target.time.run_some(POSITIONS_ATTACK.name, groups, tried, target.effort.seed)
    count = sum(ran for _, ran in runs)
    best = poses[0] if poses else None
    details = {"localized": float(best is not None), "groups": float(len(groups)), "groups_tried": float(count)}
    if best is not None:
        details |= {"log10_nfa": best.log10_nfa}
    return Attempt(
        label=POSITIONS_ATTACK.name,
        rows=np.arange(len(keypoints)),
        claim=Pose(cam_from_world=None if best is None else best.cam_from_world),
        seconds=clock.seconds,
        details=details,
    )


POSITIONS_ATTACK = Attack(
    name="positions alone",
    surface="positions",
    family="positions",
    assumes="a map of the place, and gravity as it was sent",
    units="pose",
    modules=("on_positions",),
    _run=_positions,
    time_share=2.0,
)
