"""Pictures from maps with trained weights, in batches on the CPU or a GPU. Needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

from veil.errors import InputError
from veil.inversion.maps import Kind, SparseMap
from veil.inversion.network import Network, batched, torch
from veil.inversion.weights import Weights
from veil.progress import Progress

BATCH = 4


class Inverter:
    """A network with its weights. Raises InputError if they are those of another network."""

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
        """What it inverts."""
        return self._network.kind

    def invert(self, maps: Sequence[SparseMap], *, progress: Progress | None = None) -> UInt8[np.ndarray, "images 256 256 3"]:
        """A picture for each map. Maps of different m may be mixed; a map without features gives what the network expects
        of nothing. Raises InputError for maps of another kind."""
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
                found = self._network(batched(list(maps[start:end]), self._device))
                pictures[start:end] = (255 * found + 0.5).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
            start = end
            if progress is not None:
                progress(start, len(maps))
        return pictures
