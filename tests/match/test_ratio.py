"""The ratio that wrong matches pass, learnt from images without knowing which matches are right."""

from __future__ import annotations

import numpy as np
import pytest

from veil.forms import Form, Points
from veil.match import match
from veil.match.ratio import chance_ratio
from veil.space import Space
from worlds import generator, sift_like, subspaces, unit

SPACE = Space(descriptor="sift", normalization="L2", dim=128)


def views(m: int, count: int) -> dict[str, Form]:
    """Two images of the same `count` descriptors with noise, and one of others; lifted to subspaces of dimension m."""
    random = generator(f"ratio {m}")
    shared = unit(sift_like(random, count))
    forms: dict[str, Form] = {}
    for name, values in (("a", shared), ("b", shared), ("c", unit(sift_like(random, count)))):
        noisy = unit(values + 0.03 * random.normal(size=values.shape)).astype(np.float32)
        forms[name] = subspaces(generator(f"{m} {name}"), noisy, m, SPACE) if m else Points(vectors=noisy, space=SPACE)
    return forms


@pytest.mark.parametrize("m", [0, 2, 4])
def test_one_wrong_match_in_a_hundred_passes_although_the_images_match(m: int) -> None:
    """Oracle: planted matches. The ratio is learnt from a pair that matches throughout and judged on one that does not.

    With 1,500 features and 500 asked, a share of 1 % is known to within a factor of two.
    """
    forms = views(m, 1500)
    learnt = chance_ratio(forms, [("a", "b")])
    wrong = match(forms["a"], forms["c"])
    share = (wrong.ratios <= learnt).sum() / len(forms["a"])
    assert share <= 0.02
    loose = chance_ratio(forms, [("a", "b")], wrong_share=0.2)
    assert learnt < loose < 1
    assert (wrong.ratios <= loose).sum() > (wrong.ratios <= learnt).sum()
    right = match(forms["a"], forms["b"])
    assert ((right.indices[:, 0] == right.indices[:, 1]) & (right.ratios <= learnt)).sum() > 0.5 * len(forms["a"])


def test_too_small_a_sample_gives_no_threshold() -> None:
    forms = views(0, 50)
    assert chance_ratio(forms, [("a", "b")]) == 1.0
    assert chance_ratio(forms, []) == 1.0
