"""Entries of the list of attacks for attacks with networks on hardened subspaces: modes of a density, context, other views."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np

from veil.attacks.attack import OWN_PHOTOGRAPHS, Attack, Attempt
from veil.attacks.claims import CannotRun, Estimates, no_release
from veil.attacks.distribution.blind_sorting import sorted_readings
from veil.attacks.distribution.context import NEIGHBORS, context_beliefs, context_estimates, mean_spacing, neighbor_rows
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.distribution.modes import ModeOptions, Modes, density_modes, joined_modes
from veil.attacks.distribution.same_photograph import DecoyLaw, photograph_beliefs
from veil.attacks.distribution.whole_photograph import whole_photograph_estimates
from veil.attacks.matches.matched_candidates import ViewOfFeatures, candidate_estimates, view_distances, with_suggestions
from veil.attacks.matches.matched_views import VIEWS
from veil.attacks.pieces import AttackedRows
from veil.attacks.target import Target
from veil.codebooks.dictionary import Dictionary
from veil.errors import Remedy
from veil.forms import Points

LEARNED = f"{OWN_PHOTOGRAPHS}, from which it learned what descriptors are likely"
# Names under which modes are kept for other attacks: those of the attacked features, and those of their neighbors, too.
MODES, MODES_AROUND = "modes", "modes around"


def _learned(target: Target) -> LearnedModel:
    """The attacker's networks. Raises CannotRun without any, or if they are for another space than the release's."""
    learned = target.knowledge.learned
    if learned is None or learned.space != target.form.space:
        of = "there is no learned density" if learned is None else f"the learned density is for [{learned.space}]"
        raise CannotRun(f"{of}, and the release is in [{target.form.space}]", remedy=Remedy("give", "Attacker.model"))
    return learned


def _found_modes(target: Target, name: str, rows: np.ndarray) -> tuple[AttackedRows, Modes]:
    """Modes of as many of `rows` as there is time for."""
    learned = _learned(target)
    work = partial(density_modes, network=learned.density, database=target.database, threads=target.effort.threads)
    done, parts = target.run_in_time(name, rows, work)
    joined = joined_modes(parts)
    ordered = Modes(points=joined.points[done.order], log_ratios=joined.log_ratios[done.order])
    return done, ordered


def _modes(target: Target) -> Attempt:
    done, modes = _found_modes(target, "modes", target.rows)
    target.cache[MODES] = done.rows, modes
    claim = modes.estimates(modes.beliefs(ModeOptions().sharpness))
    return Attempt(label="modes", claim=claim, **done.attempt_fields)


def _context(target: Target) -> Attempt:
    """Modes of the attacked features and of their neighbors, chosen by what all of them say.

    Features that the attack `modes` searched are not searched again; those that it had no time for are left out.
    """
    learned, keypoints = _learned(target), target.image.keypoints
    if keypoints is None:
        raise CannotRun("lines hide who is whose neighbor")
    if MODES not in target.cache:
        raise CannotRun("the attack `modes`, whose modes it chooses from, was not run")
    rows, modes = target.cache[MODES]
    positions = keypoints.astype(np.float64)
    more = np.setdiff1d(neighbor_rows(positions, NEIGHBORS)[rows], rows)
    extra = AttackedRows(rows=np.empty(0, dtype=np.int64), order=np.empty(0, dtype=np.int64), left_out=0, seconds=0.0)
    if len(more):
        with suppress(CannotRun):  # without time for neighbors the attacked features are each other's
            extra, extra_modes = _found_modes(target, "context", more)
            modes = joined_modes([modes, extra_modes])
    with target.timer() as clock:
        together = np.concatenate([rows, extra.rows])
        target.cache[MODES_AROUND] = together, modes
        beliefs = context_beliefs(modes, learned.context, positions[together], spacing=mean_spacing(positions))
        claim = context_estimates(target.form.take(together), modes, beliefs, learned.context).take(np.arange(len(rows)))
    return Attempt(
        label="context",
        rows=rows,
        claim=claim,
        left_out=len(target.rows) - len(rows),
        seconds=clock.seconds + extra.seconds,
        notes=(f"{len(together)} features were searched, {len(rows)} of them to be judged and the others as their neighbors",),
        details={"searched": float(len(together))},
    )


def _blind_sorting(target: Target) -> Attempt:
    """Modes of the features that `context` searched, and of as many others as there is time for, sorted into photographs."""
    learned, keypoints = _learned(target), target.image.keypoints
    if keypoints is None:
        raise CannotRun("lines hide who is whose neighbor")
    if MODES_AROUND not in target.cache:
        raise CannotRun("the attack `context`, whose modes it sorts, was not run")
    positions = keypoints.astype(np.float64)
    rows, modes = target.cache[MODES_AROUND]
    more, seconds = np.setdiff1d(np.arange(len(target.form)), rows), 0.0
    if len(more):
        with suppress(CannotRun):  # without time for others those around the attacked ones are sorted
            extra, extra_modes = _found_modes(target, "blind sorting", more)
            rows, modes, seconds = np.concatenate([rows, extra.rows]), joined_modes([modes, extra_modes]), extra.seconds
    with target.timer() as clock:
        count = target.decoy_count + 1
        readings = sorted_readings(modes, learned.context, positions[rows], readings=count, spacing=mean_spacing(positions))
        claim = context_estimates(target.form.take(rows), modes, readings.beliefs[readings.named], learned.context)
    attacked, _ = target.cache[MODES]
    best, second = np.sort(readings.agreement)[::-1][:2]
    return Attempt(
        label="blind sorting",
        rows=attacked,
        claim=claim.take(np.arange(len(attacked))),
        left_out=len(target.rows) - len(attacked),
        seconds=clock.seconds + seconds,
        notes=(f"{len(rows)} features were sorted into {count} photographs, of which one was named",),
        details={"sorted": float(len(rows)), "lead": float(best - second)},
    )


def _same_photograph(target: Target) -> Attempt:
    """Modes of the attacked features, chosen by what all of them have in common.

    Features that the attack `modes` had no time for are left out.
    """
    learned = _learned(target)
    rows, modes = _modes_behind_lines(target)
    if learned.photograph is None:
        raise CannotRun("the networks came without a law of photographs", remedy=Remedy("make", "networks of attacks"))
    with target.timer() as clock:
        decoys = DecoyLaw.of(_like_decoys(target), learned.photograph)
        beliefs = photograph_beliefs(modes, learned.photograph, decoys)
        claim = context_estimates(target.form.take(rows), modes, beliefs, learned.context)
    return _behind_lines("same photograph", target, rows, claim, clock.seconds)


def _whole_photograph(target: Target) -> Attempt:
    """Modes of the attacked features, chosen by a transformer that reads those of all.

    Features that the attack `modes` had no time for are left out.
    """
    learned = _learned(target)
    rows, modes = _modes_behind_lines(target)
    if learned.whole is None:
        raise CannotRun("the networks came without a transformer of photographs", remedy=Remedy("make", "networks of attacks"))
    with target.timer() as clock:
        claim = whole_photograph_estimates(target.form.take(rows), modes, learned.whole)
    return _behind_lines("whole photograph", target, rows, claim, clock.seconds)


def _behind_lines(label: str, target: Target, rows: np.ndarray, claim: Estimates, seconds: float) -> Attempt:
    """The attempt of an attack that chose modes of the features `rows` by what all of them say."""
    return Attempt(
        label=label,
        rows=rows,
        claim=claim,
        left_out=len(target.rows) - len(rows),
        seconds=seconds,
        notes=(f"{len(rows)} features spoke for the photograph",),
    )


def _modes_behind_lines(target: Target) -> tuple[np.ndarray, Modes]:
    """The attacked features and their modes. Raises CannotRun where positions are seen, or modes were not searched."""
    if target.image.keypoints is not None:
        raise CannotRun("positions leave as they are, of which `context` makes more")
    if MODES not in target.cache:
        raise CannotRun("the attack `modes`, whose modes it chooses from, was not run")
    rows, modes = target.cache[MODES]
    return rows, modes


def _like_decoys(target: Target) -> Points:
    """The pool, if the attacker has it, or else descriptors of its own. Raises CannotRun if it has centroids alone."""
    known = target.knowledge
    if target.pool is not None and not isinstance(known.decoys, Dictionary):
        return target.pool
    if isinstance(known.database, Dictionary):
        raise CannotRun(
            "the attacker's database holds centroids, and decoys are like descriptors",
            remedy=Remedy("give", "Attacker.database"),
        )
    return target.database


def _matched_candidates(target: Target) -> Attempt:
    """Candidates of the attacked features, chosen by the views that `matched views` compared, and by neighbors if possible."""
    learned, keypoints = _learned(target), target.image.keypoints
    views = target.cache.get("matched views")
    if not views:
        raise no_release(len(target.knowledge.others), "of another photograph, in this space and dimension")
    if MODES not in target.cache:
        raise CannotRun("the attack `modes`, whose modes it chooses from, was not run")
    attacked, _ = target.cache[MODES]
    rows, modes = target.cache.get(MODES_AROUND, target.cache[MODES])
    form = target.form.take(rows)
    with target.timer() as clock:
        seen = [ViewOfFeatures.of(form, view, partners.take(rows)) for view, partners in views]
        candidates = with_suggestions(modes, form, seen, learned.density)
        work = partial(view_distances, candidates, form, threads=target.effort.threads)
        done = target.time.run_some("matched candidates", seen, work, target.effort.seed)
        positions = None if keypoints is None else keypoints.astype(np.float64)
        spacing = None if positions is None else mean_spacing(positions)
        claim = candidate_estimates(
            candidates, form, done, learned, None if positions is None else positions[rows], spacing=spacing
        )
    return Attempt(
        label="matched candidates",
        rows=attacked,
        claim=claim.take(np.arange(len(attacked))),
        left_out=len(target.rows) - len(attacked),
        seconds=clock.seconds,
        notes=(f"{len(done)} of {len(views)} views were asked of {candidates.points.shape[1]} candidates of each feature",),
        details={"views": float(len(done))},
    )


MATCHED_CANDIDATES = Attack(
    name="matched candidates",
    surface="subspaces",
    family="views",
    assumes=f"{LEARNED}, and {VIEWS}",
    units="descriptor",
    modules=(
        *("matches.matched_candidates", "matches.view_weights", "matches.matched_views"),
        *("distribution.modes", "distribution.context"),
    ),
    _run=_matched_candidates,
    time_share=2.0,
)
LEARNED_ATTACKS = (
    Attack(
        name="modes",
        surface="subspaces",
        family="distribution",
        assumes=LEARNED,
        units="descriptor",
        modules=(
            "distribution.modes",
            "distribution.density_network",
            "distribution.learned_model",
        ),
        _run=_modes,
        time_share=6.0,
    ),
    Attack(
        name="context",
        surface="subspaces",
        family="distribution",
        assumes=f"{LEARNED} and which are neighbors",
        units="descriptor",
        modules=("distribution.context", "distribution.modes"),
        _run=_context,
        time_share=6.0,
    ),
    Attack(
        name="blind sorting",
        surface="subspaces",
        family="distribution",
        assumes=f"{LEARNED} and which are neighbors",
        units="descriptor",
        modules=("distribution.blind_sorting", "distribution.context", "distribution.modes"),
        _run=_blind_sorting,
        time_share=6.0,
    ),
    Attack(
        name="same photograph",
        surface="subspaces",
        family="distribution",
        assumes=LEARNED,
        units="descriptor",
        modules=("distribution.same_photograph", "distribution.modes", "distribution.context"),
        _run=_same_photograph,
    ),
    Attack(
        name="whole photograph",
        surface="subspaces",
        family="distribution",
        assumes=LEARNED,
        units="descriptor",
        modules=("distribution.whole_photograph", "distribution.modes"),
        _run=_whole_photograph,
    ),
)
