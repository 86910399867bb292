"""Photographs that ship with the package, with their reference cameras in COLMAP's text format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from veil.files.photographs.colmap_text import read_cameras, read_images
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.one_line import one_line

# Photographs of `lund_door` that demos localize on maps of the others.
HELD_OUT = ("DSC_0003.jpg", "DSC_0006.jpg", "DSC_0010.jpg")


@dataclass(frozen=True, kw_only=True)
class ExamplePlace:
    """A place that ships with the package.

    - `folder`: its photographs.
    - `camera`: the camera that they share.
    - `poses`: cam_from_world by file name.
    - `held_out`: names of the photographs that examples localize on a map of the others.
    """

    folder: Path
    camera: Camera
    poses: dict[str, Rigid]
    held_out: tuple[str, ...] = HELD_OUT

    __repr__ = one_line


@contextmanager
def lund_door() -> Iterator[ExamplePlace]:
    """Twelve photographs of a portal (Olsson and Enqvist, SCIA 2011), with poses of a COLMAP model and not of a survey."""
    with as_file(files("veil") / "data" / "lund_door") as folder:
        (camera,) = read_cameras(folder / "cameras.txt").values()
        yield ExamplePlace(
            folder=folder,
            camera=camera,
            poses={name: pose for name, (_, pose) in read_images(folder / "images.txt").items()},
        )


@contextmanager
def other_place() -> Iterator[Path]:
    """One photograph of another place (OpenSfM's Berlin example, BSD-2-Clause)."""
    with as_file(files("veil") / "data" / "berlin.jpg") as path:
        yield path
