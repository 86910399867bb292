"""Maps of the clusters of an unfinished run, each in a file named by what it was made from, so that a killed run goes on."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from veil.errors import InputError, remedies_of, told_as_json
from veil.files.atomic import read_bytes, write_bytes
from veil.forms import Form, Points, Subsets
from veil.geometry.camera import Camera, FocalPrior
from veil.geometry.rigid import Rigid
from veil.places.maps.images import MapImage, NoMap
from veil.places.maps.lines import LineMap, LineMapCheck, LineView, Tracks
from veil.scene import MapCheck, MappedImage, Scene


class KeptArrays:
    """A folder with one .npz for each key, and its SHA-256 at the end; damaged files count as missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Path of the file of a key, whether it is there or not."""
        return self.folder / f"{key}.npz"

    def get(self, key: str) -> dict[str, np.ndarray] | None:
        """The arrays of a key by name; None if they are missing or damaged."""
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            data = read_bytes(path)
            if hashlib.sha256(data[:-32]).digest() != data[-32:]:
                return None
            with np.load(io.BytesIO(data[:-32]), allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, LookupError, zipfile.BadZipFile, InputError):
            return None

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the arrays of a key, at once or not at all. Raises InputError if they cannot be written."""
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        data = stream.getvalue()
        write_bytes(self.path(key), data + hashlib.sha256(data).digest())


VERSION = 2
Image = TypeVar("Image")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class KeptAs(Generic[Image, Answer]):
    """How maps of one kind are kept: the arrays that stand for an answer, and the answer that arrays stand for.

    Both also get the images that are mapped, by name. The answer is None for arrays of another version.
    """

    arrays: Callable[[Answer, Mapping[str, Image]], dict[str, np.ndarray]]
    answer: Callable[[Mapping[str, np.ndarray], Mapping[str, Image]], Answer | None]


class ClusterResults(Generic[Image, Answer]):
    """A folder with one file for each cluster that was mapped, or that has no map.

    A file holds poses, points and numbers of features, no descriptor: these are those of the images that are being mapped.
    Damaged files and those of another version count as missing.
    """

    def __init__(self, folder: Path, kept_as: KeptAs[Image, Answer]) -> None:
        self._kept, self._as = KeptArrays(folder), kept_as

    def get(self, key: str, images: Mapping[str, Image]) -> Answer | None:
        """The answer for the cluster of these images; None if it is missing or damaged."""
        arrays = self._kept.get(key)
        try:
            return None if arrays is None else self._as.answer(arrays, images)
        except (ValueError, LookupError, TypeError, InputError):
            return None

    def put(self, key: str, answer: Answer, images: Mapping[str, Image]) -> None:
        """Keep an answer, at once or not at all. Raises InputError if it cannot be written."""
        self._kept.put(key, self._as.arrays(answer, images))


def _arrays_of_positions(answer: Scene | NoMap, images: Mapping[str, MapImage]) -> dict[str, np.ndarray]:
    """Arrays that stand for an answer; `_answer_in_positions` is the inverse."""
    if isinstance(answer, NoMap):
        return _arrays_without_map(answer)
    listed, arrays = [], {"points": answer.points}
    for number, (name, image) in enumerate(answer.images.items()):
        camera = image.camera
        listed.append([name, camera.model, camera.width_px, camera.height_px, list(camera.params), asdict(camera.focal)])
        arrays[f"rotation{number}"] = image.cam_from_world.rotation
        arrays[f"translation{number}"] = image.cam_from_world.translation
        arrays[f"features{number}"] = feature_rows(image, images[name])
        arrays[f"points{number}"] = image.point_rows
    if answer.measured_down is not None:
        arrays["down"] = answer.measured_down
    check = None if answer.check is None else answer.check.as_json()
    facts = {"version": VERSION, "images": listed, "error_px": answer.mean_reprojection_error_px, "check": check}
    return {"header": np.array(json.dumps(facts)), **arrays}


def _answer_in_positions(arrays: Mapping[str, np.ndarray], images: Mapping[str, MapImage]) -> Scene | NoMap | None:
    facts = json.loads(str(arrays["header"]))
    if facts["version"] != VERSION:
        return None
    if "reason" in facts:
        return _without_map(facts)
    mapped = {}
    for number, (name, model, width, height, params, focal) in enumerate(facts["images"]):
        rows = arrays[f"features{number}"]
        camera = Camera(model=model, width_px=width, height_px=height, params=tuple(params), focal=FocalPrior(**focal))
        mapped[name] = MappedImage(
            name=name,
            camera=camera,
            cam_from_world=Rigid(rotation=arrays[f"rotation{number}"], translation=arrays[f"translation{number}"]),
            keypoints=images[name].keypoints[rows],
            point_rows=arrays[f"points{number}"],
            form=images[name].form.take(rows),
        )
    return Scene(
        images=mapped,
        points=arrays["points"],
        mean_reprojection_error_px=facts["error_px"],
        measured_down=arrays.get("down"),
        check=_map_check(facts["check"]),
    )


def _arrays_without_map(answer: NoMap) -> dict[str, np.ndarray]:
    """Arrays that stand for the answer of a cluster without a map; `_without_map` reads their header."""
    facts = {
        "version": VERSION,
        "reason": answer.reason,
        "left_out": dict(answer.left_out),
        "check": None if answer.check is None else answer.check.as_json(),
        **told_as_json(answer.remedy),
    }
    return {"header": np.array(json.dumps(facts))}


def _without_map(facts: Mapping[str, Any]) -> NoMap:
    return NoMap(facts["reason"], facts["left_out"], _map_check(facts["check"]), remedies_of(facts.get("remedy")))


def _map_check(facts: Any) -> MapCheck | None:
    return None if facts is None else MapCheck.from_json(facts)


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


def _arrays_of_lines(answer: LineMap | NoMap, _: Mapping[str, LineView]) -> dict[str, np.ndarray]:
    """Arrays that stand for an answer, but for the four images that a map began with; `_answer_in_lines` is the inverse."""
    if isinstance(answer, NoMap):
        return _arrays_without_map(answer)
    facts = {
        "version": VERSION,
        "names": answer.tracks.names,
        "left_out": answer.tracks.left_out,
        "mapped": list(answer.cam_from_world),
        "refused": dict(answer.refused),
        "check": answer.check.as_json(),
    }
    poses = list(answer.cam_from_world.values())
    return {
        "header": np.array(json.dumps(facts)),
        "rotations": np.array([pose.rotation for pose in poses]).reshape(-1, 3, 3),
        "translations": np.array([pose.translation for pose in poses]).reshape(-1, 3),
        "track": answer.tracks.track,
        "image": answer.tracks.image,
        "feature": answer.tracks.feature,
        "points": answer.points,
        "observed": answer.observed,
    }


def _answer_in_lines(arrays: Mapping[str, np.ndarray], _: Mapping[str, LineView]) -> LineMap | NoMap | None:
    facts = json.loads(str(arrays["header"]))
    if facts["version"] != VERSION:
        return None
    if "reason" in facts:
        return _without_map(facts)
    poses = zip(arrays["rotations"], arrays["translations"], strict=True)
    return LineMap(
        tracks=Tracks(
            names=tuple(facts["names"]),
            track=arrays["track"],
            image=arrays["image"],
            feature=arrays["feature"],
            left_out=facts["left_out"],
        ),
        cam_from_world={
            name: Rigid(rotation=rotation, translation=translation)
            for name, (rotation, translation) in zip(facts["mapped"], poses, strict=True)
        },
        points=arrays["points"],
        observed=arrays["observed"],
        quad=None,
        refused=facts["refused"],
        check=LineMapCheck(**facts["check"]),
    )


OF_POSITIONS: KeptAs[MapImage, Scene | NoMap] = KeptAs(arrays=_arrays_of_positions, answer=_answer_in_positions)
OF_LINES: KeptAs[LineView, LineMap | NoMap] = KeptAs(arrays=_arrays_of_lines, answer=_answer_in_lines)
