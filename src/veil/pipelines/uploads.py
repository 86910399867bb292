"""Images as files give them to the server's commands: messages, or raw features of a public map."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from veil.errors import InputError, VeilError, WireError
from veil.features import Features
from veil.files.atomic import read_bytes
from veil.files.features import read_features
from veil.forms import Form, Lines, Subsets
from veil.geometry.camera import Camera
from veil.mechanisms.public import publish
from veil.wire import LineUpload, Message, decode

# A folder of which so many messages can be compared with each other is a map with some that do not belong; below it, a mistake.
CLEAR_MAJORITY = 0.75


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """One image as a file gives it: what is seen of its keypoints are positions, or lines that hide them."""

    camera: Camera
    seen: np.ndarray | Lines
    form: Form


@dataclass(frozen=True, kw_only=True, eq=False)
class Uploads:
    """Images by name, and why files were skipped, by file name."""

    images: dict[str, Loaded]
    skipped: dict[str, str] = field(default_factory=dict)


def message_files(path: Path) -> list[Path]:
    """The messages of a folder, or the one file. Raises InputError for a folder without any."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.veil"))
    if not files:
        raise InputError(f"{path} holds no .veil messages; make some with `veil privatize`")
    return files


def decoded(path: Path, *, strict: bool) -> tuple[dict[str, Message], dict[str, str]]:
    """The messages of a folder (or one file) by name, and why others were skipped.

    Whoever may upload can put anything into such a folder: what cannot be read, has a name that cannot name an image or comes
    a second time is skipped. Raises VeilError for a single file, if `strict`, or if nothing is left.
    """
    files = message_files(path)
    found: dict[str, Message] = {}
    skipped: dict[str, str] = {}
    seen: dict[bytes, str] = {}
    for file in files:
        try:
            data = read_bytes(file)
            name = _image_name(file)
            first = seen.setdefault(hashlib.sha256(data).digest(), file.name)
            if first != file.name:
                raise InputError(f"it is the same message as {first}; one image is mapped once")
            found[name] = decode(data)
        except VeilError as error:
            if strict or not path.is_dir():
                raise type(error)(str(error) if str(file) in str(error) else f"{file}: {error}") from None
            skipped[file.name] = str(error)
    if not found:
        name, reason = next(iter(skipped.items()))
        raise WireError(f"none of the {len(files)} messages in {path} can be used; {name}: {reason}")
    return found, skipped


def read_messages(path: Path | str) -> dict[str, Message]:
    """The messages of a folder, or the one of a file, by name.

    Raises WireError for one that cannot be decoded, InputError for a folder without any.
    """
    return decoded(Path(path), strict=True)[0]


def further_messages(paths: list[Path], *, strict: bool, skipped: dict[str, str]) -> dict[str, Message]:
    """The messages of several folders or files, by a name that is not taken; what cannot be read is added to `skipped`."""
    found: dict[str, Message] = {}
    for path in paths:
        messages, left_out = decoded(path, strict=strict)
        skipped.update({str(path / name): reason for name, reason in left_out.items()})
        for name, message in messages.items():
            found[name if name not in found else str(path / f"{name}.veil")] = message
    return found


def _image_name(file: Path) -> str:
    """The name of a message's image. Raises InputError for one that files of maps cannot hold."""
    name = file.stem
    if name.strip(".") == "" or not name.isprintable() or name != name.strip():
        raise InputError(
            "its name cannot name an image (dots alone, blanks at an end, or characters that cannot be printed); rename it"
        )
    return name


def load_uploads(path: Path, *, strict: bool = False) -> Uploads:
    """All images of a folder of messages, of one message, or of a file of raw features."""
    if path.suffix in (".h5", ".hdf5") and not path.is_dir():
        images = {name: loaded(raw) for name, raw in read_features(path)}
        return Uploads(images=images)
    messages, skipped = decoded(path, strict=strict)
    return Uploads(images={name: loaded(message) for name, message in messages.items()}, skipped=skipped)


def load_images(path: Path) -> dict[str, Loaded]:
    """The images of `load_uploads`, none of which may be unusable."""
    return load_uploads(path, strict=True).images


def loaded(image: Message | Features | Loaded) -> Loaded:
    """A message, or raw features that their owner makes public, as a server's work needs them."""
    if isinstance(image, Loaded):
        return image
    if isinstance(image, Features):
        return Loaded(camera=image.camera, seen=image.keypoints, form=publish(image))
    seen = image.lines if isinstance(image, LineUpload) else image.keypoints
    return Loaded(camera=image.camera, seen=seen, form=image.form)


def comparable(uploads: Uploads, *, strict: bool = False) -> Uploads:
    """Without the few messages that cannot be compared with the others: of another form, space or dictionary, or with lines.

    All stay if `strict`, or if no kind has a clear majority: then whatever needs one kind says what is wrong.
    """
    kinds = {name: _kind(image) for name, image in uploads.images.items()}
    ((common, count),) = Counter(kinds.values()).most_common(1)
    if strict or count == len(kinds) or count < CLEAR_MAJORITY * len(kinds):
        return uploads
    others = {f"{name}.veil": f"it is {kind}, the others are {common}" for name, kind in kinds.items() if kind != common}
    images = {name: image for name, image in uploads.images.items() if kinds[name] == common}
    return replace(uploads, images=images, skipped={**uploads.skipped, **others})


def _kind(image: Loaded) -> str:
    """What messages of one map have in common, in words."""
    form = image.form
    of = (
        f"words of dictionary {form.dictionary[:12]}, {form.m} each"
        if isinstance(form, Subsets)
        else type(form).__name__.lower()
    )
    return f"{of} with {'lines' if isinstance(image.seen, Lines) else 'positions'} in the space {form.space}"


def queries(paths: list[Path], *, strict: bool, skipped: dict[str, str]) -> Iterator[tuple[str, Loaded]]:
    """The images of all `paths`, each read when its turn comes; what cannot be read is added to `skipped`.

    Raises VeilError if `strict`, or for a single path, which then is all that was asked for.
    """
    for path in paths:
        try:
            uploads = load_uploads(path, strict=strict)
        except VeilError as error:
            if strict or len(paths) == 1:
                raise
            skipped[str(path)] = str(error)
            continue
        skipped.update(uploads.skipped)
        yield from uploads.images.items()
