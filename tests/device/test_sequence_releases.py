"""Releases of sequences: each thing once, one transaction, and a choice that descriptors have no say in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords
from veil.errors import InputError, RangeError, ReleaseRefused
from veil.features import Features
from veil.geometry.camera import UNDISCLOSED
from veil.geometry.rigid import Rigid
from veil.ldp.budget import Budget
from veil.mechanisms.public import publish
from veil.mechanisms.repeats import SAME
from veil.mechanisms.sequence_selection import APART_PX, EPIPOLAR_PX, rows_of_sequence
from veil.randomness import seeded
from veil.wire.message import Upload
from veil.wire.sequence import Sequence, decode_sequence
from worlds import features, generator

DOWN = np.array([0.0, 1.0, 0.0])


def frame(name: str, count: int = 200) -> Features:
    """Features with scales, and a known focal length."""
    random = generator(f"scales {name}")
    made = features(random, count, name=name)
    scales = np.exp(random.normal(size=count)).astype(np.float32)
    return replace(made, scales=scales, camera=replace(made.camera, focal=UNDISCLOSED))


def moved(first: Features, name: str, *, share: float) -> Features:
    """Another frame, of whose features a share shows what the first one shows, in the first rows."""
    other = frame(name)
    count = round(share * len(first))
    descriptors, keypoints = other.descriptors.copy(), other.keypoints.copy()
    descriptors[:count], keypoints[:count] = first.descriptors[:count], first.keypoints[:count]
    return replace(other, descriptors=descriptors, keypoints=keypoints)


def motions(count: int) -> tuple[Rigid, ...]:
    return tuple(Rigid(rotation=np.eye(3), translation=np.array([0.1 * step, 0.0, 0.0])) for step in range(count))


def test_what_two_frames_show_leaves_once() -> None:
    """Slow reference: all distances. The broken twin sends half of the second frame a second time."""
    first = frame("first")
    second = moved(first, "second", share=0.5)
    still = [Rigid(rotation=np.eye(3), translation=np.zeros(3))] * 2
    rows = rows_of_sequence([first, second], still, None, seeded("once"))
    vectors = [publish(one).vectors.astype(np.float64)[own] for one, own in zip((first, second), rows, strict=True)]
    gaps = np.linalg.norm(vectors[0][:, None] - vectors[1][None], axis=2)
    beside = np.linalg.norm(first.keypoints[rows[0]][:, None] - second.keypoints[rows[1]][None], axis=2) < EPIPOLAR_PX
    assert not (beside & (gaps < SAME)).any()
    # What is alike elsewhere in the picture is another thing.
    far = replace(second, keypoints=second.keypoints[::-1].copy())
    elsewhere = rows_of_sequence([first, far], still, None, seeded("once"))
    assert len(elsewhere[1]) > len(rows[1])
    twice = rows_of_sequence([first, second], still, None, seeded("once"), once=False)
    vectors = [publish(one).vectors.astype(np.float64)[own] for one, own in zip((first, second), twice, strict=True)]
    assert (np.linalg.norm(vectors[0][:, None] - vectors[1][None], axis=2).min(axis=1) == 0).sum() > 50


def test_medium_sizes_leave_first_and_apart() -> None:
    """Oracle: the median of the sizes, and distances of positions. Frames send equal parts."""
    frames = [frame(name) for name in ("a", "b", "c")]
    rows = rows_of_sequence(frames, motions(3), 100, seeded("medium"))
    assert [len(own) for own in rows] == [33, 33, 34]
    for one, own in zip(frames, rows, strict=True):
        assert one.scales is not None
        octaves = np.abs(np.log2(one.scales) - np.median(np.log2(one.scales)))
        assert np.median(octaves[own]) < 0.5 * np.median(octaves)
        gaps = np.linalg.norm(one.keypoints[own][:, None] - one.keypoints[own][None], axis=2)
        assert gaps[~np.eye(len(own), dtype=bool)].min() >= APART_PX


def test_descriptors_have_no_say_in_what_one_frame_sends() -> None:
    """Law: exchanged descriptors change no row of the first frame, and of others none as long as none shows the same."""
    frames = [frame("left"), frame("right")]
    exchanged = [replace(one, descriptors=one.descriptors[::-1].copy()) for one in frames]
    for one, other in zip(
        rows_of_sequence(frames, motions(2), 80, seeded("say"), once=False),
        rows_of_sequence(exchanged, motions(2), 80, seeded("say"), once=False),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(RangeError, match="2 features or more"):
        rows_of_sequence(frames, motions(2), 1, seeded("say"))


@pytest.mark.slow
def test_a_sequence_is_one_release(tmp_path: Path) -> None:
    device = Device(tmp_path)
    frames = [frame(name) for name in ("one", "two", "three")]
    sequence = Sequence(frames=tuple(frames), cam_from_rig=motions(3))
    release = device.release_sequence(sequence, HideInWords(epsilon=2.0), features_sent=90, gravity=[DOWN] * 3)
    got = decode_sequence(release.message)
    assert [len(one.form) for one in got.frames] == [30, 30, 30]
    for one, motion in zip(got.frames, sequence.cam_from_rig, strict=True):
        assert isinstance(one, Upload) and one.gravity is not None
        np.testing.assert_array_equal(one.gravity, DOWN)
        np.testing.assert_array_equal(motion.rotation, np.eye(3))
    assert release.left_out == 3 * 200 - 90
    entries = device.ledger.entries()
    assert len(entries) == 3 and sum(entry.features for entry in entries) == 90
    assert release.sequence_epsilon == HideInWords(epsilon=2.0).image_epsilon(90)
    # A repeat gives the same bytes and enters nothing; another choice is charged in full, as of one image.
    again = device.release_sequence(sequence, HideInWords(epsilon=2.0), features_sent=90, gravity=[DOWN] * 3)
    assert again.message == release.message and len(device.ledger.entries()) == 3
    device.release_sequence(sequence, HideInWords(epsilon=2.0), features_sent=120, gravity=[DOWN] * 3)
    assert len(device.ledger.entries()) == 6 and sum(entry.features for entry in device.ledger.entries()) == 210


@pytest.mark.slow
def test_a_budget_stops_all_frames_or_none(tmp_path: Path) -> None:
    """The session's budget covers one frame and not all: nothing is entered, as no part of a message may leave."""
    words, frames = HideInWords(epsilon=2.0), [frame(name) for name in ("x", "y", "z")]
    device = Device(tmp_path)
    device.set_budget(Budget(unit="session", epsilon=words.image_epsilon(60), delta=1e-6))
    with pytest.raises(ReleaseRefused):
        device.release_sequence(Sequence(frames=tuple(frames), cam_from_rig=motions(3)), words, features_sent=90)
    assert device.ledger.entries() == []
    device.clear_budget("session")
    assert device.release_sequence(Sequence(frames=tuple(frames), cam_from_rig=motions(3)), words, features_sent=90).frames


@pytest.mark.slow
def test_subspaces_of_a_sequence_and_what_is_missing(tmp_path: Path) -> None:
    device, frames = Device(tmp_path), [frame("s"), frame("t")]
    sequence = Sequence(frames=tuple(frames), cam_from_rig=motions(2))
    release = device.release_sequence(sequence, HideInSubspaces(), features_sent=20)
    assert release.sequence_epsilon is None and sum(len(one) for one in decode_sequence(release.message).frames) == 20
    with pytest.raises(ReleaseRefused, match="gravity"):
        device.release_sequence(Sequence(frames=(frame("u"), frame("v")), cam_from_rig=motions(2)))
    with pytest.raises(InputError, match="2 frames need as many readings"):
        device.release_sequence(sequence, HideInWords(epsilon=2.0), gravity=[DOWN])
    first = frame("w")
    sent = rows_of_sequence([first], motions(1), None, seeded("same"))[0][0]
    shown = replace(
        frame("again"),
        descriptors=np.repeat(first.descriptors[sent : sent + 1], 200, axis=0),
        keypoints=np.repeat(first.keypoints[sent : sent + 1], 200, axis=0),
    )
    same = Sequence(frames=(first, shown), cam_from_rig=motions(2))
    with pytest.raises(InputError, match="nothing to send that earlier frames do not"):
        device.release_sequence(same, HideInWords(epsilon=2.0), features_sent=None, gravity=[DOWN] * 2)
