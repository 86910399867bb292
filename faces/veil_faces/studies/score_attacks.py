"""Regeneration of a descriptor from answers to chosen probes: by linear equations, and by hill climbing.

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
# Probes of one step of hill climbing, and the share of the questions that goes to faces of the attacker's own.
PROBES, FIRST_SHARE = 20, 0.25
WIDEST, NARROWEST = 1.0, 0.02
# Steps of bisection, equations for each unknown number, and the smallest singular value of a direction that faces fill.
STEPS, SPARE, FILLED = 30, 1.05, 1e-4


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
