"""Publishing a public scene: raw descriptors as a form, with the guarantee that says what that means."""

from __future__ import annotations

import numpy as np

from veil.features import Features, unit_length
from veil.forms import Points


def publish(features: Features) -> Points:
    """Unit-length descriptors of a scene that its owner makes public."""
    vectors = unit_length(features.descriptors.astype(np.float64)).astype(np.float32)
    return Points(vectors=vectors, space=features.space)
