"""Near repeats get their earlier draws: sketches against angles, pairs by hand, and the intersection attack on two frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.lines import normalized_keypoints
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize, privatize_words
from veil.mechanisms.repeats import SAME, SKETCH_BITS, DrawnFeatures, most_bits, sketched, with_earlier_draws
from veil.randomness import Secret, memoized
from veil.wire.message import LineUpload, Message
from worlds import features, generator, unit

SECRET = memoized(Secret(bytes(range(32))))
BOOK = bundled_codebook()


def again(image: Features, name: str, *, noise: float) -> Features:
    """Another photograph of the same features: their descriptors and positions are moved a little."""
    random = generator(name)
    moved = unit(image.descriptors) + noise * unit(random.normal(size=image.descriptors.shape))
    descriptors = np.clip(np.round(512 * unit(np.maximum(moved, 0))), 0, 255).astype(np.uint8)
    return replace(image, descriptors=descriptors, image_digest=name.encode().ljust(32, b"."))


def lifted(image: Features, lines: HideInLines | None = None) -> tuple[Message, np.ndarray]:
    made = privatize(
        image,
        profile=Profile.hardened(quantized=True),
        compression=BOOK.compression,
        decoys=bundled_decoys(),
        randomness=SECRET,
        lines=lines,
    )
    return made.upload, sketched(publish(image.take(made.order)).vectors, SECRET)


def worded(image: Features, epsilon: float = 5.0) -> tuple[Message, np.ndarray]:
    law = SubsetMechanism(dictionary_size=len(BOOK), epsilon=epsilon, m=2)
    made = privatize_words(image, mechanism=law, dictionary=BOOK, randomness=SECRET)
    return made.upload, sketched(publish(image.take(made.order)).vectors, SECRET)


def met(left: Message, right: Message) -> int:
    """Number of subspaces of the second message that pass one of the first within what dither allows, and are not the same."""
    a, b = left.form, right.form
    assert isinstance(a, Subspaces) and isinstance(b, Subspaces)
    count = 0
    for origin, basis in zip(b.origin, b.basis, strict=True):
        offset = a.origin - origin
        offset = offset - (offset @ basis.T) @ basis
        inside = a.basis - (a.basis @ basis.T) @ basis
        solved = [np.linalg.lstsq(rows.T, -gap, rcond=None)[0] @ rows + gap for rows, gap in zip(inside, offset, strict=True)]
        near = np.linalg.norm(solved, axis=1) < 0.1
        same = np.abs(a.origin - origin).max(axis=1) < 1e-6
        count += bool((near & ~same).any())
    return count


def test_sketches_tell_angles() -> None:
    """Law of Charikar (2002): bits differ with the probability of the angle over pi. By planted angles, and by the formula."""
    random = generator("angles")
    first, other = np.linalg.qr(random.normal(size=(128, 2)))[0].T
    for distance in (0.2, SAME, 1.0):
        angle = 2 * np.arcsin(distance / 2)
        pair = np.stack([first, np.cos(angle) * first + np.sin(angle) * other]).astype(np.float32)
        assert np.linalg.norm(pair[0] - pair[1]) == pytest.approx(distance, abs=1e-6)
        bits = [
            int(np.unpackbits(left ^ right).sum())
            for left, right in (sketched(pair, memoized(Secret(bytes([key] * 32)))) for key in range(30))
        ]
        share, expected = np.mean(bits) / SKETCH_BITS, angle / np.pi
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / (30 * SKETCH_BITS))
        assert most_bits(distance) == round(SKETCH_BITS * expected)


def test_pairs_by_hand() -> None:
    """Planted: an equal feature and a near one leave as they did, a far one anew, the second of two near ones not at all."""
    old, new = features(generator("old"), 40), features(generator("new"), 10)
    descriptors = new.descriptors.copy()
    descriptors[0], descriptors[1] = old.descriptors[3], again(old, "near", noise=0.3).descriptors[7]
    descriptors[2] = again(old, "nearer", noise=0.05).descriptors[7]
    new = replace(new, descriptors=descriptors)
    for made in (lifted, worded):
        (before, their), (message, sketches) = made(old), made(new)
        memory = DrawnFeatures.of(before, their, np.arange(len(before)))
        answered = with_earlier_draws(message, sketches, [memory])
        at = {tuple(row): number for number, row in enumerate(their.tolist())}
        own = {tuple(row): number for number, row in enumerate(sketches.tolist())}
        of = {name: own[tuple(sketched(publish(new.take(np.array([name]))).vectors, SECRET)[0].tolist())] for name in range(10)}
        assert of[1] not in answered.rows and len(answered.message) == 9
        for name, row in ((0, 3), (2, 7)):
            place = int(np.flatnonzero(answered.rows == of[name])[0])
            earlier = at[tuple(sketched(publish(old.take(np.array([row]))).vectors, SECRET)[0].tolist())]
            for field, values in memory.draws.items():
                np.testing.assert_array_equal(getattr(answered.message.form, field)[place], values[earlier])
            assert not answered.is_new[place]
        assert answered.is_new.sum() == 7
        kept = answered.rows[answered.is_new]
        for field in memory.draws:  # what is new is as it was made
            np.testing.assert_array_equal(
                getattr(answered.message.form, field)[answered.is_new], getattr(message.form, field)[kept]
            )


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_two_frames_do_not_meet_in_their_descriptors(noise: float) -> None:
    """Attack: subspaces of two frames pass each other near the descriptor. Broken twin: drawn anew, where nearly all do."""
    image = features(generator("frames"), 60)
    (first, sketches), (second, others) = lifted(image), lifted(again(image, "second frame", noise=noise))
    memory = DrawnFeatures.of(first, sketches, np.arange(60))
    answered = with_earlier_draws(second, others, [memory])
    assert len(answered.message) > 50 and answered.is_new.sum() == 0
    own = met(first, first)  # features of one image may share a decoy
    assert met(first, second) > 50 > own and met(first, answered.message) <= own


def test_words_that_say_nothing_are_drawn_anew() -> None:
    """At epsilon 0 equal words of two messages would tell that two descriptors are near."""
    old = features(generator("nothing"), 30)
    (before, their), (message, sketches) = worded(old, 0.0), worded(again(old, "nothing again", noise=0.02), 0.0)
    memory = DrawnFeatures.of(before, their, np.arange(30))
    assert with_earlier_draws(message, sketches, [memory]).message is message


def turned(image: Features, name: str, *, noise: float, noise_px: float) -> tuple[Features, np.ndarray]:
    """A handheld shot: the picture is turned by 2 degrees and moved, and its positions have noise."""
    shot, angle = again(image, name, noise=noise), np.radians(2.0)
    motion = np.array([[np.cos(angle), -np.sin(angle), 6.0], [np.sin(angle), np.cos(angle), -4.0], [0, 0, 1]])
    moved = image.keypoints @ motion[:2, :2].T + motion[:2, 2] + generator(name).normal(scale=noise_px, size=(len(image), 2))
    return replace(shot, keypoints=np.clip(moved, 0, [639, 479]).astype(np.float32)), motion


def off(lines: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Distances of points from their lines."""
    return np.abs((lines[:, :2] * places).sum(axis=1) + lines[:, 2])


def test_lines_move_with_the_picture() -> None:
    """Attack: the line of the first shot, moved by a motion that the attacker knows, meets that of the second in the keypoint.

    Broken twin: lines drawn anew, of which most meet within a pixel of it. Lines that moved meet nowhere near: they are the
    same but for noise. Each runs through its keypoint, as matching needs it.
    """
    old = features(generator("lines"), 120)
    new, motion = turned(old, "in lines", noise=0.05, noise_px=0.2)
    (before, their), (message, sketches) = lifted(old, HideInLines()), lifted(new, HideInLines())
    assert isinstance(before, LineUpload) and isinstance(message, LineUpload)
    # Rows of the two pictures in the orders of their messages, by the sketches, which are all different.
    row = [
        {tuple(sketched(publish(item.take(np.array([k]))).vectors, SECRET)[0].tolist()): k for k in range(120)}
        for item in (old, new)
    ]
    first, second = (np.array([row[k][tuple(one)] for one in rows.tolist()]) for k, rows in enumerate((their, sketches)))
    places = [normalized_keypoints(item.take(order)) for item, order in ((old, first), (new, second))]
    memory = DrawnFeatures.of(before, their, np.arange(120), places=places[0])
    answered = with_earlier_draws(message, sketches, [memory], places=places[1])
    moved = answered.message
    assert isinstance(moved, LineUpload) and len(moved) > 110 and not answered.is_new.any()
    assert off(moved.lines.coefficients.astype(np.float64), places[1][answered.rows]).max() < 1e-5

    def met(lines: np.ndarray, rows: np.ndarray) -> int:
        """Number of keypoints that the two lines of a feature give away to a pixel."""
        camera = np.array([[500, 0, 320], [0, 500, 240], [0, 0, 1.0]])
        carry = np.linalg.inv(camera) @ motion @ camera
        where = {int(k): place for place, k in enumerate(first)}
        found = 0
        for line, place, k in zip(lines, places[1][rows], second[rows], strict=True):
            other = before.lines.coefficients[where[int(k)]].astype(np.float64) @ np.linalg.inv(carry)
            crossing = np.cross(line, other)
            found += bool(np.linalg.norm(crossing[:2] / crossing[2] - place) < 1 / 500) if abs(crossing[2]) > 1e-12 else 0
        return found

    assert met(message.lines.coefficients.astype(np.float64), np.arange(120)) > 90
    assert met(moved.lines.coefficients.astype(np.float64), answered.rows) < 10


def test_lines_that_do_not_move_with_the_picture_do_not_leave() -> None:
    """Planted: ten keypoints jump, and a lone earlier picture of seven has no motion."""
    old = features(generator("jumps"), 60)
    new, _ = turned(old, "jumping", noise=0.02, noise_px=0.1)
    jumped = new.keypoints.copy()
    jumped[:10] = generator("jump").uniform([0, 0], [640, 480], (10, 2))
    new = replace(new, keypoints=jumped.astype(np.float32))
    for kept, expected in ((60, 50), (7, 53)):
        part = old.take(np.arange(60 - kept, 60))
        (before, their), (message, sketches) = lifted(part, HideInLines()), lifted(new, HideInLines())
        at = {tuple(sketched(publish(part.take(np.array([k]))).vectors, SECRET)[0].tolist()): k for k in range(kept)}
        places = normalized_keypoints(part.take(np.array([at[tuple(one)] for one in their.tolist()])))
        own = {tuple(sketched(publish(new.take(np.array([k]))).vectors, SECRET)[0].tolist()): k for k in range(60)}
        mine = normalized_keypoints(new.take(np.array([own[tuple(one)] for one in sketches.tolist()])))
        memory = DrawnFeatures.of(before, their, np.arange(kept), places=places)
        answered = with_earlier_draws(message, sketches, [memory], places=mine)
        assert abs(len(answered.message) - expected) <= 1


@pytest.mark.parametrize("places", ["on one point", "on one line"])
def test_a_picture_without_a_motion_leaves_with_no_line_or_is_refused(places: str) -> None:
    """Hostile: all earlier keypoints on one point, or on a line. Nothing but veil's own error comes of it."""
    old = features(generator("degenerate"), 40)
    (before, their), (message, sketches) = (
        lifted(old, HideInLines()),
        lifted(again(old, "once more", noise=0.02), HideInLines()),
    )
    flat = np.zeros((40, 2)) if places == "on one point" else np.column_stack([np.linspace(-0.3, 0.3, 40), np.zeros(40)])
    memory = DrawnFeatures.of(before, their, np.arange(40), places=flat)
    mine = generator("mine").uniform(-0.3, 0.3, (40, 2))
    try:
        answered = with_earlier_draws(message, sketches, [memory], places=mine)
    except InputError as error:
        assert "moves with the picture" in str(error)
    else:
        assert isinstance(answered.message, LineUpload) and len(answered.message) < 40


def test_other_lines_stay_as_they_are() -> None:
    old = features(generator("other lines"), 30)
    (before, their), (message, sketches) = lifted(old), lifted(again(old, "in lines", noise=0.05), HideInLines())
    answered = with_earlier_draws(message, sketches, [DrawnFeatures.of(before, their, np.arange(20))])
    assert isinstance(message, LineUpload) and isinstance(answered.message, LineUpload)
    np.testing.assert_array_equal(answered.message.lines.coefficients, message.lines.coefficients[answered.rows])
    assert 0 < answered.is_new.sum() < len(answered.message)


def test_nothing_earlier_changes_nothing_and_what_does_not_fit_is_refused() -> None:
    image = features(generator("alone"), 12)
    (message, sketches), (words, others) = lifted(image), worded(image)
    empty = DrawnFeatures.of(message, sketches, np.zeros(12, dtype=bool))
    assert with_earlier_draws(message, sketches, [empty]).message is message
    memory = DrawnFeatures.of(words, others, np.arange(12))
    with pytest.raises(InputError, match="another form"):
        with_earlier_draws(message, sketches, [memory])
    with pytest.raises(InputError, match="512 bits"):
        DrawnFeatures(sketches=sketches[:, :8], draws={})
    with pytest.raises(InputError, match="12 features need as many draws"):
        DrawnFeatures(sketches=sketches, draws={"origin": np.zeros((3, 8))})
    one = DrawnFeatures.of(message, sketches, np.array([0]))
    twice = np.repeat(sketches[:1], 12, axis=0)
    answered = with_earlier_draws(message, twice, [one])
    assert len(answered.message) == 1  # all others may be it
