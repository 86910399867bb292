"""Minimal poses inside compiled loops: three points (Grunert 1841; Haralick et al. 1991), and four lines with known gravity.

Each writes its solutions into arrays that the caller owns and returns how many there are. Their slow twins are PoseLib's
P3P and the defining equations, in tests.
"""

from __future__ import annotations

import math

import numpy as np

from veil.kernels.compiled import compiled

MAX_POSES = 4


@compiled
def three_point_poses(rays, points, rotations, translations):  # type: ignore[no-untyped-def]
    """Poses with s_i rays_i = R points_i + t and s_i > 0; `rays` (3, 3) are unit vectors in the rows.

    With s_2 = u s_1 and s_3 = v s_1 the law of cosines gives a quartic in v (Haralick et al. 1991, Eq. 9).
    """
    a2 = _squared_distance(points[1], points[2])
    b2 = _squared_distance(points[0], points[2])
    c2 = _squared_distance(points[0], points[1])
    if a2 < 1e-18 or b2 < 1e-18 or c2 < 1e-18 or _collinear(points, b2 * c2):
        return 0
    cos_a, cos_b, cos_c = _dot(rays[1], rays[2]), _dot(rays[0], rays[2]), _dot(rays[0], rays[1])
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
    found = 0
    for k in range(_quartic_roots(quartic, roots)):
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
            _rigid_from_triangles(points, rays, depths, rotations[found], translations[found])
            found += 1
    return found


@compiled
def _collinear(points, sides):  # type: ignore[no-untyped-def]
    """Whether the sine of the angle at the first point is below 1e-6; `sides` is the product of its sides' squares."""
    normal = np.empty(3)
    _cross(points[1] - points[0], points[2] - points[0], normal)
    return _dot(normal, normal) < 1e-12 * sides


@compiled
def _polish_depths(s, a2, b2, c2, cos_a, cos_b, cos_c):  # type: ignore[no-untyped-def]
    """Two Newton steps on the three laws of cosines: the quartic's root has lost half of its digits. Returns their misfit."""
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
def _rigid_from_triangles(points, rays, depths, rotation, translation):  # type: ignore[no-untyped-def]
    """The rotation that turns the triangle of points into that of depths times rays: both span an orthonormal frame."""
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
        translation[i] = seen[0, i] - _dot(rotation[i], points[0])


@compiled
def _frame(triangle, axes):  # type: ignore[no-untyped-def]
    for j in range(3):
        axes[0, j] = triangle[1, j] - triangle[0, j]
        axes[1, j] = triangle[2, j] - triangle[0, j]
    _cross(axes[0], axes[1], axes[2])
    _normalize(axes[0])
    _normalize(axes[2])
    _cross(axes[2], axes[0], axes[1])


@compiled
def upright_line_poses(lines, points, down_cam, down_world, rotations, translations):  # type: ignore[no-untyped-def]
    """Poses with lines_i (R points_i + t) = 0 for four lines and R down_world = down_cam (docs/theory/words.md, Eq. 17-18).

    R = B Y(angle) A with A, B that turn `down` of world and camera to the y-axis: linear in (cos, sin, t), and without t one
    equation a cos + b sin + c = 0 is left.
    """
    a, b = np.empty((3, 3)), np.empty((3, 3))
    _turn_to_y(down_world, a)
    _turn_to_y(down_cam, b)
    design = np.empty((4, 6))  # t, cos, sin, constant
    for i in range(4):
        x = a @ points[i]
        n = b @ lines[i]  # lines in the frame where down is y
        for j in range(3):
            design[i, j] = n[j]
        design[i, 3] = n[0] * x[0] + n[2] * x[2]
        design[i, 4] = n[0] * x[2] - n[2] * x[0]
        design[i, 5] = n[1] * x[1]
    if not _eliminate(design):
        return 0
    ca, cb, cc = design[3, 3], design[3, 4], design[3, 5]
    radius = math.hypot(ca, cb)
    if radius < 1e-12 or abs(cc) > radius:
        return 0
    base, spread = math.atan2(cb, ca), math.acos(-cc / radius)
    found = 0
    for sign in (-1.0, 1.0):
        angle = base + sign * spread
        cos, sin = math.cos(angle), math.sin(angle)
        y = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
        t = np.empty(3)
        for j in range(2, -1, -1):
            t[j] = -(design[j, 3] * cos + design[j, 4] * sin + design[j, 5])
            for k in range(j + 1, 3):
                t[j] -= design[j, k] * t[k]
            t[j] /= design[j, j]
        rotation = b.T @ y @ a
        shift = b.T @ t
        ahead = True
        for i in range(4):
            ahead = ahead and _dot(rotation[2], points[i]) + shift[2] > 0
        if ahead:
            rotations[found] = rotation
            translations[found] = shift
            found += 1
    return found


@compiled
def _eliminate(design):  # type: ignore[no-untyped-def]
    """Gaussian elimination of the first three columns with row exchange; False if they are dependent."""
    for j in range(3):
        best = j
        for i in range(j + 1, 4):
            if abs(design[i, j]) > abs(design[best, j]):
                best = i
        # Lines along gravity have no y here, but their float32 coefficients leave some 1e-7 of it.
        if abs(design[best, j]) < 1e-6:
            return False
        for k in range(6):
            design[j, k], design[best, k] = design[best, k], design[j, k]
        for i in range(j + 1, 4):
            factor = design[i, j] / design[j, j]
            for k in range(6):
                design[i, k] -= factor * design[j, k]
    return True


@compiled
def _turn_to_y(down, out):  # type: ignore[no-untyped-def]
    """A rotation whose second row is the unit vector `down`."""
    side = np.zeros(3)
    side[0 if abs(down[0]) < 0.7 else 2] = 1.0
    out[1] = down
    _cross(down, side, out[2])
    _normalize(out[2])
    _cross(out[1], out[2], out[0])


@compiled
def _quartic_roots(c, roots):  # type: ignore[no-untyped-def]
    """Real roots of c0 + c1 x + ... + c4 x^4, by Ferrari's resolvent and two Newton steps."""
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
    found = 0
    if w < 1e-12:
        # Biquadratic: y^2 = (-p +- sqrt(p^2 - 4 r)) / 2.
        inner = p * p - 4 * r
        if inner < 0:
            return 0
        for sign in (-1.0, 1.0):
            square = (-p + sign * math.sqrt(inner)) / 2
            if square >= 0:
                for other in (-1.0, 1.0):
                    roots[found] = other * math.sqrt(square) - b3 / 4
                    found += 1
    else:
        for sign in (-1.0, 1.0):
            # y^2 - sign w y + (p + z + sign q / w) / 2
            inner = z - 2 * (p + z + sign * q / w)
            if inner >= 0:
                for other in (-1.0, 1.0):
                    roots[found] = (sign * w + other * math.sqrt(inner)) / 2 - b3 / 4
                    found += 1
    for k in range(found):
        for _ in range(2):
            x = roots[k]
            slope = ((4 * x + 3 * b3) * x + 2 * b2) * x + b1
            if abs(slope) > 1e-300:
                roots[k] = x - ((((x + b3) * x + b2) * x + b1) * x + b0) / slope
    return found


@compiled
def _largest_cubic_root(a, b, c):  # type: ignore[no-untyped-def]
    """Largest real root of x^3 + a x^2 + b x + c."""
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


@compiled
def _dot(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compiled
def _cross(a, b, out):  # type: ignore[no-untyped-def]
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]


@compiled
def _normalize(a):  # type: ignore[no-untyped-def]
    length = math.sqrt(_dot(a, a))
    for j in range(3):
        a[j] /= max(length, 1e-300)


@compiled
def _squared_distance(a, b):  # type: ignore[no-untyped-def]
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2
