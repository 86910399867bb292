"""The network of pairs: its gradients by differences, what it learns of planted descriptors, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.attacks.positions.neighbor_field import CLASSES, DISTANCES_PX
from veil.attacks.positions.pair_network import Layers, class_prior, ring_areas, scaled
from veil.errors import FileFormatError, InputError, RangeError
from veil.files.attack_networks import bundled_pair_network, read_pair_network, write_pair_network
from veil.geometry.camera import guessed
from veil.space import Space
from veil_lab.training.pair_training import PairTraining, TrainingPhotograph, _gradients, _initial, train_pairs
from worlds import generator

SPACE = Space(descriptor="test", normalization="L2", dim=16)
CAMERA = guessed(400, 300)
SHORT = PairTraining(steps=400, batch=600, pairs=600)


def photograph(name: str, *, told: bool = True) -> TrainingPhotograph:
    """Descriptors that change slowly with the place in the picture, of waves 40 to 400 px long; or that say nothing of it."""
    random = generator(name)
    xy = random.uniform([0, 0], [400, 300], (500, 2)).astype(np.float32)
    place = xy if told else random.uniform([0, 0], [400, 300], (500, 2))
    waves = generator("waves").standard_normal((2, 16)) / np.geomspace(10, 60, 16)
    return TrainingPhotograph(vectors=np.cos(place @ waves).astype(np.float32), keypoints=xy, size_px=(400, 300))


def test_gradients_are_those_of_the_loss() -> None:
    """Second method: central differences of the cross entropy, at three entries of each array."""
    random = generator("gradients")
    layers = Layers(*(item.astype(np.float64) + 0.05 * random.standard_normal(item.shape) for item in _initial(16, random)))
    first, second = (scaled(random.standard_normal((40, 16)).astype(np.float32)).astype(np.float64) for _ in range(2))
    labels = random.integers(CLASSES, size=40)

    def loss(at: Layers) -> float:
        """Mean cross entropy, written out pair by pair."""
        total = 0.0
        for a, b, label in zip(first, second, labels, strict=True):
            left, right = (np.maximum(x @ at.w1 + at.b1, 0) @ at.w2 + at.b2 for x in (a, b))
            logits = np.maximum(np.concatenate([np.abs(left - right), left * right]) @ at.w3 + at.b3, 0) @ at.w4 + at.b4
            total += float(np.log(np.exp(logits).sum()) - logits[label])
        return total / len(labels)

    gradients = _gradients(layers, first, second, labels)
    for name, item in layers._asdict().items():
        for _ in range(3):
            place = tuple(random.integers(size) for size in item.shape)
            moved = [item.copy(), item.copy()]
            moved[0][place] += 1e-5
            moved[1][place] -= 1e-5
            slope = (loss(layers._replace(**{name: moved[0]})) - loss(layers._replace(**{name: moved[1]}))) / 2e-5
            assert getattr(gradients, name)[place] == pytest.approx(slope, rel=1e-3, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_neighbors_are_learned_where_descriptors_tell_them(told: bool) -> None:
    """Planted: of the believed neighbors on an unseen photograph most are near. The null's descriptors say nothing.

    By the prior alone, a pair lies within 32 px with a probability of 2.7 %.
    """
    net = train_pairs([photograph(f"train {k}", told=told) for k in range(4)], space=SPACE, source="test", options=SHORT)
    unseen = photograph("unseen", told=told)
    beliefs = net.beliefs(unseen.vectors, camera=CAMERA, count=5)
    gap = np.linalg.norm(unseen.keypoints[beliefs.rows] - unseen.keypoints[:, None], axis=2)
    near = float((gap < 32).mean())
    chance = float(np.pi * 32**2 / (400 * 300))
    believed = float(beliefs.probabilities[..., :4].sum(axis=2).mean())
    if told:
        assert near > 0.6 and believed == pytest.approx(near, abs=0.25)
    else:
        assert 0.5 * chance < near < 2 * chance and believed < 0.2
    np.testing.assert_allclose(beliefs.probabilities.sum(axis=2), 1, atol=1e-6)
    assert (beliefs.rows != np.arange(500)[:, None]).all()


def test_a_seed_repeats_the_training() -> None:
    photographs = [photograph("train 0")]
    few = replace(SHORT, steps=20)
    first, again, other = (
        train_pairs(photographs, space=SPACE, source="", options=replace(few, seed=seed)).layers.w1 for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_the_prior_is_that_of_even_keypoints() -> None:
    """Enumeration: shares of distances of 4,000 even keypoints in a large picture, where borders do not matter."""
    camera = guessed(4000, 4000)
    xy = generator("even").uniform(0, 4000, (4000, 2))
    gap = np.linalg.norm(xy[:, None] - xy[None], axis=2)[np.triu_indices(4000, 1)]
    shares = np.bincount(np.searchsorted(DISTANCES_PX, gap, side="right"), minlength=CLASSES) / len(gap)
    prior = class_prior(np.ones(CLASSES - 1), camera)
    np.testing.assert_allclose(prior[3:], shares[3:], rtol=0.1)
    assert ring_areas().sum() == pytest.approx(np.pi * DISTANCES_PX[-1] ** 2) and prior.sum() == pytest.approx(1)


def test_features_that_are_not_known_have_no_neighbors() -> None:
    net = bundled_pair_network()
    vectors = np.abs(generator("unknown").standard_normal((20, 128))).astype(np.float32)
    vectors[3] = np.nan
    beliefs = net.beliefs(vectors, camera=CAMERA, count=4)
    assert (beliefs.rows[3] == -1).all() and (beliefs.rows != 3).all() and (beliefs.probabilities[3, :, -1] == 1).all()


def test_a_network_comes_back_from_its_file(tmp_path: Path) -> None:
    """Inverse pair, in float16; a cut file and one of other shapes are refused."""
    net = bundled_pair_network()
    write_pair_network(tmp_path / "net.npz", net)
    back = read_pair_network(tmp_path / "net.npz")
    assert back.space == net.space and back.source == net.source
    for one, two in zip(net.layers, back.layers, strict=True):
        np.testing.assert_array_equal(one, two)
    data = (tmp_path / "net.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    for name in ("cut.npz", "none.npz"):
        with pytest.raises(FileFormatError):
            read_pair_network(tmp_path / name)
    with pytest.raises(InputError, match="layers of the shapes"):
        replace(net, space=SPACE)
    with pytest.raises(InputError, match="128 numbers"):
        net.beliefs(np.ones((4, 16), dtype=np.float32), camera=CAMERA)
    with pytest.raises(RangeError):
        PairTraining(steps=0)
