"""Every public type prints as one line, in which no array is dumped."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veil
from veil.mechanisms.profile import Profile
from veil.one_line import WIDTH, brief, in_full, line, one_line

RECORDS = [
    name
    for name in sorted(set(veil.__all__) - {"__version__"})
    if inspect.isclass(getattr(veil, name)) and dataclasses.is_dataclass(getattr(veil, name))
]
# Bulky values, of which each field of a record is given one in turn.
BULKY: list[Any] = [
    np.zeros((1000, 128), dtype=np.float32),
    "word " * 200,
    bytes(4000),
    {f"image {number}": np.zeros(3) for number in range(50)},
    tuple(range(1000)),
    Path("/a/very/long/folder") / ("name" * 40),
    None,
    veil.Space(descriptor="sift", normalization="L2", dim=128),
]


def made(cls: type, shift: int) -> Any:
    """An instance with bulky values in its fields, past the checks of its constructor; shapes and poses are as they must be."""
    record: Any = object.__new__(cls)
    for number, item in enumerate(dataclasses.fields(cls)):
        object.__setattr__(record, item.name, BULKY[(number + shift) % len(BULKY)])
    pose = veil.Rigid(np.eye(3), np.array([1.23456789e3, -2e-7, 3.0]))
    for name, value in {
        "cam_from_world": pose,
        "rig_from_world": pose,
        "covariance": np.eye(6),
        "turn_deviation_deg": 1 / 3,
        "keypoint_rows": np.arange(123_456),
        "rotation": np.eye(3),
        "translation": np.array([1.23456789e3, -2e-7, 3.0]),
    }.items():
        if name in {item.name for item in dataclasses.fields(cls)}:
            object.__setattr__(record, name, value)
    if cls in (veil.Sequence, veil.SequenceLocalization):
        object.__setattr__(record, "frames", (types.SimpleNamespace(keypoint_rows=np.arange(123_456)),) * 64)
    if cls is veil.Map:
        object.__setattr__(record, "scene", _scene())
    return record


def _scene() -> Any:
    points = veil.Points(vectors=np.zeros((0, 128), np.float32), space=BULKY[-1])
    return types.SimpleNamespace(images={"a.jpg": types.SimpleNamespace(form=points)}, points=np.zeros((7, 3)))


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_prints_as_one_short_line(name: str) -> None:
    """A record prints as one line of at most 120 characters that begins with the name of its type, for bulky fields too."""
    cls = getattr(veil, name)
    for shift in range(len(BULKY)):
        text = repr(made(cls, shift))
        assert text.startswith(f"{cls.__name__}(") and text.endswith(")") and len(text) <= WIDTH and "\n" not in text, text


def test_what_the_lines_say() -> None:
    """Golden values by hand."""
    pose = veil.Localization(
        cam_from_world=veil.Rigid(np.diag([1.0, -1.0, -1.0]), np.array([0.0, 0.0, 5.0])),
        camera=veil.Camera("SIMPLE_PINHOLE", 640, 480, (500.0, 320.0, 240.0)),
        covariance=np.diag([0.0, 0, 0, 1e-4, 4e-4, 4e-4]),
        turn_deviation_deg=0.1234,
        keypoint_rows=np.arange(40),
        point_rows=np.arange(40),
        correspondences=55,
        log10_nfa=-30.0,
    )
    assert repr(pose) == ("Localization(center=(0, 0, 5), heading=(0, 0, -1), deviation=0.03, deviation_deg=0.12, inliers=40)")
    np.testing.assert_array_equal(pose.rotation, np.diag([1.0, -1.0, -1.0]))
    np.testing.assert_allclose(pose.center, [0, 0, 5])
    assert repr(veil.NoPose(reason="no match", correspondences=3)) == (
        "NoPose(reason='no match', correspondences=3, inliers=0, log10_nfa=inf)"
    )
    assert brief(np.zeros((4, 2), np.float32)) == "float32 (4, 2)" and brief({"a": 1}) == "1 by name"
    assert "map" not in typing.cast(str, line(pose, []))


def test_a_line_that_holds_everything_is_too_long() -> None:
    """Broken twin: the line that dataclasses print of themselves dumps arrays, over several lines."""

    @dataclasses.dataclass
    class Plain:
        values: np.ndarray

    class Short(Plain):
        __repr__ = one_line

    values = np.zeros((1000, 128))
    assert "\n" in repr(Plain(values)) and repr(Short(values)) == "Short(values=float64 (1000, 128))"


def test_the_text_in_full_is_that_of_a_plain_dataclass() -> None:
    """Oracle: the `repr` that dataclasses make, of records of one shape, one with a line of its own and one without."""

    def record(**more: Any) -> Any:
        inner = dataclasses.make_dataclass("Inner", [("text", str), ("ratio", float)], frozen=True, namespace=more)
        names = [("inner", inner), ("sizes", tuple[int, ...]), ("one", tuple[float]), ("none", None), ("flag", bool)]
        outer = dataclasses.make_dataclass("Outer", names, frozen=True, namespace=more)
        return outer(inner("x" * 200, 0.1 + 0.2), (1, 2), (0.5,), None, True)

    assert in_full(record(__repr__=one_line)) == in_full(record()) == repr(record())
    for strange in (np.zeros(3), {"a": 1}, [1], object()):
        with pytest.raises(TypeError, match="no text that tells it"):
            in_full(strange)


def test_a_line_for_people_is_no_key() -> None:
    """Broken twin: two profiles whose lines are one, and whose maps are not."""
    usual, other = Profile.hardened(quantized=True), dataclasses.replace(Profile.hardened(quantized=True), dither_steps=2.0)
    assert usual != other and repr(usual) == repr(other) and in_full(usual) != in_full(other)
