"""Further releases of one photograph are told from those of other views, and both are tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_truth import released, taken

from veil.attacks.attack import Estimates
from veil.audit.attempt import Attempt
from veil.audit.repeats import NONE_GIVEN, repeat_attempts
from veil.chance import Secure
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.privatize.profile import paper
from veil.privatize.public import publish
from veil.privatize.release import HideInLines, privatize
from veil.wire.codec import decode, encode
from veil.wire.message import Message


def fresh(features: Features, *, lines: bool) -> Message:
    """A release under another secret, as if the client had lost its own."""
    book = bundled_codebook()
    other = Secure(b"another secret of thirty-two bytes"[:32])
    hide = HideInLines() if lines else None
    made = privatize(features, profile=paper(4), codebook=book, decoys=book, chance=other, lines=hide)
    return decode(encode(made.upload, dtype="float32"))


def tried(message: Message, *others: Message) -> dict[str, Attempt]:
    rows = np.arange(0, len(message), 2)
    return {item.attack: item for item in repeat_attempts(message, rows, others, meet=2e-3, decoys=None)}


def near(message: Message, attempt: Attempt, descriptors: np.ndarray) -> float:
    """Share of the attacked features whose estimate is one of `descriptors` to 0.01."""
    assert isinstance(attempt.estimates, Estimates)
    gap = np.linalg.norm(attempt.estimates.points[:, None] - descriptors[None], axis=2).min(axis=1)
    return float((gap < 0.01).mean())


@pytest.mark.parametrize("lines", [False, True])
def test_a_second_release_of_one_photograph_is_a_repeat(door: dict[str, Features], lines: bool) -> None:
    """Planted: both releases lift the same descriptors. Null: a photograph of which nothing is shared."""
    features = taken(next(iter(door.values())), np.arange(80))
    message, _ = released(features, paper(4), lines=lines)
    found = tried(message, fresh(features, lines=lines))
    assert found["views"].skipped == NONE_GIVEN and found["repeat"].family == "repeat"
    assert near(message, found["repeat"], publish(features).vectors) > 0.9
    assert found["repeat"].estimates is not None and found["repeat"].estimates.certified.mean() > 0.9


@pytest.mark.parametrize("lines", [False, True])
def test_a_release_of_another_view_is_none(door: dict[str, Features], elsewhere: Features, lines: bool) -> None:
    features = taken(next(iter(door.values())), np.arange(80))
    message, _ = released(features, paper(4), lines=lines)
    found = tried(message, fresh(taken(elsewhere, np.arange(80)), lines=lines))
    assert found["repeat"].skipped == NONE_GIVEN and found["views"].family == "views"
    assert near(message, found["views"], publish(features).vectors) < 0.1
    assert found["views"].estimates is not None and not found["views"].estimates.certified.any()


def test_releases_of_another_kind_are_left_out(door: dict[str, Features]) -> None:
    features = taken(next(iter(door.values())), np.arange(40))
    message, _ = released(features, paper(4))
    other, _ = released(features, paper(2))
    words, _ = released(features, None)
    found = tried(message, other, words)
    assert all(item.skipped == NONE_GIVEN for item in found.values())
    assert set(found) == {"repeat", "views"}


def test_photographs_of_another_camera_are_other_views(door: dict[str, Features]) -> None:
    """Equal positions in a picture of another size are accidents."""
    features = taken(next(iter(door.values())), np.arange(40))
    message, _ = released(features, paper(4))
    camera = replace(features.camera, width_px=features.camera.width_px + 8)
    found = tried(message, fresh(replace(features, camera=camera), lines=False))
    assert found["repeat"].skipped == NONE_GIVEN and not found["views"].skipped
