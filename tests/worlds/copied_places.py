"""Places that stand in a map several times, in whole or in part, 40 units from each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from veil.forms import Points
from veil.geometry.rigid import Rigid
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import generator, sift_like, unit, world

SPACE = Space(descriptor="sift", normalization="L2", dim=128)
WORLD = world("copies", images=13)
COUNT, QUERY = len(WORLD.points), "06"
SHIFT = np.array([40.0, 0.0, 0.0])
LEFT_TO_RIGHT = np.argsort(WORLD.points[:, 0])
OTHERS = [name for name in WORLD.poses if name != QUERY]


@dataclass(frozen=True, kw_only=True, eq=False)
class City:
    """Two places of equal shape, 40 units apart; `alike` points from the left look alike at both, the others do not.

    There may be a third one, 40 units further, of which `alike_third` points look alike, images of a fourth one that is
    like none of them, and two images each of `lesser` ones of which `alike_lesser` points look alike.
    """

    alike: int
    alike_third: int | None = None
    own_images: int = 12
    own_share: float = 1.0
    copy_images: int = 12
    strangers: int = 0
    lesser: int = 0
    alike_lesser: int = COUNT // 3

    @cached_property
    def scene(self) -> Scene:
        """The map: few or many images of the query's place that see a share of its points, and images of the copy."""
        images = {}
        known = np.arange(COUNT)[generator("known").random(COUNT) < self.own_share]
        for name in OTHERS[:: len(OTHERS) // self.own_images]:
            images[f"own {name}"] = self.image(f"own {name}", name, known, 0)
        for name in OTHERS[: self.copy_images]:
            images[f"copy {name}"] = self.image(f"copy {name}", name, np.arange(COUNT), 1)
            if self.alike_third is not None:
                images[f"other {name}"] = self.image(f"other {name}", name, np.arange(COUNT), 2)
        for name in OTHERS[: self.strangers]:
            images[f"strange {name}"] = self.image(f"strange {name}", name, np.arange(COUNT), 3)
        for place in range(4, 4 + self.lesser):
            for name in OTHERS[4:7:2]:
                images[f"place {place} {name}"] = self.image(f"place {place} {name}", name, np.arange(COUNT), place)
        points = np.concatenate([WORLD.points + place * SHIFT for place in range(4 + self.lesser)])
        return Scene(images=images, points=points, mean_reprojection_error_px=0.3)

    def image(self, name: str, view: str, known: np.ndarray, place: int) -> MappedImage:
        """An image of the map that sees the `known` points of a place."""
        pose, kept = WORLD.poses[view], np.isin(WORLD.visible[view], known)
        rows = WORLD.visible[view][kept]
        vectors = unit(self.looks(place)[rows] + 0.02 * generator(name).normal(size=(len(rows), 128)))
        return MappedImage(
            name=name,
            camera=WORLD.camera,
            cam_from_world=Rigid(rotation=pose.rotation, translation=pose.translation - place * pose.rotation @ SHIFT),
            keypoints=WORLD.keypoints[view][kept],
            point_rows=rows + place * COUNT,
            form=Points(vectors=vectors.astype(np.float32), space=SPACE),
        )

    def looks(self, place: int) -> np.ndarray:
        """Descriptors, float (COUNT, 128), of all points of a place: those of the first one, but around what looks alike."""
        descriptors = WORLD.descriptors.copy()
        if place:
            alike = {1: self.alike, 2: self.alike_third, 3: 0}.get(place, self.alike_lesser)
            around = LEFT_TO_RIGHT[alike:]
            descriptors[around] = other_looks(place)[around]
        return descriptors


@cache
def other_looks(place: int) -> np.ndarray:
    """Descriptors, float (COUNT, 128), of points of a place that look like none of the first one."""
    return unit(sift_like(generator(f"around the copy {place}"), COUNT))
