"""Unit costs of a plan, measured on this machine with features that are random but as large as real ones."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from veil.errors import RangeError
from veil.files.codebooks import bundled_codebook
from veil.forms import Points, Subspaces, canonical, lifted_guarantee
from veil.matching import match
from veil.matching.similar_images import LISTED, Background, SubspaceIndex, votes_for
from veil.places.maps.clusters.plans import MapPlan, MapSize, UnitCosts, planned_map
from veil.places.pairs.candidates import BY_TRACKS, RETRIEVED
from veil.places.pairs.choice import pair_choice
from veil.threads import cores

# Features of the images that are matched for the measurement, and images that retrieval compares.
FEATURES, IMAGES = 500, 6
# Interval of the words that are used where retrieval's comparisons are measured.
EACH_WORD = 64
# Seconds of one core for each image of 1,000 features, to verify, map and adjust: `lab/benchmarks/clusters.py`, on streets.
MAP_S = 0.5


def plan_map(
    images: int,
    *,
    features: int = 1000,
    pairs: str = "auto",
    pair_count: int | None = None,
    machines: int = 1,
    machine_cores: int | None = None,
    seconds: float = 6.0,
) -> MapPlan:
    """Plan a map of hardened uploads: pairs, core-hours, memory, disk, network and days (docs/theory/scale.md#plans).

    - `images`, `features`: number of images, and of the features that each sends.
    - `pairs`: which pairs are matched, as for `veil map`: "auto", "tracks", "retrieval" or "all".
    - `pair_count`: images that each is paired with; None: 20 by tracks, 40 by retrieval.
    - `machines`, `machine_cores`: machines that match pairs, and cores of each; None: those of this one.
    - `seconds`: of the measurement of unit costs on this machine.

    Raises RangeError for less than two images, one feature, machine or core, or no time.
    """
    method = pair_choice(pairs, images).method
    paired = {"tracks": BY_TRACKS, "retrieval": RETRIEVED}.get(method)
    if paired is not None and pair_count:
        paired = pair_count
    size = usual_size(images, features, paired, tracks=method == "tracks")
    return planned_map(size, measured_costs(seconds), machines=machines, cores=machine_cores or cores())


def measured_costs(seconds: float) -> UnitCosts:
    """Measure unit costs for about this number of seconds, of hardened subspaces against each other.

    The words of the bundled codebook stand for the descriptors and the decoys. Raises RangeError for no time.
    """
    if not seconds > 0:
        raise RangeError(f"seconds must be positive, got {seconds!r}")
    forms = {f"{number}": _drawn(np.random.default_rng(number)) for number in range(IMAGES)}
    words = _words()
    background = Background.of(forms, words)
    # Long lists, as large maps have them: few words for few images.
    few = SubspaceIndex.of(forms, Background.of(forms, words[::EACH_WORD]))
    first, second = forms["0"], forms["1"]
    share = seconds / 3
    match_s = _seconds(lambda: match(first, second), share)
    list_s = _seconds(lambda: (background.nearest_words(first), background.reach(first)), share)
    sharing = float((np.diff(few.starts).astype(np.float64) ** 2).sum()) / 2
    vote_s = _seconds(lambda: votes_for(few, few), share) / sharing
    return UnitCosts(features=FEATURES, match_s=match_s, list_s=list_s, vote_s=vote_s, map_s=MAP_S * FEATURES / 1000)


def usual_size(images: int, features: int, paired: int | None, *, tracks: bool = False) -> MapSize:
    """The size of a map of hardened subspaces whose retrieval uses the bundled codebook."""
    return MapSize(images=images, features=features, paired=paired, tracks=tracks, words=len(bundled_codebook()), listed=LISTED)


def _words() -> np.ndarray:
    """The bundled codebook's words in the space of hardened subspaces."""
    book = bundled_codebook()
    raw = Points(vectors=book.vectors, space=book.raw_space)
    return book.compression.into_space(raw, book.compression.hardened_space).vectors


def _drawn(chance: np.random.Generator) -> Subspaces:
    """Subspaces of dimension 4 through random words."""
    words = _words()
    corners = words[chance.integers(0, len(words), (FEATURES, 5))].astype(np.float64)
    corners += chance.normal(scale=0.02, size=corners.shape)
    basis = np.linalg.qr((corners[:, 1:] - corners[:, :1]).transpose(0, 2, 1))[0].transpose(0, 2, 1)
    origin, basis = canonical(corners[:, 0], basis)
    return Subspaces(
        origin=origin.astype(np.float32),
        basis=basis.astype(np.float32),
        space=bundled_codebook().compression.hardened_space,
        guarantee=lifted_guarantee("hardened"),
        profile="hardened",
        releasable=False,
    )


def _seconds(work: Callable[[], object], limit: float) -> float:
    """The least processor time of one call, after a first one, in calls that take `limit` seconds together."""
    work()
    best, begun = float("inf"), time.monotonic()
    while time.monotonic() - begun < limit or best == float("inf"):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best
