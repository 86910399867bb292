"""`veil evaluate forms`: what every attack recovers from each form of a photograph, and how well the form localizes."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from veil.cli.common import (
    Bar,
    StepBar,
    add_command,
    add_json,
    at_least,
    explain,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.errors import InputError
from veil.files.atomic import write_text
from veil.files.attack_networks import bundled_learned_model, bundled_pair_network
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.measured_forms import write_measured_forms
from veil_lab.cli.evaluate.queries import extracted_features, reference_place
from veil_lab.cli.evaluate.scene_arguments import add_extraction
from veil_lab.files.scenes import read_scene
from veil_lab.report.measured_forms import SHARES, cost_table, recovery_table, summary_table
from veil_lab.studies.attacks.form_releases import FORMS, FormOptions, FormPools
from veil_lab.studies.attacks.forms import FormRow, form_study
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps

EXAMPLES = """\
  veil evaluate forms strecha/fountain-P11 strecha/castle-P19 --record forms.json --markdown forms.txt
  veil evaluate forms fox/ --forms subspaces "words, epsilon 4" --photographs 1
"""
NAMES = tuple(setting.name for setting in FORMS)


def register(protocols: Any) -> None:
    """Add `veil evaluate forms` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "forms",
        "every form of a photograph against every attack",
        "Hold photographs of each scene out of a public map, release them in every form, localize them, and attack them with\n"
        "every attack: with one upload, and with the uploads of the nearest photographs beside it. The attacker knows all\n"
        "that is public and the map, but neither the client's secret nor its pool of decoys (one half of the pool here; the\n"
        "other half is the attacker's database). A scene is a folder with images/ and reference cameras.",
        EXAMPLES,
    )
    parser.add_argument("scenes", type=Path, nargs="+", metavar="SCENE", help="scenes: folders with reference cameras")
    parser.add_argument(
        "--forms",
        nargs="+",
        choices=NAMES,
        default=list(NAMES),
        metavar="FORM",
        help=f"forms to compare (default: all): {'; '.join(NAMES)}",
    )
    parser.add_argument(
        "--decoys", type=Path, metavar="FILE", help="pool for decoys and the attacker's database (default: the bundled one)"
    )
    parser.add_argument(
        "--folds", type=at_least(2), default=3, help="photographs are held out in so many turns (default %(default)s)"
    )
    parser.add_argument("--all-folds", action="store_true", help="hold out every photograph once; default: the first turn only")
    parser.add_argument(
        "--photographs", type=at_least(1), default=2, help="photographs attacked of each map (default %(default)s)"
    )
    parser.add_argument(
        "--others",
        type=at_least(1),
        default=4,
        help="further uploads that the attacker has beside the attacked one (default %(default)s)",
    )
    parser.add_argument(
        "--attacked-features",
        type=at_least(10),
        default=200,
        help="features of each photograph that are attacked (default %(default)s)",
    )
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=60.0,
        help="processor time of each run of all attacks on a photograph (default %(default)g)",
    )
    add_extraction(parser)
    parser.add_argument("--threads", type=at_least(1), default=2, help="threads of matching (default 2)")
    parser.add_argument(
        "--seed", type=at_least(0), default=0, help="seed by which attacked features are chosen (default %(default)s)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables of docs/choose.md and README")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the record that README and `veil inspect` quote")
    add_json(parser)
    parser.set_defaults(run=_forms)


def _forms(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = [setting for setting in FORMS if setting.name in arguments.forms]
    options = FormOptions(
        photographs=arguments.photographs,
        others=arguments.others,
        features=arguments.attacked_features,
        seconds=arguments.max_seconds,
        seed=arguments.seed,
    )
    pool = read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys()
    pools = replace(FormPools.split(bundled_codebook(), pool), learned=bundled_learned_model(), pairs=bundled_pair_network())
    folds: list[Fold] = []
    metric: dict[str, bool] = {}
    for folder in arguments.scenes:
        scene = read_scene(folder)
        if not scene.cam_from_world:
            raise InputError(
                f"{folder} has no reference cameras, which tell whether a pose is right; give a scene "
                "with gt_dense_cameras/ or a COLMAP text model"
            )
        place = reference_place(scene, extracted_features(scene, arguments))
        protocol = QueryProtocol(folds=arguments.folds, workers=arguments.threads)
        with tempfile.TemporaryDirectory(prefix="veil-forms-") as workdir, Bar(f"{scene.name}: mapping") as bar:
            found = fold_maps(place, protocol, workdir=Path(workdir), progress=bar)
        folds += found if arguments.all_folds else found[:1]
        metric[scene.name] = scene.metric
    rows: list[FormRow] = []
    with StepBar("attacking every form") as bar:
        for row in form_study(folds, pools, settings, options=options, metric=metric, progress=bar):
            rows.append(row)
            if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
                write_json(arguments.json, {"rows": [item.as_json() for item in rows]})
    write_json(arguments.json, {"rows": [item.as_json() for item in rows]})
    measured = [row.measured(1 + options.others) for row in rows]
    if arguments.record:
        write_measured_forms(arguments.record, measured)
    tables = [table for table in (cost_table(measured), recovery_table(measured), summary_table(measured)) if table is not None]
    for table in tables:
        say_table(arguments, table)
        say(arguments, "")
    explain(arguments, SHARES)
    if arguments.markdown:
        write_text(arguments.markdown, "\n\n".join("\n".join(table.markdown()) for table in tables) + "\n")
        report(arguments, arguments.markdown, "the tables")
    return 0
