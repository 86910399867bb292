"""Study of pictures from a map of lines: what the positions that it gives away show of the photographs ([G20] Sec. 4.5).

[G20] (Geppert et al. 2020) draws one picture from all keypoints, which a map of points needs, and one from the projections of
an image's points in a map of lines. Descriptors are raw in both, the attacker's best case. Nothing draws what lines hide.

A file of its own: pictures from maps know nothing of attacks and laws, which the other studies of pictures are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt8

from veil.features import Features
from veil.inversion.maps import Inverts, points_map
from veil.mechanisms.public import publish
from veil.trials.position_leakage import PositionLeakage
from veil_lab.studies.pictures.inversion import RAW, Inverted, UntrainedPhotograph, inverted

LINE_MAP = "line map"


def map_pictures(
    photographs: Mapping[str, UInt8[np.ndarray, "_ _ 3"]],
    features: Mapping[str, Features],
    leakage: PositionLeakage,
    *,
    raw: Inverts,
) -> list[Inverted]:
    """Pictures of photographs by name from all keypoints (`raw`) and from the positions that a map of lines named (`line map`).

    `features` are raw ones with the hidden keypoints, `leakage` what the map named, and `raw` a network for raw descriptors.
    """
    pictures = []
    for name, rgb in sorted(photographs.items()):
        photograph = UntrainedPhotograph(name=name, rgb=rgb, features=features[name])
        vectors = publish(features[name]).vectors
        every = points_map(photograph.frame, features[name].keypoints, vectors)
        pictures.append(inverted(photograph, raw, every, attack=RAW, distance=0.0))
        rows = leakage.rows.get(name, np.empty(0, dtype=np.int64))
        named = points_map(photograph.frame, leakage.positions.get(name, np.empty((0, 2))), vectors[rows])
        share = len(rows) / len(vectors)
        pictures.append(inverted(photograph, raw, named, attack=LINE_MAP, decided=share, distance=0.0))
    return pictures


def evenly(names: Sequence[str], count: int) -> list[str]:
    """Some `count` of the names, evenly taken; all if there are fewer."""
    return [names[k] for k in np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int))]
