"""The attacks on hidden positions, and on what the order of a message tells, as the list of attacks has them."""

from __future__ import annotations

import math

import numpy as np

from veil.attacks.attack import NOTHING, Attack, Attempt
from veil.attacks.claims import CannotRun, Estimates, OrderEvidence
from veil.attacks.intersection.repeat import pair_releases, repeat_positions
from veil.attacks.intersection.several_releases import REPEATS
from veil.attacks.positions.colocated_keypoints import twins
from veil.attacks.positions.line_density import density_positions
from veil.attacks.positions.line_neighbors import neighbor_positions
from veil.attacks.positions.order import order_test
from veil.attacks.target import Target, pca_of
from veil.forms import Lines, Subspaces

ORDERS = 2000
# The chance that orders without meaning are called a leak in an audit, all of its releases together.
ORDER_FALSE_ALARMS = 0.01
# The chance that a correlation of the size that is said to be seen is seen.
ORDER_POWER = 0.95


def _order(target: Target) -> Attempt:
    """Whether positions (or lines) have to do with the order in which features were sent (release.md#order).

    `target.effort.releases` orders are tested by one audit: p-values are multiplied by it (Bonferroni).
    """
    image, tests = target.image, target.effort.releases
    values = image.keypoints if image.lines is None else image.lines.coefficients
    if values is None:
        raise CannotRun("the release has neither positions nor lines")
    with target.timer() as clock:
        found = order_test(values, draws=ORDERS, seed=target.effort.seed)
        needed = math.ceil(2 * tests / ORDER_FALSE_ALARMS)
        if not found.exact and found.p_value * found.orders < 1.5 and needed > ORDERS:  # no drawn order was as special
            found = order_test(values, draws=needed, seed=target.effort.seed)
    seen = detectable_order(*values.shape, tests=tests)
    return Attempt(
        label="order",
        rows=np.arange(len(values)),
        claim=OrderEvidence(p_value=found.p_value, detectable=seen),
        seconds=clock.seconds,
        details={"p_value": found.p_value, "detectable": seen},
    )


def detectable_order(features: int, columns: int, *, tests: int) -> float:
    """The rank correlation, with the row number or of neighboring rows, that the test sees with 95 %; at most 1.

    Both have a standard deviation of about 1 / sqrt(features - 1) in a random order; the larger of them over all columns is
    compared (docs/theory/audit.md, Eq. 4).
    """
    from scipy.stats import norm

    level = ORDER_FALSE_ALARMS / tests / (2 * 2 * columns)
    return min(1.0, float(norm.isf(level) + norm.isf(1 - ORDER_POWER)) / math.sqrt(max(features - 1, 1)))


def _density(target: Target) -> Attempt:
    lines, camera = target.lines
    with target.timer() as clock:
        found = density_positions(lines, camera=camera)
    return Attempt(label="line density", rows=np.arange(len(lines)), claim=found, seconds=clock.seconds)


def _neighbors(target: Target) -> Attempt:
    lines, camera = target.lines
    descriptors = target.knowledge.descriptors
    if descriptors is None or target.image.form.space.descriptor != "sift":
        raise CannotRun("no attack estimated the descriptors, which tell who is a neighbor")
    with target.timer() as clock:
        found = neighbor_positions(lines, twins(_histograms(descriptors.points, target)), camera=camera)
    return Attempt(
        label="line neighbors",
        rows=np.arange(len(lines)),
        claim=found,
        seconds=clock.seconds,
        notes=("neighbors are features at one place, told by their descriptors; others would be near misses",),
    )


def _histograms(points: np.ndarray, target: Target) -> np.ndarray:
    """Descriptors as the histograms they were: before the PCA, and before the root of RootSIFT."""
    form, pca = target.image.form, pca_of(target.image.form, target.knowledge)
    undone = points if pca is None else pca.mean + points @ pca.axes.astype(np.float64)
    return np.square(undone) if form.space.normalization == "L1_ROOT" else undone


def _repeat(target: Target) -> Attempt:
    lines, camera = target.lines
    same = _same_kind(target)
    if not same:
        raise CannotRun("no other release of this kind was given (--against)")
    points = np.full((len(lines), 2), np.nan)
    confidence = np.zeros(len(lines))
    with target.timer() as clock:
        for their_lines, their_form in same:
            pairs = pair_releases(target.form, their_form)
            if not len(pairs):
                continue
            found = repeat_positions([lines.take(pairs[:, 0]), their_lines.take(pairs[:, 1])], camera=camera)
            surer = found.confidence > confidence[pairs[:, 0]]
            points[pairs[surer, 0]], confidence[pairs[surer, 0]] = found.points[surer], found.confidence[surer]
    claim = Estimates(points=points, confidence=confidence, certified=np.zeros(len(points), dtype=bool))
    return Attempt(label="repeat of lines", rows=np.arange(len(lines)), claim=claim, seconds=clock.seconds)


def _same_kind(target: Target) -> list[tuple[Lines, Subspaces]]:
    """Lines and subspaces of other releases by the same camera; subspaces tell which feature is which."""
    if not isinstance(target.image.form, Subspaces):
        return []
    return [
        (other.lines, form) for other, form in target.kin if other.lines is not None and other.camera == target.image.camera
    ]


LINE_ATTACKS = (
    Attack(
        name="line density",
        surface="lines",
        family="positions",
        assumes=NOTHING,
        units="px",
        modules=("positions.line_density", "positions.segments"),
        run=_density,
    ),
    Attack(
        name="line neighbors",
        surface="lines",
        family="positions",
        assumes="descriptors, or estimates of them",
        units="px",
        modules=("positions.line_neighbors", "positions.colocated_keypoints"),
        run=_neighbors,
    ),
    Attack(
        name="repeat of lines",
        surface="lines",
        family="repeat",
        assumes=REPEATS,
        units="px",
        modules=("intersection.repeat",),
        run=_repeat,
    ),
)
ORDER_ATTACK = Attack(
    name="order", surface="order", family="order", assumes=NOTHING, units="order", modules=("positions.order",), run=_order
)
