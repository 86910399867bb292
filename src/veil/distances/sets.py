"""Feature sets as arrays: the types that every backend takes, and the checks of what callers pass.

A set holds N features of one descriptor length `dim`. Feature i is the point origin[i], or, where the set has a basis, the
affine subspace origin[i] + span of the m rows of basis[i]. Bases are orthonormal, as those of `veil.forms.Subspaces` are; no
function here checks that, as it costs as much as the distances.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from veil.errors import InputError

# Points or affine subspaces: (origin (N, dim), basis (N, m, dim)), with None in the place of the basis for points.
FeatureSet = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
# Affine subspaces only; one function's sets have one descriptor length.
SubspaceSet = tuple[Float[np.ndarray, "_ dim"], Float[np.ndarray, "_ _ dim"]]


def dimension(features: FeatureSet) -> int:
    """Dimension m of the subspaces of a set; 0 for points."""
    return 0 if features[1] is None else features[1].shape[1]


def take(features: FeatureSet, which: slice | np.ndarray) -> FeatureSet:
    """The features of a set that a slice or an index array names."""
    return features[0][which], None if features[1] is None else features[1][which]


def check_sets(left: FeatureSet, right: FeatureSet) -> None:
    """Raise InputError unless both sets have matching shapes, one descriptor length and finite numbers."""
    check_shapes(left, right)
    check_finite(left, right)


def check_shapes(left: FeatureSet, right: FeatureSet) -> None:
    """Raise InputError unless origins and bases match in shape and both sets have one descriptor length."""
    for name, (origin, basis) in (("left", left), ("right", right)):
        if origin.ndim != 2 or (basis is not None and (basis.ndim != 3 or basis.shape[::2] != origin.shape)):
            shapes = origin.shape, None if basis is None else basis.shape
            raise InputError(f"the {name} set needs an origin (N, dim) and a basis (N, m, dim), got {shapes}")
    if left[0].shape[1] != right[0].shape[1]:
        raise InputError(f"descriptor lengths differ: {left[0].shape[1]} and {right[0].shape[1]}")


def check_finite(left: FeatureSet, right: FeatureSet) -> None:
    """Raise InputError if a set holds NaN or infinity."""
    for name, side in (("left", left), ("right", right)):
        for part in side:
            if part is not None and not np.isfinite(part).all():
                raise InputError(f"the {name} set holds NaN or infinity; drop those features first")
