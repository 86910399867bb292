"""Features for a map: those on tracks alone, few, apart, and spread over all pairs of images."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from veil.device.device import Device
from veil.device.doors import map_images, select_for_map
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import InputError, ReleaseRefused
from veil.extraction.sift import sift_space
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.geometry.camera import guessed
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize
from veil.mechanisms.selection import ChosenFeatures, Selection
from veil.mechanisms.tracks import Track, features_on_tracks
from veil.places.maps import NoMap
from veil.randomness import seeded
from veil.wire.codec import decode
from worlds import generator

NAMES = ("a", "b", "c", "d")


def world(name: str, tracks: int, junk: int) -> tuple[dict[str, Features], list[Track]]:
    """Four images that show tracks, each in two or more of them, and features on no track behind those."""
    random = generator(name)
    seen = {image: 0 for image in NAMES}
    known: list[Track] = []
    for _ in range(tracks):
        images = [str(image) for image in random.choice(NAMES, random.integers(2, 5), replace=False)]
        known.append([(image, seen[image]) for image in images])
        for image in images:
            seen[image] += 1
    features = {
        image: Features(
            keypoints=random.uniform(5, 635, (count + junk, 2)).astype(np.float32),
            descriptors=random.integers(0, 90, (count + junk, 128)).astype(np.uint8),
            space=sift_space("L2"),
            camera=guessed(640, 640),
            image_digest=image.encode() * 32,
            scales=random.uniform(1, 9, count + junk).astype(np.float32),
            orientations=np.zeros(count + junk, dtype=np.float32),
        )
        for image, count in seen.items()
    }
    return features, known


def slow_choice(features: dict[str, Features], tracks: list[Track], selection: Selection) -> dict[str, list[int]]:
    """Eq. 16 by its definition: all tracks are weighed anew before each that is taken."""
    available = Counter(pair for track in tracks for pair in combinations(sorted({name for name, _ in track}), 2))
    rows: dict[str, list[int]] = {name: [] for name in features}
    taken: Counter[tuple[str, str]] = Counter()

    def free(track: Track) -> list[tuple[str, int]]:
        kept = []
        for name, row in track:
            points = features[name].keypoints.astype(np.float64)
            gaps = np.linalg.norm(points[rows[name]] - points[row], axis=1)
            if (gaps > selection.min_distance_px).all() and row not in rows[name]:
                kept.append((name, row))
        return kept

    def worth(track: Track) -> float:
        own = free(track)
        if len(own) < 2:
            return 0.0
        scale = float(np.median([np.asarray(features[name].scales)[row] for name, row in own]))
        pairs = combinations(sorted({name for name, _ in own}), 2)
        return scale**2 / len(own) * sum(1 / (1 + taken[pair]) / available[pair] ** 0.5 for pair in pairs)

    while tracks:
        worths = [worth(track) for track in tracks]
        best = int(np.argmax(worths))
        if worths[best] <= 0:
            break
        own = free(tracks[best])
        for name, row in own:
            rows[name].append(row)
        taken.update(combinations(sorted({name for name, _ in own}), 2))
    return {name: sorted(kept) for name, kept in rows.items()}


def test_the_choice_is_that_of_the_slow_reference() -> None:
    features, tracks = world("choice", tracks=150, junk=40)
    selection = Selection(features=None, min_distance_px=20.0)
    chosen = features_on_tracks(features, tracks, selection)
    assert {name: item.rows.tolist() for name, item in chosen.items()} == slow_choice(features, tracks, selection)


def test_only_features_of_tracks_leave_apart_and_at_most_as_many_as_asked() -> None:
    """Planted: the features behind the tracks are junk. Broken twin: the usual selection sends it."""
    features, tracks = world("junk", tracks=300, junk=300)
    on_tracks = {name: {row for track in tracks for image, row in track if image == name} for name in NAMES}
    chosen = features_on_tracks(features, tracks, Selection(features=50, min_distance_px=12.0))
    for name, item in chosen.items():
        assert 20 < len(item.rows) <= 50 and {*item.rows.tolist()} <= on_tracks[name]
        points = features[name].keypoints[item.rows].astype(np.float64)
        gaps = np.linalg.norm(points[:, None] - points[None], axis=2)[np.triu_indices(len(points), 1)]
        assert gaps.min() > 12


def test_a_pair_with_few_tracks_keeps_them() -> None:
    """Planted: a and b share hundreds of tracks, b and c twenty, of half the scale."""
    random = generator("rare")
    tracks: list[Track] = [[("a", row), ("b", row)] for row in range(400)]
    tracks += [[("b", 400 + row), ("c", row)] for row in range(20)]
    features, _ = world("rare", tracks=4, junk=500)
    scaled = {name: _with_scales(item, np.full(len(item), 8.0)) for name, item in features.items()}
    rare = random.permutation(20)
    scales = np.full(len(features["b"]), 8.0)
    scales[400:420] = 4.0
    scaled["b"], scaled["c"] = (
        _with_scales(features["b"], scales),
        _with_scales(features["c"], np.full(len(features["c"]), 4.0)),
    )
    chosen = features_on_tracks(scaled, tracks, Selection(features=100, min_distance_px=0.0))
    assert {*(400 + rare)} <= {*chosen["b"].rows.tolist()} and len(chosen["c"].rows) == 20
    assert len(chosen["a"].rows) == 80 and len(chosen["b"].rows) == 100 and "d" not in chosen


def test_what_left_before_leaves_again_and_others_match_it() -> None:
    """Planted: all but one image left before. Broken twin: a choice that does not know it takes tracks that did not leave."""
    features, tracks = world("grown", tracks=300, junk=50)
    selection = Selection(features=60, min_distance_px=10.0)
    old = {name: item for name, item in features.items() if name != "d"}
    sent = features_on_tracks(old, [[seen for seen in track if seen[0] != "d"] for track in tracks], selection)
    grown = features_on_tracks(features, tracks, selection, sent=sent)
    assert {name: grown[name].rows.tolist() for name in old} == {name: sent[name].rows.tolist() for name in old}

    def unmatched(rows: np.ndarray) -> int:
        left = {(name, row) for name, item in sent.items() for row in item.rows.tolist()}
        return sum(not any(seen in left for track in tracks if ("d", row) in track for seen in track) for row in rows.tolist())

    assert len(grown["d"].rows) > 20 and unmatched(grown["d"].rows) == 0
    assert unmatched(features_on_tracks(features, tracks, selection)["d"].rows) > 5


def _with_scales(features: Features, scales: np.ndarray) -> Features:
    return replace(features, scales=scales.astype(np.float32))


def test_chosen_features_have_the_draws_of_every_release(door: dict[str, Features]) -> None:
    """Two releases of a photograph agree in each feature that both hold, so that they do not intersect in descriptors."""
    features = next(iter(door.values()))
    rows = np.arange(10, 200, 7)
    decoys, book = bundled_decoys(), bundled_codebook()
    made = [
        privatize(
            features,
            profile=Profile.hardened(quantized=True),
            compression=book.compression,
            decoys=decoys,
            randomness=seeded("chosen"),
            selection=selection,
        )
        for selection in (Selection(features=None, min_distance_px=0.0), ChosenFeatures(rows=rows))
    ]
    everything, chosen = made
    assert sorted(chosen.order.tolist()) == rows.tolist() and everything.parameters.text != chosen.parameters.text
    place = {row: number for number, row in enumerate(everything.order.tolist())}
    same = [place[row] for row in chosen.order.tolist()]
    assert (everything.upload.form.take(np.array(same)).origin == chosen.upload.form.origin).all()  # type: ignore[union-attr]
    other = ChosenFeatures(rows=rows[1:])
    again = privatize(
        features,
        profile=Profile.hardened(quantized=True),
        compression=book.compression,
        decoys=decoys,
        randomness=seeded("chosen"),
        selection=other,
    )
    assert again.parameters.text != chosen.parameters.text


def test_rows_that_an_image_does_not_have_are_refused(door: dict[str, Features]) -> None:
    features = next(iter(door.values()))
    for rows in ([3, 2], [1, 1], [-1, 2]):
        with pytest.raises(InputError, match="ascending"):
            ChosenFeatures(rows=np.array(rows))
    with pytest.raises(InputError, match="was chosen, and the image has 600"):
        Device(None).release(features, Protection(descriptors=HideInSubspaces(selection=ChosenFeatures(rows=np.array([700])))))


@pytest.mark.slow
def test_a_map_of_what_a_map_uses_holds_all_images(door: dict[str, Features], elsewhere: Features, tmp_path: Path) -> None:
    """Bounded on both sides: two thirds of the features leave at most, the map has every image, a stranger is in no choice."""
    photographs = dict(list(door.items())[:6])
    chosen = select_for_map({**photographs, "elsewhere": elsewhere})
    assert not isinstance(chosen, NoMap) and set(chosen) == set(photographs)
    device = Device(tmp_path)
    made = {
        name: device.release(item, Protection(descriptors=HideInSubspaces(selection=chosen[name])), name=name)
        for name, item in photographs.items()
    }
    assert np.mean([len(item.upload) for item in made.values()]) < 400
    built = map_images({name: decode(item.message) for name, item in made.items()})
    assert not isinstance(built, NoMap) and set(built.map.scene.images) == set(photographs)
    name, first = next(iter(photographs.items()))
    with pytest.raises(ReleaseRefused):
        device.release(first, name=name, purpose="map")


def test_a_device_knows_what_left_of_a_photograph(door: dict[str, Features], tmp_path: Path) -> None:
    """Of the usual selection, of chosen features, of words, and of nothing. Second method: the messages are the same ones."""
    device, photographs = Device(tmp_path), list(door.values())[:4]
    usual = device.release(photographs[0], purpose="map")
    rows = ChosenFeatures(rows=np.arange(0, 300, 3))
    chosen = device.release(photographs[1], Protection(descriptors=HideInSubspaces(selection=rows)))
    device.release(photographs[2], Protection(descriptors=HideInWords(epsilon=5.0)))
    known = [Device(tmp_path).sent(item) for item in photographs]
    assert known[2] is None and known[3] is None
    for item, made, features in zip(known, (usual, chosen), photographs, strict=False):
        assert item is not None
        again = device.release(features, Protection(descriptors=HideInSubspaces(selection=item)))
        assert again.message == made.message and again.released_as == made.released_as
    assert len(device.ledger.entries()) == 3


def test_photographs_without_a_map_give_no_choice(door: dict[str, Features], elsewhere: Features) -> None:
    answer = select_for_map({"a": next(iter(door.values())), "b": elsewhere})
    assert isinstance(answer, NoMap) and answer.reason
