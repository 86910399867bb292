"""LightGlue with random weights, and the published network written down slowly, one keypoint after the other, in float64.

`slow` follows Lindenberger et al. 2023 and the layout of the published weights. With a `mistake` it is a broken twin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veil.forms import Points
from veil.matching.lightglue import LightGlueOptions
from veil.matching.placed_points import PlacedPoints
from veil.space import Space
from worlds import unit

WIDTH, HEADS, LAYERS, DIM = 16, 2, 4, 6
SPACE = Space(descriptor="planted", normalization="L2", dim=DIM)
MISTAKES = ("halves", "no turn", "columns", "one softmax", "not scaled", "old message", "one side")


def random_weights(random: np.random.Generator) -> dict[str, np.ndarray]:
    """A state dict by the published names, with layers that change states much and similarities that tell keypoints apart."""
    weights: dict[str, np.ndarray] = {"posenc.Wr.weight": random.normal(0, 2.0, (WIDTH // HEADS // 2, 2))}

    def linear(name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
        weights[f"{name}.weight"] = random.normal(0, gain / math.sqrt(inputs), (outputs, inputs))
        weights[f"{name}.bias"] = random.normal(0, 0.2, outputs)

    linear("input_proj", DIM, WIDTH, 2.0)
    for k in range(LAYERS):
        linear(f"transformers.{k}.self_attn.Wqkv", WIDTH, 3 * WIDTH, 1.5)
        linear(f"transformers.{k}.self_attn.out_proj", WIDTH, WIDTH)
        linear(f"transformers.{k}.cross_attn.to_qk", WIDTH, WIDTH, 1.5)
        linear(f"transformers.{k}.cross_attn.to_v", WIDTH, WIDTH)
        linear(f"transformers.{k}.cross_attn.to_out", WIDTH, WIDTH)
        for kind in ("self_attn", "cross_attn"):
            linear(f"transformers.{k}.{kind}.ffn.0", 2 * WIDTH, 2 * WIDTH)
            weights[f"transformers.{k}.{kind}.ffn.1.weight"] = random.normal(1, 0.2, 2 * WIDTH)
            weights[f"transformers.{k}.{kind}.ffn.1.bias"] = random.normal(0, 0.2, 2 * WIDTH)
            linear(f"transformers.{k}.{kind}.ffn.3", 2 * WIDTH, WIDTH)
        linear(f"log_assignment.{k}.final_proj", WIDTH, WIDTH, 1.5)
        linear(f"log_assignment.{k}.matchability", WIDTH, 1, 3.0)
        if k < LAYERS - 1:
            linear(f"token_confidence.{k}.token.0", WIDTH, 1, 1.5)
            weights[f"token_confidence.{k}.token.0.bias"] += 2.5
    return {name: array.astype(np.float32) for name, array in weights.items()}


def random_image(random: np.random.Generator, count: int) -> PlacedPoints:
    """Keypoints anywhere in an image that is not square, with random descriptors."""
    size = (400, 300)
    return PlacedPoints(
        points=Points(vectors=unit(random.normal(size=(count, DIM))).astype(np.float32), space=SPACE),
        keypoints=(random.random((count, 2)) * size).astype(np.float32),
        size_px=size,
    )


def seen_again(random: np.random.Generator, image: PlacedPoints, count: int) -> PlacedPoints:
    """An image that shows some keypoints of another one, a little changed, and others."""
    fresh = random_image(random, count)
    vectors, keypoints = fresh.points.vectors.copy(), fresh.keypoints.copy()
    same = min(len(image), count) // 2
    vectors[:same] = unit(image.points.vectors[:same] + random.normal(0, 0.05, (same, DIM)))
    keypoints[:same] = image.keypoints[:same] + np.float32(3)
    return PlacedPoints(points=Points(vectors=vectors, space=SPACE), keypoints=keypoints, size_px=image.size_px)


def still_weights(dim: int = 128, *, gain: float = 60.0) -> dict[str, np.ndarray]:
    """A network of one layer that changes no state: matches are pairs of most similar descriptors, so that truth is planted.

    A similarity is `gain` times the cosine, and every keypoint is thought to have a match.
    """
    own = "transformers.0.{}_attn.{}"
    weights: dict[str, np.ndarray] = {
        "posenc.Wr.weight": np.zeros((dim // 4, 2)),
        "log_assignment.0.matchability.weight": np.zeros((1, dim)),
    }
    shapes = {("self", "Wqkv"): 3 * dim, ("self", "out_proj"): dim, ("cross", "to_qk"): dim, ("cross", "to_v"): dim}
    for (kind, part), rows in {**shapes, ("cross", "to_out"): dim}.items():
        weights[f"{own.format(kind, part)}.weight"] = np.zeros((rows, dim))
        weights[f"{own.format(kind, part)}.bias"] = np.zeros(rows)
    for kind in ("self", "cross"):
        for part, shape in (("ffn.0", (2 * dim, 2 * dim)), ("ffn.1", (2 * dim,)), ("ffn.3", (dim, 2 * dim))):
            weights[f"{own.format(kind, part)}.weight"] = np.zeros(shape)
            weights[f"{own.format(kind, part)}.bias"] = np.zeros(shape[0])
    weights["log_assignment.0.matchability.bias"] = np.full(1, 10.0)
    weights["log_assignment.0.final_proj.weight"] = np.eye(dim) * math.sqrt(gain * math.sqrt(dim))
    weights["log_assignment.0.final_proj.bias"] = np.zeros(dim)
    return {name: array.astype(np.float32) for name, array in weights.items()}


@dataclass(frozen=True, kw_only=True)
class SlowAnswer:
    """The answer of `slow`: probabilities of matches by pair, layers that ran, and keypoints that the last layer read."""

    matches: dict[tuple[int, int], float]
    layers: int
    kept: tuple[int, int]


def slow(
    weights: Mapping[str, np.ndarray],
    images: tuple[PlacedPoints, PlacedPoints],
    options: LightGlueOptions,
    mistake: str | None = None,
) -> SlowAnswer:
    """Matches of two images, keypoint by keypoint."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    rows = [list(range(len(image))) for image in images]
    states = [[_linear(w, "input_proj", x.astype(np.float64)) for x in image.points.vectors] for image in images]
    places = []
    for image in images:
        width, height = image.size_px
        middle, half = np.array([width / 2, height / 2]), max(width, height) / 2
        places.append([(place.astype(np.float64) - middle) / half for place in image.keypoints])
    total, run = len(rows[0]) + len(rows[1]), 0
    for k in range(LAYERS):
        if not (rows[0] and rows[1]):
            break
        run = k + 1
        own = [_self(w, k, states[side], places[side], mistake) for side in (0, 1)]
        states = [_cross(w, k, own[0], own[1], mistake), _cross(w, k, own[1], own[0], mistake)]
        if k == LAYERS - 1:
            break
        bound = 0.8 + 0.1 * math.exp(-4.0 * k / LAYERS)
        sure = [[_sigmoid(_linear(w, f"token_confidence.{k}.token.0", x)[0]) for x in side] for side in states]
        if options.depth_confidence is not None:
            doubtful = sum(c < bound for side in sure for c in side)
            if 1 - doubtful / total > options.depth_confidence:
                break
        if options.width_confidence is None:
            continue
        for side in (0,) if mistake == "one side" else (0, 1):
            kept = []
            for i, x in enumerate(states[side]):
                matchable = _sigmoid(_linear(w, f"log_assignment.{k}.matchability", x)[0])
                told = options.depth_confidence is not None and sure[side][i] <= bound
                if matchable > 1 - options.width_confidence or told:
                    kept.append(i)
            rows[side] = [rows[side][i] for i in kept]
            states[side] = [states[side][i] for i in kept]
            places[side] = [places[side][i] for i in kept]
    kept_counts = (len(rows[0]), len(rows[1]))
    matches = _matches(w, run - 1, rows, states, options.min_score, mistake) if rows[0] and rows[1] else {}
    return SlowAnswer(matches=matches, layers=run, kept=kept_counts)


def _linear(w: Mapping[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softmax(logits: list[float]) -> list[float]:
    grown = [math.exp(x - max(logits)) for x in logits]
    return [x / sum(grown) for x in grown]


def _turned(w: Mapping[str, np.ndarray], place: np.ndarray, x: np.ndarray, mistake: str | None) -> np.ndarray:
    """One head's query or key, whose neighboring channels turn by the angles of the place."""
    if mistake == "no turn":
        return x
    turned = x.copy()
    for pair, frequency in enumerate(w["posenc.Wr.weight"]):
        angle = float(frequency @ place)
        a, b = (pair, pair + len(x) // 2) if mistake == "halves" else (2 * pair, 2 * pair + 1)
        turned[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        turned[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return turned


def _updated(w: Mapping[str, np.ndarray], name: str, message: str, x: np.ndarray, attended: np.ndarray) -> np.ndarray:
    hidden = _linear(w, f"{name}.ffn.0", np.concatenate([x, _linear(w, f"{name}.{message}", attended)]))
    hidden = (hidden - hidden.mean()) / math.sqrt(hidden.var() + 1e-5)
    hidden = hidden * w[f"{name}.ffn.1.weight"] + w[f"{name}.ffn.1.bias"]
    gated = np.array([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in hidden])
    return x + _linear(w, f"{name}.ffn.3", gated)


def _self(
    w: Mapping[str, np.ndarray], k: int, states: list[np.ndarray], places: list[np.ndarray], mistake: str | None
) -> list[np.ndarray]:
    name, channels, updated = f"transformers.{k}.self_attn", WIDTH // HEADS, []
    asked = [_linear(w, f"{name}.Wqkv", x).reshape(HEADS, channels, 3) for x in states]
    scale = 1.0 if mistake == "not scaled" else 1 / math.sqrt(channels)
    for i, x in enumerate(states):
        attended = []
        for head in range(HEADS):
            query = _turned(w, places[i], asked[i][head, :, 0], mistake)
            logits = [scale * float(query @ _turned(w, places[j], asked[j][head, :, 1], mistake)) for j in range(len(states))]
            attended.append(sum(p * asked[j][head, :, 2] for j, p in enumerate(_softmax(logits))))
        updated.append(_updated(w, name, "out_proj", x, np.concatenate(attended)))
    return updated


def _cross(
    w: Mapping[str, np.ndarray], k: int, states: list[np.ndarray], others: list[np.ndarray], mistake: str | None
) -> list[np.ndarray]:
    name, channels, updated = f"transformers.{k}.cross_attn", WIDTH // HEADS, []
    keys = [_linear(w, f"{name}.to_qk", x).reshape(HEADS, channels) for x in others]
    read = "to_qk" if mistake == "old message" else "to_v"
    values = [_linear(w, f"{name}.{read}", x).reshape(HEADS, channels) for x in others]
    for x in states:
        query, attended = _linear(w, f"{name}.to_qk", x).reshape(HEADS, channels), []
        for head in range(HEADS):
            logits = [float(query[head] @ key[head]) / math.sqrt(channels) for key in keys]
            attended.append(sum(p * values[j][head] for j, p in enumerate(_softmax(logits))))
        updated.append(_updated(w, name, "to_out", x, np.concatenate(attended)))
    return updated


def _matches(
    w: Mapping[str, np.ndarray],
    k: int,
    rows: list[list[int]],
    states: list[list[np.ndarray]],
    least: float,
    mistake: str | None,
) -> dict[tuple[int, int], float]:
    name = f"log_assignment.{k}"
    left, right = ([_linear(w, f"{name}.final_proj", x) for x in side] for side in states)
    matchable = [[_sigmoid(_linear(w, f"{name}.matchability", x)[0]) for x in side] for side in states]
    similar = [[float(a @ b) / math.sqrt(WIDTH) for b in right] for a in left]
    by_row = [_softmax(row) for row in similar]
    by_column = [_softmax(list(column)) for column in zip(*similar, strict=True)]
    if mistake == "one softmax":
        by_column = [[1.0] * len(left) for _ in right]
    if mistake == "columns":
        by_row = [[by_column[j][i] for j in range(len(right))] for i in range(len(left))]
    likely = np.array(
        [
            [matchable[0][i] * matchable[1][j] * by_row[i][j] * by_column[j][i] for j in range(len(right))]
            for i in range(len(left))
        ]
    )
    matches = {}
    for i in range(len(left)):
        j = int(np.argmax(likely[i]))
        if int(np.argmax(likely[:, j])) == i and likely[i, j] > least:
            matches[rows[0][i], rows[1][j]] = float(likely[i, j])
    return matches
