"""Images as files give them to the server's commands: messages, or raw features of a public map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.errors import InputError, WireError
from veil.files.atomic import read_bytes
from veil.files.features import read_features
from veil.forms import Form, Lines
from veil.geometry.camera import Camera
from veil.privatize.public import publish
from veil.wire import LineUpload, decode


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """One image as a file gives it: what is seen of its keypoints are positions, or lines that hide them."""

    camera: Camera
    seen: np.ndarray | Lines
    form: Form


def load_images(path: Path) -> dict[str, Loaded]:
    """All images of a folder of messages, of one message, or of a file of raw features."""
    if path.is_dir():
        files = sorted(path.glob("*.veil"))
        if not files:
            raise InputError(f"{path} holds no .veil messages; make some with `veil privatize`")
    else:
        files = [path]
    images: dict[str, Loaded] = {}
    for file in files:
        if file.suffix in (".h5", ".hdf5"):
            for name, raw in read_features(file):
                images[name] = Loaded(camera=raw.camera, seen=raw.keypoints, form=publish(raw))
        else:
            images[file.stem] = _load_message(file)
    return images


def _load_message(file: Path) -> Loaded:
    try:
        upload = decode(read_bytes(file))
    except WireError as error:
        raise WireError(f"{file}: {error}") from None
    seen = upload.lines if isinstance(upload, LineUpload) else upload.keypoints
    return Loaded(camera=upload.camera, seen=seen, form=upload.form)
