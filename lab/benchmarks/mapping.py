"""`veil map features.h5` against plain pycolmap on the same features: seconds and registered images.

    python lab/benchmarks/mapping.py strecha/castle-P19 lund_door fox [--max-features 2048] [--repeats 3] [--cores 2]

Scenes are folders as `veil evaluate reconstruction` takes them. Both ways begin with the features that `veil extract` wrote
and end with a map on disk: match all pairs, verify, map. Both are programs of their own, so that starting counts. Plain
pycolmap matches, verifies and maps with its defaults, known intrinsics held. Both take turns; the output is the median of the
wall time and of the processor time of each, and the ratios of the medians. State with the numbers what else the machine did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLAIN = """
import sys
from pathlib import Path
import numpy as np, pycolmap
from veil.files.features import read_features
from veil.places.maps import MapImage
from veil.places.maps.colmap.database import write_database
from veil.mechanisms.public import publish

features, output = Path(sys.argv[1]), Path(sys.argv[2])
output.mkdir()
database = output / "database.db"
items = dict(read_features(features))
images = {n: MapImage(camera=f.camera, keypoints=f.keypoints, form=publish(f)) for n, f in items.items()}
ids, known = write_database(database, images, {})
opened = pycolmap.Database.open(database)
for name, item in items.items():
    descriptors = pycolmap.FeatureDescriptors(data=item.descriptors, type=pycolmap.FeatureExtractorType.SIFT)
    opened.write_descriptors(ids[name], descriptors)
opened.close()
pycolmap.match_exhaustive(database)
options = pycolmap.IncrementalPipelineOptions()
options.extract_colors = False
options.ba_refine_focal_length = options.ba_refine_extra_params = not known
options.constant_cameras = known
models = pycolmap.incremental_mapping(database, output, output, options=options)
print("registered", max((model.num_reg_images() for model in models.values()), default=0))
"""


def main() -> None:
    """Print one line for each scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="+")
    parser.add_argument("--max-features", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="number of cores for both ways (default 2)")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    print(f"{'scene':20} {'images':>6} | {'registered':>17} | {'wall s':>17} {'ratio':>6} | {'processor s':>17} {'ratio':>6}")
    print(f"{'':20} {'':6} | {'veil':>8} {'pycolmap':>8} | {'veil':>8} {'pycolmap':>8} {'':6} | {'veil':>8} {'pycolmap':>8}")
    for scene in arguments.scenes:
        with tempfile.TemporaryDirectory(prefix="veil-mapping-") as folder:
            _compare(scene, Path(folder), arguments)


def _compare(scene: Path, folder: Path, arguments: argparse.Namespace) -> None:
    features, output = folder / "features.h5", folder / "map"
    pictures = scene / "images" if (scene / "images").is_dir() else scene
    veil = [sys.executable, "-m", "veil.cli"]
    written = [
        *veil,
        "extract",
        str(pictures),
        "-o",
        str(features),
        "--max-features",
        str(arguments.max_features),
        "--json",
        "-",
    ]
    images = len(json.loads(_run(written)[0])["images"])
    ways = {
        "veil": [*veil, "map", str(features), "-o", str(output), "--json", "-"],
        "pycolmap": [sys.executable, "-c", PLAIN, str(features), str(output)],
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    registered = dict.fromkeys(ways, 0)
    for _ in range(arguments.repeats):
        for way, command in ways.items():
            printed, *seconds = _run(command)
            times[way].append((seconds[0], seconds[1]))
            shutil.rmtree(output)
            registered[way] = json.loads(printed)["registered"] if way == "veil" else int(printed.split()[-1])
    wall, processor = ([statistics.median(t[k] for t in times[way]) for way in ways] for k in (0, 1))
    print(
        f"{scene.name:20} {images:6d} | {registered['veil']:8d} {registered['pycolmap']:8d} | "
        f"{wall[0]:8.1f} {wall[1]:8.1f} {wall[0] / wall[1]:6.2f} | "
        f"{processor[0]:8.1f} {processor[1]:8.1f} {processor[0] / processor[1]:6.2f}",
        flush=True,
    )


def _run(command: list[str]) -> tuple[str, float, float]:
    """Output of a program, its wall time and its processor time in seconds. Raises RuntimeError if it fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        output.seek(0), errors.seek(0)
        if os.waitstatus_to_exitcode(status):
            raise RuntimeError(f"{command[:4]}: {errors.read()[-2000:]}")
        return output.read(), wall, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
