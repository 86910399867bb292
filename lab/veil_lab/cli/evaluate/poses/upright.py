"""`veil evaluate upright`: queries in words with keypoints and gravity, at small epsilons of the image."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from veil.audit.statistics import clopper_pearson
from veil.cli.common import (
    Bar,
    Commands,
    at_least,
    progress,
    quiet_colmap,
    say_table,
    write_json,
)
from veil.cli.records import add_record_command, json_file, option
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.ldp.rounding import outward
from veil.report.tables import Name, Number, Table, fixed, interval, numbers
from veil.threads import single_blas
from veil_lab.cli.evaluate.scene_arguments import (
    AskedExtraction,
    AskedFolds,
    AskedScenes,
    extracted_features,
    reference_place,
    stranger_features,
)
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps
from veil_lab.studies.localization.upright_localization import (
    UprightRow,
    UprightSetting,
    UprightTrial,
    run_upright,
    upright_row,
)

Point = tuple[int, float, int]
# Standard deviation of gravity, and strangers at most, evenly taken.
GRAVITY_NOISE_DEG, MOST_STRANGERS = 0.5, 400
EXAMPLES = """\
  veil evaluate upright strecha/fountain-P11 strecha/castle-P19 --json upright.json
  veil evaluate upright lund_door --strangers photos/bsds500 --mirrored --only-false --operating-points 1000,5,2
  veil evaluate upright strecha/fountain-P11 --operating-points 1000,3,2 --nearest 3
"""


def _point(text: str) -> Point:
    """The features, epsilon and m that an argument names."""
    try:
        features, epsilon, m = text.split(",")
        return int(features), float(epsilon), int(m)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be N,EPSILON,M as 1000,4,2, got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class EvaluateUpright(AskedScenes, AskedExtraction, AskedFolds):
    """Hold out photographs of each scene in turn, map the others from raw features, and localize the held-out ones from
    words, keypoint positions and a gravity that is off by some tenths of a degree; ask about strangers and mirrored
    photographs, too, which must be refused. Strangers are spread over the scenes. A query takes one thread, and
    some three seconds for each operating point.
    """

    operating_points: tuple[Point, ...] = option(
        "features sent, epsilon of each, and words of each (default 1000,5,2 1000,4,2 1000,3,2)",
        default=((1000, 5.0, 2), (1000, 4.0, 2), (1000, 3.0, 2)),
        parse=_point,
        metavar="N,EPS,M",
    )
    word_count: int = option(
        "number of words in the dictionary (default %(default)s)", default=4096, parse=at_least(2), metavar="K"
    )
    bundled: bool = option("words of the bundled dictionary, in place of one of the mapped photographs", default=False)
    nearest: int = option("images of the map that are known to be near (default 0)", default=0, parse=at_least(0), metavar="N")
    strangers: Path | None = option("photographs of none of these places", metavar="FOLDER")
    mirrored: bool = option("ask mirrored photographs of each scene", default=False)
    only_false: bool = option("ask nothing but strangers and mirrored photographs", default=False)
    workers: int = option("processes (default 2)", default=2, parse=at_least(1))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate upright` to the subparsers `protocols`."""
    summary = "words with positions and gravity, at small epsilons of the image"
    add_record_command(protocols, "upright", summary, EXAMPLES, EvaluateUpright, _upright)


def _upright(arguments: EvaluateUpright) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = [
        UprightSetting(
            features=features,
            epsilon=epsilon,
            m=m,
            words=len(bundled_codebook()) if arguments.bundled else arguments.word_count,
            bundled=arguments.bundled,
            gravity_sigma_deg=GRAVITY_NOISE_DEG,
            near=arguments.nearest,
        )
        for features, epsilon, m in arguments.operating_points
    ]
    scenes = [read_scene(folder) for folder in arguments.scenes]
    strangers = list(stranger_features(arguments.strangers, max_features=arguments.max_features, most=MOST_STRANGERS).items())
    metric = {scene.name: scene.metric for scene in scenes}
    extent = {scene.name: extent_of(scene) for scene in scenes}
    trials: list[UprightTrial] = []
    rows: list[UprightRow] = []
    for index, scene in enumerate(scenes):
        own = dict(strangers[index :: len(scenes)])
        own_trials = list(_trials(scene, settings, own, arguments))
        trials += own_trials
        rows += _rows(own_trials, settings, scene.name, metric, extent)
        say_table(arguments, upright_table(rows[-len(settings) :]))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    if len(scenes) > 1:
        rows += _rows(trials, settings, "all", metric, extent)
        say_table(arguments, upright_table(rows[-len(settings) :]))
    write_json(arguments.json, {"rows": [row.as_json() for row in rows]})
    return 0


def _rows(
    trials: Sequence[UprightTrial],
    settings: Sequence[UprightSetting],
    scene: str,
    metric: Mapping[str, bool],
    extent: Mapping[str, float],
) -> list[UprightRow]:
    """A row for each setting that was asked."""
    own = [[trial for trial in trials if trial.setting == setting] for setting in settings]
    return [upright_row(group, scene, metric, extent) for group in own if group]


def _trials(
    scene: ReferenceScene, settings: Sequence[UprightSetting], strangers: dict[str, Features], arguments: EvaluateUpright
) -> Iterator[UprightTrial]:
    """Trials of one scene, its maps in several processes."""
    folds = scene_folds(scene, folds=arguments.folds, workers=arguments.workers, max_features=arguments.max_features)
    names = list(strangers)
    jobs = [
        MapQueries(
            fold=fold,
            settings=settings,
            strangers={name: strangers[name] for name in names[index :: len(folds)]},
            true=not arguments.only_false,
            mirrored=arguments.mirrored,
        )
        for index, fold in enumerate(folds)
    ]
    for trials in run_jobs(jobs, workers=arguments.workers, title=f"{scene.name}: localizing"):
        yield from trials


def scene_folds(scene: ReferenceScene, *, folds: int, workers: int, max_features: int, first_octave: int = 0) -> list[Fold]:
    """Maps of a scene with photographs held out."""
    protocol = QueryProtocol(folds=folds, workers=workers)
    place = reference_place(scene, extracted_features(scene, max_features=max_features, first_octave=first_octave))
    with tempfile.TemporaryDirectory(prefix="veil-upright-") as workdir, Bar(f"{scene.name}: mapping") as bar:
        return fold_maps(place, protocol, workdir=Path(workdir), progress=bar)


@dataclass(frozen=True, kw_only=True, eq=False)
class MapQueries:
    """What one map is asked: its held-out photographs (`true`), strangers, and mirrored photographs."""

    fold: Fold
    settings: Sequence[UprightSetting]
    strangers: Mapping[str, Features] = field(default_factory=dict)
    true: bool = True
    mirrored: bool = False

    def run(self) -> list[UprightTrial]:
        """The trials."""
        with single_blas():
            return list(run_upright(self.fold, self.settings, self.strangers, mirrored=self.mirrored, true=self.true))


def run_jobs(jobs: Sequence[MapQueries], *, workers: int, title: str) -> Iterator[list[UprightTrial]]:
    """The trials of each job in turn, in several processes if there are several workers."""
    if workers == 1:
        yield from (job.run() for job in progress(jobs, title))
        return
    # COLMAP's own threads forbid forking.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=quiet_colmap) as pool:
        yield from progress(pool.map(MapQueries.run, jobs), title, total=len(jobs))


def extent_of(scene: ReferenceScene) -> float:
    """Length of the diagonal of the box around the reference cameras, in units of the reference."""
    centers = np.array([pose.center for pose in scene.cam_from_world.values()])
    return float(np.linalg.norm(np.ptp(centers, axis=0)))


def upright_table(rows: Sequence[UprightRow]) -> Table:
    """The table of one scene, or of all: true queries, then false ones, where there are any."""
    sent = "features", "epsilon", "m", "epsilon of image", "gravity, deg", "near"
    true = "right", "95 % interval", "accepted", "turned by more than 5 deg"
    false = "false accepted", "least false log10 NFA", "median, s", "most, s"
    return Table(
        columns=[Number("#"), Name("scene"), *numbers(*sent, *true, *false)],
        rows=[(str(number), *_cells(row)) for number, row in enumerate(rows, start=1)],
        labels=2,
    )


def _cells(row: UprightRow) -> tuple[str, ...]:
    """The cells of a row; what was not asked is empty."""
    setting = row.setting
    true: tuple[str, ...] = ("",) * 4
    if row.queries:
        low, high = clopper_pearson(row.right, row.queries, confidence=0.95)
        true = f"{row.right} of {row.queries}", interval(low, high, 0), str(row.accepted), str(row.astray)
    return (
        row.scene,
        str(setting.features),
        outward(setting.epsilon, 6),
        str(setting.m),
        outward(setting.epsilon_image),
        f"{setting.gravity_sigma_deg:g}",
        str(setting.near or ""),
        *true,
        f"{row.false_accepts} of {row.false_queries}" if row.false_queries else "",
        fixed(row.least_false_log10_nfa, 1),
        fixed(row.median_seconds, 1),
        fixed(row.most_seconds, 1),
    )
