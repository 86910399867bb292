"""Entries of the list of attacks for attacks on subspaces: what each assumes, and how it is run on one release."""

from __future__ import annotations

from functools import partial

import numpy as np

from veil.attacks.attack import OWN_PHOTOGRAPHS, RELEASE_ALONE, Attack, Attempt
from veil.attacks.claims import CannotRun, Lists
from veil.attacks.distribution.clustering import ClusteringOptions, clustering_attack
from veil.attacks.distribution.database import Decoys, database_attack
from veil.attacks.distribution.nearest import nearest_lists, nearest_neighbor
from veil.attacks.intersection.several_releases import REPEATS, repeat_attack
from veil.attacks.intersection.shared_decoys import MeetingOptions, intersection_attack
from veil.attacks.learned import LEARNED_ATTACKS, MATCHED_CANDIDATES
from veil.attacks.matches.inliers import matched_attack
from veil.attacks.matches.matched_views import PHOTOGRAPHS, VIEWS, matched_photographs, matched_views
from veil.attacks.structural.lattice import lattice_attack
from veil.attacks.structural.lattice_certificate import effective_dimension, identifiable_noise, release_noise
from veil.attacks.structural.vertex import VertexOptions, vertex_attack, vertex_reach
from veil.attacks.target import Target
from veil.errors import Remedy
from veil.forms import Points

OTHERS = "other releases that drew from the same pool"
POOL = "the pool that the decoys were drawn from"
SCENE = "a map of the place, whose points the release's features match"


def _lattice(target: Target) -> Attempt:
    """Lattice attack on descriptors that were once stored in 8 bits, with a note that compares the noise with its bound.

    The comparison says more than a failure: a stronger lattice reduction may succeed where this one fails.
    """
    form, pca = target.form, target.pca
    m_eff, dim = effective_dimension(form, pca), len(pca.mean) if pca else form.space.dim
    noise = release_noise(form) + form.space.dither_steps / np.sqrt(12)
    bound = identifiable_noise(m_eff, dim)
    work = partial(
        lattice_attack, options=target.tuning.lattice, pca=pca, decoys=target.raw_decoys, threads=target.effort.threads
    )
    done, parts = target.run_in_time("lattice", target.structural_rows, work)
    side = "below" if noise < bound else "above"
    return Attempt(
        label="lattice",
        claim=done.estimates(parts),
        notes=(
            f"noise of {noise:.2g} steps is {side} the {bound:.2g} up to which an 8-bit descriptor is identifiable"
            + ("" if side == "above" else "; where it failed, a stronger lattice reduction should be expected to succeed"),
        ),
        details={"noise_steps": float(noise), "identifiable_steps": float(bound), "m_eff": float(m_eff)},
        **done.attempt_fields,
    )


def _vertex(target: Target) -> Attempt:
    reach = vertex_reach(target.form, pca=target.pca)
    if not reach.applies:
        raise CannotRun(reach.reason)
    options = target.tuning.vertex or VertexOptions(threads=target.effort.threads)
    work = partial(vertex_attack, seed=target.effort.seed, pca=target.pca, decoys=target.raw_decoys, options=options)
    done, parts = target.run_in_time("vertex", target.structural_rows, work)
    return Attempt(
        label="vertex",
        claim=done.estimates(parts),
        notes=(reach.reason,),
        details={"reach": reach.share},
        **done.attempt_fields,
    )


def _nearest(target: Target, *, name: str, projected: bool) -> Attempt:
    work = partial(nearest_neighbor, database=target.database, projected=projected, threads=target.effort.threads)
    done, parts = target.run_in_time(name, target.rows, work)
    return Attempt(label=name, claim=done.estimates(parts), **done.attempt_fields)


def _oracle(target: Target) -> Attempt:
    count = min(target.effort.oracle, len(target.database))
    projected, threads = target.tuning.projected_oracle, target.effort.threads
    work = partial(nearest_lists, database=target.database, count=count, projected=projected, threads=threads)
    done, parts = target.run_in_time("oracle", target.rows, work)
    return Attempt(
        label=f"oracle of {count}",
        assumes=f"{OWN_PHOTOGRAPHS}, and a way to choose the best of {count} candidates, which nobody is known to have",
        claim=done.lists(parts),
        **done.attempt_fields,
    )


def _database(target: Target) -> Attempt:
    pool = target.pool
    if pool is None:
        raise CannotRun("the pool is secret", remedy=Remedy("leave out", "Attacker.has_pool"))
    tuning, threads = target.tuning, target.effort.threads
    work = partial(database_attack, database=pool, gap=tuning.gap, away=tuning.away, threads=threads)
    done, parts = target.run_in_time("database", target.rows, work)
    seen = sum(int((decoys.count > 0).sum()) for _, decoys in parts)
    return Attempt(
        label="database",
        claim=done.estimates(estimates for estimates, _ in parts),
        notes=(f"decoys were told from the descriptor for {seen} of {len(done.rows)} features",),
        details={"decoys_seen": seen / max(len(done.rows), 1)},
        decoys=done.lists(_listed(decoys, pool) for _, decoys in parts),
        **done.attempt_fields,
    )


def _listed(decoys: Decoys, pool: Points) -> Lists:
    """Lists of the pool's words that were taken for decoys, one for each feature."""
    rows = [row[row >= 0] for row in decoys.rows]
    return Lists(candidates=tuple(pool.vectors[row].astype(np.float64) for row in rows), certified=decoys.certified)


def _clustering(target: Target) -> Attempt:
    if not target.other_subspaces and len(target.rows) < 2:
        raise CannotRun("there are no other subspaces")
    options = target.tuning.clusters or ClusteringOptions(tol=target.meeting_distance, decoys=target.decoy_count)
    with target.timer() as clock:
        estimates = clustering_attack(
            target.attacked_subspaces, target.database, target.other_subspaces, seed=target.effort.seed, options=options
        )
    return Attempt(label="clustering", rows=target.rows, claim=estimates, seconds=clock.seconds)


def _intersection(target: Target) -> Attempt:
    tuning = target.tuning
    options = tuning.meeting or MeetingOptions(tol=target.meeting_distance)
    with target.timer() as clock:
        estimates, decoys = intersection_attack(
            target.attacked_subspaces,
            target.database,
            target.other_subspaces,
            least=tuning.least_shared,
            options=options,
            away=tuning.away,
        )
    seen = sum(len(candidates) > 0 for candidates in decoys.candidates)
    return Attempt(
        label="intersection",
        rows=target.rows,
        claim=estimates,
        seconds=clock.seconds,
        notes=(f"{seen} of {len(target.rows)} features share a decoy with another one that the attacker has seen",),
        details={"share_a_decoy": seen / max(len(target.rows), 1)},
        decoys=decoys,
    )


SUBSPACE_ATTACKS = (
    Attack(
        name="lattice",
        surface="subspaces",
        family="structural",
        assumes=RELEASE_ALONE,
        units="descriptor",
        modules=(
            "structural.lattice",
            "structural.lattice_certificate",
            "structural.lattice_reduction",
            "structural.enumeration",
        ),
        _run=_lattice,
        time_share=4.0,
    ),
    Attack(
        name="vertex",
        surface="subspaces",
        family="structural",
        assumes=RELEASE_ALONE,
        units="descriptor",
        modules=("structural.vertex", "structural.vertex_search", "structural.simplex"),
        _run=_vertex,
        time_share=6.0,
    ),
    Attack(
        name="nearest",
        surface="subspaces",
        family="distribution",
        assumes=OWN_PHOTOGRAPHS,
        units="descriptor",
        modules=("distribution.nearest",),
        _run=partial(_nearest, name="nearest", projected=False),
        time_share=0.5,
    ),
    Attack(
        name="nearest, projected",
        surface="subspaces",
        family="distribution",
        assumes=OWN_PHOTOGRAPHS,
        units="descriptor",
        modules=("distribution.nearest",),
        _run=partial(_nearest, name="nearest, projected", projected=True),
        time_share=0.5,
    ),
    *LEARNED_ATTACKS,
    Attack(
        name="oracle",
        surface="subspaces",
        family="distribution",
        assumes=f"{OWN_PHOTOGRAPHS}, and a way to choose the best candidate, which nobody is known to have",
        units="descriptor",
        modules=("distribution.nearest",),
        _run=_oracle,
        time_share=1.0,
    ),
    Attack(
        name="database",
        surface="subspaces",
        family="distribution",
        assumes=POOL,
        units="descriptor",
        modules=("distribution.database",),
        _run=_database,
        time_share=6.0,
    ),
    Attack(
        name="clustering",
        surface="subspaces",
        family="distribution",
        assumes=f"{OWN_PHOTOGRAPHS} and {OTHERS}",
        units="descriptor",
        modules=("distribution.clustering",),
        _run=_clustering,
    ),
    Attack(
        name="intersection",
        surface="subspaces",
        family="intersection",
        assumes=f"{OWN_PHOTOGRAPHS} and {OTHERS}",
        units="descriptor",
        modules=("intersection.shared_decoys",),
        _run=_intersection,
    ),
    Attack(
        name="repeat",
        surface="subspaces",
        family="repeat",
        assumes=REPEATS,
        units="descriptor",
        modules=("intersection.repeat", "intersection.several_releases"),
        _run=repeat_attack,
    ),
    Attack(
        name="matched views",
        surface="subspaces",
        family="views",
        assumes=VIEWS,
        units="descriptor",
        modules=("matches.matched_views", "matches.inliers"),
        _run=matched_views,
        time_share=2.0,
    ),
    MATCHED_CANDIDATES,
    Attack(
        name="matched photographs",
        surface="subspaces",
        family="matches",
        assumes=PHOTOGRAPHS,
        units="descriptor",
        modules=("matches.matched_views", "matches.inliers"),
        _run=matched_photographs,
        time_share=0.5,
    ),
    Attack(
        name="inliers",
        surface="subspaces",
        family="matches",
        assumes=SCENE,
        units="descriptor",
        modules=("matches.inliers",),
        _run=matched_attack,
    ),
)
