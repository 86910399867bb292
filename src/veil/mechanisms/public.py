"""Publication of a public scene: raw descriptors as a form, whose guarantee says what that means."""

from __future__ import annotations

import numpy as np

from veil.features import Features, unit_length
from veil.forms import Points


def publish(features: Features) -> Points:
    """Descriptors of a scene that its owner makes public, scaled to unit length."""
    vectors = unit_length(features.descriptors.astype(np.float64)).astype(np.float32)
    return Points(vectors=vectors, space=features.space)
