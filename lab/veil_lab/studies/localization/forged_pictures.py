"""Pictures for forged queries, which should get no pose, and for hard true queries, which should get one.

Functions take gray pixels (rows, columns, 8 bits), and a generator where something is drawn, and return gray pixels or
features; nothing here is released. A forgery is seen by the camera of the photograph whose size it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, UInt8

from veil.features import Features
from veil.geometry.camera import Camera

Gray = UInt8[np.ndarray, "_ _"]  # rows, columns
PLAIN = 200  # gray value of a wall


def resized(image: Gray, width: int, height: int) -> Gray:
    """The image scaled to `width` x `height`: by averages of pixels where it shrinks, by cubic interpolation elsewhere."""
    import cv2

    shrinks = width * height < image.size
    return cv2.resize(image, (max(width, 1), max(height, 1)), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)


def fitted(image: Gray, width: int, height: int) -> Gray:
    """The image scaled, with its proportions kept, to the largest size that lies inside `width` x `height`."""
    factor = min(width / image.shape[1], height / image.shape[0])
    return resized(image, round(factor * image.shape[1]), round(factor * image.shape[0]))


def poster(random: np.random.Generator, image: Gray, width: int, height: int, share: float, *, anywhere: bool = True) -> Gray:
    """A picture of the image on a plain wall, at a random place if `anywhere`, else in the middle.

    The image takes `share` of the picture's width or height, whichever is reached first.
    """
    small = fitted(image, round(share * width), round(share * height))
    canvas = np.full((height, width), PLAIN, dtype=np.uint8)
    spare = np.array(canvas.shape) - small.shape
    top, left = random.integers(0, spare + 1) if anywhere else spare // 2
    canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
    return canvas


def screen(random: np.random.Generator, image: Gray, width: int, height: int, share: float) -> Gray:
    """A picture of the image on a screen with a dark frame, seen at an angle in a room of soft shades.

    The image takes about `share` of the picture's width or height.
    """
    import cv2

    small = fitted(image, round(share * width), round(share * height))
    small = np.pad(small, max(4, round(0.03 * min(small.shape))), constant_values=15)
    rows, columns = small.shape
    corners = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]], dtype=np.float32)
    spare = np.array([max(width - columns, 0), max(height - rows, 0)])
    moved = corners + random.uniform(0, 1, 2) * spare + random.uniform(-0.08, 0.08, (4, 2)) * [columns, rows]
    warp = cv2.getPerspectiveTransform(corners, np.clip(moved, 0, [width, height]).astype(np.float32))
    room = resized(random.integers(60, 190, (4, 4)).astype(np.uint8), width, height)
    shown = cv2.warpPerspective(small, warp, (width, height), flags=cv2.INTER_AREA)
    inside = cv2.warpPerspective(np.full_like(small, 255), warp, (width, height)) > 127
    return np.where(inside, shown, room)


def collage(random: np.random.Generator, images: Sequence[Gray], width: int, height: int, across: int = 3) -> Gray:
    """A picture of photographs side by side in `across` columns and as many rows, in random order."""
    canvas = np.full((height, width), PLAIN, dtype=np.uint8)
    order = random.permutation(len(images))
    for cell in range(across * across):
        image = images[order[cell % len(images)]]
        top, left = cell // across * height // across, cell % across * width // across
        small = fitted(image, width // across, height // across)
        canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
    return canvas


def repeated(random: np.random.Generator, image: Gray, width: int, height: int, side: int) -> Gray:
    """A picture that repeats a random square patch of the image (`side` pixels), as tiles or windows do, with some noise."""
    top, left = (random.integers(0, max(1, extent - side)) for extent in image.shape)
    patch = image[top : top + side, left : left + side]
    count = (-(-height // patch.shape[0]), -(-width // patch.shape[1]))
    canvas = np.tile(patch, count)[:height, :width].astype(np.float64)
    return np.clip(canvas + random.normal(0, 3, canvas.shape), 0, 255).astype(np.uint8)


def text(random: np.random.Generator, width: int, height: int) -> Gray:
    """A picture of a printed page of random letters."""
    import cv2

    canvas = np.full((height, width), 245, dtype=np.uint8)
    size = float(random.uniform(0.4, 0.9))
    step = round(32 * size)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz     ETAOIN.,"))
    for base in range(step, height - step // 2, step):
        line = "".join(random.choice(letters, round(width / (17 * size))))
        cv2.putText(canvas, line, (10, base), cv2.FONT_HERSHEY_SIMPLEX, size, 20, 1, cv2.LINE_AA)
    return canvas


def foliage(random: np.random.Generator, width: int, height: int) -> Gray:
    """A picture of leaves of all sizes upon each other (the dead-leaves model of Lee, Mumford and Huang 2001)."""
    import cv2

    canvas = np.full((height, width), 90, dtype=np.uint8)
    for _ in range(6000):
        # Sizes by an inverse cube law between 3 and 60 px.
        radius = 3 / math.sqrt(1 - random.random() * (1 - (3 / 60) ** 2))
        center = (int(random.integers(0, width)), int(random.integers(0, height)))
        axes = (max(1, round(radius)), max(1, round(radius * random.uniform(0.3, 0.8))))
        cv2.ellipse(canvas, center, axes, random.uniform(0, 180), 0, 360, int(random.integers(20, 235)), -1, cv2.LINE_AA)
    return canvas


def under_sky(random: np.random.Generator, image: Gray, width: int, height: int, share: float) -> Gray:
    """A picture of a building below an empty sky: the image at the lower border, with `share` of the width or height."""
    small = fitted(image, round(share * width), round(share * height))
    shade = np.linspace(225, 250, height)[:, None].astype(np.uint8)
    canvas = np.repeat(shade, width, axis=1)
    left = int(random.integers(0, width - small.shape[1] + 1))
    canvas[height - small.shape[0] :, left : left + small.shape[1]] = small
    return canvas


def blurred(image: Gray, sigma_px: float) -> Gray:
    """The image out of focus: a Gaussian blur of standard deviation `sigma_px`."""
    import cv2

    return cv2.GaussianBlur(image, (0, 0), sigma_px)


def dark(random: np.random.Generator, image: Gray, share: float) -> Gray:
    """The image with `share` of its light, and noise as of a sensor that is read out (1.5 gray values)."""
    return np.clip(share * image + random.normal(0, 1.5, image.shape), 0, 255).astype(np.uint8)


def cropped(random: np.random.Generator, image: Gray, camera: Camera, share: float) -> tuple[Gray, Camera]:
    """A random part of the image, `share` of its width and of its height, and the camera that sees just this part."""
    height, width = image.shape
    rows, columns = round(share * height), round(share * width)
    top, left = int(random.integers(0, height - rows + 1)), int(random.integers(0, width - columns + 1))
    k = camera.focal_count
    params = (*camera.params[:k], camera.params[k] - left, camera.params[k + 1] - top, *camera.params[k + 2 :])
    part = np.ascontiguousarray(image[top : top + rows, left : left + columns])
    return part, replace(camera, width_px=columns, height_px=rows, params=params)


def scaled(image: Gray, camera: Camera, factor: float) -> tuple[Gray, Camera]:
    """The image at `factor` times its size, and its camera, whose focal lengths and principal point are scaled alike."""
    height, width = image.shape
    columns, rows = round(factor * width), round(factor * height)
    k, grown = camera.focal_count, (columns / width, rows / height)
    focal = [value * grown[min(index, 1)] for index, value in enumerate(camera.params[:k])]
    center = [camera.params[k] * grown[0], camera.params[k + 1] * grown[1]]
    params = (*focal, *center, *camera.params[k + 2 :])
    return resized(image, columns, rows), replace(camera, width_px=columns, height_px=rows, params=params)


def hidden_sides(image: Gray, share: float) -> Gray:
    """The image with all but its lower middle (`share` of width and height) painted over, like a building under empty sky.

    Made from a true photograph, it is a hard true query.
    """
    height, width = image.shape
    out = np.full_like(image, 235)
    top, side = round((1 - share) * height), round((1 - share) / 2 * width)
    out[top:, side : width - side] = image[top:, side : width - side]
    return out


# Pixel positions for a number of features in the picture of a camera.
Layout = Callable[[np.random.Generator, int, Camera], Float32[np.ndarray, "features 2"]]


def in_square(side_px: float) -> Layout:
    """A layout of positions that are uniform in a square of side `side_px`, somewhere in the picture."""

    def place(random: np.random.Generator, count: int, camera: Camera) -> np.ndarray:
        size = np.array([camera.width_px, camera.height_px])
        corner = random.random(2) * np.maximum(size - side_px, 0)
        return (corner + random.random((count, 2)) * np.minimum(side_px, size)).astype(np.float32)

    return place


def at_one_point(random: np.random.Generator, count: int, camera: Camera) -> np.ndarray:
    """One random position (pixels) for all `count` features."""
    return np.repeat((random.random((1, 2)) * [camera.width_px, camera.height_px]).astype(np.float32), count, axis=0)


def along_a_line(random: np.random.Generator, count: int, camera: Camera) -> np.ndarray:
    """Positions (pixels) that are uniform on a random straight segment in the picture."""
    ends = random.random((2, 2)) * [camera.width_px, camera.height_px]
    part = random.random((count, 1))
    return (ends[0] + part * (ends[1] - ends[0])).astype(np.float32)


def on_a_grid(random: np.random.Generator, count: int, camera: Camera) -> np.ndarray:
    """Positions (pixels) at random knots of a grid of 4 to 11 columns and rows; several features share a knot."""
    across = int(random.integers(4, 12))
    knots = random.integers(0, across, (count, 2)) + 0.5
    return (knots / across * [camera.width_px, camera.height_px]).astype(np.float32)


LAYOUTS: dict[str, Layout] = {
    "square 20 px": in_square(20.0),
    "square 60 px": in_square(60.0),
    "square 120 px": in_square(120.0),
    "square 250 px": in_square(250.0),
    "one point": at_one_point,
    "one line": along_a_line,
    "grid": on_a_grid,
}


def rearranged(random: np.random.Generator, features: Features, layout: Layout) -> Features:
    """Features with their descriptors kept and their positions from `layout`: they match the place, and no pose fits."""
    return replace(features, keypoints=layout(random, len(features), features.camera))
