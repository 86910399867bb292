"""The part of `veil evaluate queries` that sends forged queries (`--forged`)."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.cli.common import Bar
from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.pictures import find_pictures, read_picture
from veil_lab.files.scenes import ReferenceScene
from veil_lab.studies.localization.false_acceptance import ReferencePlace
from veil_lab.studies.localization.forged_answers import ForgedAnswer, form_localizer
from veil_lab.studies.localization.forged_queries import ForgedOptions, forged_queries, true_counterparts

MOST_STRANGERS = 80


def strange_pictures(folder: Path | None) -> list[Picture]:
    """At most `MOST_STRANGERS` photographs of `folder`, evenly taken, which must show none of the places.

    Raises InputError where `folder` is None.
    """
    if folder is None:
        raise InputError("forgeries are made of photographs of other places, too; name a folder with --strangers")
    paths = find_pictures(folder)
    chosen = np.linspace(0, len(paths) - 1, min(MOST_STRANGERS, len(paths))).round().astype(int)
    return [read_picture(paths[index]) for index in chosen]


def forged_answers(
    scene: ReferenceScene,
    place: ReferencePlace,
    strangers: Sequence[Picture],
    arguments: argparse.Namespace,
    done: Callable[[ForgedAnswer], None],
) -> None:
    """Localize every forged and every true query in the maps of one place; `done` is called with each answer.

    `scene` and `place` are the same photographs: their files with reference poses, and their features.
    """
    options = ForgedOptions(draws=arguments.forged, max_features=arguments.forged_features)
    photographs: Mapping[str, Picture] = {
        name: read_picture(scene.pictures[name], camera=scene.cameras[name]) for name in place.features
    }
    with tempfile.TemporaryDirectory(prefix="veil-forged-") as workdir, Bar(f"{scene.name}: forgeries") as bar:
        localizer = form_localizer(place, bundled_codebook(), bundled_decoys(), Path(workdir), options)
        queries = [
            *forged_queries(scene.name, photographs, strangers, options),
            *true_counterparts(scene.name, photographs, localizer.fold.held_out, options),
        ]
        for number, query in enumerate(queries, start=1):
            for answer in localizer.answers(query):
                done(answer)
            bar(number, len(queries))
