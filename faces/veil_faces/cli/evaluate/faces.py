"""`veil evaluate faces`, `protection` and `histories`: verification by templates, and what templates and probes reveal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from veil.cli.common import Bar, add_command, add_json, at_least, explain, picture, report, say, say_table, write_json
from veil.report.tables import Name, Number, Table, fixed, interval, names, numbers, percent
from veil_faces.cli.evaluate import identification
from veil_faces.cli.evaluate.face_arguments import add_center, add_files, add_liftings
from veil_faces.files.face_pairs import read_pairs
from veil_faces.files.faces import identities, read_faces
from veil_faces.report.faces import draw_verification
from veil_faces.report.protection import draw_protection
from veil_faces.studies.face_study import FaceStudy
from veil_faces.studies.repeated_probes import HistoryRow, history_study
from veil_faces.studies.unlinkability import ProtectionRow, protection_study
from veil_faces.studies.verification import FALSE_REJECTS, VerificationRow, verification_study

EXAMPLES = """\
  veil faces describe lfw/images -o lfw.npz; veil faces describe fairface/images -o others.npz
  veil evaluate faces lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz --figure verification.png
  veil evaluate faces lfw.npz --face-pairs lfw/pairs.csv --decoys fairface.npz --balance gender
  veil evaluate faces arcface.h5 --face-pairs pairs.txt --decoys arcface-others.h5 --m 2 4 8 16 511 --json faces.json
"""
PROTECTION_EXAMPLES = """\
  veil evaluate protection lfw.npz --face-pairs lfw/pairs.csv --decoys others.npz --figure protection.png
"""
HISTORY_EXAMPLES = """\
  veil evaluate histories lfw.npz --decoys others.npz --lifting random hybrid --m 2 4 16
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate faces`, `identification`, `histories` and `protection` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "faces",
        "verification by face templates, and a gallery's view of them (Dusmanu et al. 2021, Fig. 4)",
        "Accuracy of telling pairs of one person from pairs of two, by raw descriptors, by a template against a raw one (p2s)\n"
        "and by two templates (s2s), with thresholds fitted on the other folds. Beside it how often a template's person is\n"
        "found in a gallery of raw descriptors: lifting does not hide who somebody is from those who hold a gallery.",
        EXAMPLES,
    )
    add_files(parser, pairs=True)
    add_liftings(parser)
    parser.add_argument("--balance", metavar="LABEL", help="label of the decoys, to try hybrid+ as well")
    add_center(parser)
    parser.add_argument("--folds", type=at_least(2), default=10, help="folds of the pairs (default %(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of folds and lifting (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw accuracies and error curves (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_faces)
    identification.register(protocols)
    _register_histories(protocols)
    _register_protection(protocols)


def _register_protection(protocols: Any) -> None:
    """Add `veil evaluate protection`."""
    parser = add_command(
        protocols,
        "protection",
        "how linkable and how reversible templates are (ISO/IEC 24745), with and without their key",
        "Whether templates of a person, made for two purposes, tell that they are one person's (linkability of Gomez-Barrero\n"
        "et al. 2018, from 0 to 1), and how often a point that an attacker takes from a template passes for the person\n"
        "before a verifier of raw descriptors. Two simple estimates are tried: a better attacker does better.",
        PROTECTION_EXAMPLES,
    )
    add_files(parser, pairs=True)
    add_liftings(parser)
    add_center(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of lifting (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw both measures (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_protection)


def _protection(arguments: argparse.Namespace) -> int:
    """Run `veil evaluate protection`; exit code 0."""
    study = _study(arguments)
    with Bar("linking") as bar:
        found = protection_study(study, progress=bar)
    write_json(arguments.json, found.as_json())
    if str(arguments.json) != "-":
        say_table(arguments, protection_table(found.rows))
        explain(
            arguments,
            "linkability: 0 where two templates of one person look like those of two people, 1 where all can be told; "
            f"reversed: estimates that pass for the person; raw descriptors do in {100 * found.accepted_raw:.1f} %, "
            f"strangers in {100 * found.accepted_strangers:.1f} %, the mean of a crowd in {100 * found.accepted_mean:.1f} %",
        )
    if arguments.figure:
        draw_protection(arguments.figure, found)
        report(arguments, arguments.figure, "the figure")
    return 0


def _register_histories(protocols: Any) -> None:
    """Add `veil evaluate histories`."""
    parser = add_command(
        protocols,
        "histories",
        "what a server learns that keeps a person's probes (Dusmanu et al. 2021, Sec. 5)",
        "From 2, 3 and 5 probes of each person the point nearest to all of them: how far it is from the person's mean\n"
        "descriptor, and how often a gallery names the person. Probes are lifted afresh, or along the directions of the\n"
        "enrolled template. People need seven pictures.",
        HISTORY_EXAMPLES,
    )
    add_files(parser)
    add_liftings(parser, dimensions=(4,), liftings=("hybrid",))
    add_center(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of lifting (default %(default)s)")
    add_json(parser)
    parser.set_defaults(run=_histories)


def _histories(arguments: argparse.Namespace) -> int:
    """Run `veil evaluate histories`; exit code 0."""
    faces, decoys = identities(read_faces(arguments.faces)), read_faces(arguments.decoys)
    rows = [
        row
        for lifting in arguments.lifting
        for m in arguments.m
        for row in history_study(faces, decoys, m=m, lifting=lifting, seed=arguments.seed, centered=arguments.center)
    ]
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    if str(arguments.json) != "-":
        say_table(arguments, history_table(rows))
        explain(arguments, f"{rows[0].people} people; distance: of the estimate from the mean of the person's descriptors")
    return 0


def _study(arguments: argparse.Namespace) -> FaceStudy:
    """The study of the files and liftings that the arguments name; the command prints how many pairs are left out."""
    faces = identities(read_faces(arguments.faces))
    decoys = read_faces(arguments.decoys)
    pairs = read_pairs(arguments.face_pairs, faces)
    if pairs.missing:
        say(arguments, f"{pairs.missing} pairs are left out: a face of theirs is not in {arguments.faces}")
    return FaceStudy(
        faces=faces,
        pairs=pairs,
        decoys=decoys,
        seed=arguments.seed,
        liftings=arguments.lifting,
        dimensions=arguments.m,
        centered=arguments.center,
    )


def _faces(arguments: argparse.Namespace) -> int:
    """Run `veil evaluate faces`; exit code 0."""
    study = _study(arguments)
    faces, pairs = study.faces, study.pairs
    with Bar("verifying") as bar:
        rows = verification_study(study, folds=arguments.folds, balance=arguments.balance, progress=bar)
    record = {"faces": len(faces), "pairs": len(pairs), "missing": pairs.missing, "rows": [row.as_json() for row in rows]}
    write_json(arguments.json, record)
    if str(arguments.json) != "-":
        say_table(arguments, verification_table(rows))
        explain(arguments, "accuracy over folds; FAR at FRR: false accepts where so many of the person are rejected falsely")
    if arguments.figure:
        draw_verification(arguments.figure, rows, pairs.same)
        report(arguments, arguments.figure, "the figure")
    return 0


def verification_table(rows: Sequence[VerificationRow]) -> Table:
    """The table of `veil evaluate faces`."""
    limits = numbers(*(f"FAR at FRR {limit:.0%}, %" for limit in FALSE_REJECTS))
    shares = [*numbers("accuracy, %", "95 % interval", "EER, %"), *limits, Number("in a gallery, %")]
    return Table(
        columns=[Name("lifting"), Number("m"), Name("compared by"), *shares, Number("threshold")],
        rows=[
            (
                row.lifting,
                str(row.m),
                row.distance,
                percent(row.accuracy),
                interval(row.low, row.high),
                percent(row.equal_error),
                *(percent(value) for value in row.false_accepts.values()),
                percent(row.identified),
                fixed(row.threshold, 3),
            )
            for row in rows
        ],
        labels=3,
    )


def protection_table(rows: Sequence[ProtectionRow]) -> Table:
    """The table of `veil evaluate protection`."""
    links = ["linkability", "by chance", "of one photograph", "by length"]
    shares = ["EER of linking, %", "reversed, %", "95 % interval"]
    return Table(
        columns=[Name("lifting"), Number("m"), Name("key"), *numbers(*links, *shares)],
        rows=[
            (
                row.lifting,
                str(row.m),
                "yes" if row.keyed else "no",
                *(fixed(value, 2) for value in (row.linkability, row.by_chance, row.same_photograph, row.by_length)),
                percent(row.linked_error),
                percent(row.reversed),
                interval(row.low, row.high),
            )
            for row in rows
        ],
        labels=3,
    )


def history_table(rows: Sequence[HistoryRow]) -> Table:
    """The table of `veil evaluate histories`."""
    return Table(
        columns=[
            *names("probes are", "lifting"),
            *numbers("m", "probes", "distance", "named in a gallery, %", "EER, %"),
        ],
        rows=[
            (
                row.mode,
                row.lifting,
                str(row.m),
                str(row.probes),
                fixed(row.distance, 3),
                percent(row.identified),
                percent(row.equal_error),
            )
            for row in rows
        ],
        labels=4,
    )
