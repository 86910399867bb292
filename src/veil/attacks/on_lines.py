"""Entries of the list of attacks for attacks on hidden positions, and on the order in which features were sent."""

from __future__ import annotations

import math

import numpy as np

from veil.attacks.attack import RELEASE_ALONE, Attack, Attempt
from veil.attacks.claims import CannotRun, Estimates, OrderEvidence, no_release
from veil.attacks.intersection.repeat import pair_releases, repeat_positions
from veil.attacks.intersection.several_releases import REPEATS
from veil.attacks.positions.colocated_keypoints import twins
from veil.attacks.positions.line_density import density_positions
from veil.attacks.positions.line_neighbors import neighbor_positions
from veil.attacks.positions.neighbor_field import field_positions
from veil.attacks.positions.order import order_test
from veil.attacks.target import Target, pca_of
from veil.forms import Lines, Subspaces

# Random orders of the first permutation test; more are drawn where none of these is as special as the message's order.
ORDERS = 2000
# Probability that an audit calls orders without meaning a leak, over all of its releases together.
ORDER_FALSE_ALARMS = 0.01
# Probability that the test sees a correlation of the size that is reported as detectable.
ORDER_POWER = 0.95


def _order(target: Target) -> Attempt:
    """Permutation test of whether the order in which features were sent depends on their positions or lines (release.md#order).

    An audit tests `target.effort.releases` orders and multiplies p-values by that number (Bonferroni). Where none of the drawn
    orders is as special as the message's, enough of them are drawn for the multiplied p-value to fall below the limit.
    """
    image, tests = target.image, target.effort.releases
    values = image.keypoints if image.lines is None else image.lines.coefficients
    if values is None:
        raise CannotRun("the release has neither positions nor lines")
    with target.timer() as clock:
        test = order_test(values, draws=ORDERS, seed=target.effort.seed)
        needed = math.ceil(2 * tests / ORDER_FALSE_ALARMS)
        if not test.exact and test.p_value * test.orders < 1.5 and needed > ORDERS:  # no drawn order was as special
            test = order_test(values, draws=needed, seed=target.effort.seed)
    detectable = detectable_order(*values.shape, tests=tests)
    return Attempt(
        label="order",
        rows=np.arange(len(values)),
        claim=OrderEvidence(p_value=test.p_value, detectable=detectable),
        seconds=clock.seconds,
        details={"p_value": test.p_value, "detectable": detectable},
    )


def detectable_order(features: int, columns: int, *, tests: int) -> float:
    """Rank correlation that the order test sees with probability 95 %, at most 1 (docs/theory/audit.md, Eq. 4).

    It is a correlation of one of `columns` values with the row number, or of neighboring rows, in one of `tests` releases of
    `features` features. Both kinds have a standard deviation of about 1 / sqrt(features - 1) in a random order, and the test
    compares the larger one over all columns.
    """
    from scipy.stats import norm

    level = ORDER_FALSE_ALARMS / tests / (2 * 2 * columns)
    return min(1.0, float(norm.isf(level) + norm.isf(1 - ORDER_POWER)) / math.sqrt(max(features - 1, 1)))


def _density(target: Target) -> Attempt:
    lines, camera = target.lines
    with target.timer() as clock:
        positions = density_positions(lines, camera=camera)
    return Attempt(label="line density", rows=np.arange(len(lines)), claim=positions, seconds=clock.seconds)


def _neighbors(target: Target) -> Attempt:
    lines, camera = target.lines
    descriptors = target.knowledge.descriptors
    if descriptors is None or target.image.form.space.descriptor != "sift":
        raise CannotRun("no attack estimated the descriptors, which tell who is a neighbor")
    with target.timer() as clock:
        positions = neighbor_positions(lines, twins(_histograms(descriptors.points, target)), camera=camera)
    return Attempt(
        label="line neighbors",
        rows=np.arange(len(lines)),
        claim=positions,
        seconds=clock.seconds,
        notes=("neighbors are features at one place, told by their descriptors; others would be near misses",),
    )


def _neighborhood(target: Target) -> Attempt:
    lines, camera = target.lines
    descriptors, network = target.knowledge.descriptors, target.knowledge.pairs
    if descriptors is None or network is None or target.image.form.space.descriptor != network.space.descriptor:
        raise CannotRun("no attack estimated the descriptors, which tell how far apart features lie")
    with target.timer() as clock:
        histograms = _histograms(descriptors.points, target).astype(np.float32)
        positions = field_positions(lines, network.beliefs(histograms, camera=camera), camera=camera)
    return Attempt(
        label="line neighborhood",
        rows=np.arange(len(lines)),
        claim=positions,
        seconds=clock.seconds,
        notes=(f"distances in the image are told from descriptors by a network ({network.source})",),
    )


def _histograms(points: np.ndarray, target: Target) -> np.ndarray:
    """SIFT histograms behind estimated descriptors: PCA and the square root of RootSIFT are undone."""
    form, pca = target.image.form, pca_of(target.image.form, target.knowledge)
    undone = points if pca is None else pca.mean + points @ pca.axes.astype(np.float64)
    return np.square(undone) if form.space.normalization == "L1_ROOT" else undone


def _repeat(target: Target) -> Attempt:
    lines, camera = target.lines
    others = _releases_of_this_kind(target)
    if not others:
        raise no_release(len(target.knowledge.others), "in lines by this camera, and in subspaces of this space")
    points = np.full((len(lines), 2), np.nan)
    confidence = np.zeros(len(lines))
    with target.timer() as clock:
        for other_lines, other_form in others:
            pairs = pair_releases(target.form, other_form)
            if not len(pairs):
                continue
            positions = repeat_positions([lines.take(pairs[:, 0]), other_lines.take(pairs[:, 1])], camera=camera)
            surer = positions.confidence > confidence[pairs[:, 0]]
            points[pairs[surer, 0]], confidence[pairs[surer, 0]] = positions.points[surer], positions.confidence[surer]
    claim = Estimates(points=points, confidence=confidence, certified=np.zeros(len(points), dtype=bool))
    return Attempt(label="repeat of lines", rows=np.arange(len(lines)), claim=claim, seconds=clock.seconds)


def _releases_of_this_kind(target: Target) -> list[tuple[Lines, Subspaces]]:
    """Lines and subspaces of other releases by the same camera; the subspaces tell which features belong together."""
    if not isinstance(target.image.form, Subspaces):
        return []
    return [
        (other.lines, form)
        for other, form in target.comparable_releases
        if other.lines is not None and other.camera == target.image.camera
    ]


LINE_ATTACKS = (
    Attack(
        name="line density",
        surface="lines",
        family="positions",
        assumes=RELEASE_ALONE,
        units="px",
        modules=("positions.line_density", "positions.segments"),
        _run=_density,
    ),
    Attack(
        name="line neighbors",
        surface="lines",
        family="positions",
        assumes="descriptors, or estimates of them",
        units="px",
        modules=("positions.line_neighbors", "positions.colocated_keypoints"),
        _run=_neighbors,
    ),
    Attack(
        name="line neighborhood",
        surface="lines",
        family="positions",
        assumes="descriptors, or estimates of them, and photographs of its own",
        units="px",
        modules=("positions.neighbor_field", "positions.pair_network"),
        _run=_neighborhood,
    ),
    Attack(
        name="repeat of lines",
        surface="lines",
        family="repeat",
        assumes=REPEATS,
        units="px",
        modules=("intersection.repeat",),
        _run=_repeat,
    ),
)
ORDER_ATTACK = Attack(
    name="order",
    surface="order",
    family="order",
    assumes=RELEASE_ALONE,
    units="order",
    modules=("positions.order",),
    _run=_order,
)
