"""Words of one point in several uploads add up, never beyond what the accounting allows."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from veil.attacks.claims import CannotRun
from veil.attacks.target import Knowledge, ReleasedImage, Target
from veil.attacks.words.posterior import posterior, repeated
from veil.attacks.words.votes import LINKED_PX, Linked, bound, links, vote, votes_attack
from veil.errors import InputError, RangeError
from veil.files.codebooks import bundled_codebook
from veil.forms import Subsets
from veil.geometry.camera import guessed
from veil.geometry.rigid import Rigid
from veil.ldp.mechanism import SubsetMechanism
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import generator

SPACE = Space(descriptor="sift", normalization="L2", dim=128)


def subsets(ids: np.ndarray, law: SubsetMechanism) -> Subsets:
    return Subsets(
        ids=ids.astype(np.uint32),
        dictionary="ab" * 32,
        mechanism=law,
        space=SPACE,
        releasable=False,
    )


def drawn(words: np.ndarray, law: SubsetMechanism, random: np.random.Generator) -> np.ndarray:
    """Subsets drawn with the mechanism's law."""
    sent = random.random(len(words)) < float(law.truth)
    ids = np.empty((len(words), law.m), dtype=np.int64)
    for row, (word, true) in enumerate(zip(words, sent, strict=True)):
        others = random.choice(law.dictionary_size - 1, law.m - int(true), replace=False)
        others += others >= word
        ids[row] = np.sort(np.append(others, word) if true else others)
    return ids


@pytest.mark.parametrize(("size", "m", "epsilon", "same"), [(5, 2, 1.0, 0.4), (4, 1, 2.0, 0.7), (6, 3, 0.5, 1.0)])
def test_the_posterior_is_bayes_rule_by_enumeration(size: int, m: int, epsilon: float, same: float) -> None:
    """Oracle: all words of both views, and the law in exact numbers."""
    law = SubsetMechanism(dictionary_size=size, epsilon=epsilon, m=m)
    sets = list(combinations(range(size), m))

    def likelihood(word: int, sent: tuple[int, ...]) -> float:
        return float(law.pmf(contains=word in sent))

    for first, second in product(sets, repeat=2):
        joint = np.zeros(size)
        for word, other in product(range(size), repeat=2):
            together = same * (word == other) + (1 - same) / size
            joint[word] += likelihood(word, first) * together * likelihood(other, second)
        joint /= joint.sum()
        linked = Linked(form=subsets(np.array([second]), law), rows=np.array([0]))
        beliefs = vote(subsets(np.array([first]), law), [linked], same_word=same)
        posterior = np.array([beliefs.probability_of(np.array([word]))[0] for word in range(size)])
        named = np.isin(np.arange(size), [*first, *second])
        assert posterior[named] == pytest.approx(joint[named], rel=1e-9)
        assert posterior[~named].sum() == 0 and 1 - posterior.sum() == pytest.approx(joint[~named].sum(), abs=1e-9)


def test_votes_of_one_photograph_are_repeats() -> None:
    """Second method: with the same word for certain, three uploads are three releases of the same features."""
    random, law = generator("votes as repeats"), SubsetMechanism(dictionary_size=300, epsilon=4.0, m=3)
    words = random.integers(0, 300, 50)
    forms = [subsets(drawn(words, law, random), law) for _ in range(3)]
    rows = np.arange(50)
    beliefs = vote(forms[0], [Linked(form=form, rows=rows) for form in forms[1:]], same_word=1.0)
    expected = repeated(forms)
    for word in words[:10]:
        every = np.full(50, word)
        assert beliefs.probability_of(every) == pytest.approx(expected.probability_of(every), rel=1e-9)
    assert np.array_equal(vote(forms[0], [], same_word=0.4).best, posterior(forms[0]).best)


@pytest.mark.parametrize(("size", "m", "epsilon", "views"), [(8, 1, 1.0, 2), (8, 2, 0.5, 3), (64, 2, 2.0, 2), (16, 1, 0.3, 4)])
def test_votes_never_beat_the_accounting(size: int, m: int, epsilon: float, views: int) -> None:
    """Bounded on both sides: more uploads tell more than one, and never more than composed epsilons allow."""
    random, law = generator(f"votes {size} {m} {epsilon}"), SubsetMechanism(dictionary_size=size, epsilon=epsilon, m=m)
    words = random.integers(0, size, 6000)
    forms = [subsets(drawn(words, law, random), law) for _ in range(views)]
    rows = np.arange(len(words))
    together = (vote(forms[0], [Linked(form=form, rows=rows) for form in forms[1:]], same_word=1.0).best == words).mean()
    alone = (posterior(forms[0]).best == words).mean()
    noise = 3 * np.sqrt(0.25 / len(words))
    assert alone - noise < together < bound(law, views) + noise
    assert bound(law, 1) < bound(law, views) < 1


def test_links_to_other_features_tell_nothing() -> None:
    """Null: words of other points. Broken twin: the same words linked rightly."""
    random, law = generator("wrong links"), SubsetMechanism(dictionary_size=1000, epsilon=7.0, m=2)
    words = random.integers(0, 1000, 4000)
    forms = [subsets(drawn(words, law, random), law) for _ in range(4)]
    right = [Linked(form=form, rows=np.arange(4000)) for form in forms[1:]]
    wrong = [Linked(form=form, rows=np.roll(np.arange(4000), 7 + place)) for place, form in enumerate(forms[1:])]
    alone, by_right, by_wrong = ((vote(forms[0], linked, same_word=0.45).best == words).mean() for linked in ([], right, wrong))
    assert abs(by_wrong - alone) < 0.03 and by_right > alone + 0.2


def test_links_are_features_at_one_point() -> None:
    """Planted: two cameras that see the same points, the features of the second one shuffled and a third of them elsewhere."""
    random = generator("links")
    camera = guessed(640, 480)
    points = random.uniform((-1, -1, 4), (1, 1, 6), (60, 3))
    poses = [Rigid(rotation=np.eye(3), translation=np.array([0.2 * place, 0.0, 0.0])) for place in range(2)]
    law = SubsetMechanism(dictionary_size=16, epsilon=1.0, m=1)
    pixels = [camera.focal_px * (points + pose.translation)[:, :2] / points[:, 2:] + (320, 240) for pose in poses]
    shuffle = random.permutation(60)
    moved = pixels[1][shuffle].copy()
    moved[:20] += 40 * LINKED_PX
    images = [
        ReleasedImage(form=subsets(np.zeros((60, 1)), law), camera=camera, keypoints=seen.astype(np.float32))
        for seen in (pixels[0], moved)
    ]
    scene = Scene(images={"a": _mapped(images[0], poses[0])}, points=points, mean_reprojection_error_px=0.0)
    (rows,) = links(scene, images[0], poses[0], [(images[1], poses[1])])
    expected = np.full(60, -1)
    expected[shuffle[20:]] = np.arange(20, 60)
    assert (rows == expected).mean() > 0.95


def _mapped(image: ReleasedImage, pose: Rigid) -> MappedImage:
    assert image.camera is not None and image.keypoints is not None
    return MappedImage(
        name="a",
        camera=image.camera,
        cam_from_world=pose,
        keypoints=image.keypoints,
        point_rows=np.arange(len(image.keypoints)),
        form=image.form,
    )


def test_without_a_map_or_uploads_it_cannot_be_run() -> None:
    book = bundled_codebook()
    law = SubsetMechanism(dictionary_size=len(book), epsilon=4.0, m=2)
    form = Subsets(
        ids=np.tile(np.arange(2, dtype=np.uint32), (5, 1)),
        dictionary=book.digest,
        mechanism=law,
        space=book.raw_space,
        releasable=False,
    )
    image = ReleasedImage(form=form, camera=guessed(64, 64), keypoints=np.ones((5, 2), dtype=np.float32))
    knowledge = Knowledge(codebook=book, decoys=None, database=book)
    with pytest.raises(CannotRun, match="no map"):
        votes_attack(Target(image=image, rows=np.arange(5), knowledge=knowledge))


def test_impossible_links_are_refused() -> None:
    law = SubsetMechanism(dictionary_size=8, epsilon=1.0, m=1)
    form = subsets(np.zeros((3, 1)), law)
    with pytest.raises(RangeError):
        vote(form, [], same_word=1.5)
    for rows in (np.array([0, 1]), np.array([0, 1, 3])):
        with pytest.raises(InputError):
            vote(form, [Linked(form=form, rows=rows)], same_word=0.5)
