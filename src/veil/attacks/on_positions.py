"""Entry of the list of attacks for the attack on positions in the clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from veil.attacks.attack import Attack, Attempt
from veil.attacks.claims import CannotRun, Pose
from veil.attacks.matches.positions_alone import groups_of_images, localized_near
from veil.attacks.target import Target
from veil.errors import Remedy
from veil.places.poses.answer import Localization
from veil.places.poses.options import PositionOptions

# Samples in each group of images, and the seconds of the processor after which it is left in any case.
SAMPLES, MOST_SECONDS = 10_000_000, 30.0


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
        upright=replace(PositionOptions().upright, samples=SAMPLES),
        max_seconds=min(MOST_SECONDS, target.time.allowance(POSITIONS_ATTACK.name)),
        seed=target.effort.seed,
    )
    found: list[Localization] = []

    def tried(group: Sequence[str]) -> bool:
        if found:
            return False
        pose = localized_near(camera, keypoints, gravity, scene, group, groups=len(groups), options=options)
        found.extend([pose] if pose is not None else [])
        return True

    with target.timer() as clock:
        runs = target.time.run_some(POSITIONS_ATTACK.name, groups, tried, target.effort.seed)
    count = sum(ran for _, ran in runs)
    best = found[0] if found else None
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
    modules=("matches.positions_alone",),
    run=_positions,
    time_share=2.0,
)
