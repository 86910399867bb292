"""`veil faces reseal`: seal a store of an older format, or accept a backup; never done without this command."""

from __future__ import annotations

import argparse

from veil.cli.common import say, say_table, write_json
from veil.errors import FileFormatError
from veil_faces.cli.enrollment import template_table
from veil_faces.files.face_home import FaceHome
from veil_faces.files.face_migration import Resealed, reseal_store
from veil_faces.files.faces import read_faces
from veil_faces.template import FaceClient


def reseal(arguments: argparse.Namespace) -> int:
    """Run `veil faces reseal` and return the exit code."""
    home = FaceHome.for_store(arguments.store)
    decoys = read_faces(arguments.decoys)

    def examine(found: Resealed) -> None:
        client = FaceClient(scheme=found.scheme, decoys=decoys, secret=home.secret)
        for (purpose, person, _), template in found.templates.items():
            if client.made(template, purpose=purpose) is False:
                raise FileFormatError(
                    f"{arguments.store}: the template of {person!r} for {purpose!r} was not made with the secret in "
                    f"{home.folder} and these decoys; put the right secret back, or leave it out (--without)"
                )

    found = reseal_store(arguments.store, home, restored=arguments.restored, without=arguments.without, examine=examine)
    record = {
        "format_before": found.format_before,
        "threshold_dropped": found.threshold_dropped,
        "templates": [{"person": person, "purpose": purpose, "version": k} for purpose, person, k in found.templates],
    }
    write_json(arguments.json, record, private=True)
    say(arguments, f"sealed {arguments.store} with {len(found.templates)} valid templates:")
    rows = [(purpose, person, str(version), "valid") for purpose, person, version in found.templates]
    say_table(arguments, template_table(rows))
    if found.scheme.strategy == "random":
        say(arguments, "lifted at random, they cannot be told from others' templates: seal only what you trust")
    if found.threshold_dropped:
        say(arguments, "its threshold was not sealed, so it is dropped: fit it again with veil faces calibrate")
    return 0
