"""Networks of context with planted laws: which candidates fit each other is known by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.attacks.distribution.context import DISTANCE_INPUTS, ContextNetwork, NeighborLayers, Perceptron
from veil.space import Space

DIM, FEATURES, CANDIDATES = 4, 60, 5
SPACE = Space(descriptor="sift", normalization="L2", dim=DIM)
# Activation of a large number is that number, and of a large negative one next to nothing.
LARGE = 40.0


def zeros(inputs: int, outputs: int, hidden: int = 1) -> Perceptron:
    """Layers that answer zero."""
    shapes = ((inputs, hidden), (hidden,), (hidden, outputs), (outputs,))
    return Perceptron(*(np.zeros(shape, dtype=np.float32) for shape in shapes))


def passing(rows: int, shift: float = LARGE) -> Perceptron:
    """Layers that answer the first of `rows` inputs: what is added before the activation is taken off behind it."""
    layers = zeros(rows, 1)
    layers.w1[0], layers.b1[:], layers.w2[:], layers.b2[:] = 1, shift, 1, -shift
    return layers


def alike(strength: float = 4.0) -> NeighborLayers:
    """The planted law of neighbors: two candidates fit if their first entries are equal, and do not fit otherwise."""
    layers = NeighborLayers(
        code=passing(DIM),
        pair=np.array([[LARGE], [0.0]], dtype=np.float32),  # |difference|, and product
        pair_bias=np.zeros(1, dtype=np.float32),
        distance=zeros(DISTANCE_INPUTS, 2),
        out=np.array([-1.0], dtype=np.float32),
        out_bias=strength,
        mistaken=0.05,
    )
    assert layers.pair.shape == (2, 1)
    return layers


def silent_neighbors() -> NeighborLayers:
    """Neighbors that fit whatever they are."""
    return alike(0.0)._replace(out=np.zeros(1, dtype=np.float32))


def network(**changes: object) -> ContextNetwork:
    """A network that says nothing, but for what `changes` name."""
    silent = ContextNetwork(
        space=SPACE,
        alone=zeros(DIM, 1),
        style=passing(DIM),
        whole=zeros(3, 1),
        vertex=zeros(DIM, DIM),
        neighbors=silent_neighbors(),
        sharpness=1.0,
        damping=0.5,
        source="planted",
    )
    return replace(silent, **changes)  # type: ignore[arg-type]


def of_one_kind() -> Perceptron:
    """The planted law of photographs: candidates fit if the product of their style with that of all others is large."""
    layers = zeros(3, 1)
    layers.w1[2], layers.b1[:], layers.w2[:], layers.b2[:] = 3, LARGE, 1, -LARGE
    return layers
