"""Photographs of the studies of attacks: which of a folder, and their features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veil.cli.common import progress
from veil.errors import InputError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.pictures import named_pictures, read_picture


def chosen_photographs(paths: Sequence[Path], most: int | None) -> list[tuple[str, Path]]:
    """Names and files of at most `most` photographs, evenly taken from all."""
    pictures = list(named_pictures(paths))
    if most is None or len(pictures) <= most:
        return pictures
    return [pictures[k] for k in np.linspace(0, len(pictures) - 1, most).round().astype(int)]


def extracted(paths: Sequence[Path], *, most: int | None, least: int) -> list[Features]:
    """SIFT features of at most `most` photographs, evenly taken from all, without those of fewer than `least` features."""
    kept = []
    for _, path in progress(chosen_photographs(paths, most), "extracting"):
        try:
            features = extract_sift(read_picture(path), SiftOptions(max_features=2000))
        except InputError:  # a blank photograph has nothing to attack
            continue
        if len(features) >= least:
            kept.append(features)
    return kept
