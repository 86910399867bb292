"""`veil evaluate linkage` and `regeneration`: attackers that learn and ask, against ours and four published schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import Bar, Commands, at_least, explain, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.report.tables import Name, Table, fixed, interval, names, numbers, percent
from veil_faces.attempts import AttemptLimit
from veil_faces.files.faces import identities, read_faces
from veil_faces.studies.linkage import (
    KNOWN,
    LinkageMaterial,
    LinkageRow,
    StoreSizeRow,
    SystemQuality,
    linkage_material,
    linkage_rows,
    quality_of,
    store_size_rows,
)
from veil_faces.studies.regeneration import YEAR_DAYS, RegenerationRow, regeneration_rows

EXAMPLES = """\
  veil evaluate linkage lfw.npz --decoys fairface.npz --json linkage.json
"""
REGENERATION_EXAMPLES = """\
  veil evaluate regeneration lfw.npz --decoys fairface.npz --questions 2000
"""
ATTACKERS = ("pairs", "stores", f"stores, {KNOWN} known", "stores, pool known", "disclosed", "reused")


@dataclass(frozen=True, kw_only=True)
class _AskedPeople(Record):
    """People and decoys."""

    faces: Path = positional("descriptors: .npz or HDF5 (veil faces describe)")
    decoys: Path = option("descriptors of other people", required=True, metavar="FILE")
    seed: int = option("seed of all random draws (default %(default)s)", default=0, parse=at_least(0))


@dataclass(frozen=True, kw_only=True)
class EvaluateLinkage(_AskedPeople):
    """Two stores hold templates of the same people, and an attacker tells which are one person's: ours (hybrid, m = 4),
    BioHashing, IoM, PolyProtect and MLP-Hash, beside descriptors without protection, and noise. Networks are trained
    on other people. Attackers of pairs and of whole stores lack the keys; others have them, or stores share one.
    Half of the people with two pictures train, half are linked.
    """

    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class EvaluateRegeneration(_AskedPeople):
    """An attacker claims to be a person, asks with descriptors of his own making, and learns the distance, a band of it, or
    yes and no. What he regenerates is shown to the same system, and to a verifier of raw descriptors that knows another
    photograph. Systems are those of `veil evaluate linkage`, each at a false match rate of 0.1 %.
    """

    questions: int = option("probes of hill climbing for each person (default %(default)s)", default=2000, parse=at_least(40))
    people: int = option("people who are attacked (default %(default)s)", default=25, parse=at_least(1))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate linkage` and `regeneration` to the subparsers `protocols`."""
    summary = "linkage of stores of face templates by attackers that learn (ISO/IEC 24745)"
    add_record_command(protocols, "linkage", summary, EXAMPLES, EvaluateLinkage, _linkage)
    summary = "faces regenerated from answers of a face store (ISO/IEC 30136)"
    add_record_command(protocols, "regeneration", summary, REGENERATION_EXAMPLES, EvaluateRegeneration, _regeneration)


def _material(arguments: _AskedPeople) -> LinkageMaterial:
    """The material of the files that the options name."""
    return linkage_material(identities(read_faces(arguments.faces)), read_faces(arguments.decoys), seed=arguments.seed)


def _linkage(arguments: EvaluateLinkage) -> int:
    """Run `veil evaluate linkage`; exit code 0."""
    material = _material(arguments)
    quality: list[SystemQuality] = []
    rows: list[LinkageRow] = []
    with Bar("linking") as bar:
        for done, system in enumerate(material.systems):
            quality.append(quality_of(system, material))
            rows.extend(linkage_rows(system, material))
            bar(done + 1, len(material.systems))
    sizes = store_size_rows(material)
    write_json(
        arguments.json,
        {
            "trained": len(material.trained),
            "attacked": len(material.attacked),
            "pool": len(material.pool),
            "quality": [row.as_json() for row in quality],
            "rows": [row.as_json() for row in rows],
            "sizes": [row.as_json() for row in sizes],
        },
    )
    if str(arguments.json) != "-":
        say_table(arguments, linkage_table(rows))
        say_table(arguments, unlinkability_table(rows))
        say_table(arguments, quality_table(quality))
        say_table(arguments, store_size_table(sizes))
        explain(
            arguments,
            f"{len(material.trained)} people train, {len(material.attacked)} are linked; cells: area under the ROC curve, its "
            "95 % interval over people, percent of people linked at rank 1. pairs: single pairs, keys secret; stores: whole "
            "stores, keys secret; disclosed: all keys known; reused: one secret key in both stores. Then D_sys, and what "
            "chance gives; verification with the claimed person's key; and stores of ours by size, with a known pool of "
            f"{len(material.pool)} decoys",
        )
    return 0


def _regeneration(arguments: EvaluateRegeneration) -> int:
    """Run `veil evaluate regeneration`; exit code 0."""
    material = _material(arguments)
    rows: list[RegenerationRow] = []
    with Bar("regenerating") as bar:
        for done, system in enumerate(material.systems):
            rows.extend(regeneration_rows(system, material, people=arguments.people, questions=arguments.questions))
            bar(done + 1, len(material.systems))
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    if str(arguments.json) != "-":
        say_table(arguments, regeneration_table(rows))
        explain(
            arguments,
            f"{rows[0].people} people; failed: rejected questions, of which the default limit of a store allows "
            f"{AttemptLimit().within(YEAR_DAYS)} in a year; first accepted: median question after which a probe passes; "
            "cosine: with the enrolled descriptor, seen from the mean face; same: accepted by the attacked system; other: by "
            "a verifier of raw descriptors that knows another photograph",
        )
    return 0


def linkage_table(rows: Sequence[LinkageRow]) -> Table:
    """The table of `veil evaluate linkage`: a row for each system and kind of keys, a column for each attacker."""
    cells = {
        row: f"{row.linked.auc:.2f} ({row.linked.low:.2f} to {row.linked.high:.2f}), {100 * row.linked.first:.0f}"
        for row in rows
    }
    return Table(columns=[*names("system", "key of a"), *numbers(*ATTACKERS)], rows=_by_attacker(cells), labels=2)


def unlinkability_table(rows: Sequence[LinkageRow]) -> Table:
    """D_sys by system, kind of keys and attacker, with what 95 % of shuffled pairs stay below."""
    cells = {row: f"{row.linked.linkability:.2f} / {row.linked.by_chance:.2f}" for row in rows}
    return Table(columns=[*names("system", "key of a"), *numbers(*ATTACKERS)], rows=_by_attacker(cells), labels=2)


def _by_attacker(cells: Mapping[LinkageRow, str]) -> list[tuple[str, ...]]:
    """Rows of one system and kind of keys each, with the cells of all attackers."""
    placed = {(row.system, row.keys, row.attacker): cell for row, cell in cells.items()}
    kinds = dict.fromkeys((row.system, row.keys) for row in cells)
    return [(*kind, *(placed.get((*kind, attacker), "-") for attacker in ATTACKERS)) for kind in kinds]


def quality_table(rows: Sequence[SystemQuality]) -> Table:
    """Verification by system."""
    return Table(
        columns=[Name("system"), *numbers("EER, %", "match at FMR 0.1 %, %", "95 % interval")],
        rows=[(row.system, percent(row.equal_error), percent(row.matched), interval(row.low, row.high)) for row in rows],
    )


def store_size_table(rows: Sequence[StoreSizeRow]) -> Table:
    """Linkage of stores of ours by their number of templates."""
    columns = ["decoys met", "decoys placed", "directions", "variance, %", "AUC", "95 % interval", "rank 1, %"]
    return Table(
        columns=numbers("templates", *columns),
        rows=[
            (
                str(row.templates),
                str(row.met),
                str(row.placed),
                str(row.rank),
                percent(row.variance),
                *(
                    ("-", "-", "-")
                    if row.linked is None
                    else (
                        fixed(row.linked.auc, 2),
                        f"{row.linked.low:.2f} to {row.linked.high:.2f}",
                        percent(row.linked.first, 0),
                    )
                ),
            )
            for row in rows
        ],
    )


def regeneration_table(rows: Sequence[RegenerationRow]) -> Table:
    """The table of `veil evaluate regeneration`."""
    return Table(
        columns=[
            *names("system", "attack", "answer"),
            *numbers("questions", "failed", "first accepted", "cosine", "same, %", "other, %", "95 % interval"),
        ],
        rows=[
            (
                row.system,
                row.attack + ("" if row.years is None else " in a year" if row.years == 1 else f" in {row.years} years"),
                row.answer,
                f"{row.questions:,}",
                f"{row.failed:,}",
                "-" if row.first_accepted is None else f"{row.first_accepted:,}",
                fixed(row.cosine, 2),
                percent(row.same, 0),
                percent(row.other, 0),
                interval(row.other_low, row.other_high, 0),
            )
            for row in rows
        ],
        labels=3,
    )
