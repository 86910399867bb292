"""`veil evaluate attributes`: inference of people's labels from descriptors of their faces, raw and lifted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.attacks.distribution.attributes import NEIGHBORS
from veil.cli.common import add_command, add_json, at_least, picture, progress, report, say, say_table, write_json
from veil.errors import InputError
from veil.files.photographs.pictures import read_rgb
from veil.report.tables import Table, interval, names, numbers, percent
from veil_faces.cli.evaluate.face_arguments import add_center
from veil_faces.collection import Faces
from veil_faces.extraction.faces import FACE_SPACE, describe_faces, load_face_network
from veil_faces.files.faces import holds_faces, read_faces, read_labels
from veil_faces.report.attributes import draw_attributes
from veil_faces.studies.attributes import DIMENSIONS, AttributeRow, attribute_study

EXAMPLES = """\
  veil evaluate attributes fairface/images --labels fairface/labels.csv --attributes gender race --json attributes.json
  veil evaluate attributes fairface.npz --attributes gender race --figure attributes.png
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate attributes` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "attributes",
        "gender, age or race inferred from faces, raw and lifted (Dusmanu et al. 2021, Fig. 5)",
        "Describe faces (needs veil-faces[networks]), part the people into decoys, an attacker with labels, and victims, and\n"
        "infer each attribute of the victims by their nearest neighbors among the attacker's, from raw and from lifted\n"
        "descriptors.\n"
        "Only to measure how well a method protects people.",
        EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="photographs of one face each, or descriptors with labels (.npz, HDF5)")
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="labels of photographs: CSV with a column `file` and one for each attribute"
    )
    parser.add_argument(
        "--attributes",
        nargs="+",
        required=True,
        metavar="NAME",
        help="attributes to infer, columns of --labels or labels of the descriptors",
    )
    parser.add_argument(
        "--m", type=at_least(2), nargs="+", default=list(DIMENSIONS), help="dimensions of the subspaces (default 2 4 8 16)"
    )
    parser.add_argument(
        "--neighbors", type=at_least(1), default=NEIGHBORS, help="nearest neighbors that vote (default %(default)s)"
    )
    add_center(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of the parts and of lifting (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw accuracies (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_attributes)


def _attributes(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    faces, total = _faces(arguments)
    say(arguments, f"{len(faces)} of {total} photographs have a face that the detector finds")
    labels = {name: faces.label(name) for name in arguments.attributes}
    rows = attribute_study(
        faces.features,
        labels,
        seed=arguments.seed,
        dimensions=arguments.m,
        neighbors=arguments.neighbors,
        centered=arguments.center,
    )
    write_json(
        arguments.json,
        {
            "photographs": total,
            "faces": len(faces),
            "rows": [row.as_json() for row in rows],
        },
    )
    if str(arguments.json) != "-":
        say_table(arguments, attribute_table(rows))
    if arguments.figure:
        draw_attributes(arguments.figure, rows)
        report(arguments, arguments.figure, "the figure")
    return 0


def _faces(arguments: argparse.Namespace) -> tuple[Faces, int]:
    """Faces with their labels, and the number of photographs that they were looked for in."""
    if holds_faces(arguments.folder):
        faces = read_faces(arguments.folder)
        return faces, len(faces)
    if arguments.labels is None:
        raise InputError(
            "photographs need a table of labels; give it with --labels, or descriptors "
            "that hold them (`veil faces describe --labels`)"
        )
    people = read_labels(arguments.labels, arguments.attributes)
    pictures = (read_rgb(arguments.folder / person["file"]) for person in progress(people, "describing faces"))
    vectors, refused = describe_faces(pictures, load_face_network(second_try=False))
    described = [person for row, person in enumerate(people) if row not in refused]
    if not described:
        raise InputError(f"no face was found in the photographs of {arguments.folder}; give photographs of faces")
    labels = {name: tuple(person[name] for person in described) for name in arguments.attributes}
    names = tuple(person["file"] for person in described)
    return Faces(vectors=vectors, names=names, space=FACE_SPACE, labels=labels), len(people)


def attribute_table(rows: Sequence[AttributeRow]) -> Table:
    """The table of the command."""
    return Table(
        columns=[
            *names("attribute", "lifting"),
            *numbers("m", "accuracy, %", "95 % interval", "chance, %", "victims"),
        ],
        rows=[
            (
                row.attribute,
                row.form,
                str(row.m or ""),
                percent(row.accuracy),
                interval(row.low, row.high),
                percent(row.baseline),
                str(row.victims),
            )
            for row in rows
        ],
        labels=3,
    )
