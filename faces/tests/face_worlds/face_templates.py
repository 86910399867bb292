"""Planted face templates, and a client that keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veil.forms import Subspaces, canonical, lifted_guarantee
from veil.randomness import Secret
from veil.space import Space
from veil_faces.files.face_home import FaceHome
from veil_faces.template import TemplateScheme
from worlds import generator

SPACE = Space(descriptor="planted-face", normalization="L2", dim=16)
SCHEME = TemplateScheme(strategy="random", m=2, comparison="p2s", space=SPACE, decoys="0" * 64)


def template(name: str) -> Subspaces:
    random = generator(name)
    origin, basis = canonical(random.normal(size=(1, 16)), random.normal(size=(1, 2, 16)))
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=SPACE,
        guarantee=lifted_guarantee("face template"),
        profile="face template",
        releasable=True,
    )


def home_of(path: Path) -> FaceHome:
    """A client's folder beside its store."""
    return FaceHome(folder=path.parent / "home", secret=Secret(b"s" * 32))
