"""Attribute inference: against a plain sort, planted clusters that it must read, and labels that say nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veil.attacks.distribution.attributes import Labelled, infer
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.errors import InputError, RangeError, SpaceError
from veil.features import unit_length
from veil.forms import Form, Points, Subspaces, canonical
from veil.ldp.guarantee import NoProof
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.words import randomized
from veil.randomness import seeded
from veil.space import Space
from worlds import generator
from worlds.power import require_share
from worlds.word_worlds import subsets

SPACE = Space(descriptor="sift", normalization="L2", dim=128)
CLASSES = ("a", "b", "c")


def people(random: np.random.Generator, count: int, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Descriptors around one center for each class, and their classes."""
    centers = unit_length(generator("centers").normal(size=(3, 128)))
    labels = random.integers(0, 3, count)
    noise = random.normal(size=(count, 128)) / math.sqrt(128)
    return unit_length(centers[labels] + spread * noise).astype(np.float32), labels


def known(labels: np.ndarray | None = None, count: int = 400) -> Labelled:
    vectors, true = people(generator("attacker"), count)
    return Labelled(vectors=vectors, labels=true if labels is None else labels, classes=CLASSES, space=SPACE)


def lifted(vectors: np.ndarray, m: int, name: str) -> Subspaces:
    """Subspaces through the descriptors in random directions."""
    random = generator(name)
    directions = random.normal(size=(len(vectors), m, 128))
    origin, basis = canonical(vectors.astype(np.float64), directions)
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=SPACE,
        guarantee=NoProof(reason="test"),
        profile="test",
        releasable=False,
    )


def dictionary(words: int = 300) -> Codebook:
    return Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=people(generator("words"), words)[0],
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=words),
    )


def test_clusters_are_read_from_points_subspaces_and_words() -> None:
    vectors, labels = people(generator("victims"), 200)
    book = dictionary()
    mechanism = SubsetMechanism(dictionary_size=300, epsilon=10.0, m=2)
    words = randomized(book.nearest(vectors), mechanism, seeded("victims"), [b"%d" % row for row in range(200)])
    forms: dict[str, Form] = {
        "points": Points(vectors=vectors, space=SPACE),
        "random lifting": lifted(vectors, 4, "read"),
        "words": subsets(words, mechanism, book.digest),
    }
    right = {name: (infer(form, known(), dictionary=book).labels == labels).mean() for name, form in forms.items()}
    assert right["points"] > 0.99 and right["random lifting"] > 0.99
    # Of two words one is at random, and says another class in two of three cases, with as many votes.
    assert 0.5 < right["words"] < 0.9


def test_null_of_pure_noise_is_at_chance() -> None:
    """Null: the accuracy is that of a guess among three classes; 0.1 more or less would be noticed."""
    vectors = unit_length(generator("noise").normal(size=(1500, 128))).astype(np.float32)
    truth = generator("unrelated").integers(0, 3, 1500)
    for form in (Points(vectors=vectors, space=SPACE), lifted(vectors, 4, "null")):
        require_share(int((infer(form, known()).labels == truth).sum()), 1500, 1 / 3, sees=0.1)


def test_null_of_random_words_is_at_chance() -> None:
    """Null: the accuracy is that of a guess among three classes; 0.1 more or less would be noticed."""
    vectors, labels = people(generator("epsilon 0"), 1500)
    book, mechanism = dictionary(), SubsetMechanism(dictionary_size=300, epsilon=0.0, m=2)
    words = randomized(book.nearest(vectors), mechanism, seeded("noise"), [b"%d" % row for row in range(1500)])
    right = infer(subsets(words, mechanism, book.digest), known(), dictionary=book).labels == labels
    require_share(int(right.sum()), 1500, 1 / 3, sees=0.1)


@pytest.mark.parametrize("m", [0, 1, 5])
def test_votes_are_those_of_a_plain_sort(m: int) -> None:
    vectors, _ = people(generator("sort"), 30, spread=3.0)
    attacker = known()
    form = Points(vectors=vectors, space=SPACE) if m == 0 else lifted(vectors, m, "sort")
    inference = infer(form, attacker, neighbors=7)
    for row in range(30):
        offset = attacker.vectors.astype(np.float64) - (form.origin[row] if isinstance(form, Subspaces) else form.vectors[row])
        if isinstance(form, Subspaces):
            basis = form.basis[row].astype(np.float64)
            offset = offset - offset @ basis.T @ basis
        nearest = np.argsort(np.linalg.norm(offset, axis=1))[:7]
        votes = np.bincount(attacker.labels[nearest], minlength=3) / 7
        assert inference.votes[row] == pytest.approx(votes, abs=1e-3)
        assert inference.score[row] == inference.votes[row].max() == inference.votes[row, inference.labels[row]]


def test_votes_of_words_are_weighed_by_their_posterior() -> None:
    book, mechanism, attacker = dictionary(), SubsetMechanism(dictionary_size=300, epsilon=6.0, m=3), known()
    form = subsets(np.array([[4, 50, 200], [1, 2, 3]]), mechanism, book.digest)
    inference = infer(form, attacker, neighbors=9, dictionary=book)
    for row in range(2):
        expected = (1 - float(mechanism.truth)) * attacker.shares
        for word in form.ids[row].tolist():
            apart = np.linalg.norm(attacker.vectors - book.vectors[word], axis=1)
            nearest = np.argsort(apart)[:9]
            expected = expected + mechanism.posterior * np.bincount(attacker.labels[nearest], minlength=3) / 9
        assert inference.votes[row] == pytest.approx(expected, abs=1e-3)


def test_of_even_votes_the_nearer_neighbor_decides() -> None:
    axes = np.eye(128, dtype=np.float32)
    query = unit_length(axes[0] + 0.1 * axes[1])[None].astype(np.float32)
    for nearer in (0, 1):
        attacker = Labelled(vectors=axes[:2], labels=np.array([nearer, 1 - nearer]), classes=("x", "y"), space=SPACE)
        assert infer(Points(vectors=query, space=SPACE), attacker, neighbors=2).labels.tolist() == [nearer]


def test_chance_is_the_majority_class() -> None:
    attacker = known(labels=np.repeat([0, 1, 2], [100, 220, 80]))
    assert attacker.majority == 1 and attacker.shares == pytest.approx([0.25, 0.55, 0.2])


def test_bad_input_is_refused() -> None:
    vectors, labels = people(generator("bad"), 20)
    form = Points(vectors=vectors, space=SPACE)
    for neighbors in (0, 401):
        with pytest.raises(RangeError, match="neighbors"):
            infer(form, known(), neighbors=neighbors)
    other = Labelled(
        vectors=vectors, labels=labels, classes=CLASSES, space=Space(descriptor="sift", normalization="L1_ROOT", dim=128)
    )
    with pytest.raises(SpaceError, match="different spaces"):
        infer(form, other)
    mechanism = SubsetMechanism(dictionary_size=300, epsilon=1.0, m=2)
    words = subsets(np.array([[1, 2]]), mechanism, "0f" * 32)
    with pytest.raises(InputError, match="dictionary"):
        infer(words, known())
    with pytest.raises(SpaceError, match="this dictionary"):
        infer(words, known(), dictionary=dictionary())
    with pytest.raises(InputError, match="outside"):
        Labelled(vectors=vectors, labels=labels + 3, classes=CLASSES, space=SPACE)
    with pytest.raises(InputError, match="NaN"):
        Labelled(vectors=np.full_like(vectors, np.nan), labels=labels, classes=CLASSES, space=SPACE)
    with pytest.raises(InputError, match="N labels"):
        Labelled(vectors=vectors, labels=labels[:-1], classes=CLASSES, space=SPACE)
