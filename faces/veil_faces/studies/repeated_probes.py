"""Study of repeated authentication: how well a server that keeps a person's probes recovers the descriptor ([D21] Sec. 5).

Probes are lifted afresh, or along the directions of the enrolled template, as the near-parallel subspaces that [D21] proposes
and does not try. Fresh lifts of several pictures of one person nearly meet in the person's descriptor, whatever their decoys
are. Parallel ones (d_t + V with the V of the enrolled template, kept by the client) leave everything within V unknown, however
many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int64

from veil import distances
from veil.attacks.intersection.repeat import intersect
from veil.codebooks.codebook import Codebook
from veil.distances.pairs import exact
from veil.errors import InputError, SpaceError
from veil.features import unit_length
from veil.forms import Subspaces, canonical
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded
from veil_faces.collection import IDENTITY, Faces, as_features, centered_alike
from veil_faces.studies.verification import equal_error

LENGTHS = (2, 3, 5)  # numbers of probes that the server keeps
ProbeKind = Literal["fresh", "parallel"]


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """Results of a server that keeps `probes` probes of each of `people` people.

    `distance` is the mean distance of its estimate to the mean of the person's descriptors (None for a single probe), and
    `identified` how often a gallery names the estimate's person. `equal_error` is the equal error rate of probes against
    templates, where strangers use the person's own device. `probes` is 0 for a raw descriptor of one picture, and 1 for one
    lifted probe, which a gallery compares as a subspace.
    """

    mode: str
    lifting: str
    m: int
    probes: int
    people: int
    distance: float | None
    identified: float
    equal_error: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "mode": self.mode,
            "lifting": self.lifting,
            "m": self.m,
            "probes": self.probes,
            "people": self.people,
            "distance": self.distance,
            "identified": self.identified,
            "equal_error": self.equal_error,
        }


def history_study(
    faces: Faces,
    decoys: Faces,
    *,
    m: int,
    lifting: Strategy = "hybrid",
    lengths: Sequence[int] = LENGTHS,
    seed: int = 0,
    centered: bool = False,
) -> list[HistoryRow]:
    """Rows of what a server learns from raw descriptors, and from fresh and parallel probes, by the number of probes kept.

    It takes people with at least two pictures more than the largest of `lengths`: one picture for the gallery, one that is
    enrolled, and others that authenticate. Descriptors are lifted by `lifting` to dimension `m`, as seen from the decoys' mean
    if `centered`. Raises SpaceError if faces and decoys are of different descriptors, InputError if fewer than five people have
    enough pictures.
    """
    if decoys.space != faces.space:
        raise SpaceError(f"the faces are [{faces.space}], the decoys [{decoys.space}]; describe both with one network")
    if centered:
        faces, decoys = centered_alike(faces, decoys)
    rows = _pictures(faces, max(lengths) + 2)
    gallery, enrolled, probes = faces.vectors[rows[:, 0]], rows[:, 1], rows[:, 2:]
    half = len(decoys) // 2
    pools = [decoys.take(part).pool("study") for part in (np.arange(half), np.arange(half, 2 * half))]
    template = _lifted(faces, enrolled, lifting, m, pools[0], f"enrolled {seed}")
    truth = unit_length(faces.vectors[probes].astype(np.float64).mean(axis=1))
    raw = faces.vectors[enrolled]
    people = np.arange(len(rows))
    distance = distances.pairwise((raw, None), (faces.vectors[probes[:, 0]], None))
    results = [
        HistoryRow(
            mode="raw",
            lifting="raw",
            m=0,
            probes=0,
            people=len(rows),
            distance=float(np.linalg.norm(raw - truth, axis=1).mean()),
            identified=float((distances.nearest((raw, None), (gallery, None), 1).index[:, 0] == people).mean()),
            equal_error=_equal_error(distance),
        )
    ]
    for mode in get_args(ProbeKind):
        sent = [_probe(mode, faces, row, template, lifting, m, pools[1], f"probe {k} {seed}") for k, row in enumerate(probes.T)]
        error = _equal_error(_scores(mode, faces, probes[:, 0], template, sent[0]))
        first = sent[0].origin, sent[0].basis
        named = float((distances.nearest(first, (gallery, None), 1).index[:, 0] == people).mean())
        results.append(_row(mode, lifting, m, 1, len(rows), None, named, error))
        for length in lengths:
            points = unit_length(intersect(sent[:length]).points)
            off = float(np.linalg.norm(points - truth, axis=1).mean())
            nearest = distances.nearest((points.astype(np.float32), None), (gallery, None), 1).index[:, 0]
            results.append(_row(mode, lifting, m, length, len(rows), off, float((nearest == people).mean()), error))
    return results


def _row(
    mode: str, lifting: str, m: int, probes: int, people: int, distance: float | None, identified: float, error: float
) -> HistoryRow:
    """The row of these values."""
    return HistoryRow(
        mode=mode,
        lifting=lifting,
        m=m,
        probes=probes,
        people=people,
        distance=distance,
        identified=identified,
        equal_error=error,
    )


def _pictures(faces: Faces, count: int) -> Int64[np.ndarray, "people pictures"]:
    """Rows of the first `count` pictures of each person who has as many. Raises InputError for fewer than five people."""
    people, _ = faces.classes(IDENTITY)
    rows = [np.flatnonzero(people == k)[:count] for k in range(int(people.max()) + 1)]
    enough = [part for part in rows if len(part) == count]
    if len(enough) < 5:
        raise InputError(
            f"{len(enough)} people have {count} pictures, five are needed; give more pictures or shorter histories"
        )
    return np.array(enough)


def _lifted(faces: Faces, rows: np.ndarray, lifting: Strategy, m: int, pool: Codebook, case: str) -> Subspaces:
    """Subspaces of the faces of these rows with decoys from `pool`; `case` seeds the draws."""
    profile = Profile(name="study", strategy=lifting, m=m, decoys="descriptors")
    features = as_features(faces.vectors[rows], faces.space)
    return lift(features, profile=profile, compression=pool.compression, decoys=pool, randomness=seeded(case)).form


def _probe(
    mode: ProbeKind, faces: Faces, rows: np.ndarray, template: Subspaces, lifting: Strategy, m: int, pool: Codebook, case: str
) -> Subspaces:
    """One probe of every person: lifted afresh, or through the new descriptor along the template's directions."""
    if mode == "fresh":
        return _lifted(faces, rows, lifting, m, pool, case)
    return _along(template, faces.vectors[rows])


def _along(template: Subspaces, vectors: np.ndarray) -> Subspaces:
    """Subspaces through `vectors`, one for each template, along the template's directions."""
    origin, basis = canonical(vectors.astype(np.float64), template.basis.astype(np.float64))
    return replace(template, origin=origin.astype(np.float32), basis=basis.astype(np.float32))


def _scores(mode: ProbeKind, faces: Faces, rows: np.ndarray, template: Subspaces, sent: Subspaces) -> np.ndarray:
    """Distances (claimants, templates) of every person's probe, where the person claims to be each of the people.

    With parallel probes strangers, too, probe along the template's directions: they hold the device that keeps these.
    """
    if mode == "fresh":
        return distances.pairwise((sent.origin, sent.basis), (template.origin, template.basis))
    count = len(rows)
    scores = np.empty((count, count))
    for claimant in range(count):
        along = _along(template, np.repeat(faces.vectors[rows[claimant]][None], count, axis=0))
        each = np.arange(count)
        scores[claimant] = exact((along.origin, along.basis), (template.origin, template.basis), each, each)
    return scores


def _equal_error(distance: np.ndarray) -> float:
    """Equal error rate of a square of distances, whose diagonal holds the genuine ones."""
    return equal_error(distance.reshape(-1), np.eye(len(distance), dtype=bool).reshape(-1))
