"""Relative poses of three planar views from five or more points, by the calibrated 2D trifocal tensor.

    T_ijk x1_i x2_j x3_k = 0,   x = (x, 1)          (Geppert et al. 2020, Eq. 4; lines.md#planar-views: i is view 1)
    T(I, I, I) = 0,             I = (1, i)          (Eq. 6 and 7 are its real and imaginary part)

Written on the complex basis, x = alpha I + conj(alpha) conj(I) with alpha = (x - i) / 2, the constraint leaves three complex
numbers A = T(I, I, I*), B = T(I, I*, I), C = T(I*, I, I), so Eq. 5-7 become one homogeneous least-squares problem in six reals.
Derivation and the factorization: docs/theory/lines.md, Eq. 3-8. Source: Astrom and Oskarsson 2000 for the constraints.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from jaxtyping import Complex128, Float64, Int64

from veil.errors import InputError
from veil.geometry.solvers.planar import PlanarViews, in_front, triangulate_planar

MINIMAL_POINTS = 5
# Two mirror triangles, each angle up to pi, and the sign of the tensor.
SOLUTIONS = 16


def estimate_tensor(x: Float64[np.ndarray, "*batch 3 points"]) -> Complex128[np.ndarray, "*batch 3"]:
    """Tensors (A, B, C) of unit norm that minimize the sum of T(x1, x2, x3)^2 over the points; defined up to sign.

    `x` are the points' image coordinates (normalized plane) in the three views. Raises InputError for fewer than five points.
    """
    if x.shape[-1] < MINIMAL_POINTS:
        raise InputError(f"the planar trifocal tensor needs {MINIMAL_POINTS} gravity-aligned tracks, got {x.shape[-1]}")
    # T = 2 Re(p A + q B + r C) with p = a1 a2 conj(a3) and so on; each point weighted to a unit ray in every view.
    a = (x - 1j) / 2 / np.hypot(1.0, x)
    a1, a2, a3 = a[..., 0, :], a[..., 1, :], a[..., 2, :]
    p, q, r = a1 * a2 * a3.conj(), a1 * a2.conj() * a3, a1.conj() * a2 * a3
    rows = np.stack([p.real, -p.imag, q.real, -q.imag, r.real, -r.imag], axis=-1)
    solution = np.linalg.svd(rows, full_matrices=x.shape[-1] < 6)[2][..., -1, :]
    return solution[..., 0::2] + 1j * solution[..., 1::2]


def factor_tensor(tensor: Complex128[np.ndarray, "*batch 3"]) -> PlanarViews:
    """All poses (cam1, cam2, cam3)_from_cam1 of each tensor, without regard to depth: batch axes (..., 16), three views.

    With tau_k = t_kx + i t_kz:  A = -2 exp(i theta3) tau2,  B = 2 exp(i theta2) tau3, and
    C + B exp(-2i theta2) + A exp(-2i theta3) = 0: a triangle of three known sides, so two solutions, mirror images.
    Noise may leave no triangle; it is then flattened to the nearest one. The scale is |t2|^2 + |t3|^2 = 1. Translations are
    NaN where a view did not move: a pure rotation about gravity leaves nothing to factor (lines.md#planar-views).
    """
    a, b, c = tensor[..., 0], tensor[..., 1], tensor[..., 2]
    angles, taus = [], []
    for mirror in (1.0, -1.0):
        u, v = _close_triangle(c, abs(b), abs(a), mirror)  # u = B exp(-2i theta2), v = A exp(-2i theta3), u + v = -C
        theta2, theta3 = np.angle(b * u.conj()) / 2, np.angle(a * v.conj()) / 2
        for turn2, turn3, sign in product((0.0, np.pi), (0.0, np.pi), (1.0, -1.0)):
            tau2, tau3 = -sign * a * np.exp(-1j * (theta3 + turn3)), sign * b * np.exp(-1j * (theta2 + turn2))
            angles.append(np.stack([np.zeros_like(theta2), theta2 + turn2, theta3 + turn3], axis=-1))
            taus.append(np.stack([np.zeros_like(tau2), tau2, tau3], axis=-1))
    tau = np.stack(taus, axis=-2)
    moved = np.minimum(abs(a), abs(b)) >= 1e-12 * np.linalg.norm(tensor, axis=-1)
    scale = np.where(moved, np.hypot(abs(a), abs(b)), np.nan)[..., None, None, None]
    return PlanarViews(angle=np.stack(angles, axis=-2), translation=np.stack([tau.real, tau.imag], axis=-1) / scale)


def _close_triangle(c: np.ndarray, u_length: np.ndarray, v_length: np.ndarray, mirror: float) -> tuple[np.ndarray, np.ndarray]:
    """Complex numbers (u, v) of the given lengths with u + v = -c; `mirror` chooses the side of c on which the corner lies."""
    base = np.maximum(abs(c), 1e-300)
    cosine = (base**2 + u_length**2 - v_length**2) / np.maximum(2 * base * u_length, 1e-300)
    u = -c / base * u_length * np.exp(1j * mirror * np.arccos(np.clip(cosine, -1.0, 1.0)))
    u = np.where(abs(c) < 1e-300, u_length, u)
    return u, -c - u


def three_planar_views(
    x: Float64[np.ndarray, "problems 3 points"], *, min_in_front: float = 0.5
) -> tuple[PlanarViews, Int64[np.ndarray, "candidates"]]:
    """Candidate poses of three views in the frame of the first, in one batch, and the problem that each belongs to.

    `x` are image coordinates (normalized plane) of each problem's points. Candidates have at least the share `min_in_front` of
    the points in front of all three cameras, and come with the largest share first within a problem. Exact data often leave
    *two* (the mirror pair), which only a fourth view tells apart (lines.md#planar-views). Raises InputError for fewer than five
    points.
    """
    views = factor_tensor(estimate_tensor(x))
    moved = np.isfinite(views.translation).all(axis=(-1, -2))
    whole = PlanarViews(angle=views.angle, translation=np.where(moved[..., None, None], views.translation, 0.0))
    points = triangulate_planar(whole, np.broadcast_to(x[:, None], (len(x), SOLUTIONS, *x.shape[1:])))
    share = np.where(moved, in_front(whole, points).mean(axis=-1), 0.0)
    problem, solution = np.nonzero(share >= max(min_in_front, 1e-9))
    order = np.lexsort((-share[problem, solution], problem))
    problem, solution = problem[order], solution[order]
    return PlanarViews(angle=views.angle[problem, solution], translation=views.translation[problem, solution]), problem
