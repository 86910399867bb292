"""How often mapping from lines begins with the right four cameras: seeded runs over scenes.

    python lab/benchmarks/seeds.py strecha/fountain-P11 strecha/Herz-Jesus-P8 strecha/entry-P10 strecha/castle-P19
    python lab/benchmarks/seeds.py smartphone_monstree --each 15 --camera SIMPLE_RADIAL,1254.6,567,756,0.0027

A run draws new lines. The first seed is the one that a map would begin with. `--each N` judges the seeds of the N quadruplets
that share most tracks instead, each by itself, as [G20], Fig. 5, judges 15 random ones. A seed is right if no relative
rotation of its four cameras is off by half a degree, before any map adjusts them. Positions are percent of the extent of the
four cameras, after similarity alignment. Gravity is measured where the scene has readings, else exact; noise comes on top of
both. The reference is COLMAP's map of the raw keypoints where the scene has no reference cameras.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.cli.common import quiet_colmap
from veil.geometry.similarity import pairwise_rotation_deg
from veil.places.maps.lines import LineMapOptions
from veil.places.maps.lines.incremental import quad_batches, ranked_seeds
from veil.places.maps.lines.problem import mapping_problem
from veil.trials.line_maps import MappableScene, line_views, subject_graph
from veil_lab.cli.evaluate.reconstruction import subject_of
from veil_lab.files.scenes import read_scene
from veil_lab.studies.board.split import map_errors
from veil_lab.studies.localization.answer_counts import extent_of
from veil_lab.studies.mapping.reconstruction import map_points

RIGHT_DEG = 0.5
COLUMNS = (
    "scene",
    "gravity",
    "noise, degrees",
    "seeds",
    "right",
    "rotation, degrees",
    "worst",
    "position, %",
    "worst position",
)
# Rotation in degrees and position in percent of the worst camera of a seed.
Errors = tuple[float, float]


def main() -> None:
    """Print a row for each scene and noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, also below VEIL_DATA")
    parser.add_argument("--seeds", type=int, default=10, help="runs (default %(default)s)")
    parser.add_argument("--each", type=int, metavar="N", help="judge N quadruplets a run (default: the first seed)")
    parser.add_argument("--gravity-noise", type=float, nargs="+", default=[0.0], help="degrees about each axis")
    parser.add_argument("--camera", help="intrinsics of scenes without reference cameras, as MODEL,P1,...")
    parser.add_argument("--max-features", type=int, default=8192, help="per image (default %(default)s)")
    arguments = parser.parse_args()
    arguments.gravity, arguments.workers, arguments.json = None, 2, None
    quiet_colmap()
    subjects = [mappable(name, arguments) for name in arguments.scenes]
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}", flush=True)
    for subject in subjects:
        for noise in arguments.gravity_noise:
            print(f"| {' | '.join(row(subject, noise, arguments))} |", flush=True)


def mappable(name: str, arguments: argparse.Namespace) -> MappableScene:
    """The scene of a folder, also below VEIL_DATA, with COLMAP's cameras where it has none."""
    folder = Path(name) if Path(name).is_dir() else Path(os.environ["VEIL_DATA"]) / name
    subject = subject_of(read_scene(folder), arguments)
    return subject if subject.reference else replace(subject, reference=map_points(subject).cam_from_world)


def row(subject: MappableScene, noise: float, arguments: argparse.Namespace) -> tuple[str, ...]:
    """The cells of a scene and a noise."""
    errors = [item for seed in range(arguments.seeds) for item in seed_errors(subject, seed, noise, arguments.each)]
    turned, moved = np.array(errors).T
    return (
        subject.name,
        "measured" if subject.gravity_is_measured else "exact",
        f"{noise:g}",
        str(len(errors)),
        str(int((turned < RIGHT_DEG).sum())),
        f"{np.median(turned):.3f}",
        f"{turned.max():.3f}",
        f"{np.median(moved):.2f}",
        f"{moved.max():.2f}",
    )


def seed_errors(subject: MappableScene, seed: int, noise_deg: float, each: int | None) -> list[Errors]:
    """Errors of the first seed of a run, or of the seeds of `each` quadruplets; infinite where there is none."""
    problem = mapping_problem(line_views(subject, seed=seed, gravity_noise_deg=noise_deg), subject_graph(subject))
    options = LineMapOptions() if each is None else LineMapOptions(quads=each)
    quads = next(quad_batches(problem, options), [])
    groups = [quads] if each is None else [[quad] for quad in quads]
    found: list[Errors] = []
    for group in groups:
        ranked = ranked_seeds(problem, group, options).ranked
        if not ranked:
            found.append((float("inf"), float("inf")))
            continue
        quad, best = ranked[0]
        names = [problem.tracks.names[image] for image in quad.images]
        own = {name: best.cam_from_world[place] for place, name in enumerate(names)}
        reference = {name: subject.reference[name] for name in names if name in subject.reference}
        if len(reference) < len(names):
            continue  # the reference does not know one of the four
        turned = max(
            pairwise_rotation_deg([own[a], own[b]], [reference[a], reference[b]]) for a in names for b in names if b < a
        )
        found.append((turned, 100 * max(map_errors(own, reference)) / extent_of(reference.values())))
    return found


if __name__ == "__main__":
    main()
