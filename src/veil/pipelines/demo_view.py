"""Pictures of the demo: its map in three dimensions, and the picture that an attacker draws of a photograph that was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import UInt8

from veil.attacks.attack import Attempt
from veil.attacks.registry import named, unbounded
from veil.attacks.target import Effort, ReleasedImage, Target
from veil.audit.on_pictures import as_sift
from veil.audit.run import try_attacks
from veil.features import Features
from veil.files.inverters import bundled_inverter
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import points_map
from veil.inversion.whole import whole
from veil.pipelines.attacker import Attacker
from veil.pipelines.maps import Map
from veil.pipelines.uploads import loaded
from veil.pipelines.viewing import inverted, shown_query
from veil.places.poses.judge import Localization
from veil.progress import Progress, ignore_progress
from veil.report.viewer.content import Known, View, view_of_scene
from veil.scene import Scene
from veil.trials.form_answers import Variant
from veil.trials.held_out import TrialOutcome
from veil.wire import Upload, decode


def demo_view(
    outcomes: Sequence[TrialOutcome],
    features: Mapping[str, Features],
    read_rgb: Callable[[str], np.ndarray],
    progress: Progress = ignore_progress,
) -> View | None:
    """The view of the demo's public map with the queries that were sent to it in hardened form; None if there is no such map.

    The photographs are bundled, and so public: the page holds them, and true keypoints, as those of a device.
    """
    own = [outcome for outcome in outcomes if _is_shown(outcome.variant)]
    scene = next((outcome.scene for outcome in own if isinstance(outcome.scene, Scene)), None)
    if scene is None:
        return None
    queries = [
        shown_query(outcome.query.name, loaded(decode(outcome.message)), outcome.found)
        for outcome in own
        if outcome.message is not None and isinstance(outcome.found, Localization)
    ]
    view = view_of_scene(scene, "veil demo: Door, Lund")
    images = [*view.images, *queries]
    known = {
        image.name: Known(photograph=read_rgb(image.name), keypoints=features[image.name].keypoints.astype(np.float64))
        for image in images
    }
    recovered = {name: [item] for name, item in inverted(Map(scene=scene), len(scene.images), progress).items()}
    return replace(view, images=images, known=known, recovered=recovered)


def drawn_by_attacker(outcome: TrialOutcome) -> UInt8[np.ndarray, "height width 3"] | None:
    """The picture that an attacker draws of one photograph sent in hardened form; None if it was sent in another one.

    The attacker has all that is public: the message, and the bundled pool, from which the demo draws its decoys. The attack
    `database` estimates the descriptors of all features, and the bundled network draws the whole photograph.
    """
    message = None if outcome.message is None else decode(outcome.message)
    if not isinstance(message, Upload) or not _is_shown(outcome.variant):
        return None
    knowledge = Attacker().knowledge([message])
    target = Target(
        image=ReleasedImage.of(message), rows=np.arange(len(message)), knowledge=knowledge, effort=Effort(), time=unbounded()
    )
    attempt = try_attacks(target, named("database"))[0].outcome
    if not isinstance(attempt, Attempt) or attempt.estimates is None:
        return None
    points = as_sift(attempt.estimates.points, message.form.space, knowledge)
    known = partial(points_map, keypoints=message.keypoints[attempt.rows], points=points)
    return whole(PlainInverter(bundled_inverter()), message.camera.width_px, message.camera.height_px, known)[0]


def _is_shown(variant: Variant) -> bool:
    """Whether queries of a variant are shown: those in subspaces with positions, sent to the public map."""
    return (
        variant.profile is not None and variant.profile.name == "hardened" and variant.distance == "p2s" and not variant.lines
    )
