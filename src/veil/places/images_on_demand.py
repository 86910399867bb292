"""Images of uploads whose descriptors are read from their files when they are needed, and kept within a stated budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from veil.errors import InputError, RangeError
from veil.files.atomic import read_bytes
from veil.forms import Form, Lines, Points, Subsets
from veil.geometry.camera import Camera
from veil.places.maps.images import MapImage, MapImageOnDemand
from veil.places.pairs.images import LoadedImage, form_digest
from veil.places.uploads import Uploads, each_decoded, loaded
from veil.wire import decode

GIB = 2**30


def form_bytes(form: Form) -> int:
    """Bytes of the arrays of a form in memory."""
    if isinstance(form, Points):
        return form.vectors.nbytes
    if isinstance(form, Subsets):
        return form.ids.nbytes
    return form.origin.nbytes + form.basis.nbytes


class FormCache:
    """Descriptors that were used last, of at most `budget_bytes` together; the others are read again when they are needed.

    What a caller still holds is not counted. A single image that is larger than the budget is read each time. `reads` counts
    readings of files, `most_bytes` is the largest size that the cache had. Several threads may use it. Raises RangeError for a
    negative budget.
    """

    def __init__(self, budget_bytes: int) -> None:
        if budget_bytes < 0:
            raise RangeError(f"budget_bytes must not be negative, got {budget_bytes!r}")
        self.budget_bytes = budget_bytes
        self.reads = self.held_bytes = self.most_bytes = 0
        self._forms: OrderedDict[str, Form] = OrderedDict()
        self._lock = threading.Lock()

    def form(self, image: ImageOnDemand) -> Form:
        """The descriptors of an image, from memory or from its file. Raises as `ImageOnDemand.read` does."""
        with self._lock:
            if (kept := self._forms.get(image.digest)) is not None:
                self._forms.move_to_end(image.digest)
                return kept
        form = image.read()
        with self._lock:
            self.reads += 1
            if image.digest not in self._forms and form_bytes(form) <= self.budget_bytes:
                self._forms[image.digest] = form
                self.held_bytes += form_bytes(form)
                while self.held_bytes > self.budget_bytes:
                    self.held_bytes -= form_bytes(self._forms.popitem(last=False)[1])
                self.most_bytes = max(self.most_bytes, self.held_bytes)
        return form


class ImageOnDemand(LoadedImage):
    """An image of which everything but the descriptors is in memory; `form` reads these from the file through a cache.

    It is pickled as a `LoadedImage` with its descriptors, as another process need not see the file.
    """

    def __init__(self, image: LoadedImage, path: Path, read: Callable[[], LoadedImage], cache: FormCache) -> None:
        for key, value in (
            ("camera", image.camera),
            ("positions", image.positions),
            ("gravity", image.gravity),
            ("_facts", (image.features, image.digest, image.kind, image.form_type)),
            ("_path", path),
            ("_read", read),
            ("_cache", cache),
        ):
            object.__setattr__(self, key, value)

    _facts: tuple[int, str, str, type[Form]]
    _path: Path
    _read: Callable[[], LoadedImage]
    _cache: FormCache

    @property
    def form(self) -> Form:
        """The descriptors, from memory or read now. Raises as `read` does."""
        return self._cache.form(self)

    @property
    def features(self) -> int:
        """Number of features."""
        return self._facts[0]

    @property
    def digest(self) -> str:
        """Name of the descriptors in a store of matches, from the first reading."""
        return self._facts[1]

    @property
    def kind(self) -> str:
        """Phrase that names what all messages of one map have in common, from the first reading."""
        return self._facts[2]

    @property
    def form_type(self) -> type[Form]:
        """Class of the descriptors' form, from the first reading."""
        return self._facts[3]

    def read(self) -> Form:
        """The descriptors from the file. Raises VeilError if it cannot be read, InputError if it holds others than at first."""
        image = self._read()
        if form_digest(image.form) != self.digest:
            raise InputError(f"{self._path} changed while it was mapped; run the same command again")
        return image.form

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"camera": self.camera, "positions": self.positions, "form": self.form, "gravity": self.gravity}
        return LoadedImage.__new__, (LoadedImage,), state


def map_image(image: LoadedImage, camera: Camera | None = None) -> MapImage:
    """An image with positions for the mapper, with `camera` in place of its own if one is given.

    Where descriptors are read on demand, the mapper's are too.
    """
    assert not isinstance(image.positions, Lines)
    camera = camera or image.camera
    if isinstance(image, ImageOnDemand):
        return MapImageOnDemand(camera, image.positions, lambda: image.form, image.form_type is Subsets)
    return MapImage(camera=camera, keypoints=image.positions, form=image.form)


def read_message(path: Path) -> LoadedImage:
    """The image of a message's file. Raises VeilError if it cannot be read."""
    return loaded(decode(read_bytes(path)))


def uploads_on_demand(path: Path, *, budget_bytes: int, strict: bool = False) -> Uploads:
    """The images of a folder of messages, or of one, each checked once; their descriptors are read again when they are needed.

    At most `budget_bytes` of descriptors are kept for the next use. Skips and raises as `each_decoded` does.
    """
    cache = FormCache(budget_bytes)
    skipped: dict[str, str] = {}
    images = {
        name: ImageOnDemand(loaded(message), file.resolve(), partial(read_message, file.resolve()), cache)
        for name, file, message in each_decoded(path, strict=strict, skipped=skipped)
    }
    return Uploads(images=images, skipped=skipped)
