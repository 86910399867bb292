"""Maps on disk: a model in COLMAP's own format, and the released descriptors of its points beside it.

A map is a folder with `sparse/` (cameras, rigs, frames, images, points3D: opens in COLMAP and pycolmap) and
`descriptors.h5` (per image: which 2D point, which form, and the lines of images that hid their positions; their 2D points
are projections), and `vocabularies/` if it was indexed by words (`veil.files.maps.indexes`). It holds no photograph.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, Remedy, VeilError
from veil.files.atomic import new_folder, require_vacant, writing
from veil.files.containers import group_in, new_group, new_hdf5
from veil.forms import Form, Lines, Points, Subsets, Subspaces, canonical, lifted_guarantee
from veil.geometry.camera import from_colmap
from veil.geometry.rigid import rigid_from_colmap
from veil.ldp.mechanism import SubsetMechanism
from veil.places.maps.scenes import model_of as _reconstruction
from veil.scene import MapCheck, MappedImage, Scene
from veil.space import Space

FORMAT = 1
_ROOM = 1 << 16  # bytes; more than what COLMAP writes at once
_MEMBERS = ("vectors", "origin", "basis", "words", "lines")  # of the group of an image


def write_map(folder: Path, scene: Scene) -> None:
    """Write a scene to a new folder, at once or not at all. Raises InputError if the folder already holds something."""
    require_vacant(folder)
    with writing(folder), new_folder(folder) as temporary:
        sparse = temporary / "sparse"
        sparse.mkdir()
        write_model(_reconstruction(scene), sparse)
        with new_hdf5(temporary / "descriptors.h5") as file:
            file.attrs["veil_map_format"] = FORMAT
            file.attrs["sparse_sha256"] = _fingerprint(sparse)
            _write_space(file, scene.space)
            if scene.measured_down is not None:
                file.attrs["down"] = scene.measured_down
            if scene.check is not None:
                file.attrs["check"] = json.dumps(scene.check.as_json())
            for name, image in scene.images.items():
                group = new_group(file, name, _MEMBERS)
                _write_form(group, image.form)
                if image.lines is not None:
                    _write_lines(group.create_group("lines"), image.lines)


def write_model(model: Any, folder: Path) -> None:
    """Write a model of COLMAP to a folder. Raises OSError where the disk is full: COLMAP cuts its files off without a word."""
    model.write(folder)
    probe = folder / "room"
    try:
        probe.write_bytes(bytes(_ROOM))
    finally:
        probe.unlink(missing_ok=True)


def read_map(folder: Path) -> Scene:
    """The scene of a folder that `write_map` wrote.

    Raises FileFormatError if a part is missing or damaged, or the parts do not belong together.
    """
    import h5py

    from veil.colmap import pycolmap

    if not (folder / "sparse").is_dir() or not (folder / "descriptors.h5").is_file():
        raise FileFormatError(
            f"{folder} is not a veil map: it needs `sparse/` and `descriptors.h5`", remedy=Remedy("make", "map")
        )
    try:
        with h5py.File(folder / "descriptors.h5", "r") as file:
            if file.attrs.get("veil_map_format") != FORMAT:
                raise FileFormatError(f"map format {file.attrs.get('veil_map_format')} is not supported; build it again")
            _require_untouched(folder / "sparse", file.attrs.get("sparse_sha256"))
            scene = _assemble(pycolmap.Reconstruction(folder / "sparse"), file, _read_space(file), _read_down(file))
            return replace(scene, check=_read_check(file))
    except VeilError as error:
        raise FileFormatError(f"{folder}: {error.cause}", facts=error.facts, remedy=error.remedy) from None
    except (OSError, LookupError, ValueError, RuntimeError, TypeError, MemoryError) as error:
        raise FileFormatError(f"{folder} is damaged ({error}); build the map again") from None


def map_fingerprint(folder: Path) -> str:
    """Text that changes when a map does: SHA-256 (hex) of its model, and the size of its descriptors' file in bytes."""
    return f"{_fingerprint(folder / 'sparse')}-{(folder / 'descriptors.h5').stat().st_size}"


def _fingerprint(sparse: Path) -> str:
    """SHA-256 (hex) of the names, sizes and contents of the model's files."""
    hasher = hashlib.sha256()
    for path in sorted(sparse.glob("*.bin")):
        hasher.update(f"{path.name}|{path.stat().st_size}|".encode())
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                hasher.update(block)
    return hasher.hexdigest()


def _require_untouched(sparse: Path, fingerprint: Any) -> None:
    """Raise FileFormatError if the model's files changed: COLMAP's reader may hang or crash on a truncated model."""
    if fingerprint is not None and str(fingerprint) != _fingerprint(sparse):
        raise FileFormatError(
            "`sparse/` was changed after the map was written: if it was damaged, restore it or build the map again; if you "
            "edited it on purpose, delete the attribute sparse_sha256 of descriptors.h5"
        )


def _read_down(file: Any) -> np.ndarray | None:
    """Gravity in the world as it was measured, a unit vector (3,); None if the map has none."""
    if "down" not in file.attrs:
        return None
    down = np.asarray(file.attrs["down"], dtype=np.float64)
    if down.shape != (3,) or not abs(float(np.linalg.norm(down)) - 1) < 1e-6:
        raise FileFormatError("the map's gravity is no unit vector")
    return down


def _read_check(file: Any) -> MapCheck | None:
    """The check that the map passed when it was built; None for maps from lines and of older versions."""
    if "check" not in file.attrs:
        return None
    try:
        return MapCheck.from_json(json.loads(str(file.attrs["check"])))
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"the record of the map's check is damaged ({error})") from None


def _assemble(model: Any, file: Any, space: Space, down: np.ndarray | None) -> Scene:
    point_ids = sorted(model.points3D)
    row_of = {point_id: row for row, point_id in enumerate(point_ids)}
    images = {}
    for image_id in sorted(model.reg_image_ids()):
        image = model.images[image_id]
        group = group_in(file, image.name, _MEMBERS)
        images[image.name] = MappedImage(
            name=image.name,
            camera=from_colmap(model.cameras[image.camera_id]),
            cam_from_world=rigid_from_colmap(image.cam_from_world()),
            keypoints=np.array([p.xy for p in image.points2D], dtype=np.float32).reshape(-1, 2),
            point_rows=np.array([row_of[p.point3D_id] for p in image.points2D], dtype=np.int64),
            form=_read_form(group, space),
            lines=_read_lines(group["lines"]) if "lines" in group else None,
        )
    return Scene(
        images=images,
        points=np.array([model.points3D[i].xyz for i in point_ids], dtype=np.float64).reshape(-1, 3),
        mean_reprojection_error_px=float(model.compute_mean_reprojection_error()),
        measured_down=down,
    )


def _write_lines(group: Any, lines: Lines) -> None:
    group["coefficients"] = lines.coefficients
    group["aligned"] = lines.aligned
    if lines.gravity is not None:
        group.attrs["gravity"] = lines.gravity


def _read_lines(group: Any) -> Lines:
    gravity = group.attrs.get("gravity")
    return Lines(
        coefficients=np.asarray(group["coefficients"], dtype=np.float32),
        aligned=np.asarray(group["aligned"], dtype=bool),
        gravity=None if gravity is None else np.asarray(gravity, dtype=np.float64),
        releasable=True,
    )


def _write_form(group: Any, form: Form) -> None:
    if isinstance(form, Points):
        group["vectors"] = form.vectors
        return
    if isinstance(form, Subsets):
        _write_words(group, form)
        return
    group.attrs["profile"] = form.profile
    group["origin"] = form.origin
    group["basis"] = form.basis


def _read_form(group: Any, space: Space) -> Form:
    if "vectors" in group:
        vectors = np.asarray(group["vectors"], dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise FileFormatError("descriptors contain NaN or infinity")
        return Points(vectors=vectors, space=space)
    if "words" in group:
        return _read_words(group, space)
    origin, basis = canonical(np.asarray(group["origin"], dtype=np.float64), np.asarray(group["basis"], dtype=np.float64))
    profile = str(group.attrs["profile"])
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=space,
        guarantee=lifted_guarantee(profile),
        profile=profile,
        releasable=True,
    )


def _write_words(group: Any, form: Subsets) -> None:
    group["words"] = form.ids
    group.attrs["dictionary"] = form.dictionary
    group.attrs["dictionary_words"] = form.mechanism.dictionary_size
    group.attrs["epsilon"] = form.mechanism.epsilon


def _read_words(group: Any, space: Space) -> Subsets:
    words = np.asarray(group["words"])
    if words.dtype != np.uint32 or words.ndim != 2:
        raise FileFormatError(f"words must be rows of 32-bit numbers without sign, got {words.dtype} of shape {words.shape}")
    return Subsets(
        ids=words,
        mechanism=SubsetMechanism(
            dictionary_size=int(group.attrs["dictionary_words"]), epsilon=float(group.attrs["epsilon"]), m=words.shape[1]
        ),
        space=space,
        dictionary=str(group.attrs["dictionary"]),
        releasable=True,
    )


def _write_space(file: Any, space: Space) -> None:
    file.attrs["descriptor"] = space.descriptor
    file.attrs["normalization"] = space.normalization
    file.attrs["dim"] = space.dim
    file.attrs["codebook"] = space.codebook
    file.attrs["dither_steps"] = space.dither_steps


def _read_space(file: Any) -> Space:
    return Space(
        descriptor=str(file.attrs["descriptor"]),
        normalization=str(file.attrs["normalization"]),  # type: ignore[arg-type]  # Space checks it
        dim=int(file.attrs["dim"]),
        codebook=str(file.attrs["codebook"]),
        dither_steps=float(file.attrs["dither_steps"]),
    )
