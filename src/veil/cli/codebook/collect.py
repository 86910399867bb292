"""Collecting descriptors from photographs and files of features, to make words of and to measure them with.

A file of its own: `veil lab quality` and protocols of `veil evaluate` collect with it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veil.cli.common import progress, tell_skipped
from veil.cli.remedies import advised
from veil.codebooks.sampling import WordTraining
from veil.errors import InputError, VeilError
from veil.extraction import extract
from veil.extraction.sift import SiftOptions
from veil.features import Features
from veil.files.features import count_images, holds_features, read_features
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.files.weights import load_network
from veil.space import Normalization, Space


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The descriptor and normalization asked for; None takes what a file of features holds, and SIFT (L2) of photographs."""

    descriptor: str | None = None
    normalization: Normalization | None = None

    def require(self, features: Features, before: Space | None) -> None:
        """Raise InputError if `features` are of another kind than was asked for, or of another space than `before`."""
        space = features.space
        for asked, got in ((self.descriptor, space.descriptor), (self.normalization, space.normalization)):
            if asked not in (None, got):
                raise InputError(f"features of [{space}] were given where {asked} was asked for; extract them as {asked}")
        if before not in (None, space):
            raise InputError(f"features of [{space}] and of [{before}] cannot make one codebook; give one kind")


@dataclass(kw_only=True)
class Collection:
    """Collected descriptors: those to train with, those held out, their space, and the number of images without any."""

    training: WordTraining
    held: WordTraining
    space: Space | None = None
    skipped: int = 0
    _is_held: dict[bytes, bool] = field(default_factory=dict)

    def add(self, features: Features, *, every: int) -> None:
        """Add one image's descriptors. Each `every`-th image is held out (0: none), a repeated picture as the first time."""
        digest = features.image_digest
        index = len(self.training.image_digests) + len(self.held.image_digests) + 1
        is_held = self._is_held.setdefault(digest, bool(every) and index % every == 0)
        (self.held if is_held else self.training).add(features.descriptors, digest)
        self.space = features.space


def collect(inputs: Sequence[Path], wanted: Wanted, collection: Collection, *, every: int = 0) -> Collection:
    """Fill `collection` from photographs, folders of them and files of features, with one image in memory at a time.

    Returns `collection`. A photograph that cannot be used is named and counted as skipped. Raises InputError for descriptors of
    another kind than `wanted`, or of several kinds.
    """
    sources = [path for root in inputs for path in _files(root)]
    network = load_network(wanted.descriptor or "sift") if not all(map(holds_features, sources)) else None
    for features in _images(sources, wanted, network):
        if features is None:
            collection.skipped += 1
            continue
        wanted.require(features, collection.space)
        collection.add(features, every=every)
    return collection


def _files(root: Path) -> list[Path]:
    if holds_features(root):
        if not root.is_file():
            raise InputError(f"there is no features file {root}; write one with `veil extract`")
        return [root]
    return [path for _, path in named_pictures([root])]


def _images(sources: Sequence[Path], wanted: Wanted, network: object) -> Iterator[Features | None]:
    options = SiftOptions(normalization=wanted.normalization or "L2", first_octave=None)
    for path in progress(sources, "extracting"):
        if holds_features(path):
            for _, features in progress(read_features(path), f"reading {path.name}", count_images(path)):
                yield features if len(features) else None
            continue
        try:
            yield extract(read_picture(path), wanted.descriptor or "sift", options, network)
        except VeilError as error:
            tell_skipped({str(path): advised(error)})
            yield None
