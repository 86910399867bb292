"""Votes: words of one point in several uploads, which a map links, name the word that none of them gives away alone.

Once a server knows the poses of uploads, it knows which of their features lie where a point of the map projects. Each upload of
the point draws anew, so their words add up: composition, seen by the attacker. Two views of a point fall into the same word in
less than half of the cases, which the attacker allows for.

Theory: word_attacks.md#votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from veil.attacks.attack import Attempt
from veil.attacks.claims import CannotRun, NamedWords, no_release
from veil.attacks.target import ReleasedImage, Target
from veil.attacks.words.posterior import LARGEST_EPSILON, Beliefs, descriptors
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, Remedy
from veil.forms import Points, Subsets
from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward_percent
from veil.matching.inverted_index import USUAL_SHARES, index_map, view_shares
from veil.places.poses.answer import NoPose
from veil.places.poses.options import WordOptions
from veil.scene import Scene

UPLOADS = "uploads of other photographs of the place, and a map of it, in which it localizes them"
# A feature sees a point of the map that projects so near to it.
LINKED_PX = 3.0
# Processor time for the pose of one upload.
SEARCH_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Linked:
    """Another upload in words: row i of `rows` is its feature that sees what feature i of the attacked one sees, -1 if none."""

    form: Subsets
    rows: Int64[np.ndarray, "features"]


def vote(form: Subsets, others: Sequence[Linked], *, same_word: float) -> Beliefs:
    """Posterior probabilities of the words of `form`, given linked words of other uploads.

    `same_word` is the probability that two views of a point have the same nearest word; otherwise the other view's words say
    nothing. All words are equally likely before (docs/theory/word_attacks.md, Eq. 17). With `same_word` 1 and the same features
    in each upload this is `veil.attacks.words.posterior.repeated`. Raises RangeError for a `same_word` outside [0, 1],
    InputError for uploads of other dictionaries or links that do not fit.
    """
    if not 0 <= same_word <= 1:
        raise RangeError(f"same_word must lie in [0, 1], got {same_word!r}")
    count, size = len(form), form.mechanism.dictionary_size
    for other in others:
        if other.form.dictionary != form.dictionary or other.form.mechanism.dictionary_size != size:
            raise InputError("votes need uploads in words of one dictionary")
        if other.rows.shape != (count,) or (
            len(other.rows) and not -1 <= other.rows.min() <= other.rows.max() < len(other.form)
        ):
            raise InputError(f"links need a row of the other upload, or -1, for each of {count} features")
    named = [(form.ids.astype(np.int64), np.ones(count, dtype=bool), form.mechanism, 1.0)]
    for other in others:
        seen = other.rows >= 0
        ids = np.where(seen[:, None], other.form.ids.astype(np.int64)[other.rows], -1)
        named.append((ids, seen, other.form.mechanism, same_word))
    words = np.concatenate([ids for ids, _, _, _ in named], axis=1)
    weights, unnamed = np.zeros(words.shape), np.zeros(count)
    for ids, seen, law, share in named:
        with_word, without = _log_ratios(law, share)
        held = (words[:, :, None] == ids[:, None, :]).any(axis=2)
        weights += np.where(seen[:, None], np.where(held, with_word, without), 0.0)
        unnamed += np.where(seen, without, 0.0)
    first = _first_time(words)
    weights = np.where(first, weights, -np.inf)
    largest = np.maximum(weights.max(axis=1), unnamed)
    likely = np.exp(weights - largest[:, None])
    rest = (size - first.sum(axis=1)) * np.exp(unnamed - largest)
    probability = likely / (likely.sum(axis=1) + rest)[:, None]
    return Beliefs(words=np.where(words >= 0, words, words[:, :1]), probability=probability, dictionary=form.dictionary)


def _log_ratios(law: SubsetMechanism, share: float) -> tuple[float, float]:
    """Logarithms of how much likelier a subset is for a word that it holds, and for one that it does not, than on average."""
    odds = np.exp(min(law.epsilon, LARGEST_EPSILON))
    size, m = law.dictionary_size, law.m
    held = size / (m + (size - m) / odds)
    not_held = held / odds
    with np.errstate(divide="ignore"):
        return float(np.log1p(share * (held - 1))), float(np.log1p(share * (not_held - 1)))


def _first_time(words: Int64[np.ndarray, "features columns"]) -> Bool[np.ndarray, "features columns"]:
    """Mask of the columns that name a word (not -1) for the first time in their row."""
    earlier = (words[:, :, None] == words[:, None, :]) & np.tri(words.shape[1], k=-1, dtype=bool)
    return (words >= 0) & ~earlier.any(axis=2)


def bound(law: SubsetMechanism, views: int) -> float:
    """Largest share of true words that `views` uploads of a point may name: the accounting's own prediction.

    Epsilons of one point add up, so the posterior odds of a word against all others together are at most
    e^(views epsilon) / (K - 1), if all words are as likely before (docs/theory/word_attacks.md, Eq. 18).
    """
    exponent = min(views * law.epsilon, LARGEST_EPSILON)
    return float(1 / (1 + (law.dictionary_size - 1) * np.exp(-exponent)))


def links(
    scene: Scene, image: ReleasedImage, pose: Rigid, others: Sequence[tuple[ReleasedImage, Rigid]]
) -> list[Int64[np.ndarray, "features"]]:
    """Rows of each other image's feature at the same point of the map as each feature of `image`, -1 where there is none.

    Poses are cam_from_world. A feature is at the point that projects nearest to it, within `LINKED_PX`, if it is the point's
    nearest feature, too.
    """
    mine = _points_seen(scene, image, pose)
    linked_rows = []
    for other, other_pose in others:
        rows_of = np.full(len(scene.points) + 1, -1)
        theirs = _points_seen(scene, other, other_pose)
        rows_of[theirs[theirs >= 0]] = np.flatnonzero(theirs >= 0)
        linked_rows.append(rows_of[mine])
    return linked_rows


def _points_seen(scene: Scene, image: ReleasedImage, pose: Rigid) -> Int64[np.ndarray, "features"]:
    """Row of the map's point at which each feature lies, -1 if none."""
    from scipy.spatial import cKDTree

    assert image.keypoints is not None and image.camera is not None
    cam = pose.apply(scene.points)
    ahead = np.flatnonzero(cam[:, 2] > 1e-9)
    pixels = np.asarray(as_colmap(image.camera).img_from_cam(cam[ahead]))
    finite = np.isfinite(pixels).all(axis=1)
    ahead, pixels = ahead[finite], pixels[finite]
    seen = np.full(len(image.keypoints), -1)
    if len(ahead) == 0 or len(seen) == 0:
        return seen
    gap, point = cKDTree(pixels).query(image.keypoints.astype(np.float64), distance_upper_bound=LINKED_PX)
    _, feature = cKDTree(image.keypoints.astype(np.float64)).query(pixels)
    near = np.flatnonzero(np.isfinite(gap))
    mutual = near[feature[point[near]] == near]
    seen[mutual] = ahead[point[mutual]]
    return seen


def _pose(target: Target, image: ReleasedImage, scene: Scene, dictionary: Codebook) -> Rigid | None:
    """Pose of an upload in the map, None if it is refused; found once for all attacked releases."""
    from veil.places.poses.by_words import localize_words  # loads SciPy and COLMAP

    shared = target.knowledge.shared
    index_key, pose_key = f"index {dictionary.digest} {id(scene)}", f"pose {id(image.form)} {id(scene)}"
    if index_key not in shared:
        shared[index_key] = index_map(scene, dictionary)
    if pose_key not in shared:
        assert image.camera is not None and image.keypoints is not None and isinstance(image.form, Subsets)
        options = WordOptions(max_seconds=SEARCH_SECONDS)
        index, gravity = shared[index_key], image.gravity
        answer = localize_words(image.camera, image.keypoints, image.form, scene, index, gravity=gravity, options=options)
        shared[pose_key] = None if isinstance(answer, NoPose) else answer.cam_from_world
    pose: Rigid | None = shared[pose_key]
    return pose


def same_word_share(scene: Scene, dictionary: Codebook) -> float:
    """Probability that two views of a point have the same nearest word, by the map's own tracks where it is public."""
    parts = [dictionary.nearest(image.form.vectors, 1) for image in scene.images.values() if isinstance(image.form, Points)]
    if len(parts) != len(scene.images) or scene.space != dictionary.raw_space:
        return USUAL_SHARES[0]
    points = np.concatenate([image.point_rows for image in scene.images.values()])
    return float(view_shares(np.concatenate(parts)[:, None], points)[0])


def votes_attack(target: Target) -> Attempt:
    """Words named by the uploads of the place together.

    Raises CannotRun without a map, other uploads or positions, or where the map does not localize the release.
    """
    form, dictionary = target.words
    scene, image = target.knowledge.scene, target.image
    others = [
        other
        for other in target.knowledge.others.values()
        if isinstance(other.form, Subsets) and other.form.dictionary == form.dictionary and other.keypoints is not None
    ]
    if scene is None:
        raise CannotRun("no map of the place was given", remedy=Remedy("give", "Attacker.where"))
    if not others:
        raise no_release(len(target.knowledge.others), "in words of this dictionary, with positions")
    if image.keypoints is None:
        raise CannotRun("positions are hidden in lines, so that no map links features")
    with target.timer() as clock:
        poses = [_pose(target, one, scene, dictionary) for one in (image, *others)]
        if poses[0] is None:
            raise CannotRun("the map does not localize the release, so that nothing links its features")
        placed = [(other, pose) for other, pose in zip(others, poses[1:], strict=True) if pose is not None]
        linked = [
            Linked(form=other.form, rows=rows)
            for (other, _), rows in zip(placed, links(scene, image, poses[0], placed), strict=True)
            if isinstance(other.form, Subsets)
        ]
        beliefs = vote(form, linked, same_word=same_word_share(scene, dictionary))
    views = np.ones(len(form), dtype=np.int64)
    for other in linked:
        views += other.rows >= 0
    expected = float(np.mean([bound(form.mechanism, int(count)) for count in views])) if len(form) else 0.0
    note = (
        f"{len(placed)} of {len(others)} other uploads were localized; {int((views > 1).sum())} of {len(form)} features are "
        f"seen in others, in {views.mean():.1f} uploads on average; epsilons that add up would allow "
        f"{outward_percent(expected)} % to be named"
    )
    return Attempt(
        label="votes",
        rows=np.arange(len(form)),
        claim=NamedWords(ids=beliefs.best.astype(np.int64), estimates=descriptors(beliefs, dictionary)),
        seconds=clock.seconds,
        notes=(note,),
        details={"views": float(views.mean()), "bound": expected},
    )
