"""Images read from files for the server's commands: messages, or raw features of a public map."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from veil.errors import InputError, Remedy, VeilError, WireError
from veil.features import Features
from veil.files.atomic import read_bytes
from veil.files.features import holds_features, read_features
from veil.forms import Form
from veil.mechanisms.public import publish
from veil.places.pairs.images import ImageFiles, LoadedImage
from veil.wire import LineUpload, Message, decode

# Least share of messages of one kind with which the others count as strays that are left out; below it the folder is a mistake.
CLEAR_MAJORITY = 0.75


@dataclass(frozen=True, kw_only=True, eq=False)
class Uploads:
    """The usable images by name (`images`), and by file name the reasons why others were skipped (`skipped`)."""

    images: Mapping[str, LoadedImage]
    skipped: dict[str, str] = field(default_factory=dict)


def message_files(path: Path) -> list[Path]:
    """Paths of the `.veil` files of a folder, sorted, or the one file. Raises InputError for a folder without any."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.veil"))
    if not files:
        raise InputError(f"{path} holds no .veil messages", remedy=Remedy("make", "messages"))
    return files


def decoded(path: Path, *, strict: bool) -> tuple[dict[str, Message], dict[str, str]]:
    """The messages of a folder (or one file) by name, and by file name the reasons why others were skipped.

    Skips and raises as `each_decoded` does.
    """
    skipped: dict[str, str] = {}
    return {name: message for name, _, message in each_decoded(path, strict=strict, skipped=skipped)}, skipped


def each_decoded(path: Path, *, strict: bool, skipped: dict[str, str]) -> Iterator[tuple[str, Path, Message]]:
    """Names, files and messages of a folder (or one file), one after the other; adds why others are skipped to `skipped`.

    Whoever may upload can put anything into such a folder: a file that cannot be read, has a name that cannot name an image or
    is there a second time is skipped. Raises VeilError instead for a single file or if `strict`, and if nothing was usable.
    """
    files = message_files(path)
    seen: dict[bytes, str] = {}
    usable = 0
    for file in files:
        try:
            data = read_bytes(file)
            name = _image_name(file)
            first = seen.setdefault(hashlib.sha256(data).digest(), file.name)
            if first != file.name:
                raise InputError(f"it is the same message as {first}; one image is mapped once")
            message = decode(data)
        except VeilError as error:
            if strict or not path.is_dir():
                raise error.at(file) from None
            skipped[file.name] = str(error)
            continue
        usable += 1
        yield name, file, message
    if not usable:
        name, reason = next(iter(skipped.items()))
        raise WireError(f"none of the {len(files)} messages in {path} can be used; {name}: {reason}")


def read_messages(path: Path | str) -> dict[str, Message]:
    """The messages of a folder, or of one file, by the name of their file without its suffix.

    `path` is a folder of .veil files, or one file. Raises WireError for a message that cannot be decoded, InputError for a
    folder without any, for a name that cannot name an image and for a message that is there twice, FileFormatError for a file
    that cannot be read.
    """
    return decoded(Path(path), strict=True)[0]


def further_messages(paths: list[Path], *, strict: bool, skipped: dict[str, str]) -> dict[str, Message]:
    """The messages of several folders or files by name, with the folder where names repeat; adds the unusable to `skipped`."""
    found: dict[str, Message] = {}
    for path in paths:
        messages, left_out = decoded(path, strict=strict)
        skipped.update({str(path / name): reason for name, reason in left_out.items()})
        for name, message in messages.items():
            found[name if name not in found else str(path / f"{name}.veil")] = message
    return found


def _image_name(file: Path) -> str:
    """The name of a message's image: its file's, without the suffix. Raises InputError for names that a map cannot hold."""
    name = file.stem
    if name.strip(".") == "" or not name.isprintable() or name != name.strip():
        raise InputError(
            "its name cannot name an image (dots alone, blanks at an end, or characters that cannot be printed); rename it"
        )
    return name


def load_uploads(path: Path, *, strict: bool = False) -> Uploads:
    """All images of a folder of messages, of one message, or of a file of raw features.

    Raises VeilError for a message that cannot be used if `strict` or if it is the only one, and if nothing is left.
    """
    if holds_features(path) and not path.is_dir():
        images = {name: loaded(raw) for name, raw in read_features(path)}
        return Uploads(images=images)
    messages, skipped = decoded(path, strict=strict)
    return Uploads(images={name: loaded(message) for name, message in messages.items()}, skipped=skipped)


def files_of(path: Path, names: Iterable[str]) -> ImageFiles:
    """The file of each image of `load_uploads`, with the image's name there, and how other processes read it."""
    if path.is_dir():
        return ImageFiles(of={name: (str((path / f"{name}.veil").resolve()), name) for name in names}, read=forms_in)
    return ImageFiles(of={name: (str(path.resolve()), name) for name in names}, read=forms_in)


def forms_in(path: Path, names: Collection[str]) -> Iterator[tuple[str, Form]]:
    """The descriptors of the images `names` of one file, one image after the other."""
    if holds_features(path):
        yield from ((name, loaded(raw).form) for name, raw in read_features(path) if name in names)
    else:
        yield from ((name, image.form) for name, image in load_images(path).items() if name in names)


def load_images(path: Path) -> Mapping[str, LoadedImage]:
    """All images of `load_uploads` by name; raises VeilError if one of them cannot be used."""
    return load_uploads(path, strict=True).images


def loaded(image: Message | Features | LoadedImage) -> LoadedImage:
    """The image of a message, or of raw features that their owner makes public."""
    if isinstance(image, LoadedImage):
        return image
    if isinstance(image, Features):
        return LoadedImage(camera=image.camera, positions=image.keypoints, form=publish(image))
    if isinstance(image, LineUpload):
        return LoadedImage(camera=image.camera, positions=image.lines, form=image.form)
    return LoadedImage(camera=image.camera, positions=image.keypoints, form=image.form, gravity=image.gravity)


def comparable(uploads: Uploads, *, strict: bool = False) -> Uploads:
    """The uploads without the few messages that differ from the others in form, space or dictionary, or in hiding positions.

    All stay if `strict`, or if no kind has a clear majority: then whatever needs one kind says what is wrong.
    """
    kinds = {name: image.kind for name, image in uploads.images.items()}
    ((common, count),) = Counter(kinds.values()).most_common(1)
    if strict or count == len(kinds) or count < CLEAR_MAJORITY * len(kinds):
        return uploads
    others = {f"{name}.veil": f"it is {kind}, the others are {common}" for name, kind in kinds.items() if kind != common}
    images = {name: image for name, image in uploads.images.items() if kinds[name] == common}
    return replace(uploads, images=images, skipped={**uploads.skipped, **others})


def queries(paths: list[Path], *, strict: bool, skipped: dict[str, str]) -> Iterator[tuple[str, LoadedImage]]:
    """Names and images of all `paths`, each read when its turn comes; what cannot be read is added to `skipped`.

    Raises VeilError instead if `strict`, or for a single path, which then is all that was asked for.
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
