"""Bundled weights of learned descriptors."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

import numpy as np

from veil.extraction.hardtfeat import HardTFeat


def load_network(descriptor: str) -> Any:
    """The bundled network that the extraction of `descriptor` needs; None for descriptors that need none."""
    return load_hardtfeat() if descriptor == "hardtfeat" else None


def load_hardtfeat() -> HardTFeat:
    """The bundled HardTFeat network: TFeat trained with the HardNet loss (MIT, see NOTICE)."""
    with as_file(files("veil") / "data" / "hardtfeat.npz") as path, np.load(path, allow_pickle=False) as arrays:
        return HardTFeat.from_arrays(dict(arrays))
