"""Values of a hidden variable at which a matrix of polynomials is singular, for solvers that eliminate all other unknowns.

A system whose equations become M(z) v = 0, with a vector v of the other unknowns and their products, has its solutions at the
roots of det M(z) (Cox, Little and O'Shea 2005, Sec. 3.5). The determinant is evaluated at roots of unity, where the transform
to its coefficients is orthogonal, so that no polynomial is multiplied out.

A file of its own: `gp3p` and `gp6lp` share it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Complex128, Float64

# A root counts as real if its imaginary part is below this share of its length (at least 1), as double roots split in two.
REAL = 1e-4
# A determinant whose coefficients are all below this share of its values' scale is zero whatever the variable.
ZERO = 1e-13


def singular_values_of_z(
    matrix_at: Callable[[Complex128[np.ndarray, "places"]], Complex128[np.ndarray, "places size size"]], degree: int
) -> list[tuple[float, Float64[np.ndarray, "size"]]]:
    """Pairs of a real z at which the matrix is singular and a unit vector of its null space, by ascending z.

    - `matrix_at`: the matrices at several z at once. Lengths of the problem should be about 1.
    - `degree`: that of the determinant, at most.
    """
    circle = np.exp(2j * np.pi * np.arange(degree + 1) / (degree + 1))
    determinants = np.linalg.det(matrix_at(circle))
    coefficients = (np.fft.fft(determinants) / (degree + 1)).real
    most = float(np.abs(coefficients).max())
    if not np.isfinite(coefficients).all() or not most > ZERO:
        return []
    roots = np.roots(coefficients[::-1])
    real = np.sort(roots.real[np.abs(roots.imag) <= REAL * np.maximum(1.0, np.abs(roots))])
    if not len(real):
        return []
    _, _, right = np.linalg.svd(matrix_at(real.astype(np.complex128)).real)
    return [(float(z), vector) for z, vector in zip(real, right[:, -1], strict=True)]
