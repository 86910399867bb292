"""Arguments that compare descriptors: which, and the codebooks and decoys of each, given or made from photographs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veil.cli.codebook.collect import Collection, Wanted, collect
from veil.cli.common import Bar, at_least, say
from veil.cli.records import Record, option
from veil.cli.remedies import advised
from veil.codebooks.codebook import Codebook
from veil.codebooks.sampling import WordTraining
from veil.device.descriptor_books import DescriptorBooks, books_of
from veil.errors import FileFormatError, InputError
from veil.extraction import DETECTORS, EXTRACTORS, Extractor, full_name
from veil.extraction.detection import DetectorOptions
from veil.extraction.sift import SiftOptions
from veil.files.codebooks import BUNDLED, bundled_codebook, bundled_decoys, read_codebook
from veil.files.weights import load_network
from veil_lab.studies.localization.word_localization_settings import Tables

WORDS, EPSILON, M = Tables().default
KINDS = "sift, hardtfeat, hardnet, aliked, xfeat"
SAMPLE = 50_000  # descriptors of the photographs, at most


@dataclass(frozen=True, kw_only=True)
class AskedDescriptors(Record):
    """Descriptors that are compared, and their books."""

    descriptor: tuple[Extractor, ...] | None = option(
        f"descriptors to compare (default: SIFT alone); {KINDS}", parse=full_name, choices=EXTRACTORS, metavar="NAME"
    )
    codebook: tuple[Path, ...] = option(
        "codebooks with words and PCA, a file for each descriptor (default of SIFT and ALIKED: bundled)",
        default=(),
        metavar="FILE",
    )
    decoys: tuple[Path, ...] = option(
        "decoy pools, a file for each descriptor (default of SIFT and ALIKED: bundled)", default=(), metavar="FILE"
    )
    decoys_from: tuple[Path, ...] = option(
        "other photographs, to make words and decoys of each descriptor that no file is given for", default=(), metavar="PHOTOS"
    )
    book_words: int = option(
        "words to make of --decoys-from (default %(default)s)", default=WORDS, parse=at_least(2), metavar="K"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Descriptors:
    """Networks of the descriptors that can be extracted here, by name, and why others cannot."""

    networks: Mapping[Extractor, Any]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> list[dict[str, str]]:
        """Records of the descriptors that are left out."""
        return [{"descriptor": name, "reason": reason} for name, reason in self.left_out.items()]

    def lines(self) -> list[str]:
        """A sentence on each descriptor that is left out."""
        return [f"{name} not measured: {reason}" for name, reason in self.left_out.items()]


def usable(names: Sequence[Extractor]) -> Descriptors:
    """The descriptors among `names` that can be extracted here. Raises InputError if none of them can."""
    networks: dict[Extractor, Any] = {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            networks[name] = _network(name)
        except (InputError, FileFormatError) as error:
            left_out[name] = advised(error)
    if not networks:
        raise InputError("; ".join(left_out.values()))
    return Descriptors(networks=networks, left_out=left_out)


def _network(name: Extractor) -> Any:
    """The network of a descriptor; of one that another package has, it is tried."""
    network = load_network(name)
    if name == "hardnet":
        from veil.extraction.hardnet import hardnet_describe

        hardnet_describe(np.eye(32, dtype=np.float32)[None], weights=network)
    return network


def extraction_options(name: str, max_features: int, first_octave: int | None = 0) -> SiftOptions | DetectorOptions:
    """Options that give up to `max_features` features, however small their scores are."""
    if name in DETECTORS:
        return DetectorOptions(max_features=max_features, min_score=0.0)
    return SiftOptions(max_features=max_features, first_octave=first_octave)


def all_books(arguments: AskedDescriptors, names: Iterable[str]) -> dict[str, DescriptorBooks]:
    """Codebook and decoys of each descriptor: from a file, else made from --decoys-from, else the bundled ones.

    Raises InputError where there are none, and for files of descriptors that are not compared.
    """
    names = list(names)
    codebooks = _by_descriptor(arguments.codebook, names, "--codebook")
    pools = _by_descriptor(arguments.decoys, names, "--decoys")
    return {name: _books(arguments, name, codebooks.get(name), pools.get(name)) for name in names}


def bundled_books(name: str = "sift") -> DescriptorBooks:
    """The bundled codebook and decoys of a descriptor that has some."""
    return DescriptorBooks(name="bundled", codebook=bundled_codebook(name), decoys=bundled_decoys(name))


def _by_descriptor(paths: Sequence[Path], names: Sequence[str], option: str) -> dict[str, tuple[Path, Codebook]]:
    """The books of some files by their descriptor."""
    books: dict[str, tuple[Path, Codebook]] = {}
    for path in paths:
        book = read_codebook(path)
        if book.descriptor not in names:
            raise InputError(f"{option} {path} is of {book.descriptor}, which is not compared; name it with --descriptor")
        if book.descriptor in books:
            raise InputError(f"{option} {path} is a second one of {book.descriptor}; give one of each descriptor")
        books[book.descriptor] = path, book
    return books


def _books(
    arguments: AskedDescriptors, name: str, codebook: tuple[Path, Codebook] | None, pool: tuple[Path, Codebook] | None
) -> DescriptorBooks:
    """Codebook and decoys of one descriptor, where files give the one or the other."""
    if codebook and pool:
        return DescriptorBooks(name=str(codebook[0]), codebook=codebook[1], decoys=pool[1])
    if arguments.decoys_from:
        rest = _made(arguments, name)
    elif name in BUNDLED:
        rest = bundled_books(name)
    else:
        raise InputError(
            f"{name} needs words and decoys of its own kind: make them with --decoys-from PHOTOS, of other photographs than "
            f"those evaluated, or give --codebook and --decoys from `veil codebook build --descriptor {name}`"
        )
    return DescriptorBooks(
        name=str(codebook[0]) if codebook else rest.name,
        codebook=codebook[1] if codebook else rest.codebook,
        decoys=pool[1] if pool else rest.decoys,
    )


def _made(arguments: AskedDescriptors, name: str) -> DescriptorBooks:
    """Codebook and decoys of one descriptor, made from the photographs of --decoys-from."""
    collection = Collection(training=WordTraining(SAMPLE, seed=0), held=WordTraining(2, seed=0))
    collect(arguments.decoys_from, Wanted(descriptor=name), collection)
    sample = collection.training.sample()
    assert collection.space is not None  # there is a sample
    with Bar(f"{name}: words") as bar:
        made = books_of(
            sample,
            collection.space,
            arguments.book_words,
            name="decoys-from",
            image_digests=collection.training.image_digests,
            progress=bar,
        )
    axes = len(made.codebook.compression.require_pca().axes)
    images = len(collection.training.image_digests)
    text = f"{name}: {arguments.book_words} words, {axes} axes, {len(made.decoys)} decoys of {images} photographs"
    say(arguments, text)
    return made
