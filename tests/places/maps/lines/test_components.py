"""Components without contradictions against sets in plain Python, also over more images than a word has bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.places.maps.lines.components import consistent_components
from worlds import generator


def naive(image_of: list[int], matches: list[tuple[int, int]]) -> tuple[list[frozenset[int]], int]:
    """(component of each feature, matches left out), joined one by one unless the union has two features of an image."""
    component = [frozenset({node}) for node in range(len(image_of))]
    left_out = 0
    for a, b in matches:
        if component[a] == component[b]:
            continue
        union = component[a] | component[b]
        if len({image_of[node] for node in union}) < len(union):
            left_out += 1
            continue
        for node in union:
            component[node] = union
    return component, left_out


def compare(image_of: list[int], matches: list[tuple[int, int]]) -> tuple[np.ndarray, int]:
    """Assert equality with the naive one, where the root of a component is its smallest member."""
    ends = np.array(matches, dtype=np.int64).reshape(-1, 2)
    roots, left_out = consistent_components(np.array(image_of, dtype=np.int64), ends[:, 0].copy(), ends[:, 1].copy())
    component, expected = naive(image_of, matches)
    assert left_out == expected
    for node, root in enumerate(roots.tolist()):
        assert root == min(component[node])
    return roots, left_out


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Up to 40 features of a few images with numbers about the borders of words, and any matches, loops included."""
    images = draw(st.lists(st.sampled_from([0, 1, 5, 62, 63, 64, 65, 127, 128, 200]), min_size=1, max_size=40))
    node = st.integers(0, len(images) - 1)
    return images, draw(st.lists(st.tuples(node, node), max_size=80))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(graphs())
def test_components_are_those_of_plain_sets(graph: tuple[list[int], list[tuple[int, int]]]) -> None:
    """Second method: plain sets, on arbitrary small graphs."""
    compare(*graph)


@pytest.mark.parametrize("images", [3, 63, 64, 65, 75, 140])
def test_planted_tracks_with_wrong_matches(images: int) -> None:
    """Second method on larger graphs: features of points over many images, a tenth of the matches wrong."""
    random = generator(f"components {images}")
    point, image = np.nonzero(random.random((30, images)) < 0.5)
    same = [(a, b) for a in range(len(point)) for b in random.integers(0, len(point), 40) if point[a] == point[b]]
    wrong = random.integers(0, len(point), (len(same) // 10, 2)).tolist()
    matches = [(int(a), int(b)) for a, b in random.permutation([*same, *wrong])]
    roots, left_out = compare(image.tolist(), matches)
    assert left_out > 0
    for root in np.unique(roots):
        members = image[roots == root]
        assert len(np.unique(members)) == len(members)


def test_images_beyond_the_first_word_are_told_apart() -> None:
    """By hand, and the broken twin of one word: images 1 and 65 share a bit there and are no contradiction."""
    roots, left_out = compare([1, 65, 129, 65], [(0, 1), (1, 2), (3, 0)])
    assert roots.tolist() == [0, 0, 0, 3] and left_out == 1


def test_the_first_match_wins() -> None:
    """By hand: of two matches that contradict each other, the better one stands before the other."""
    assert compare([0, 1, 1], [(0, 1), (0, 2)])[0].tolist() == [0, 0, 2]
    assert compare([0, 1, 1], [(0, 2), (0, 1)])[0].tolist() == [0, 1, 0]


def test_nothing_to_join() -> None:
    roots, left_out = compare([], [])
    assert roots.shape == (0,) and left_out == 0
    assert compare([0, 0, 3], [])[0].tolist() == [0, 1, 2]
