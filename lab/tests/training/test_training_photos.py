"""Photographs for training: keypoints of variations stay on their points, and batches depend on their number alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import cKDTree

from veil.codebooks.codebook import Codebook
from veil.engine import open_engine
from veil.errors import InputError, RangeError
from veil.extraction.picture import Picture
from veil.extraction.sift import extract_sift
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.pictures import read_rgb
from veil.inversion.maps import SIDE, Frame
from veil_lab.training.photos import Ahead, Example, ServerView, Supply, assembled, mirrored, varied, windowed
from worlds import generator, sift_like
from worlds.edges import door_photographs


def blobs(random: np.random.Generator, width: int = 420, height: int = 330) -> np.ndarray:
    """Bright blobs on black, far from each other."""
    rows, columns = np.mgrid[:height, :width]
    light = np.zeros((height, width))
    for x in range(30, width - 20, 60):
        for y in range(30, height - 20, 60):
            dx, dy = random.uniform(-8, 8, 2)
            light += np.exp(-((columns - x - dx) ** 2 + (rows - y - dy) ** 2) / (2 * 5.0**2))
    return np.repeat((200 * np.clip(light, 0, 1)).astype(np.uint8)[:, :, None], 3, axis=2)


def example(random: np.random.Generator, count: int = 60) -> Example:
    rgb = random.integers(0, 256, (270, 300, 3), dtype=np.uint8)
    keypoints = random.uniform(0, [300, 270], (count, 2)).astype(np.float32)
    return assembled(rgb, keypoints, sift_like(random, count), bytes(32))


def supply(kind: str = "raw", **changed: object) -> Supply:
    pool = [example(generator(f"example {index}")) for index in range(7)]
    view = ServerView(kind=kind, dims=() if kind == "raw" else (2, 4), codebook=bundled_codebook(), epsilons=(4.0,))  # type: ignore[arg-type]
    return Supply(**{"load": pool.__getitem__, "count": 7, "view": view, "batch": 2, "seed": 5} | changed)  # type: ignore[arg-type]


@pytest.mark.slow
def test_keypoints_follow_the_picture_through_its_variations() -> None:
    """Planted: SIFT answers at the center of each blob. Broken twins: a mirrored picture with old keypoints; a wrong scale."""
    random, rgb = generator("variations"), blobs(generator("blobs"))
    sizes = set()
    for _ in range(6):
        variation = varied(rgb, random)
        height, width = variation.rgb.shape[:2]
        sizes.add((width, height))
        assert SIDE <= min(width, height) <= 341
        gray = variation.rgb[:, :, 0].astype(np.float64)
        labels, count = ndimage.label(gray > gray.max() / 2)
        centers = np.array(ndimage.center_of_mass(gray, labels, range(1, count + 1)))[:, ::-1] + 0.5
        gaps = {
            name: cKDTree(variation.features.keypoints @ turn + shift).query(centers)[0]
            for name, turn, shift in (
                ("right", np.eye(2), 0),
                ("mirrored", np.diag([-1, 1]), [width, 0]),
                ("larger", 1.05 * np.eye(2), 0),
                ("half a pixel off", np.eye(2), 0.5),
            )
        }
        assert count >= 20 and np.median(gaps["right"]) < 0.3
        assert all(np.median(gap) > 1.5 * np.median(gaps["right"]) for name, gap in gaps.items() if name != "right")
    assert len(sizes) == 6


def test_a_mirrored_example_is_what_sift_finds_in_the_mirrored_photograph(tmp_path: Path) -> None:
    """Named oracle: SIFT on the mirrored pixels. Broken twins: other ways to turn a patch's 4 x 4 x 8 histograms over."""
    rgb = read_rgb(next(door_photographs(tmp_path / "door", 1).iterdir()))[::3, ::3]
    features, again = (extract_sift(Picture.of(np.ascontiguousarray(p), {}, None)) for p in (rgb, rgb[:, ::-1]))
    turned = mirrored(Example(rgb=rgb, features=features))
    np.testing.assert_array_equal(turned.rgb, rgb[:, ::-1])
    gaps, rows = cKDTree(again.keypoints).query(turned.features.keypoints)
    # Keypoints with several orientations have several descriptors at one position: any of them may be the nearest.
    alone = np.unique(features.keypoints, axis=0, return_counts=True, return_inverse=True)
    alone = alone[2][alone[1].ravel()] == 1
    near = (gaps < 0.05) & alone
    assert near.sum() > 0.6 * alone.sum() > 100

    def share(descriptors: np.ndarray) -> float:
        apart = np.linalg.norm(descriptors[near].astype(float) - again.descriptors[rows[near]], axis=1)
        return float(np.mean(apart < 0.1 * np.linalg.norm(again.descriptors[rows[near]].astype(float), axis=1)))

    assert share(turned.features.descriptors) > 0.9
    grid = turned.features.descriptors.reshape(-1, 4, 4, 8)
    for twin in (features.descriptors, grid[:, ::-1], grid[:, :, ::-1], grid[..., ::-1], np.roll(grid, 1, axis=3)):
        assert share(twin.reshape(-1, 128)) < 0.1


def test_a_window_keeps_keypoints_on_their_pixels() -> None:
    random, whole = generator("windows"), example(generator("whole"))
    for _ in range(5):
        part = windowed(whole, random)
        assert part is not None and part.rgb.shape == (SIDE, SIDE, 3) and 0 < len(part.features) <= len(whole.features)
        rows = [int(np.flatnonzero((whole.features.descriptors == d).all(axis=1))[0]) for d in part.features.descriptors]
        before = np.floor(whole.features.keypoints[rows]).astype(int)
        after = np.floor(part.features.keypoints).astype(int)
        inside = (after < SIDE).all(axis=1)
        colors = part.rgb[after[inside, 1], after[inside, 0]]
        np.testing.assert_array_equal(colors, whole.rgb[before[inside, 1], before[inside, 0]])


def test_a_window_without_features_is_none() -> None:
    random = generator("empty")
    far = assembled(np.zeros((256, 900, 3), np.uint8), np.array([[899, 9]], np.float32), sift_like(random, 1), bytes(32))
    assert sum(windowed(far, random) is None for _ in range(20)) >= 15


@pytest.mark.parametrize("kind", ["raw", "subspaces", "words"])
def test_a_batch_depends_on_its_number_alone(kind: str) -> None:
    """So that a resumed run is the unbroken one. Broken twin: a generator that is carried from batch to batch."""
    first, second = supply(kind), supply(kind)
    for step in (0, 1, 5):
        second(step)
    maps, pictures = first(3)
    again, same = second(3)
    np.testing.assert_array_equal(pictures, same)
    for one, other in zip(maps, again, strict=True):
        np.testing.assert_array_equal(one.cells, other.cells)
        np.testing.assert_array_equal(one.values, other.values)
    assert len({item.values.shape[1] for item in maps}) == 1 and {item.kind for item in maps} == {kind}
    assert not np.array_equal(pictures, first(4)[1]) and not np.array_equal(pictures, supply(kind, seed=6)(3)[1])


def test_an_epoch_takes_every_example_once() -> None:
    taken: list[int] = []
    pool = [example(generator(f"example {index}")) for index in range(6)]

    def load(index: int) -> Example:
        taken.append(index)
        return pool[index]

    made = supply(load=load, count=6)
    for step in range(6):
        made(step)
    assert sorted(taken[:6]) == sorted(taken[6:]) == list(range(6)) and taken[:6] != taken[6:]


def test_subspaces_contain_their_descriptors_and_words_come_from_the_dictionary() -> None:
    """Second method: distance of the true descriptor, by the raw map of the same windows."""
    book: Codebook = bundled_codebook()
    features, frame = example(generator("sights")).features, Frame(width=300, height=270)
    raw = ServerView(kind="raw").of(features, frame, m=0, case="x")
    for m in (2, 8):
        seen = ServerView(kind="subspaces", dims=(m,), codebook=book).of(features, frame, m=m, case="x")
        np.testing.assert_array_equal(seen.cells, raw.cells)
        offset = raw.values[:, 0] - seen.values[:, 0]
        residual = offset - np.einsum("nk,nkd->nd", np.einsum("nkd,nd->nk", seen.values[:, 1:], offset), seen.values[:, 1:])
        assert np.abs(residual).max() < 1e-5
    words = ServerView(kind="words", dims=(3,), codebook=book).of(features, frame, m=3, case="x")
    true = book.vectors[book.nearest(raw.values[:, 0])]
    assert ((words.values == true[:, None]).all(axis=2).sum(axis=1) == 1).all()  # infinite epsilon: always sent


def test_words_are_drawn_by_each_epsilon() -> None:
    """The law: an epsilon of 0 hardly ever sends the true word, an infinite one always. Second method: no epsilon but that."""
    pool = [example(generator(f"example {index}")) for index in range(7)]
    view = ServerView(kind="words", dims=(1,), codebook=bundled_codebook(), epsilons=(0.0, math.inf))
    mixed, true = (supply(view=item, load=pool.__getitem__) for item in (view, replace(view, epsilons=(math.inf, math.inf))))
    shares = set()
    for step in range(8):
        pairs = zip(mixed(step)[0], true(step)[0], strict=True)
        sent = np.concatenate([(a.values == b.values).all(axis=(1, 2)) for a, b in pairs])
        shares.add(round(float(sent.mean()), 1))
    assert shares == {0.0, 1.0}


def test_impossible_choices_are_refused() -> None:
    with pytest.raises(InputError, match="codebook"):
        ServerView(kind="subspaces", dims=(2,))
    with pytest.raises(InputError, match="at least one epsilon"):
        ServerView(kind="words", dims=(2,), codebook=bundled_codebook(), epsilons=())
    with pytest.raises(RangeError, match="m must"):
        ServerView(kind="raw", dims=(0,))
    with pytest.raises(RangeError, match="batch"):
        supply(batch=8)
    with pytest.raises(InputError, match="no features"):
        varied(np.full((300, 300, 3), 90, np.uint8), generator("blank"))


@pytest.mark.slow
def test_batches_of_workers_are_those_of_the_supply() -> None:
    """Oracle: the supply itself, from a step in the middle on. Broken twins: the order of completion; the first batch again."""
    plain = supply()
    with open_engine(workers=2) as engine:
        ahead = Ahead(plain, engine, first=3)
        for step in (3, 4, 5, 6):
            (maps, pictures), (other, shown) = plain(step), ahead(step)
            assert np.array_equal(pictures, shown)
            for mine, theirs in zip(maps, other, strict=True):
                assert np.array_equal(mine.cells, theirs.cells) and np.array_equal(mine.values, theirs.values)
