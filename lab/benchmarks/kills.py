"""Is a map the same however often `veil map` is killed, and what is computed again?

    python lab/benchmarks/kills.py positions clusters lines --kills 17 --seed 1

For each kind of map the command runs once undisturbed and then, for each kill, anew in an empty folder: it is killed with
-9 (with all its processes) at a moment drawn uniformly from the time that it takes, and the same command is given again. Kinds:
positions (a small simulated place, or --scene, with public features), clusters (the same with `--cluster-size`), lines (six
photographs of the bundled example). Columns: at which stage it was killed, by what the run had left beside the output; how
many kills; whether the next call ended well; whether all files of the map have the bytes of the undisturbed run; where they do
not, how far the poses are apart, in shares of the extent of the cameras; what is left beside the map (files, folders); how long
the next call took, as a share of the undisturbed run without the time until Python has loaded veil.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.cli import main as main_of_veil
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.features import write_features
from veil.files.maps.folders import file_digests
from veil.files.maps.format import read_map
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.geometry.similarity import align_centers, pose_error
from veil.scene import Scene
from veil_lab.files.scenes import read_scene
from worlds import world
from worlds.line_worlds import features_of as features_of_world


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one kill: its stage, and the next call's end, difference, leftovers and time."""

    stage: str
    ended: bool
    identical: bool
    apart: float
    left: tuple[str, ...]
    share: float


def main() -> None:
    """Print a table for each kind of map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=("positions", "clusters", "lines"))
    parser.add_argument("--kills", type=int, default=17, help="of each kind (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default %(default)s)")
    parser.add_argument("--scene", help="below VEIL_DATA, such as strecha/fountain-P11 (default: simulated)")
    parser.add_argument("--max-features", type=int, default=1500, help="of an image (default %(default)s)")
    parser.add_argument("--cluster-size", type=int, default=5, help="images (default %(default)s)")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        work = Path(folder)
        for kind in arguments.kinds:
            given = lines_of(work) if kind == "lines" else features_of(work, arguments)
            more = ["--cluster-size", str(arguments.cluster_size)] if kind == "clusters" else []
            tell(kind, killed_runs(work / kind, ["map", str(given.resolve()), *more], arguments.kills, arguments.seed))


def features_of(work: Path, arguments: argparse.Namespace) -> Path:
    """Raw features of the place in a file."""
    path = work / "features.h5"
    if not arguments.scene:
        place = features_of_world(world("kills", images=8, points=300), "kills")
        write_features(path, [(f"{name}.jpg", item) for name, item in place.items()])
    elif not path.is_file():
        scene = read_scene(Path(os.environ["VEIL_DATA"]) / arguments.scene)
        options = SiftOptions(max_features=arguments.max_features)
        pictures = sorted(scene.pictures.items())
        write_features(path, ((n, extract_sift(read_picture(p, camera=scene.cameras[n]), options)) for n, p in pictures))
    return path


def lines_of(work: Path) -> Path:
    """Messages with lines of six photographs of the bundled example, whose draws are always the same."""
    os.environ["VEIL_HOME"] = str(work / "home")
    (work / "home").mkdir()
    (work / "home" / "secret").write_bytes(b"line maps".ljust(32, b"."))
    (work / "home" / "secret").chmod(0o600)
    (work / "photos").mkdir()
    with lund_door() as example:
        for number in range(1, 7):
            shutil.copy(example.folder / f"DSC_000{number}.jpg", work / "photos")
        camera = ",".join([example.camera.model, *map(str, example.camera.params)])
    for command in (
        ["gravity", work / "photos", "-o", work / "g.csv", "--from", "vanishing-point", "--camera", camera],
        ["extract", work / "photos", "-o", work / "lines.h5", "--camera", camera, "--max-features", "1200"],
        ["privatize", work / "lines.h5", "-o", work / "messages", "--for", "map", "--lines", "--gravity", work / "g.csv"],
    ):
        assert main_of_veil([str(part) for part in command]) == 0
    return work / "messages"


def killed_runs(folder: Path, command: list[str], kills: int, seed: int) -> list[Outcome]:
    """Outcomes of killing a command at moments drawn from its undisturbed time."""
    folder.mkdir()
    run(folder / "warm", command)  # what is compiled once is no part of it
    seconds, whole = run(folder / "whole", command)
    loaded = run(folder / "none", ["map", "--help"])[0]
    assert whole == 0, f"the undisturbed run of {command} failed"
    expected, scene = file_digests(folder / "whole" / "map"), read_map(folder / "whole" / "map")
    print(
        f"{folder.name}: undisturbed {seconds:.1f} s, of which {loaded:.1f} s to load; {len(scene.images)} images", flush=True
    )
    run(folder / "again", command)
    print(f"the same command twice gives the same bytes: {file_digests(folder / 'again' / 'map') == expected}")
    moments = np.random.default_rng(seed).uniform(loaded, seconds, kills)
    outcomes = []
    for number, moment in enumerate(moments):
        place = folder / str(number)
        run(place, command, after=moment)
        stage = stage_of(place)
        took, code = run(place, command)
        ended = (place / "map" / "descriptors.h5").is_file() and (code == 0 or stage == "after its end")
        left = tuple(sorted(path.name for path in place.iterdir() if path.name not in ("map", "out.txt")))
        same = ended and file_digests(place / "map") == expected
        apart = 0.0 if same else difference(scene, read_map(place / "map")) if ended else np.inf
        share = max(0.0, took - loaded) / (seconds - loaded)
        outcomes.append(Outcome(stage=stage, ended=ended, identical=same, apart=apart, left=left, share=share))
        shutil.rmtree(place)
    return outcomes


def run(place: Path, command: list[str], *, after: float | None = None) -> tuple[float, int]:
    """Seconds and exit code of `veil` in a folder; with `after` it is killed, with its processes, after these seconds."""
    place.mkdir(exist_ok=True)
    output = ["-o", "map"] if "--help" not in command else []
    start = time.monotonic()
    with (place / "out.txt").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "veil.cli", *command, *output], cwd=place, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return time.monotonic() - start, code


def stage_of(place: Path) -> str:
    """At which stage a run was killed, by what it left."""
    unfinished = place / "map.unfinished"
    if (place / "map").exists():
        return "map in its place" if unfinished.exists() else "after its end"
    if any(place.glob(".map.replacing-*")):
        return "writing the map"
    if (unfinished / "model.npz").exists():
        return "mapping lines"
    if kept := len(list((unfinished / "clusters").glob("*.npz"))):
        return f"{kept} clusters mapped"
    if (unfinished / "work").exists():
        return "mapping"
    if blocks := len(list((unfinished / "matches").glob("*.matches"))):
        return "matching, last block" if not (unfinished / "matches" / "plan.json").exists() else f"matching, {blocks} blocks"
    return "matching, no block" if unfinished.exists() else "reading"


def difference(a: Scene, b: Scene) -> float:
    """Largest distance of two maps' cameras after similarity alignment as a share of their extent; infinite for others."""
    if set(a.images) != set(b.images):
        return np.inf
    first, second = ([scene.images[name].cam_from_world for name in sorted(a.images)] for scene in (a, b))
    extent = float(np.ptp(np.array([pose.center for pose in first]), axis=0).max())
    way = align_centers(second, first)
    return max(pose_error(q, p, way)[0] for p, q in zip(first, second, strict=True)) / extent


def tell(kind: str, outcomes: list[Outcome]) -> None:
    """Print a table of outcomes by stage."""
    stages: dict[str, list[Outcome]] = defaultdict(list)
    for item in outcomes:
        stages[item.stage].append(item)
    print(f"{kind:9} {'killed at':22} kills ended identical  farthest  left     time")
    for stage, items in sorted(stages.items()):
        left = ",".join(sorted({name for item in items for name in item.left})) or "nothing"
        apart, share = max(item.apart for item in items), np.mean([item.share for item in items])
        counts = f"{len(items):5} {sum(item.ended for item in items):5} {sum(item.identical for item in items):9}"
        print(f"{'':9} {stage:22} {counts}  {apart:8.1e}  {left}  {share:6.2f}")
    print(
        f"{'':9} {'all':22} {len(outcomes):5} {sum(i.ended for i in outcomes):5} {sum(i.identical for i in outcomes):9}",
        flush=True,
    )


if __name__ == "__main__":
    main()
