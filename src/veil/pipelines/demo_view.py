"""The demo's map in three dimensions: its hardened queries, its photographs, and pictures from the map's raw descriptors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from veil.features import Features
from veil.localization.judge import Localization
from veil.pipelines.maps import Map
from veil.pipelines.uploads import loaded
from veil.pipelines.viewing import inverted, shown_query
from veil.progress import Progress, ignore_progress
from veil.report.viewer.content import Known, View, view_of_scene
from veil.scene import Scene
from veil.studies.localization.form_answers import Variant
from veil.studies.localization.held_out import Outcome
from veil.wire import decode


def demo_view(
    outcomes: Sequence[Outcome],
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


def _is_shown(variant: Variant) -> bool:
    """Whether queries of a variant are shown: those in subspaces with positions, sent to the public map."""
    return (
        variant.profile is not None and variant.profile.name == "hardened" and variant.distance == "p2s" and not variant.lines
    )
