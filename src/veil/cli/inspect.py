"""`veil inspect`: what a file contains, what it promises, and what it does not protect."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from veil.cli.common import add_command, add_json, write_json
from veil.errors import FileFormatError
from veil.files.atomic import read_bytes
from veil.files.client import read_ledger
from veil.files.codebooks import read_codebook
from veil.files.features import read_features
from veil.files.maps import read_map
from veil.guarantee import Guarantee, LocalDP
from veil.wire.codec import decode
from veil.wire.message import LineUpload, Message

EXAMPLES = """\
  veil inspect upload/3f2a....veil
  veil inspect map/
  veil inspect features.h5
  veil inspect ~/.local/share/veil/ledger.sqlite      what was released of what (stays on the device)
"""

SENT_IN_CLEAR = "number and positions of keypoints, image size, camera intrinsics"
SENT_WITH_LINES = "number of keypoints, a line through each, gravity if known, image size, camera intrinsics"
LINES_SHOW = (
    "one coordinate of each keypoint: along gravity-aligned lines nothing is hidden but the height",
    "positions of keypoints whose points four or more images see, or a map holds: the points project to them",
)
NOT_SENT = "photograph, raw descriptors, scale, orientation, response, order of detection, EXIF, time, place, file name"
NOT_PROTECTED = (
    "features that match a map: the closest points of matched subspaces estimate their descriptors",
    "the outline of the scene: keypoint positions alone show where texture is",
    "anything, if the same view is released twice with different choices: the subspaces intersect in the descriptors",
    "near repeats such as a static video: the repeats' descriptors differ slightly, and so do their subspaces",
)


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the command."""
    parser = add_command(
        commands,
        "inspect",
        "what a file contains and does not protect",
        "Describe an upload, a map, raw features or a codebook in plain words.",
        EXAMPLES,
    )
    parser.add_argument("file", type=Path, help="message, map folder, features (.h5), codebook (.npz) or ledger (.sqlite)")
    add_json(parser)
    parser.set_defaults(run=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    if path.is_dir():
        facts = _map_facts(path)
    elif path.suffix in (".h5", ".hdf5"):
        facts = _feature_facts(path)
    elif path.suffix == ".npz":
        book = read_codebook(path)
        facts = {"what": f"codebook of {len(book)} {book.kind}", "sha256": book.digest, "source": book.provenance.source}
    elif path.suffix == ".sqlite" and path.is_file():
        facts = _ledger_facts(path)
    elif path.exists():
        data = read_bytes(path)
        facts = upload_facts(decode(data), len(data))
    else:
        raise FileFormatError(f"there is no {path}")
    write_json(arguments.json, facts)
    if str(arguments.json) != "-":
        for key, value in facts.items():
            if isinstance(value, (list, tuple)):
                print(f"{key}:")
                for item in value:
                    print(f"  - {item}")
            else:
                print(f"{key}: {value}")
    return 0


def upload_facts(upload: Message, size_bytes: int) -> dict:
    """What `veil inspect` says of a message."""
    form = upload.form
    return {
        "what": f"{len(upload)} features as affine subspaces of dimension {form.m}, profile {form.profile}",
        "space": str(form.space),
        "bytes": f"{size_bytes} ({size_bytes / max(len(upload), 1):.0f} a feature)",
        "image": f"{upload.camera.width_px}x{upload.camera.height_px} px, {upload.camera.model}",
        "guarantee": _promise(form.guarantee),
        **({"guarantee of the lines": _promise(upload.lines.guarantee)} if isinstance(upload, LineUpload) else {}),
        "sent in clear": SENT_WITH_LINES if isinstance(upload, LineUpload) else SENT_IN_CLEAR,
        "not in this file": NOT_SENT,
        "not protected": [*(LINES_SHOW if isinstance(upload, LineUpload) else ()), *NOT_PROTECTED],
    }


def _promise(guarantee: Guarantee) -> str:
    if isinstance(guarantee, LocalDP):
        return f"epsilon {guarantee.epsilon} for each {guarantee.unit}"
    return f"no proof of privacy. {guarantee.reason}"


def _map_facts(path: Path) -> dict:
    scene = read_map(path)
    form = next(iter(scene.images.values())).form
    return {
        "what": f"{'public' if scene.is_public else 'private'} map of {len(scene.images)} images, {len(scene.points)} points",
        "space": str(scene.space),
        "mean reprojection error": f"{scene.mean_reprojection_error_px:.2f} px",
        "guarantee": _promise(form.guarantee),
        "not protected": [
            "the 3D points and camera poses themselves: they show the shape of the scene",
            *([] if scene.is_public else NOT_PROTECTED[:1]),
        ],
    }


def _feature_facts(path: Path) -> dict:
    count, images, spaces = 0, 0, set()
    for _, features in read_features(path):
        count, images = count + len(features), images + 1
        spaces.add(str(features.space))
    return {
        "what": f"{count} RAW features of {images} images",
        "space": ", ".join(sorted(spaces)),
        "guarantee": "none: raw features can be inverted into images. Do not upload this file; run `veil privatize`",
    }


def _ledger_facts(path: Path) -> dict:
    entries = read_ledger(path)
    lines = [
        f"{datetime.fromtimestamp(e.released_at):%Y-%m-%d %H:%M} {e.name} as {e.released_as}: {e.features} features, "
        f"{e.parameters}{', drawn afresh' if e.fresh else ''}"
        for e in entries
    ]
    return {"what": f"ledger of {len(entries)} releases; it links photographs to uploads, so keep it", "releases": lines}
