"""`veil evaluate reconstruction`: maps from lines and from points against reference cameras."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veil.cli.common import (
    Arguments,
    Bar,
    Commands,
    at_least,
    explain,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.device.inverting import network_of
from veil.errors import InputError
from veil.extraction.sift import MAX_FEATURES, SiftOptions, extract_sift
from veil.features import Features
from veil.files.attack_networks import bundled_inverter
from veil.files.photographs.gravity import read_gravity
from veil.files.photographs.pictures import read_picture, read_rgb
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.inversion.maps import Frame
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.lines import RULE_NAMES, RuleName, rule_of
from veil.mechanisms.public import publish
from veil.report.tables import Table, names, numbers
from veil.trials.line_maps import MappableScene, map_lines
from veil.trials.position_leakage import PositionLeakage
from veil.trials.reconstruction_run import Run
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.report.attacks import draw_inversions
from veil_lab.report.localization import draw_curve, draw_maps
from veil_lab.studies.mapping.reconstruction import map_points
from veil_lab.studies.pictures.inversion import RAW, Inverted, mean_row
from veil_lab.studies.pictures.map_pictures import evenly, map_pictures

# The image is doubled before SIFT begins, as COLMAP does.
FIRST_OCTAVE = -1
SHOWN = 3  # photographs in --reconstructions
EXAMPLES = """\
  veil evaluate reconstruction strecha/fountain-P11 strecha/entry-P10 --json maps.json --figure maps.png
  veil evaluate reconstruction strecha/fountain-P11 --gravity-noise 0 0.25 0.5 1 2 --curve noise.png
  veil evaluate reconstruction lund_door --draws 1 --max-features 2000 --reconstructions pictures.png
  veil evaluate reconstruction phone/ --camera SIMPLE_RADIAL,1254.6,567,756,0.0027    no reference: COLMAP's is one
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateReconstruction(Record):
    """Map each scene from random lines (half of them along gravity) and, with the same features and matches, from raw
    keypoints by COLMAP. A scene is a folder with images/ and K.txt + gt_dense_cameras/ or a COLMAP text model, and
    optionally gravity.csv; without reference cameras, COLMAP's map of the raw keypoints is the reference.
    Gravity is the table's where there is one, else exact.
    """

    scenes: tuple[Path, ...] = positional("folders of scenes", metavar="SCENE")
    draws: int = option("draws of lines (default %(default)s)", default=5, parse=at_least(1))
    gravity_noise: tuple[float, ...] = option(
        "standard deviations of gravity about each axis, to try (default 0)", default=(0.0,), metavar="DEG"
    )
    line_rule: RuleName = option("how lines are drawn (default random)", default="random", choices=RULE_NAMES)
    gravity: Path | None = option("table image,x,y,z in place of the scenes' own gravity", metavar="CSV")
    camera: str | None = option("intrinsics of scenes without reference cameras", metavar="MODEL,P1,...")
    methods: tuple[str, ...] = option(
        "what maps are made from (default both)", default=("lines", "points"), choices=("lines", "points")
    )
    max_features: int = option("features per image at most (default %(default)s)", default=MAX_FEATURES)
    workers: int = option("image pairs at a time that are matched (default 2)", default=2, parse=at_least(1))
    figure: Path | None = option("draw cameras and points of each scene (.png or .svg)", parse=picture, metavar="FILE")
    curve: Path | None = option("draw success against gravity noise (.png or .svg)", metavar="FILE")
    reconstructions: Path | None = option(
        "draw reconstructions from all keypoints, and from the map of lines, beside photographs", parse=picture, metavar="FILE"
    )
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate reconstruction` to the subparsers `protocols`."""
    summary = "maps from lines alone, and from points, against reference cameras"
    add_record_command(protocols, "reconstruction", summary, EXAMPLES, EvaluateReconstruction, _reconstruction)


def _reconstruction(arguments: EvaluateReconstruction) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    scenes = [read_scene(folder) for folder in arguments.scenes]
    for scene in scenes:  # before any long work
        _check(scene, arguments)
    runs: list[Run] = []
    shown: dict[str, list[Inverted]] = {}
    for number, scene in enumerate(scenes):
        subject = subject_of(scene, arguments)
        for run in _runs(subject, arguments, warm=number > 0):
            runs.append(run)
            explain(arguments, _line(run))
            if arguments.reconstructions and run.leakage is not None and run.method == "lines" and scene.name not in shown:
                shown[scene.name] = _pictures(scene, subject, run.leakage)
        write_json(arguments.json if str(arguments.json) != "-" else None, {"runs": [run.as_json() for run in runs]})
    write_json(arguments.json, {"runs": [run.as_json() for run in runs]})
    say(arguments, "")
    say_table(arguments, summary_table(runs))
    if arguments.reconstructions and shown:
        say(arguments, "")
        say_table(arguments, picture_table(shown))
        _draw_pictures(arguments.reconstructions, scenes, shown)
        report(arguments, arguments.reconstructions, "the pictures")
    if arguments.figure:
        draw_maps(arguments.figure, runs, {scene.name: scene.cam_from_world for scene in scenes})
        report(arguments, arguments.figure, "the maps")
    if arguments.curve:
        draw_curve(arguments.curve, runs)
        report(arguments, arguments.curve, "the curve")
    return 0


def _check(scene: ReferenceScene, arguments: EvaluateReconstruction) -> None:
    """Raise InputError for a scene that cannot be mapped with these arguments."""
    if len(scene.pictures) < 4:
        raise InputError(f"{scene.name}: mapping from lines needs at least four photographs, got {len(scene.pictures)}")
    if not scene.cam_from_world and arguments.camera is None:
        raise InputError(f"{scene.name} has no reference cameras: give the intrinsics with --camera MODEL,P1,...")
    if not scene.cam_from_world and not (scene.gravity or arguments.gravity):
        raise InputError(f"{scene.name} has neither reference cameras nor gravity.csv: run `veil gravity`, give --gravity")


def subject_of(scene: ReferenceScene, arguments: Arguments, *, first_octave: int = FIRST_OCTAVE) -> MappableScene:
    """The subject of `scene`, extracted and matched, with the camera and gravity that the command line gives, if any.

    Photographs without reference cameras that have not the most common size are left out, and the command says so.
    `arguments` are those of the command: `camera`, `gravity`, `max_features` and `workers`.
    """
    camera = arguments.camera
    if not scene.cameras:
        sizes = Counter(_shape(path) for path in scene.pictures.values())
        (height, width), count = sizes.most_common(1)[0]
        if count < len(scene.pictures):
            left_out = len(scene.pictures) - count
            say(arguments, f"{scene.name}: left out {left_out} photographs that are not {width}x{height}, as --camera is")
        same = {name: path for name, path in scene.pictures.items() if _shape(path) == (height, width)}
        scene = replace(scene, pictures=same, cameras=dict.fromkeys(same, Camera.parse(camera, width, height)))
    if arguments.gravity:
        scene = replace(scene, gravity=read_gravity(arguments.gravity))
    return read_subject(scene, max_features=arguments.max_features, first_octave=first_octave, workers=arguments.workers)


def _shape(path: Path) -> tuple[int, int]:
    """Height and width of a photograph in pixels."""
    height, width = read_picture(path).gray.shape
    return height, width


def read_subject(scene: ReferenceScene, *, max_features: int, first_octave: int, workers: int) -> MappableScene:
    """The subject of a scene with known cameras: SIFT features, and matches of all pairs by `workers` at a time.

    Its gravity is measured where the scene has readings, else exact from the reference poses.
    """
    start = time.perf_counter()
    options = SiftOptions(max_features=max_features, first_octave=first_octave)
    features: dict[str, Features] = {}
    for name, path in progress(sorted(scene.pictures.items()), f"{scene.name}: extracting"):
        features[name] = extract_sift(read_picture(path, camera=scene.cameras[name]), options)
    extracted = time.perf_counter()
    with Bar(f"{scene.name}: matching") as bar:
        forms = {name: publish(item) for name, item in features.items()}
        matches = match_pairs(forms, all_pairs(sorted(features)), workers=workers, progress=bar)
    measured = {name: down for name, down in scene.gravity.items() if name in features}
    return MappableScene(
        name=scene.name,
        features=features,
        matches=matches,
        reference=scene.cam_from_world,
        gravity=measured or _exact(scene),
        gravity_is_measured=bool(measured),
        seconds={"extract": extracted - start, "match": time.perf_counter() - extracted},
    )


def _exact(scene: ReferenceScene) -> dict[str, np.ndarray]:
    """Unit vectors of down in each camera's frame from the reference poses, by image name.

    Down is the scene's own vertical, or the mean of the cameras' y-axes where it has none.
    """
    down = scene.down
    if down is None:
        down = np.mean([pose.rotation[1] for pose in scene.cam_from_world.values()], axis=0)
        down /= np.linalg.norm(down)
    return {name: pose.rotation @ down for name, pose in scene.cam_from_world.items()}


def _runs(subject: MappableScene, arguments: EvaluateReconstruction, *, warm: bool) -> Iterator[Run]:
    """Runs of one subject by all methods, noises and seeds; `warm` says that everything is compiled."""
    if "points" in arguments.methods or not subject.reference:
        with Bar(f"{subject.name}: points") as bar:
            run = map_points(subject, progress=bar)
        if not subject.reference:
            subject = replace(subject, reference=_reference(subject.name, run))
        if "points" in arguments.methods:
            yield run
    if "lines" not in arguments.methods:
        return
    rule = rule_of(arguments.line_rule, aligned_share=0.5)
    if not warm:  # what numba compiles once an installation is no part of a map's time
        map_lines(subject, seed=0, rule=rule)
    for noise in arguments.gravity_noise:
        for seed in range(arguments.draws):
            with Bar(f"{subject.name}: lines, seed {seed}") as bar:
                yield map_lines(subject, seed=seed, gravity_noise_deg=noise, rule=rule, progress=bar)


def _reference(name: str, run: Run) -> Mapping[str, Rigid]:
    """Cameras of COLMAP's map, which stand in for reference cameras. Raises InputError where there is no map."""
    if run.reason:
        raise InputError(f"{name} has no reference cameras, and COLMAP found none either: {run.reason}")
    return run.cam_from_world


def _line(run: Run) -> str:
    """The printed line of one map."""
    head = f"{run.scene}: {run.method}, seed {run.seed}"
    head += f", noise {run.gravity_noise_deg:g} deg" if run.method == "lines" else ""
    if run.position is None or run.rotation_deg is None or run.leakage is None:
        return f"{head}: {run.registered} of {run.total} images: {run.reason}"
    text = f"{head}: {run.registered} of {run.total} images, {len(run.points)} points in {run.seconds['map']:.1f} s; position "
    text += f"error {run.position.mean:.4g} (at most {run.position.max:.4g}), rotation error {run.rotation_deg.mean:.3f} deg "
    text += f"(between pairs {run.pairwise_rotation_deg:.3f})"
    if run.method == "lines":
        text += f"; the map tells {run.leakage.share:.0%} of the hidden positions to {run.leakage.median_px:.2f} px"
    if run.aligned_share is not None:
        text += f", and the horizontal coordinate of {run.aligned_share:.0%}"
    return text


def _pictures(scene: ReferenceScene, subject: MappableScene, leakage: PositionLeakage) -> list[Inverted]:
    """Pictures of the photographs of a scene, from all keypoints and from the map of lines."""
    photographs = {name: read_rgb(scene.pictures[name]) for name in subject.features}
    return map_pictures(photographs, subject.features, leakage, raw=network_of(bundled_inverter()))


def _draw_pictures(path: Path, scenes: Sequence[ReferenceScene], shown: Mapping[str, list[Inverted]]) -> None:
    """Draw some photographs of the first scene that was mapped, beside its pictures."""
    name, pictures = next(iter(shown.items()))
    files = next(scene for scene in scenes if scene.name == name).pictures
    originals = {}
    for item in evenly(sorted({item.name for item in pictures}), SHOWN):
        rgb = read_rgb(files[item])
        originals[item] = Frame(width=rgb.shape[1], height=rgb.shape[0]).crop(rgb)
    draw_inversions(path, originals, pictures, m=0, title=f"{name}, from all keypoints and from a map of lines, with SSIM")


def picture_table(shown: Mapping[str, Sequence[Inverted]]) -> Table:
    """The table of mean similarities to the photographs, by scene and by what the pictures are drawn from."""
    rows = []
    for name, pictures in shown.items():
        for attack in dict.fromkeys(item.attack for item in pictures):
            row = mean_row([item for item in pictures if item.attack == attack])
            known = f"{np.mean([item.features for item in pictures if item.attack == attack]):.0f}"
            interval = f"{row.interval[0]:.3f} to {row.interval[1]:.3f}"
            cells = (f"{100 * row.decided:.0f}", known, f"{row.mae:.3f}", f"{row.ssim:.3f}", interval, f"{row.psnr:.2f}")
            rows.append((name, "all keypoints" if attack == RAW else attack, str(row.pictures), *cells))
    columns = "pictures", "features known, %", "in a picture", "MAE", "SSIM", "95 % interval", "PSNR, dB"
    return Table(columns=[*names("scene", "from"), *numbers(*columns)], rows=rows, labels=2)


def summary_table(runs: Sequence[Run]) -> Table:
    """The table of the command: median and worst errors over the seeds, by scene, method and noise."""
    errors = "position, median", "worst", "rotation, median deg", "rotation, worst deg"
    return Table(
        columns=[*names("scene", "method"), *numbers("noise, deg", "seeds", "right maps", "least registered", *errors)],
        rows=[
            _summary([run for run in runs if (run.scene, run.method, run.gravity_noise_deg) == key])
            for key in dict.fromkeys((run.scene, run.method, run.gravity_noise_deg) for run in runs)
        ],
        labels=3,
    )


def _summary(group: Sequence[Run]) -> tuple[str, ...]:
    """The cells of runs that differ by their seed alone."""
    first = group[0]
    positions = [run.position.mean for run in group if run.position]
    rotations = [run.rotation_deg.mean for run in group if run.rotation_deg]
    errors: tuple[str, ...] = ("none",) * 4
    if positions:
        position = f"{np.median(positions):.4g}", f"{max(positions):.4g}"
        errors = *position, f"{np.median(rotations):.3f}", f"{max(rotations):.3f}"
    return (
        first.scene,
        first.method,
        f"{first.gravity_noise_deg:g}",
        str(len(group)),
        str(sum(run.succeeded for run in group)),
        f"{min(run.registered for run in group)}/{first.total}",
        *errors,
    )
