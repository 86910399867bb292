"""The inversion network in torch, a U-Net from sparse maps to RGB (docs/theory/inversion.md, Eq. 5-6), and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int64, UInt8

from veil.errors import InputError
from veil.inversion.maps import DIM, SIDE, Kind, SparseMap
from veil.inversion.weights import Weights
from veil.progress import Progress

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise InputError(f"image inversion needs torch ({error}); install veil[inversion]") from None

EMBEDDED = 128  # channels of a keypoint
# At 128, 64, 32, 16 and 8 px: channels, residual blocks on the way down and up. Features enter at the first `ENTRIES` of them.
CHANNELS, DOWN, UP, ENTRIES = (48, 96, 128, 160, 192), (0, 1, 2, 2, 2), (1, 2, 2, 2, 0), 3
SHUFFLED, FINE, DETAIL = 16, 15, 32  # channels at full resolution: of the planes below, of keypoints, and of both together
PROBES = 256
SLOPE = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Maps of one kind and number of vectors, concatenated; `image` is the number of each row's map, `count` that of maps."""

    count: int
    image: Int64[Tensor, "_"]
    cells: Int64[Tensor, "_"]
    values: Float[Tensor, "_ _ _"]


def batched(maps: list[SparseMap], device: Any = None) -> Batch:
    """A batch of maps on `device`. Raises InputError if they differ in kind or number of vectors."""
    if len({(item.kind, item.values.shape[1]) for item in maps}) != 1:
        raise InputError("a batch needs maps of one kind and one m; invert others by themselves")
    image = np.repeat(np.arange(len(maps)), [len(item) for item in maps])
    return Batch(
        count=len(maps),
        image=torch.from_numpy(image).to(device),
        cells=torch.from_numpy(np.concatenate([item.cells for item in maps])).to(device),
        values=torch.from_numpy(np.concatenate([item.values for item in maps])).to(device),
    )


class Embedding(nn.Module):
    """Layers from a keypoint's vectors to `EMBEDDED` channels (docs/theory/inversion.md, Eq. 5).

    The result is the same for each order of words and each basis of a subspace.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.probes = nn.Linear(DIM, PROBES, bias=False) if kind == "subspaces" else None
        if self.probes is not None:
            nn.init.normal_(self.probes.weight)
        self.first = nn.Linear(DIM + PROBES + 1 if kind == "subspaces" else DIM, 2 * EMBEDDED)
        self.second = nn.Linear(2 * EMBEDDED, EMBEDDED)

    def forward(self, values: Float[Tensor, "rows vectors 128"]) -> Float[Tensor, "rows channels"]:
        scaled = values * DIM**0.5  # entries of unit vectors, to about 1
        if self.probes is None:
            hidden = _rectified(self.first(scaled)).mean(dim=1)
        else:
            m = values.shape[1] - 1
            # |P u|^2 for learned u, over its mean for a random subspace: with the origin it gives the distance to any point.
            lengths = self.probes(values[:, 1:]).float().square().mean(dim=1) - 1
            share = torch.full_like(lengths[:, :1], m / 16)
            hidden = _rectified(self.first(torch.cat([scaled[:, 0], lengths, share], dim=1)))
        return _rectified(self.second(hidden))


class Residual(nn.Module):
    """Planes plus two normalized 3x3 convolutions of them, which are zero before training."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _normalized(channels, channels)
        self.second = _normalized(channels, channels)
        nn.init.zeros_(self.second[1].weight)

    def forward(self, planes: Float[Tensor, "images channels _ _"]) -> Float[Tensor, "images channels _ _"]:
        return planes + self.second(_rectified(self.first(planes)))


class Network(nn.Module):
    """The network from sparse maps to RGB in [0, 1] (docs/theory/inversion.md, Eq. 6).

    It is a U-Net of residual blocks from half the resolution down, with a refinement at the full resolution.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.embedding = Embedding(kind)
        self.entries = nn.ModuleList(nn.Linear(EMBEDDED, 4 * (channels - 1)) for channels in CHANNELS[:ENTRIES])
        self.halve = nn.ModuleList(_normalized(above, below, stride=2) for above, below in pairwise(CHANNELS))
        self.down = nn.ModuleList(_residuals(channels, count) for channels, count in zip(CHANNELS, DOWN, strict=True))
        self.widen = nn.ModuleList(nn.Conv2d(below, 4 * above, 1) for above, below in pairwise((SHUFFLED, *CHANNELS)))
        self.join = nn.ModuleList(_normalized(2 * channels, channels) for channels in CHANNELS[:-1])
        self.up = nn.ModuleList(_residuals(channels, count) for channels, count in zip(CHANNELS, UP, strict=True))
        self.fine = nn.Linear(EMBEDDED, FINE)
        self.detail = _normalized(SHUFFLED + FINE + 1, DETAIL)
        self.rgb = nn.Conv2d(DETAIL, 3, 3, padding=1)

    def forward(self, batch: Batch) -> Float[Tensor, "images 3 256 256"]:
        rows = self.embedding(batch.values)
        maps = self._entering(batch, rows, 0)
        skips = []
        for level, blocks in enumerate(self.down):
            if level:
                maps = self.halve[level - 1](maps)
                maps = maps + self._entering(batch, rows, level).to(maps.dtype) if level < ENTRIES else maps
            maps = blocks(maps)
            skips.append(maps)
        for level in reversed(range(len(CHANNELS))):
            if level < len(self.join):
                maps = self.join[level](_rectified(torch.cat([maps, skips[level].to(maps.dtype)], dim=1)))
            maps = self.up[level](maps)
            maps = functional.pixel_shuffle(self.widen[level](maps), 2)
        fine = self._scattered(batch, self.fine(rows), batch.cells, SIDE)
        full = torch.cat([maps, fine.to(maps.dtype)], dim=1)
        return torch.sigmoid(self.rgb(_rectified(self.detail(_rectified(full)))).float())

    def _entering(self, batch: Batch, rows: Float[Tensor, "rows channels"], level: int) -> Tensor:
        """Planes of a level: the sums of its cells' features, each by the kernel of the quarter that it lies in (Eq. 6).

        They are computed at the features only, as all else is zero.
        """
        size = 2 << level
        y, x = batch.cells // SIDE, batch.cells % SIDE
        quarter = 2 * (y % size // (size // 2)) + x % size // (size // 2)
        every = self.entries[level](rows).reshape(len(rows), 4, CHANNELS[level] - 1)
        chosen = every[torch.arange(len(rows), device=every.device), quarter]
        return self._scattered(batch, chosen, (y // size) * (SIDE // size) + x // size, SIDE // size)

    @staticmethod
    def _scattered(batch: Batch, rows: Tensor, cells: Tensor, side: int) -> Float[Tensor, "images channels side side"]:
        """Planes with the sums of the rows at their cells, and the number of rows as the last channel."""
        counted = torch.cat([rows.float(), rows.new_ones((len(rows), 1), dtype=torch.float32)], dim=1)
        flat = counted.new_zeros((batch.count * side * side, counted.shape[1]))
        flat = flat.index_add(0, batch.image * (side * side) + cells, counted)
        return flat.reshape(batch.count, side, side, -1).permute(0, 3, 1, 2)  # channels last in memory


def _normalized(inputs: int, outputs: int, stride: int = 1) -> Any:
    """A 3x3 convolution with batch normalization."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
    )


def _residuals(channels: int, count: int) -> Any:
    return nn.Sequential(*(Residual(channels) for _ in range(count)))


def _rectified(planes: Tensor) -> Tensor:
    return functional.leaky_relu(planes, SLOPE)


BATCH = 4


class Inverter:
    """An inversion network in torch with its weights.

    Raises InputError if the weights are those of another network, or `device` "cuda" is asked for and there is no GPU.
    """

    def __init__(self, weights: Weights, *, device: Literal["cpu", "cuda"] = "cpu") -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise InputError("torch sees no GPU; invert with device cpu")
        network: Any = Network(weights.kind)
        tensors = {name: torch.from_numpy(np.array(array, dtype=np.float32)) for name, array in weights.arrays.items()}
        # Counters of training, which nothing reads.
        counters = {name: tensor for name, tensor in network.state_dict().items() if name.endswith("num_batches_tracked")}
        try:
            network.load_state_dict(tensors | counters)
        except RuntimeError as error:
            raise InputError(f"these are no weights of this network ({error}); train again with this veil") from None
        self._network = network.to(device, memory_format=torch.channels_last).eval()
        self._device = device

    @property
    def kind(self) -> Kind:
        """The kind of maps that the network inverts: "raw", "subspaces" or "words"."""
        return self._network.kind

    def invert(self, maps: Sequence[SparseMap], *, progress: Progress | None = None) -> UInt8[np.ndarray, "images 256 256 3"]:
        """Pictures of the maps, 8-bit RGB, one for each.

        Maps of different m may be mixed; a map without features gives the network's answer to an empty map. `progress` is
        called with the number of pictures done and of all. Raises InputError for maps of another kind.
        """
        wrong = [item.kind for item in maps if item.kind != self.kind]
        if wrong:
            raise InputError(f"these weights invert {self.kind}, not {wrong[0]}; give the weights for {wrong[0]}")
        pictures = np.empty((len(maps), 256, 256, 3), dtype=np.uint8)
        start = 0
        while start < len(maps):
            end = start + 1
            while end < min(start + BATCH, len(maps)) and maps[end].values.shape[1] == maps[start].values.shape[1]:
                end += 1
            with torch.inference_mode():
                rgb = self._network(batched(list(maps[start:end]), self._device))
                pictures[start:end] = (255 * rgb + 0.5).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
            start = end
            if progress is not None:
                progress(start, len(maps))
        return pictures
