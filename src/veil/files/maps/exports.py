"""Maps for other viewers: PLY, glTF and COLMAP's model. No descriptor is in any of them.

PLY is that of G. Turk, "The PLY Polygon File Format" (1994), in binary; glTF is version 2.0 of Khronos, as one .glb file.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, UInt8

from veil.errors import InputError
from veil.files.atomic import new_folder, require_vacant, write_bytes, writing
from veil.files.maps.format import write_model
from veil.places.maps.scenes import model_of
from veil.scene import MappedImage, Scene

Format = Literal["ply", "gltf", "colmap"]
GRAY = (128, 128, 128)
# glTF's component types and targets (glTF 2.0, Sec. 5.1.3 and 5.11.5), and its mode of points and of lines (Sec. 5.24.4).
UNSIGNED_BYTE, FLOAT, ARRAY_BUFFER = 5121, 5126, 34962
POINTS, LINES = 0, 1
# Axes of a glTF camera (x right, y up, z backward) in those of veil's (x right, y down, z forward).
TURNED = np.diag([1.0, -1.0, -1.0])


def export_map(path: Path | str, scene: Scene, kind: Format, colors: UInt8[np.ndarray, "points 3"] | None = None) -> None:
    """Write points and cameras of a map to `path`, at once or not at all: "ply", "gltf" or a folder of "colmap" (`kind`).

    `scene` is the map's (`Map.scene`). `colors` are those of the points, uint8 (points, 3); without them they are gray (COLMAP:
    black). Raises InputError if it cannot be written, or, for COLMAP's folder, if it already holds something.
    """
    path = Path(path)
    if colors is not None and colors.shape != (len(scene.points), 3):
        raise InputError(f"{len(scene.points)} points need as many colors, got an array of shape {colors.shape}")
    if kind == "colmap":
        _write_colmap(path, scene, colors)
    else:
        write_bytes(path, ply_bytes(scene, colors) if kind == "ply" else glb_bytes(scene, colors))


def ply_bytes(scene: Scene, colors: UInt8[np.ndarray, "points 3"] | None = None) -> bytes:
    """The points as binary PLY: x, y, z as doubles in units of the map, a color, and how many images see each (`views`)."""
    kind = [("x", "<f8"), ("y", "<f8"), ("z", "<f8"), ("red", "u1"), ("green", "u1"), ("blue", "u1"), ("views", "<u4")]
    rows = np.zeros(len(scene.points), dtype=kind)
    rows["x"], rows["y"], rows["z"] = scene.points.T
    rows["red"], rows["green"], rows["blue"] = _colored(scene, colors).T
    for image in scene.images.values():
        rows["views"][np.unique(image.point_rows)] += 1
    names = {"<f8": "double", "u1": "uchar", "<u4": "uint"}
    head = ["ply", "format binary_little_endian 1.0", "comment veil: units of the map", f"element vertex {len(rows)}"]
    head += [f"property {names[code]} {name}" for name, code in kind] + ["end_header", ""]
    return "\n".join(head).encode() + rows.tobytes()


def glb_bytes(scene: Scene, colors: UInt8[np.ndarray, "points 3"] | None = None) -> bytes:
    """Points, cameras and their pyramids as one .glb file, y up where the map knows gravity.

    glTF has 32-bit floats: places are told from the middle of the points, which the root node moves back in double precision.
    """
    middle = np.median(scene.points, axis=0)
    rgba = np.hstack([_colored(scene, colors), np.full((len(scene.points), 1), 255, dtype=np.uint8)])
    size = 0.05 * (scene.extent or 1.0)
    pyramids = np.concatenate([_pyramid(image, size) - middle for image in scene.images.values()])
    buffer = _Buffer()
    points = {
        "attributes": {"POSITION": buffer.add(scene.points - middle), "COLOR_0": buffer.add(rgba)},
        "mode": POINTS,
    }
    lines = {"attributes": {"POSITION": buffer.add(pyramids)}, "mode": LINES}
    moved = {"name": "map", "translation": middle.tolist(), "children": [1, 2]}
    nodes: list[dict[str, Any]] = [moved, {"name": "points", "mesh": 0}, {"name": "cameras", "mesh": 1}]
    cameras: list[dict[str, Any]] = []
    for name, image in sorted(scene.images.items()):
        moved["children"].append(len(nodes))
        nodes.append({"name": name, "camera": len(cameras), "matrix": _matrix(image, middle)})
        cameras.append(_perspective(image))
    root = {"name": "up", "rotation": _upright(scene), "children": [0]}
    content = {
        "asset": {"version": "2.0", "generator": "veil"},
        "scene": 0,
        "scenes": [{"nodes": [len(nodes)]}],
        "nodes": [*nodes, root],
        "meshes": [{"name": "points", "primitives": [points]}, {"name": "cameras", "primitives": [lines]}],
        "cameras": cameras,
        "accessors": buffer.accessors,
        "bufferViews": buffer.views,
        "buffers": [{"byteLength": len(buffer.data)}],
    }
    return _container(json.dumps(content, separators=(",", ":")).encode(), bytes(buffer.data))


class _Buffer:
    """The binary part of a glTF file, with its views and accessors."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.views: list[dict[str, int]] = []
        self.accessors: list[dict[str, Any]] = []

    def add(self, values: np.ndarray) -> int:
        """The number of a new accessor: vectors of three floats, or of four normalized bytes."""
        is_color = values.dtype == np.uint8
        stored = values if is_color else values.astype("<f4")
        view = {"buffer": 0, "byteOffset": len(self.data), "byteLength": stored.nbytes, "target": ARRAY_BUFFER}
        accessor: dict[str, Any] = {"bufferView": len(self.views), "count": len(stored)}
        if is_color:
            accessor |= {"componentType": UNSIGNED_BYTE, "normalized": True, "type": "VEC4"}
        else:
            accessor |= {"componentType": FLOAT, "type": "VEC3"}
            accessor |= {"min": stored.min(axis=0).tolist(), "max": stored.max(axis=0).tolist()}
        self.data += stored.tobytes()
        self.views.append(view)
        self.accessors.append(accessor)
        return len(self.accessors) - 1


def _container(content: bytes, data: bytes) -> bytes:
    """A .glb file of a JSON and a binary part (glTF 2.0, Sec. 4)."""
    content += b" " * (-len(content) % 4)
    data += b"\0" * (-len(data) % 4)
    parts = struct.pack("<I4s", len(content), b"JSON") + content + struct.pack("<I4s", len(data), b"BIN\0") + data
    return struct.pack("<4sII", b"glTF", 2, 12 + len(parts)) + parts


def _colored(scene: Scene, colors: UInt8[np.ndarray, "points 3"] | None) -> UInt8[np.ndarray, "points 3"]:
    return np.tile(np.array(GRAY, dtype=np.uint8), (len(scene.points), 1)) if colors is None else colors


def _pyramid(image: MappedImage, size: float) -> Float64[np.ndarray, "ends 3"]:
    """Both ends of each of eight edges from a camera's center to its image, whose longer side is `size` long."""
    camera, pose = image.camera, image.cam_from_world.inverse()
    width, height = camera.width_px, camera.height_px
    corners = np.array([[x, y, 1.0] for x, y in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))])
    corners *= [
        size * width / max(width, height),
        size * height / max(width, height),
        size * camera.focal_px / max(width, height),
    ]
    ends = pose.apply(np.vstack([np.zeros(3), corners]))
    edges = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1)]
    return ends[np.array(edges).ravel()]


def _matrix(image: MappedImage, middle: np.ndarray) -> list[float]:
    """The matrix world_from_camera of a glTF camera, by columns."""
    pose = image.cam_from_world.inverse()
    matrix = np.eye(4)
    matrix[:3, :3] = pose.rotation @ TURNED
    matrix[:3, 3] = pose.translation - middle
    return matrix.T.ravel().tolist()


def _perspective(image: MappedImage) -> dict[str, Any]:
    """A glTF camera; it has neither a principal point nor distortion."""
    camera = image.camera
    yfov = 2 * np.arctan(0.5 * camera.height_px / camera.params[camera.focal_count - 1])
    return {
        "type": "perspective",
        "name": image.name,
        "perspective": {"yfov": float(yfov), "aspectRatio": camera.width_px / camera.height_px, "znear": 0.01},
    }


def _upright(scene: Scene) -> list[float]:
    """The quaternion (x, y, z, w) that turns up of the map, where it is known, to y; else y of the map's first camera."""
    from scipy.spatial.transform import Rotation

    up = -scene.down if scene.down is not None else -next(iter(scene.images.values())).cam_from_world.rotation[1]
    turn, _ = Rotation.align_vectors(np.array([[0.0, 1.0, 0.0]]), np.array([up]))
    return turn.as_quat().tolist()


def _write_colmap(folder: Path, scene: Scene, colors: UInt8[np.ndarray, "points 3"] | None) -> None:
    """COLMAP's model in a new folder, in binary, for its window, pycolmap and others that read it."""
    require_vacant(folder)
    model = model_of(scene)
    if colors is not None:
        # Points are numbered from 1 in the scene's order.
        for point_id, point in model.points3D.items():
            point.color = colors[point_id - 1]
    with writing(folder), new_folder(folder) as temporary:
        write_model(model, temporary)
