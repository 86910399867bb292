"""Networks that tell how far apart two features lie, as .npz files with their space and source."""

from __future__ import annotations

import json
import zipfile
import zlib
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.positions.pair_network import Layers, PairNetwork
from veil.errors import FileFormatError, VeilError
from veil.files.atomic import replacing
from veil.files.containers import require_filled
from veil.space import Space

FORMAT = 1


def write_pair_network(path: Path, network: PairNetwork) -> None:
    """Write a network as .npz, its weights in float16, at once or not at all."""
    header = {
        "format": FORMAT,
        "descriptor": network.space.descriptor,
        "normalization": network.space.normalization,
        "dim": network.space.dim,
        "source": network.source,
    }
    weights = {name: item.astype(np.float16) for name, item in network.layers._asdict().items()}
    every: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "crowding": network.crowding,
        **weights,
    }
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **every)


def read_pair_network(path: Path) -> PairNetwork:
    """Read a network that `write_pair_network` wrote. Raises FileFormatError for any other file."""
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            if header["format"] != FORMAT:
                raise FileFormatError(f"{path} has format {header['format']!r}; this veil reads {FORMAT}")
            space = Space(descriptor=header["descriptor"], normalization=header["normalization"], dim=header["dim"])
            layers = Layers(*(stored[name].astype(np.float32) for name in Layers._fields))
            crowding = stored["crowding"].astype(np.float64)
            return PairNetwork(space=space, layers=layers, crowding=crowding, source=str(header["source"]))
    except FileNotFoundError:
        raise FileFormatError(f"there is no file {path}") from None
    except (VeilError, OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError) as error:
        raise FileFormatError(f"{path} holds no network of pairs, or is damaged ({error})") from None


def bundled_pair_network() -> PairNetwork:
    """The network for raw SIFT (L2) descriptors that `veil audit` attacks lines with (NOTICE tells what it was trained on)."""
    with as_file(files("veil") / "data" / "neighbors-sift-l2.npz") as path:
        return read_pair_network(path)
