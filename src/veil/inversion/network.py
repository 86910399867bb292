"""The inversion network in torch, a U-Net from sparse maps to RGB (docs/theory/inversion.md, Eq. 5-6)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from veil.errors import InputError
from veil.inversion.maps import DIM, SIDE, Kind, SparseMap

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
