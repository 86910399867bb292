"""Maps of clusters of images, joined to one map or to several, adjusted and checked (docs/theory/scale.md, "One map")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.geometry.camera import Camera
from veil.mapping.agreement import consistent_groups, explained_shares
from veil.mapping.colmap import Colmap, Stopped
from veil.mapping.images import MapImage
from veil.mapping.joining import join
from veil.mapping.merging import homes, merged
from veil.mapping.models import write_model
from veil.mapping.options import MapOptions
from veil.mapping.pair_check import agreement_weights, checked
from veil.mapping.pieces import Piece, piece_of
from veil.mapping.points import IMAGES_AT_ONCE, NoMap
from veil.mapping.scenes import restricted, scene_of
from veil.mapping.verification import Verification
from veil.mapping.view_graph import Cluster
from veil.scene import Scene

# Limits in pixels of the adjustments of a joined map, one after another, and the least angle at its points.
FIRST_PX, LAST_PX, MIN_ANGLE_DEG = (16.0, 4.0), (4.0,), 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteredMap:
    """Map of the most images, and further ones that do not join it.

    - `scene`: the map of most images.
    - `further`: maps of the other images, the largest first; no image is in two maps.
    - `reasons`: sentences that say why parts do not join, and why clusters have no map.
    - `clusters`: the images of each cluster, the numbers of which (from 1) the reasons name; one if nothing was cut.
    """

    scene: Scene
    further: tuple[Scene, ...] = ()
    reasons: tuple[str, ...] = ()
    clusters: tuple[Cluster, ...] = field(default=())


@dataclass(frozen=True, eq=False)
class ClusterMaps:
    """Maps of clusters to be joined: what they were made from, and the `answers`, by the numbers of `parts` from 0."""

    images: Mapping[str, MapImage]
    options: MapOptions
    workdir: Path
    colmap: Colmap
    verification: Verification
    gravity: Mapping[str, Float64[np.ndarray, "3"]]
    left_out: Mapping[str, str]
    parts: Sequence[Cluster]
    answers: Mapping[int, Scene | NoMap]

    def joined(self) -> ClusteredMap | NoMap:
        """Map of all clusters that join, further ones, and reasons."""
        keypoints = {name: image.keypoints for name, image in self.images.items()}
        maps = {k: found for k, found in sorted(self.answers.items()) if isinstance(found, Scene)}
        reasons = [f"cluster {k + 1}: {a.reason}" for k, a in sorted(self.answers.items()) if isinstance(a, NoMap)]
        if not maps:
            remedy = tuple(dict.fromkeys(item for a in self.answers.values() if isinstance(a, NoMap) for item in a.remedy))
            return NoMap(reasons[0] if reasons else "no cluster gave a map", self.left_out, remedy=remedy)
        numbers = sorted(maps)
        pieces = {k: piece_of(maps[k], keypoints) for k in numbers}
        result = join([pieces[k] for k in numbers], labels=[k + 1 for k in numbers])
        reasons += [result.reasons[edge] for edge in sorted(result.reasons)]
        home = homes(pieces, {name: k for k, part in enumerate(self.parts) for name in part.core})
        scenes: list[Scene] = []
        for count, joint in enumerate(result.joints):
            placed = {numbers[k]: pieces[numbers[k]].moved(way) for k, way in joint.world_from_piece.items()}
            own = {name: k for name, k in home.items() if k in placed}
            if len(own) < min(self.options.min_model_images, len(self.images)):
                continue
            scenes += self._models(count, placed, own, maps, reasons)
        if not scenes:
            return NoMap("; ".join(reasons) or "no model is left", self.left_out)
        scenes.sort(key=lambda scene: (-len(scene.images), min(scene.images)))
        return ClusteredMap(scene=scenes[0], further=tuple(scenes[1:]), reasons=tuple(reasons), clusters=tuple(self.parts))

    def _models(
        self, count: int, placed: Mapping[int, Piece], own: Mapping[str, int], maps: Mapping[int, Scene], reasons: list[str]
    ) -> list[Scene]:
        """Checked maps of a group of pieces: one, or more where its images contradict each other."""
        if len(placed) == 1:
            only = restricted(maps[next(iter(placed))], frozenset(own))
            found: Scene | None = only
        else:
            piece = merged(placed, own)
            found = self._adjusted(count, piece, {name: maps[k].images[name].camera for name, k in own.items()}, reasons)
        if found is None:
            return []
        shares = explained_shares(found, self.images, self.verification.pairs)
        groups = consistent_groups(found.images, agreement_weights(shares, self.verification.pairs))
        least, scenes = min(self.options.min_model_images, len(self.images)), []
        for group in groups:
            part = found if len(groups) == 1 else restricted(found, group)
            if len(group) < least or part is None:
                continue
            shares = explained_shares(part, self.images, self.verification.pairs)
            left_out = dict(self.left_out)
            if len(groups) > 1:
                left_out |= dict.fromkeys(sorted(set(found.images) - group), "it contradicts its pairs with the others")
            check = checked(part, shares, set(found.images), self.verification.pairs, self.gravity, left_out)
            if check.doubts:
                reasons.append(f"a joined map of {len(group)} images cannot be trusted: {'; '.join(check.doubts)}")
            else:
                scenes.append(replace(part, check=check))
        if len(scenes) > 1:
            reasons.append("images of one group of clusters contradict each other, so that it gives several maps")
        return scenes

    def _adjusted(self, count: int, piece: Piece, cameras: Mapping[str, Camera], reasons: list[str]) -> Scene | None:
        """Scene of a merged piece after adjustment, more points from all verified matches, and adjustment again."""
        from veil.colmap import pycolmap

        folders = [self.workdir / f"joined-{count + 1}-{step}" for step in ("start", "first", "more", "last")]
        for folder in folders:
            folder.mkdir()
        write_model(
            folders[0],
            piece,
            images=self.images,
            cameras=cameras,
            database=self.verification.database,
            image_ids=self.verification.image_ids,
        )
        known = all(image.camera.focal_is_known for image in self.images.values())
        settings = {
            "refine_focal_length": not known,
            "refine_extra_params": not known,
            "print_summary": False,
            "ceres.solver_options.function_tolerance": 1e-6,
            "ceres.solver_options.max_num_iterations": 50,
        }
        adjust = {
            "do": "adjust",
            "constant_cameras": sorted(self.verification.constant_cameras),
            "options": settings,
            "min_angle_deg": MIN_ANGLE_DEG,
        }
        complete = {"do": "complete", "database": str(self.verification.database), "seed": self.options.seed}
        steps = [adjust | {"limits_px": FIRST_PX}, complete, adjust | {"limits_px": LAST_PX}]
        for request, source, output in zip(steps, folders, folders[1:], strict=False):
            asked = request | {"model": str(source), "output": str(output)}
            answer = self.colmap.run(asked, work=max(1.0, len(cameras) / IMAGES_AT_ONCE))
            if isinstance(answer, Stopped):
                reasons.append(f"the adjustment of {len(cameras)} joined images was stopped: {answer.reason}")
                return None
        model = pycolmap.Reconstruction(folders[-1])
        return scene_of(model, self.images) if model.num_points3D() else None
