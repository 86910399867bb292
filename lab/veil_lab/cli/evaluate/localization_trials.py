"""Maps with held-out photographs and trials of them for `veil evaluate localization`, in several processes."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from veil.cli.common import Bar, progress, quiet_colmap
from veil.codebooks.codebook import Codebook
from veil.device.descriptor_books import DescriptorBooks
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.threads import single_blas
from veil_lab.cli.evaluate.queries import reference_place
from veil_lab.files.scenes import ReferenceScene
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps
from veil_lab.studies.localization.word_localization import FoldLocalizer, run_settings
from veil_lab.studies.localization.word_localization_settings import (
    METRIC,
    RELATIVE,
    LocalizationRow,
    Setting,
    Trial,
    localization_row,
)


def folds_of(scene: ReferenceScene, features: dict[str, Features], arguments: argparse.Namespace) -> list[Fold]:
    """The maps of one scene that together hold out each photograph once."""
    protocol = QueryProtocol(folds=arguments.folds, workers=arguments.workers)
    with tempfile.TemporaryDirectory(prefix="veil-localization-") as workdir, Bar(f"{scene.name}: mapping") as bar:
        return fold_maps(reference_place(scene, features), protocol, workdir=Path(workdir), progress=bar)


def false_queries(
    names: Sequence[str], features: Mapping[str, dict[str, Features]], folds: Sequence[Fold], arguments: argparse.Namespace
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
    arguments: argparse.Namespace,
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
    thresholds, extent = (METRIC, 1.0) if scene.metric else (RELATIVE, _extent(scene.cam_from_world))
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


def _extent(poses: Mapping[str, Rigid]) -> float:
    """Length of the diagonal of the box around the reference cameras, in units of the reference."""
    centers = np.array([pose.center for pose in poses.values()])
    return float(np.linalg.norm(np.ptp(centers, axis=0)))
