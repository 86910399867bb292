"""Focal lengths of maps whose cameras nobody knows, compared with plain pycolmap's on the same features.

    VEIL_DATA=... python lab/benchmarks/focal_lengths.py fox untuned/temple untuned/reichstag lund_door strecha/fountain-P11

Scenes are folders as `veil evaluate reconstruction` takes them, whose cameras are the reference. No photograph says its focal
length: both begin with COLMAP's guess of 1.2 times the longer side, and photographs of one size share a camera. Plain pycolmap
matches all pairs, verifies and maps by its defaults. A row gives the images that each maps, of all, and the median and largest
error of their focal lengths, percent.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pycolmap

import veil
from veil.cli.common import quiet_colmap
from veil.geometry.camera import Camera, from_colmap, guessed
from veil.mechanisms.public import publish
from veil.places.maps import MapImage
from veil.places.maps.colmap.database import write_database
from veil.threads import settle
from veil_lab.files.scenes import ReferenceScene, read_scene

COLUMNS = ("scene", "photographs", "mapped", "by pycolmap", "error, %", "by pycolmap, %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--max-features", type=int, default=2048)
    given = parser.parse_args()
    settle()
    quiet_colmap()
    print(*COLUMNS, sep=" | ")
    print(*["---"] * len(COLUMNS), sep=" | ", flush=True)
    for name in given.scenes:
        scene = read_scene(Path(os.environ["VEIL_DATA"]) / name)
        features = unknown(scene, given.max_features)
        answer = veil.map_images(features)
        own = {key: image.camera for key, image in answer.map.scene.images.items()} if isinstance(answer, veil.BuiltMap) else {}
        plain = mapped_plainly(features)
        cells = (len(own), len(plain), errors(own, scene), errors(plain, scene))
        print(scene.name, len(features), *cells, sep=" | ", flush=True)


def unknown(scene: ReferenceScene, max_features: int) -> dict[str, veil.Features]:
    """Features of all photographs of a scene, with guessed cameras."""
    options, features = veil.SiftOptions(max_features=max_features), {}
    for key in sorted(scene.pictures):
        camera = scene.cameras[key]
        guess = guessed(camera.width_px, camera.height_px)
        features[key] = veil.extract(veil.read_picture(scene.pictures[key], camera=guess), options=options)
    return features


def mapped_plainly(features: Mapping[str, veil.Features]) -> dict[str, Camera]:
    """Cameras of plain pycolmap's largest model, by image."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "database.db"
        images = {key: MapImage(camera=one.camera, keypoints=one.keypoints, form=publish(one)) for key, one in features.items()}
        ids, _ = write_database(database, images, {})
        opened = pycolmap.Database.open(database)
        for key, one in features.items():
            data = pycolmap.FeatureDescriptors(data=one.descriptors, type=pycolmap.FeatureExtractorType.SIFT)
            opened.write_descriptors(ids[key], data)
        opened.close()
        pycolmap.match_exhaustive(database)
        options = pycolmap.IncrementalPipelineOptions()
        options.extract_colors = False
        models = pycolmap.incremental_mapping(database, folder, folder, options=options)
    if not models:
        return {}
    best = max(models.values(), key=lambda model: model.num_reg_images())
    mapped = [best.images[image_id] for image_id in best.reg_image_ids()]
    return {image.name: from_colmap(best.cameras[image.camera_id]) for image in mapped}


def errors(cameras: Mapping[str, Camera], scene: ReferenceScene) -> str:
    """Median and largest error of focal lengths against the reference, percent."""
    if not cameras:
        return "-"
    off = [abs(camera.focal_px / scene.cameras[key].focal_px - 1) for key, camera in cameras.items()]
    return f"{100 * np.median(off):.2f}, {100 * max(off):.2f}"


if __name__ == "__main__":
    main()
