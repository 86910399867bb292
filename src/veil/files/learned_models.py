"""Networks of the attacks on hardened subspaces, as .npz files with their space and source."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.learned_model import LearnedModel, Training
from veil.attacks.positions.pair_network import Layers, PairNetwork
from veil.errors import FileFormatError, VeilError
from veil.files.atomic import replacing
from veil.files.containers import require_filled
from veil.space import Space

FORMAT = 1
_SPACE = ("descriptor", "normalization", "dim", "codebook", "dither_steps")


def write_learned_model(path: Path, model: LearnedModel) -> None:
    """Write both networks as .npz, their weights in float16, at once or not at all."""
    header = {
        "format": FORMAT,
        "space": {name: getattr(model.space, name) for name in _SPACE},
        "layers": len(model.density.weights),
        "source": model.density.source,
        "training": asdict(model.training),
    }
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
    for number, (weight, bias) in enumerate(zip(model.density.weights, model.density.biases, strict=True)):
        arrays[f"density_w{number}"], arrays[f"density_b{number}"] = weight.astype(np.float16), bias.astype(np.float16)
    arrays |= {f"pair_{name}": item.astype(np.float16) for name, item in model.pairs.layers._asdict().items()}
    arrays["pair_crowding"] = model.pairs.crowding
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def read_learned_model(path: Path) -> LearnedModel:
    """Read networks that `write_learned_model` wrote. Raises FileFormatError for any other file."""
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            if header["format"] != FORMAT:
                raise FileFormatError(f"{path} has format {header['format']!r}; this veil reads {FORMAT}")
            space = Space(**{name: header["space"][name] for name in _SPACE})
            numbers = range(int(header["layers"]))
            density = DensityNetwork(
                space=space,
                weights=tuple(stored[f"density_w{number}"].astype(np.float32) for number in numbers),
                biases=tuple(stored[f"density_b{number}"].astype(np.float32) for number in numbers),
                source=str(header["source"]),
            )
            pairs = PairNetwork(
                space=space,
                layers=Layers(*(stored[f"pair_{name}"].astype(np.float32) for name in Layers._fields)),
                crowding=stored["pair_crowding"].astype(np.float64),
                source=str(header["source"]),
            )
            return LearnedModel(density=density, pairs=pairs, training=_training(header["training"]))
    except FileNotFoundError:
        raise FileFormatError(f"there is no file {path}; train one with `veil lab train attacks`") from None
    except (VeilError, OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError) as error:
        raise FileFormatError(f"{path} holds no networks of attacks, or is damaged ({error})") from None


def _training(stored: Mapping[str, Any]) -> Training:
    """The record of a training. Raises LookupError, TypeError or ValueError unless all of its fields are there."""
    numbers = {name: int(stored[name]) for name in ("descriptors", "steps", "pair_steps", "decoys", "seed")}
    return Training(image_digests=tuple(str(item) for item in stored["image_digests"]), **numbers)


@lru_cache(maxsize=1)
def bundled_learned_model() -> LearnedModel:
    """The networks for the hardened profile with the bundled codebook (NOTICE tells what they were trained on)."""
    with as_file(files("veil") / "data" / "modes-sift-l2.npz") as path:
        return read_learned_model(path)
