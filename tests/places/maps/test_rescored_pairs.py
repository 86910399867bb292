"""Poor pairs of images are verified once more by matches of large log odds, and pairs of different places are not."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from veil.device.doors import published
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.matching import match, match_pairs
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import ChosenFeatures
from veil.places.images_on_demand import map_image
from veil.places.maps import MapImage, MapOptions, StageLimits
from veil.places.maps import verification as module
from veil.places.maps.colmap import Colmap
from veil.places.maps.verification import Verification
from veil.randomness import Secret, memoized
from veil.wire import decode, encode
from veil.wire.message import Message

STRANGER = "stranger"


@pytest.fixture(scope="module")
def few(door: dict[str, Features], elsewhere: Features) -> dict[str, MapImage]:
    """Releases of features of six photographs that one other photograph shows each, and of one of another place."""
    shown = dict(door)
    counts = {name: np.zeros(len(item), dtype=np.int64) for name, item in shown.items()}
    for a, b in combinations(shown, 2):
        raw = match(publish(shown[a]), publish(shown[b]))
        rows = raw.indices[raw.ratios < 0.8]
        counts[a][rows[:, 0]] += 1
        counts[b][rows[:, 1]] += 1
    chosen = {name: np.flatnonzero(count == 1)[:100] for name, count in counts.items()}
    chosen[STRANGER] = np.arange(100)
    return {
        name: map_image(published(decode(encode(_released(item, chosen[name]), dtype="float16"))))
        for name, item in {**shown, STRANGER: elsewhere}.items()
    }


def _released(features: Features, rows: np.ndarray) -> Message:
    return privatize(
        features,
        profile=Profile.hardened(quantized=True),
        compression=bundled_codebook().compression,
        decoys=bundled_decoys(),
        randomness=memoized(Secret(bytes(32))),
        selection=ChosenFeatures(rows=np.sort(rows)),
    ).upload


def verified(images: dict[str, MapImage], workdir: Path, options: MapOptions | None = None) -> dict[tuple[str, str], int]:
    """Number of inliers of the verified pairs."""
    matches = match_pairs({name: image.form for name, image in images.items()}, list(combinations(images, 2)), workers=1)
    workdir.mkdir()
    with Colmap(StageLimits()) as colmap:
        verification = Verification(images, options or MapOptions(), workdir, colmap)
        assert verification.run(matches) is None
    return {pair: len(entry.inliers) for pair, entry in verification.pairs.items()}


def test_a_pair_that_ratios_leave_is_verified_and_no_stranger_is(
    few: dict[str, MapImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the folders that photographs are from. Broken twin: by ratios alone a pair is missing."""
    pairs = verified(few, tmp_path / "odds")
    assert not any(STRANGER in pair for pair in pairs)
    monkeypatch.setattr(module, "scoring_for", lambda left, right: None)
    by_ratio = verified(few, tmp_path / "ratio")
    assert by_ratio.keys() < pairs.keys() and sum(pairs.values()) > sum(by_ratio.values())


def test_a_ratio_that_is_asked_for_decides_alone(
    few: dict[str, MapImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "matches_by_odds", lambda *_, **__: pytest.fail("matches by log odds were sought"))
    assert verified(few, tmp_path / "ratio", MapOptions(max_ratio=0.86))
