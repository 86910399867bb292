"""`veil evaluate forms`: what every attack recovers from each form of a photograph, and how well the form localizes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from veil.attacks.registry import ATTACKS, chosen
from veil.cli.common import (
    Commands,
    StepBar,
    at_least,
    explain,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    tell,
    write_json,
)
from veil.cli.records import add_record_command, json_file, option
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.atomic import write_text
from veil.files.attack_networks import bundled_learned_model, bundled_pair_network, read_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.measured_forms import write_measured_forms
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.mechanisms.decoy_photographs import DecoyPhotographs
from veil_lab.cli.evaluate.scene_arguments import AskedExtraction, AskedFolds, AskedScenes, extracted_features, reference_place
from veil_lab.files.scenes import read_scene
from veil_lab.report.measured_forms import SHARES, cost_table, frontier_table, interval_table, recovery_table, summary_table
from veil_lab.studies.attacks.form_releases import DECOY_FORMS, FORMS, USUAL_WORDS, FormOptions, FormPools
from veil_lab.studies.attacks.forms import FormRow, form_study
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, each_fold

EXAMPLES = """\
  veil evaluate forms strecha/fountain-P11 strecha/castle-P19 --record forms.json --markdown forms.txt
  veil evaluate forms fox/ --forms subspaces "words, epsilon 4" --photographs 1
"""
NAMES = tuple(setting.name for setting in FORMS)
EVERY_FORM = (*FORMS, USUAL_WORDS, *DECOY_FORMS)
EVERY_NAME = tuple(setting.name for setting in EVERY_FORM)
ATTACK_NAMES = tuple(dict.fromkeys(attack.name for attack in ATTACKS))


@dataclass(frozen=True, kw_only=True)
class EvaluateForms(AskedScenes, AskedExtraction, AskedFolds):
    """Hold photographs of each scene out of a public map, release them in every form, localize them, and attack them with
    every attack: with one upload, and with the uploads of the nearest photographs beside it. The attacker knows all
    that is public and the map, but neither the client's secret nor its pool of decoys (one half of the pool here; the
    other half is the attacker's database). A scene is a folder with images/ and reference cameras.
    """

    forms: tuple[str, ...] = option(
        f"forms to compare: {'; '.join(EVERY_NAME)} (default: the first {len(NAMES)})",
        default=NAMES,
        choices=EVERY_NAME,
        metavar="FORM",
    )
    decoy_photographs: tuple[Path, ...] = option(
        "folders of photographs that give decoys as wholes, each to one release of a place and form, and none to its own place",
        default=(),
        metavar="FOLDER",
    )
    attacks: tuple[str, ...] = option(
        "attacks to run (default: all)", default=ATTACK_NAMES, choices=ATTACK_NAMES, metavar="ATTACK"
    )
    decoys: Path | None = option("pool for decoys and the attacker's database (default: the bundled one)", metavar="FILE")
    attack_model: Path | None = option(
        "networks of `veil lab train attacks` or `veil lab tune` (default: the bundled ones)", metavar="FILE"
    )
    photographs: int = option("photographs attacked of each map (default %(default)s)", default=2, parse=at_least(1))
    others: int = option(
        "further uploads that the attacker has beside the attacked one; 0: none (default %(default)s)",
        default=4,
        parse=at_least(0),
    )
    attacked_features: int = option(
        "features of each photograph that are attacked (default %(default)s)", default=200, parse=at_least(10)
    )
    max_seconds: float = option("processor time of each run of all attacks on a photograph (default %(default)g)", default=60.0)
    threads: int = option("threads of matching (default 2)", default=2, parse=at_least(1))
    seed: int = option("seed by which attacked features are chosen (default %(default)s)", default=0, parse=at_least(0))
    markdown: Path | None = option("write the tables of docs/choose.md and README", metavar="FILE")
    record: Path | None = option("write the record that README and `veil inspect` quote", metavar="FILE")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate forms` to the subparsers `protocols`."""
    summary = "every form of a photograph against every attack"
    add_record_command(protocols, "forms", summary, EXAMPLES, EvaluateForms, _forms)


def _forms(arguments: EvaluateForms) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = [setting for setting in EVERY_FORM if setting.name in arguments.forms]
    if any(setting.photographs for setting in settings) and not arguments.decoy_photographs:
        raise InputError("decoys of photographs need some; name their folders with --decoy-photographs")
    options = FormOptions(
        photographs=arguments.photographs,
        others=arguments.others,
        features=arguments.attacked_features,
        seconds=arguments.max_seconds,
        seed=arguments.seed,
    )
    pool = read_codebook(arguments.decoys) if arguments.decoys else bundled_decoys()
    model = read_learned_model(arguments.attack_model) if arguments.attack_model else bundled_learned_model()
    pools = replace(
        FormPools.split(bundled_codebook(), pool),
        learned=model,
        pairs=bundled_pair_network(),
        photographs=_decoy_photographs(arguments.decoy_photographs, arguments.max_features),
    )
    folds: list[Fold] = []
    metric: dict[str, bool] = {}
    for folder in arguments.scenes:
        scene = read_scene(folder)
        if not scene.cam_from_world:
            raise InputError(
                f"{folder} has no reference cameras, which tell whether a pose is right; give a scene "
                "with gt_dense_cameras/ or a COLMAP text model"
            )
        place = reference_place(scene, extracted_features(scene, max_features=arguments.max_features))
        protocol = QueryProtocol(folds=arguments.folds, workers=arguments.threads)
        with tempfile.TemporaryDirectory(prefix="veil-forms-") as workdir:
            folds.append(next(each_fold(place, protocol, workdir=Path(workdir))))
        metric[scene.name] = scene.metric
    rows: list[FormRow] = []
    with StepBar("attacking every form") as bar:
        for row in form_study(
            folds, pools, settings, options=options, attacks=chosen(arguments.attacks), metric=metric, progress=bar
        ):
            rows.append(row)
            if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
                write_json(arguments.json, {"rows": [item.as_json() for item in rows]})
    write_json(arguments.json, {"rows": [item.as_json() for item in rows]})
    measured = [row.measured for row in rows]
    if arguments.record:
        write_measured_forms(arguments.record, measured)
    makers = (cost_table, recovery_table, interval_table, summary_table)
    made = [make(measured) for make in ((*makers, frontier_table) if arguments.decoy_photographs else makers)]
    tables = [table for table in made if table is not None]
    for table in tables:
        say_table(arguments, table)
        say(arguments, "")
    for broken in dict.fromkeys(broken for row in rows for broken in row.broken):
        tell(f"a law of attacks is broken, by chance or by a fault, so run it again before you use these numbers: {broken}")
    explain(arguments, SHARES)
    if arguments.markdown:
        write_text(arguments.markdown, "\n\n".join("\n".join(table.markdown()) for table in tables) + "\n")
        report(arguments, arguments.markdown, "the tables")
    return 0


def _decoy_photographs(folders: tuple[Path, ...], max_features: int) -> DecoyPhotographs:
    """Raw features of the photographs of some folders, extracted as those of the scenes are."""
    options = SiftOptions(max_features=max_features, first_octave=0)
    paths = [path for folder in folders for path in find_pictures(folder)]
    made = [extract_sift(read_picture(path), options) for path in progress(paths, "extracting decoy photographs")]
    return DecoyPhotographs(photographs=tuple({item.image_digest: item for item in made}.values()))
