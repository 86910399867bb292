"""Cameras of the evaluation data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from veil.files.photographs.colmap_text import read_cameras
from veil.files.photographs.transforms import read_frames
from veil.geometry.camera import checked_camera
from worlds.hostile_cameras import made


def test_the_cameras_of_the_evaluation_data_are_believed(veil_data: Path) -> None:
    """Strecha's K, the fox's OPENCV model, COLMAP's of the door, and the phones' focal lengths."""
    for scene in sorted((veil_data / "strecha").glob("*/K.txt")):
        k = np.loadtxt(scene)
        checked_camera(made("PINHOLE", 1536, 1024, k[0, 0], k[1, 1], k[0, 2], k[1, 2]))
    frames = read_frames(veil_data / "fox" / "transforms.json")
    assert len(frames) == 50 and all(any(frame.camera.params[4:]) for frame in frames.values())
    assert read_cameras(veil_data / "lund_door" / "cameras.txt")
    content = json.loads((veil_data / "smartphone_berlin" / "reconstruction_example.json").read_text())
    for camera in content[0]["cameras"].values():
        focal = camera["focal"] * 1632
        checked_camera(made("RADIAL", 1632, 1224, focal, 816.0, 612.0, camera["k1"], camera["k2"]))
