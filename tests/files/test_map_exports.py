"""Maps written for other viewers: read back by COLMAP, and by readers that follow the formats' own texts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.errors import InputError
from veil.files.maps.exports import GRAY, export_map, glb_bytes, ply_bytes
from veil.scene import Scene
from worlds import generator
from worlds.map_scenes import KINDS, planted_map

PLY = {"double": "<f8", "uchar": "u1", "uint": "<u4", "float": "<f4", "int": "<i4"}


def read_ply(data: bytes) -> np.ndarray:
    """The vertices of a binary PLY file, by its own header (G. Turk 1994)."""
    head, _, body = data.partition(b"end_header\n")
    lines = head.decode("ascii").splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    (count,) = [int(line.split()[2]) for line in lines if line.startswith("element vertex ")]
    kinds = [(line.split()[2], PLY[line.split()[1]]) for line in lines if line.startswith("property ")]
    assert len(body) == count * np.dtype(kinds).itemsize
    return np.frombuffer(body, dtype=kinds)


class Glb:
    """A .glb file as glTF 2.0 tells to read it (Sec. 4.4, 3.6 and 3.5.3)."""

    def __init__(self, data: bytes) -> None:
        magic, version, length = struct.unpack_from("<4sII", data)
        assert (magic, version, length) == (b"glTF", 2, len(data)) and length % 4 == 0
        size, kind = struct.unpack_from("<I4s", data, 12)
        assert kind == b"JSON" and size % 4 == 0
        self.content: dict[str, Any] = json.loads(data[20 : 20 + size])
        binary, kind = struct.unpack_from("<I4s", data, 20 + size)
        assert kind == b"BIN\0" and 28 + size + binary == len(data)
        self.binary = data[28 + size :]

    def accessor(self, number: int) -> np.ndarray:
        """The values of an accessor, one vector a row; its bounds must be right."""
        told = self.content["accessors"][number]
        view = self.content["bufferViews"][told["bufferView"]]
        kind, width = {5126: "<f4", 5121: "u1"}[told["componentType"]], {"VEC3": 3, "VEC4": 4}[told["type"]]
        assert view["byteOffset"] % 4 == 0 and view["byteLength"] == told["count"] * width * np.dtype(kind).itemsize
        values = np.frombuffer(self.binary, dtype=kind, count=told["count"] * width, offset=view["byteOffset"])
        rows = values.reshape(-1, width)
        if "min" in told:
            assert np.array_equal(rows.min(axis=0), np.float32(told["min"]))
            assert np.array_equal(rows.max(axis=0), np.float32(told["max"]))
        return rows

    def world_from(self) -> dict[str, np.ndarray]:
        """The matrix of each node by name, with those of the nodes above it."""
        matrices: dict[str, np.ndarray] = {}

        def walk(number: int, above: np.ndarray) -> None:
            node = self.content["nodes"][number]
            matrix = np.array(node["matrix"]).reshape(4, 4).T if "matrix" in node else np.eye(4)
            if "translation" in node:
                matrix[:3, 3] = node["translation"]
            if "rotation" in node:
                x, y, z, w = node["rotation"]
                matrix[:3, :3] = [
                    [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                    [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                    [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
                ]
            matrices[node["name"]] = above @ matrix
            for child in node.get("children", ()):
                walk(child, matrices[node["name"]])

        for number in self.content["scenes"][self.content["scene"]]["nodes"]:
            walk(number, np.eye(4))
        return matrices


def colors_of(scene: Scene) -> np.ndarray:
    return generator("colors").integers(0, 256, (len(scene.points), 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_ply_holds_the_points_exactly(kind: str) -> None:
    """Oracle: the map; a reader that knows nothing but the header."""
    scene, _ = planted_map("export", kind)
    colors = colors_of(scene)
    rows = read_ply(ply_bytes(scene, colors))
    assert np.array_equal(np.stack([rows["x"], rows["y"], rows["z"]], axis=1), scene.points)
    assert np.array_equal(np.stack([rows["red"], rows["green"], rows["blue"]], axis=1), colors)
    assert rows["views"].sum() == scene.observation_count
    gray = read_ply(ply_bytes(scene))
    assert {tuple(row) for row in np.stack([gray["red"], gray["green"], gray["blue"]], axis=1).tolist()} == {GRAY}


@pytest.mark.parametrize("kind", ["public", "lines"])
def test_gltf_cameras_see_the_points_where_the_map_says(kind: str) -> None:
    """Oracle: pixels by glTF's definition of a camera (x right, y up, looks along -z), against the map's keypoints.

    Broken twin: veil's own axes, without the turn, see every point behind the camera.
    """
    scene, world = planted_map("export", kind)
    file = Glb(glb_bytes(scene, colors_of(scene)))
    world_from = file.world_from()
    points, cameras = file.content["meshes"]
    (cloud,) = points["primitives"]
    assert cloud["mode"] == 0 and cameras["primitives"][0]["mode"] == 1
    local = file.accessor(cloud["attributes"]["POSITION"]).astype(np.float64)
    placed = local @ world_from["points"][:3, :3].T + world_from["points"][:3, 3]
    assert np.array_equal(file.accessor(cloud["attributes"]["COLOR_0"])[:, :3], colors_of(scene))
    for node in file.content["nodes"]:
        if "camera" not in node:
            continue
        image = scene.images[node["name"]]
        lens = file.content["cameras"][node["camera"]]["perspective"]
        focal = 0.5 * image.camera.height_px / np.tan(0.5 * lens["yfov"])
        assert lens["aspectRatio"] == pytest.approx(image.camera.width_px / image.camera.height_px)
        inverse = np.linalg.inv(world_from[node["name"]])
        seen = placed[image.point_rows] @ inverse[:3, :3].T + inverse[:3, 3]
        assert (seen[:, 2] < 0).all()
        pixels = np.stack([320 + focal * seen[:, 0] / -seen[:, 2], 240 - focal * seen[:, 1] / -seen[:, 2]], axis=1)
        if kind == "public":
            assert np.abs(pixels - image.keypoints).max() < 1.0
        twin = seen * [1, -1, -1]
        assert (twin[:, 2] > 0).all()
    up = world_from["map"][:3, :3] @ (-scene.down if scene.down is not None else -next(iter(world.poses.values())).rotation[1])
    assert up == pytest.approx([0, 1, 0], abs=1e-6)
    ends = file.accessor(cameras["primitives"][0]["attributes"]["POSITION"])
    assert len(ends) == 16 * len(scene.images) and np.isfinite(ends).all()


@pytest.mark.parametrize("kind", KINDS)
def test_colmap_reads_its_model(kind: str, tmp_path: Path) -> None:
    """Oracle: pycolmap. No file of the folder is one of descriptors."""
    import pycolmap

    scene, _ = planted_map("export", kind)
    colors = colors_of(scene)
    export_map(tmp_path / "model", scene, "colmap", colors)
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".bin"}
    model = pycolmap.Reconstruction(tmp_path / "model")
    ids = sorted(model.points3D)
    assert np.array_equal(np.array([model.points3D[i].xyz for i in ids]), scene.points)
    assert np.array_equal(np.array([model.points3D[i].color for i in ids]), colors)
    for image_id in model.reg_image_ids():
        image = model.images[image_id]
        pose = scene.images[image.name].cam_from_world
        assert np.allclose(image.cam_from_world().matrix()[:, 3], pose.translation, atol=1e-12)
    with pytest.raises(InputError, match="not empty"):
        export_map(tmp_path / "model", scene, "colmap")


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    scene, _ = planted_map("export")
    for kind, name in (("ply", "map.ply"), ("gltf", "map.glb")):
        export_map(tmp_path / name, scene, kind)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.glb", "map.ply"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        export_map(tmp_path / "file" / "map.ply", scene, "ply")
    with pytest.raises(InputError, match="as many colors"):
        export_map(tmp_path / "no.ply", scene, "ply", np.zeros((3, 3), dtype=np.uint8))
    assert not (tmp_path / "no.ply").exists()
