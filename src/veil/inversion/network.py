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

EMBEDDED, FINE = 128, 12  # channels of a keypoint, and those kept at full resolution
CHANNELS = (64, 96, 128, 192, 256)  # at 128, 64, 32, 16 and 8 px
DETAIL = 24
PROBES = 256


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
            hidden = functional.leaky_relu(self.first(scaled), 0.2).mean(dim=1)
        else:
            m = values.shape[1] - 1
            # |P u|^2 for learned u, over its mean for a random subspace: with the origin it gives the distance to any point.
            lengths = self.probes(values[:, 1:]).float().square().mean(dim=1) - 1
            share = torch.full_like(lengths[:, :1], m / 16)
            hidden = functional.leaky_relu(self.first(torch.cat([scaled[:, 0], lengths, share], dim=1)), 0.2)
        return functional.leaky_relu(self.second(hidden), 0.2)


class Network(nn.Module):
    """The network from sparse maps to RGB in [0, 1] (docs/theory/inversion.md, Eq. 6).

    It is a U-Net from half the resolution down, with a refinement at the full resolution.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        top = CHANNELS[0]
        self.kind = kind
        self.embedding = Embedding(kind)
        self.coarse = nn.Linear(EMBEDDED, 4 * (top - 1))
        self.fine = nn.Linear(EMBEDDED, FINE)
        self.first = _block(top, top)
        steps = list(pairwise(CHANNELS))
        self.down = nn.ModuleList(nn.Sequential(_block(above, below, stride=2), _block(below, below)) for above, below in steps)
        self.up = nn.ModuleList(_block(below + above, above) for above, below in reversed(steps))
        self.detail = _block(top // 4 + FINE + 1, DETAIL)
        self.rgb = nn.Conv2d(DETAIL, 3, 3, padding=1)

    def forward(self, batch: Batch) -> Float[Tensor, "images 3 256 256"]:
        rows = self.embedding(batch.values)
        maps = self.first(self._halved(batch, rows))
        skips = [maps]
        for level in self.down:
            skips.append(level(skips[-1]))
        maps = skips.pop()
        for level in self.up:
            wider = functional.interpolate(maps, scale_factor=2.0, mode="nearest")
            maps = level(torch.cat([wider, skips.pop()], dim=1))
        full = torch.cat([functional.pixel_shuffle(maps, 2), self._scattered(batch, self.fine(rows), batch.cells, SIDE)], dim=1)
        return torch.sigmoid(self.rgb(self.detail(full)).float())

    def _halved(self, batch: Batch, rows: Float[Tensor, "rows channels"]) -> Tensor:
        """Planes of half the resolution: a 2x2 convolution of stride 2, computed at the features only, as all else is zero."""
        y, x = batch.cells // SIDE, batch.cells % SIDE
        quarter = 2 * (y % 2) + x % 2
        every = self.coarse(rows).reshape(len(rows), 4, CHANNELS[0] - 1)
        chosen = every[torch.arange(len(rows), device=every.device), quarter]
        return self._scattered(batch, chosen, (y // 2) * (SIDE // 2) + x // 2, SIDE // 2)

    @staticmethod
    def _scattered(batch: Batch, rows: Tensor, cells: Tensor, side: int) -> Float[Tensor, "images channels side side"]:
        """Planes with the sums of the rows at their cells, and the number of rows as the last channel."""
        counted = torch.cat([rows.float(), rows.new_ones((len(rows), 1), dtype=torch.float32)], dim=1)
        flat = counted.new_zeros((batch.count * side * side, counted.shape[1]))
        flat = flat.index_add(0, batch.image * (side * side) + cells, counted)
        return flat.reshape(batch.count, side, side, -1).permute(0, 3, 1, 2)  # channels last in memory


def _block(inputs: int, outputs: int, stride: int = 1) -> Any:
    """A 3x3 convolution with batch normalization and a leaky rectifier."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.2, inplace=True),
    )
