"""Intrinsics that no photograph has, for the tests of geometry and wire; all for an image of 640 x 480 px."""

from __future__ import annotations

from veil.geometry.camera import Camera


def made(model: str, width: int, height: int, *params: float) -> Camera:
    return Camera(model=model, width_px=width, height_px=height, params=params)


PINHOLE = (500.0, 500.0, 320.0, 240.0)
HOSTILE = {
    **{
        f"focal length {value:g}": ("PINHOLE", (value, value, 320.0, 240.0))
        for value in (1e-5, 1e-30, 5e-324, 1e-3, 1e30, 1e300)
    },
    "focal length just too short": ("PINHOLE", (63.9, 63.9, 320.0, 240.0)),
    "focal length just too long": ("PINHOLE", (6401.0, 6401.0, 320.0, 240.0)),
    "focal lengths that differ": ("PINHOLE", (300.0, 900.0, 320.0, 240.0)),
    "principal point 1e300": ("PINHOLE", (500.0, 500.0, 1e300, 240.0)),
    "principal point far off": ("PINHOLE", (500.0, 500.0, 320.0, -481.0)),
    "k1 = 1e30": ("SIMPLE_RADIAL", (500.0, 320.0, 240.0, 1e30)),
    "k1 = 240": ("SIMPLE_RADIAL", (500.0, 320.0, 240.0, 240.0)),
    "k1 = -1e5": ("SIMPLE_RADIAL", (500.0, 320.0, 240.0, -1e5)),
    "k1 that folds the corners": ("SIMPLE_RADIAL", (500.0, 320.0, 240.0, -0.5)),
    "all of FULL_OPENCV 1e300": ("FULL_OPENCV", (*PINHOLE, *[1e300] * 8)),
    "all of FULL_OPENCV -0.5": ("FULL_OPENCV", (*PINHOLE, *[-0.5] * 8)),
    "a pole of FULL_OPENCV inside the image": ("FULL_OPENCV", (*PINHOLE, 0.0, 0.0, 0.0, 0.0, 0.0, -4.0, 0.0, 0.0)),
    "tangential distortion of 2": ("OPENCV", (*PINHOLE, 0.0, 0.0, 2.0, 2.0)),
    "a fisheye that folds": ("OPENCV_FISHEYE", (150.0, 150.0, 320.0, 240.0, -0.5, 0.0, 0.0, 0.0)),
    "a fisheye of 1e300": ("OPENCV_FISHEYE", (*PINHOLE, 1e300, 1e300, 1e300, 1e300)),
    "a fisheye that sees nothing": ("SIMPLE_RADIAL_FISHEYE", (64.0, 1280.0, 480.0, 0.0)),
}
