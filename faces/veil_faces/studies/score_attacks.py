"""Regeneration of a descriptor from answers to chosen probes: by equations, in low rank, and by hill climbing.

Nothing of the template or its key is needed, only that somebody answers for probes of unit length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import RangeError
from veil.features import unit_length

# Answers to probes (N, dim), smaller for nearer ones.
Ask = Callable[[np.ndarray], np.ndarray]
# Angles of the border of what is accepted, from an accepted probe (dim,) of unit length towards directions (N, dim) across it;
# of fewer directions, the first ones, where questions end.
Border = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Probes of one step of hill climbing, and the share of the questions that goes to faces of the attacker's own.
PROBES, FIRST_SHARE = 20, 0.25
WIDEST, NARROWEST = 1.0, 0.02
# Steps of bisection, equations for each unknown number, and the smallest singular value of a direction that faces fill.
STEPS, SPARE, FILLED = 30, 1.05, 1e-4
# Low rank: points of the border, fewest of them for each direction that faces fill, directions in which each candidate for a
# decoy is tried, and share of a center's distance from the border that a decoy has there; smallest singular value of a
# direction that faces fill, and deviation of a squared distance at the border.
BORDER_POINTS, FEWEST_POINTS, TRIED, DEEP, WIDE, ROUGH = 400, 3, 4, 0.95, 0.05, 2e-4
# Directions of a template beside that between its two decoys, and starts and steps of the search for them.
OTHERS, STARTS, ROUNDS = 3, 4, 80


@dataclass(frozen=True, kw_only=True, eq=False)
class SolvedSubspace:
    """An affine subspace in the attacker's coordinates: its point nearest to zero, and orthonormal directions (m, dim)."""

    origin: Float64[np.ndarray, "_"]
    basis: Float64[np.ndarray, "_ _"]


def equations_needed(dim: int) -> int:
    """Number of probes of unit length that `solved_subspace` asks."""
    return 2 * dim + dim * (dim - 1) // 2


def solved_subspace(ask: Ask, dim: int) -> SolvedSubspace:
    """The subspace whose distances `ask` answers, by linear equations (docs/theory/faces.md, Eq. 12).

    On the unit sphere the squared distance is x^T Q x + g^T x. Probes at plus and minus each axis give g and the diagonal of Q,
    those between two axes give the rest. Q is c I + I - P, so the directions are those of its smallest eigenvalues.
    """
    axes = np.eye(dim)
    row, column = np.triu_indices(dim, 1)
    plus, minus = ask(axes) ** 2, ask(-axes) ** 2
    between = ask((axes[row] + axes[column]) / np.sqrt(2)) ** 2
    slope, diagonal = (plus - minus) / 2, (plus + minus) / 2
    form = np.diag(diagonal)
    form[row, column] = between - (diagonal[row] + diagonal[column]) / 2 - (slope[row] + slope[column]) / np.sqrt(2)
    form[column, row] = form[row, column]
    return _minimum(form, slope)


def border_questions(own: Float64[np.ndarray, "faces dim"]) -> int:
    """Number of probes that `bordering_subspace` asks."""
    rank = len(_span(own))
    return 2 * STEPS + STEPS * math.ceil(SPARE * (rank * (rank + 1) // 2 + rank))


def bordering_subspace(
    ask: Ask, inside: Float64[np.ndarray, "dim"], own: Float64[np.ndarray, "faces dim"], *, seed: int
) -> SolvedSubspace | None:
    """The part among faces of the subspace whose distances decide `ask`, from accepts (0) and rejects (1) alone.

    Between an accepted probe `inside` and probes a quarter turn away lie points at the threshold's distance, which bisection
    finds. At each the quadratic of `solved_subspace` is one unknown constant, so these points are linear equations for it, up
    to scale (docs/theory/faces.md, Eq. 13). It is solved in the directions that `own` faces fill. None if `inside` is not
    accepted, or too few of those probes are rejected.
    """
    random, span = np.random.default_rng(seed), _span(own)
    rank = len(span)
    start = unit_length((span @ inside)[None])[0]
    if ask((start @ span)[None])[0] > 0:
        return None
    count = math.ceil(SPARE * (rank * (rank + 1) // 2 + rank))
    aside = random.normal(size=(count, rank))
    aside = unit_length(aside - np.outer(aside @ start, start))
    low, high = np.zeros(count), np.full(count, np.pi / 2)
    for _ in range(STEPS):
        angle = (low + high) / 2
        taken = ask((np.outer(np.cos(angle), start) + np.sin(angle)[:, None] * aside) @ span) == 0
        low, high = np.where(taken, angle, low), np.where(taken, high, angle)
    bounded = high < np.pi / 2
    angle = ((low + high) / 2)[bounded]
    points = np.outer(np.cos(angle), start) + np.sin(angle)[:, None] * aside[bounded]
    row, column = np.triu_indices(rank)
    squares = points[:, row] * points[:, column] * np.where(row == column, 1, 2)
    # The last diagonal entry follows from a trace of `rank`, which fixes the scale.
    last = np.flatnonzero(row == column)[-1]
    trace = np.flatnonzero((row == column) & (np.arange(len(row)) != last))
    rows = np.concatenate([np.delete(squares, last, axis=1), points], axis=1)
    rows[:, trace - (trace > last)] -= squares[:, [last]]
    unknown = rows.shape[1]
    if len(rows) < unknown:
        return None
    solution = np.linalg.solve(rows[:unknown], -rank * squares[:unknown, last])
    entries = np.insert(solution[: len(row) - 1], last, 0.0)
    entries[last] = rank - entries[trace].sum()
    form = np.zeros((rank, rank))
    form[row, column] = form[column, row] = entries
    values = np.linalg.eigvalsh(form)
    scale = max(float(np.median(values) - values[0]), 1e-9)
    low_form = _minimum(form / scale, solution[len(row) - 1 :] / scale)
    return SolvedSubspace(origin=low_form.origin @ span, basis=low_form.basis @ span)


def _span(own: Float64[np.ndarray, "faces dim"]) -> Float64[np.ndarray, "rank dim"]:
    """Orthonormal directions that faces fill."""
    _, singular, directions = np.linalg.svd(own, full_matrices=False)
    return directions[singular > FILLED * singular[0]]


def _minimum(form: Float64[np.ndarray, "dim dim"], slope: Float64[np.ndarray, "dim"]) -> SolvedSubspace:
    """The subspace on which x^T N x + g^T x is least, of `form` c I + N with an unknown c.

    Most eigenvalues of N are 1, and those below 0.05 count as 0; where there are none, the subspace is a point.
    """
    values, directions = np.linalg.eigh(form)
    values = values - (np.median(values) - 1)
    flat = (values < 0.05) & (np.arange(len(values)) < len(values) // 4)
    basis = directions[:, flat].T
    steep = directions[:, ~flat]
    origin = steep @ ((steep.T @ slope) / (-2 * np.maximum(values[~flat], 0.05)))
    return SolvedSubspace(origin=origin, basis=basis)


@dataclass(frozen=True, kw_only=True, eq=False)
class FaceLaw:
    """The law of an attacker's faces in the directions that they fill: `span` (rank, dim), mean and covariance there."""

    span: Float64[np.ndarray, "_ _"]
    mean: Float64[np.ndarray, "_"]
    covariance: Float64[np.ndarray, "_ _"]

    @staticmethod
    def of(own: Float64[np.ndarray, "faces dim"]) -> FaceLaw:
        """The law of these faces."""
        _, singular, directions = np.linalg.svd(own, full_matrices=False)
        span = directions[singular > WIDE * singular[1]]
        inside = own @ span.T
        return FaceLaw(span=span, mean=inside.mean(axis=0), covariance=np.cov(inside.T) + 1e-4 * np.eye(len(span)))


def is_decoy(border: Border, candidate: Float64[np.ndarray, "dim"], law: FaceLaw, threshold: float, *, seed: int) -> bool:
    """Whether an accepted face lies in the template, as decoys do: the border is as far from it on average as from a center.

    Around a center accepted probes differ from it by at most the threshold, which is an angle of 2 asin(t / 2).
    """
    start, aside = _aside(candidate, law, TRIED // 2, np.random.default_rng(seed))
    angles = border(start, np.concatenate([aside, -aside]))
    return len(angles) == 2 * len(aside) and float(angles.mean()) >= DEEP * 2 * math.asin(min(1.0, threshold / 2))


def low_rank_descriptor(
    border: Border, decoys: Float64[np.ndarray, "two dim"], law: FaceLaw, threshold: float, *, seed: int
) -> Float64[np.ndarray, "dim"] | None:
    """The descriptor of a template that holds two known decoys, from points of the border; None where questions end early.

    From a decoy w of the template, x^T (I - P) x = t^2 for x less w, so that P has 3 unknown directions beside that to the
    other decoy (docs/theory/faces.md, Eq. 14). The one that faces fill leads to the descriptor: both decoys and it lie in a
    plane, and on the unit circle there. Of the circle it is the point in the direction from the decoys to the plane's most
    likely face.
    """
    random = np.random.default_rng(seed)
    start, aside = _aside(decoys[0], law, BORDER_POINTS, random)
    angles = border(start, aside)
    if len(angles) < FEWEST_POINTS * len(law.span):
        return None
    bounded = angles < np.pi / 2
    first, second = decoys @ law.span.T
    points = _around(start, aside[: len(angles)], angles)[bounded] @ law.span.T - first
    along = unit_length((second - first)[None])[0]
    height = (points**2).sum(axis=1) - threshold**2 - (points @ along) ** 2
    directions = _directions(points - np.outer(points @ along, along), height, random)
    leading = np.linalg.svd(directions, full_matrices=False)[0][:, 0]
    leading = unit_length((leading - (leading @ along) * along)[None])[0]
    plane = np.stack([along, leading])
    metric = np.linalg.inv(law.covariance)
    likely = first + plane.T @ np.linalg.solve(plane @ metric @ plane.T, plane @ metric @ (law.mean - first))
    middle = (first + second) / 2
    step = unit_length((likely - middle)[None])[0]
    inner = float(step @ middle)
    result: Float64[np.ndarray, "dim"] = (middle + (math.sqrt(inner**2 + 1 - middle @ middle) - inner) * step) @ law.span
    return result


def central_descriptor(
    border: Border, inside: Float64[np.ndarray, "dim"], law: FaceLaw, *, seed: int
) -> Float64[np.ndarray, "dim"]:
    """The descriptor around which a ball is accepted, from points of its border: most likely by the law of faces.

    For points x of the border, x^T d is one unknown number. The deviation from it is the one of several under which the points
    are most likely.
    """
    start, aside = _aside(inside, law, BORDER_POINTS, np.random.default_rng(seed))
    angles = border(start, aside)
    if len(angles) < 2:
        return inside
    points = _around(start, aside[: len(angles)], angles) @ law.span.T
    best: tuple[float, np.ndarray] | None = None
    for deviation in (1e-3, 1e-2, 3e-2, 0.1, 0.3):
        spread = points @ law.covariance @ points.T + deviation**2 * np.eye(len(points))
        factor = np.linalg.cholesky(spread)
        value, one = (np.linalg.solve(factor, part) for part in (points @ law.mean, np.ones(len(points))))
        level = float(one @ value) / float(one @ one)
        rest = value - level * one
        unlikely = float(rest @ rest) + 2 * float(np.log(np.diag(factor)).sum())
        if best is None or unlikely < best[0]:
            best = unlikely, law.mean - law.covariance @ points.T @ np.linalg.solve(factor.T, rest)
    assert best is not None
    result: Float64[np.ndarray, "dim"] = unit_length((best[1] @ law.span)[None])[0]
    return result


def _aside(
    inside: np.ndarray, law: FaceLaw, count: int, random: np.random.Generator
) -> tuple[Float64[np.ndarray, "_"], Float64[np.ndarray, "_ _"]]:
    """A probe within the span of faces, of unit length, and random directions across it there."""
    start = unit_length((law.span @ inside)[None])[0]
    aside = random.normal(size=(count, len(start)))
    return start @ law.span, unit_length(aside - np.outer(aside @ start, start)) @ law.span


def _around(start: np.ndarray, aside: np.ndarray, angles: np.ndarray) -> Float64[np.ndarray, "_ _"]:
    """Probes at angles from a start towards directions across it."""
    points: Float64[np.ndarray, "_ _"] = np.outer(np.cos(angles), start) + np.sin(angles)[:, None] * aside
    return points


def _directions(
    points: Float64[np.ndarray, "points rank"], height: Float64[np.ndarray, "points"], random: np.random.Generator
) -> Float64[np.ndarray, "rank 3"]:
    """W with |W^T z|^2 = height for all points z, by the method of Levenberg and Marquardt from several starts."""
    rank, best = points.shape[1], (math.inf, np.zeros((points.shape[1], OTHERS)))
    weights = (points * (height - height.mean())[:, None]).T @ points
    for number in range(STARTS):
        first = np.linalg.eigh(weights)[1][:, -OTHERS:] if number == 0 else random.normal(size=(rank, OTHERS)) / np.sqrt(rank)
        reached = _descended(points, height, first)
        if reached[0] < best[0]:
            best = reached
    return best[1]


def _descended(
    points: np.ndarray, height: np.ndarray, directions: Float64[np.ndarray, "rank others"]
) -> tuple[float, Float64[np.ndarray, "rank others"]]:
    """The cost that is reached from a start, and the directions there; a weak penalty on their lengths breaks ties."""

    def cost(tried: np.ndarray) -> float:
        rest = (((points @ tried) ** 2).sum(axis=1) - height) / ROUGH
        return float(rest @ rest + 0.01 * (tried**2).sum())

    damping, reached = 1.0, cost(directions)
    for _ in range(ROUNDS):
        image = points @ directions
        rest = ((image**2).sum(axis=1) - height) / ROUGH
        slope = (2 * points[:, :, None] * image[:, None, :] / ROUGH).reshape(len(points), -1)
        normal = slope.T @ slope + 0.01 * np.eye(slope.shape[1])
        gradient = slope.T @ rest + 0.01 * directions.ravel()
        before = reached
        for _ in range(8):
            damped = normal + damping * np.diag(np.diag(normal))
            tried = directions - np.linalg.solve(damped, gradient).reshape(directions.shape)
            if (now := cost(tried)) < reached:
                directions, reached, damping = tried, now, damping / 4
                break
            damping *= 4
        if before - reached <= 1e-3 * before:
            break
    return reached, directions


def climbed(ask: Ask, own: Float64[np.ndarray, "faces dim"], *, questions: int, seed: int) -> Float64[np.ndarray, "dim"]:
    """The descriptor that hill climbing reaches within a number of questions, of unit length.

    It asks for some of the attacker's own faces first, and starts from the mean of those with the best answers. Then it draws
    probes around the place by the covariance of the faces, and moves to the mean of the better ones, in the manner of an
    evolution strategy; the width follows whether answers improve. Raises RangeError for fewer than 40 questions.
    """
    if questions < 2 * PROBES:
        raise RangeError(f"hill climbing needs {2 * PROBES} questions, got {questions!r}")
    random = np.random.default_rng(seed)
    first = own[random.permutation(len(own))[: max(PROBES, int(FIRST_SHARE * questions))]]
    spread = np.linalg.cholesky(np.cov(own.T) + 1e-8 * np.eye(own.shape[1]))
    answers = ask(first)
    middle, width = _better(first, answers, own.mean(axis=0)), 0.5
    best = float(answers.min())
    place = middle
    for _ in range((questions - len(first)) // PROBES):
        probes = unit_length(middle + width * random.normal(size=(PROBES, len(middle))) @ spread.T)
        answers = ask(probes)
        moved = _better(probes, answers, middle)
        if answers.min() <= best:
            best, place = float(answers.min()), moved
            width = min(WIDEST, 1.1 * width) if answers.min() < answers.max() else max(NARROWEST, 0.9 * width)
        else:
            width = max(NARROWEST, 0.95 * width)
        middle = moved
    return place


def _better(
    probes: Float64[np.ndarray, "probes dim"], answers: Float64[np.ndarray, "probes"], middle: Float64[np.ndarray, "dim"]
) -> Float64[np.ndarray, "dim"]:
    """Mean of the better half of the probes, weighed by their rank, of unit length; the middle itself where all are alike."""
    if answers.min() == answers.max():
        return unit_length(middle[None])[0]
    order = np.argsort(answers, kind="stable")[: max(2, min(len(probes) // 2, PROBES))]
    order = order[answers[order] < answers.max()]
    weight = np.log(len(order) + 1.5) - np.log(np.arange(1, len(order) + 1))
    mean: Float64[np.ndarray, "dim"] = unit_length((weight[:, None] * probes[order]).sum(axis=0)[None])[0]
    return mean
