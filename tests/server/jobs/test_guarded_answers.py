"""Answers of private maps by their policy: what rests on one thing is not told, and public maps tell all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.device.device import Device
from veil.device.protection import HideInSubspaces, Protection
from veil.errors import RangeError
from veil.features import Features
from veil.files.maps.format import write_map
from veil.mechanisms.profile import Profile
from veil.places.localization import WITHHELD
from veil.server.jobs.tasks import GUARDED, NOTHING_BESIDE, localize_query
from veil.server.maps.policy import MapPolicy
from veil.server.service import waited_for_step
from worlds.releases import planted_map, taken


@pytest.fixture(scope="module")
def features(door: dict[str, Features]) -> Features:
    return taken(next(iter(door.values())), np.arange(200))


@pytest.fixture(scope="module")
def query(features: Features, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return (
        Device(tmp_path_factory.mktemp("device"))
        .release(features, Protection(descriptors=HideInSubspaces(profile=Profile.paper(4))), name="q")
        .message
    )


@pytest.mark.parametrize("public", [False, True])
def test_a_private_map_tells_no_pose_on_one_thing(features: Features, query: bytes, tmp_path: Path, public: bool) -> None:
    """Oracle: all points lie within one extent of each other, so that a thing so large holds all evidence. Broken twins: no
    guard, and a guard of public maps, which hide nothing.
    """
    write_map(tmp_path / "map", planted_map(features, public=public))

    def answer(**values: Any) -> dict[str, Any]:
        policy = MapPolicy(least_profile="any", **values).as_json()
        told = localize_query(query, policy, str(tmp_path / "map"), NOTHING_BESIDE, lambda *_: None)
        assert told is not None
        return told

    assert answer(largest_object=None)["status"] == "localized", answer(largest_object=None)
    usual = answer()
    assert usual["status"] == "localized"  # keypoints all over the picture
    told = (usual["evidence"], usual["covariance"], usual["turn_deviation_deg"])
    assert (None in told) is not public and (set(map(str, told)) == {"None"}) is not public
    assert (GUARDED in usual and "seconds" not in usual) is not public
    guarded = answer(largest_object=1)
    if public:
        assert guarded["status"] == "localized"
    else:
        assert guarded == {"status": "no pose", "reason": WITHHELD, "correspondences": 0, GUARDED: True}


def test_policies_guard_by_default_and_refuse_impossible_sizes() -> None:
    """Oracle: the default, which records of before have, too."""
    assert MapPolicy().largest_object == 0.15 and MapPolicy.of({}).largest_object == 0.15
    assert MapPolicy.of({"largest_object": None}).largest_object is None
    for wrong in (0, 1.5, -0.1, float("nan")):
        with pytest.raises(RangeError, match="largest_object"):
            MapPolicy.of({"largest_object": wrong})


def test_guarded_answers_end_with_a_step_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: a clock that moves by what is slept, and stops short of it at first, as a sleep may."""
    now = [10.0]
    monkeypatch.setattr("veil.server.service.time.monotonic", lambda: now[0])
    monkeypatch.setattr("veil.server.service.time.sleep", lambda rest: now.__setitem__(0, now[0] + max(rest * 0.9, 1e-3)))
    for spent, told in ((0.3, 2.0), (1.999, 2.0), (2.5, 4.0)):
        now[0] = 10.0 + spent
        assert waited_for_step(10.0) == told and now[0] >= 10.0 + told
