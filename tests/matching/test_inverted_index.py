"""The inverted index of a map against brute force, and log-odds of words against the mechanism's enumerated law."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, SpaceError
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import MIN_PAIRS, USUAL_SHARES, InvertedIndex, index_map, view_shares, vocabulary_candidates
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import generator, subspaces, world
from worlds.word_worlds import SIFT, dictionary_of, scene_of, subsets, words_of

PLACE = world("vocabulary", images=4, points=120)
DICTIONARY = dictionary_of(PLACE, others=300)
DIGEST = "ab" * 32


def ranked_by_hand(dictionary: Codebook, vectors: np.ndarray, nearest: int) -> np.ndarray:
    distance = np.linalg.norm(vectors[:, None].astype(np.float64) - dictionary.vectors[None], axis=2)
    return np.argsort(distance, axis=1)[:, :nearest]


@pytest.mark.parametrize("nearest", [1, 3])
def test_the_index_of_a_public_map_is_the_brute_force_assignment(nearest: int) -> None:
    scene = scene_of(PLACE)
    done: list[tuple[int, int]] = []
    vocabulary = index_map(scene, DICTIONARY, nearest=nearest, progress=lambda *step: done.append(step))
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    ranked = {name: ranked_by_hand(DICTIONARY, PLACE.form(name).vectors, nearest) for name in scene.images}
    points = np.concatenate([image.point_rows for image in scene.images.values()])
    shares = view_shares(np.concatenate(list(ranked.values())), points)
    views = np.bincount(points, minlength=len(scene.points))
    expected: dict[tuple[int, int], float] = defaultdict(float)
    counts = np.zeros((4, len(DICTIONARY)))
    for index, (name, image) in enumerate(scene.images.items()):
        for row, point in enumerate(image.point_rows.tolist()):
            for k in range(nearest):
                expected[int(ranked[name][row, k]), point] += shares[k] / views[point]
                counts[index, ranked[name][row, k]] += shares[k] / shares.sum()
    entries = {
        (word, int(vocabulary.point_rows[entry])): float(vocabulary.probability[entry])
        for word in range(len(DICTIONARY))
        for entry in range(vocabulary.offsets[word], vocabulary.offsets[word + 1])
    }
    assert entries.keys() == expected.keys() and len(entries) == len(vocabulary.point_rows)
    for entry, probability in expected.items():
        assert entries[entry] == pytest.approx(probability, rel=1e-5)
    np.testing.assert_allclose(vocabulary.image_words.toarray(), counts, rtol=1e-5, atol=1e-9)
    total = counts.sum(axis=0) + 1 / len(DICTIONARY)
    np.testing.assert_allclose(vocabulary.frequency, total / total.sum(), rtol=1e-5)
    assert vocabulary.dictionary_size == len(DICTIONARY) and vocabulary.dictionary == DICTIONARY.digest
    assert vocabulary.image_names == tuple(scene.images)


def test_probabilities_of_points_are_those_of_another_view() -> None:
    """Planted: nearly all views of a point have its word as the nearest one, so that this word has almost all probability."""
    vocabulary = index_map(scene_of(PLACE), DICTIONARY)
    word_of = DICTIONARY.nearest(PLACE.descriptors.astype(np.float32))
    visible = np.unique(np.concatenate(list(PLACE.visible.values())))
    for point in visible.tolist():
        entries = slice(vocabulary.offsets[word_of[point]], vocabulary.offsets[word_of[point] + 1])
        probability = dict(zip(vocabulary.point_rows[entries].tolist(), vocabulary.probability[entries].tolist(), strict=True))
        assert probability[point] > 0.9
    per_point = np.bincount(vocabulary.point_rows, weights=vocabulary.probability)
    assert per_point.max() < 1.001


def planted_tracks(name: str, first: float, second: float, *, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Nearest words of two views of each point, and the points.

    A share `first` of the pairs of views has the same nearest word. In a share `second` the nearest word of each view is the
    second nearest of the other, and the remaining pairs share no word.
    """
    random = generator(name)
    a = np.arange(3 * pairs).reshape(pairs, 3)
    b = a + 3 * pairs
    kind = np.repeat([0, 1, 2], [round(first * pairs), round(second * pairs), pairs - round((first + second) * pairs)])
    b[kind == 0, 0] = a[kind == 0, 0]
    b[kind == 1, :2] = a[kind == 1, 1::-1]
    ranked, points = np.concatenate([a, b]), np.tile(random.permutation(pairs), 2)
    mixed = random.permutation(len(ranked))
    return ranked[mixed], points[mixed]


def test_shares_of_other_views_are_measured_on_the_maps_tracks() -> None:
    ranked, points = planted_tracks("tracks", 0.6, 0.25, pairs=400)
    np.testing.assert_allclose(view_shares(ranked, points), [0.6, 0.25, 1e-4])
    # The broken twin compares views of different points.
    apart = points.copy()
    apart[points % 2 == 0] = generator("apart").permutation(apart[points % 2 == 0])
    assert view_shares(ranked, apart)[0] < 0.4


def test_too_few_views_take_the_usual_shares() -> None:
    ranked, points = planted_tracks("few", 1.0, 0.0, pairs=MIN_PAIRS - 1)
    np.testing.assert_array_equal(view_shares(ranked, points), USUAL_SHARES[:3])
    wide = np.tile(ranked[:, :1], (1, 7))
    np.testing.assert_array_equal(view_shares(wide, points), [*USUAL_SHARES, USUAL_SHARES[-1], USUAL_SHARES[-1]])
    ranked, points = planted_tracks("enough", 1.0, 0.0, pairs=MIN_PAIRS)
    np.testing.assert_allclose(view_shares(ranked, points), [1.0, 1e-4, 1e-4])


def by_hand(probabilities: np.ndarray, frequency: np.ndarray) -> InvertedIndex:
    """Index with the given probabilities (points, words) as entries, except for zeros."""
    word, point = np.nonzero(probabilities.T)
    return InvertedIndex(
        dictionary=DIGEST,
        offsets=np.searchsorted(word, np.arange(probabilities.shape[1] + 1)).astype(np.int64),
        point_rows=point.astype(np.int32),
        probability=probabilities.T[word, point].astype(np.float32),
        frequency=frequency.astype(np.float32),
        image_names=("0",),
        image_words=csr_array((1, probabilities.shape[1]), dtype=np.float32),
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0, 9.0])
@pytest.mark.parametrize("m", [1, 2, 4])
def test_log_odds_are_those_of_the_enumerated_law(epsilon: float, m: int) -> None:
    """Enumeration: P(Z | sees point) / P(Z | sees anything), summed over all true words with the pmf, for every subset Z."""
    random = generator(f"law {m}")
    mechanism = SubsetMechanism(dictionary_size=6, epsilon=epsilon, m=m)
    probabilities = random.dirichlet(np.ones(6), 4) * (random.random((4, 6)) > 0.3)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    frequency = random.dirichlet(np.ones(6))
    sets = list(itertools.combinations(range(6), m))
    candidates = vocabulary_candidates(subsets(np.array(sets), mechanism, DIGEST), by_hand(probabilities, frequency))
    assert (np.diff(candidates.log_odds) <= 0).all()
    table = dict(
        zip(
            zip(candidates.keypoint_rows.tolist(), candidates.point_rows.tolist(), strict=True),
            candidates.log_odds,
            strict=True,
        )
    )
    assert len(table) == len(candidates)
    for row, subset in enumerate(sets):
        likelihood = np.array([float(mechanism.pmf(contains=word in subset)) for word in range(6)])
        for point in range(4):
            if not probabilities[point, list(subset)].any():
                assert (row, point) not in table
                continue
            ratio = (probabilities[point] @ likelihood) / (frequency @ likelihood)
            assert table.pop((row, point)) == pytest.approx(math.log(ratio), abs=1e-5)
    assert not table


def test_what_is_not_entered_counts_as_another_word() -> None:
    """Where the probabilities of a point sum to less than 1, the rest counts as a word outside the subset."""
    mechanism = SubsetMechanism(dictionary_size=6, epsilon=2.0, m=2)
    full = np.array([[0.5, 0.2, 0.0, 0.0, 0.0, 0.3]])
    frequency = np.full(6, 1 / 6)
    entered = full * [1, 1, 1, 1, 1, 0]
    form = subsets(np.array([[0, 1], [1, 3]]), mechanism, DIGEST)
    some, all_of_them = (vocabulary_candidates(form, by_hand(probabilities, frequency)) for probabilities in (entered, full))
    np.testing.assert_allclose(some.log_odds, all_of_them.log_odds, rtol=1e-6)


def test_an_infinite_epsilon_is_the_limit_of_large_ones() -> None:
    frequency = np.array([0.4, 0.3, 0.2, 0.1])
    probabilities = np.array([[0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 0.25, 0.0]])
    vocabulary = by_hand(probabilities, frequency)
    sent = np.array([[0], [2]])
    candidates = vocabulary_candidates(
        subsets(sent, SubsetMechanism(dictionary_size=4, epsilon=math.inf, m=1), DIGEST), vocabulary
    )
    np.testing.assert_allclose(candidates.log_odds, [math.log(0.9 / 0.4), math.log(0.25 / 0.2)], rtol=1e-5)
    large = vocabulary_candidates(subsets(sent, SubsetMechanism(dictionary_size=4, epsilon=30.0, m=1), DIGEST), vocabulary)
    np.testing.assert_allclose(large.log_odds, candidates.log_odds, atol=1e-8)


def test_a_huge_epsilon_does_not_overflow() -> None:
    from veil.matching.inverted_index import log_likelihood_ratio

    ratio = log_likelihood_ratio(2000.0, np.array([0.5]), np.array([0.125]))
    np.testing.assert_allclose(ratio, [math.log(4)])


def test_the_limit_keeps_the_most_likely() -> None:
    vocabulary = index_map(scene_of(PLACE, without="02"), DICTIONARY)
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=8.0, m=3)
    everything = vocabulary_candidates(form, vocabulary)
    some = vocabulary_candidates(form, vocabulary, limit=50)
    assert len(everything) > 150 and len(some) == 50
    np.testing.assert_array_equal(some.log_odds, np.sort(everything.log_odds)[::-1][:50])
    np.testing.assert_array_equal(some.point_rows, everything.point_rows[:50])
    # Planted truth: most of the likely candidates are right, few of the others are.
    right = PLACE.visible["02"][everything.keypoint_rows] == everything.point_rows
    assert right[:50].mean() > 0.9 and right[len(right) // 2 :].mean() < 0.2


def test_words_that_no_point_has_give_no_candidates() -> None:
    vocabulary = by_hand(np.array([[1.0, 0.0, 0.0]]), np.full(3, 1 / 3))
    form = subsets(np.array([[1], [2]]), SubsetMechanism(dictionary_size=3, epsilon=1.0, m=1), DIGEST)
    assert len(vocabulary_candidates(form, vocabulary)) == 0


def test_a_map_of_words_is_indexed_as_it_is() -> None:
    """Entries of a map of words: p / m (the word is the true one) times the usual share of other views, over the views."""
    forms = {name: words_of(PLACE.form(name), DICTIONARY, epsilon=9.0, name=name) for name in PLACE.poses}
    vocabulary = index_map(scene_of(PLACE, forms=forms), None)
    posterior = forms["00"].mechanism.posterior
    expected = np.zeros((len(DICTIONARY), len(PLACE.points)))
    views = np.bincount(np.concatenate(list(PLACE.visible.values())), minlength=len(PLACE.points))
    for name, form in forms.items():
        for row, point in enumerate(PLACE.visible[name]):
            expected[form.ids[row], point] += posterior * USUAL_SHARES[0] / views[point]
    indexed = np.zeros_like(expected)
    word_of = np.repeat(np.arange(len(DICTIONARY)), np.diff(vocabulary.offsets))
    indexed[word_of, vocabulary.point_rows] = vocabulary.probability
    np.testing.assert_allclose(indexed, expected, rtol=1e-5, atol=1e-9)
    assert vocabulary.frequency.sum() == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(vocabulary.image_words.sum(axis=1), [len(form) for form in forms.values()], rtol=1e-5)


def test_a_map_of_mixed_words_is_refused() -> None:
    forms = {name: words_of(PLACE.form(name), DICTIONARY, epsilon=9.0) for name in PLACE.poses}
    foreign = {**forms, "03": replace(forms["03"], dictionary=DIGEST)}
    with pytest.raises(InputError, match="another dictionary"):
        index_map(scene_of(PLACE, forms=foreign), None)
    longer = {**forms, "03": words_of(PLACE.form("03"), DICTIONARY, epsilon=9.0, m=3)}
    with pytest.raises(InputError, match="different numbers of words"):
        index_map(scene_of(PLACE, forms=longer), None)


def test_what_cannot_be_indexed_is_refused() -> None:
    lifted = {name: subspaces(generator(name), PLACE.form(name).vectors, 4, SIFT) for name in PLACE.poses}
    with pytest.raises(InputError, match="subspaces cannot be indexed"):
        index_map(scene_of(PLACE, forms=lifted), DICTIONARY)
    with pytest.raises(InputError, match="indexed with a dictionary"):
        index_map(scene_of(PLACE), None)
    with pytest.raises(RangeError, match="nearest must be at least 1"):
        index_map(scene_of(PLACE), DICTIONARY, nearest=0)
    rooted = Space(descriptor="sift", normalization="L1_ROOT", dim=128)
    forms = {name: replace(PLACE.form(name), space=rooted) for name in PLACE.poses}
    with pytest.raises(SpaceError):
        index_map(scene_of(PLACE, forms=forms), DICTIONARY)


@pytest.mark.parametrize(
    "change", [dict(dictionary=DIGEST), dict(mechanism=SubsetMechanism(dictionary_size=421, epsilon=5.0, m=2))]
)
def test_words_of_another_dictionary_are_refused(change: dict) -> None:
    vocabulary = index_map(scene_of(PLACE), DICTIONARY)
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=5.0)
    with pytest.raises(SpaceError, match="index the map"):
        vocabulary_candidates(replace(form, **change), vocabulary)


def test_an_image_without_observations_is_indexed_as_empty() -> None:
    scene = scene_of(PLACE)
    none = np.zeros(0, dtype=np.int64)
    blank: MappedImage = replace(
        scene.images["01"],
        keypoints=scene.images["01"].keypoints[none],
        point_rows=none,
        form=scene.images["01"].form.take(none),
    )
    vocabulary = index_map(
        Scene(images={**scene.images, "01": blank}, points=scene.points, mean_reprojection_error_px=0.3), DICTIONARY
    )
    sums = vocabulary.image_words.sum(axis=1)
    assert sums[1] == 0 and (np.delete(sums, 1) > 0).all()
