"""Further releases of one photograph are told from those of other views, and both are tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.attack import Attempt, Skipped, attempted
from veil.attacks.claims import NONE_GIVEN, Estimates
from veil.attacks.registry import named
from veil.attacks.target import Knowledge, ReleasedImage, Target
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize
from veil.randomness import Secure
from veil.wire.codec import decode, encode
from veil.wire.message import Message
from worlds.releases import released, taken


def fresh(features: Features, *, lines: bool) -> Message:
    """Release under another secret, as if the client had lost its own."""
    book = bundled_codebook()
    other = Secure(b"another secret of thirty-two bytes"[:32])
    hide = HideInLines() if lines else None
    made = privatize(
        features, profile=Profile.paper(4), compression=book.compression, decoys=book, randomness=other, lines=hide
    )
    return decode(encode(made.upload, dtype="float32"))


def tried(message: Message, *others: Message) -> dict[str, Attempt | Skipped]:
    target = Target(
        image=ReleasedImage.of(message),
        rows=np.arange(0, len(message), 2),
        knowledge=Knowledge(
            codebook=bundled_codebook(),
            decoys=None,
            database=bundled_codebook(),
            others={f"{place}": ReleasedImage.of(other) for place, other in enumerate(others)},
        ),
    )
    return {attack.name: attempted(attack, target) for attack in named("repeat", "matched views")}


def was_skipped(outcome: Attempt | Skipped) -> bool:
    """Whether others were given and none of them is of use, which is said; "none was given" would be wrong."""
    return isinstance(outcome, Skipped) and " other releases none is of " in outcome.why


def near(message: Message, attempt: Attempt | Skipped, descriptors: np.ndarray) -> float:
    """Share of the attacked features whose estimate is one of `descriptors` to 0.01."""
    assert isinstance(attempt, Attempt) and isinstance(attempt.estimates, Estimates)
    gap = np.linalg.norm(attempt.estimates.points[:, None] - descriptors[None], axis=2).min(axis=1)
    return float((gap < 0.01).mean())


@pytest.mark.slow
@pytest.mark.parametrize("lines", [False, True])
def test_a_second_release_of_one_photograph_is_a_repeat(door: dict[str, Features], lines: bool) -> None:
    """Planted: both releases lift the same descriptors.

    Behind lines another view that drew the same decoys would meet it likewise. So nothing is certified, and the attack on views
    is run, too.
    """
    features = taken(next(iter(door.values())), np.arange(80))
    message, _ = released(features, Profile.paper(4), lines=lines)
    attempts = tried(message, fresh(features, lines=lines))
    assert was_skipped(attempts["matched views"]) != lines
    assert near(message, attempts["repeat"], publish(features).vectors) > 0.9
    assert isinstance(attempts["repeat"], Attempt) and isinstance(attempts["repeat"].claim, Estimates)
    assert attempts["repeat"].claim.certified.mean() == 0 if lines else attempts["repeat"].claim.certified.mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("lines", [False, True])
def test_a_release_of_another_view_is_none(door: dict[str, Features], elsewhere: Features, lines: bool) -> None:
    features = taken(next(iter(door.values())), np.arange(80))
    message, _ = released(features, Profile.paper(4), lines=lines)
    attempts = tried(message, fresh(taken(elsewhere, np.arange(80)), lines=lines))
    assert was_skipped(attempts["repeat"])
    assert near(message, attempts["matched views"], publish(features).vectors) < 0.1
    assert isinstance(attempts["matched views"], Attempt) and isinstance(attempts["matched views"].claim, Estimates)
    assert not attempts["matched views"].claim.certified.any()


@pytest.mark.slow
def test_releases_of_another_kind_are_left_out(door: dict[str, Features]) -> None:
    features = taken(next(iter(door.values())), np.arange(40))
    message, _ = released(features, Profile.paper(4))
    other, _ = released(features, Profile.paper(2))
    words, _ = released(features, None)
    attempts = tried(message, other, words)
    assert all(was_skipped(item) for item in attempts.values())
    assert set(attempts) == {"repeat", "matched views"}
    assert {item.why for item in tried(message).values() if isinstance(item, Skipped)} == {NONE_GIVEN}


@pytest.mark.slow
def test_photographs_of_another_camera_are_other_views(door: dict[str, Features]) -> None:
    """Equal positions in a picture of another size are accidents."""
    features = taken(next(iter(door.values())), np.arange(40))
    message, _ = released(features, Profile.paper(4))
    camera = replace(features.camera, width_px=features.camera.width_px + 8)
    attempts = tried(message, fresh(replace(features, camera=camera), lines=False))
    assert was_skipped(attempts["repeat"]) and isinstance(attempts["matched views"], Attempt)


@pytest.mark.slow
def test_decoys_that_two_views_share_are_certified_nowhere(door: dict[str, Features], elsewhere: Features) -> None:
    """Planted: photographs of two places behind lines, most of whose features drew a common decoy, meet as repeats do."""
    book = bundled_codebook()
    few = replace(bundled_decoys(), stored=bundled_decoys().stored[:1000], slices=1)
    messages = [
        decode(
            encode(
                privatize(
                    taken(features, np.arange(80)),
                    profile=Profile.hardened(quantized=True),
                    compression=book.compression,
                    decoys=few,
                    randomness=Secure(bytes([number]) * 32),
                    lines=HideInLines(),
                ).upload,
                dtype="float16",
            )
        )
        for number, features in enumerate((next(iter(door.values())), elsewhere))
    ]
    attempts = tried(*messages)
    meeting = attempts["repeat"]
    assert isinstance(meeting, Attempt) and isinstance(meeting.claim, Estimates)
    assert meeting.claim.decided.sum() > 15 and not meeting.claim.certified.any()
    assert isinstance(attempts["matched views"], Attempt)
