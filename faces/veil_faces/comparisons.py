"""Distances of all probes from all templates, as calibrations and studies need them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from veil import distances
from veil_faces.collection import Faces
from veil_faces.template import FaceClient


def first_and_last(
    people: Int64[np.ndarray, "faces"],
) -> tuple[Int64[np.ndarray, "people"], Int64[np.ndarray, "people"]]:
    """Rows of the first and of the last picture of each person, in the order of the persons' numbers.

    The two are equal for a person with a single picture.
    """
    _, first = np.unique(people, return_index=True)
    _, before_end = np.unique(people[::-1], return_index=True)
    return first.astype(np.int64), (len(people) - 1 - before_end).astype(np.int64)


def compared(
    client: FaceClient,
    faces: Faces,
    probes: Int64[np.ndarray, "probes"],
    templates: Int64[np.ndarray, "templates"],
    purpose: str,
) -> Float64[np.ndarray, "probes templates"]:
    """Distances (probes, templates) of some faces, as probes, from templates of others, as a store of this client makes them.

    `probes` and `templates` are rows of `faces`. Raises InputError where probes fit one template only, or a face is one of the
    decoys.
    """
    forms = [
        client.template(faces.vectors[row], purpose=purpose, person=faces.names[row], version=1) for row in templates.tolist()
    ]
    gallery = tuple(np.concatenate(parts) for parts in zip(*((form.origin, form.basis) for form in forms), strict=True))
    shown = [client.probe(faces.vectors[row], purpose=purpose) for row in probes.tolist()]
    origin = np.concatenate([probe[0] for probe in shown])
    basis = [probe[1] for probe in shown if probe[1] is not None]
    return distances.pairwise((origin, np.concatenate(basis) if basis else None), (gallery[0], gallery[1]))
