"""How often mapping from lines begins with the right four cameras: seeded runs over scenes with reference cameras.

    python lab/benchmarks/seeds.py strecha/fountain-P11 strecha/Herz-Jesus-P8 strecha/entry-P10 strecha/castle-P19

A seed is right if no relative rotation of its four cameras is off by half a degree (that is before any map adjusts them).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from veil.cli.common import quiet_colmap
from veil.geometry.similarity import pairwise_rotation_deg
from veil.places.maps.lines import LineMapOptions
from veil.places.maps.lines.incremental import quad_batches, ranked_seeds
from veil.places.maps.lines.problem import mapping_problem
from veil.trials.line_maps import MappableScene, line_views, subject_graph
from veil_lab.cli.evaluate.reconstruction import read_subject
from veil_lab.files.scenes import read_scene

RIGHT_DEG = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--gravity-noise", type=float, default=0.0)
    arguments = parser.parse_args()
    quiet_colmap()
    total = right = 0
    for folder in arguments.scenes:
        subject = read_subject(read_scene(folder), max_features=8192, first_octave=-1, workers=2)
        errors = [_error_deg(subject, seed, arguments.gravity_noise) for seed in tqdm(range(arguments.seeds), leave=False)]
        good = sum(error < RIGHT_DEG for error in errors)
        total, right = total + len(errors), right + good
        print(f"{subject.name:16} {good} of {len(errors)} right; median {np.median(errors):.3f}, worst {max(errors):.3f} deg")
    print(f"{right} of {total} seeds are right ({right / total:.1%})")


def _error_deg(subject: MappableScene, seed: int, noise_deg: float) -> float:
    """Worst relative rotation of the seed that a map would begin with; infinite if there is none."""
    problem = mapping_problem(line_views(subject, seed=seed, gravity_noise_deg=noise_deg), subject_graph(subject))
    options = LineMapOptions()
    ranked = ranked_seeds(problem, next(quad_batches(problem, options), []), options).ranked
    if not ranked:
        return float("inf")
    quad, best = ranked[0]
    reference = [subject.reference[problem.tracks.names[image]] for image in quad.images]
    return max(
        pairwise_rotation_deg([best.cam_from_world[a], best.cam_from_world[b]], [reference[a], reference[b]])
        for a in range(4)
        for b in range(a)
    )


if __name__ == "__main__":
    main()
