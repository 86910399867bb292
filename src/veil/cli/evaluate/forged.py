"""The part of `veil evaluate queries` that asks about forgeries (`--forged`)."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.cli.common import Bar
from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.pictures import find_pictures, read_picture
from veil.files.scenes import ReferenceScene
from veil.studies.localization.false_acceptance import Place
from veil.studies.localization.forged_answers import Answer, Count, answerer, counted
from veil.studies.localization.forged_queries import ForgedOptions, forged, true_ones

MOST_STRANGERS = 80


def strange_pictures(folder: Path | None) -> list[Picture]:
    """At most `MOST_STRANGERS` photographs of none of the places, evenly from a folder. Raises InputError without one."""
    if folder is None:
        raise InputError("forgeries are made of photographs of other places, too; name a folder with --strangers")
    paths = find_pictures(folder)
    chosen = np.linspace(0, len(paths) - 1, min(MOST_STRANGERS, len(paths))).round().astype(int)
    return [read_picture(paths[index]) for index in chosen]


def forged_answers(
    scene: ReferenceScene,
    place: Place,
    strangers: Sequence[Picture],
    arguments: argparse.Namespace,
    done: Callable[[Answer], None],
) -> None:
    """Ask the maps of one place every forgery and every true query; each answer goes to `done`."""
    options = ForgedOptions(draws=arguments.forged, max_features=arguments.forged_features)
    photographs: Mapping[str, Picture] = {
        name: read_picture(scene.pictures[name], camera=scene.cameras[name]) for name in place.features
    }
    with tempfile.TemporaryDirectory(prefix="veil-forged-") as workdir, Bar(f"{scene.name}: forgeries") as bar:
        asks = answerer(place, bundled_codebook(), bundled_decoys(), Path(workdir), options)
        asked = [
            *forged(scene.name, photographs, strangers, options),
            *true_ones(scene.name, photographs, asks.fold.held_out, options),
        ]
        for number, one in enumerate(asked, start=1):
            for answer in asks.answers(one):
                done(answer)
            bar(number, len(asked))


def told_forged(answers: Sequence[Answer]) -> Iterator[str]:
    """The tables for people."""
    counts = counted(answers)
    for true, title in ((False, "forged"), (True, "true")):
        own = [item for item in counts if item.true == true]
        if own:
            yield f"{f'{title} queries':34} accepted     95 % interval"
            yield from (_line(item) for item in own)
            yield ""


def _line(item: Count) -> str:
    text = f"{item.group:34} {f'{item.accepted}/{item.total}':>9}  {100 * item.low:6.2f}-{100 * item.high:6.2f} %"
    text += f"  {item.astray} turned by more than 5 deg" if item.astray else ""
    return text + (f"  {item.doubted} refused though beyond chance" if item.doubted else "")
