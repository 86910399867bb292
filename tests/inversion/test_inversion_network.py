"""The network against dense convolutions, its invariances, and training: it learns, and resumes to the last bit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from veil.errors import InputError
from veil.forms import canonical
from veil.inversion.maps import SIDE, Kind, SparseMap
from veil.inversion.weights import Training, Weights
from worlds import generator, unit

TRAINING = Training(photographs=1, source="", license="", command="", steps=1, seconds=0.0, seed=0)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")


def sparse(case: str, kind: Kind = "raw", vectors: int = 1, count: int = 300) -> SparseMap:
    random = generator(case)
    values = unit(np.abs(random.normal(size=(count, vectors, 128))))
    if kind == "subspaces":
        origin, basis = canonical(values[:, 0], random.normal(size=(count, vectors - 1, 128)))
        values = np.concatenate([origin[:, None], basis], axis=1)
    cells = np.sort(random.permutation(SIDE * SIDE)[:count])
    return SparseMap(kind=kind, cells=cells, values=values.astype(np.float32))


def made(kind: Kind, seed: int = 0) -> Any:
    """A network with fixed weights."""
    import torch

    from veil.inversion.network import Network

    torch.manual_seed(seed)
    return Network(kind).eval()


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in ("network", "training", "inference"):
        monkeypatch.delitem(sys.modules, f"veil.inversion.{module}", raising=False)
    with pytest.raises(InputError, match=r"install veil\[inversion\]"):
        __import__("veil.inversion.network")


def test_weights_fit_into_15_megabytes(torch: Any) -> None:
    for kind in ("raw", "subspaces", "words"):
        parameters = sum(array.numel() for array in made(kind).state_dict().values())
        assert 3_000_000 < parameters < 7_300_000 and 2 * parameters < 15e6


@pytest.mark.parametrize("level", [0, 1, 2])
def test_features_enter_by_a_dense_convolution(torch: Any, level: int) -> None:
    """Defining equation, Eq. 6: a convolution over the dense map of keypoints whose kernel is constant in each quarter.

    Its size and stride are those of a cell, and its bias stands at keypoints only.
    """
    from veil.inversion.network import batched

    network, maps = made("raw"), [sparse("first"), sparse("second", count=150)]
    batch, size = batched(maps), 2 << level
    with torch.inference_mode():
        rows = network.embedding(batch.values)
        entered = network._entering(batch, rows, level)
        dense = torch.zeros(2, rows.shape[1] + 1, SIDE * SIDE)
        dense[batch.image, :, batch.cells] = torch.cat([rows, torch.ones(len(rows), 1)], dim=1)
        entry = network.entries[level]
        weight = entry.weight.reshape(4, -1, rows.shape[1]).permute(1, 2, 0)
        bias = entry.bias.reshape(4, -1).T[:, None]
        kernel = torch.cat([weight, bias], dim=1).reshape(len(weight), -1, 2, 2)
        kernel = kernel.repeat_interleave(size // 2, dim=2).repeat_interleave(size // 2, dim=3)
        expected = torch.nn.functional.conv2d(dense.reshape(2, -1, SIDE, SIDE), kernel, stride=size)
    torch.testing.assert_close(entered[:, :-1], expected, atol=1e-5, rtol=1e-4)
    side = SIDE // size
    counts = np.stack([item.mask.reshape(side, size, side, size).sum(axis=(1, 3)) for item in maps])
    np.testing.assert_array_equal(entered[:, -1].numpy(), counts)


def test_an_untrained_residual_block_changes_nothing(torch: Any) -> None:
    """Its second convolution is zero, so that a deep network begins as a shallow one; after a change it is no longer so."""
    from veil.inversion.network import Residual

    block, planes = Residual(4), torch.from_numpy(generator("planes").normal(size=(1, 4, 8, 8))).float()
    with torch.no_grad():
        torch.testing.assert_close(block(planes), planes)
        block.second[1].weight.fill_(0.1)
        assert (block(planes) - planes).abs().max() > 0.01


def test_neither_the_basis_nor_the_order_of_words_matters(torch: Any) -> None:
    """Eq. 5. Broken twin: the vectors one behind the other, as a plain first layer would take them."""
    random = generator("invariance")
    form, network = sparse("subspaces", "subspaces", vectors=5), made("subspaces")
    turn = np.linalg.qr(random.normal(size=(len(form), 4, 4)))[0].astype(np.float32)
    turned = np.concatenate([form.values[:, :1], turn @ form.values[:, 1:]], axis=1)
    with torch.inference_mode():
        one, other = (network.embedding(torch.from_numpy(values)) for values in (form.values, turned))
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
        moved = network.embedding(torch.from_numpy(form.values[:, [1, 0, 2, 3, 4]].copy()))
        assert (one - moved).abs().max() > 0.01  # the origin is another thing than a direction
        words, network = sparse("words", "words", vectors=3), made("words")
        one = network.embedding(torch.from_numpy(words.values))
        other = network.embedding(torch.from_numpy(words.values[:, [2, 0, 1]].copy()))
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_batch_is_its_images_one_by_one(torch: Any) -> None:
    """Also for maps of different m, and one without features."""
    from veil.inversion.network import Inverter

    network = made("subspaces")
    arrays = {k: v.numpy().astype(np.float16) for k, v in network.state_dict().items() if not k.endswith("tracked")}
    inverter = Inverter(Weights(kind="subspaces", arrays=arrays, training=TRAINING))
    maps = [
        sparse(f"map {place}", "subspaces", vectors, count)
        for place, (vectors, count) in enumerate([(3, 90), (3, 200), (5, 80)])
    ]
    maps.append(SparseMap(kind="subspaces", cells=np.zeros(0, np.int64), values=np.zeros((0, 3, 128), np.float32)))
    done: list[tuple[int, int]] = []
    together = inverter.invert(maps, progress=lambda *step: done.append(step))
    assert together.shape == (4, SIDE, SIDE, 3) and done[-1] == (4, 4)
    alone = np.concatenate([inverter.invert([item]) for item in maps])
    assert np.abs(together.astype(int) - alone).max() <= 1  # sums in another order
    assert np.abs(together[0].astype(int) - together[1]).max() > 1
    with pytest.raises(InputError, match="invert subspaces, not raw"):
        inverter.invert([sparse("raw")])
    with pytest.raises(InputError, match="no weights of this network"):
        Inverter(Weights(kind="raw", arrays=arrays, training=TRAINING))
