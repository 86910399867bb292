"""Networks of attacks as .npz files: inversion of features, attacks on hardened subspaces, and distances of pairs of features.

Weights of inversion carry their own hash; the other two carry their space and source.
"""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.distribution.context import ContextNetwork, NeighborLayers, Perceptron
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.learned_model import AttackTraining, LearnedModel
from veil.attacks.distribution.same_photograph import PhotographModel
from veil.attacks.distribution.whole_photograph import PhotographTransformer
from veil.attacks.matches.view_weights import ViewWeights
from veil.attacks.positions.pair_network import Layers, PairNetwork
from veil.errors import FileFormatError, Remedy, VeilError
from veil.files.atomic import replacing
from veil.files.containers import require_filled
from veil.inversion.weights import Training, Weights
from veil.space import Space

# Formats of the four kinds of files.
WEIGHTS_FORMAT, MODEL_FORMAT, PAIRS_FORMAT, TRANSFORMER_FORMAT = 1, 2, 1, 1
DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, tokenize.TokenError),
)


def write_weights(path: Path, weights: Weights) -> None:
    """Write weights as .npz with their hash, at once or not at all."""
    save_arrays(path, weights.arrays, {"format": WEIGHTS_FORMAT, "digest": weights.digest, **weights.header})


def read_weights(path: Path) -> Weights:
    """Read weights and verify their hash. Raises FileFormatError if the file is damaged, foreign, or does not match it."""
    with _opened(path, "weights of inversion", WEIGHTS_FORMAT) as (arrays, header):
        weights = Weights(kind=header["kind"], arrays=arrays, training=Training.from_json(header["training"]))
        if weights.digest != header["digest"]:
            raise FileFormatError(f"{path} does not match its hash; fetch it again")
        return weights


def bundled_inverter() -> Weights:
    """The network for raw SIFT (L2) descriptors that `veil audit` draws pictures with (NOTICE tells what it was trained on)."""
    with as_file(files("veil") / "data" / "inverter-sift-l2.npz") as path:
        return read_weights(path)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
    """Write arrays and a header as .npz, at once or not at all."""
    every: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays}
    with replacing(path) as temporary, temporary.open("wb") as stream:
        # Without `allow_pickle`, which NumPy 1 would store as one more array.
        np.savez(stream, **every)


def load_arrays(path: Path, what: str) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and header of an .npz that `save_arrays` wrote; FileFormatError otherwise, which calls it `what`."""
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            return {name: stored[name] for name in stored.files if name != "header"}, header
    except FileNotFoundError:
        raise FileFormatError(f"there is no file {path}") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path} is not {what}, or is damaged ({error})") from None


@contextmanager
def _opened(path: Path, what: str, expected: int) -> Iterator[tuple[dict[str, np.ndarray], dict]]:
    """Arrays and header of a file of the format `expected`. What they lack, its reader finds: that is damage, too."""
    arrays, header = load_arrays(path, what)
    try:
        if header["format"] != expected:
            raise FileFormatError(f"{path} has format {header['format']!r}; this veil reads {expected}")
        yield arrays, header
    except FileFormatError:
        raise
    except (VeilError, *DAMAGE) as error:
        raise FileFormatError(f"{path} is not {what}, or is damaged ({error})") from None


# Layers of context in a file, beside those of its neighbors.
_CONTEXT_LAYERS = ("alone", "style", "whole", "vertex")
# Arrays of the law of photographs in a file, in full precision; files without them are older, as are those without its
# sharpness, which stand for the one that ships with veil.
_PHOTOGRAPH, _SHARPNESS = ("mean", "axes", "center", "spread"), "sharpness"
_SPACE = ("descriptor", "normalization", "dim", "codebook", "dither_steps")
# Names of the arrays of the transformer in a file of networks begin with this; files without them are older.
_WHOLE = "whole_"


def write_learned_model(path: Path, model: LearnedModel) -> None:
    """Write the networks as .npz, their weights in float16, at once or not at all."""
    header = {
        "format": MODEL_FORMAT,
        "space": _space_fields(model.space),
        "layers": len(model.density.weights),
        "source": model.density.source,
        "training": asdict(model.training),
        "views": model.views.as_json(),
    }
    arrays: dict[str, Any] = {}
    for number, (weight, bias) in enumerate(zip(model.density.weights, model.density.biases, strict=True)):
        arrays[f"density_w{number}"], arrays[f"density_b{number}"] = weight.astype(np.float16), bias.astype(np.float16)
    arrays |= {f"context_{name}": item for name, item in _context_arrays(model.context).items()}
    if model.photograph is not None:
        arrays |= {f"photograph_{name}": np.asarray(getattr(model.photograph, name)) for name in (*_PHOTOGRAPH, _SHARPNESS)}
    if model.whole is not None:
        header["whole"] = model.whole.source
        arrays |= {f"{_WHOLE}{name}": item.astype(np.float16) for name, item in model.whole.arrays.items()}
    save_arrays(path, arrays, header)


def read_learned_model(path: Path | str) -> LearnedModel:
    """The networks in a file of `veil lab train attacks` or `veil lab tune`. Raises FileFormatError for another file."""
    path = Path(path)
    if not path.is_file():
        raise FileFormatError(f"there is no file {path}", remedy=Remedy("make", "networks of attacks"))
    with _opened(path, "networks of attacks", MODEL_FORMAT) as (stored, header):
        space, source = _space(header["space"]), str(header["source"])
        numbers = range(int(header["layers"]))
        density = DensityNetwork(
            space=space,
            weights=tuple(stored[f"density_w{number}"].astype(np.float32) for number in numbers),
            biases=tuple(stored[f"density_b{number}"].astype(np.float32) for number in numbers),
            source=source,
        )
        whole = {name.removeprefix(_WHOLE): item for name, item in stored.items() if name.startswith(_WHOLE)}
        return LearnedModel(
            density=density,
            context=_context(stored, space, source),
            photograph=_photograph(stored, space, source),
            whole=_transformer(whole, space, str(header["whole"])) if whole else None,
            training=_training(header["training"]),
            # Files of networks alone hold no weights of views, and stand for those that ship with veil.
            views=ViewWeights.from_json(header["views"]) if "views" in header else ViewWeights(),
        )


def write_photograph_transformer(path: Path, network: PhotographTransformer) -> None:
    """Write a transformer alone as .npz, its weights in float16, at once or not at all."""
    header = {"format": TRANSFORMER_FORMAT, "space": _space_fields(network.space), "source": network.source}
    save_arrays(path, {name: item.astype(np.float16) for name, item in network.arrays.items()}, header)


def read_photograph_transformer(path: Path) -> PhotographTransformer:
    """Read a transformer that `write_photograph_transformer` wrote. Raises FileFormatError for any other file."""
    with _opened(path, "a transformer of photographs", TRANSFORMER_FORMAT) as (arrays, header):
        return _transformer(arrays, _space(header["space"]), str(header["source"]))


def _transformer(arrays: Mapping[str, np.ndarray], space: Space, source: str) -> PhotographTransformer:
    return PhotographTransformer(
        space=space, arrays={name: item.astype(np.float32) for name, item in arrays.items()}, source=source
    )


def _space_fields(space: Space) -> dict[str, Any]:
    return {name: getattr(space, name) for name in _SPACE}


def _space(stored: Mapping[str, Any]) -> Space:
    """The space of a header. Raises LookupError where a field is missing, and what Space raises."""
    return Space(**{name: stored[name] for name in _SPACE})


def _context_arrays(network: ContextNetwork) -> dict[str, np.ndarray]:
    """Weights of a network of context in float16, by names, and its numbers in full."""
    near = network.neighbors
    layers = {name: getattr(network, name) for name in _CONTEXT_LAYERS} | {"code": near.code, "distance": near.distance}
    arrays = {f"{name}_{part}": item for name, of in layers.items() for part, item in of._asdict().items()}
    arrays |= {"pair": near.pair, "pair_bias": near.pair_bias, "out": near.out}
    numbers = {"sharpness": network.sharpness, "damping": network.damping}
    numbers |= {"out_bias": near.out_bias, "mistaken": near.mistaken}
    halves = {name: item.astype(np.float16) for name, item in arrays.items()}
    return halves | {name: np.array(value, dtype=np.float64) for name, value in numbers.items()}


def _context(stored: Mapping[str, np.ndarray], space: Space, source: str) -> ContextNetwork:
    """The network of context of a file. Raises LookupError where an array is missing."""

    def layers(of: str) -> Perceptron:
        return Perceptron(*(stored[f"context_{of}_{part}"].astype(np.float32) for part in Perceptron._fields))

    near = NeighborLayers(
        code=layers("code"),
        pair=stored["context_pair"].astype(np.float32),
        pair_bias=stored["context_pair_bias"].astype(np.float32),
        distance=layers("distance"),
        out=stored["context_out"].astype(np.float32),
        out_bias=float(stored["context_out_bias"]),
        mistaken=float(stored["context_mistaken"]),
    )
    return ContextNetwork(
        space=space,
        **{of: layers(of) for of in _CONTEXT_LAYERS},
        neighbors=near,
        sharpness=float(stored["context_sharpness"]),
        damping=float(stored["context_damping"]),
        source=source,
    )


def _photograph(stored: Mapping[str, np.ndarray], space: Space, source: str) -> PhotographModel | None:
    """The law of photographs of a file; None if it has none. Raises LookupError where one of its arrays is missing."""
    if not any(f"photograph_{name}" in stored for name in _PHOTOGRAPH):
        return None
    mean, axes, center, spread = (stored[f"photograph_{name}"].astype(np.float64) for name in _PHOTOGRAPH)
    law = PhotographModel(space=space, mean=mean, axes=axes, center=center, spread=spread, source=source)
    named = f"photograph_{_SHARPNESS}"
    return replace(law, sharpness=float(stored[named])) if named in stored else law


def _training(stored: Mapping[str, Any]) -> AttackTraining:
    """The record of a training. Raises LookupError, TypeError or ValueError unless all of its fields are there."""
    numbers = {name: int(stored[name]) for name in ("descriptors", "steps", "context_steps", "decoys", "seed")}
    return AttackTraining(image_digests=tuple(str(item) for item in stored["image_digests"]), **numbers)


@lru_cache(maxsize=1)
def bundled_learned_model() -> LearnedModel:
    """The networks for the hardened profile with the bundled codebook (NOTICE tells what they were trained on)."""
    data = files("veil") / "data"
    with as_file(data / "modes-sift-l2.npz") as path, as_file(data / "whole-sift-l2.npz") as whole:
        return replace(read_learned_model(path), whole=read_photograph_transformer(whole))


def write_pair_network(path: Path, network: PairNetwork) -> None:
    """Write a network as .npz, its weights in float16, at once or not at all."""
    header = {
        "format": PAIRS_FORMAT,
        "descriptor": network.space.descriptor,
        "normalization": network.space.normalization,
        "dim": network.space.dim,
        "source": network.source,
    }
    weights = {name: item.astype(np.float16) for name, item in network.layers._asdict().items()}
    save_arrays(path, {"crowding": network.crowding, **weights}, header)


def read_pair_network(path: Path) -> PairNetwork:
    """Read a network that `write_pair_network` wrote. Raises FileFormatError for any other file."""
    with _opened(path, "a network of pairs", PAIRS_FORMAT) as (arrays, header):
        space = Space(descriptor=header["descriptor"], normalization=header["normalization"], dim=header["dim"])
        layers = Layers(*(arrays[name].astype(np.float32) for name in Layers._fields))
        crowding = arrays["crowding"].astype(np.float64)
        return PairNetwork(space=space, layers=layers, crowding=crowding, source=str(header["source"]))


def bundled_pair_network() -> PairNetwork:
    """The network for raw SIFT (L2) descriptors that `veil audit` attacks lines with (NOTICE tells what it was trained on)."""
    with as_file(files("veil") / "data" / "neighbors-sift-l2.npz") as path:
        return read_pair_network(path)
