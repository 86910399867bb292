"""Held-out photographs in every form, where one form gives no map."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import veil.trials.held_out as localization
from veil.errors import InputError, Remedy
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.mechanisms.profile import Profile
from veil.places.maps import NoMap
from veil.places.poses.answer import NoPose
from veil.randomness import Secret, memoized
from veil.trials.form_answers import Variant
from veil.trials.held_out import HeldOutSetup, Query, run_variants
from worlds import features, generator

MORE = (Remedy("give", "photographs with more overlap"),)


def test_a_private_map_that_cannot_be_built_answers_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a private map its queries get no pose and the study goes on; without a map of raw features it stops."""
    monkeypatch.setattr(localization, "build_map", lambda *_, **__: NoMap("too weak", remedy=MORE))
    items = {name: features(generator(name), 30, name=name) for name in ("a", "b", "c")}
    setup = HeldOutSetup(
        mapped={name: items[name] for name in ("a", "b")},
        references={},
        codebook=bundled_codebook(),
        decoys=bundled_decoys(),
        randomness=memoized(Secret(bytes(range(32)))),
        workdir=tmp_path,
    )
    query = Query(name="c", features=items["c"], reference=None)
    (outcome,) = run_variants(setup, [query], [Variant(profile=Profile.paper(2), distance="s2s")])
    assert isinstance(outcome.pose, NoPose) and "too weak" in outcome.pose.reason and outcome.pose.remedy == MORE
    assert outcome.as_json()["status"] == "no pose" and outcome.message is not None
    (tmp_path / "raw").mkdir()
    with pytest.raises(InputError, match="too weak") as caught:
        list(run_variants(replace(setup, workdir=tmp_path / "raw"), [query], [Variant(profile=None, distance="point")]))
    assert caught.value.remedy == MORE
