"""The rotation of a face template is uniform."""

from __future__ import annotations

import numpy as np
import pytest

from veil.randomness import Secure
from veil_faces.template import rotation
from worlds import generator
from worlds.power import require_mean, require_share


@pytest.mark.slow
def test_the_rotation_of_faces_is_haar() -> None:
    """Over 8,000 keys: both orientations alike, the trace of mean 0 and variance 1. LAPACK's own signs would be seen."""
    turns = np.array([rotation(Secure(number.to_bytes(32, "big")), 3) for number in range(8000)])
    require_share(int((np.linalg.det(turns) > 0).sum()), 8000, 0.5, sees=0.05)
    require_mean(np.trace(turns, axis1=1, axis2=2), 0.0, sees=0.1)
    require_mean(np.trace(turns, axis1=1, axis2=2) ** 2, 1.0, sees=0.15)
    twin = np.linalg.qr(generator("twin of faces").normal(size=(8000, 3, 3)))[0]
    with pytest.raises(AssertionError, match="are expected"):
        require_share(int((np.linalg.det(twin) > 0).sum()), 8000, 0.5, sees=0.05)
