"""`veil evaluate attributes`: inference of people's labels from descriptors of their faces, raw and lifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.attacks.distribution.attributes import NEIGHBORS
from veil.cli.common import Commands, at_least, picture, progress, report, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.files.photographs.pictures import read_rgb
from veil.report.tables import Table, interval, names, numbers, percent
from veil_faces.collection import Faces
from veil_faces.extraction.faces import FACE_SPACE, describe_faces, load_face_network
from veil_faces.files.faces import holds_faces, read_faces, read_labels
from veil_faces.report.protocols import draw_attributes
from veil_faces.studies.attributes import DIMENSIONS, AttributeRow, attribute_study

EXAMPLES = """\
  veil evaluate attributes fairface/images --labels fairface/labels.csv --attributes gender race --json attributes.json
  veil evaluate attributes fairface.npz --attributes gender race --figure attributes.png
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateAttributes(Record):
    """Describe faces (needs veil-faces[networks]), part the people into decoys, an attacker with labels, and victims, and
    infer each attribute of the victims by their nearest neighbors among the attacker's, from raw and from lifted
    descriptors.
    Only to measure how well a method protects people.
    """

    folder: Path = positional("photographs of one face each, or descriptors with labels (.npz, HDF5)")
    labels: Path | None = option("labels of photographs: CSV with a column `file` and one for each attribute", metavar="FILE")
    attributes: tuple[str, ...] = option(
        "attributes to infer, columns of --labels or labels of the descriptors", required=True, metavar="NAME"
    )
    m: tuple[int, ...] = option(
        f"dimensions of the subspaces (default {' '.join(map(str, DIMENSIONS))})", default=DIMENSIONS, parse=at_least(2)
    )
    neighbors: int = option("nearest neighbors that vote (default %(default)s)", default=NEIGHBORS, parse=at_least(1))
    center: bool = option("lift descriptors less the decoys' mean, of unit length again", default=False)
    seed: int = option("seed of the parts and of lifting (default %(default)s)", default=0, parse=at_least(0))
    figure: Path | None = option("draw accuracies (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate attributes` to the subparsers `protocols`."""
    summary = "gender, age or race inferred from faces, raw and lifted (Dusmanu et al. 2021, Fig. 5)"
    add_record_command(protocols, "attributes", summary, EXAMPLES, EvaluateAttributes, _attributes)


def _attributes(arguments: EvaluateAttributes) -> int:
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


def _faces(arguments: EvaluateAttributes) -> tuple[Faces, int]:
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
