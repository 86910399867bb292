"""Choice of the network that describes photographs of faces: dlib's, or an ONNX model that the user gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veil.cli.records import Record, option
from veil.errors import InputError, SpaceError
from veil.space import Space
from veil_faces.extraction.face_onnx import Preparation, load_onnx_model, load_onnx_network
from veil_faces.extraction.faces import FACE_SPACE, FaceNetwork, load_face_network
from veil_faces.files.faces import read_model

DEFAULT = Preparation()


@dataclass(frozen=True, kw_only=True)
class AskedNetwork(Record):
    """The network that describes faces."""

    model: Path | None = option("ONNX network of the ArcFace kind, in place of dlib's (veil ships none)", metavar="FILE")
    bgr: bool = option("the network of --model takes blue first (default: red first)", default=False)
    mean: float = option(
        "the network of --model takes (x - mean) / scale of pixels x in 0..255 (default %(default)s)", default=DEFAULT.mean
    )
    scale: float = option("see --mean (default %(default)s)", default=DEFAULT.scale)
    frontal_only: bool = option(
        "no second try by dlib's detection network where its frontal detector finds no face", default=False
    )


def chosen_network(arguments: AskedNetwork, *, needed: Space | None = None) -> FaceNetwork:
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
        raise error.at(arguments.model) from None
    _require(model.space, needed)
    return load_onnx_network(model, second_try=not arguments.frontal_only)


def _require(space: Space, needed: Space | None) -> None:
    """Raise SpaceError unless the space is the needed one, if any."""
    if needed is not None and space != needed:
        raise SpaceError(
            f"the photograph would become [{space}], the store has [{needed}]; give the --model, --bgr, --mean and --scale "
            "that its decoys were described with, or no --model where that was dlib's network"
        )
