"""Choice of the network that describes photographs of faces: dlib's, or an ONNX model that the user gives."""

from __future__ import annotations

import argparse
from pathlib import Path

from veil.errors import InputError, SpaceError
from veil.space import Space
from veil_faces.extraction.face_onnx import Preparation, load_onnx_model, load_onnx_network
from veil_faces.extraction.faces import FACE_SPACE, FaceNetwork, load_face_network
from veil_faces.files.faces import read_model

DEFAULT = Preparation()


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the option --model and those that go with it."""
    group = parser.add_argument_group("a network of your own in place of dlib's")
    group.add_argument("--model", type=Path, metavar="FILE", help="ONNX network of the ArcFace kind (veil ships none)")
    group.add_argument("--bgr", action="store_true", help="the network takes blue first (default: red first)")
    group.add_argument(
        "--mean",
        type=float,
        default=DEFAULT.mean,
        help="the network takes (x - mean) / scale of pixels x in 0..255 (default %(default)s)",
    )
    group.add_argument("--scale", type=float, default=DEFAULT.scale, help="see --mean (default %(default)s)")
    parser.add_argument(
        "--frontal-only",
        action="store_true",
        help="no second try by dlib's detection network where its frontal detector finds no face",
    )


def chosen_network(arguments: argparse.Namespace, *, needed: Space | None = None) -> FaceNetwork:
    """The network that the options name. Raises SpaceError if its descriptors do not live in the space `needed`."""
    preparation = Preparation(bgr=arguments.bgr, mean=arguments.mean, scale=arguments.scale)
    if arguments.model is None:
        if preparation != DEFAULT:
            raise InputError("--bgr, --mean and --scale describe the network of --model; leave them out, or name one")
        _require(FACE_SPACE, needed)
        return load_face_network(second_try=not arguments.frontal_only)
    content = read_model(arguments.model)
    try:
        model = load_onnx_model(content, preparation)
    except InputError as error:
        raise type(error)(f"{arguments.model}: {error}") from None
    _require(model.space, needed)
    return load_onnx_network(model, second_try=not arguments.frontal_only)


def _require(space: Space, needed: Space | None) -> None:
    """Raise SpaceError unless the space is the needed one, if any."""
    if needed is not None and space != needed:
        raise SpaceError(
            f"the photograph would become [{space}], the store has [{needed}]; give the --model, --bgr, --mean and --scale "
            "that its decoys were described with, or no --model where that was dlib's network"
        )
