"""Poses of a map with a place on Earth, as the service answers them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.files.maps.places import place_facts, place_of
from veil.geometry.georeference import basic_quaternion, basic_ypr
from veil.geometry.rigid import Rigid
from veil.server.maps.records import MapRecord
from veil.server.schema_check import require_valid
from veil.server.store.schema import Statements
from veil.wire.names import require_known

# Of a map's facts, where it is on Earth.
PLACE = "place"


def on_earth(place: Mapping[str, Any], pose: Mapping[str, Any]) -> dict[str, Any]:
    """A pose as OGC GeoPose writes it, both ways, and how far off the map's place may be.

    `place` is what `veil map align` wrote, `pose` the `cam_from_world` of an answer.
    """
    georeference = place_of(place)
    cam_from_map = Rigid(rotation=np.array(pose["rotation"]), translation=np.array(pose["translation"]))
    return {
        "geopose": basic_quaternion(georeference, cam_from_map),
        "geopose_ypr": basic_ypr(georeference, cam_from_map),
        "place_error_m": {"median": georeference.median_error_m, "largest": georeference.largest_error_m},
    }


def put_place(statements: Statements, record: MapRecord, value: Mapping[str, Any] | None) -> None:
    """Enter where on Earth a map is; None: it is not known. Raises InputError for what is no place, or a map without images."""
    facts = {name: item for name, item in record.facts.items() if name != PLACE}
    if value is not None:
        if not record.files:
            raise InputError("the map holds no image yet; nothing can be aligned")
        facts[PLACE] = _place_facts(value)
    statements.run("UPDATE maps SET facts = :facts WHERE id = :id", facts=json.dumps(facts), id=record.id)


def _place_facts(value: Mapping[str, Any]) -> dict[str, Any]:
    """A place as `veil map align` wrote it. Raises InputError for anything else, and for fields that a place does not have."""
    try:
        known = place_facts(place_of(value))
    except FileFormatError as error:
        raise InputError(error.cause, remedy=error.remedy) from None
    require_known("field of a place", value, known)
    for name in ("origin", "enu_from_map"):
        require_known(f"field of {name}", value[name], known[name])
    require_valid("Place", value)
    return known
