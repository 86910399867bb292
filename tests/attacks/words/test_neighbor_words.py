"""The neighbor attack on words: against enumeration on trees, planted pairs, unrelated words, and real photographs."""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from veil.attacks.words.cooccurrence import CooccurrenceOptions, NeighborModel, PhotographInWords, learn_neighbors, paired
from veil.attacks.words.neighbors import DenoiseOptions, _votes, denoise
from veil.attacks.words.posterior import posterior
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, SpaceError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.pictures import read_picture
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.public import publish
from veil.mechanisms.words import randomized
from veil.randomness import seeded
from worlds import generator, world
from worlds.material import photograph
from worlds.word_worlds import dictionary_of, subsets

WORDS = 200


@cache
def book() -> Codebook:
    return dictionary_of(world("neighbor words", points=100), others=WORDS - 100)


def planted(random: np.random.Generator, groups: int = 60) -> PhotographInWords:
    """Photograph of groups of five keypoints side by side, whose words are five consecutive ones: one word tells the others."""
    centers = np.stack(np.divmod(np.arange(groups), 8), axis=1) * 40.0
    keypoints = centers[:, None] + random.uniform(-3, 3, (groups, 5, 2))
    words = 5 * random.integers(0, WORDS // 5, groups)[:, None] + random.permuted(np.tile(np.arange(5), (groups, 1)), axis=1)
    return PhotographInWords(keypoints=keypoints.reshape(-1, 2), words=words.ravel())


def model(seed: str = "attacker", options: CooccurrenceOptions | None = None) -> NeighborModel:
    random = generator(seed)
    settings = options or CooccurrenceOptions(neighbors=4, classes=(8, 32))
    return learn_neighbors([planted(random) for _ in range(40)], book(), seed=0, options=settings)


def released(words: np.ndarray, mechanism: SubsetMechanism, dictionary: str, name: str) -> Subsets:
    contexts = [b"%d" % row for row in range(len(words))]
    return subsets(randomized(words, mechanism, seeded(name), contexts), mechanism, dictionary)


def test_neighbors_of_one_kind_give_each_other_away() -> None:
    # The planted world that the attack must win: the subset alone leaves a choice of four.
    mechanism = SubsetMechanism(dictionary_size=WORDS, epsilon=9.0, m=4)
    known, victim = model(), planted(generator("victim"))
    form = released(victim.words, mechanism, known.dictionary, "victim")
    alone, together = posterior(form, prior=known.frequency), denoise(form, victim.keypoints, known)
    assert (alone.best == victim.words).mean() < 0.4
    assert (together.best == victim.words).mean() > 0.9
    # Surer as well as more often right, and no surer than it is right.
    assert together.probability_of(victim.words).mean() > 0.8
    assert together.confidence.mean() < (together.best == victim.words).mean() + 0.05


def test_null_of_unrelated_words_is_at_chance() -> None:
    # The same words dealt to other places: neighbors know nothing of each other, whatever the attacker learned.
    mechanism = SubsetMechanism(dictionary_size=WORDS, epsilon=9.0, m=4)
    known, random = model(), generator("null")
    hits, plain, count = 0, 0, 0
    for index in range(12):
        victim = planted(random)
        words = random.permutation(victim.words)
        form = released(words, mechanism, known.dictionary, f"null {index}")
        hits += int((denoise(form, victim.keypoints, known).best == words).sum())
        plain += int((posterior(form, prior=known.frequency).best == words).sum())
        count += len(words)
    spread = 5 * math.sqrt(mechanism.posterior * (1 - mechanism.posterior) / count)
    assert abs(hits / count - mechanism.posterior) < spread
    assert abs(plain / count - mechanism.posterior) < spread


def test_null_of_random_subsets_is_at_chance() -> None:
    mechanism = SubsetMechanism(dictionary_size=WORDS, epsilon=0.0, m=4)
    known, random = model(), generator("noise")
    hits, count = 0, 0
    for index in range(12):
        victim = planted(random)
        form = released(victim.words, mechanism, known.dictionary, f"noise {index}")
        hits += int((denoise(form, victim.keypoints, known).best == victim.words).sum())
        count += len(form)
    assert abs(hits / count - 1 / WORDS) < 5 * math.sqrt(1 / WORDS / count)


@pytest.mark.parametrize("spacing", [(0.0, 3.0), (0.0, 3.0, 9.0), (0.0, 3.0, 9.0, 30.0)])
def test_on_a_tree_the_messages_are_exact(spacing: tuple[float, ...]) -> None:
    known = model(options=CooccurrenceOptions(neighbors=1, classes=(8, 32)))
    mechanism = SubsetMechanism(dictionary_size=WORDS, epsilon=4.0, m=3)
    count = len(spacing)
    keypoints = np.stack([np.array(spacing), np.zeros(count)], axis=1)
    form = released(np.arange(count) * 3, mechanism, known.dictionary, f"tree {count}")
    options = DenoiseOptions(strength=1.0, damping=0.0, rounds=count, candidates=4)
    denoised = denoise(form, keypoints, known, options=options)
    # Second method: the joint distribution of all states, and its marginals.
    before = posterior(form, prior=known.frequency)
    own = np.concatenate([before.probability, 1 - before.probability.sum(axis=1, keepdims=True)], axis=1)
    left, right, distance = paired(keypoints, known.options)
    assert len(left) == count - 1
    words = denoised.words
    order = np.array([[list(before.words[row]).index(word) for word in words[row]] for row in range(count)])
    own = np.concatenate([np.take_along_axis(own, order, axis=1), own[:, -1:]], axis=1)
    votes = _votes(known, words, left, right, distance)
    marginal = np.zeros(own.shape)
    for states in itertools.product(range(own.shape[1]), repeat=count):
        weight = math.prod(own[row, state] for row, state in enumerate(states))
        weight *= math.exp(sum(votes[edge, states[left[edge]], states[right[edge]]] for edge in range(len(left))))
        marginal[np.arange(count), list(states)] += weight
    assert denoised.probability == pytest.approx((marginal / marginal.sum(axis=1, keepdims=True))[:, :-1], abs=1e-9)


def test_ratios_of_single_words_are_counts_over_what_chance_expects() -> None:
    photographs = [planted(generator("counted"))]
    known = learn_neighbors(
        photographs, book(), seed=0, options=CooccurrenceOptions(neighbors=3, classes=(), shrinkage=1e-9, edges_px=(2.0, 5.0))
    )
    left, right, distance = paired(photographs[0].keypoints, known.options)
    a, b = photographs[0].words[left], photographs[0].words[right]
    for pair in range(0, len(a), 17):
        same = distance == distance[pair]
        ends = np.concatenate([a[same], b[same]])
        shares = [(ends == word).mean() for word in (a[pair], b[pair])]
        counted = (same & (np.minimum(a, b) == min(a[pair], b[pair])) & (np.maximum(a, b) == max(a[pair], b[pair]))).sum()
        chance = same.sum() * shares[0] * shares[1] * (1 if a[pair] == b[pair] else 2)
        ratio = known.log_ratio(a[pair : pair + 1], b[pair : pair + 1], distance[pair : pair + 1])
        assert ratio[0] == pytest.approx(math.log(counted / chance), abs=2e-2)  # shares are smoothed a little
        assert ratio == pytest.approx(known.log_ratio(b[pair : pair + 1], a[pair : pair + 1], distance[pair : pair + 1]))


def test_without_strength_or_neighbors_it_is_the_posterior() -> None:
    mechanism = SubsetMechanism(dictionary_size=WORDS, epsilon=5.0, m=3)
    known, victim = model(), planted(generator("weak"))
    form = released(victim.words, mechanism, known.dictionary, "weak")
    plain = posterior(form, prior=known.frequency)
    assert denoise(form, victim.keypoints, known, options=DenoiseOptions(strength=0.0)).probability_of(
        victim.words
    ) == pytest.approx(plain.probability_of(victim.words), rel=1e-9)
    one = denoise(form.take(np.arange(1)), victim.keypoints[:1], known)
    assert one.probability_of(victim.words[:1]) == pytest.approx(plain.probability_of(victim.words)[:1], rel=1e-9)


def test_memory_is_bounded_and_learning_repeats() -> None:
    bounded = model(options=CooccurrenceOptions(neighbors=4, classes=(8, 32), max_pairs=100))
    assert all(len(level.keys) <= 100 for level in bounded.levels)
    first, second = model(), model()
    for a, b in zip(first.levels, second.levels, strict=True):
        assert np.array_equal(a.keys, b.keys) and np.array_equal(a.counts, b.counts)
    # Every pair is counted once in each level.
    assert all(level.counts.sum() == first.pairs.sum() for level in first.levels)
    steps: list[tuple[int, int]] = []
    learn_neighbors([planted(generator("steps"))] * 70, book(), seed=0, progress=lambda *step: steps.append(step))
    assert steps == [(64, 70), (70, 70)]


def gain(known: NeighborModel, victims: list[Features], epsilon: float, name: str) -> tuple[float, float, float]:
    """Hit rates of the posterior without and with a prior, and of the neighbors."""
    codebook = bundled_codebook()
    mechanism = SubsetMechanism(dictionary_size=len(codebook), epsilon=epsilon, m=2)
    hits, count = np.zeros(3), 0
    for index, victim in enumerate(victims):
        truth = codebook.nearest(publish(victim).vectors)
        form = released(truth, mechanism, codebook.digest, f"{name} {index}")
        guesses = posterior(form), posterior(form, prior=known.frequency), denoise(form, victim.keypoints, known)
        hits += [int((guess.best == truth).sum()) for guess in guesses]
        count += len(truth)
    plain, prior, neighbors = (hits / count).tolist()
    return plain, prior, neighbors


def learned(features: list[Features]) -> NeighborModel:
    codebook = bundled_codebook()
    own = [PhotographInWords(keypoints=item.keypoints, words=codebook.nearest(publish(item).vectors)) for item in features]
    return learn_neighbors(own, codebook, seed=0, options=CooccurrenceOptions(classes=(32, 128)))


@pytest.mark.slow
def test_who_has_photographs_of_the_place_reads_most_words() -> None:
    known = learned([photograph(number, 1500) for number in (4, 6, 8)])
    plain, prior, neighbors = gain(known, [photograph(5, 1500)], 12.0, "door")
    assert plain < prior < neighbors - 0.02


@pytest.mark.slow
def test_on_unseen_photographs_neighbors_beat_the_posterior(veil_data: Path) -> None:
    def of(folder: str, step: int, count: int) -> list[Features]:
        paths = sorted((veil_data / "photos" / folder).rglob("*.jpg"))[::step][:count]
        return [extract_sift(read_picture(path), SiftOptions(max_features=500)) for path in paths]

    known = learned(of("imagenet_sample", 35, 18))
    plain, prior, neighbors = gain(known, of("bsds500", 40, 5), 10.0, "unseen")
    assert plain < prior < neighbors - 0.01


def test_bad_input_is_refused() -> None:
    known, victim = model(), planted(generator("refused"))
    mechanism = SubsetMechanism(dictionary_size=WORDS, epsilon=5.0, m=3)
    form = released(victim.words, mechanism, known.dictionary, "refused")
    with pytest.raises(InputError, match="finite position"):
        denoise(form, victim.keypoints[:-1], known)
    with pytest.raises(InputError, match="finite position"):
        denoise(form, np.full_like(victim.keypoints, np.nan), known)
    with pytest.raises(SpaceError, match="another dictionary"):
        denoise(subsets(form.ids, mechanism, "0f" * 32), victim.keypoints, known)
    with pytest.raises(InputError, match="give some"):
        learn_neighbors([], book(), seed=0)
    lonely = PhotographInWords(keypoints=np.zeros((1, 2)), words=np.array([1]))
    with pytest.raises(InputError, match="two keypoints"):
        learn_neighbors([lonely], book(), seed=0)
    for words, keypoints in ((np.array([WORDS]), np.zeros((1, 2))), (np.array([1]), np.full((1, 2), np.nan))):
        with pytest.raises(InputError, match="photograph"):
            learn_neighbors([PhotographInWords(keypoints=keypoints, words=words)], book(), seed=0)
    for options in ({"neighbors": 0}, {"edges_px": (3.0, 2.0)}, {"shrinkage": math.nan}, {"classes": (0,)}, {"max_pairs": 0}):
        with pytest.raises(RangeError):
            CooccurrenceOptions(**options)
    for wrong in ({"strength": math.nan}, {"damping": 1.0}, {"rounds": -1}, {"candidates": 0}):
        with pytest.raises(RangeError):
            DenoiseOptions(**wrong)
