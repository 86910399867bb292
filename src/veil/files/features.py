"""Raw features on the client's disk: HDF5 files in hloc's layout."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy, VeilError, VeilWarning
from veil.extraction.sift import likely_normalization
from veil.features import Features, in_eight_bits, of_root
from veil.files.atomic import replacing
from veil.files.containers import ESCAPED, group_in, name_of, new_group, new_hdf5, own_dataset
from veil.geometry.camera import (
    GUESS,
    MARGIN_PX,
    UNDISCLOSED,
    Camera,
    FocalOrigin,
    FocalPrior,
    checked_camera,
    guessed,
    require_inside,
    rescaled,
)
from veil.space import NORMALIZATIONS, U8_STEP, Space

HDF5_SUFFIXES = (".h5", ".hdf5")
# hloc puts pixel centers at integers, COLMAP and veil at halves.
_HLOC_ORIGIN = np.float32(0.5)
# Errors that h5py and NumPy raise when a file's bytes or shapes are not what its layout promises.
DAMAGE = (OSError, LookupError, TypeError, ValueError, RuntimeError, MemoryError)
_ATTRIBUTES = ("veil_descriptor", "veil_normalization", "veil_camera_model")
_OF_KEYPOINTS = ("scales", "orientations", "scores")  # of `Features` and of a group, where they are known
_MEMBERS = ("keypoints", "image_size", "descriptors", "descriptors_u8", *_OF_KEYPOINTS)  # of a group
# Positions may be in pixels of smaller images if none of so many keypoints of any image lies beyond this share of both sides.
_SPREAD_OVER, _MANY = 0.75, 50


def holds_features(path: Path) -> bool:
    """Whether a path names a file of features: it ends in .h5 or .hdf5, in any case."""
    return path.suffix.lower() in HDF5_SUFFIXES


def write_features(path: Path | str, features: Iterable[tuple[str, Features]]) -> None:
    """Write raw features to an HDF5 file in hloc's layout, at once or not at all, readable by its owner only.

    - `path`: the file (.h5).
    - `features`: pairs of an image's name and its features, taken one by one.

    Each image is a group with keypoints (N, 2), descriptors (dim, N) and image_size as hloc writes them, and veil's own facts
    beside. Descriptors are written as unit-length float32 for other tools, and as the original 8 bits in `descriptors_u8`.
    Names that HDF5 would take for others are escaped. Nobody but the owner can read the file, as raw features show what was in
    the picture. Raises InputError if it cannot be written, or two images have one name.
    """
    path = Path(path)
    with replacing(path, private=True) as temporary, new_hdf5(temporary) as file:
        for name, item in features:
            group = new_group(file, name, _MEMBERS)
            group["keypoints"] = item.keypoints - _HLOC_ORIGIN
            group["image_size"] = np.array([item.camera.width_px, item.camera.height_px])
            if item.is_quantized:
                group["descriptors_u8"] = item.descriptors
                unit = item.descriptors.astype(np.float32)
                unit /= np.linalg.norm(unit, axis=1, keepdims=True)
                group["descriptors"] = unit.T
            else:
                group["descriptors"] = item.descriptors.T
            for key in _OF_KEYPOINTS:
                if getattr(item, key) is not None:
                    group[key] = getattr(item, key)
            group.attrs["veil_descriptor"] = item.space.descriptor
            group.attrs["veil_normalization"] = item.space.normalization
            group.attrs["veil_camera_model"] = item.camera.model
            group.attrs["veil_camera_params"] = np.array(item.camera.params)
            group.attrs["veil_focal_is_known"] = item.camera.focal_is_known
            group.attrs["veil_focal_origin"] = item.camera.focal.origin
            group.attrs["veil_focal_deviation"] = item.camera.focal.deviation
            group.attrs["veil_image_digest"] = item.image_digest.hex()


def read_features(
    path: Path | str,
    *,
    space: Space | None = None,
    cameras: dict[str, Camera] | None = None,
    measured: bool = False,
    skipped: dict[str, VeilError] | None = None,
) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of an HDF5 file in hloc's layout, as pairs of a name and its raw features, sorted by name.

    - `path`: a file that `write_features` or hloc wrote.
    - `space`: what the descriptors are, where the file does not say it (files of other tools).
    - `cameras`: intrinsics by image name, where the file does not hold them; otherwise they are guessed from the image size.
      A camera of another size is rescaled to the file's; the sides must have the same ratio.
    - `measured`: SIFT of other tools is normalized as its numbers show, where they do, and not as `space` says.
    - `skipped`: takes the error of each image that cannot be used, by name; without it, such an error is raised.

    RootSIFT (L1_ROOT) of other tools becomes SIFT in L2, squared, normalized and rounded to 8 bits; a `VeilWarning` says so.
    Features of other tools whose descriptor is all zero are left out, and another `VeilWarning` gives their number. A third one
    says that positions seem to be in pixels of smaller images.

    Errors are raised while iterating: FileFormatError for a missing or damaged file or another layout, InputError for features
    that do not fit together, lie outside their image, or are of an unknown kind, and for a file of another tool in which those
    of most images lie outside.
    """
    path = Path(path)
    import h5py

    if not path.is_file():
        raise FileFormatError(f"there is no file {path}", remedy=Remedy("make", "features"))
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise FileFormatError(f"{path} is not an HDF5 file of features ({error})") from None
    with file:
        try:
            names = _image_names(file)
        except DAMAGE as error:
            raise FileFormatError(f"{path} is damaged ({error}); get or extract it again") from None
        if not names:
            raise FileFormatError(f"{path} holds no group with `keypoints` and `descriptors`; is it hloc's layout?")
        _require_sizes(path, file, names)
        if measured and space is not None and space.descriptor == "sift":
            space = _measured(file, names, space)
        zeros: dict[str, int] = {}
        is_first = True
        for name in names:
            place = f"{path}, image {name!r}"
            try:
                features = _read_group(name, group_in(file, name, _MEMBERS), space, cameras or {}, zeros)
            except KindUnknown as error:
                raise error.at(place) from None
            except (VeilError, *DAMAGE) as error:
                known = isinstance(error, VeilError)
                fault = error if known else FileFormatError(f"damaged or not hloc's layout ({error})")
                assert isinstance(fault, VeilError)
                if skipped is None:
                    raise fault.at(place) from None
                skipped[name] = fault
                continue
            if is_first and space is not None and features.space != space:
                tell_converted(path, space, features)
            is_first = False
            yield name, features
        warn_of_zeros(path, zeros)


def read_named_features(paths: Iterable[Path]) -> dict[str, Features]:
    """The raw features of several files that `read_features` reads, by image name.

    Raises what `read_features` raises, and InputError for a name that is there twice.
    """
    named: dict[str, Features] = {}
    for path in paths:
        for name, features in read_features(path):
            if name in named:
                raise InputError(
                    f"{path}, image {name!r}: another file that is given has an image of this name; give one of them"
                )
            named[name] = features
    return named


class KindUnknown(InputError):
    """Nothing says what the descriptors are, or the file and its reader differ, so that no image can be used."""


def warn_of_zeros(path: Path, zeros: Mapping[str, int]) -> None:
    """Warn (`veil.errors.VeilWarning`) of features left out as their descriptors are all zero, with their numbers by image."""
    named = [name for name, count in zeros.items() if count]
    if named:
        names = ", ".join(named[:3]) + (", ..." if len(named) > 3 else "")
        text = f"{path}: {sum(zeros.values())} features with descriptors that are all zero were left out, of {names}"
        warnings.warn(text, VeilWarning, stacklevel=3)


def tell_converted(path: Path, space: Space, features: Features) -> None:
    """Warn (`VeilWarning`) that descriptors of a file, in `space`, were RootSIFT, where these features are in L2."""
    if space.normalization == "L1_ROOT" and features.space == replace(space, normalization="L2"):
        warnings.warn(f"{path} holds RootSIFT (L1_ROOT); it was converted to L2", VeilWarning, stacklevel=3)


def _require_sizes(path: Path, file: Any, names: list[str]) -> None:
    """Refuse a file of another tool whose positions are in pixels of other images than `image_size`.

    One image's fault is told with that image; here most have the same. A `VeilWarning` says that positions may be in pixels of
    smaller images, where none lies at the right and the bottom of any image.
    """
    sizes, reaches = [], []
    for name in names:
        with suppress(*DAMAGE):
            group = group_in(file, name, _MEMBERS)
            if all(key in group.attrs for key in _ATTRIBUTES) or "image_size" not in group:
                continue
            xy = np.asarray(own_dataset(group, "keypoints"), dtype=np.float64)[:, :2]
            size = np.asarray(own_dataset(group, "image_size"), dtype=np.float64).reshape(2)
            if len(xy) and np.isfinite(xy).all() and (size > 0).all():
                sizes.append((name, len(xy), size))
                reaches.append(xy.max(axis=0) + _HLOC_ORIGIN)
    beyond = [row for row, (_, _, size) in enumerate(sizes) if (reaches[row] > size + MARGIN_PX).any()]
    if len(beyond) > 1 and 2 * len(beyond) > len(sizes):
        (name, _, (width, height)), (x, y) = sizes[beyond[0]], reaches[beyond[0]]
        raise InputError(
            f"{path}: in {len(beyond)} of {len(sizes)} images positions lie outside of `image_size` ({name}: up to "
            f"({x:.0f}, {y:.0f}) in {width:.0f}x{height:.0f} px); `image_size` must be (width, height) of the image in whose "
            "pixels the positions are"
        )
    shares = [reach / size for reach, (_, count, size) in zip(reaches, sizes, strict=True) if count >= _MANY]
    if len(shares) > 1 and (largest := np.max(shares, axis=0)).max() < _SPREAD_OVER:
        text = (
            f"{path}: no position in any of {len(shares)} images lies beyond {largest[0]:.0%} of the width and "
            f"{largest[1]:.0%} of the height; if they are in pixels of smaller images, write the `image_size` of these"
        )
        warnings.warn(text, VeilWarning, stacklevel=3)


def _measured(file: Any, names: list[str], space: Space) -> Space:
    """The space of SIFT with the normalization that the first image shows; as it is where none does, and for damaged files."""
    for name in names:
        with suppress(VeilError, *DAMAGE):
            rows = np.asarray(own_dataset(group_in(file, name, _MEMBERS), "descriptors"), dtype=np.float32).T
            normalization = likely_normalization(rows[np.isfinite(rows).all(axis=1) & rows.any(axis=1)])
            if normalization is not None:
                return replace(space, normalization=normalization)
    return space


def is_features_file(path: Path) -> bool:
    """Whether a file is one of HDF5, as those of features are; False where there is none."""
    import h5py

    return path.is_file() and bool(h5py.is_hdf5(path))


def count_images(path: Path) -> int | None:
    """Number of images of a file that `read_features` reads; None where it cannot be read, and `read_features` says why."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return len(_image_names(file))
    except DAMAGE:
        return None


def read_one(path: Path, name: str) -> Features:
    """The raw features of one image of a file that `read_features` reads.

    Raises FileFormatError if the file or the image is missing or damaged, InputError for features that do not fit together.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return _read_group(name, group_in(file, name, _MEMBERS), None, {}, {})
    except VeilError as error:
        raise error.at(f"{path}, image {name!r}") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path}, image {name!r}: missing, damaged or not hloc's layout ({error})") from None


def _image_names(file: Any) -> list[str]:
    """Names of the groups that hold `keypoints` and `descriptors`, sorted, from the names of all links.

    To open every object would take ten times as long, and in nested groups time that grows with the square of their depth.
    """
    links: list[str] = []
    file.visit_links(links.append)
    owners = ({link[: -len(part)] for link in links if link.endswith(part)} for part in ("/keypoints", "/descriptors"))
    groups = set.intersection(*owners)
    return sorted(map(name_of, groups) if file.attrs.get(ESCAPED) else groups)


def _read_group(name: str, group: Any, space: Space | None, cameras: dict[str, Camera], zeros: dict[str, int]) -> Features:
    """The features of a group; `zeros` takes the number of those that are left out as their descriptors are all zero."""
    keypoints = np.ascontiguousarray(np.asarray(own_dataset(group, "keypoints"), dtype=np.float32)[:, :2] + _HLOC_ORIGIN)
    stored = np.asarray(own_dataset(group, "descriptors_u8" if "descriptors_u8" in group else "descriptors"))
    stored = stored if "descriptors_u8" in group else stored.T
    known = space
    own = all(key in group.attrs for key in _ATTRIBUTES)
    if own:
        space = Space(
            descriptor=str(group.attrs["veil_descriptor"]),
            normalization=_normalization(str(group.attrs["veil_normalization"])),
            dim=stored.shape[1],
        )
    if own and known not in (None, space):
        raise KindUnknown(
            f"the file says that its descriptors are [{space}], and not [{known}]",
            remedy=Remedy("leave out", "read_features.space"),
        )
    if space is None:
        raise KindUnknown("the file does not say what its descriptors are", remedy=Remedy("give", "read_features.space"))
    if stored.shape != (len(keypoints), space.dim):
        raise InputError(f"expected descriptors ({space.dim}, {len(keypoints)}), got {stored.T.shape}")
    parts = {key: np.asarray(own_dataset(group, key), dtype=np.float32) for key in _OF_KEYPOINTS if key in group}
    lively = stored.any(axis=1)
    if not own and not lively.all() and all(part.shape == lively.shape for part in parts.values()):
        zeros[name] = int(np.count_nonzero(~lively))
        keypoints, stored = keypoints[lively], np.ascontiguousarray(stored[lively])
        parts = {key: part[lively] for key, part in parts.items()}
    kept = stored if stored.dtype == np.uint8 else _as_stored(stored.astype(np.float32), space)
    descriptors = kept
    if not own and space.descriptor == "sift" and space.normalization == "L1_ROOT":
        space, descriptors = replace(space, normalization="L2"), in_eight_bits(of_root(stored))
    camera = checked_camera(_camera_from_attributes(group) if own else _given_camera(group, cameras.get(name)))
    return inside(
        Features(
            keypoints=keypoints,
            descriptors=descriptors,
            space=space,
            camera=camera,
            image_digest=_stored_digest(group) or features_digest(keypoints, kept),
            **parts,
        )
    )


def inside(features: Features) -> Features:
    """The features themselves; raises InputError if keypoints lie outside the image."""
    require_inside(features.camera, features.keypoints)
    return features


def _as_stored(descriptors: np.ndarray, space: Space) -> np.ndarray:
    """Descriptors as veil stores them: SIFT that another tool stored as floats becomes uint8 again, and is treated as such."""
    if space.descriptor != "sift":
        return np.ascontiguousarray(descriptors)
    steps = descriptors / U8_STEP if descriptors.max(initial=0) <= 1.0 else descriptors
    if not np.isfinite(steps).all():
        raise InputError("descriptors contain NaN or infinity")
    lengths = np.linalg.norm(steps, axis=1)
    if not (lengths > 0).all():
        raise InputError("some SIFT descriptors are all zero; drop them before import")
    return np.clip(np.round(steps * (512.0 / lengths)[:, None]), 0, 255).astype(np.uint8)


def _normalization(text: str):  # type: ignore[no-untyped-def]
    if text not in NORMALIZATIONS:
        raise InputError(f"normalization must be one of {NORMALIZATIONS}, got {text!r}")
    return text


def _camera_from_attributes(group: Any) -> Camera:
    width, height = (int(side) for side in own_dataset(group, "image_size"))
    return Camera(
        model=str(group.attrs["veil_camera_model"]),
        width_px=width,
        height_px=height,
        params=tuple(float(value) for value in group.attrs["veil_camera_params"]),
        focal=_focal_from_attributes(group),
    )


def _focal_from_attributes(group: Any) -> FocalPrior:
    """Source of the focal length; older files say no more than whether it is known."""
    if "veil_focal_origin" not in group.attrs:
        return UNDISCLOSED if group.attrs["veil_focal_is_known"] else GUESS
    origin = group.attrs["veil_focal_origin"]
    if origin not in get_args(FocalOrigin):
        raise InputError(
            f"a focal length comes from {', '.join(get_args(FocalOrigin))}, not {origin}; a newer veil may read it"
        )
    return FocalPrior(origin=origin, deviation=float(group.attrs["veil_focal_deviation"]))


def _given_camera(group: Any, given: Camera | None) -> Camera:
    """The camera that was given for an image of another tool, at the size of the file, or one that is guessed from it."""
    if given is None or "image_size" not in group:
        return given or _camera_from_size(group)
    size = _camera_from_size(group)
    camera = rescaled(given, size.width_px, size.height_px)
    if camera is None:
        raise InputError(
            f"its features are of {size.width_px}x{size.height_px} px, and its camera is of "
            f"{given.width_px}x{given.height_px} px, which has another ratio of the sides; give the camera of this image"
        )
    return camera


def _camera_from_size(group: Any) -> Camera:
    if "image_size" not in group:
        raise InputError("the file has no `image_size`, so the camera is unknown; write it (width, height), as hloc does")
    width, height = (int(side) for side in own_dataset(group, "image_size"))
    return guessed(width, height)


def _stored_digest(group: Any) -> bytes | None:
    text = group.attrs.get("veil_image_digest")
    try:
        return bytes.fromhex(str(text)) if text is not None else None
    except ValueError:
        raise InputError("the stored image digest is damaged; extract again") from None


def features_digest(keypoints: np.ndarray, descriptors: np.ndarray) -> bytes:
    """The digest (32 bytes) of an image of which only features are known; it does not depend on their order."""
    rows = sorted(hashlib.blake2b(k.tobytes() + d.tobytes()).digest() for k, d in zip(keypoints, descriptors, strict=True))
    return hashlib.blake2b(b"features|" + b"".join(rows), digest_size=32).digest()
