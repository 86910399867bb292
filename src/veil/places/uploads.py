"""Messages read from files, as the server holds them: all that can be used, and why others are skipped."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from veil.errors import InputError, Remedy, VeilError, WireError
from veil.files.atomic import read_bytes
from veil.forms import Form
from veil.places.pairs.images import ImageFiles, LoadedImage, ReadForms
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


def further_messages(paths: Sequence[Path], *, strict: bool, skipped: dict[str, str]) -> dict[str, Message]:
    """The messages of several folders or files by name, with the folder where names repeat; adds the unusable to `skipped`."""
    by_name: dict[str, Message] = {}
    for path in paths:
        messages, left_out = decoded(path, strict=strict)
        skipped.update({str(path / name): reason for name, reason in left_out.items()})
        for name, message in messages.items():
            by_name[name if name not in by_name else str(path / f"{name}.veil")] = message
    return by_name


def _image_name(file: Path) -> str:
    """The name of a message's image: its file's, without the suffix. Raises InputError for names that a map cannot hold."""
    name = file.stem
    if name.strip(".") == "" or not name.isprintable() or name != name.strip():
        raise InputError(
            "its name cannot name an image (dots alone, blanks at an end, or characters that cannot be printed); rename it"
        )
    return name


def files_of(path: Path, names: Iterable[str], read: ReadForms | None = None) -> ImageFiles:
    """The file of each image of a folder or a file, with the image's name there, and how other processes read it.

    `read` reads them; by default `message_forms`.
    """
    read = message_forms if read is None else read
    if path.is_dir():
        return ImageFiles(of={name: (str((path / f"{name}.veil").resolve()), name) for name in names}, read=read)
    return ImageFiles(of={name: (str(path.resolve()), name) for name in names}, read=read)


def message_forms(path: Path, names: Collection[str]) -> Iterator[tuple[str, Form]]:
    """The descriptors of the images `names` of one message, one image after the other."""
    yield from ((name, message.form) for name, message in decoded(path, strict=True)[0].items() if name in names)


def loaded(image: Message | LoadedImage) -> LoadedImage:
    """The image of a message."""
    if isinstance(image, LoadedImage):
        return image
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
