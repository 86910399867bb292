"""The assumed attacker of an audit: public codebooks, and photographs of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.target import Knowledge, PublicPhotograph, ReleasedImage
from veil.attacks.words.cooccurrence import NeighborModel, PhotographInWords, learn_neighbors
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.decoys import DecoyPool
from veil.errors import InputError, Remedy
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model, bundled_pair_network, read_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subsets, Subspaces
from veil.mechanisms.public import publish
from veil.one_line import one_line
from veil.places.held_map import Map
from veil.wire.message import Message

# Number of descriptors of the attacker's photographs that the database keeps: more only make its searches longer.
MOST_ENTRIES = 1 << 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacker:
    """The attacker that an audit plays: it has everything that is public, and what the fields below add.

    - `codebook`: codebook or dictionary of the release; None: the bundled one, where the release fits it.
    - `decoys`: pool that the decoys were drawn from; None: the bundled one of the release's profile, where its descriptors fit.
    - `has_pool`: False if the pool is secret.
    - `database`: the attacker's own descriptors; None: of the two bundled books the one that the decoys did not come from.
    - `photographs`: raw features of the attacker's own pictures. They take the place of the database, and teach which words are
      neighbors in pictures.
    - `others`: further releases that the server has seen, by name.
    - `place`: raw features of photographs of the place that the server has, by name.
    - `where`: a map of the place.
    - `model`: file of `veil lab train attacks` or `veil lab tune`; None: the bundled networks, where they are for the space of
      the release.
    - `seed`: of what is learned from the photographs.
    """

    codebook: Codebook | None = None
    decoys: Codebook | None = None
    has_pool: bool = True
    database: Codebook | None = None
    photographs: Sequence[Features] = ()
    others: Mapping[str, Message] = field(default_factory=dict)
    place: Mapping[str, Features] = field(default_factory=dict)
    where: Map | None = None
    model: Path | str | None = None
    seed: int = 0

    __repr__ = one_line

    def _learned(self, form: Subspaces | Subsets) -> LearnedModel | None:
        """The networks given, or the bundled ones where they fit the release; None for words, which no density is for."""
        if self.model is not None:
            return read_learned_model(self.model)
        return None if isinstance(form, Subsets) else bundled_learned_model()

    def _neighbors(self, form: Subspaces | Subsets, dictionary: Codebook | None) -> NeighborModel | None:
        """Model of neighboring words, learned from the attacker's photographs; None where words or photographs are missing."""
        if not self.photographs or not isinstance(form, Subsets) or dictionary is None or dictionary.digest != form.dictionary:
            return None
        photographs = [
            PhotographInWords(keypoints=item.keypoints.astype(np.float64), words=dictionary.nearest(publish(item).vectors))
            for item in self.photographs
        ]
        return learn_neighbors(photographs, dictionary, seed=self.seed)

    def _pool(self, form: Subspaces | Subsets) -> Codebook | None:
        """The pool of decoys, given or bundled; None if it is secret, does not fit the release, or there are no decoys."""
        if not self.has_pool or isinstance(form, Subsets):
            return None
        if self.decoys is not None:
            return self.decoys
        kind = form.space.descriptor
        book = bundled_decoys(kind) if form.profile == "hardened" else bundled_codebook(kind)
        same = (book.descriptor, book.normalization) == (form.space.descriptor, form.space.normalization)
        return book if same else None


def _bundled(form: Subspaces | Subsets) -> Codebook | None:
    """The bundled codebook if the release names it or names none, else None."""
    book = bundled_codebook(form.space.descriptor)
    named = form.dictionary if isinstance(form, Subsets) else form.space.codebook
    return book if named in ("", book.digest) else None


def _public(features: Features) -> PublicPhotograph:
    return PublicPhotograph(points=publish(features), keypoints=features.keypoints)


def knowledge_of(attacker: Attacker, releases: Sequence[Message]) -> Knowledge:
    """The knowledge with which attacks of `attacker` on `releases` (one or more) are run.

    Raises InputError for no releases, and what `own_descriptors` raises.
    """
    if not releases:
        raise InputError("there is no release to attack; give at least one message")
    form = releases[0].form
    codebook = attacker.codebook or _bundled(form)
    return Knowledge(
        codebook=codebook,
        decoys=attacker._pool(form),
        database=own_descriptors(attacker, releases),
        others={name: ReleasedImage.of(message) for name, message in attacker.others.items()},
        place={name: _public(item) for name, item in attacker.place.items()},
        neighbors=attacker._neighbors(form, codebook),
        pairs=bundled_pair_network(),
        learned=attacker._learned(form),
        scene=None if attacker.where is None else attacker.where.scene,
    )


def own_descriptors(attacker: Attacker, releases: Sequence[Message]) -> Codebook:
    """The database that `attacker` searches, for one or more releases.

    Raises InputError if the releases are not all of one kind, or the database holds other descriptors than they do.
    """
    form = releases[0].form
    if any((type(m.form), m.form.space) != (type(form), form.space) for m in releases):
        raise InputError("these releases are of different kinds or spaces; audit them one kind at a time")
    if attacker.photographs:
        database = _own_descriptors(attacker.photographs)
    elif attacker.database is not None:
        database = attacker.database
    else:
        # The attacker has the bundled book that the decoys did not come from.
        decoys = attacker._pool(form)
        is_pool = decoys is not None and decoys.kind == "descriptors"
        kind = form.space.descriptor
        database = bundled_codebook(kind) if is_pool else bundled_decoys(kind)
    raw = (database.descriptor, database.normalization)
    if isinstance(form, Subspaces) and raw != (form.space.descriptor, form.space.normalization):
        raise InputError(
            f"the release holds {form.space.descriptor} {form.space.normalization} and the attacker's database {raw[0]} "
            f"{raw[1]}",
            remedy=(Remedy("give", "Attacker.photographs"), Remedy("give", "Attacker.database")),
        )
    return database


def _own_descriptors(images: Sequence[Features]) -> Codebook:
    """A database of a uniform sample of the photographs' descriptors."""
    stored = np.concatenate([item.descriptors for item in images])
    rows = np.random.default_rng(0).permutation(len(stored))[:MOST_ENTRIES]
    space = images[0].space
    return DecoyPool(
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
