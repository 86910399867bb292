"""`veil faces`: its commands, and `describe`, descriptors of faces from photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from veil.cli.common import Commands, at_least, progress, report, say, write_json
from veil.cli.records import add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.files.photographs.pictures import named_pictures, read_rgb
from veil_faces.cli.asked_network import AskedNetwork, chosen_network
from veil_faces.cli.calibrate import Calibrate, calibrate
from veil_faces.cli.decisions import Identify, Verify, identify, verify
from veil_faces.cli.enrollment import (
    Create,
    Enroll,
    ListTemplates,
    Renew,
    Reseal,
    Revoke,
    Unlock,
    create,
    enroll,
    list_templates,
    reseal_store,
    revoke,
    unlock,
)
from veil_faces.collection import Faces
from veil_faces.extraction.face_finder import SECOND_TRY, FoundFace
from veil_faces.extraction.faces import describe_faces
from veil_faces.files.faces import read_labels, write_faces

EXAMPLES = {
    "describe": "  veil faces describe lfw/images -o lfw.npz\n"
    "  veil faces describe fairface/images --labels fairface/labels.csv -o fairface.npz\n"
    "  veil faces describe badge.jpg --single-face --least-px 100 -o badge.npz   as for enrollment: one large face\n"
    "  veil faces describe lfw/images -o lfw.npz --model arcface.onnx       red first, pixels in -1..1\n"
    "  veil faces describe lfw/images -o lfw.npz --model other.onnx --bgr --mean 0 --scale 1\n",
    "create": "  veil faces create door.store --decoys others.npz --lifting hybrid --m 4\n"
    "  veil faces create gate.store --decoys others.npz --failures 4     for doors that are used all day\n"
    "  veil faces create hall.store --decoys others.npz --by p2s        to identify as well\n"
    "  veil faces create club.store --decoys fairface.npz --balance gender\n"
    "  veil faces create club.store --decoys fairface.npz --balance gender --quota Female=2 Male=1\n",
    "enroll": "  veil faces enroll door.store alice.jpg --person alice --purpose door --decoys others.npz\n"
    "  veil faces enroll door.store lfw.npz --face-name Abel_Pacheco/Abel_Pacheco_0001.jpg --person abel --decoys others.npz\n",
    "verify": "  veil faces verify door.store now.jpg --person alice --purpose door --decoys others.npz\n"
    "  veil faces verify hall.store now.jpg --person alice --decoys arcface-others.npz --model arcface.onnx\n",
    "identify": "  veil faces identify door.store now.jpg --purpose door --decoys others.npz --top 3\n",
    "revoke": "  veil faces revoke door.store --person alice --purpose door\n",
    "renew": "  veil faces renew door.store another.jpg --person alice --purpose door --decoys others.npz\n",
    "calibrate": "  veil faces calibrate door.store lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz\n"
    "  veil faces calibrate door.store lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz --far 0.01\n"
    "  veil faces calibrate hall.store lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz --fpir 0.001\n",
    "list": "  veil faces list door.store --json -\n",
    "unlock": "  veil faces unlock door.store --person alice\n",
    "reseal": "  veil faces reseal door.store      a backup that you put back yourself\n",
}


@dataclass(frozen=True, kw_only=True)
class Describe(AskedNetwork):
    """Describe the largest face of each photograph by dlib's network, or an ONNX network of your own (both need
    veil-faces[networks]).
    The file holds raw descriptors: they tell who a person is, and stay on the device. Descriptors made elsewhere can be
    given as .npz or HDF5 with `vectors` (N, d), `names` (N) and any labels (N).
    """

    photographs: tuple[Path, ...] = positional("files, or folders of them")
    output: Path = option("the .npz to write", required=True, short="-o", metavar="FILE")
    labels: Path | None = option("CSV with a column `file` and one for each label", metavar="FILE")
    single_face: bool = option("refuse photographs with several faces", default=False)
    least_px: int = option("refuse narrower faces (default %(default)s)", default=0, parse=at_least(0))
    json: Path | None = json_file()


def register(commands: Commands) -> None:
    """Add `veil faces` with all its actions to the parser's commands."""
    group = commands.add_parser("faces", help="face templates", description="Descriptors of faces, and templates that verify.")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)

    add = partial(add_record_command, actions)
    add("describe", "descriptors of faces in photographs", EXAMPLES["describe"], Describe, _describe)
    add("create", "an empty store", EXAMPLES["create"], Create, create)
    add("enroll", "store a person's template", EXAMPLES["enroll"], Enroll, enroll)
    add("renew", "replace a person's template", EXAMPLES["renew"], Renew, enroll)
    add("verify", "is this the person?", EXAMPLES["verify"], Verify, verify)
    add("identify", "who is this?", EXAMPLES["identify"], Identify, identify)
    add("revoke", "erase a person's template", EXAMPLES["revoke"], Revoke, revoke)
    add("calibrate", "fit the threshold", EXAMPLES["calibrate"], Calibrate, calibrate)
    add("list", "who is enrolled", EXAMPLES["list"], ListTemplates, list_templates)
    add("unlock", "forget failed attempts", EXAMPLES["unlock"], Unlock, unlock)
    add("reseal", "accept a backup", EXAMPLES["reseal"], Reseal, reseal_store)


def _describe(arguments: Describe) -> int:
    pictures = named_pictures(arguments.photographs)
    table = {row.pop("file"): row for row in read_labels(arguments.labels)} if arguments.labels else {}
    network = chosen_network(arguments)
    shown = (read_rgb(path) for _, path in progress(pictures, "describing"))
    by_row: dict[int, FoundFace] = {}
    vectors, refused = describe_faces(
        shown, network, only=arguments.single_face, least_px=arguments.least_px, on_found=by_row.__setitem__
    )
    doubtful = {pictures[row][0]: item.confidence for row, item in by_row.items() if item.found_by == SECOND_TRY}
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
