"""How many matches of protected photographs are right, and is the true geometry of those that a map leaves out beyond chance?

    python lab/benchmarks/right_matches.py smartphone_monstree --camera SIMPLE_RADIAL,1254.6,567,756,0.0027

Scenes are folders as `lab/benchmarks/weak.py` takes them. All features are released by the hardened default, matched in all
pairs and mapped as `veil map` does. A row a photograph, those that the map leaves out first, tells of that photograph of the
map with which its true geometry (of the reference's cameras) is least by chance

- the matches that agree with the true geometry within 4 px, those that would if all were wrong, and all;
- log10 of the number of geometries as good that are expected among wrong matches (veil.geometry.robust.two_view), the least
  over all matches and those that pass ratio tests;
- with how many photographs of the map its true geometry is beyond chance, so that a map would believe the pair if it knew the
  geometry (veil.places.maps.verification); with one alone its distance is not known;
- the matches of the first kinds, and the number of pairs beyond chance, of raw features.

No geometry is searched for, so no search among these matches can do better.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from tqdm import tqdm
from weak import lifted, whole_subject

from veil.cli.common import quiet_colmap
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid
from veil.geometry.robust.two_view import TwoView, agreeing, log10_chance
from veil.matching import Matches, match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps.images import Pair
from veil.places.maps.verification import WRONG_PAIRS
from veil.trials.line_maps import MappableScene
from veil_lab.studies.mapping.reconstruction import map_checked

LIMIT_PX = 4.0
RATIOS = (1.0, 0.95, 0.9, 0.85, 0.8)


def main() -> None:
    """Print a table for each scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="+")
    parser.add_argument("--max-features", type=int, default=8192)
    parser.add_argument("--camera", metavar="MODEL,P1,...", help="intrinsics of a scene without reference cameras")
    parser.add_argument("--first-octave", type=int, default=-1, help="default -1, as COLMAP")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="a folder that keeps extracted and matched scenes between runs")
    parser.set_defaults(workers=1, json_to_stdout=False, gravity=None)
    arguments = parser.parse_args()
    quiet_colmap()
    for folder in arguments.scenes:
        print(table(whole_subject(folder, arguments), arguments.seed))


def table(subject: MappableScene, seed: int) -> str:
    """The rows of a scene."""
    forms = lifted(subject, seed)
    matches = match_pairs(forms, all_pairs(sorted(forms)))
    run = map_checked(subject, forms=forms, matches=matches, seed=seed)
    if len(run.cam_from_world) < 2:
        return f"{subject.name}: no map of the releases ({run.reason})"
    truth = TruePairs.of(subject.reference, {name: (item.camera, item.keypoints) for name, item in subject.features.items()})
    lines = [
        f"{subject.name}: {run.registered} of {run.total} photographs in the map",
        "| photograph | in the map | right, by chance, all | log10 of chance | pairs | raw: right, by chance, all | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    order = sorted(subject.reference, key=lambda name: (name in run.cam_from_world, name))
    for name in tqdm(order, "photographs", leave=False):
        others = [other for other in run.cam_from_world if other != name]
        private, raw = (truth.best(which, name, others) for which in (matches, subject.matches))
        right = truth.counted(subject.matches, name, private.other)
        known = "yes" if name in run.cam_from_world else "no"
        cells = [known, private.right, f"{private.log10_chance:.1f}", private.pairs, right, raw.pairs]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class BestPair:
    """Of one photograph: the other with which its true geometry is least by chance, and how many pairs are beyond chance.

    `right` says how many matches with that photograph agree, how many would by chance, and how many there are.
    """

    other: str
    log10_chance: float
    right: str
    pairs: int


@dataclass(frozen=True, kw_only=True, eq=False)
class TruePairs:
    """True geometries of photographs: poses, focal lengths in pixels, and undistorted positions from the picture's center."""

    reference: Mapping[str, Rigid]
    focal_px: Mapping[str, float]
    flat: Mapping[str, Float64[np.ndarray, "features 2"]]

    @staticmethod
    def of(reference: Mapping[str, Rigid], seen: Mapping[str, tuple[Camera, np.ndarray]]) -> TruePairs:
        """The geometries by poses, and by the camera and the keypoints of each photograph."""
        flat = {
            name: np.asarray(as_colmap(camera).cam_from_img(keypoints.astype(np.float64))) * camera.focal_px
            for name, (camera, keypoints) in seen.items()
        }
        return TruePairs(reference=reference, focal_px={n: camera.focal_px for n, (camera, _) in seen.items()}, flat=flat)

    def best(self, matches: Mapping[Pair, Matches], name: str, others: Iterable[str]) -> BestPair:
        """What the `matches` of a photograph with the `others` say of its true geometry."""
        chances = {other: self.log10_chance(matches, name, other) for other in others}
        best = min(chances, key=lambda other: chances[other])
        most = float(np.log10(WRONG_PAIRS / len(matches)))
        return BestPair(
            other=best,
            log10_chance=chances[best],
            right=self.counted(matches, name, best),
            pairs=sum(chance <= most for chance in chances.values()),
        )

    def log10_chance(self, matches: Mapping[Pair, Matches], name: str, other: str) -> float:
        """log10 of chance of the true geometry of a pair, the least over ratio tests, times their number."""
        left, right, pair_matches, geometry = self._pair(matches, name, other)
        tried = [
            log10_chance(self.flat[left][kept[:, 0]], self.flat[right][kept[:, 1]], geometry)
            for kept in (pair_matches.indices[pair_matches.ratios <= ratio] for ratio in RATIOS)
        ]
        return min(tried) + float(np.log10(len(RATIOS)))

    def counted(self, matches: Mapping[Pair, Matches], name: str, other: str) -> str:
        """Matches that agree with the true geometry, those that would if all were wrong, and all."""
        left, right, pair_matches, geometry = self._pair(matches, name, other)
        one, two = self.flat[left][pair_matches.indices[:, 0]], self.flat[right][pair_matches.indices[:, 1]]
        agree, chance = agreeing(one, two, geometry, LIMIT_PX)
        return f"{agree.sum()}, {chance:.0f}, {len(pair_matches)}"

    def _pair(self, matches: Mapping[Pair, Matches], name: str, other: str) -> tuple[str, str, Matches, TwoView]:
        left, right = (name, other) if (name, other) in matches else (other, name)
        one, two = self.reference[left], self.reference[right]
        rotation = two.rotation @ one.rotation.T
        x, y, z = two.translation - rotation @ one.translation
        essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ rotation
        inverse = [np.diag([1 / self.focal_px[each]] * 2 + [1.0]) for each in (left, right)]
        geometry = TwoView(fundamental=inverse[1].T @ essential @ inverse[0], homography=None, calibrated=True)
        return left, right, matches[left, right], geometry


if __name__ == "__main__":
    main()
