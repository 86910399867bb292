"""Does a camera that walks still localize if features that left before leave with their earlier draws?

    VEIL_DATA=... python lab/benchmarks/walking_camera.py fox strecha/castle-P19 smartphone_monstree

Photographs of a scene stand for the frames of a camera, in the order of their names. No camera is given. Every second one is
mapped from raw features, and the others are queries of one device, one after another: first with draws of their own, then with
earlier ones.
The reference is that of the scene, or the raw map of all its photographs. A row gives queries localized and wrong ones (as on
the board), the median error in percent of the extent of the cameras, and the share of features that left before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import veil
from veil.cli.common import quiet_colmap
from veil.device.protection import Purpose
from veil.files.photographs.pictures import read_picture
from veil.geometry.similarity import align_poses
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.board.split import poses_of
from veil_lab.studies.localization.answer_counts import counted

COLUMNS = ("scene", "form", "near repeats", "localized", "wrong", "median error, %", "left before, %")
WAYS: dict[str, Purpose] = {"anew": "map", "earlier": "localize"}
FORMS = {
    "subspaces": veil.Protection(descriptors=veil.HideInSubspaces()),
    "words, epsilon 10": veil.Protection(descriptors=veil.HideInWords(epsilon=10.0)),
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    arguments = parser.parse_args()
    quiet_colmap()
    scenes = [read_scene(Path(os.environ["VEIL_DATA"]) / name) for name in arguments.scenes]
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}", flush=True)
    for scene in scenes:
        for row in rows(scene):
            print(f"| {' | '.join(row)} |", flush=True)


def rows(scene: ReferenceScene) -> list[tuple[str, ...]]:
    """The rows of a scene."""
    images = {name: veil.extract(read_picture(path)) for name, path in sorted(scene.pictures.items())}
    names = list(images)
    built = veil.map_images({name: images[name] for name in names[::2]})
    assert not isinstance(built, veil.NoMap), built.reason
    reference = dict(scene.cam_from_world)
    if not reference:
        whole = veil.map_images(images)
        assert not isinstance(whole, veil.NoMap), whole.reason
        reference = poses_of(whole)
    mapped = poses_of(built)
    known = sorted(mapped.keys() & reference.keys())
    reference_from_map = align_poses([mapped[name] for name in known], [reference[name] for name in known])
    found: list[tuple[str, ...]] = []
    for form, protection in FORMS.items():
        for way, purpose in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                device, answers, before, sent = veil.Device(Path(folder) / "home"), {}, 0, 0
                for name in names[1::2]:
                    made = device.release(images[name], protection, purpose=purpose)
                    before, sent = before + made.shown_before, sent + len(made.upload)
                    if name in reference:
                        answers[name] = veil.localize(veil.decode(made.message), built.map)
            counts = counted(answers, reference, reference_from_map)
            error = "-" if counts.median_error is None else f"{100 * counts.median_error:.2f}"
            share = f"{100 * before / sent:.0f}"
            found.append((scene.name, form, way, f"{counts.localized} of {counts.queries}", str(counts.wrong), error, share))
    return found


if __name__ == "__main__":
    main()
