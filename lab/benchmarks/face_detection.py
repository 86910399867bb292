"""Faces that dlib's frontal detector misses, and what a second try by its detection network finds, also where there is none.

    python lab/benchmarks/face_detection.py --faces fairface/images --empty bsds500 [--every 1] [--show]

`--faces` are folders of photographs of one face each: printed is the share that each try finds. `--empty` are folders of
photographs that are taken to show no face: what is found there is false, or a face that somebody overlooked; `--show` names
these photographs, to look at. Shares have 95 % intervals (Clopper-Pearson). Times are of the processor, mean of those tried.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.audit.statistics import clopper_pearson
from veil.errors import NoFace
from veil.files.photographs.pictures import find_pictures, read_rgb
from veil_faces.extraction.face_finder import FIVE_LANDMARKS, LEAST_CONFIDENCE, FaceFinder, load_face_finder


def main() -> None:
    """Print a line for each folder and try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=Path, nargs="*", default=[])
    parser.add_argument("--empty", type=Path, nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="take every Nth photograph")
    parser.add_argument("--show", action="store_true", help="name the photographs of --empty in which something is found")
    arguments = parser.parse_args()
    finder = load_face_finder(FIVE_LANDMARKS)
    for kind, folders in (("faces", arguments.faces), ("empty", arguments.empty)):
        for folder in folders:
            paths = find_pictures(folder)[:: arguments.every]
            print(f"{folder}: {len(paths)} photographs ({kind}), confidence of at least {LEAST_CONFIDENCE:g}", flush=True)
            missed = _tried(
                "frontal detector", replace(finder, network=None), paths, len(paths), arguments.show and kind == "empty"
            )
            _tried("and the second try", finder, missed, len(paths), arguments.show and kind == "empty")


def _tried(name: str, finder: FaceFinder, paths: Sequence[Path], total: int, show: bool) -> list[Path]:
    """Print what is found of `total`, those not among `paths` being found already; the rest comes back."""
    missed, seconds = [], 0.0
    for path in paths:
        pixels = np.ascontiguousarray(read_rgb(path))
        start = time.process_time()
        try:
            faces = finder.find(pixels)
            if show:
                print(f"  {path.name}: {faces}", flush=True)
        except NoFace:
            missed.append(path)
        seconds += time.process_time() - start
    count = total - len(missed)
    low, high = clopper_pearson(count, total, confidence=0.95)
    each = 1e3 * seconds / max(1, len(paths))
    print(f"  {name:20} {count:5d} = {count / total:6.1%} ({low:.1%} to {high:.1%}), {each:.0f} ms each", flush=True)
    return missed


if __name__ == "__main__":
    main()
