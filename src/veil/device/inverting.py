"""Pictures from raw features and messages, as whoever holds them could draw them: the doors of inversion networks.

`veil.inversion` has the networks and the maps that they read. Here stands what chooses both by what an image holds; the command
of the same name and `veil.invert` are its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, SpaceError
from veil.features import Features
from veil.files.attack_networks import bundled_inverter, read_weights
from veil.files.codebooks import bundled_codebook
from veil.forms import Subspaces
from veil.inversion.forward import PlainInverter
from veil.inversion.maps import Frame, Inverts, SparseMap, points_map, subspaces_map, words_map
from veil.inversion.weights import Weights
from veil.mechanisms.public import publish
from veil.wire.message import LineUpload, Message


def invert(
    images: Mapping[str, Message | Features], *, inverter: Path | str | None = None, dictionary: Codebook | None = None
) -> dict[str, UInt8[np.ndarray, "256 256 3"]]:
    """Pictures that a network draws from raw features or messages, by name (Pittaluga and Zhuang 2023, Sec. 6; inversion.md).

    Each picture is uint8 RGB (256, 256, 3): the central square of the photograph, with its shorter side scaled to 256 px. A
    picture of protected messages is what their server could draw, a bound from below of what they show.

    - `images`: raw features or messages by name, of SIFT: what the network was trained on.
    - `inverter`: file of weights that `veil lab train inversion` wrote; None: the bundled network, which reads raw SIFT.
    - `dictionary`: of the words, where messages are in words; None: the bundled one.

    Raises InputError for messages that hide positions in lines, which no picture is drawn from, and for images of another kind
    than the network reads; SpaceError for descriptors or words that it does not know, FileFormatError for a file that holds no
    weights.
    """
    seen = {name: sparse_map(name, image, dictionary) for name, image in images.items()}
    network = network_of(bundled_inverter() if inverter is None else read_weights(Path(inverter)))
    return dict(zip(seen, network.invert(list(seen.values())), strict=True))


def network_of(weights: Weights) -> Inverts:
    """The network in PyTorch where that is installed, otherwise in NumPy: both give the same pictures up to rounding."""
    if find_spec("torch") is None:
        return PlainInverter(weights)
    from veil.inversion.network import Inverter

    return Inverter(weights)


def sparse_map(name: str, image: Message | Features, dictionary: Codebook | None = None) -> SparseMap:
    """The map that a network reads of an image.

    Raises InputError, which names the image, if it hides positions, and SpaceError for descriptors other than SIFT.
    """
    if isinstance(image, LineUpload):
        raise InputError(f"{name} hides positions in lines; a picture needs keypoints")
    frame = Frame(width=image.camera.width_px, height=image.camera.height_px)
    if isinstance(image, Features):
        if image.space.descriptor != "sift":
            raise SpaceError(f"{name} has {image.space.descriptor} descriptors, and networks read SIFT")
        return points_map(frame, image.keypoints, publish(image).vectors)
    if isinstance(image.form, Subspaces):
        return subspaces_map(frame, image.keypoints, image.form)
    return words_map(frame, image.keypoints, image.form, bundled_codebook() if dictionary is None else dictionary)
