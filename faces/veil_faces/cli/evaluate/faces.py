"""`veil evaluate faces`, `protection` and `histories`: verification by templates, and what templates and probes reveal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import Bar, Commands, at_least, explain, report, say, say_table, write_json
from veil.cli.records import add_record_command, json_file, option
from veil.mechanisms.profile import Strategy
from veil.report.tables import Name, Number, Table, fixed, interval, names, numbers, percent
from veil_faces.cli.evaluate import identification, linkage
from veil_faces.cli.evaluate.face_arguments import AskedFaces, AskedPairs
from veil_faces.files.face_pairs import read_pairs
from veil_faces.files.faces import identities, read_faces
from veil_faces.report.protocols import draw_protection, draw_verification
from veil_faces.studies.face_study import LIFTINGS, FaceStudy
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


@dataclass(frozen=True, kw_only=True)
class EvaluateFaces(AskedPairs):
    """Accuracy of telling pairs of one person from pairs of two, by raw descriptors, by a template against a raw one (p2s)
    and by two templates (s2s), with thresholds fitted on the other folds. Beside it how often a template's person is
    found in a gallery of raw descriptors: lifting does not hide who somebody is from those who hold a gallery.
    """

    balance: str | None = option("label of the decoys, to try hybrid+ as well", metavar="LABEL")
    folds: int = option("folds of the pairs (default %(default)s)", default=10, parse=at_least(2))
    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class EvaluateProtection(AskedPairs):
    """Whether templates of a person, made for two purposes, tell that they are one person's (linkability of Gomez-Barrero
    et al. 2018, from 0 to 1), and how often a point that an attacker takes from a template passes for the person
    before a verifier of raw descriptors. Two simple estimates are tried: a better attacker does better.
    """

    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class EvaluateHistories(AskedFaces):
    """From 2, 3 and 5 probes of each person the point nearest to all of them: how far it is from the person's mean
    descriptor, and how often a gallery names the person. Probes are lifted afresh, or along the directions of the
    enrolled template. People need seven pictures.
    """

    m: tuple[int, ...] = option("dimensions of the templates (default 4)", default=(4,), parse=at_least(2))
    lifting: tuple[Strategy, ...] = option("ways of lifting (default hybrid)", default=("hybrid",), choices=LIFTINGS)
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add the protocols of this file, of `identification` and of `linkage` to the subparsers `protocols`."""
    summary = "verification by face templates, and a gallery's view of them (Dusmanu et al. 2021, Fig. 4)"
    add_record_command(protocols, "faces", summary, EXAMPLES, EvaluateFaces, _faces)
    identification.register(protocols)
    linkage.register(protocols)
    summary = "what a server learns that keeps a person's probes (Dusmanu et al. 2021, Sec. 5)"
    add_record_command(protocols, "histories", summary, HISTORY_EXAMPLES, EvaluateHistories, _histories)
    summary = "how linkable and how reversible templates are (ISO/IEC 24745), with and without their key"
    add_record_command(protocols, "protection", summary, PROTECTION_EXAMPLES, EvaluateProtection, _protection)


def _protection(arguments: EvaluateProtection) -> int:
    """Run `veil evaluate protection`; exit code 0."""
    study = _study(arguments)
    with Bar("linking") as bar:
        protection = protection_study(study, progress=bar)
    write_json(arguments.json, protection.as_json())
    if str(arguments.json) != "-":
        say_table(arguments, protection_table(protection.rows))
        explain(
            arguments,
            "linkability: 0 where two templates of one person look like those of two people, 1 where all can be told; "
            f"reversed: estimates that pass for the person; raw descriptors do in {100 * protection.accepted_raw:.1f} %, "
            f"strangers in {100 * protection.accepted_strangers:.1f} %, the mean of a crowd in "
            f"{100 * protection.accepted_mean:.1f} %",
        )
    if arguments.figure:
        draw_protection(arguments.figure, protection)
        report(arguments, arguments.figure, "the figure")
    return 0


def _histories(arguments: EvaluateHistories) -> int:
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


def _study(arguments: AskedPairs) -> FaceStudy:
    """The study of the files and liftings that the options name; the command prints how many pairs are left out."""
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


def _faces(arguments: EvaluateFaces) -> int:
    """Run `veil evaluate faces`; exit code 0."""
    study = _study(arguments)
    faces, pairs = study.faces, study.pairs
    with Bar("verifying") as bar:
        rows = verification_study(study, folds=arguments.folds, balance=arguments.balance, progress=bar)
    record = {"faces": len(faces), "pairs": len(pairs), "missing": pairs.missing, "rows": [row.as_json() for row in rows]}
    write_json(arguments.json, record)
    if str(arguments.json) != "-":
        say_table(arguments, verification_table(rows))
        explain(
            arguments, "accuracy over folds; FAR at FRR: false accepts where that share of the person's are rejected falsely"
        )
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
