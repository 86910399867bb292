"""The calibrated 2D trifocal tensor: relative poses of three planar views from five or more points.

    T_ijk x1_i x2_j x3_k = 0,   x = (x, 1)          (Geppert et al. 2020, Eq. 4; traps S2: i is view 1)
    T(I, I, I) = 0,             I = (1, i)          (Eq. 6 and 7 are its real and imaginary part)

Written on the complex basis, x = alpha I + conj(alpha) conj(I) with alpha = (x - i) / 2, the constraint leaves three complex
numbers A = T(I, I, I*), B = T(I, I*, I), C = T(I*, I, I), so Eq. 5-7 become one homogeneous least-squares problem in six reals.
Derivation and the factorization: docs/theory/lines.md, Eq. 3-8. Source: Astrom and Oskarsson 2000 for the constraints.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Complex128, Float64

from veil.errors import InputError
from veil.geometry.solvers.planar import IDENTITY, PlanarPose, in_front, triangulate_planar

MINIMAL_POINTS = 5


def estimate_tensor(x: Float64[np.ndarray, "3 points"]) -> Complex128[np.ndarray, "3"]:
    """(A, B, C) of unit norm that minimizes sum T(x1, x2, x3)^2; defined up to sign.

    Raises InputError for fewer than five points.
    """
    if x.shape[1] < MINIMAL_POINTS:
        raise InputError(f"the planar trifocal tensor needs {MINIMAL_POINTS} gravity-aligned tracks, got {x.shape[1]}")
    # T = 2 Re(p A + q B + r C) with p = a1 a2 conj(a3) and so on; each point weighted to a unit ray in every view.
    a1, a2, a3 = (x - 1j) / 2 / np.hypot(1.0, x)
    p, q, r = a1 * a2 * a3.conj(), a1 * a2.conj() * a3, a1.conj() * a2 * a3
    rows = np.stack([p.real, -p.imag, q.real, -q.imag, r.real, -r.imag], axis=1)
    solution = np.linalg.svd(rows, full_matrices=True)[2][-1]
    return solution[0::2] + 1j * solution[1::2]


def factor_tensor(tensor: Complex128[np.ndarray, "3"]) -> list[tuple[PlanarPose, PlanarPose]]:
    """All (cam2_from_cam1, cam3_from_cam1) of a tensor, without regard to depth: up to 2 mirror solutions x 8 signs.

    With tau_k = t_kx + i t_kz:  A = -2 exp(i theta3) tau2,  B = 2 exp(i theta2) tau3, and
    C + B exp(-2i theta2) + A exp(-2i theta3) = 0: a triangle of three known sides, so two solutions, mirror images.
    Noise may leave no triangle; it is then flattened to the nearest one. The scale is |t2|^2 + |t3|^2 = 1.
    """
    a, b, c = tensor
    if min(abs(a), abs(b)) < 1e-12 * np.linalg.norm(tensor):
        return []  # a view did not move: pure rotation about gravity, nothing to factor (traps S4)
    poses = []
    for mirror in (1.0, -1.0):
        u, v = _close_triangle(c, abs(b), abs(a), mirror)  # u = B exp(-2i theta2), v = A exp(-2i theta3), u + v = -C
        theta2, theta3 = np.angle(b / u) / 2, np.angle(a / v) / 2
        for turn2 in (0.0, np.pi):
            for turn3 in (0.0, np.pi):
                for sign in (1.0, -1.0):
                    tau2 = -sign * a * np.exp(-1j * (theta3 + turn3)) / 2
                    tau3 = sign * b * np.exp(-1j * (theta2 + turn2)) / 2
                    poses.append(_normalized(theta2 + turn2, tau2, theta3 + turn3, tau3))
    return poses


def _close_triangle(c: complex, u_length: float, v_length: float, mirror: float) -> tuple[complex, complex]:
    """u + v = -c with the given lengths; `mirror` chooses the side of c on which the corner lies."""
    base = abs(c)
    if base < 1e-300:
        return complex(u_length), complex(-v_length)
    cosine = (base**2 + u_length**2 - v_length**2) / (2 * base * u_length)
    angle = mirror * np.arccos(np.clip(cosine, -1.0, 1.0))
    u = -c / base * u_length * np.exp(1j * angle)
    rest = -c - u
    return u, rest if abs(rest) > 1e-300 else complex(v_length)


def _normalized(theta2: float, tau2: complex, theta3: float, tau3: complex) -> tuple[PlanarPose, PlanarPose]:
    scale = np.hypot(abs(tau2), abs(tau3))
    second = PlanarPose(angle=float(theta2), translation=np.array([tau2.real, tau2.imag]) / scale)
    third = PlanarPose(angle=float(theta3), translation=np.array([tau3.real, tau3.imag]) / scale)
    return second, third


def three_planar_views(x: Float64[np.ndarray, "3 points"], *, min_in_front: float = 0.5) -> list[tuple[PlanarPose, PlanarPose]]:
    """Poses of views 2 and 3 in the frame of view 1 with at least `min_in_front` of the points before all views.

    Best supported first; exact data often leave *two* (the mirror pair), which only a fourth view tells apart (traps S4).
    """
    found = []
    for second, third in factor_tensor(estimate_tensor(x)):
        poses = [IDENTITY, second, third]
        share = float(in_front(poses, triangulate_planar(poses, x)).mean())
        if share >= min_in_front:
            found.append((share, second, third))
    return [(second, third) for _, second, third in sorted(found, key=lambda item: -item[0])]
