"""Is SIFT in TypeScript, by which the demo page reads photographs, that of COLMAP, and how long does it take?

For the twelve bundled photographs: the share of COLMAP's features that TypeScript finds within 1 px, 10 % of scale and 10
degrees, and the other way around; the distance of their descriptors as unit vectors (median, 99th percentile); seconds of the
extraction by each. Then matches (mutual, ratio test) of neighboring photographs: both by COLMAP, one by each, both by
TypeScript.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.matching import match_pairs
from veil.mechanisms.public import publish
from worlds.node_sift import agreement, no_node, node_sift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-features", type=int, default=1536)
    parser.add_argument("--first-octave", type=int, nargs="+", default=[0, -1])
    arguments = parser.parse_args()
    if (reason := no_node()) is not None:
        raise SystemExit(reason)
    for first in arguments.first_octave:
        options = SiftOptions(max_features=arguments.max_features, first_octave=first)
        _compare(options)


def _compare(options: SiftOptions) -> None:
    ours: dict[str, Features] = {}
    theirs: dict[str, Features] = {}
    seconds = []
    with lund_door() as example:
        for path in find_pictures(example.folder):
            picture = read_picture(path, camera=example.camera)
            begun = time.perf_counter()
            theirs[path.name] = extract_sift(picture, options)
            colmap_s = time.perf_counter() - begun
            ours[path.name], node_s = node_sift(picture, options)
            seconds.append((colmap_s, node_s))
    there = [agreement(theirs[name], ours[name]) for name in ours]
    back = [agreement(ours[name], theirs[name]) for name in ours]
    distances = np.concatenate([item.distances for item in there])
    colmap, node = np.median(seconds, axis=0)
    print(f"first octave {options.first_octave}, at most {options.max_features} features, {len(ours)} photographs")
    for whose, items in (("COLMAP's found in TypeScript", there), ("TypeScript's found in COLMAP", back)):
        shares = [item.share for item in items]
        print(f"  {whose}: {np.mean(shares):.2%} (worst {min(shares):.2%})")
    print(f"  distance of descriptors: median {np.median(distances):.4f}, 99th percentile {np.percentile(distances, 99):.4f}")
    print(f"  seconds for a photograph, median: COLMAP {colmap:.2f}, TypeScript {node:.2f}")
    names = list(ours)
    print(f"  matches of {len(names) - 1} neighboring pairs:", end="")
    for label, left, right in (("COLMAP", theirs, theirs), ("one by each", theirs, ours), ("TypeScript", ours, ours)):
        forms = {f"a {name}": publish(left[name]) for name in names} | {f"b {name}": publish(right[name]) for name in names}
        pairs = [(f"a {one}", f"b {two}") for one, two in pairwise(names)]
        matches = match_pairs(forms, pairs)
        print(f" {label} {sum(len(item) for item in matches.values())}", end="")
    print()


if __name__ == "__main__":
    main()
