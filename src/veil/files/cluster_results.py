"""Maps of the clusters of an unfinished run, each in a file named by what it was made from, so that a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.files.kept_arrays import KeptArrays
from veil.forms import Form, Points, Subsets
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.map_check import MapCheck
from veil.mapping.images import MapImage
from veil.mapping.points import NoMap
from veil.scene import MappedImage, Scene

VERSION = 1


class ClusterResults:
    """A folder with one file for each cluster that was mapped, or that has no map.

    A file holds poses, points and numbers of features, no descriptor: these are those of the images that are being mapped.
    Damaged files and those of another version count as missing.
    """

    def __init__(self, folder: Path) -> None:
        self._kept = KeptArrays(folder)

    def get(self, key: str, images: Mapping[str, MapImage]) -> Scene | NoMap | None:
        """The answer for the cluster of these images; None if it is missing or damaged."""
        arrays = self._kept.get(key)
        try:
            return None if arrays is None else _answer(arrays, images)
        except (ValueError, LookupError, TypeError, InputError):
            return None

    def put(self, key: str, answer: Scene | NoMap, images: Mapping[str, MapImage]) -> None:
        """Keep an answer, at once or not at all. Raises InputError if it cannot be written."""
        self._kept.put(key, _arrays(answer, images))


def _arrays(answer: Scene | NoMap, images: Mapping[str, MapImage]) -> dict[str, np.ndarray]:
    """Arrays that stand for an answer; `_answer` is the inverse."""
    check = None if answer.check is None else answer.check.as_json()
    if isinstance(answer, NoMap):
        facts = {"version": VERSION, "reason": answer.reason, "left_out": dict(answer.left_out), "check": check}
        return {"header": np.array(json.dumps(facts))}
    listed, found = [], {"points": answer.points}
    for number, (name, image) in enumerate(answer.images.items()):
        camera = image.camera
        listed.append([name, camera.model, camera.width_px, camera.height_px, list(camera.params), camera.focal_is_known])
        found[f"rotation{number}"] = image.cam_from_world.rotation
        found[f"translation{number}"] = image.cam_from_world.translation
        found[f"features{number}"] = feature_rows(image, images[name])
        found[f"points{number}"] = image.point_rows
    if answer.measured_down is not None:
        found["down"] = answer.measured_down
    facts = {"version": VERSION, "images": listed, "error_px": answer.mean_reprojection_error_px, "check": check}
    return {"header": np.array(json.dumps(facts)), **found}


def _answer(arrays: Mapping[str, np.ndarray], images: Mapping[str, MapImage]) -> Scene | NoMap | None:
    facts = json.loads(str(arrays["header"]))
    if facts["version"] != VERSION:
        return None
    check = None if facts["check"] is None else MapCheck.from_json(facts["check"])
    if "reason" in facts:
        return NoMap(facts["reason"], facts["left_out"], check)
    found = {}
    for number, (name, model, width, height, params, is_known) in enumerate(facts["images"]):
        rows = arrays[f"features{number}"]
        camera = Camera(model=model, width_px=width, height_px=height, params=tuple(params), focal_is_known=is_known)
        found[name] = MappedImage(
            name=name,
            camera=camera,
            cam_from_world=Rigid(rotation=arrays[f"rotation{number}"], translation=arrays[f"translation{number}"]),
            keypoints=images[name].keypoints[rows],
            point_rows=arrays[f"points{number}"],
            form=images[name].form.take(rows),
        )
    return Scene(
        images=found,
        points=arrays["points"],
        mean_reprojection_error_px=facts["error_px"],
        measured_down=arrays.get("down"),
        check=check,
    )


def feature_rows(mapped: MappedImage, image: MapImage) -> np.ndarray:
    """Rows, int64 (n,), of an image's features that a map holds, by position and descriptor.

    Raises LookupError if the map holds a feature that the image does not have.
    """
    waiting: dict[bytes, list[int]] = {}
    every, some = _bytes_of(image.keypoints, image.form), _bytes_of(mapped.keypoints, mapped.form)
    for row in reversed(range(len(every))):
        waiting.setdefault(every[row].tobytes(), []).append(row)
    return np.array([waiting[item.tobytes()].pop() for item in some], dtype=np.int64)


def _bytes_of(keypoints: np.ndarray, form: Form) -> np.ndarray:
    """Bytes of each feature, uint8 (n, bytes): its position and its descriptor."""
    if isinstance(form, Points):
        arrays = [keypoints, form.vectors]
    elif isinstance(form, Subsets):
        arrays = [keypoints, form.ids]
    else:
        arrays = [keypoints, form.origin, form.basis]
    count = len(keypoints)
    flat = [np.ascontiguousarray(array.reshape(count, -1)).view(np.uint8).reshape(count, -1) for array in arrays if count]
    return np.hstack(flat) if flat else np.empty((0, 0), dtype=np.uint8)
