"""Whole photograph attack: a transformer chooses among the modes of all features of an upload at once.

Each mode of each feature is a token. Tokens attend to those that resemble them, and to those that are believed so far. What is
believed is read after each layer. Positions are not asked, so that it serves behind lines.

Theory: learned_attacks.md#whole-photograph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from veil.attacks.claims import Estimates
from veil.attacks.distribution.context import Perceptron
from veil.attacks.distribution.density_network import sigmoid
from veil.attacks.distribution.modes import Modes
from veil.errors import InputError
from veil.forms import Subspaces
from veil.one_line import one_line
from veil.space import Space, require_same

# What stands for minus infinity, and the lowest log belief that attention reads.
MASKED, LEAST_BELIEF = -1e4, -15.0
# Log ratios are read in units of this, and ways to vertices scaled by the other.
RATIO_UNIT, WAY_SCALE = 4.0, 0.05
# Features of a photograph that attend to each other at most: it was trained with about as many.
AT_ONCE = 320
# Added to the variance of a normalization.
_RIDGE = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class PhotographTransformer:
    """Weights of a transformer over the modes of a photograph, by their names; matrices are inputs x outputs.

    `source` says what it was trained on, and how long. Raises InputError where an array is missing, unknown, not finite, or of
    another shape than the others ask for.
    """

    space: Space
    arrays: Mapping[str, Float32[np.ndarray, "..."]]
    source: str = ""

    __repr__ = one_line

    def __post_init__(self) -> None:
        expected = _shapes(self.space.dim, {name: item.shape for name, item in self.arrays.items()})
        for name, shape in expected.items():
            if self.arrays[name].shape != shape:
                raise InputError(f"array {name!r} of the transformer has shape {self.arrays[name].shape}, not {shape}")
            if not np.isfinite(self.arrays[name]).all():
                raise InputError(f"array {name!r} of the transformer is not finite; train it again or get another file")

    def linear(self, name: str, values: Float32[np.ndarray, "*batch inputs"]) -> Float32[np.ndarray, "*batch outputs"]:
        """Outputs of the linear layer `name`."""
        return values @ self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]

    def normalized(self, name: str, values: Float32[np.ndarray, "*batch width"]) -> Float32[np.ndarray, "*batch width"]:
        """Values of mean 0 and variance 1 in each row, scaled and shifted by the layer `name`."""
        centered = values - values.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + np.float32(_RIDGE))
        return centered / spread * self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]


def whole_photograph_estimates(form: Subspaces, modes: Modes, network: PhotographTransformer) -> Estimates:
    """The likeliest mode of each subspace of `form` given all others, moved in the subspace to the descriptor beside it.

    Of many subspaces at most `AT_ONCE` in their order attend to each other. Raises SpaceError if the network is for another
    space, and InputError unless there are modes of each subspace.
    """
    require_same(form.space, network.space)
    if len(modes) != len(form):
        raise InputError(f"{len(form)} subspaces need modes of as many, got {len(modes)}")
    beliefs, ways = np.empty(modes.log_ratios.shape), np.empty(modes.points.shape)
    for rows in np.array_split(np.arange(len(modes)), max(1, math.ceil(len(modes) / AT_ONCE))):
        part = Modes(points=modes.points[rows], log_ratios=modes.log_ratios[rows])
        logs, ways[rows] = transformer_beliefs(part, network)
        beliefs[rows] = np.exp(logs)
    chosen = modes.estimates(beliefs)
    way = ways[np.arange(len(modes)), beliefs.argmax(axis=1)]
    basis = form.basis.astype(np.float64)
    inside = np.einsum("fmn,fm->fn", basis, np.einsum("fmn,fn->fm", basis, way))
    return Estimates(points=chosen.points + inside, confidence=chosen.confidence, certified=chosen.certified)


def transformer_beliefs(
    modes: Modes, network: PhotographTransformer
) -> tuple[Float32[np.ndarray, "features modes"], Float32[np.ndarray, "features modes dim"]]:
    """Log beliefs in the modes of each feature given all others, and the ways to the vertices beside them (Eq. 10, 11).

    Raises InputError if the network reads descriptors of another length.
    """
    if modes.points.shape[2] != network.space.dim:
        raise InputError(f"the network reads {network.space.dim}-D descriptors, and modes have {modes.points.shape[2]} numbers")
    known = np.isfinite(modes.log_ratios)
    inputs = (np.where(known[..., None], modes.points, 0.0) * math.sqrt(network.space.dim)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        ratios = np.where(known, modes.log_ratios - modes.log_ratios[:, :1], 0.0).astype(np.float32)
    weights = (network.arrays[f"embed.{place}.{part}"] for place in (0, 2) for part in ("weight", "bias"))
    embedded = Perceptron(*weights)(np.concatenate([inputs, ratios[..., None] / np.float32(RATIO_UNIT)], axis=2))
    registers = network.arrays["registers"]
    tokens = np.concatenate([registers, embedded.reshape(known.size, -1)])
    first = network.arrays["sharpness"] * ratios
    beliefs = _beliefs(network, tokens, first, known)
    for number in range(len(network.arrays["same"])):
        tokens = _after_layer(network, tokens, number, beliefs, known)
        beliefs = _beliefs(network, tokens, first, known)
    last = network.normalized("last", tokens[len(registers) :])
    ways = np.float32(WAY_SCALE) * network.linear("vertex", last)
    return beliefs, ways.reshape(*known.shape, -1)


def _beliefs(network: PhotographTransformer, tokens: np.ndarray, first: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Log beliefs in the modes of each feature (Eq. 11)."""
    last = network.normalized("last", tokens[len(network.arrays["registers"]) :])
    logits = first + (last @ network.arrays["choice.weight"])[:, 0].reshape(first.shape)
    logits = np.where(known, logits, np.float32(MASKED))
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _after_layer(
    network: PhotographTransformer, tokens: np.ndarray, number: int, beliefs: np.ndarray, known: np.ndarray
) -> Float32[np.ndarray, "tokens width"]:
    """Tokens, of which registers are the first, after layer `number`: attention by Eq. 10, then a perceptron for each."""
    name, first = f"layers.{number}", len(tokens) - known.size
    same, anywhere, to_registers, believed = (
        network.arrays[part][number] for part in ("same", "anywhere", "to_registers", "believed")
    )
    asked = network.linear(f"{name}.asked", network.normalized(f"{name}.before_attention", tokens))
    query, key, value = asked.reshape(len(tokens), 3, len(same), -1).transpose(1, 2, 0, 3)
    query = query / np.float32(math.sqrt(query.shape[2]))
    read = np.where(known, np.maximum(beliefs, np.float32(LEAST_BELIEF)), np.float32(0)).ravel()
    mixed, of = np.empty_like(query), np.repeat(np.arange(len(known)), known.shape[1])
    is_same = of[:, None] == of
    for head in range(len(same)):
        scores = query[head] @ key[head].T
        scores[:, :first] += to_registers[head]
        scores[:, first:] += np.where(known.ravel(), believed[head] * read, np.float32(MASKED))
        scores[first:, first:] += np.where(is_same, same[head], anywhere[head])  # registers ask everywhere alike
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        mixed[head] = (scores @ value[head]) / scores.sum(axis=1, keepdims=True)
    tokens = tokens + network.linear(f"{name}.answer", mixed.transpose(1, 0, 2).reshape(len(tokens), -1))
    inner = network.linear(f"{name}.first", network.normalized(f"{name}.before_perceptron", tokens))
    return tokens + network.linear(f"{name}.second", inner * sigmoid(inner))


def _shapes(dim: int, given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of all arrays of a transformer, whose sizes four of the `given` ones tell. Raises InputError for other names."""
    try:
        (registers, width), (layers, heads) = given["registers"], given["same"]
        (read,), (hidden,) = given["embed.0.bias"], given["layers.0.first.bias"]
    except (KeyError, ValueError):
        raise InputError("these arrays are not of a transformer of photographs; train it again or get another file") from None
    if min(registers, width, layers, heads) < 1 or width % heads or 12 * layers > len(given):
        raise InputError(f"a transformer of width {width} with {layers} layers of {heads} heads does not fit its arrays")
    shapes: dict[str, tuple[int, ...]] = {"registers": (registers, width), "sharpness": (1,)}
    shapes |= dict.fromkeys(("same", "anywhere", "to_registers", "believed"), (layers, heads))
    linears = {"embed.0": (dim + 1, read), "embed.2": (read, width), "vertex": (width, dim)}
    norms = ["last"]
    for number in range(layers):
        name = f"layers.{number}"
        linears |= {f"{name}.asked": (width, 3 * width), f"{name}.answer": (width, width)}
        linears |= {f"{name}.first": (width, hidden), f"{name}.second": (hidden, width)}
        norms += [f"{name}.before_attention", f"{name}.before_perceptron"]
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[1:]}
    for name in norms:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    shapes["choice.weight"] = (width, 1)
    if shapes.keys() != given.keys():
        wrong = min(shapes.keys() ^ given.keys())
        raise InputError(f"the arrays are not those of one transformer, as {wrong!r} shows; train it again or get another file")
    return shapes
