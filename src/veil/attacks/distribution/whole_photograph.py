"""Whole photograph attack: a transformer chooses among the modes of all features of an upload at once.

Each mode of each feature is a token. Tokens attend to each other: to those that resemble them, to those at some distances
of the image, and to those that are believed so far. Where positions are hidden, they attend to all features alike. What is
believed is read after each layer.

Theory: learned_attacks.md#whole-photograph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.attacks.distribution.context import Perceptron, distance_inputs
from veil.attacks.distribution.density_network import sigmoid
from veil.attacks.distribution.modes import Modes
from veil.errors import InputError

# What stands for minus infinity, and the lowest log belief that attention reads.
MASKED, LEAST_BELIEF = -1e4, -15.0
# Log ratios are read in units of this, and ways to vertices scaled by the other.
RATIO_UNIT, WAY_SCALE = 4.0, 0.05
# Tokens that ask at a time.
CHUNK_TOKENS = 400
_EPS = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class PhotographTransformer:
    """Weights of the transformer by their names, float32; matrices are inputs x outputs.

    Raises InputError where an array is missing or does not fit.
    """

    arrays: Mapping[str, Float32[np.ndarray, "..."]]

    def __post_init__(self) -> None:
        for name in ("registers", "same", "choice.weight", "vertex.weight", "sharpness"):
            if name not in self.arrays:
                raise InputError(f"a transformer of photographs has no array {name!r}; get another file")
        if not all(np.isfinite(item).all() for item in self.arrays.values()):
            raise InputError("a transformer of photographs needs finite weights; train it again or get another file")

    @property
    def begins_with_context(self) -> bool:
        """Whether it reads what context believes."""
        return "trust" in self.arrays and any(name.startswith("begin.") for name in self.arrays)

    def linear(self, name: str, values: Float32[np.ndarray, "*batch inputs"]) -> Float32[np.ndarray, "*batch outputs"]:
        """Outputs of the linear layer `name`."""
        return values @ self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]

    def perceptron(self, name: str) -> Perceptron:
        """The two layers `name`."""
        parts = (self.arrays[f"{name}.{place}.{part}"] for place in (0, 2) for part in ("weight", "bias"))
        return Perceptron(*parts)

    def normalized(self, name: str, values: Float32[np.ndarray, "*batch width"]) -> Float32[np.ndarray, "*batch width"]:
        """Values of mean 0 and variance 1 in each row, scaled and shifted by the layer `name`."""
        centered = values - values.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + np.float32(_EPS))
        return centered / spread * self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]


def transformer_beliefs(
    modes: Modes,
    network: PhotographTransformer,
    keypoints: Float64[np.ndarray, "features 2"] | None,
    *,
    spacing: float = 1.0,
    context: Float64[np.ndarray, "features modes"] | None = None,
) -> tuple[Float32[np.ndarray, "features modes"], Float32[np.ndarray, "features modes dim"]]:
    """Log beliefs in the modes of each feature given all others, and the ways to the vertices beside them.

    `keypoints` are positions in pixels, None where they are hidden; `spacing` is the mean spacing of all of the release.
    `context` are log beliefs of context, for networks that begin with them. Raises InputError where they are missing.
    """
    if network.begins_with_context and context is None:
        raise InputError("this transformer reads the beliefs of context, and got none")
    known = np.isfinite(modes.log_ratios)
    count, width = known.shape
    inputs = (np.where(known[..., None], modes.points, 0.0) * math.sqrt(modes.points.shape[2])).astype(np.float32)
    with np.errstate(invalid="ignore"):
        ratios = np.where(known, modes.log_ratios - modes.log_ratios[:, :1], 0.0).astype(np.float32)
    parts = [inputs, ratios[..., None] / np.float32(RATIO_UNIT), np.full((count, width, 1), keypoints is not None, np.float32)]
    first = network.arrays["sharpness"] * ratios
    if context is not None:
        read = np.where(known, np.maximum(context, LEAST_BELIEF), LEAST_BELIEF).astype(np.float32)
        parts.append(read[..., None] / np.float32(RATIO_UNIT))
        first = network.arrays["trust"] * read
    tokens = network.perceptron("embed")(np.concatenate(parts, axis=2)).reshape(count * width, -1)
    registers = network.arrays["registers"]
    tokens = np.concatenate([registers, tokens])
    layers, heads = network.arrays["same"].shape
    attended = _attended(network, keypoints, spacing, count)
    beliefs = _beliefs(network, tokens, first, known)
    for number in range(layers):
        tokens = _after_layer(network, tokens, number, heads, attended[number], _believed(network, beliefs, known, number))
        beliefs = _beliefs(network, tokens, first, known)
    last = network.normalized("last", tokens[len(registers) :])
    ways = np.float32(WAY_SCALE) * network.linear("vertex", last)
    return beliefs, ways.reshape(*known.shape, -1)


def _beliefs(network: PhotographTransformer, tokens: np.ndarray, first: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Log beliefs in the modes of each feature."""
    last = network.normalized("last", tokens[len(network.arrays["registers"]) :])
    logits = first + (last @ network.arrays["choice.weight"])[:, 0].reshape(first.shape)
    logits = np.where(known, logits, np.float32(MASKED))
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _attended(
    network: PhotographTransformer,
    keypoints: Float64[np.ndarray, "features 2"] | None,
    spacing: float,
    count: int,
) -> Float32[np.ndarray, "layers heads features features"]:
    """What is added to scores of a feature's tokens and another's."""
    layers, heads = network.arrays["same"].shape
    away = np.broadcast_to(network.arrays["anywhere"][:, :, None, None], (layers, heads, count, count)).copy()
    if keypoints is not None:
        gaps = np.linalg.norm(keypoints[:, None] - keypoints[None], axis=2)
        read = network.perceptron("distance")(distance_inputs(gaps, spacing))
        away = np.ascontiguousarray(read.reshape(count, count, layers, heads).transpose(2, 3, 0, 1))
    each = np.arange(count)
    away[:, :, each, each] = network.arrays["same"][:, :, None]
    return away


def _believed(network: PhotographTransformer, beliefs: np.ndarray, known: np.ndarray, number: int) -> np.ndarray:
    """What is added to scores by the mode that is asked (heads, features, modes)."""
    keys = np.where(known, np.maximum(beliefs, np.float32(LEAST_BELIEF)), np.float32(0))
    keys = keys * network.arrays["believed"][number][:, None, None]
    return np.where(known, keys, np.float32(MASKED))


def _after_layer(
    network: PhotographTransformer, tokens: np.ndarray, number: int, heads: int, attended: np.ndarray, believed: np.ndarray
) -> Float32[np.ndarray, "tokens width"]:
    """Tokens after layer `number`; some ask at a time."""
    name, (_, count, modes) = f"layers.{number}", believed.shape
    registers = len(tokens) - count * modes
    asked = network.linear(f"{name}.asked", network.normalized(f"{name}.before_attention", tokens))
    query, key, value = asked.reshape(len(tokens), 3, heads, -1).transpose(1, 2, 0, 3)
    query = query / np.float32(math.sqrt(query.shape[2]))
    mixed = np.empty_like(query)
    to_registers = network.arrays["to_registers"][number]
    parts: list[tuple[np.ndarray, np.ndarray | None]] = [(np.arange(registers), None)]
    step = max(1, CHUNK_TOKENS // modes)
    for start in range(0, count, step):
        end = min(start + step, count)
        parts.append((registers + np.arange(start * modes, end * modes), np.arange(start, end)))
    for head in range(heads):
        keys, values = np.ascontiguousarray(key[head].T), np.ascontiguousarray(value[head])
        for rows, features in parts:
            scores = query[head, rows] @ keys
            scores[:, :registers] += to_registers[head]
            scores[:, registers:] += believed[head].ravel()
            if features is not None:  # registers ask everywhere alike
                added = np.repeat(attended[head, features], modes, axis=1)
                scores[:, registers:].reshape(len(features), modes, -1)[...] += added[:, None]
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            mixed[head, rows] = (scores @ values) / scores.sum(axis=1, keepdims=True)
    tokens = tokens + network.linear(f"{name}.answer", mixed.transpose(1, 0, 2).reshape(len(tokens), -1))
    inner = network.linear(f"{name}.first", network.normalized(f"{name}.before_perceptron", tokens))
    return tokens + network.linear(f"{name}.second", inner * sigmoid(inner))
