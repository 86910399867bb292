"""The pose of a camera from three points and their rays (Grunert 1841; Haralick et al. 1991), for compiled loops.

Its quartic is solved by Ferrari's resolvent. Tests compare the poses with PoseLib's P3P and with the defining equation.
"""

from __future__ import annotations

import math

import numpy as np

from veil.compiled import compiled
from veil.geometry.solvers.vectors import cross, dot, normalize, squared_distance


@compiled
def quartic_roots(c, roots):
    """Number of real roots of c0 + c1 x + ... + c4 x^4, which are written to the front of `roots` (4,).

    They come from Ferrari's resolvent and two Newton steps. `c` (5,) holds the coefficients; a leading one that is zero beside
    the others gives no roots.
    """
    if abs(c[4]) < 1e-14 * (abs(c[0]) + abs(c[1]) + abs(c[2]) + abs(c[3])):
        return 0
    b3, b2, b1, b0 = c[3] / c[4], c[2] / c[4], c[1] / c[4], c[0] / c[4]
    # Depressed: y^4 + p y^2 + q y + r with x = y - b3 / 4.
    p = b2 - 3 * b3 * b3 / 8
    q = b1 - b2 * b3 / 2 + b3**3 / 8
    r = b0 - b1 * b3 / 4 + b2 * b3 * b3 / 16 - 3 * b3**4 / 256
    z = _largest_cubic_root(2 * p, p * p - 4 * r, -q * q)
    if z <= 0:
        z = 0.0
    w = math.sqrt(z)
    count = 0
    if w < 1e-12:
        # Biquadratic: y^2 = (-p +- sqrt(p^2 - 4 r)) / 2.
        inner = p * p - 4 * r
        if inner < 0:
            return 0
        for sign in (-1.0, 1.0):
            square = (-p + sign * math.sqrt(inner)) / 2
            if square >= 0:
                for other in (-1.0, 1.0):
                    roots[count] = other * math.sqrt(square) - b3 / 4
                    count += 1
    else:
        for sign in (-1.0, 1.0):
            # y^2 - sign w y + (p + z + sign q / w) / 2
            inner = z - 2 * (p + z + sign * q / w)
            if inner >= 0:
                for other in (-1.0, 1.0):
                    roots[count] = (sign * w + other * math.sqrt(inner)) / 2 - b3 / 4
                    count += 1
    for k in range(count):
        for _ in range(2):
            x = roots[k]
            slope = ((4 * x + 3 * b3) * x + 2 * b2) * x + b1
            if abs(slope) > 1e-300:
                roots[k] = x - ((((x + b3) * x + b2) * x + b1) * x + b0) / slope
    return count


@compiled
def _largest_cubic_root(a, b, c):
    """Largest real root of x^3 + a x^2 + b x + c, after two Newton steps."""
    q, r = (a * a - 3 * b) / 9, (2 * a**3 - 9 * a * b + 27 * c) / 54
    if r * r < q**3:
        root, angle = math.sqrt(q), math.acos(max(-1.0, min(1.0, r / math.sqrt(q**3))))
        x = -2 * root * math.cos((angle + 2 * math.pi) / 3) - a / 3
        x = max(x, -2 * root * math.cos(angle / 3) - a / 3, -2 * root * math.cos((angle - 2 * math.pi) / 3) - a / 3)
    else:
        s = -math.copysign((abs(r) + math.sqrt(max(0.0, r * r - q**3))) ** (1 / 3), r)
        x = s + (q / s if s != 0 else 0.0) - a / 3
    for _ in range(2):
        slope = (3 * x + 2 * a) * x + b
        if abs(slope) > 1e-300:
            x -= (((x + a) * x + b) * x + c) / slope
    return x


MAX_POSES = 4


@compiled
def three_point_poses(rays, points, rotations, translations):
    """Number of poses with s_i rays_i = R points_i + t and s_i > 0.

    The poses (cam_from_world) are written to the front of `rotations` (4, 3, 3) and `translations` (4, 3). Rows of `rays`
    (3, 3) are unit vectors in the camera, rows of `points` (3, 3) are in the world. Collinear or coinciding points give none.

    With s_2 = u s_1 and s_3 = v s_1 the law of cosines gives a quartic in v (Haralick et al. 1991, Eq. 9).
    """
    a2 = squared_distance(points[1], points[2])
    b2 = squared_distance(points[0], points[2])
    c2 = squared_distance(points[0], points[1])
    if a2 < 1e-18 or b2 < 1e-18 or c2 < 1e-18 or _collinear(points, b2 * c2):
        return 0
    cos_a, cos_b, cos_c = dot(rays[1], rays[2]), dot(rays[0], rays[2]), dot(rays[0], rays[1])
    p, q = (a2 - c2) / b2, (a2 + c2) / b2
    quartic = np.empty(5)
    quartic[4] = (p - 1) ** 2 - 4 * c2 / b2 * cos_a**2
    quartic[3] = 4 * (p * (1 - p) * cos_b - (1 - q) * cos_a * cos_c + 2 * c2 / b2 * cos_a**2 * cos_b)
    quartic[2] = 2 * (
        p**2
        - 1
        + 2 * p**2 * cos_b**2
        + 2 * (b2 - c2) / b2 * cos_a**2
        - 4 * q * cos_a * cos_b * cos_c
        + 2 * (b2 - a2) / b2 * cos_c**2
    )
    quartic[1] = 4 * (-p * (1 + p) * cos_b + 2 * a2 / b2 * cos_c**2 * cos_b - (1 - q) * cos_a * cos_c)
    quartic[0] = (1 + p) ** 2 - 4 * a2 / b2 * cos_c**2
    roots = np.empty(4)
    count = 0
    for k in range(quartic_roots(quartic, roots)):
        v = roots[k]
        below = 2 * (cos_c - v * cos_a)
        side = 1 + v * v - 2 * v * cos_b
        if v <= 0 or abs(below) < 1e-12 or side <= 0:
            continue
        u = ((p - 1) * v * v - 2 * p * cos_b * v + 1 + p) / below
        if u <= 0:
            continue
        depths = np.empty(3)
        depths[0] = math.sqrt(b2 / side)
        depths[1], depths[2] = u * depths[0], v * depths[0]
        misfit = _polish_depths(depths, a2, b2, c2, cos_a, cos_b, cos_c)
        # Equal rays make any depths a double root of the quartic; its triangle is another one, or NaN.
        if depths.min() > 0 and misfit < 1e-6 * (a2 + b2 + c2):
            _rigid_from_triangles(points, rays, depths, rotations[count], translations[count])
            count += 1
    return count


@compiled
def _collinear(points, sides):
    """Whether the sine of the angle at the first of `points` (3, 3) is below 1e-6.

    `sides` is the product of the squared lengths of the two sides that meet there.
    """
    normal = np.empty(3)
    cross(points[1] - points[0], points[2] - points[0], normal)
    return dot(normal, normal) < 1e-12 * sides


@compiled
def _polish_depths(s, a2, b2, c2, cos_a, cos_b, cos_c):
    """Misfit of the three laws of cosines after two Newton steps that refine the depths `s` (3,) in place.

    The quartic's root has lost half of its digits. a2, b2, c2 are the squared sides opposite of the first, second and third
    point, the cosines those of the angles between the rays to the ends of these sides. The misfit is a squared length.
    """
    for step in range(3):
        f0 = s[1] * s[1] + s[2] * s[2] - 2 * s[1] * s[2] * cos_a - a2
        f1 = s[0] * s[0] + s[2] * s[2] - 2 * s[0] * s[2] * cos_b - b2
        f2 = s[0] * s[0] + s[1] * s[1] - 2 * s[0] * s[1] * cos_c - c2
        misfit = abs(f0) + abs(f1) + abs(f2)
        if step == 2:
            break
        # Rows of the Jacobian: (0, j01, j02), (j10, 0, j12), (j20, j21, 0).
        j01, j02 = 2 * (s[1] - s[2] * cos_a), 2 * (s[2] - s[1] * cos_a)
        j10, j12 = 2 * (s[0] - s[2] * cos_b), 2 * (s[2] - s[0] * cos_b)
        j20, j21 = 2 * (s[0] - s[1] * cos_c), 2 * (s[1] - s[0] * cos_c)
        determinant = j01 * j12 * j20 + j02 * j10 * j21
        if abs(determinant) < 1e-300:
            break
        s[0] -= (-j12 * j21 * f0 + j02 * j21 * f1 + j01 * j12 * f2) / determinant
        s[1] -= (j12 * j20 * f0 - j02 * j20 * f1 + j02 * j10 * f2) / determinant
        s[2] -= (j10 * j21 * f0 + j01 * j20 * f1 - j01 * j10 * f2) / determinant
    return misfit


@compiled
def _rigid_from_triangles(points, rays, depths, rotation, translation):
    """Write the pose that takes the triangle of `points` (3, 3) to that of depths times rays: both span an orthonormal frame.

    `depths` (3,) are distances from the camera along the unit rows of `rays` (3, 3); the pose goes to `rotation` (3, 3) and
    `translation` (3,).
    """
    world, camera = np.empty((3, 3)), np.empty((3, 3))
    seen = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            seen[i, j] = depths[i] * rays[i, j]
    _frame(points, world)
    _frame(seen, camera)
    for i in range(3):
        for j in range(3):
            rotation[i, j] = camera[0, i] * world[0, j] + camera[1, i] * world[1, j] + camera[2, i] * world[2, j]
    for i in range(3):
        translation[i] = seen[0, i] - dot(rotation[i], points[0])


@compiled
def _frame(triangle, axes):
    """Write to the rows of `axes` (3, 3) the orthonormal frame of a triangle (3, 3): first side, in its plane, normal."""
    for j in range(3):
        axes[0, j] = triangle[1, j] - triangle[0, j]
        axes[1, j] = triangle[2, j] - triangle[0, j]
    cross(axes[0], axes[1], axes[2])
    normalize(axes[0])
    normalize(axes[2])
    cross(axes[2], axes[0], axes[1])
