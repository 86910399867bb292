"""Adjustments of the mapper's models by confirmed points: cameras that are held, lenses and focal lengths that are doubtful."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from veil.places.maps.colmap import Colmap, Stopped
from veil.places.maps.colmap.database import camera_ids
from veil.places.maps.focal import undetermined_distortions, vague_focals
from veil.places.maps.images import MapImage
from veil.places.maps.options import ADJUSTMENT, IMAGES_AT_ONCE, LAST_PX, MIN_ANGLE_DEG
from veil.places.maps.scenes import part_of, read_model, scene_of
from veil.scene import Scene

# Focal lengths that a doubtful one is begun anew with, as multiples of it.
ZOOMS = (0.5, 0.7, 1.4, 2.0)


@dataclass(frozen=True, kw_only=True)
class Adjuster:
    """Adjusts models of `images` whose cameras are those of a database, into new folders below `workdir`."""

    images: Mapping[str, MapImage]
    workdir: Path
    colmap: Colmap
    database: Path

    def adjusted(self, model: Path, scene: Scene, held: Set[int], name: str) -> tuple[Path, Scene] | None:
        """A model, by its folder, after an adjustment that holds the cameras `held`, and its part of the images of `scene`.

        Distortion that is not determined is left out (mapping.md#distortion). A guessed focal length that is badly known then
        may be that of a wrong optimum, so that others are begun with (mapping.md#other-optima). None if COLMAP was stopped, or
        images of the `scene` have no points any more. `name` is that of the new folder.
        """
        ids = camera_ids(self.database)
        adjusted = self._once(model, scene, held, name)
        if adjusted is None:
            return None
        straight = {ids[image] for image in undetermined_distortions(adjusted[1], self.images)} - held
        if straight:
            adjusted = self._once(model, scene, held, f"{name}-straight", undistorted=straight) or adjusted
        vague = {ids[image] for image in vague_focals(adjusted[1], self.images)} - held
        if vague:
            adjusted = self._once(model, scene, held, f"{name}-zoomed", undistorted=straight, zoomed=vague) or adjusted
        return adjusted

    def _once(
        self,
        model: Path,
        scene: Scene,
        held: Set[int],
        name: str,
        *,
        undistorted: Set[int] = frozenset(),
        zoomed: Set[int] = frozenset(),
    ) -> tuple[Path, Scene] | None:
        """As `adjusted`, with no distortion of the cameras `undistorted`, and from several focal lengths of those `zoomed`."""
        output = self.workdir / name
        output.mkdir()
        request = {
            "do": "adjust",
            "model": str(model),
            "output": str(output),
            "confirmed": True,
            "options": dict(ADJUSTMENT),
            "limits_px": LAST_PX,
            "min_angle_deg": MIN_ANGLE_DEG,
            "constant_cameras": sorted(held),
            "undistorted": sorted(undistorted),
            "zoomed": sorted(zoomed),
            "zooms": ZOOMS,
        }
        answer = self.colmap.run(request, work=max(1.0, len(scene.images) / IMAGES_AT_ONCE))
        if isinstance(answer, Stopped):
            return None
        read = read_model(output)
        adjusted = scene_of(read, self.images) if read.num_points3D() else None
        if adjusted is None or not set(scene.images) <= set(adjusted.images):
            return None
        return output, part_of(adjusted, scene)
