"""Pictures from words: laws of equal posterior, and a network whose pictures tell which words it was given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.geometry.camera import guessed
from veil.inversion.maps import SIDE, Kind, SparseMap
from veil.ldp.mechanism import SubsetMechanism
from veil.space import Space
from veil_lab.studies.pictures.inversion import UntrainedPhotograph
from veil_lab.studies.pictures.word_inversion import equal_epsilon, word_inversion_study
from worlds import generator, sift_like

BOOK = bundled_codebook()


class Notes:
    """A stand-in for a network: it draws nothing, and keeps the maps that it is given."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self.seen: list[SparseMap] = []

    def invert(self, maps: Sequence[SparseMap]) -> np.ndarray:
        self.seen.extend(maps)
        return np.zeros((len(maps), SIDE, SIDE, 3), dtype=np.uint8)


def photograph(name: str, count: int = 400) -> UntrainedPhotograph:
    random = generator(name)
    features = Features(
        keypoints=random.uniform(0, 256, (count, 2)).astype(np.float32),
        descriptors=sift_like(random, count),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        camera=guessed(256, 256),
        image_digest=name.encode().ljust(32, b"."),
    )
    return UntrainedPhotograph(name=name, rgb=random.integers(0, 256, (256, 256, 3), dtype=np.uint8), features=features)


@pytest.mark.parametrize(("words", "m", "epsilon"), [(16384, 1, 10.0), (16384, 2, 12.0), (4096, 4, 14.0), (512_000, 4, 10.0)])
def test_equal_epsilons_send_the_true_word_as_often(words: int, m: int, epsilon: float) -> None:
    """Second method: the exact law of both dictionaries."""
    equal = equal_epsilon(epsilon, m=m, words=words, of=256_000)
    here, there = (SubsetMechanism(dictionary_size=k, epsilon=e, m=m) for k, e in ((words, equal), (256_000, epsilon)))
    assert float(here.truth) == pytest.approx(float(there.truth), rel=1e-9)


def test_an_epsilon_without_an_equal_is_refused() -> None:
    with pytest.raises(RangeError, match=r"at least 4\.14"):
        equal_epsilon(4.0, m=2, words=4096, of=256_000)
    with pytest.raises(RangeError, match="m must lie"):
        equal_epsilon(4.0, m=4096, words=4096, of=256_000)


def test_pictures_are_drawn_from_words_by_each_law() -> None:
    """Planted: the words that the network saw, against those next to the descriptors. Broken twin: one law for all rows."""
    photographs = [photograph("one"), photograph("two")]
    laws = [SubsetMechanism(dictionary_size=len(BOOK), epsilon=epsilon, m=2) for epsilon in (11.0, 8.0)]
    network, raw = Notes("words"), Notes("raw")
    rows = word_inversion_study(photographs, laws, network=network, raw=raw, dictionary=BOOK, case="a test")
    assert [row.source for row in rows] == ["raw descriptors", "true words", "words", "words", "random words"]
    assert [item.values.shape[1] for item in network.seen] == [1, 1, 2, 2, 2, 2, 1, 1] and len(raw.seen) == 2
    for place, row in enumerate(rows[1:]):
        assert row.law is not None
        sent = []
        for turn in range(2):
            seen = network.seen[2 * place + turn]
            true = BOOK.vectors[BOOK.nearest(raw.seen[turn].values[:, 0])]
            sent.append((seen.values == true[:, None]).all(axis=2).any(axis=1))
        truth, count = float(row.law.truth), sum(map(len, sent))
        assert abs(np.concatenate(sent).mean() - truth) <= 4 * math.sqrt(truth * (1 - truth) / count) + 1e-9
        assert row.as_json()["true_word"] == truth
    assert rows[2].epsilon_of_image > rows[3].epsilon_of_image > rows[4].epsilon_of_image == 0


def test_networks_of_another_kind_are_refused() -> None:
    for network, raw in (("raw", "raw"), ("words", "words")):
        with pytest.raises(InputError, match="a network for words"):
            word_inversion_study(
                [photograph("one")],
                [],
                network=Notes(network),  # type: ignore[arg-type]
                raw=Notes(raw),  # type: ignore[arg-type]
                dictionary=BOOK,
                case="a test",
            )
