"""`veil evaluate localization`: held-out queries in every form on public maps (Pittaluga and Zhuang 2023, Tables 2 and 3)."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from veil.cli.common import (
    Bar,
    add_command,
    add_json,
    at_least,
    keep_old_name,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.evaluate.queries import extracted_features, other_places, reference_place
from veil.cli.server.index import read_dictionary
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.extraction import EXTRACTORS, full_name
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.scenes import ReferenceScene, read_scene
from veil.geometry.rigid import Rigid
from veil.report.localization import draw_localization
from veil.report.tables import Name, Number, Table, fixed, names, numbers, percent
from veil.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps
from veil.studies.localization.map_dictionaries import mapped, most_words
from veil.studies.localization.retrieval import Recall, recalls
from veil.studies.localization.word_localization import FoldLocalizer, run_settings
from veil.studies.localization.word_localization_settings import (
    FORMS,
    METRIC,
    RELATIVE,
    LocalizationRow,
    Setting,
    Tables,
    Trial,
    localization_row,
)
from veil.threads import single_blas

EXAMPLES = """\
  veil evaluate localization strecha/fountain-P11 strecha/castle-P19 --json words.json --figure words.png
  veil evaluate localization fox/ --words 2048 4096 --default 4096,10,2 --elsewhere bundled
  veil evaluate localization strecha/fountain-P11 --forms raw --descriptor aliked --max-features 2000
"""
DEFAULTS = Tables()


def register(protocols: Any) -> None:
    """Add `veil evaluate localization` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "localization",
        "held-out queries raw, in subspaces, in words, and with lines",
        "Hold out photographs of each scene in turn, map the others from raw features, and localize the held-out ones in\n"
        "every form; ask about photographs of the other scenes, too, which must be refused. Words vary in their number K,\n"
        "in epsilon and in m around a default point, in how they are matched, in where the dictionary comes from, and in the\n"
        "samples of the search. Then recall of retrieval from words. A scene is a folder with images/ and reference cameras\n"
        "(Strecha's layout, a COLMAP text model, or transforms.json). Minutes a scene, most of them in settings that fail.",
        EXAMPLES,
    )
    parser.add_argument("scenes", type=Path, nargs="+", metavar="SCENE", help="folders with reference cameras")
    parser.add_argument("--words", type=at_least(2), nargs="+", default=list(DEFAULTS.words), metavar="K", help="to vary K")
    parser.add_argument("--epsilon", type=float, nargs="+", default=list(DEFAULTS.epsilons), help="to vary epsilon")
    parser.add_argument("--m", type=at_least(1), nargs="+", default=list(DEFAULTS.sizes), help="to vary m")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS, help="what queries send (default: all)")
    parser.add_argument("--default", type=_point, default=DEFAULTS.default, metavar="K,EPS,M", help="default 4096,10,2")
    parser.add_argument("--elsewhere", nargs="+", default=["bundled"], metavar="FILE", help="dictionaries of other photographs")
    parser.add_argument("--iterations", type=at_least(1), default=DEFAULTS.most, help="samples of a search (default 100000)")
    parser.add_argument("--folds", type=at_least(2), default=3, help="photographs are held out in so many turns (default 3)")
    parser.add_argument(
        "--false", type=at_least(0), default=3, metavar="N", help="photographs of elsewhere, a turn (default 3)"
    )
    keep_old_name(parser, "--strangers", "--false")
    parser.add_argument(
        "--same-place", nargs="+", action="append", default=[], metavar="NAME", help="scenes not asked of each other"
    )
    parser.add_argument("--max-features", type=at_least(100), default=4096, help="per image (default %(default)s)")
    parser.add_argument("--first-octave", type=int, default=0, help="-1 doubles the image first (default %(default)s)")
    parser.add_argument(
        "--descriptor", type=full_name, choices=EXTRACTORS, default="sift", help="default sift; networks without a least score"
    )
    parser.add_argument("--retrieval-words", type=at_least(2), default=16384, metavar="K", help="of the joint dictionary")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (default 2)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw shares and inliers (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_localization)


def _point(text: str) -> tuple[int, float, int]:
    """The default point (K, epsilon, m) that an argument names."""
    try:
        k, epsilon, m = text.split(",")
        return int(k), float(epsilon), int(m)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be K,EPSILON,M as 4096,10,2, got {text!r}") from None


def _localization(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = Tables(
        words=tuple(arguments.words),
        epsilons=tuple(arguments.epsilon),
        sizes=tuple(arguments.m),
        default=arguments.default,
        most=arguments.iterations,
        elsewhere=tuple(arguments.elsewhere),
    ).settings()
    settings = [item for item in settings if item.form in arguments.forms]
    with_words = any(setting.uses_words for setting in settings)
    if arguments.figure and not with_words:
        raise InputError("the figure compares words with the rest; add words to --forms, or leave out --figure")
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others = other_places(scenes, arguments.same_place)
    features = {scene.name: extracted_features(scene, arguments) for scene in scenes}
    named = {name: read_dictionary(name) for name in arguments.elsewhere}
    settings = [replace(item, words=len(named[item.dictionary])) if item.dictionary in named else item for item in settings]
    rows: list[LocalizationRow] = []
    first_folds: list[Fold] = []
    for scene in scenes:
        folds = _folds(scene, features[scene.name], arguments)
        first_folds.append(folds[0])
        possible = _possible(settings, scene.name, folds, arguments)
        strangers = _strangers(others[scene.name], features, folds, arguments)
        trials = list(_trials(scene.name, folds, possible, strangers, named, arguments))
        for setting in possible:
            own = [trial for trial in trials if trial.setting == setting]
            thresholds, extent = (METRIC, 1.0) if scene.metric else (RELATIVE, _extent(scene.cam_from_world))
            rows.append(localization_row(setting, own, thresholds=thresholds, extent=extent))
        here = [item for item in rows if item.scene == scene.name]
        say(arguments, f"\n{scene.name}: {here[0].queries} queries, {here[0].false_queries} false ones a setting")
        say_table(arguments, scene_table(here))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(rows, []))
    laws = [(math.inf, 1), *((value, arguments.default[2]) for value in arguments.epsilon)]
    joint = min(arguments.retrieval_words, sum(most_words(mapped(fold)) for fold in first_folds))
    if with_words and joint < arguments.retrieval_words:
        say(arguments, f"retrieval with {joint} words, not {arguments.retrieval_words}: the maps have too few descriptors")
    retrieval = recalls(first_folds, joint, laws) if with_words else []
    write_json(arguments.json, _record(rows, retrieval))
    if with_words:
        _say_retrieval(arguments, retrieval)
    if arguments.figure:
        draw_localization(arguments.figure, rows, default=arguments.default)
        report(arguments, arguments.figure, "the figure")
    return 0


def _record(rows: Sequence[LocalizationRow], retrieval: Sequence[Recall]) -> dict:
    """The JSON record of the command."""
    return {"rows": [item.as_json() for item in rows], "retrieval": [item.as_json() for item in retrieval]}


def _folds(scene: ReferenceScene, features: dict[str, Features], arguments: argparse.Namespace) -> list[Fold]:
    """The maps of one scene that together hold out each photograph once."""
    protocol = QueryProtocol(folds=arguments.folds, workers=arguments.workers)
    with tempfile.TemporaryDirectory(prefix="veil-localization-") as workdir, Bar(f"{scene.name}: mapping") as bar:
        return fold_maps(reference_place(scene, features), protocol, workdir=Path(workdir), progress=bar)


def _possible(settings: Sequence[Setting], name: str, folds: Sequence[Fold], arguments: argparse.Namespace) -> list[Setting]:
    """The settings whose dictionary the maps of the scene `name` can give; the command prints which others are left out.

    Raises InputError if the default number of words is among those left out.
    """
    most = min(most_words(mapped(fold)) for fold in folds)
    left_out = sorted({item.words or 0 for item in settings if item.dictionary == "reference" and (item.words or 0) > most})
    if arguments.default[0] in left_out:
        raise InputError(
            f"the smallest map of {name} has {2 * most} descriptors, enough for {most} words and not for --default "
            f"{arguments.default[0]}; ask for fewer, or for more --max-features"
        )
    if left_out:
        say(arguments, f"{name}: without K = {', '.join(map(str, left_out))}: the smallest map is enough for {most} words")
    return [item for item in settings if item.dictionary != "reference" or (item.words or 0) <= most]


def _strangers(
    names: Sequence[str], features: Mapping[str, dict[str, Features]], folds: Sequence[Fold], arguments: argparse.Namespace
) -> list[dict[str, Features]]:
    """False queries for each fold: photographs of the scenes `names`, spread evenly over all of these."""
    pool = [(f"{name}/{photo}", item) for name in names for photo, item in sorted(features[name].items())]
    step = max(1, len(pool) // max(1, arguments.false * len(folds)))
    chosen = pool[::step]
    return [dict(chosen[index :: len(folds)][: arguments.false]) for index in range(len(folds))]


def _trials(
    name: str,
    folds: Sequence[Fold],
    settings: Sequence[Setting],
    strangers: Sequence[dict[str, Features]],
    named: Mapping[str, Codebook],
    arguments: argparse.Namespace,
) -> Iterator[Trial]:
    """Trials of all settings on all folds of the scene `name`, from several processes."""
    jobs = [
        (fold, setting, false, named)
        for fold, false in zip(folds, strangers, strict=True)
        for setting in _batches(settings, arguments.workers)
    ]
    # COLMAP's own threads forbid forking.
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn"), initializer=quiet_colmap) as pool:
        for trials in progress(pool.map(_run_job, jobs), f"{name}: localizing", total=len(jobs)):
            yield from trials


def _batches(settings: Sequence[Setting], count: int) -> list[list[Setting]]:
    """At most `count` batches of settings; those that share a dictionary stay together, so that it is made once."""
    keys = list(dict.fromkeys((setting.dictionary, setting.words) for setting in settings))
    return [
        batch
        for index in range(count)
        if (batch := [item for item in settings if keys.index((item.dictionary, item.words)) % count == index])
    ]


def _run_job(job: tuple[Fold, list[Setting], dict[str, Features], Mapping[str, Codebook]]) -> list[Trial]:
    """Trials of one job: a fold, settings, its false queries, and the named dictionaries."""
    fold, settings, strangers, named = job
    with single_blas():
        localizer = FoldLocalizer(fold=fold, codebook=bundled_codebook(), decoys=bundled_decoys(), named=named)
        return list(run_settings(localizer, settings, strangers))


def _extent(poses: Mapping[str, Rigid]) -> float:
    """Length of the diagonal of the box around the reference cameras, in units of the reference."""
    centers = np.array([pose.center for pose in poses.values()])
    return float(np.linalg.norm(np.ptp(centers, axis=0)))


def scene_table(rows: Sequence[LocalizationRow]) -> Table:
    """The table of one scene."""
    errors = "position, median", "rotation, median deg", "inliers, median", "false accepted", "upload, bytes"
    return Table(
        columns=[
            Number("#"),
            *names("form", "matching", "dictionary"),
            *numbers("K", "epsilon", "m", "samples", *(f"{name}, %" for name in rows[0].localized)),
            *numbers(*errors, "epsilon of image"),
        ],
        rows=[
            (
                str(number),
                item.setting.form,
                item.setting.matching or "",
                Path(item.setting.dictionary or "").name,
                str(item.setting.words or ""),
                "" if item.setting.epsilon is None else f"{item.setting.epsilon:g}",
                str(item.setting.m or ""),
                str(item.setting.iterations or ""),
                *(percent(share) for share in item.localized.values()),
                fixed(item.median_position, 4),
                fixed(item.median_rotation_deg, 3),
                fixed(item.median_inliers, 0),
                f"{item.false_accepts}/{item.false_queries}",
                fixed(item.upload_bytes, 0),
                fixed(item.epsilon_image, 0),
            )
            for number, item in enumerate(rows, start=1)
        ],
        labels=2,
    )


def retrieval_table(retrieval: Sequence[Recall]) -> Table:
    """The table of retrieval from words."""
    return Table(
        columns=[Name("sent"), *numbers("epsilon", "m", "recall at 10, %")],
        rows=[
            ("raw descriptors", "", "", percent(item.recall_at_10))
            if math.isinf(item.epsilon)
            else ("words", f"{item.epsilon:g}", str(item.m), percent(item.recall_at_10))
            for item in retrieval
        ],
    )


def _say_retrieval(arguments: argparse.Namespace, retrieval: Sequence[Recall]) -> None:
    """Print the table of retrieval below what was searched, or that nothing could be."""
    if not retrieval or not retrieval[0].queries:
        say(arguments, "retrieval: no query overlaps a mapped photograph")
        return
    first = retrieval[0]
    what = f"retrieval among {first.images} photographs of all scenes, {first.queries} queries, {first.words} words"
    say(arguments, f"\n{what}")
    say_table(arguments, retrieval_table(retrieval))
