"""What everybody who may use a map is told of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.files.codebooks import bundled_codebook
from veil.files.vocabularies import indexed_dictionaries
from veil.forms import Points, Subsets
from veil.scene import Scene


def facts_of(scenes: Sequence[Scene], folder: Path) -> dict[str, Any]:
    """Facts of a map's models, the first of which answers queries, as JSON values.

    `folder` holds the map. `dictionaries` are those whose words it takes in queries (SHA-256, hex): of a map of words its own,
    of a public map the bundled one and those that `veil index` indexed it for, of a map of subspaces none.
    """
    form = next(iter(scenes[0].images.values())).form
    dictionaries: list[str] = []
    if isinstance(form, Subsets):
        dictionaries = [form.dictionary]
    elif isinstance(form, Points):
        book = bundled_codebook(form.space.descriptor)
        bundled = [book.digest] if book.raw_space == form.space else []
        dictionaries = list(dict.fromkeys([*bundled, *indexed_dictionaries(folder)]))
    error = scenes[0].mean_reprojection_error_px
    return {
        "models": [{"images": len(scene.images), "points": len(scene.points)} for scene in scenes],
        "public": scenes[0].is_public,
        "words": bool(dictionaries),
        "dictionaries": dictionaries,
        "mean_reprojection_error_px": error if math.isfinite(error) else None,
    }
