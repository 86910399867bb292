"""Poses of queries as hloc writes them, and benchmarks of visual localization read them: one line a query.

A file of its own: commands of devices and of servers write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from veil.files.atomic import write_text
from veil.geometry.georeference import quaternion_of
from veil.geometry.rigid import Rigid


def _pose_text(cam_from_world: Rigid) -> str:
    """The numbers of a pose: qw qx qy qz tx ty tz."""
    x, y, z, w = quaternion_of(cam_from_world.rotation)
    return " ".join(f"{value:.15g}" for value in (w, x, y, z, *cam_from_world.translation.tolist()))


def write_poses(path: Path | str, poses: Mapping[str, Rigid]) -> list[str]:
    """Write poses of queries as hloc and COLMAP do, and return the names that are left out.

    Each line is name qw qx qy qz tx ty tz, with a pose from the world to the camera (x right, y down, z forward). Readers split
    it at blanks, so that a name with blanks cannot stand in it.

    - `path`: the file.
    - `poses`: cam_from_world by name, such as `Localization.cam_from_world`.

    Raises InputError if the file cannot be written.
    """
    unreadable = [name for name in poses if name.split() != [name]]
    lines = [f"{name} {_pose_text(pose)}\n" for name, pose in poses.items() if name not in unreadable]
    write_text(Path(path), "".join(lines))
    return unreadable
