"""The network in NumPy: its convolution against SciPy's, itself against PyTorch, and errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal
from test_inversion_network import TRAINING, sparse

from veil.errors import InputError
from veil.inversion.forward import PlainInverter, _shuffled, convolved
from veil.inversion.maps import KINDS, Inverts, Kind, SparseMap
from veil.inversion.weights import Weights
from worlds import generator


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_is_scipys(stride: int) -> None:
    random = generator(f"convolution {stride}")
    planes = random.normal(size=(10, 12, 3)).astype(np.float32)
    kernel = random.normal(size=(5, 3, 3, 3)).astype(np.float32)
    expected = np.stack(
        [sum(signal.correlate2d(planes[..., c], out[c], mode="same") for c in range(3))[::stride, ::stride] for out in kernel],
        axis=2,
    )
    np.testing.assert_allclose(convolved(planes, kernel, stride), expected, atol=1e-4)


def test_four_channels_become_four_pixels() -> None:
    """By hand: channel 2 i + j of a pixel is its pixel (i, j)."""
    planes = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    assert _shuffled(planes)[..., 0].tolist() == [[0, 1], [2, 3]] and _shuffled(planes)[..., 1].tolist() == [[4, 5], [6, 7]]


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_pytorchs(kind: Kind) -> None:
    """Both give the same bytes but for rounding, also of a map without features. Broken twin: another order of channels."""
    torch = pytest.importorskip("torch", reason="the twin runs in PyTorch, the extra veil[inversion]")
    from veil.inversion.network import Inverter, Network

    torch.manual_seed(1)
    network = Network(kind)
    with torch.no_grad():
        for name, values in network.state_dict().items():
            if "running" in name:
                values.copy_(0.3 + torch.rand_like(values))
            elif name.endswith("second.1.weight"):  # zero before training, so that nothing would be compared
                values.fill_(0.5)
    arrays = {k: v.numpy().astype(np.float16) for k, v in network.state_dict().items() if not k.endswith("tracked")}
    weights = Weights(kind=kind, arrays=arrays, training=TRAINING)
    vectors = {"raw": 1, "words": 2, "subspaces": 5}[kind]
    empty = SparseMap(kind=kind, cells=np.zeros(0, np.int64), values=np.zeros((0, vectors, 128), np.float32))
    maps = [sparse("plain", kind, vectors), empty]
    plain = PlainInverter(weights)
    assert isinstance(plain, Inverts)
    picture, expected = plain.invert(maps), Inverter(weights).invert(maps)
    assert np.abs(picture.astype(int) - expected).max() <= 1 and expected[0].std() > 1
    assert np.abs(picture[..., ::-1].astype(int) - expected).max() > 1
    with pytest.raises(InputError, match="give the weights for"):
        plain.invert([sparse("other", "words" if kind == "raw" else "raw")])


def test_foreign_weights_are_refused() -> None:
    arrays = {"first.weight": np.zeros((2, 2), dtype=np.float16)}
    with pytest.raises(InputError, match="no weights of this network"):
        PlainInverter(Weights(kind="raw", arrays=arrays, training=TRAINING))
