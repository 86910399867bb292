"""LightGlue: matches of two images by a network that sees all keypoints of both, in plain NumPy; for raw descriptors alone.

The network reads descriptors, positions and how these lie to each other. What hides any of them from a server hides it from the
network, so that it serves where both sides are raw: public maps, and what a device matches itself.

Source: Lindenberger, Sarlin, Pollefeys, "LightGlue: Local Feature Matching at Light Speed", ICCV 2023, whose equations
docs/theory/learned_matching.md has. Written from the paper, and from the published code for what it leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from veil.errors import InputError, RangeError, Remedy, SpaceError
from veil.matching.attention import CrossAttention, Linear, RotaryTurns, SelfAttention, States
from veil.matching.neighbors import Matches
from veil.matching.placed_points import PlacedPoints
from veil.one_line import one_line
from veil.space import Space
from veil.tensors import digest_of, tensor
from veil.threads import single_blas

# Keypoints of one image, at most: time and memory grow with the product of both images' numbers (1 GiB for the assignment).
MOST_KEYPOINTS = 16_384
# Bound of the confidence that counts after each layer (Eq. 8).
_BOUND, _BOUND_AT_FIRST, _BOUND_DECAY = 0.8, 0.1, 4.0
# Numbers of the assignment whose exponentials are taken at a time: 8 MB.
_BLOCK = 1 << 21
# Families of descriptors that published weights are for, by `digest_of` them.
_TRAINED_FOR = {
    "636df1a4a23f3fe4616f11eef58db8039377b926c66a22b9b2b0e0b84ed33f7a": "aliked",
    "9e5dfc70ba2f54ec289b6de59c9ec75c06a33754247c26061f4c686ae9ced680": "disk",
}


@dataclass(frozen=True, kw_only=True)
class LightGlueOptions:
    """Options of learned matching; the defaults are the published ones.

    - `depth_confidence`: the layers that remain are left out once more than this share of the keypoints is sure (Eq. 9); None
      runs all of them.
    - `width_confidence`: a keypoint that is sure, and whose probability of having a match is at most one less this, is left out
      of the layers that follow (Eq. 10); None keeps all.
    - `min_score`: a match is kept if its probability (Eq. 7) is larger.

    Raises RangeError for numbers outside of [0, 1].
    """

    depth_confidence: float | None = 0.95
    width_confidence: float | None = 0.99
    min_score: float = 0.1

    __repr__ = one_line

    def __post_init__(self) -> None:
        for name in ("depth_confidence", "width_confidence", "min_score"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise RangeError(f"{name} must lie in [0, 1], got {value!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Assignment:
    """Output of the network for two images.

    - `indices`, int64 (matches, 2): rows of the left and of the right keypoint, in ascending order of the left.
    - `scores`, float32 (matches,): probabilities of the matches (Eq. 7).
    - `layers`: number of layers that were run.
    - `kept`: numbers of keypoints of both sides that the last of them read.
    """

    indices: Int64[np.ndarray, "matches 2"]
    scores: Float32[np.ndarray, "matches"]
    layers: int
    kept: tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """Self-attention in both images, cross-attention between them, and what the states then say of keypoints.

    `similarity` and `matchable` make the assignment if this is the last layer that is run; `sure` tells whether it may be, and
    is None for the last one that there is.
    """

    within: SelfAttention
    across: CrossAttention
    similarity: Linear
    matchable: Linear
    sure: Linear | None


@dataclass(frozen=True, kw_only=True, eq=False)
class LightGlue:
    """The LightGlue network; `load_lightglue` makes it.

    - `digest`: SHA-256 (hex) of its weights.
    - `family`: the descriptors that it was trained for, such as "aliked", or None for weights that veil does not know.
    """

    digest: str
    family: str | None
    _projection: Linear | None
    _frequencies: Float32[np.ndarray, "pairs 2"]
    _layers: tuple[Layer, ...]
    _options: LightGlueOptions  # when it stops, and which matches it tells

    __repr__ = one_line

    @property
    def dim(self) -> int:
        """Number of dimensions of the descriptors that it reads."""
        return len(self._projection.matrix) if self._projection else len(self._layers[0].similarity.matrix)

    @property
    def kind(self) -> str:
        """How pairs are matched, as far as it changes matches: a store of another kind is not used."""
        options = self._options
        return f"LightGlue {self.digest[:16]} {options.depth_confidence} {options.width_confidence} {options.min_score} 1"

    def require_readable(self, space: Space) -> None:
        """Raise SpaceError unless the network reads descriptors of this space: raw, of its dimension and of its family."""
        if space.codebook or space.dither_steps:
            raise SpaceError(f"LightGlue reads descriptors as they are extracted, and [{space}] is a compressed space")
        if space.dim != self.dim or (self.family is not None and not space.descriptor.startswith(self.family)):
            reads = f"{self.family or 'other'} descriptors of {self.dim} dimensions"
            raise SpaceError(
                f"these weights of LightGlue are for {reads}, and the features are of [{space}]",
                remedy=Remedy("give", "load_lightglue.weights"),
            )


def lightglue_of(arrays: Mapping[str, np.ndarray], options: LightGlueOptions | None = None) -> LightGlue:
    """The network of a state dict as published, by old or new names; width, heads and layers are read from it.

    Raises InputError if a tensor is missing, does not fit or is not finite, and for networks that read more of a keypoint
    than its position (those for SIFT and DoG-HardNet read scale and orientation, which maps do not hold).
    """
    digest = digest_of(arrays)
    arrays = {_present_name(name): array for name, array in arrays.items()}
    frequencies = tensor(arrays, "posenc.Wr.weight")
    width = tensor(arrays, "log_assignment.0.final_proj.weight").shape[0]
    count = sum(name.startswith("log_assignment.") and name.endswith(".final_proj.weight") for name in arrays)
    if frequencies.ndim != 2 or frequencies.shape[1] != 2:
        raise InputError(
            f"these weights read {frequencies.shape[-1]} numbers of a keypoint, which are its scale and orientation too; "
            "maps hold positions alone: give the weights for ALIKED, DISK or SuperPoint"
        )
    channels = 2 * len(frequencies)
    if not channels or width % channels:
        raise InputError(f"states of {width} numbers cannot be divided into heads of {channels}; these weights are damaged")
    projection = None
    if "input_proj.weight" in arrays:
        inputs = tensor(arrays, "input_proj.weight").shape[-1]
        projection = Linear.of(arrays, "input_proj", inputs=inputs, outputs=width)
    return LightGlue(
        digest=digest,
        family=_TRAINED_FOR.get(digest),
        _projection=projection,
        _frequencies=frequencies,
        _layers=tuple(_layer(arrays, k, count, width=width, heads=width // channels) for k in range(count)),
        _options=options or LightGlueOptions(),
    )


def learned_matches(network: LightGlue, left: PlacedPoints, right: PlacedPoints) -> Matches:
    """Matches of two images, each feature at most once; `distances` and `ratios` both hold one less the probability.

    Whatever sorts matches by ratio so has the surest first, but no distance of descriptors is compared. Raises as
    `assignment` does.
    """
    assigned = assignment(network, left, right)
    doubt = 1.0 - assigned.scores.astype(np.float64)
    return Matches(indices=assigned.indices, distances=doubt, ratios=doubt)


def assignment(network: LightGlue, left: PlacedPoints, right: PlacedPoints) -> Assignment:
    """Matches of two images with their probabilities, and how much of the network was needed for them.

    Raises SpaceError for descriptors that the network does not read, InputError for more than `MOST_KEYPOINTS` an image.
    """
    for side in (left, right):
        network.require_readable(side.points.space)
        if len(side) > MOST_KEYPOINTS:
            raise InputError(f"LightGlue takes at most {MOST_KEYPOINTS:,} features an image, got {len(side):,}; extract fewer")
    if left.points.space != right.points.space:
        raise SpaceError(f"LightGlue compares descriptors of one kind, got [{left.points.space}] and [{right.points.space}]")
    with single_blas():
        run = _Run(network, left, right)
        for depth in range(len(network._layers)):
            if not run.alive or run.advance(depth):
                break
        return run.assignment()


class _Run:
    """One pair of images on its way through the layers: states, turns, and rows of the keypoints that are still in it."""

    def __init__(self, network: LightGlue, left: PlacedPoints, right: PlacedPoints) -> None:
        self._layers, self._options = network._layers, network._options
        self._count = len(left) + len(right)
        self._states: list[States] = []
        self._turns: list[RotaryTurns] = []
        for side in (left, right):
            states = side.points.vectors
            self._states.append(network._projection.apply(states) if network._projection else states)
            self._turns.append(RotaryTurns.at(side.positions, network._frequencies))
        self._rows = [np.arange(len(side)) for side in (left, right)]
        self._run = 0

    @property
    def alive(self) -> bool:
        """Whether both images have keypoints left."""
        return all(len(rows) for rows in self._rows)

    def advance(self, depth: int) -> bool:
        """Run the layer at this depth; returns whether the layers that follow are not needed."""
        layer = self._layers[depth]
        self._run = depth + 1
        within = (layer.within.apply(states, turns) for states, turns in zip(self._states, self._turns, strict=True))
        self._states = list(layer.across.apply(*within))
        if layer.sure is None:
            return True
        bound = _BOUND + _BOUND_AT_FIRST * np.exp(-_BOUND_DECAY * depth / len(self._layers))
        sure: list[np.ndarray | None] = [None, None]
        if self._options.depth_confidence is not None:
            sure = [sigmoid(layer.sure.apply(states)[:, 0]) for states in self._states]
            doubtful = sum(int((of < bound).sum()) for of in sure if of is not None)
            if 1 - doubtful / self._count > self._options.depth_confidence:
                return True
        if self._options.width_confidence is not None:
            for side, of in enumerate(sure):
                self._prune(side, layer, of, bound, 1 - self._options.width_confidence)
        return False

    def _prune(self, side: int, layer: Layer, sure: np.ndarray | None, bound: float, least: float) -> None:
        """Leave out keypoints that are sure to have no match; where nobody asks whether they are sure, all are taken to be."""
        kept = sigmoid(layer.matchable.apply(self._states[side])[:, 0]) > least
        if sure is not None:
            kept |= sure <= bound
        if not kept.all():
            self._states[side] = self._states[side][kept]
            self._turns[side] = self._turns[side].take(kept)
            self._rows[side] = self._rows[side][kept]

    def assignment(self) -> Assignment:
        """Matches by the states after the last layer that was run (Eq. 6-7)."""
        kept = (len(self._rows[0]), len(self._rows[1]))
        if not self.alive:
            indices, scores = np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.float32)
            return Assignment(indices=indices, scores=scores, layers=self._run, kept=kept)
        last = self._layers[self._run - 1]
        likely = log_assignment(*self._states, similarity=last.similarity, matchable=last.matchable)
        pairs, scores = surest_pairs(likely, self._options.min_score)
        indices = np.stack([self._rows[0][pairs[:, 0]], self._rows[1][pairs[:, 1]]], axis=1)
        return Assignment(indices=indices, scores=scores, layers=self._run, kept=kept)


def _layer(arrays: Mapping[str, np.ndarray], depth: int, count: int, *, width: int, heads: int) -> Layer:
    """The layer at this depth of a state dict. Raises InputError for tensors that are missing or do not fit."""
    sure = None
    if depth < count - 1:
        sure = Linear.of(arrays, f"token_confidence.{depth}.token.0", inputs=width, outputs=1)
    return Layer(
        within=SelfAttention.of(arrays, f"transformers.{depth}.self_attn", width=width, heads=heads),
        across=CrossAttention.of(arrays, f"transformers.{depth}.cross_attn", width=width, heads=heads),
        similarity=Linear.of(arrays, f"log_assignment.{depth}.final_proj", inputs=width, outputs=width),
        matchable=Linear.of(arrays, f"log_assignment.{depth}.matchability", inputs=width, outputs=1),
        sure=sure,
    )


def _present_name(name: str) -> str:
    """The name that a tensor has today: "self_attn.0.x" of older files is "transformers.0.self_attn.x"."""
    kind, _, rest = name.partition(".")
    if kind not in ("self_attn", "cross_attn"):
        return name
    depth, _, part = rest.partition(".")
    return f"transformers.{depth}.{kind}.{part}"


def log_assignment(
    left: Float32[np.ndarray, "left width"],
    right: Float32[np.ndarray, "right width"],
    *,
    similarity: Linear,
    matchable: Linear,
) -> Float32[np.ndarray, "left right"]:
    """Logarithms of the probabilities that a left and a right keypoint match (Eq. 7), by the states of both images.

    They are those that `similarity` gives among all keypoints of either image, times those that either has a match.
    """
    projected = similarity.apply(left)
    projected *= np.float32(left.shape[1] ** -0.5)
    similar = projected @ similarity.apply(right).T
    of_left = log_sigmoid(matchable.apply(left)) - _log_sums(similar)[:, None]
    of_right = log_sigmoid(matchable.apply(right)) - _log_sums(similar.T)[:, None]
    similar *= 2
    similar += of_left
    similar += of_right.T
    return similar


def surest_pairs(
    likely: Float32[np.ndarray, "left right"], least: float
) -> tuple[Int64[np.ndarray, "matches 2"], Float32[np.ndarray, "matches"]]:
    """Pairs of rows and columns that are each other's most probable, and their probabilities, which are above `least`."""
    best, back = likely.argmax(axis=1), likely.argmax(axis=0)
    left = np.flatnonzero(back[best] == np.arange(len(best)))
    scores = np.exp(likely[left, best[left]])
    above = scores > least
    return np.stack([left, best[left]], axis=1)[above], scores[above]


def _log_sums(values: Float32[np.ndarray, "rows columns"]) -> Float32[np.ndarray, "rows"]:
    """Logarithms of the sums of the exponentials of each row."""
    sums = np.empty(len(values), dtype=np.float32)
    for part in _blocks(len(values), values.shape[1]):
        largest = values[part].max(axis=1)
        sums[part] = largest + np.log(np.exp(values[part] - largest[:, None]).sum(axis=1))
    return sums


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with some two million numbers each."""
    step = max(1, _BLOCK // max(columns, 1))
    return (slice(start, start + step) for start in range(0, rows, step))


def sigmoid(logits: Float32[np.ndarray, "rows"]) -> Float32[np.ndarray, "rows"]:
    """Logistic function, without overflow."""
    return np.exp(log_sigmoid(logits))


def log_sigmoid(logits: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Logarithm of the logistic function, without overflow."""
    return np.minimum(logits, 0) - np.log1p(np.exp(-np.abs(logits)))
