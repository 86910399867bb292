"""Real roots of quartic polynomials, for compiled loops."""

from __future__ import annotations

import math

from veil.compiled import compiled


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
