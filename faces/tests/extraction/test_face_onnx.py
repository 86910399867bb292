"""Face networks that users bring: what they are fed, what their descriptors are called, and which files are refused."""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from face_worlds.onnx_models import linear, matrix, model_of
from veil.errors import InputError, RangeError
from veil_faces.collection import Faces
from veil_faces.extraction.face_finder import FaceFinder
from veil_faces.extraction.face_onnx import TEMPLATE, OnnxModel, OnnxNetwork, Preparation, aligned_face, load_onnx_model
from veil_faces.extraction.faces import describe_face, describe_faces
from veil_faces.extraction.onnx_tensors import WITHIN, has_external_tensors
from veil_faces.files.faces import read_faces, write_faces
from worlds import generator

SIZE, DIM = 32, 6
WEIGHTS = matrix(SIZE, DIM)
DEFAULT = Preparation()
GOOD = linear(WEIGHTS, ("N", 3, SIZE, SIZE)).SerializeToString()


def picture(size: int = SIZE, name: str = "a chip") -> np.ndarray:
    return generator(name).integers(0, 256, (size, size, 3)).astype(np.uint8)


WAYS = [DEFAULT, Preparation(bgr=True), Preparation(mean=0.0), Preparation(scale=128.0), Preparation(bgr=True, scale=128.0)]


@pytest.mark.parametrize("preparation", WAYS)
@pytest.mark.parametrize("channels_first", [True, False])
def test_pixels_reach_the_network_as_they_should(preparation: Preparation, channels_first: bool) -> None:
    """Oracle: the defining equation W'(x - mean) / scale, in NumPy, in the order of channels and axes of the model."""
    shape = ("N", 3, SIZE, SIZE) if channels_first else (1, SIZE, SIZE, 3)
    model = load_onnx_model(linear(WEIGHTS, shape).SerializeToString(), preparation)
    assert (model.size_px, model.channels_first, model.space.dim) == (SIZE, channels_first, DIM)
    chip = picture()
    pixels = (chip.astype(np.float64) - preparation.mean) / preparation.scale
    pixels = pixels[..., [2, 1, 0]] if preparation.bgr else pixels
    flat = (np.moveaxis(pixels, 2, 0) if channels_first else pixels).reshape(-1)
    assert model.describe(chip) == pytest.approx(flat @ WEIGHTS.astype(np.float64), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        (("N", 3, "h", "w"), 112),
        ((None, 3, None, None), 112),
        ((1, 3, 48, "w"), 48),
        (("N", "h", "w", 3), 112),
        ((1, 64, 64, 3), 64),
    ],
)
def test_the_size_is_the_models_or_112(shape: tuple[str | int | None, ...], size: int) -> None:
    model = load_onnx_model(linear(matrix(size, 4), shape).SerializeToString(), DEFAULT)
    assert model.size_px == size and model.describe(picture(size)).shape == (4,)


def test_descriptors_of_different_models_and_preparations_have_different_spaces() -> None:
    """Oracle: SHA-256 of the file. Names fit into 32 characters, and numbers that are equal give one name."""
    other = linear(matrix(SIZE, DIM, "others"), ("N", 3, SIZE, SIZE)).SerializeToString()
    assert load_onnx_model(GOOD, DEFAULT).space.descriptor == f"onnx-{hashlib.sha256(GOOD).hexdigest()[:12]}"
    spaces = [load_onnx_model(content, way).space for content in (GOOD, other) for way in WAYS]
    assert len(set(spaces)) == len(spaces) == 10
    assert all(space.normalization == "L2" and space.dim == DIM for space in spaces)
    assert Preparation(mean=-0.0).mark == Preparation(mean=0.0).mark and Preparation(mean=127.5, scale=127.5).mark == ""


def test_preparations_that_mean_nothing_are_refused() -> None:
    for numbers in ({"mean": math.nan}, {"mean": math.inf}, {"scale": 0.0}, {"scale": -1.0}, {"scale": math.nan}):
        with pytest.raises(RangeError, match="finite"):
            Preparation(**numbers)  # type: ignore[arg-type]


def refused_models() -> list[tuple[str, bytes, str]]:
    w, flat, n = matrix(112, 4), ("N", 3, SIZE, SIZE), SIZE
    pooled = helper.make_node("Unsqueeze", ["y", "axis"], ["end"])
    axis = helper.make_node("Constant", [], ["axis"], value=numpy_helper.from_array(np.array([1])))
    nothing = helper.make_node("Cast", ["y"], ["end"], to=TensorProto.INT64)
    return [
        ("two inputs", linear(WEIGHTS, flat, inputs=2), "x1"),
        ("two outputs", linear(WEIGHTS, flat, outputs=2), "out1"),
        ("rank 3", linear(WEIGHTS, ("N", 3, n * n)), "expected one float32 input of 1 x 3 x S x S"),
        ("no shape", linear(w, None), "expected"),
        ("integers", linear(WEIGHTS, flat, type=TensorProto.UINT8), r"tensor\(uint8\).*expected"),
        ("doubles", linear(WEIGHTS, flat, type=TensorProto.DOUBLE), r"tensor\(double\).*expected"),
        ("gray", linear(WEIGHTS[: n * n], (1, 1, n, n)), "expected"),
        ("oblong", linear(matrix(32, 4)[: 3 * 32 * 16], (1, 3, 32, 16)), r"\[1, 3, 32, 16\].*expected"),
        ("batch of 2", linear(WEIGHTS, (2, 3, n, n)), "expected"),
        ("tiny", linear(matrix(8, 4), (1, 3, 8, 8)), "S between 16 and 1024"),
        ("huge", linear(np.zeros((3 * 1040**2, 2), dtype=np.float32), (1, 3, 1040, 1040)), "S between 16 and 1024"),
        ("not 112", linear(WEIGHTS, ("N", 3, "h", "w")), "fails on a picture"),
        ("rank 3 out", linear(WEIGHTS, flat, output=("N", 1, "d"), after=[axis, pooled]), r"returns float32 \(1, 1, 6\)"),
        ("integers out", linear(WEIGHTS, flat, after=[nothing, helper.make_node("Identity", ["end"], ["e"])]), "cannot load"),
        ("one number", linear(WEIGHTS[:, :1], flat), "have 1 numbers"),
        ("too many", linear(np.zeros((3 * n * n, 4097), dtype=np.float32), flat), "have 4097 numbers"),
    ]


@pytest.mark.slow
def test_other_networks_are_refused_with_what_they_have() -> None:
    for what, model, match in refused_models():
        with pytest.raises(InputError, match=match):
            load_onnx_model(model.SerializeToString(), DEFAULT)  # type: ignore[attr-defined]
            pytest.fail(what)


def test_damaged_files_are_refused() -> None:
    """Files that are no model, or truncated, are refused; of flipped bits comes an InputError or a model, nothing else."""
    others = (b"", b"this is a text, not a network\n" * 9, b"\x00" * 500, b"ORTM" * 9)
    for content in (*others, GOOD[:-1], GOOD[:100], GOOD[: len(GOOD) // 2]):
        with pytest.raises(InputError, match=r"damaged|cannot load"):
            load_onnx_model(content, DEFAULT)
    random = generator("flips")
    small = linear(matrix(16, 2), ("N", 3, 16, 16)).SerializeToString()
    places = [k for k in range(len(small)) if k < 120 or k > len(small) - 160]
    for place in random.choice(places, 60, replace=False):
        flipped = bytearray(small)
        flipped[place] ^= 1 << int(random.integers(8))
        try:
            load_onnx_model(bytes(flipped), DEFAULT)
        except InputError:
            continue


def test_a_model_must_hold_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in another file are refused: the SHA-256 that names the descriptors does not cover them.

    Broken twin: onnxruntime itself takes these weights from the working folder.
    """
    import onnxruntime

    monkeypatch.chdir(tmp_path)
    WEIGHTS.tofile(tmp_path / "w.bin")
    model = linear(WEIGHTS, ("N", 3, SIZE, SIZE))
    elsewhere(model.graph.initializer[0], "w.bin", WEIGHTS.nbytes)
    assert len(onnxruntime.InferenceSession(model.SerializeToString()).get_inputs()) == 1
    with pytest.raises(InputError, match="other files"):
        load_onnx_model(model.SerializeToString(), DEFAULT)


def elsewhere(tensor: TensorProto, name: str, size: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", "0"), ("length", str(size))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def test_tensors_are_found_wherever_a_model_can_have_them() -> None:
    """Oracle: onnx's own description of the format, by which all messages that lead to tensors are listed."""
    import onnx

    kinds, waiting = {}, [onnx.ModelProto.DESCRIPTOR]
    while waiting:
        kind = waiting.pop()
        if kind.name not in kinds:
            kinds[kind.name] = {field.number: field.message_type.name for field in kind.fields if field.message_type}
            waiting += [field.message_type for field in kind.fields if field.message_type]
    leading = {"TensorProto"}
    while more := {kind for kind, below in kinds.items() if leading & set(below.values())} - leading:
        leading |= more
    assert {kind: {k: v for k, v in kinds[kind].items() if v in leading} for kind in leading} == WITHIN
    numbers = {field.name: field.number for field in onnx.TensorProto.DESCRIPTOR.fields}
    assert (numbers["external_data"], numbers["data_location"]) == (13, 14)


def test_tensors_deep_inside_are_found() -> None:
    inner = numpy_helper.from_array(np.zeros((2, 2), dtype=np.float32), "t")
    constant = helper.make_node("Constant", [], ["y"], value=inner)
    empty = helper.make_graph([constant], "branch", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 2))])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
    choice = helper.make_node("If", ["c"], ["y"], then_branch=empty, else_branch=empty)
    given = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 2))
    model = model_of(helper.make_graph([choice], "g", [condition], [given]))
    assert not has_external_tensors(model.SerializeToString())
    elsewhere(model.graph.node[0].attribute[1].g.node[0].attribute[0].t, "/etc/hostname", 16)
    assert has_external_tensors(model.SerializeToString())


def stub_network(model: OnnxModel, *widths: int) -> OnnxNetwork:
    """A detector that finds faces of these widths, whose landmarks are those of the template at three times its size."""
    groups = {**dict.fromkeys(range(36, 42), 0), **dict.fromkeys(range(42, 48), 1), 30: 2, 48: 3, 54: 4}
    shape = SimpleNamespace(part=lambda k: SimpleNamespace(x=3 * TEMPLATE[groups[k], 0], y=3 * TEMPLATE[groups[k], 1]))
    faces = [SimpleNamespace(width=lambda w=width: w, height=lambda w=width: w) for width in widths]
    return OnnxNetwork(finder=FaceFinder(detector=lambda p, times: faces, predictor=lambda p, face: shape), model=model)


def test_a_photograph_becomes_a_descriptor_of_unit_length(tmp_path: Path) -> None:
    """Oracle: the square of the alignment, through the model's own equation. Refusals are those of all face networks."""
    model = load_onnx_model(GOOD, DEFAULT)
    photo = picture(336, "a photograph")
    vector = describe_face(photo, stub_network(model, 70), only=True, least_px=60)
    chip = aligned_face(photo, 3 * TEMPLATE, SIZE).astype(np.float64)
    expected = np.moveaxis((chip - 127.5) / 127.5, 2, 0).reshape(-1) @ WEIGHTS
    assert vector.dtype == np.float32 and vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)
    for widths, match in (((), "no face"), ((70, 80), "2 faces"), ((59,), "59 px wide, 60")):
        with pytest.raises(InputError, match=match):
            describe_face(photo, stub_network(model, *widths), only=True, least_px=60)
    faces = Faces(vectors=vector[None], names=("a",), space=model.space)
    write_faces(tmp_path / "f.npz", faces)
    assert read_faces(tmp_path / "f.npz").space == model.space


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_a_descriptor_that_is_none_is_refused(value: float) -> None:
    """Planted: networks that return NaN, infinity or zeros for every picture."""
    weights = np.zeros_like(WEIGHTS)
    offset = numpy_helper.from_array(np.full(DIM, value, dtype=np.float32))
    after = [helper.make_node("Constant", [], ["v"], value=offset), helper.make_node("Add", ["y", "v"], ["end"])]
    model = load_onnx_model(linear(weights, ("N", 3, SIZE, SIZE), after=after).SerializeToString(), DEFAULT)
    descriptors, refused = describe_faces([picture(336)], stub_network(model, 70))
    assert descriptors.shape == (0, DIM) and "give a network that serves" in refused[0]


def test_without_onnxruntime_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install 'veil-faces\[networks\]'"):
        load_onnx_model(GOOD, DEFAULT)
