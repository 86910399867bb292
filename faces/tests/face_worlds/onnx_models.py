"""Tiny ONNX networks whose descriptors can be computed by hand: one matrix applied to all pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from worlds import generator


def matrix(size_px: int, dim: int, name: str = "weights") -> np.ndarray:
    """Weights (3 S S, d) of a network, by name."""
    values = generator(name).normal(size=(3 * size_px * size_px, dim)) / size_px
    return values.astype(np.float32)


def linear(
    weights: np.ndarray,
    shape: Sequence[str | int | None] | None,
    *,
    type: int = TensorProto.FLOAT,
    output: Sequence[str | int | None] = ("N", "d"),
    inputs: int = 1,
    outputs: int = 1,
    after: Sequence[Any] = (),
) -> Any:
    """A model of one layer: Flatten, and MatMul by `weights`; `after` are nodes from "y" to "end", and end is given out."""
    last = "end" if after else "y"
    nodes = [helper.make_node("Cast", ["x0"], ["c"], to=TensorProto.FLOAT), helper.make_node("Flatten", ["c"], ["f"])]
    nodes += [helper.make_node("MatMul", ["f", "w"], ["y"]), *after]
    nodes += [helper.make_node("Identity", [last], [f"out{k}"]) for k in range(outputs)]
    graph = helper.make_graph(
        nodes,
        "faces",
        [helper.make_tensor_value_info(f"x{k}", type, shape) for k in range(inputs)],
        [helper.make_tensor_value_info(f"out{k}", TensorProto.FLOAT, output) for k in range(outputs)],
        [numpy_helper.from_array(weights, "w")],
    )
    return model_of(graph)


def model_of(graph: Any) -> Any:
    """In versions that older runtimes read."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
