"""Every attack on hidden positions, and on what the order of a message tells, tried on one release."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from veil.attacks.attack import Estimates
from veil.attacks.line_density import density_positions
from veil.attacks.line_neighbors import neighbor_positions
from veil.attacks.order import order_test
from veil.attacks.repeat import pair_releases, repeat_positions
from veil.attacks.twins import twins
from veil.audit.attempt import Attempt, Effort, Progress, timed
from veil.audit.lifted import NOTHING
from veil.audit.repeats import REPEATS
from veil.codebook import Pca
from veil.errors import InputError
from veil.forms import Subspaces
from veil.wire.message import LineUpload, Message

ORDERS = 2000
# The chance that orders without meaning are called a leak in an audit, all of its releases together.
ORDER_FALSE_ALARMS = 0.01
# The chance that a correlation of the size that is said to be seen is seen.
ORDER_POWER = 0.95


def order_attempt(message: Message, effort: Effort, *, tests: int = 1) -> Attempt:
    """Whether positions (or lines) have to do with the order in which features were sent (traps S13).

    `tests` is the number of releases whose orders one audit tests: p-values are multiplied by it (Bonferroni)."""
    values = message.lines.coefficients if isinstance(message, LineUpload) else message.keypoints
    with timed() as clock:
        try:
            found = order_test(values, draws=ORDERS, seed=effort.seed)
            needed = math.ceil(2 * tests / ORDER_FALSE_ALARMS)
            if not found.exact and found.p_value * found.orders < 1.5 and needed > ORDERS:  # no drawn order was as special
                found = order_test(values, draws=needed, seed=effort.seed)
        except InputError as error:
            return Attempt(attack="order", family="order", assumes=NOTHING, skipped=str(error))
    return Attempt(
        attack="order",
        family="order",
        assumes=NOTHING,
        unit="order",
        rows=np.arange(len(message)),
        seconds=clock.seconds,
        details={"p_value": found.p_value, "detectable": detectable_order(*values.shape, tests=tests)},
    )


def detectable_order(features: int, columns: int, *, tests: int) -> float:
    """The rank correlation, with the row number or of neighboring rows, that the test sees with 95 %; at most 1.

    Both have a standard deviation of about 1 / sqrt(features - 1) in a random order; the larger of them over all columns is
    compared (docs/theory/audit.md, Eq. 4).
    """
    from scipy.stats import norm

    level = ORDER_FALSE_ALARMS / tests / (2 * 2 * columns)
    return min(1.0, float(norm.isf(level) + norm.isf(1 - ORDER_POWER)) / math.sqrt(max(features - 1, 1)))


def order_note(attempts: Sequence[Attempt]) -> str:
    """What the order tests of all releases of an audit say together, and what they would have seen."""
    values = np.array([attempt.details["p_value"] for attempt in attempts])
    corrected = np.minimum(1.0, values * len(values))
    told = int((corrected <= ORDER_FALSE_ALARMS).sum())
    after = f" after correction for {len(values)} tests" if len(values) > 1 else ""
    if told:
        which = f"in {told} of {len(values)} releases" if len(values) > 1 else ""
        said = f"the order of the features is told from a random one {which}".strip()
        return f"{said}: it leaks (p = {corrected.min():.2g}{after})"
    seen = max(attempt.details["detectable"] for attempt in attempts)
    if seen >= 1:
        return f"too few features for the order to be told from a random one (p = {corrected.min():.2g}{after})"
    return (
        f"tested: whether positions have a trend along the order of the features, or neighbors in it are alike. Not told from "
        f"a random order (p = {corrected.min():.2g}{after}; {ORDER_FALSE_ALARMS:g} would tell it); a rank correlation of "
        f"{seen:.2f} would have been seen with {100 * ORDER_POWER:.0f} %, smaller ones may be there"
    )


def attempts(
    message: LineUpload,
    descriptors: Estimates | None,
    pca: Pca | None,
    others: Mapping[str, Message],
    progress: Progress,
) -> Iterator[Attempt]:
    """Attacks on the positions of all lines. `descriptors` are estimates of all descriptors, where another attack has some, and
    `pca` is what they went through."""
    rows = np.arange(len(message))
    progress("line density")
    with timed() as clock:
        found = density_positions(message.lines, camera=message.camera)
    yield Attempt(
        attack="line density", family="positions", assumes=NOTHING, unit="px", rows=rows, estimates=found, seconds=clock.seconds
    )
    progress("line neighbors")
    assumes = "descriptors, or estimates of them"
    if descriptors is None or message.form.space.descriptor != "sift":
        why = "no attack estimated the descriptors, which tell who is a neighbor"
        yield Attempt(attack="line neighbors", family="positions", assumes=assumes, unit="px", skipped=why)
    else:
        with timed() as clock:
            found = neighbor_positions(
                message.lines, twins(_histograms(descriptors.points, message, pca)), camera=message.camera
            )
        yield Attempt(
            attack="line neighbors",
            family="positions",
            assumes=assumes,
            unit="px",
            rows=rows,
            estimates=found,
            seconds=clock.seconds,
            notes=("neighbors are features at one place, told by their descriptors; others would be near misses",),
        )
    yield from _repeats(message, others, progress)


def _histograms(points: np.ndarray, message: Message, pca: Pca | None) -> np.ndarray:
    """Descriptors as the histograms they were: before the PCA, and before the root of RootSIFT."""
    undone = points if pca is None else pca.mean + points @ pca.axes.astype(np.float64)
    return np.square(undone) if message.form.space.normalization == "L1_ROOT" else undone


def _repeats(message: LineUpload, others: Mapping[str, Message], progress: Progress) -> Iterator[Attempt]:
    form = message.form
    same = [
        (other, other.form)
        for other in others.values()
        if isinstance(other, LineUpload)
        and isinstance(other.form, Subspaces)
        and isinstance(form, Subspaces)
        and (other.form.space, other.form.m, other.camera) == (form.space, form.m, message.camera)
    ]
    if not same:
        why = "no other release of this kind was given (--against)"
        yield Attempt(attack="repeat of lines", family="repeat", assumes=REPEATS, unit="px", skipped=why)
        return
    progress("repeat of lines")
    points = np.full((len(message), 2), np.nan)
    confidence = np.zeros(len(message))
    with timed() as clock:
        for other, their_form in same:
            pairs = pair_releases(form, their_form)  # type: ignore[arg-type]
            if not len(pairs):
                continue
            lines = [message.lines.take(pairs[:, 0]), other.lines.take(pairs[:, 1])]
            found = repeat_positions(lines, camera=message.camera)
            surer = found.confidence > confidence[pairs[:, 0]]
            points[pairs[surer, 0]], confidence[pairs[surer, 0]] = found.points[surer], found.confidence[surer]
    estimates = Estimates(points=points, confidence=confidence, certified=np.zeros(len(points), dtype=bool))
    yield Attempt(
        attack="repeat of lines",
        family="repeat",
        assumes=REPEATS,
        unit="px",
        rows=np.arange(len(message)),
        estimates=estimates,
        seconds=clock.seconds,
    )
