"""`veil faces describe`: descriptors of faces from photographs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from veil.cli.common import add_command, add_json, at_least, progress, report, say, write_json
from veil.errors import InputError
from veil.files.photographs.pictures import named_pictures, read_rgb
from veil_faces.cli import templates
from veil_faces.cli.networks import add_model, chosen_network
from veil_faces.collection import Faces
from veil_faces.extraction.face_finder import SECOND_TRY, FoundFace
from veil_faces.extraction.faces import describe_faces
from veil_faces.files.faces import read_labels, write_faces

DESCRIBE_EXAMPLES = """\
  veil faces describe lfw/images -o lfw.npz
  veil faces describe fairface/images --labels fairface/labels.csv -o fairface.npz
  veil faces describe badge.jpg --single-face --least-px 100 -o badge.npz     as for enrollment: one face, and a large one
  veil faces describe lfw/images -o lfw.npz --model arcface.onnx       red first, pixels in -1..1
  veil faces describe lfw/images -o lfw.npz --model other.onnx --bgr --mean 0 --scale 1
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil faces` with all its actions to the parser's commands."""
    group = commands.add_parser("faces", help="face templates", description="Descriptors of faces, and templates that verify.")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    parser = add_command(
        actions,
        "describe",
        "descriptors of faces in photographs",
        "Describe the largest face of each photograph by dlib's network, or an ONNX network of your own (both need\n"
        "veil-faces[networks]).\n"
        "The file holds raw descriptors: they tell who a person is, and stay on the device. Descriptors made elsewhere can be\n"
        "given as .npz or HDF5 with `vectors` (N, d), `names` (N) and any labels (N).",
        DESCRIBE_EXAMPLES,
    )
    parser.add_argument("photographs", type=Path, nargs="+", help="files, or folders of them")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the .npz to write")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="CSV with a column `file` and one for each label")
    parser.add_argument("--single-face", action="store_true", help="refuse photographs with several faces")
    parser.add_argument("--least-px", type=at_least(0), default=0, help="refuse narrower faces (default %(default)s)")
    add_json(parser)
    add_model(parser)
    parser.set_defaults(run=_describe)
    templates.register(actions)


def _describe(arguments: argparse.Namespace) -> int:
    pictures = named_pictures(arguments.photographs)
    table = {row.pop("file"): row for row in read_labels(arguments.labels)} if arguments.labels else {}
    network = chosen_network(arguments)
    shown = (read_rgb(path) for _, path in progress(pictures, "describing"))
    found: dict[int, FoundFace] = {}
    vectors, refused = describe_faces(
        shown, network, only=arguments.single_face, least_px=arguments.least_px, on_found=found.__setitem__
    )
    doubtful = {pictures[row][0]: item.confidence for row, item in found.items() if item.found_by == SECOND_TRY}
    names = tuple(name for row, (name, _) in enumerate(pictures) if row not in refused)
    write_json(
        arguments.json,
        {
            "photographs": len(pictures),
            "faces": len(names),
            "refused": {pictures[row][0]: why for row, why in refused.items()},
            "second_try": doubtful,
            "space": str(network.space),
        },
        private=True,
    )
    for row, why in refused.items():
        say(arguments, f"{pictures[row][0]}: {why}")
    for name, confidence in doubtful.items():
        say(arguments, f"{name}: found at the second try only, by dlib's {SECOND_TRY}, confidence {confidence:.2f}")
    if not names:
        raise InputError("no photograph shows a usable face; see the reasons above")
    faces = Faces(vectors=vectors, names=names, space=network.space, labels=_labels(names, table))
    write_faces(arguments.output, faces)
    say(
        arguments,
        f"{len(names)} of {len(pictures)} photographs have a face that can be used, {len(doubtful)} of them at the second try: "
        f"look at these; descriptors are {network.space}",
    )
    report(arguments, arguments.output, "the descriptors")
    return 0


def _labels(names: Sequence[str], table: dict[str, dict[str, str]]) -> dict[str, tuple[str, ...]]:
    """The values of each label for the photographs, in their order. Raises InputError for photographs without labels."""
    if not table:
        return {}
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(f"{len(missing)} photographs have no labels (first: {missing[0]}); add them to the table")
    return {label: tuple(table[name][label] or "" for name in names) for label in next(iter(table.values()))}
