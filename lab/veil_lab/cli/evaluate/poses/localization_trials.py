"""Options of `veil evaluate localization`, its maps with held-out photographs, and trials of them in several processes."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from veil.cli.common import Bar, at_least, picture, progress, quiet_colmap
from veil.cli.records import json_file, option
from veil.codebooks.codebook import Codebook
from veil.device.descriptor_books import DescriptorBooks
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.threads import single_blas
from veil_lab.cli.evaluate.descriptors import AskedDescriptors
from veil_lab.cli.evaluate.scene_arguments import AskedExtraction, AskedFolds, AskedSamePlaces, AskedScenes, reference_place
from veil_lab.files.scenes import ReferenceScene
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps
from veil_lab.studies.localization.word_localization import FoldLocalizer, run_settings
from veil_lab.studies.localization.word_localization_settings import (
    FORMS,
    METRIC,
    RELATIVE,
    LocalizationRow,
    Setting,
    Tables,
    Trial,
    localization_row,
)
from veil_lab.studies.mapping.by_lifting import LIFTINGS, Lifting

DEFAULTS = Tables()
Point = tuple[int, float, int]


def _point(text: str) -> Point:
    """The default point (K, epsilon, m) that an argument names."""
    try:
        k, epsilon, m = text.split(",")
        return int(k), float(epsilon), int(m)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be K,EPSILON,M as 4096,10,2, got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class EvaluateLocalization(AskedScenes, AskedExtraction, AskedFolds, AskedSamePlaces, AskedDescriptors):
    """Hold out photographs of each scene in turn, map the others from raw features, and localize the held-out ones in
    every form; ask about photographs of the other scenes, too, which must be refused. Words vary in their number K,
    in epsilon and in m around a default point, in how they are matched, in where the dictionary comes from, and in the
    samples of the search. Then recall of retrieval from words. A scene is a folder with images/ and reference cameras
    (Strecha's layout, a COLMAP text model, or transforms.json). Minutes a scene, most of them in settings that fail.
    Several descriptors are compared in one table: each form once, with equal numbers of features in each photograph,
    subspaces and words by codebooks of their own kind, and epsilon and m of --default. With --lifting, raw features and
    subspaces are compared alone (Dusmanu et al. 2021, Tables 2 and 3): maps of lifted photographs, and lifted queries.
    """

    word_count: tuple[int, ...] = option(
        "values of K, the number of words, to try", default=DEFAULTS.words, parse=at_least(2), metavar="K"
    )
    epsilon: tuple[float, ...] = option("values of epsilon to try", default=DEFAULTS.epsilons)
    m: tuple[int, ...] = option("values of m to try", default=DEFAULTS.sizes, parse=at_least(1))
    lifting: tuple[Lifting, ...] | None = option(
        "maps and localization from subspaces of each way of lifting and m, in a table of their own", choices=LIFTINGS
    )
    forms: tuple[str, ...] = option("what queries send (default: all)", default=FORMS, choices=FORMS)
    default: Point = option(
        "values of those that do not vary (default 4096,10,2)", default=DEFAULTS.default, parse=_point, metavar="K,EPS,M"
    )
    elsewhere: tuple[str, ...] | None = option(
        "dictionaries made from other photographs, to try (default of SIFT: bundled)", metavar="FILE"
    )
    word_samples: int = option("samples of a search (default 100000)", default=DEFAULTS.most, parse=at_least(1))
    false: int = option(
        "photographs of elsewhere in each turn (default %(default)s)", default=3, parse=at_least(0), metavar="N"
    )
    retrieval_words: int = option(
        "words of the dictionary of all scenes, for retrieval (default %(default)s)",
        default=16384,
        parse=at_least(2),
        metavar="K",
    )
    workers: int = option("processes (default 2)", default=2, parse=at_least(1))
    figure: Path | None = option("draw shares and inliers (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def folds_of(scene: ReferenceScene, features: dict[str, Features], arguments: EvaluateLocalization) -> list[Fold]:
    """The maps of one scene that together hold out each photograph once."""
    protocol = QueryProtocol(folds=arguments.folds, workers=arguments.workers)
    with tempfile.TemporaryDirectory(prefix="veil-localization-") as workdir, Bar(f"{scene.name}: mapping") as bar:
        return fold_maps(reference_place(scene, features), protocol, workdir=Path(workdir), progress=bar)


def false_queries(
    names: Sequence[str], features: Mapping[str, dict[str, Features]], folds: Sequence[Fold], arguments: EvaluateLocalization
) -> list[dict[str, Features]]:
    """False queries for each fold: photographs of the scenes `names`, spread evenly over all of these."""
    pool = [(f"{name}/{photo}", item) for name in names for photo, item in sorted(features[name].items())]
    step = max(1, len(pool) // max(1, arguments.false * len(folds)))
    chosen = pool[::step]
    return [dict(chosen[index :: len(folds)][: arguments.false]) for index in range(len(folds))]


def trials_of(
    name: str,
    folds: Sequence[Fold],
    settings: Sequence[Setting],
    strangers: Sequence[dict[str, Features]],
    named: Mapping[str, Codebook],
    books: DescriptorBooks,
    arguments: EvaluateLocalization,
) -> Iterator[Trial]:
    """Trials of all settings on all folds of the scene `name`, from several processes.

    `strangers` are the false queries of each fold, `named` dictionaries of other photographs, `books` those of subspaces.
    """
    jobs = [
        (fold, setting, false, named, books)
        for fold, false in zip(folds, strangers, strict=True)
        for setting in _batches(settings, arguments.workers)
    ]
    # COLMAP's own threads forbid forking.
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn"), initializer=quiet_colmap) as pool:
        for trials in progress(pool.map(_run_job, jobs), f"{name}: localizing", total=len(jobs)):
            yield from trials


def summed_up(
    scene: ReferenceScene, features: Mapping[str, Features], settings: Sequence[Setting], trials: Sequence[Trial]
) -> list[LocalizationRow]:
    """One row for each setting, from its trials on a scene whose photographs have these features."""
    thresholds, extent = (METRIC, 1.0) if scene.metric else (RELATIVE, extent_of(scene.cam_from_world))
    return [
        localization_row(
            setting,
            [trial for trial in trials if trial.setting == setting],
            descriptor=next(iter(features.values())).space.descriptor,
            features=float(np.median([len(item) for item in features.values()])),
            thresholds=thresholds,
            extent=extent,
        )
        for setting in settings
    ]


def _batches(settings: Sequence[Setting], count: int) -> list[list[Setting]]:
    """At most `count` batches of settings; those that share a dictionary stay together, so that it is made once."""
    keys = list(dict.fromkeys((setting.dictionary, setting.words) for setting in settings))
    return [
        batch
        for index in range(count)
        if (batch := [item for item in settings if keys.index((item.dictionary, item.words)) % count == index])
    ]


def _run_job(job: tuple[Fold, list[Setting], dict[str, Features], Mapping[str, Codebook], DescriptorBooks]) -> list[Trial]:
    """Trials of one job: a fold, settings, its false queries, named dictionaries, and what subspaces need."""
    fold, settings, strangers, named, books = job
    with single_blas():
        localizer = FoldLocalizer(fold=fold, codebook=books.codebook, decoys=books.decoys, named=named)
        return list(run_settings(localizer, settings, strangers))


def extent_of(poses: Mapping[str, Rigid]) -> float:
    """Length of the diagonal of the box around the reference cameras, in units of the reference."""
    centers = np.array([pose.center for pose in poses.values()])
    return float(np.linalg.norm(np.ptp(centers, axis=0)))
