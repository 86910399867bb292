"""Facts of a map for everybody who may use it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.files.codebooks import bundled_codebook
from veil.files.vocabularies import indexed_dictionaries
from veil.forms import Form, Points, Subsets
from veil.scene import Scene


def facts_of(scenes: Sequence[Scene], folder: Path) -> dict[str, Any]:
    """Facts of a map's models, the first of which answers queries, as JSON values; `folder` holds the map."""
    dictionaries = dictionaries_of(next(iter(scenes[0].images.values())).form, folder)
    error = scenes[0].mean_reprojection_error_px
    return {
        "models": [{"images": len(scene.images), "points": len(scene.points)} for scene in scenes],
        "public": scenes[0].is_public,
        "words": bool(dictionaries),
        "dictionaries": dictionaries,
        "mean_reprojection_error_px": error if math.isfinite(error) else None,
    }


def dictionaries_of(form: Form, folder: Path | None) -> list[str]:
    """The dictionaries (SHA-256, hex) whose words a map takes in queries; `form` is that of its images.

    Of a map of words its own, of a public map the bundled one and those that `veil index` indexed it for in its folder, of a
    map of subspaces none.
    """
    if isinstance(form, Subsets):
        return [form.dictionary]
    if not isinstance(form, Points):
        return []
    book = bundled_codebook(form.space.descriptor)
    bundled = [book.digest] if book.raw_space == form.space else []
    return list(dict.fromkeys([*bundled, *([] if folder is None else indexed_dictionaries(folder))]))
