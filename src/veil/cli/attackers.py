"""What the attacker of an audit is taken to have: public codebooks, and photographs of its own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.attacks.target import Knowledge, ReleasedImage
from veil.attacks.word_pairs import NeighborModel, Photograph, learn_neighbors
from veil.cli.common import progress
from veil.codebooks.codebook import Codebook, Provenance
from veil.errors import InputError
from veil.extraction import EXTRACTORS, extract
from veil.extraction.sift import SiftOptions
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook
from veil.files.features import read_features
from veil.files.maps import read_map
from veil.files.pictures import named_pictures, read_picture
from veil.files.weights import load_network
from veil.forms import Subsets, Subspaces
from veil.mechanisms.public import publish
from veil.wire.message import Message

# Descriptors of the attacker's photographs that the database keeps: more only make its searches longer.
MOST_ENTRIES = 1 << 16


def attackers_knowledge(arguments: argparse.Namespace, releases: Sequence[Message], others: Mapping[str, Message]) -> Knowledge:
    """Public codebooks by hash or by option; the attacker's descriptors from --attacker, --database, or a bundled book.

    Raises InputError if the releases are not all of one kind, or no database fits them.
    """
    form = releases[0].form
    if any((type(m.form), m.form.space) != (type(form), form.space) for m in releases):
        raise InputError("these releases are of different kinds or spaces; audit them one kind at a time")
    codebook = read_codebook(arguments.codebook) if arguments.codebook else _bundled(form)
    decoys = _decoys(arguments, form)
    if arguments.attacker:
        database = _own_descriptors(_photographs(arguments.attacker, form))
    elif arguments.database:
        database = read_codebook(arguments.database)
    else:
        # Of the two bundled books the one that the decoys did not come from.
        is_pool = decoys is not None and decoys.kind == "descriptors"
        database = bundled_codebook() if is_pool else bundled_decoys()
    raw = (database.descriptor, database.normalization)
    if isinstance(form, Subspaces) and raw != (form.space.descriptor, form.space.normalization):
        raise InputError(
            f"the release holds {form.space.descriptor} {form.space.normalization} and the attacker's database {raw[0]} "
            f"{raw[1]}; give photographs with --attacker, or a codebook of such descriptors with --database"
        )
    return Knowledge(
        codebook=codebook,
        decoys=decoys,
        database=database,
        others={name: ReleasedImage.of(message) for name, message in others.items()},
        scene=read_map(arguments.map) if arguments.map else None,
    )


def neighbor_model(arguments: argparse.Namespace, releases: Sequence[Message], knowledge: Knowledge) -> NeighborModel | None:
    """What --attacker's photographs teach of neighboring words; None where words or photographs are missing."""
    form, dictionary = releases[0].form, knowledge.codebook
    if not arguments.attacker or not isinstance(form, Subsets) or dictionary is None or dictionary.digest != form.dictionary:
        return None
    photographs = [
        Photograph(keypoints=item.keypoints.astype(np.float64), words=dictionary.nearest(publish(item).vectors))
        for item in _photographs(arguments.attacker, form)
    ]
    return learn_neighbors(photographs, dictionary, seed=arguments.seed)


def _bundled(form: Subspaces | Subsets) -> Codebook | None:
    """The bundled codebook, if it is the one that the release names or could have drawn from."""
    book = bundled_codebook()
    named = form.dictionary if isinstance(form, Subsets) else form.space.codebook
    return book if named in ("", book.digest) else None


def _decoys(arguments: argparse.Namespace, form: Subspaces | Subsets) -> Codebook | None:
    """The pool of --decoys, or the bundled one of the release's profile; None if it is secret or there are no decoys."""
    if arguments.secret_decoys or isinstance(form, Subsets):
        return None
    if arguments.decoys:
        return read_codebook(arguments.decoys)
    book = bundled_decoys() if form.profile == "hardened" else bundled_codebook()
    same = (book.descriptor, book.normalization) == (form.space.descriptor, form.space.normalization)
    return book if same else None


def _photographs(paths: Sequence[Path], form: Subspaces | Subsets) -> list[Features]:
    """Features of the attacker's photographs, of the kind that was released."""
    files = [path for path in paths if path.suffix in (".h5", ".hdf5")]
    found = [item for file in files for _, item in read_features(file)]
    folders = [path for path in paths if path not in files]
    if folders:
        if form.space.descriptor not in EXTRACTORS:
            raise InputError(f"veil does not extract {form.space.descriptor}; give a features.h5 with --attacker")
        network = load_network(form.space.descriptor)
        options = SiftOptions(normalization=form.space.normalization, first_octave=None)
        for _, path in progress(named_pictures(folders), "the attacker's photographs"):
            try:
                found.append(extract(read_picture(path), form.space.descriptor, options, network))
            except InputError:  # a blank one teaches nothing
                continue
    if not found:
        raise InputError("no features were found in the attacker's photographs; give others with --attacker")
    return found


def _own_descriptors(images: Sequence[Features]) -> Codebook:
    """A uniform sample of the attacker's descriptors as a database."""
    stored = np.concatenate([item.descriptors for item in images])
    rows = np.random.default_rng(0).permutation(len(stored))[:MOST_ENTRIES]
    space = images[0].space
    return Codebook(
        kind="descriptors",
        descriptor=space.descriptor,
        normalization=space.normalization,
        stored=stored[rows],
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(
            source="the attacker's photographs", license="", image_count=len(images), descriptor_count=len(stored)
        ),
    )
