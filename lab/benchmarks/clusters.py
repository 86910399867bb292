"""Maps by clusters against one uncut map of the same matches: position errors, times, and false joins at repeated facades.

    python lab/benchmarks/clusters.py [--images 200 ...] [--size 60] [--seeds 20] [--street-images 160]

The world is planted (`tests/worlds/streets.py`): cameras a meter apart once around a block of facades, matches with a tenth
of accidents, no descriptor work. The first rows give, for the uncut map, the map by clusters, and COLMAP's global mapper on the
database of verified pairs of the uncut map, the registered images, the median and the largest position error in meters after
alignment of the centers, and the time as a ratio to the uncut map. `--seeds` counts false joins: streets in which two facades
are the same, mapped by clusters; a join is false if a model has a camera more than `--false-m` meters off. Clusters run one
after another.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.geometry.similarity import align_centers, pose_error
from veil.places.maps import MapOptions, NoMap, build_map
from veil.places.maps.clusters.of_positions import map_in_clusters
from veil.places.maps.clusters.view_graph import ClusterOptions
from worlds.streets import Street, street

OPTIONS = MapOptions(max_ratio=0.9)


def errors_m(poses: dict[str, Rigid], place: Street) -> tuple[float, float]:
    """Median and largest position error after alignment of the centers."""
    names = sorted(poses)
    aligned = align_centers([poses[n] for n in names], [place.poses[n] for n in names])
    errors = [pose_error(poses[n], place.poses[n], aligned)[0] for n in names]
    return float(np.median(errors)), float(np.max(errors))


def global_poses(database: Path, folder: Path) -> dict[str, Rigid]:
    """Poses of the largest model of COLMAP's global mapper from a database of verified pairs."""
    import pycolmap

    pycolmap.logging.minloglevel = 2  # it looks for photographs, to color the points, and there are none
    options = pycolmap.GlobalPipelineOptions()
    options.random_seed = 0
    options.mapper.bundle_adjustment.refine_focal_length = False
    options.mapper.bundle_adjustment.refine_extra_params = False
    models = pycolmap.global_mapping(database, folder, folder, options=options)
    if not models:
        return {}
    best = max(models.values(), key=lambda model: model.num_reg_images())
    return {best.images[i].name: rigid_from_colmap(best.images[i].cam_from_world()) for i in best.reg_image_ids()}


def row(what: str, poses: dict[str, Rigid], place: Street, seconds: float, beside: float) -> None:
    """Print one row of the comparison."""
    if len(poses) < 3:
        print(f"  {what:<10} no map", flush=True)
        return
    median, largest = errors_m(poses, place)
    print(
        f"  {what:<10} images {len(poses):>5}  median {median:.3f} m  largest {largest:.3f} m  time {seconds / beside:.2f}",
        flush=True,
    )


def compare(count: int, size: int, seed: int) -> None:
    """Print the uncut map, the map by clusters, and the global mapper for one street."""
    place = street(seed, count)
    print(f"{count} images, clusters of {size}, {len(place.matches)} pairs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        uncut = build_map(place.images, place.matches, workdir=Path(folder), options=OPTIONS)
        whole = time.perf_counter() - began
        if isinstance(uncut, NoMap):
            print(f"  uncut: {uncut.reason}")
        else:
            row("uncut", {n: i.cam_from_world for n, i in uncut.images.items()}, place, whole, whole)
        (output := Path(folder) / "global").mkdir()
        began = time.perf_counter()
        poses = global_poses(Path(folder) / "database.db", output)
        row("global", poses, place, time.perf_counter() - began, whole)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        clustered = map_in_clusters(
            place.images, place.matches, workdir=Path(folder), options=OPTIONS, clusters=ClusterOptions(size=size)
        )
        seconds = time.perf_counter() - began
    if isinstance(clustered, NoMap):
        print(f"  clusters: {clustered.reason}")
    else:
        poses = {n: i.cam_from_world for n, i in clustered.maps[0].images.items()}
        row(f"{len(clustered.clusters)} clusters", poses, place, seconds, whole)


def repeated_facades(count: int, size: int, seeds: range, false_m: float, points: int) -> None:
    """Print, for each seed, what becomes of a street with two equal facades."""
    folded = 0
    for seed in seeds:
        place = street(seed, count, repeated=True, points_each=points)
        with tempfile.TemporaryDirectory() as folder:
            clustered = map_in_clusters(
                place.images, place.matches, workdir=Path(folder), options=OPTIONS, clusters=ClusterOptions(size=size)
            )
        if isinstance(clustered, NoMap):
            print(f"  seed {seed}: no map: {clustered.reason}", flush=True)
            continue
        models = [{n: i.cam_from_world for n, i in s.images.items()} for s in clustered.maps]
        worst = max(errors_m(poses, place)[1] for poses in models)
        folded += worst > false_m
        sizes = "+".join(str(len(poses)) for poses in models)
        print(f"  seed {seed}: {len(place.wrong_pairs)} wrong pairs, models {sizes}, largest error {worst:.2f} m", flush=True)
    print(f"false joins: {folded} of {len(seeds)} seeds, {count} images in clusters of {size}", flush=True)


def main() -> None:
    """Print the comparison and the count of false joins."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="*", default=[200])
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20, help="streets with two equal facades (default 20; 0 for none)")
    parser.add_argument("--first-seed", type=int, default=0, help="of these streets (default 0)")
    parser.add_argument("--street-images", type=int, default=160)
    parser.add_argument("--street-points", type=int, default=100, help="points of each facade of those streets (default 100)")
    parser.add_argument("--false-m", type=float, default=2.0)
    asked = parser.parse_args()
    for count in asked.images:
        compare(count, asked.size, 0)
    if asked.seeds:
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        repeated_facades(asked.street_images, asked.size, seeds, asked.false_m, asked.street_points)


if __name__ == "__main__":
    main()
