"""Files of networks of attacks: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.attacks.distribution.context import ContextNetwork
from veil.attacks.distribution.learned_model import AttackTraining, LearnedModel
from veil.attacks.distribution.same_photograph import PhotographModel
from veil.attacks.distribution.whole_photograph import PhotographTransformer
from veil.attacks.matches.view_weights import DistanceRatio, ViewWeights
from veil.errors import FileFormatError, InputError
from veil.files.attack_networks import (
    bundled_learned_model,
    read_learned_model,
    read_photograph_transformer,
    write_learned_model,
    write_photograph_transformer,
)


def weights(network: ContextNetwork) -> list[np.ndarray]:
    """All arrays and numbers of a network."""
    arrays = [*network.alone, *network.style, *network.whole, *network.vertex]
    near = network.neighbors
    arrays += [*near.code, *near.distance, near.pair, near.pair_bias, near.out]
    numbers = [network.sharpness, network.damping, near.out_bias, near.mistaken]
    return [*arrays, np.array(numbers)]


def test_networks_of_context_come_back(tmp_path: Path) -> None:
    """Inverse pair: the bundled networks have the precision of the file. Another training is kept, too."""
    training = AttackTraining(image_digests=("00" * 8,), descriptors=7, steps=3, context_steps=5, decoys=4, seed=9)
    ratio = DistanceRatio(even=0.2, slope=30.0, largest=6.0)
    model = replace(bundled_learned_model(), training=training, views=ViewWeights(nearest=ratio, sharpness=0.3))
    assert model.photograph is not None
    model = replace(model, photograph=replace(model.photograph, sharpness=0.71))
    write_learned_model(tmp_path / "model.npz", model)
    back = read_learned_model(tmp_path / "model.npz")
    assert (
        back.training == training
        and back.views == model.views
        and back.space == model.space
        and back.density.source == model.density.source
    )
    assert all(np.array_equal(one, two) for one, two in zip(weights(back.context), weights(model.context), strict=True))
    assert all(np.array_equal(one, two) for one, two in zip(back.density.weights, model.density.weights, strict=True))
    one, two = back.photograph, model.photograph
    assert one is not None and two is not None
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("mean", "axes", "center", "spread"))
    assert one.sharpness == 0.71
    assert_same(back.whole, model.whole)


def assert_same(one: PhotographTransformer | None, two: PhotographTransformer | None) -> None:
    """Two transformers have the same arrays, space and source."""
    assert one is not None and two is not None
    assert one.source == two.source and one.space == two.space and one.arrays.keys() == two.arrays.keys()
    assert all(np.array_equal(one.arrays[name], item) for name, item in two.arrays.items())


def test_files_without_what_came_later_are_read(tmp_path: Path) -> None:
    """Files of the same format that are older hold the two networks alone."""
    write_learned_model(tmp_path / "old.npz", replace(bundled_learned_model(), photograph=None, whole=None))
    old = read_learned_model(tmp_path / "old.npz")
    assert old.photograph is None and old.whole is None


def test_a_transformer_alone_comes_back_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    """Inverse pair. Broken twins: no array or one too many, NaN, no space, another format, a promise of more than it holds."""
    network, good = bundled_learned_model().whole, tmp_path / "good.npz"
    assert network is not None
    write_photograph_transformer(good, network)
    assert_same(read_photograph_transformer(good), network)
    with np.load(good) as stored:
        arrays = dict(stored)
    header = json.loads(arrays["header"].tobytes())
    changes: tuple[dict[str, np.ndarray], ...] = (
        {"same": np.zeros((0, 8), np.float16)},
        {"more": np.zeros(3, np.float16)},
        {"last.bias": np.full(128, np.nan, np.float16)},
        {"header": np.frombuffer(json.dumps({**header, "format": 9}).encode(), dtype=np.uint8)},
        {"header": np.frombuffer(json.dumps({**header, "space": {}}).encode(), dtype=np.uint8)},
    )
    bad = tmp_path / "bad.npz"
    for changed in changes:
        np.savez(bad, **arrays | changed)
        with pytest.raises(FileFormatError, match=r"is not a transformer of photographs|format 9; this veil reads 1$"):
            read_photograph_transformer(bad)
    np.savez_compressed(bad, **arrays | {"registers": np.zeros((1 << 20, 256), np.float16)})
    with pytest.raises(FileFormatError, match="a trap"):
        read_photograph_transformer(bad)
    with pytest.raises(FileFormatError, match="there is no file"):
        read_photograph_transformer(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context_pair", None),
        ("context_whole_w2", None),
        ("context_sharpness", None),
        ("context_code_w1", np.zeros((3, 4), dtype=np.float16)),
        ("context_alone_b1", np.full(128, np.nan, dtype=np.float16)),
        ("context_mistaken", np.float64(1.5)),
        ("context_pair", np.zeros((190, 64), dtype=np.float16)),
        ("photograph_axes", None),
        ("photograph_center", np.full(20, np.nan)),
        ("photograph_spread", np.zeros(20)),
        ("photograph_sharpness", np.float64(-1)),
        ("photograph_sharpness", np.zeros(2)),
        ("whole_same", None),
        ("whole_vertex.bias", np.full(48, np.nan, dtype=np.float16)),
        ("whole_more", np.zeros(3, dtype=np.float16)),
    ],
)
def test_damaged_networks_are_refused(tmp_path: Path, name: str, value: np.ndarray | None) -> None:
    """Broken twins of a good file: an array is missing, of another shape or not finite."""
    write_learned_model(tmp_path / "good.npz", bundled_learned_model())
    with np.load(tmp_path / "good.npz") as stored:
        arrays = dict(stored)
    assert name in arrays or name == "whole_more"  # the one that is not known
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FileFormatError, match="is not networks of attacks"):
        read_learned_model(tmp_path / "bad.npz")


def with_header(path: Path, fields: dict[str, object]) -> Path:
    """A file of the bundled networks whose header has other `fields`; None leaves one out."""
    write_learned_model(path, bundled_learned_model())
    with np.load(path) as stored:
        arrays = dict(stored)
    header = json.loads(arrays["header"].tobytes()) | fields
    kept = {name: value for name, value in header.items() if value is not None}
    arrays["header"] = np.frombuffer(json.dumps(kept).encode(), dtype=np.uint8)
    np.savez(path, **arrays)
    return path


def test_files_of_networks_alone_have_the_shipped_weights_of_views(tmp_path: Path) -> None:
    assert read_learned_model(with_header(tmp_path / "old.npz", {"views": None})).views == ViewWeights()
    good = ViewWeights().as_json()
    for number, bad in enumerate(({}, {**good, "sharpness": -1}, {**good, "nearest": {}}, {**good, "verified": [1]}, 7)):
        with pytest.raises(FileFormatError, match="is not networks of attacks"):
            read_learned_model(with_header(tmp_path / f"{number}.npz", {"views": bad}))


def test_files_without_a_sharpness_have_the_shipped_one(tmp_path: Path) -> None:
    """Files of the same format that are older hold the law of photographs without it, as the bundled one does."""
    model = bundled_learned_model()
    assert model.photograph is not None
    write_learned_model(tmp_path / "new.npz", replace(model, photograph=replace(model.photograph, sharpness=0.71)))
    with np.load(tmp_path / "new.npz") as stored:
        arrays = {name: item for name, item in stored.items() if name != "photograph_sharpness"}
    np.savez(tmp_path / "old.npz", **arrays)
    law = read_learned_model(tmp_path / "old.npz").photograph
    shipped = inspect.signature(PhotographModel).parameters["sharpness"].default
    assert law is not None and law.sharpness == shipped != 0.71


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="format 1; this veil reads 2"):
        read_learned_model(with_header(tmp_path / "old.npz", {"format": 1}))


def test_networks_that_do_not_go_together_are_refused() -> None:
    model = bundled_learned_model()
    other = replace(model.context, space=replace(model.space, normalization="L1_ROOT"))
    with pytest.raises(InputError, match="different spaces"):
        LearnedModel(density=model.density, context=other)
    assert model.photograph is not None
    law = replace(model.photograph, space=other.space)
    with pytest.raises(InputError, match="different spaces"):
        LearnedModel(density=model.density, context=model.context, photograph=law)
    assert model.whole is not None
    whole = replace(model.whole, space=other.space)
    with pytest.raises(InputError, match="different spaces"):
        LearnedModel(density=model.density, context=model.context, whole=whole)
