"""Subspaces of two views of a place give away what matches, and more uploads never less of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil.attacks.attack import Attempt, attempted
from veil.attacks.matches.matched_views import (
    NO_PHOTOGRAPHS,
    MatchedViewOptions,
    epipolar_inliers,
    is_near_repeat,
    matched_photographs,
    matched_views,
)
from veil.attacks.registry import named
from veil.attacks.target import Knowledge, PublicPhotograph, ReleasedImage, Target
from veil.codebooks.codebook import Codebook
from veil.errors import RangeError
from veil.extraction.sift import sift_space
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces
from veil.geometry.camera import as_colmap, guessed
from veil.ldp.guarantee import NoProof
from veil.matching import neighbors
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize
from veil.randomness import Secure
from veil.wire.codec import decode, encode

SECRETS = Secure(b"those of the tests of views only"[:32])


@cache
def _book() -> Codebook:
    return bundled_codebook()


@cache
def _pool() -> Codebook:
    """The bundled pool in one run, so that few features share a decoy."""
    return replace(bundled_decoys(), slices=1)


def released(features: Features, *, lines: bool = False) -> tuple[ReleasedImage, np.ndarray]:
    """Release in the hardened profile as a server gets it, and the true descriptors of its features in the released space."""
    made = privatize(
        features,
        profile=Profile.hardened(quantized=True),
        compression=_book().compression,
        decoys=_pool(),
        randomness=SECRETS,
        lines=HideInLines() if lines else None,
    )
    message = decode(encode(made.upload, dtype="float16"))
    truth = _book().compression.into_space(publish(features), message.form.space).vectors
    return ReleasedImage.of(message), truth[made.order]


def target(image: ReleasedImage, others: dict[str, ReleasedImage], **knowledge: object) -> Target:
    known = Knowledge(codebook=_book(), decoys=None, database=_book(), others=others, **knowledge)  # type: ignore[arg-type]
    return Target(image=image, rows=np.arange(0, len(image.form), 2), knowledge=known)


def errors(attempt: Attempt, truth: np.ndarray) -> np.ndarray:
    """Distances of the estimates to the truth, NaN where there is none."""
    assert attempt.estimates is not None
    return np.linalg.norm(attempt.estimates.points - truth[attempt.rows], axis=1)


def shares(attempt: Attempt, truth: np.ndarray, within: float) -> tuple[float, float]:
    """Share of the attacked features within a distance of the truth: of all, and of the quarter with the surest estimates."""
    right = errors(attempt, truth) <= within
    assert attempt.estimates is not None
    surest = np.argsort(-attempt.estimates.confidence, kind="stable")[: len(right) // 4]
    return float(right.mean()), float(right[surest].mean())


@pytest.mark.slow
@pytest.mark.parametrize("lines", [False, True])
def test_neighboring_views_give_matched_features_away(door: dict[str, Features], lines: bool) -> None:
    """Oracle: the true descriptors. Lines in place of positions do not protect them: the nearest subspace is the right one."""
    (image, truth), (other, _), *_ = [released(features, lines=lines) for features in door.values()]
    attempt = matched_views(target(image, {"other": other}))
    overall, of_surest = shares(attempt, truth, 0.2)
    assert of_surest > 0.8 and overall > 0.35
    assert attempt.estimates is not None and not attempt.estimates.certified.any()


@pytest.mark.slow
def test_more_uploads_never_lower_the_share(door: dict[str, Features]) -> None:
    """A view more is a chance more: partners that positions verify go first, and of the others the nearest."""
    images = {name: released(features) for name, features in door.items()}
    recovered_shares = []
    for count in (1, 2, 5):
        right = total = 0
        for place, name in list(enumerate(images))[::2]:
            order = sorted(
                (other for other in images if other != name), key=lambda other: abs(list(images).index(other) - place)
            )
            attempt = matched_views(target(images[name][0], {other: images[other][0] for other in order[:count]}))
            right += int((errors(attempt, images[name][1]) <= 0.2).sum())
            total += len(attempt.rows)
        recovered_shares.append(right / total)
    assert recovered_shares == sorted(recovered_shares) and recovered_shares[-1] > 1.1 * recovered_shares[0] > 0.05


@pytest.mark.slow
def test_ten_uploads_of_ten_parts_add_up() -> None:
    """Planted: each of ten uploads shares a tenth of the features, so that the share grows with every upload."""
    features, parts = _planted(400, 10)
    image, truth = released(features)
    others = {str(number): released(part)[0] for number, part in enumerate(parts)}
    recovered = [
        shares(matched_views(target(image, {name: others[name] for name in list(others)[:count]})), truth, 0.2)[0]
        for count in (1, 2, 5, 10)
    ]
    assert recovered == sorted(recovered) and 0.04 < recovered[0] < 0.12 and recovered[-1] > 0.7


@pytest.mark.slow
def test_a_strange_upload_gives_next_to_nothing(door: dict[str, Features], elsewhere: Features) -> None:
    """Null: a photograph of another place, and the same place with its positions exchanged among the features."""
    first, second, *_ = door.values()
    image, truth = released(first)
    mixed = replace(second, keypoints=second.keypoints[np.random.default_rng(0).permutation(len(second))])
    for other in (elsewhere, mixed):
        attempt = matched_views(target(image, {"other": released(other)[0]}))
        assert attempt.details["views"] == attempt.details["matched"] == 0
    attempt = matched_views(target(image, {"other": released(elsewhere)[0]}))
    assert shares(attempt, truth, 0.1)[0] < 0.02


def test_uploads_that_share_decoys_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: subspaces that meet the attacked ones nearly, as those with shared decoys do; geometry explains a few.

    The matcher's own look beyond shared decoys is switched off.
    """
    monkeypatch.setattr(neighbors, "SHARED_DECOYS", 1.0)
    monkeypatch.setattr(neighbors, "MET", 1.0)
    features, _ = _planted(100, 10)
    image, _ = released(features)
    form = image.form
    assert isinstance(form, Subspaces)
    turned = np.random.default_rng(1).normal(size=form.origin.shape)
    shifted = replace(form, origin=_canonical(form.origin + 1e-3 * turned, form.basis))
    assert image.keypoints is not None
    keypoints = np.random.default_rng(2).uniform(20, 600, image.keypoints.shape).astype(np.float32)
    for agreeing, views in ((20, 0), (95, 1)):
        keypoints[:agreeing] = image.keypoints[:agreeing] + np.float32(7)
        decoy = ReleasedImage(form=shifted, camera=image.camera, keypoints=keypoints)
        attempt = matched_views(target(image, {"other": decoy}))
        assert (attempt.details["views"], attempt.details["matched"] > 0) == (views, views > 0)


@pytest.mark.parametrize("m", [2, 4, 8])
def test_meetings_of_decoys_are_told_from_those_of_descriptors(m: int) -> None:
    """Planted: each of m decoys is met by itself, or one descriptor is, in most features. Too few meetings say nothing."""
    random = np.random.default_rng(m)
    for share in (0.2, 0.5):
        assert not is_near_repeat(random.binomial(m, share / m, 1000), m)
    assert is_near_repeat(random.binomial(1, 0.7, 1000), m)
    assert not is_near_repeat(random.binomial(1, 0.02, 1000), m)
    assert not is_near_repeat(np.zeros(0, dtype=np.int64), m)


@pytest.mark.slow
def test_two_frames_of_a_video_give_most_away_behind_lines(door: dict[str, Features]) -> None:
    """Planted: a second frame whose descriptors differ by noise. Null: the same noise in another photograph."""
    first, second, *_ = door.values()
    random = np.random.default_rng(6)
    (image, truth), shown = released(first, lines=True), dict[str, float]()
    for name, features in (("frame", first), ("view", second)):
        noise = random.integers(-1, 2, features.descriptors.shape)
        noisy = np.clip(features.descriptors.astype(np.int64) + noise, 0, 255).astype(np.uint8)
        digest = bytes([len(shown)]) * 32
        other, _ = released(replace(features, descriptors=noisy, image_digest=digest), lines=True)
        shown[name] = shares(matched_views(target(image, {"other": other})), truth, 0.1)[0]
    assert shown["frame"] > 0.7 and shown["frame"] > shown["view"] + 0.3


def _through(points: np.ndarray) -> Subspaces:
    """Subspaces of the hardened profile through five points each (features, 5, 48)."""
    basis = np.linalg.qr((points[:, 1:] - points[:, :1]).transpose(0, 2, 1))[0].transpose(0, 2, 1)
    origin, basis = points[:, 0].astype(np.float32), basis.astype(np.float32)
    return Subspaces(
        space=_book().compression.hardened_space,
        origin=origin,
        basis=basis,
        guarantee=NoProof(reason="planted"),
        profile="hardened",
        releasable=False,
    )


def test_of_near_repeats_the_estimate_is_taken_on_which_most_agree() -> None:
    """Planted: each feature meets a decoy in one of three repeats, nearer than its descriptor in the two others.

    The nearest partner alone, as in one repeat of the three, is then wrong.
    """
    random = np.random.default_rng(8)
    points = random.standard_normal((4, 240, 5, 48)) / np.sqrt(48)
    own, others, third = points[0], points[1:], np.arange(240) % 3
    for number, other in enumerate(others):
        other[:, 0] = own[:, 0] + 1e-3 * random.standard_normal((240, 48))
        met = np.flatnonzero(third == number)
        other[(met + 7) % 240, 1] = own[met, 1]
    images = {str(number): ReleasedImage(form=_through(other)) for number, other in enumerate(others)}
    image = ReleasedImage(form=_through(own))
    together = matched_views(target(image, images))
    assert np.nanmax(errors(together, own[:, 0])) < 0.1
    alone = errors(matched_views(target(image, {"0": images["0"]})), own[:, 0])
    assert (alone > 0.5).mean() == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.slow
def test_raw_photographs_of_the_place_give_more(door: dict[str, Features]) -> None:
    """Second method: a descriptor beside a subspace tells at least as much as another subspace."""
    first, second, *_ = door.values()
    (image, truth), (other, _) = released(first), released(second)
    by_views = matched_views(target(image, {"other": other}))
    public = PublicPhotograph(points=publish(second), keypoints=second.keypoints)
    by_photographs = matched_photographs(target(image, {}, place={"other": public}))
    assert shares(by_photographs, truth, 0.2)[0] > shares(by_views, truth, 0.2)[0]
    assert shares(by_photographs, truth, 0.2)[1] > 0.9


def test_without_views_or_photographs_it_cannot_be_run(door: dict[str, Features]) -> None:
    image, _ = released(next(iter(door.values())))
    (photographs,) = named("matched photographs")
    outcome = attempted(photographs, target(image, {}))
    assert getattr(outcome, "why", "") == NO_PHOTOGRAPHS


def test_epipolar_inliers_are_the_planted_matches() -> None:
    """Planted truth: two cameras, 60 right matches among 60 wrong ones; without right ones there are none."""
    random = np.random.default_rng(3)
    points = random.uniform((-2, -2, 4), (2, 2, 9), (60, 3))
    left = 500 * points[:, :2] / points[:, 2:] + 300
    moved = points + np.array([0.7, 0.1, 0.2])
    right = 500 * moved[:, :2] / moved[:, 2:] + 300
    wrong = random.uniform(0, 600, (2, 60, 2))
    inliers = epipolar_inliers(np.vstack([left, wrong[0]]), np.vstack([right, wrong[1]]), options=MatchedViewOptions())
    assert inliers[:60].mean() > 0.95 and inliers[60:].mean() < 0.1
    assert not epipolar_inliers(wrong[0], wrong[1], options=MatchedViewOptions()).any()
    assert not epipolar_inliers(left[:10], right[:10], options=MatchedViewOptions()).any()


@pytest.mark.parametrize("bad", [{"max_error_px": float("nan")}, {"samples": 0}])
def test_options_outside_their_range_are_refused(bad: dict) -> None:
    with pytest.raises(RangeError):
        MatchedViewOptions(**bad)


def _planted(count: int, parts: int) -> tuple[Features, list[Features]]:
    """Features of points in space, and views of them by other cameras that each show one part of the points."""
    random = np.random.default_rng(5)
    camera = guessed(640, 640)
    stored = bundled_decoys().stored[random.permutation(len(bundled_decoys().stored))[: 2 * count]].astype(np.int64)
    points = random.uniform((-1.2, -1.2, 4), (1.0, 1.0, 8), (count, 3))

    def seen(rows: np.ndarray, shift: float, name: bytes) -> Features:
        pixels = np.asarray(as_colmap(camera).img_from_cam(points[rows] + np.array([shift, 0.1 * shift, 0.0])))
        noise = random.integers(-9, 10, (len(rows), 128)) if shift else 0
        return Features(
            camera=camera,
            keypoints=pixels.astype(np.float32),
            descriptors=np.clip(stored[rows] + noise, 0, 255).astype(np.uint8),
            space=sift_space("L2"),
            image_digest=name.ljust(32, b"."),
        )

    rows = np.arange(count)
    return seen(rows, 0.0, b"whole"), [
        seen(part, 0.4, b"part %d" % number) for number, part in enumerate(np.array_split(rows, parts))
    ]


def _canonical(origin: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Origins moved within their subspaces to the point nearest to zero."""
    inside = np.einsum("fmn,fn->fm", basis.astype(np.float64), origin)
    return (origin - np.einsum("fm,fmn->fn", inside, basis)).astype(np.float32)
