"""`veil evaluate faces`, `protection` and `histories`: verification by templates, and what templates and probes reveal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from veil.cli.common import Bar, add_command, add_json, at_least, picture, report, say, write_json
from veil.cli.evaluate import identification
from veil.cli.evaluate.face_arguments import add_center, add_files, add_liftings
from veil.files.face_pairs import read_pairs
from veil.files.faces import identities, read_faces
from veil.report.faces import draw_verification
from veil.report.protection import draw_protection
from veil.studies.faces.face_study import FaceStudy
from veil.studies.faces.repeated_probes import history_study
from veil.studies.faces.unlinkability import protection_study
from veil.studies.faces.verification import FALSE_REJECTS, VerificationRow, verification_study

EXAMPLES = """\
  veil faces describe lfw/images -o lfw.npz; veil faces describe fairface/images -o others.npz
  veil evaluate faces lfw.npz --pairs lfw/pairs.csv --decoys others.npz --figure verification.png
  veil evaluate faces lfw.npz --pairs lfw/pairs.csv --decoys fairface.npz --balance gender
  veil evaluate faces arcface.h5 --pairs pairs.txt --decoys arcface-others.h5 --m 2 4 8 16 511 --json faces.json
"""
PROTECTION_EXAMPLES = """\
  veil evaluate protection lfw.npz --pairs lfw/pairs.csv --decoys others.npz --figure protection.png
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
    parser.add_argument("--balance", metavar="LABEL", help="a label of the decoys, to try hybrid+ as well")
    add_center(parser)
    parser.add_argument("--folds", type=at_least(2), default=10, help="of the pairs (default %(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of folds and lifting (default %(default)s)")
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
    parser.add_argument("--seed", type=at_least(0), default=0, help="of lifting (default %(default)s)")
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
        heads = f"{'linkability':>11} {'chance':>7} {'one photo':>9} {'by length':>9} {'linked EER':>10} {'reversed':>19}"
        print(f"{'lifting':12} {'m':>3} {'key':4} {heads}")
        for row in found.rows:
            interval = f"({100 * row.low:.1f}-{100 * row.high:.1f})"
            print(
                f"{row.lifting:12} {row.m:3d} {'yes' if row.keyed else 'no':4} {row.linkability:11.2f} {row.by_chance:7.2f}"
                f" {row.same_photograph:9.2f} {row.by_length:9.2f} {100 * row.linked_error:9.1f}%"
                f" {100 * row.reversed:5.1f}% {interval:>12}"
            )
        print(
            f"reversed: estimates that pass for the person; raw descriptors do in {100 * found.accepted_raw:.1f} %, "
            f"strangers in {100 * found.accepted_strangers:.1f} %, the mean of a crowd in {100 * found.accepted_mean:.1f} %"
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
    parser.add_argument("--seed", type=at_least(0), default=0, help="of lifting (default %(default)s)")
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
        print(f"{'probes are':12} {'lifting':12} {'m':>3} {'probes':>6} {'distance':>9} {'in a gallery':>12} {'EER':>7}")
        for row in rows:
            off = "" if row.distance is None else f"{row.distance:.3f}"
            print(
                f"{row.mode:12} {row.lifting:12} {row.m:3d} {row.probes:6d} {off:>9} {100 * row.identified:11.1f}%"
                f" {100 * row.equal_error:6.1f}%"
            )
        print(f"{rows[0].people} people; distance of the estimate from the mean of the person's descriptors")
    return 0


def _study(arguments: argparse.Namespace) -> FaceStudy:
    """The study of the files and liftings that the arguments name; the command prints how many pairs are left out."""
    faces = identities(read_faces(arguments.faces))
    decoys = read_faces(arguments.decoys)
    pairs = read_pairs(arguments.pairs, faces)
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
        _print(rows)
    if arguments.figure:
        draw_verification(arguments.figure, rows, pairs.same)
        report(arguments, arguments.figure, "the figure")
    return 0


def _print(rows: Sequence[VerificationRow]) -> None:
    """Print the table of `veil evaluate faces`."""
    heads = " ".join(f"{f'FAR@FRR {limit:.0%}':>11}" for limit in FALSE_REJECTS)
    print(f"{'lifting':13} {'m':>3} {'by':6} {'accuracy':>19} {'EER':>6} {heads} {'threshold':>9} {'in a gallery':>12}")
    for row in rows:
        accepts = " ".join(f"{100 * value:10.1f}%" for value in row.false_accepts.values())
        found = "" if row.identified is None else f"{100 * row.identified:.1f}%"
        interval = f"({100 * row.low:.1f}-{100 * row.high:.1f})"
        print(
            f"{row.lifting:13} {row.m:3d} {row.distance:6} {100 * row.accuracy:5.1f}% {interval:>12}"
            f" {100 * row.equal_error:5.1f}% {accepts} {row.threshold:9.3f} {found:>12}"
        )
    print("accuracy over folds and its 95 % interval; FAR@FRR: false accepts where so many are rejected falsely")
