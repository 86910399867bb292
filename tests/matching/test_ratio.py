"""Ratio thresholds that wrong matches pass, learned from images without knowing which matches are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.forms import Form, Points, Subspaces, canonical
from veil.matching import match
from veil.matching.ratio import chance_ratio
from veil.space import Space
from worlds import generator, sift_like, subspaces, unit

SPACE = Space(descriptor="sift", normalization="L2", dim=128)


def views(m: int, count: int) -> dict[str, Form]:
    """Two images of the same `count` descriptors with noise, and one of others, lifted to subspaces of dimension m."""
    random = generator(f"ratio {m}")
    shared = unit(sift_like(random, count))
    forms: dict[str, Form] = {}
    for name, values in (("a", shared), ("b", shared), ("c", unit(sift_like(random, count)))):
        noisy = unit(values + 0.03 * random.normal(size=values.shape)).astype(np.float32)
        forms[name] = subspaces(generator(f"{m} {name}"), noisy, m, SPACE) if m else Points(vectors=noisy, space=SPACE)
    return forms


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, 2, 4])
def test_one_wrong_match_in_a_hundred_passes_although_the_images_match(m: int) -> None:
    """Oracle: planted matches. The ratio is learned from a pair that matches throughout and judged on one that does not.

    With 1,500 features of which 500 are sampled, a share of 1 % is known to within a factor of two.
    """
    forms = views(m, 1500)
    learned = chance_ratio(forms, [("a", "b")])
    wrong = match(forms["a"], forms["c"])
    share = (wrong.ratios <= learned).sum() / len(forms["a"])
    assert share <= 0.02
    loose = chance_ratio(forms, [("a", "b")], wrong_share=0.2)
    assert learned < loose < 1
    assert (wrong.ratios <= loose).sum() > (wrong.ratios <= learned).sum()
    right = match(forms["a"], forms["b"])
    assert ((right.indices[:, 0] == right.indices[:, 1]) & (right.ratios <= learned)).sum() > 0.5 * len(forms["a"])


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 4])
def test_subspaces_that_share_their_decoys_do_not_lower_it(m: int) -> None:
    """Oracle: the same images without the shared decoys, whose threshold must be the same to within a fifth.

    Images that drew one part of a dictionary share decoys throughout: each feature's second neighbor lies at distance zero,
    and where that was 1 % of all features the threshold was zero, so that no pair of images had a match left.
    """
    forms = views(m, 600)
    before = chance_ratio(forms, [("a", "b"), ("b", "c")])
    plain = forms["a"]
    assert isinstance(plain, Subspaces)
    decoys = unit(generator("decoys").normal(size=(300, 128)))  # each meets two features of the other image
    for name in ("a", "d"):
        random = generator(f"meeting {m} {name}")
        inside = unit(sift_like(random, 600))
        directions = random.normal(size=(600, m, 128))
        directions[:, 0] = decoys[np.arange(600) % 300] - inside
        origin, basis = canonical(inside, directions)
        forms["met" + name] = replace(plain, origin=origin.astype(np.float32), basis=basis.astype(np.float32))
    assert chance_ratio(forms, [("a", "b"), ("b", "c"), ("meta", "metd")]) == pytest.approx(before, rel=0.2)


def test_too_small_a_sample_gives_no_threshold() -> None:
    forms = views(0, 50)
    assert chance_ratio(forms, [("a", "b")]) == 1.0
    assert chance_ratio(forms, []) == 1.0
