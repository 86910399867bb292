"""Are photographs of several places and of none, mapped by one command, told apart?

    python lab/benchmarks/places.py OUT strecha/fountain-P11 strecha/Herz-Jesus-P8 strecha/entry-P10 strecha/castle-P19 fox \
        smartphone_monstree lund_door smartphone_berlin sacre_coeur --strangers photos/bsds500 --most-strangers 100 \
        --decoys pool.npz --pairs tracks retrieval

Paths are those of VEIL_DATA or of this machine. Cameras are those of a scene where it has them (a device knows its own), that
of `--camera FOLDER=MODEL,...` for photographs of its size, else guessed. All photographs are released by the hardened default
(`veil privatize`) into one folder, where no name tells their place, and mapped (`veil map up`). For each way to choose pairs,
one line tells pairs matched and seconds of each step, and one for each model which places its images are of; the last lines are
the places with the images of each that are in no model. A place should be in one model, strangers in none. OUT keeps all files.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from veil.cli import main as main_of_veil
from veil.cli.common import quiet_colmap
from veil.errors import VeilError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.features import write_features
from veil.files.maps.format import read_map
from veil.files.photographs.pictures import find_pictures, read_picture, upright_size
from veil.geometry.camera import Camera
from veil_lab.files.scenes import read_scene

STRANGER = "no place"


def features_of(arguments: argparse.Namespace) -> tuple[list[tuple[str, Features]], dict[str, str]]:
    """Features of all photographs by a name of their own, and the place of each name."""
    options = SiftOptions(max_features=arguments.max_features, first_octave=0)
    given = dict(item.split("=", 1) for item in arguments.camera)
    jobs: list[tuple[str, Path, Camera | None]] = []
    place_of = {}
    for text in arguments.scenes:
        folder = folder_of(text)
        cameras = known_cameras(folder)
        for path in find_pictures(folder / "images" if (folder / "images").is_dir() else folder):
            name = f"{folder.name}_{path.name}"
            place_of[name] = folder.name
            jobs.append((name, path, cameras.get(path.name) or camera_of(given.get(folder.name), path)))
    for text in arguments.strangers:
        every = find_pictures(folder_of(text))
        step = max(1, len(every) * len(arguments.strangers) // arguments.most_strangers)
        for path in every[::step]:
            name = f"{STRANGER}_{path.name}"
            place_of[name] = STRANGER
            jobs.append((name, path, None))
    made = []
    for name, path, camera in tqdm(jobs, "features"):
        made.append((name, extract_sift(read_picture(path, camera=camera), options)))
    return made, place_of


def known_cameras(folder: Path) -> dict[str, Camera]:
    """Cameras of a scene's photographs by their names; none where it has none."""
    try:
        scene = read_scene(folder)
    except VeilError:
        return {}
    return {Path(name).name: camera for name, camera in scene.cameras.items()}


def camera_of(text: str | None, path: Path) -> Camera | None:
    """The camera of `--camera` for a photograph of its size, which is twice the principal point; None for another."""
    if text is None:
        return None
    model, *numbers = text.split(",")
    width, height = upright_size(path)
    params = tuple(float(number) for number in numbers)
    cx, cy = params[1:3] if model.startswith("SIMPLE") else params[2:4]
    if abs(2 * cx - width) > 0.05 * width or abs(2 * cy - height) > 0.05 * height:
        return None
    return Camera(model=model, width_px=width, height_px=height, params=params)


def folder_of(text: str) -> Path:
    """A folder of VEIL_DATA or of this machine."""
    data = Path(os.environ.get("VEIL_DATA", ".")) / text
    return data if data.is_dir() else Path(text)


def veil(*arguments: object) -> int:
    """Run a command of veil."""
    return main_of_veil([str(argument) for argument in arguments])


def tell(out: Path, method: str, place_of: dict[str, str]) -> None:
    """Print the models of one map by places."""
    names = {}
    for item in json.loads((out / "up.json").read_text())["releases"]:
        names[Path(item["file"]).stem] = item["name"]
    facts = json.loads((out / f"{method}.json").read_text())
    if "models" not in facts:
        print(f"{method}: no map: {facts['reason']}")
        return
    pairs = facts["pairs"]
    print(f"{method}: {pairs['chosen']:,} of {pairs['possible']:,} pairs, seconds {facts['seconds']}")
    left = Counter(place_of.values())
    folder = out / f"map-{method}"
    for number, model in enumerate([folder, *sorted((folder / "models").glob("*"), key=lambda path: int(path.name))], start=1):
        places = Counter(place_of[names[image]] for image in read_map(model).images)
        left -= places
        print(f"  model {number}: " + ", ".join(f"{place} {count}" for place, count in places.most_common()))
    for place, count in Counter(place_of.values()).items():
        print(f"  {place}: {count} photographs, {left[place]} in no model")


def main() -> None:
    """Release, map, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for all files")
    parser.add_argument("scenes", nargs="+", metavar="FOLDER", help="folders of one place each")
    parser.add_argument("--strangers", nargs="+", default=[], metavar="FOLDER", help="folders of photographs of no place")
    parser.add_argument("--most-strangers", type=int, default=100, metavar="N", help="default %(default)s")
    parser.add_argument("--camera", nargs="+", default=[], metavar="NAME=MODEL,...", help="of a folder without cameras")
    parser.add_argument("--decoys", type=Path, required=True, metavar="NPZ", help="pool; of none of these photographs")
    parser.add_argument("--pairs", nargs="+", default=["tracks"], help="default tracks")
    parser.add_argument("--max-features", type=int, default=2000, help="of a photograph (default %(default)s)")
    parser.add_argument("--locate", action="store_true", help="then also maps by `veil map --locate`, of the same matches")
    parser.add_argument("--workers", type=int, default=2, help="default %(default)s")
    arguments = parser.parse_args()
    quiet_colmap()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    os.environ["VEIL_HOME"] = str(out / "home")
    places = out / "places.json"
    if not (out / "up.json").is_file():
        made, place_of = features_of(arguments)
        write_features(out / "features.h5", made)
        places.write_text(json.dumps(place_of))
        veil(
            "privatize",
            out / "features.h5",
            "-o",
            out / "up",
            "--for",
            "map",
            "--decoys",
            arguments.decoys,
            "--json",
            out / "up.json",
        )
    runs: list[tuple[str, str, list[str]]] = [(method, method, []) for method in arguments.pairs]
    if arguments.locate:
        runs += [(f"{method}-located", method, ["--locate"]) for method in arguments.pairs]
    for label, method, more in runs:
        folder = out / f"map-{label}"
        if not folder.is_dir():
            options = ["--json", out / f"{label}.json", "--matches", out / f"matches-{method}", *more]
            veil("map", out / "up", "-o", folder, "--pairs", method, "--workers", arguments.workers, *options)
        tell(out, label, json.loads(places.read_text()))


if __name__ == "__main__":
    main()
