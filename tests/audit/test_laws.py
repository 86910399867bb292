"""Laws of attacks: they hold of honest runs, and each planted fault of scoring breaks one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from veil.attacks.attack import Attack, Attempt
from veil.attacks.claims import Estimates
from veil.attacks.registry import ATTACKS
from veil.attacks.target import Knowledge
from veil.audit.ground_truth import Truth, find_truth
from veil.audit.laws import broken_laws, first_sent, lost_with_more, recovered
from veil.audit.run import Examined, Tried, examine, findings
from veil.codebooks.codebook import Codebook
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize_words
from veil.wire.message import Message
from worlds.releases import CHANCE, released

EPSILON = 10.0


def in_words(features: Features, dictionary: Codebook) -> Message:
    law = SubsetMechanism(dictionary_size=len(dictionary), epsilon=EPSILON, m=2)
    return privatize_words(features, mechanism=law, dictionary=dictionary, randomness=CHANCE).upload


@pytest.fixture(scope="module")
def books() -> tuple[Codebook, Codebook]:
    """The bundled dictionary, and half of its words in another order: dictionaries of two scenes."""
    book = bundled_codebook()
    rows = np.random.default_rng(5).permutation(len(book))[: len(book) // 2]
    return book, replace(book, stored=book.stored[rows])


@pytest.fixture(scope="module")
def two_scenes(door: dict[str, Features], books: tuple[Codebook, Codebook]) -> list[Examined]:
    """Two photographs in words of two dictionaries, each attacked by who has its dictionary, with their truths."""
    together: list[Examined] = []
    for (name, features), book in zip(list(door.items())[:2], books, strict=True):
        message = in_words(features, book)
        truth = find_truth(message, {name: features}, book)
        knowledge = Knowledge(codebook=book, decoys=None, database=bundled_codebook())
        together += examine({name: message}, {name: truth}, knowledge, attacks=[attack_on("posterior")])
    return together


@pytest.mark.slow
def test_releases_of_two_dictionaries_are_scored_each_in_its_own(two_scenes: list[Examined]) -> None:
    """Oracle: the mechanism's law. Broken twin: truths in the first scene's dictionary, as one passed for all would be."""
    assert broken_laws(two_scenes) == []
    (finding,) = findings(two_scenes)
    assert finding.score is not None
    share, expected = finding.score.recovered, finding.details["posterior"]
    assert abs(share.value - expected) < 4 * math.sqrt(expected * (1 - expected) / share.total)
    first = bundled_codebook()
    twin = [replace(item, truth=of_words(item.truth, first)) for item in two_scenes]
    (broken,) = broken_laws(twin)
    assert broken.startswith("posterior names ")
    (wrong,) = findings(twin)
    assert wrong.score is not None and wrong.score.recovered.value < 0.7 * share.value


@pytest.mark.slow
def test_exchanged_dictionaries_are_seen(two_scenes: list[Examined], books: tuple[Codebook, Codebook]) -> None:
    exchanged = [replace(item, truth=of_words(item.truth, book)) for item, book in zip(two_scenes, books[::-1], strict=True)]
    assert len(broken_laws(exchanged)) == 1


def of_words(truth: Truth | None, book: Codebook) -> Truth:
    assert truth is not None
    return replace(truth, words=book.nearest(truth.descriptors.astype(np.float32)).astype(np.int64))


def test_another_dictionary_gives_no_true_words(door: dict[str, Features], books: tuple[Codebook, Codebook]) -> None:
    """Then nothing is scored, rather than all of it wrong."""
    name, features = next(iter(door.items()))
    message = in_words(features, books[1])
    assert find_truth(message, {name: features}, books[0]).words is None
    own = find_truth(message, {name: features}, books[1]).words
    assert own is not None and own.max() < len(books[1])


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_chance_of_the_first_word_is_that_of_all_subsets(m: int) -> None:
    """Oracle: all subsets of seven words by their probabilities."""
    law = SubsetMechanism(dictionary_size=7, epsilon=1.5, m=m)
    every = list(combinations(range(7), m))
    by_hand = [sum(float(law.pmf(contains=True)) for subset in every if subset[0] == word) for word in range(7)]
    assert np.allclose(first_sent(law, np.arange(7)), by_hand, rtol=1e-9)
    assert np.isclose(first_sent(law, np.arange(7)).mean(), law.posterior)


def planted(
    release: tuple[Message, Truth],
    right: Mapping[str, Sequence[int]],
    *,
    coarse: Mapping[str, Sequence[int]] | None = None,
    certified: Sequence[int] = (),
) -> Examined:
    """Attempts that recover the features `right` of a release, by the attack's name; all others are decided and wrong.

    Those in `coarse` are wrong by 0.3 of the length of a descriptor.
    """
    message, truth = release
    coarse = coarse or {}
    tried = []
    for name, rows in right.items():
        points = truth.descriptors + 1.0
        points[list(coarse.get(name, ()))] = truth.descriptors[list(coarse.get(name, ()))] + 0.3 / math.sqrt(points.shape[1])
        points[list(rows)] = truth.descriptors[list(rows)]
        proved = np.isin(np.arange(len(points)), certified)
        claim = Estimates(points=points, confidence=np.full(len(points), 0.5), certified=proved)
        tried.append(Tried(attack=attack_on(name), outcome=Attempt(label=name, rows=np.arange(len(points)), claim=claim)))
    return Examined(name="a", message=message, tried=tuple(tried), truth=truth)


def attack_on(name: str) -> Attack:
    """The first attack of that name in the list."""
    return next(attack for attack in ATTACKS if attack.name == name)


@pytest.fixture(scope="module")
def release(door: dict[str, Features]) -> tuple[Message, Truth]:
    name, features = next(iter(door.items()))
    message, _ = released(features, Profile.hardened(quantized=True))
    return message, find_truth(message, {name: features}, bundled_codebook())


def test_false_certificates_are_counted(release: tuple[Message, Truth]) -> None:
    """Of 50 certificates 20 are false, as where shared decoys are taken for descriptors; one false of 200 may be."""
    assert broken_laws([planted(release, {"repeat": range(30)}, certified=range(50))]) == [
        "repeat certifies 50 features, of which 20 are wrong; at most 1% may be"
    ]
    assert broken_laws([planted(release, {"repeat": range(199)}, certified=range(200))]) == []


def test_an_attack_below_its_special_case_is_seen(release: tuple[Message, Truth]) -> None:
    """`context` knows all that `modes` does. A few features less are chance."""
    (broken,) = broken_laws([planted(release, {"modes": range(60), "context": range(30)})])
    assert broken.startswith("context recovers 30 of ") and "modes, a special case of it, 60" in broken
    assert broken_laws([planted(release, {"modes": range(60), "context": range(55)})]) == []
    assert broken_laws([planted(release, {"modes": range(30), "context": range(60)})]) == []


def test_an_attack_is_compared_with_each_of_its_special_cases_at_each_distance(release: tuple[Message, Truth]) -> None:
    """Planted: `matched candidates` recovers more than `modes` and `matched views` within 0.1, and less within 0.4."""
    right = {"modes": range(10), "matched views": range(50), "matched candidates": range(60)}
    (broken,) = broken_laws([planted(release, right, coarse={"matched views": range(50, 100)})])
    assert broken.startswith("matched candidates recovers 60 of ") and "matched views, a special case of it, 100" in broken
    assert broken.endswith("within 0.4 of their length")
    both = {"matched views": range(50, 100), "matched candidates": range(60, 100)}
    assert broken_laws([planted(release, right, coarse=both)]) == []
    assert (
        len(broken_laws([planted(release, {"modes": range(60), "matched views": range(70), "matched candidates": range(9)})]))
        == 2
    )


def test_more_uploads_that_give_less_are_seen(release: tuple[Message, Truth]) -> None:
    one, more, less = (planted(release, {"matched views": range(count)}) for count in (50, 70, 20))
    assert lost_with_more([one], [more]) == [] and lost_with_more([one], [one]) == []
    (broken,) = lost_with_more([one], [less])
    assert broken.endswith("with other uploads, and 50 without them")


def test_what_counts_as_recovered_is_what_is_scored(two_scenes: list[Examined]) -> None:
    """Second method: the scores."""
    (finding,) = findings(two_scenes)
    counted = sum(int(recovered(item, attempt).sum()) for item in two_scenes for _, attempt in item.attempts)
    assert finding.score is not None and counted == finding.score.recovered.count
