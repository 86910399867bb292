"""Is a map that grew, or from which images were removed, as good as one made at once, and what does it cost?

    python lab/benchmarks/growth.py strecha/fountain-P11 [--new 0003.jpg 0007.jpg] [--forms raw hardened]

Each scene is mapped from positions in one run: all images at once, all but the new ones, the new ones added to that, and the
new ones removed from the first. Columns: images registered, points, mean and median distance of the cameras from the
reference's (in its unit, after similarity alignment), the same for the new images alone, seconds of matching and mapping, and
all lines as shares of the first. The codebook and the pool of decoys are the bundled ones, draws are seeded.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.cli.common import quiet_colmap
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.pictures import read_picture
from veil.forms import Form
from veil.geometry.similarity import align_centers, pose_error
from veil.matching import match
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.places.building import map_positions
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.growth import add_positions
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.places.maps.removal import remove_images
from veil.places.pairs.images import LoadedImage
from veil.randomness import seeded
from veil_lab.files.scenes import ReferenceScene, read_scene


def main() -> None:
    """Print one table a scene and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, also below VEIL_DATA")
    parser.add_argument(
        "--new", nargs="+", default=["0003.jpg", "0007.jpg"], help="images that are added (default %(default)s)"
    )
    parser.add_argument("--forms", nargs="+", choices=("raw", "hardened"), default=["raw", "hardened"])
    parser.add_argument("--max-features", type=int, default=2000, help="per image (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="of mapping, each with its own table (default %(default)s)")
    arguments = parser.parse_args()
    quiet_colmap()
    for name in arguments.scenes:
        folder = Path(name)
        scene = read_scene(folder if folder.is_dir() else Path(os.environ["VEIL_DATA"]) / name)
        options = SiftOptions(max_features=arguments.max_features, first_octave=-1)
        features = {
            key: extract_sift(read_picture(path, camera=scene.cameras[key]), options)
            for key, path in sorted(scene.pictures.items())
        }
        for form in arguments.forms:
            images = {
                key: LoadedImage(camera=item.camera, positions=item.keypoints, form=made(item, form))
                for key, item in features.items()
            }
            for seed in range(arguments.seeds):
                print(f"\n{scene.name}, {form}, {arguments.max_features} features, seed {seed}")
                compare(scene, images, arguments.new, MappingOptions(seed=seed))


def made(features: Features, form: str) -> Form:
    """The form of one image."""
    if form == "raw":
        return publish(features)
    return lift(
        features,
        profile=Profile.hardened(quantized=features.is_quantized),
        compression=bundled_codebook().compression,
        decoys=bundled_decoys(),
        randomness=seeded(f"growth {features.image_digest.hex()}"),
    ).form


def compare(scene: ReferenceScene, images: Mapping[str, LoadedImage], new: list[str], options: MappingOptions) -> None:
    """Map all at once, and in two steps, and print both."""
    some = list(images.values())
    match(some[0].form, some[1].form)  # what is compiled once is no part of a map's time
    rows: list[tuple[str, BuiltMap | NoMap, float]] = []
    start = time.perf_counter()
    whole = map_positions(images, options=options)
    rows.append(("all at once", whole, time.perf_counter() - start))
    start = time.perf_counter()
    base = map_positions({name: image for name, image in images.items() if name not in new}, options=options)
    rows.append((f"without {len(new)}", base, time.perf_counter() - start))
    if isinstance(base, BuiltMap):
        start = time.perf_counter()
        grown = add_positions(base.map, {name: images[name] for name in new}, options=options)
        rows.append((f"{len(new)} added", grown, time.perf_counter() - start))
    if isinstance(whole, BuiltMap):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            left = remove_images(whole.map.scene, new, workdir=Path(folder))
        smaller = left if isinstance(left, NoMap) else BuiltMap(map=Map(scene=left.scene), check=None)
        rows.append((f"{len(new)} removed", smaller, time.perf_counter() - start))
    print(f"{'':12} images points    mean  median     new  seconds  mean/all  median/all  seconds/all")
    first: list[float] = []
    for what, built, seconds in rows:
        if isinstance(built, NoMap):
            print(f"{what:12} no map: {built.reason}")
            continue
        errors = errors_of(scene, built)
        mine = [errors[name] for name in new if name in errors]
        values = [float(np.mean(list(errors.values()))), float(np.median(list(errors.values()))), seconds]
        first = first or values
        shares = [value / other for value, other in zip(values, first, strict=True)]
        print(
            f"{what:12} {len(errors):6} {len(built.map.scene.points):6} {values[0]:7.4f} {values[1]:7.4f} "
            f"{np.mean(mine) if mine else np.nan:7.4f} {seconds:8.1f} {shares[0]:9.2f} {shares[1]:11.2f} {shares[2]:12.2f}"
        )


def errors_of(scene: ReferenceScene, built: BuiltMap) -> dict[str, float]:
    """Distance of every camera from the reference's after similarity alignment, by name."""
    poses = {name: image.cam_from_world for name, image in built.map.scene.images.items()}
    names = sorted(poses)
    alignment = align_centers([poses[name] for name in names], [scene.cam_from_world[name] for name in names])
    return {name: pose_error(poses[name], scene.cam_from_world[name], alignment)[0] for name in names}


if __name__ == "__main__":
    main()
