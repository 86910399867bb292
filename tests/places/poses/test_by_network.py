"""Raw queries on public maps by LightGlue: planted poses are recovered, and nothing protected is matched by a network."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError, SpaceError
from veil.forms import Lines
from veil.geometry.rigid import rotation_angle_deg
from veil.matching.lightglue import LightGlueOptions, lightglue_of
from veil.places.held_map import Map
from veil.places.localization import localize_loaded
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize
from worlds import generator, subspaces
from worlds.lightglue_weights import random_weights, still_weights
from worlds.map_scenes import KINDS, image_name, planted_map

NETWORK = lightglue_of(still_weights(), LightGlueOptions(min_score=0.5))


@pytest.mark.slow
def test_a_planted_pose_is_found() -> None:
    """Oracle: planted truth, of a view that is taken out of the map. Nearly all pairs are right, most trusted ones first."""
    scene, place = planted_map("by network", points=200)
    name = image_name("02")
    query = scene.images[name]
    images = {key: image for key, image in scene.images.items() if key != name}
    map_ = type(scene)(images=images, points=scene.points, mean_reprojection_error_px=0.3)
    answer = localize(place.camera, query.keypoints, query.form, map_, network=NETWORK)
    assert isinstance(answer, Localization) and answer.log10_nfa < -50
    truth = place.poses["02"]
    assert np.linalg.norm(answer.cam_from_world.center - truth.center) < 0.02
    assert rotation_angle_deg(answer.cam_from_world.rotation @ truth.rotation.T) < 0.2
    assert (query.point_rows[answer.keypoint_rows] == answer.point_rows).mean() > 0.98
    nearest = localize(place.camera, query.keypoints, query.form, map_)
    assert isinstance(nearest, Localization) and answer.correspondences <= nearest.correspondences
    # Broken twin of the positions' order: keypoints of other features have no pose.
    assert isinstance(localize(place.camera, query.keypoints[::-1].copy(), query.form, map_, network=NETWORK), NoPose)


@pytest.mark.parametrize("kind", KINDS)
def test_a_protected_map_or_query_is_not_matched_by_a_network(kind: str) -> None:
    """Every form but raw descriptors with positions is refused, on either side, with the reason and what to do."""
    public, place = planted_map("by network", points=120)
    hidden, _ = planted_map("by network", kind, points=120)
    name = image_name("01")
    raw, given = public.images[name], hidden.images[name]
    asked = LoadedImage(camera=place.camera, positions=raw.keypoints, form=raw.form)
    protected = LoadedImage(camera=place.camera, positions=given.lines or given.keypoints, form=given.form)
    if kind == "public":
        assert isinstance(localize_loaded(asked, Map(scene=hidden), network=NETWORK), Localization)
        return
    with pytest.raises(InputError, match=r"the map's image .* protected: .*hidden in \w+.*leave out map_images\(network"):
        localize(place.camera, raw.keypoints, raw.form, hidden, network=NETWORK)
    with pytest.raises(InputError, match=r"the query is protected: .*hidden in \w+.*leave out map_images\(network"):
        localize_loaded(protected, Map(scene=public), network=NETWORK)
    assert isinstance(given.lines, Lines) == (kind == "lines")


def test_a_network_for_other_descriptors_is_refused() -> None:
    scene, place = planted_map("by network", points=120)
    query = scene.images[image_name("01")]
    other = lightglue_of(random_weights(generator("other")))
    with pytest.raises(SpaceError, match="6 dimensions"):
        localize(place.camera, query.keypoints, query.form, scene, network=other)
    lifted = subspaces(generator("lifted"), np.eye(128, dtype=np.float32)[: len(query.keypoints)], 4, scene.space)
    with pytest.raises(InputError, match="hidden in subspaces"):
        localize(place.camera, query.keypoints[:128], lifted, scene, network=NETWORK)
