"""HardNet descriptors through kornia and torch, with the optional extra `veil[hardnet]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32

from veil.errors import InputError

PATCH = 32
CHUNK = 256  # patches at a time: some 100 MB of activations


def hardnet_describe(
    patches: Float32[np.ndarray, "patches 32 32"], *, weights: Mapping[str, np.ndarray] | None
) -> Float32[np.ndarray, "patches 128"]:
    """HardNet descriptors of unit length by `kornia.feature.HardNet` on the CPU (Mishchuk et al., NeurIPS 2017).

    `patches` are gray values; `weights` is the network's state dict as arrays, or None for those that kornia downloads the
    first time. Raises InputError if torch or kornia is missing, the weights do not fit or cannot be loaded, or patches are not
    finite.
    """
    try:
        import torch
        from kornia.feature import HardNet
    except ImportError as error:
        raise InputError(f"HardNet needs torch and kornia ({error}); install veil[hardnet]") from error
    if patches.shape != (len(patches), PATCH, PATCH) or not np.isfinite(patches).all():
        raise InputError(f"patches must be finite and (N, {PATCH}, {PATCH}), got {patches.shape}; sample them again")
    network = _published(HardNet) if weights is None else _loaded(HardNet, weights)
    descriptors = np.empty((len(patches), 128), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(patches), CHUNK):
            chunk = torch.from_numpy(patches[start : start + CHUNK, None].copy())
            descriptors[start : start + CHUNK] = network(chunk).numpy()
    return descriptors


def _published(architecture: Any) -> Any:
    """The network with kornia's own weights. Raises InputError if they cannot be loaded."""
    try:
        return architecture(pretrained=True).eval()
    except (OSError, RuntimeError, KeyError) as error:
        raise InputError(f"kornia could not load HardNet's weights ({error}); go online once, or give them") from error


def _loaded(architecture: Any, weights: Mapping[str, np.ndarray]) -> Any:
    """The network with given weights. Raises InputError if they do not fit or are not finite."""
    import torch

    broken = [name for name, array in weights.items() if not np.isfinite(array).all()]
    if broken:
        raise InputError(f"HardNet's weights contain NaN or infinity in {broken[0]}; fetch them again")
    network = architecture(pretrained=False)
    try:
        network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    except (RuntimeError, TypeError) as error:
        raise InputError(f"these are not HardNet's weights: {error}") from error
    return network.eval()  # without dropout, and with the trained batch statistics
