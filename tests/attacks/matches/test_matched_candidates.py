"""A candidate that another view shows is chosen; decoys that both releases drew say nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.attack import run_attack
from veil.attacks.claims import CannotRun
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.modes import Modes
from veil.attacks.matches.inliers import inlier_subspaces
from veil.attacks.matches.matched_candidates import (
    APART,
    CandidateDistances,
    ViewOfFeatures,
    improved,
    view_distances,
    view_evidence,
    with_suggestions,
)
from veil.attacks.matches.matched_views import OtherView, Partners
from veil.attacks.matches.view_weights import DistanceRatio, ViewWeights
from veil.attacks.registry import named
from veil.attacks.target import Knowledge, ReleasedImage, Target
from veil.errors import RangeError
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces, canonical
from veil.ldp.guarantee import NoProof
from veil.matching.neighbors import decoy_distance
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.release import HideInLines, privatize
from veil.randomness import Secure
from veil.space import Space
from veil.wire.codec import decode, encode
from worlds import generator

DIM, FEATURES, CANDIDATES, M = 24, 40, 5, 3
SPACE = Space(descriptor="sift", normalization="L2", dim=DIM)
WEIGHTS = ViewWeights()


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def through(points: np.ndarray) -> Subspaces:
    """Subspaces through m + 1 points each."""
    origin, basis = (item.astype(np.float32) for item in canonical(points[:, 0], points[:, 1:] - points[:, :1]))
    return Subspaces(
        origin=origin, basis=basis, space=SPACE, guarantee=NoProof(reason="a test"), profile="hardened", releasable=False
    )


def world(name: str, *, noise: float, share: float) -> tuple[Subspaces, Subspaces, Modes, np.ndarray]:
    """Subspaces, those of another view in the same order, candidates, and which of them is the descriptor.

    The view shows the descriptors with `noise`. It draws the second point of a `share` of its subspaces from the release's
    decoys.
    """
    random = generator(name)
    truth = unit(random.normal(size=(FEATURES, DIM)))
    decoys = unit(random.normal(size=(FEATURES, M, DIM)))
    others = unit(random.normal(size=(FEATURES, M, DIM)))
    shared = np.flatnonzero(random.random(FEATURES) < share)
    others[shared, 0] = decoys[np.roll(shared, 1), 0]
    seen = unit(truth + noise * unit(random.normal(size=truth.shape)))
    form = through(np.concatenate([truth[:, None], decoys], axis=1))
    view = through(np.concatenate([seen[:, None], others], axis=1))
    points = np.concatenate([truth[:, None], decoys, np.full((FEATURES, 1, DIM), np.nan)], axis=1)
    ratios = np.tile([0.0, 0.1, 0.2, 0.3, -np.inf], (FEATURES, 1))  # the density likes the decoys better
    order = np.stack([random.permutation(CANDIDATES) for _ in range(FEATURES)])
    modes = Modes(
        points=np.take_along_axis(points, order[..., None], axis=1), log_ratios=np.take_along_axis(ratios, order, axis=1)
    )
    return form, view, modes, order.argmin(axis=1)


def view_of(form: Subspaces, view: Subspaces, *, is_verified: bool = False, is_repeat: bool = False) -> ViewOfFeatures:
    """The view as `form` sees it; each feature has the partner in its row, at its distance."""
    points, others = (item.points for item in inlier_subspaces(form, view))
    partners = Partners(
        nearest=np.arange(FEATURES),
        away=np.linalg.norm(points - others, axis=1),
        is_verified=np.full(FEATURES, is_verified),
        is_repeat=is_repeat,
    )
    return ViewOfFeatures.of(form, OtherView(form=view, keypoints=None), partners)


def asked_of(modes: Modes, form: Subspaces, seen: ViewOfFeatures) -> tuple[CandidateDistances, np.ndarray]:
    """Distances of the candidates to one view, and their log ratios by it alone."""
    near = view_distances(modes, form, seen)
    return near, view_evidence(modes, [(seen, near)], WEIGHTS)


def slow_evidence(modes: Modes, form: Subspaces, view: Subspaces) -> np.ndarray:
    """The log ratio of Eq. 15, feature by feature, candidate by candidate and subspace by subspace.

    The partner of each feature is the subspace in its row.
    """
    logs = np.zeros(modes.log_ratios.shape)
    for feature in range(len(form)):
        one, partner = form.take(np.array([feature])), view.take(np.array([feature]))
        suggestion, there = (item.points[0] for item in inlier_subspaces(one, partner))
        for candidate in np.flatnonzero(np.isfinite(modes.log_ratios[feature])):
            distances = []
            for row in range(len(view)):
                other = view.take(np.array([row]))
                gap = np.column_stack([one.basis[0].T, -other.basis[0].T])
                apart = (other.origin - one.origin)[0]
                between = np.linalg.norm(gap @ np.linalg.lstsq(gap, apart, rcond=None)[0] - apart)
                if between > decoy_distance(form, view):
                    offset = modes.points[feature, candidate] - other.origin[0]
                    distances.append(np.linalg.norm(offset - other.basis[0].T @ (other.basis[0] @ offset)))
            if np.linalg.norm(modes.points[feature, candidate] - suggestion) < APART:
                distances.append(np.linalg.norm(suggestion - there))
            law = WEIGHTS.nearest
            ratio = np.exp(min(law.slope * (law.even - float(min(distances))), law.largest))
            logs[feature, candidate] = np.log(1 + ratio)
    return logs


def test_evidence_is_that_of_the_slow_reference() -> None:
    form, view, modes, _ = world("slow", noise=0.15, share=0.4)
    _, evidence = asked_of(modes, form, view_of(form, view))
    assert evidence == pytest.approx(slow_evidence(modes, form, view), abs=2e-3)


@pytest.mark.parametrize(("is_verified", "is_repeat"), [(False, False), (True, False), (False, True)])
def test_the_candidate_that_a_view_shows_is_chosen(is_verified: bool, is_repeat: bool) -> None:
    """Planted: the view has the descriptors. Null: it has others. Decoys of both would win if meetings were not left out."""
    form, view, modes, right = world("shown", noise=0.15, share=0.0 if is_repeat else 0.6)
    seen = view_of(form, view, is_verified=is_verified, is_repeat=is_repeat)
    _, evidence = asked_of(modes, form, seen)
    beliefs = modes.beliefs(1.0, evidence)
    assert (beliefs.argmax(axis=1) == right).mean() > 0.9 and beliefs.sum(axis=1) == pytest.approx(np.ones(FEATURES))
    _, strange, _, _ = world("strange", noise=0.15, share=0.0)
    _, none = asked_of(modes, form, view_of(form, strange))
    assert none.min() >= 0 and none.max() < 1.4
    _, naive = asked_of(modes, form, view_of(form, view, is_verified=is_verified, is_repeat=True))
    if not is_repeat and not is_verified:
        assert (modes.beliefs(1.0, naive).argmax(axis=1) == right).mean() < 0.9


def test_a_verified_partner_speaks_alone() -> None:
    """Another subspace of the view passes through each candidate, and the partner through none."""
    form, view, modes, _ = world("verified", noise=0.15, share=0.0)
    other = view_of(form, view, is_verified=True)
    elsewhere = other.partners.take(np.roll(np.arange(FEATURES), 1))
    near, evidence = asked_of(modes, form, ViewOfFeatures.of(form, other.view, elsewhere))
    known = np.isfinite(modes.log_ratios)
    assert np.median(evidence[known]) == pytest.approx(0, abs=0.1)
    assert (near.row == elsewhere.nearest[:, None]).all()


def test_the_density_ascends_from_what_a_view_suggests() -> None:
    """Planted: the modes lack the descriptor, where the density is highest. A suggestion that leads to a mode is none."""
    form, view, modes, right = world("suggested", noise=0.25, share=0.0)
    rows = np.arange(FEATURES)
    points, ratios = modes.points.copy(), modes.log_ratios.copy()
    truth = points[rows, right].copy()
    points[rows, right], ratios[rows, right] = np.nan, -np.inf
    density, seen = PeakedDensity(truth), view_of(form, view)
    more = with_suggestions(Modes(points=points, log_ratios=ratios), form, [seen], density)
    assert more.points.shape == (FEATURES, CANDIDATES + 1, DIM) and (more.log_ratios[:, -1] > 6.99).mean() > 0.9
    before, after = (np.linalg.norm(item - truth, axis=1) for item in (seen.suggestions, more.points[:, -1]))
    assert np.nanmedian(after) < 0.01 < 0.03 < np.median(before)
    same = with_suggestions(modes, form, [seen], density)
    assert (same.log_ratios[before < APART, -1] == -np.inf).all() and (before < APART).mean() > 0.9


class PeakedDensity(DensityNetwork):
    """A density whose logarithm is 7 at each of the given points, and falls with the square of the distance to the nearest."""

    def __init__(self, points: np.ndarray) -> None:
        object.__setattr__(self, "tops", points)

    def gradient(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tops: np.ndarray = object.__getattribute__(self, "tops")
        apart = points[:, None] - tops
        apart = apart[np.arange(len(points)), np.square(apart).sum(axis=2).argmin(axis=1)]
        return (7 - 50 * np.square(apart).sum(axis=1)).astype(np.float32), (-100 * apart).astype(np.float32)


def test_a_view_is_as_near_to_a_mode_as_the_point_beside_it() -> None:
    """Planted: modes miss the descriptors by 0.15 within the subspaces, and the view meets these beside the descriptors."""
    form, view, modes, right = world("beside", noise=0.05, share=0.0)
    rows = np.arange(FEATURES)
    away = np.einsum("fmn,fm->fn", form.basis, unit(generator("beside").normal(size=(FEATURES, M)))) * 0.15
    points = modes.points.copy()
    points[rows, right] += away
    moved, seen = Modes(points=points, log_ratios=modes.log_ratios), view_of(form, view)
    near = view_distances(moved, form, seen)
    assert near.distance[rows, right] == pytest.approx(seen.partners.away)
    assert (near.row[rows, right] == rows).all()
    nowhere = replace(seen, suggestions=np.full_like(seen.suggestions, np.nan))
    assert np.median(view_distances(moved, form, nowhere).distance[rows, right]) > 2 * np.median(seen.partners.away)


def test_a_view_improves_the_estimate_beside_it() -> None:
    """Planted: candidates miss the descriptor within the subspace, and views miss it elsewhere. The mean is nearer to it."""
    form, view, modes, right = world("improved", noise=0.12, share=0.0)
    rows = np.arange(FEATURES)
    truth = modes.points[rows, right].copy()
    away = np.einsum("fmn,fm->fn", form.basis, unit(generator("away").normal(size=(FEATURES, M)))) * 0.12
    points = modes.points.copy()
    points[rows, right] += away
    moved = Modes(points=points, log_ratios=modes.log_ratios)
    chosen = moved.estimates(np.eye(CANDIDATES)[right])
    near = view_distances(moved, form, view_of(form, view))
    better = improved(chosen, right, form, [(view_of(form, view), near)])
    before, after = (np.linalg.norm(item.points - truth, axis=1) for item in (chosen, better))
    assert np.median(after) < 0.75 * np.median(before) and (better.confidence == chosen.confidence).all()
    far = improved(chosen, right, form, [(view_of(form, view), replace(near, distance=near.distance + 1))])
    assert (far.points == chosen.points).all()


@pytest.mark.parametrize("wrong", [{"even": -0.1}, {"even": float("nan")}, {"slope": -1.0}, {"largest": float("inf")}])
def test_weights_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RangeError, match="ratio of distances"):
        DistanceRatio(**{"even": 0.2, "slope": 9.0, "largest": 4.0} | wrong)
    with pytest.raises(RangeError, match="sharpness"):
        ViewWeights(sharpness=float("nan"))


@pytest.mark.slow
@pytest.mark.parametrize("lines", [False, True])
def test_views_add_to_what_the_networks_recover(door: dict[str, Features], elsewhere: Features, lines: bool) -> None:
    """Of five real uploads more is recovered than of one, and than of the views alone; of a strange upload no more."""
    book, secret = bundled_codebook(), Secure(b"those of the tests of candidates"[:32])
    pool = replace(bundled_decoys(), slices=1)

    def released(features: Features) -> tuple[ReleasedImage, np.ndarray]:
        made = privatize(
            features.take(np.arange(300)),
            profile=Profile.hardened(quantized=True),
            compression=book.compression,
            decoys=pool,
            randomness=secret,
            lines=HideInLines() if lines else None,
        )
        message = decode(encode(made.upload, dtype="float16"))
        truth = book.compression.into_space(publish(features.take(np.arange(300))), message.form.space).vectors
        return ReleasedImage.of(message), truth[made.order]

    first, *rest = (released(item) for item in door.values())
    shares = {}
    for name, others in (("views", rest[:3]), ("strange", [released(elsewhere)])):
        knowledge = Knowledge(
            codebook=book,
            decoys=None,
            database=book,
            others={str(place): image for place, (image, _) in enumerate(others)},
            learned=bundled_learned_model(),
        )
        target = Target(image=first[0], rows=np.arange(0, 300, 3), knowledge=knowledge)
        for attack in named("modes", "context", "matched views", "matched candidates"):
            try:
                attempt = run_attack(attack, target)
            except CannotRun:
                assert attack.name == "context" and lines
                continue
            assert attempt.estimates is not None
            errors = np.linalg.norm(attempt.estimates.points - first[1][attempt.rows], axis=1)
            shares[name, attack.name] = float((errors < 0.1).mean())
    best = shares["views", "modes" if lines else "context"]
    assert shares["views", "matched candidates"] > max(best, shares["views", "matched views"]) + 0.02
    assert shares["strange", "matched candidates"] > shares["strange", "modes"] - 0.1


def test_without_views_or_modes_it_is_not_run() -> None:
    (attack,) = named("matched candidates")
    form, *_ = world("alone", noise=0.1, share=0.0)
    image = ReleasedImage(form=form, camera=None, keypoints=np.zeros((FEATURES, 2), dtype=np.float32))
    knowledge = Knowledge(codebook=None, decoys=None, database=bundled_codebook())
    target = Target(image=image, rows=np.arange(3), knowledge=knowledge)
    with pytest.raises(CannotRun):
        run_attack(attack, target)
