"""Attacks on whole stores whose keys are secret: distances among people, and decoys that templates share.

A key that serves a whole store keeps distances. So people of two stores can be matched by whom they resemble, as one matches
two graphs. And where templates share a decoy they meet in it: its turned image is a point that the attacker then has. The
distances among such points name them in a known pool, and the rotation follows (docs/theory/faces.md, Eq. 10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64
from scipy.optimize import quadratic_assignment

from veil import distances
from veil.attacks.intersection.shared_decoys import MeetingOptions, shared_decoys
from veil.errors import InputError
from veil.forms import Subspaces
from veil_faces.studies.template_estimates import MEETS

# Points whose distances vote for a member of the pool, at most, and how far two equal distances may be apart.
VOTERS, EQUAL = 40, 2e-6
# Smallest singular value, relative to the largest, of a direction that points of the pool fill.
FILLED = 3e-5
# Smallest singular value of directions of a template, as projected, along which a decoy is placed.
PLACED = 0.05


def alikeness_scores(
    left: Float64[np.ndarray, "people people"], right: Float64[np.ndarray, "people people"], known: int
) -> Float64[np.ndarray, "others others"]:
    """Scores of all pairs of the people beyond the first `known`, by alikeness within each of two stores.

    The attacker knows which templates are those of the first `known` people. The others are matched by the fast approximate
    quadratic assignment of Vogelstein et al. 2015; then two people score higher the nearer their rows of alikeness are, over
    known and matched people. Raises InputError for fewer than three people beyond.
    """
    count = len(left)
    if not 0 <= known <= count - 3:
        raise InputError(f"{known} known of {count} people leave fewer than three to match")
    a, b = _standard(left), _standard(right)
    given = np.stack([np.arange(known)] * 2, axis=1) if known else None
    options = {"maximize": True, "partial_match": given, "maxiter": 60}
    matched = quadratic_assignment(a, b, method="faq", options=options).col_ind
    profile, other = a[known:], b[known:][:, matched]
    squares = (profile**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2 * profile @ other.T
    scores: Float64[np.ndarray, "others others"] = -squares
    return scores


def _standard(alike: Float64[np.ndarray, "people people"]) -> Float64[np.ndarray, "people people"]:
    """Alikeness of mean 0 and deviation 1 off the diagonal, which becomes 0."""
    apart = ~np.eye(len(alike), dtype=bool)
    spread = max(float(alike[apart].std()), 1e-12)
    return np.where(apart, (alike - alike[apart].mean()) / spread, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveredTurn:
    """The part of a store's rotation that its templates give away.

    `met` is the number of decoys in which templates meet, `placed` that of members of the pool whose turned images are known.
    `turn` (dim, dim) takes descriptors to the store on the `rank` directions that those span, and others to zero.
    """

    met: int
    placed: int
    rank: int
    turn: Float64[np.ndarray, "dim dim"]


def recovered_turn(form: Subspaces, pool: Float[np.ndarray, "pool dim"], *, decoys: int) -> RecoveredTurn:
    """The rotation of a store of hybrid or adversarial templates, from a pool that holds their decoys, `decoys` in each.

    Meeting points are named by votes of their distances. Each named point fixes a part of the rotation; within it further
    decoys of each template are recognized and placed, until nothing is added.
    """
    members = pool.astype(np.float64)
    points = _meeting_points(form)
    rows = _named(points, members)
    kept = rows >= 0
    placed = dict(zip(rows[kept].tolist(), points[kept], strict=True))
    before = -1
    while len(placed) > before:
        before = len(placed)
        inside, outside = _filled(placed, members)
        if inside.shape[1] < form.m + 3:
            break
        for row, point in _recognized(form, members, inside, outside, decoys):
            placed.setdefault(row, point)
        if inside.shape[1] == members.shape[1]:
            break
    inside, outside = _filled(placed, members)
    return RecoveredTurn(met=len(points), placed=len(placed), rank=inside.shape[1], turn=outside @ inside.T)


def turned_back(form: Subspaces, turn: Float64[np.ndarray, "dim dim"]) -> tuple[np.ndarray, np.ndarray]:
    """Origins and bases in the coordinates of descriptors, float64."""
    return form.origin.astype(np.float64) @ turn, form.basis.astype(np.float64) @ turn


def _meeting_points(form: Subspaces) -> Float64[np.ndarray, "points dim"]:
    """Points in which templates meet, each once."""
    lists = shared_decoys(form, options=MeetingOptions(tol=1e-4, merge=1e-4))
    rest = np.concatenate([np.zeros((0, form.origin.shape[1])), *(part for part in lists.candidates if len(part))])
    points: list[np.ndarray] = []
    while len(rest):
        near = np.linalg.norm(rest - rest[0], axis=1) <= 1e-4
        points.append(rest[near].mean(axis=0))
        rest = rest[~near]
    return np.array(points).reshape(-1, form.origin.shape[1])


def _named(points: Float64[np.ndarray, "points dim"], pool: Float64[np.ndarray, "pool dim"]) -> Int64[np.ndarray, "points"]:
    """Row of the pool of each point, or -1: the member from which most voters are as far as from the point."""
    voters = points[:VOTERS]
    if len(voters) < 4:
        return np.full(len(points), -1, dtype=np.int64)
    apart = np.linalg.norm(points[:, None] - voters[None], axis=2)
    among = np.sort(np.linalg.norm(pool[:, None] - pool[None], axis=2), axis=1)
    votes = np.stack(
        [
            (np.searchsorted(row, apart + EQUAL) > np.searchsorted(row, np.maximum(apart - EQUAL, EQUAL))).sum(axis=1)
            for row in among
        ],
        axis=1,
    )
    best = votes.argmax(axis=1)
    enough = votes.max(axis=1) >= max(3, 0.6 * (len(voters) - 1))
    return np.where(enough, best, -1).astype(np.int64)


def _filled(
    placed: dict[int, np.ndarray], pool: Float64[np.ndarray, "pool dim"]
) -> tuple[Float64[np.ndarray, "dim rank"], Float64[np.ndarray, "dim rank"]]:
    """Orthonormal directions that the placed members fill, and their turned images, made orthonormal."""
    dim = pool.shape[1]
    if not placed:
        return np.zeros((dim, 0)), np.zeros((dim, 0))
    before, after = pool[list(placed)], np.array(list(placed.values()))
    mixing, singular, inside = np.linalg.svd(before, full_matrices=False)
    rank = int((singular > FILLED * singular[0]).sum())
    left, _, right = np.linalg.svd(after.T @ (mixing[:, :rank] / singular[:rank]), full_matrices=False)
    return inside[:rank].T, left @ right


def _recognized(
    form: Subspaces,
    pool: Float64[np.ndarray, "pool dim"],
    inside: Float64[np.ndarray, "dim rank"],
    outside: Float64[np.ndarray, "dim rank"],
    decoys: int,
) -> list[tuple[int, np.ndarray]]:
    """Members of the pool that lie in a template, as far as the directions show, with their points in it."""
    origin, basis = form.origin.astype(np.float64), form.basis.astype(np.float64)
    low, flat = origin @ outside, basis @ outside
    _, singular, right = np.linalg.svd(flat, full_matrices=False)
    clear = np.flatnonzero(singular[:, -1] >= PLACED)
    if not len(clear):
        return []
    seen = pool @ inside
    nearest = distances.nearest(
        (low[clear].astype(np.float32), right[clear].astype(np.float32)), (seen.astype(np.float32), None), decoys
    )
    result: list[tuple[int, np.ndarray]] = []
    for place, template in enumerate(clear.tolist()):
        for member in nearest.index[place][nearest.distance[place] <= MEETS].tolist():
            step = (seen[member] - low[template]) @ np.linalg.pinv(flat[template])
            miss = np.linalg.norm(low[template] + step @ flat[template] - seen[member])
            if miss <= 1e-4:
                result.append((member, origin[template] + step @ basis[template]))
    return result
