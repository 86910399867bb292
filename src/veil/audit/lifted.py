"""Every attack on subspaces, tried on one release."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from veil.attacks.clusters import ClusterOptions, clustering_attack
from veil.attacks.database import database_attack
from veil.attacks.grain import effective_dimension, identifiable_noise, release_noise
from veil.attacks.intersection import MeetingOptions, intersection_attack
from veil.attacks.lattice import lattice_attack
from veil.attacks.nearest import nearest_lists, nearest_neighbor
from veil.attacks.vertex import VertexOptions, vertex_attack, vertex_reach
from veil.audit.attempt import Attempt, Effort, Knowledge, Progress, timed
from veil.audit.finding import Family
from veil.audit.pieces import Done, OutOfTime
from veil.audit.repeats import repeat_attempts, same_kind
from veil.audit.time_budget import SHARES, TimeBudget
from veil.codebook import Pca
from veil.errors import VeilError
from veil.forms import Points, Released, Subspaces
from veil.wire.message import Message

NOTHING = "nothing but the release"
OWN = "photographs of its own"
OTHERS = "other releases that drew from the same pool"
POOL = "the pool that the decoys were drawn from"
# Two dithered copies of one decoy differ by sqrt(n / 6) a / 512 (docs/theory/hardened.md); some room for the tail.
DITHER_ROOM = 1.5

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Case:
    """One release's attacked features and all that is known about them."""

    message: Message
    rows: Int64[np.ndarray, "_"]
    knowledge: Knowledge
    effort: Effort
    time: TimeBudget

    @property
    def form(self) -> Subspaces:
        """What was released in place of descriptors."""
        assert isinstance(self.message.form, Subspaces)
        return self.message.form

    @cached_property
    def part(self) -> Subspaces:
        """The features that are attacked."""
        return self.form.take(self.rows)

    @cached_property
    def few(self) -> Int64[np.ndarray, "_"]:
        """The features that structural attacks are tried on: fewer of them behind a compression."""
        most = self.effort.structural if self.form.space.codebook else len(self.rows)
        return self.rows[np.sort(np.random.default_rng(self.effort.seed).permutation(len(self.rows))[:most])]

    @cached_property
    def rest(self) -> list[Subspaces]:
        """All other subspaces at hand that can be compared: of this release and of others."""
        left = np.setdiff1d(np.arange(len(self.form)), self.rows)
        found = [self.form.take(left)] if len(left) else []
        return found + [form for _, form in same_kind(self.form, self.knowledge.others.values())]

    @cached_property
    def pca(self) -> Pca | None:
        """The public compression, if the form is behind one."""
        return pca_of(self.form, self.knowledge)

    @property
    def database(self) -> Points:
        """The attacker's own descriptors in the form's space."""
        return self.knowledge.database_in(self.form.space)

    @property
    def pool(self) -> Points | None:
        """The decoys' pool in the form's space, if it is known."""
        return self.knowledge.decoys_in(self.form.space)

    @property
    def decoy_count(self) -> int:
        """Decoys in each subspace, which the profile's name tells: all m, or half of them."""
        return self.form.m if self.form.profile == "hardened" else max(1, self.form.m // 2)

    @property
    def meet(self) -> float:
        """Within this, two subspaces count as meeting in a decoy: rounding, or two draws of a dither."""
        dither = self.form.space.dither_steps
        return max(2e-3, DITHER_ROOM * np.sqrt(self.form.space.dim / 6) * dither / 512)


def pca_of(form: Released, knowledge: Knowledge) -> Pca | None:
    """The PCA that a form's descriptors went through, if any and if it is known."""
    book = knowledge.codebook
    return book.pca if form.space.codebook and book is not None else None


def attempts(
    message: Message,
    rows: np.ndarray,
    knowledge: Knowledge,
    effort: Effort,
    progress: Progress,
    *,
    only: Collection[str] | None = None,
    time: TimeBudget | None = None,
) -> Iterator[Attempt]:
    """All attacks (those named in `only`) on the features `rows` of one release; what cannot be tried says why.

    `time` bounds how many of the features there is time for; without it all of them are attacked.
    """
    case = _Case(message=message, rows=rows, knowledge=knowledge, effort=effort, time=time or TimeBudget(math.inf, turns=1))
    form = case.form
    case.time.begin_turn()
    if form.space.codebook and (knowledge.codebook is None or knowledge.codebook.digest != form.space.codebook):
        why = f"the release names the codebook {form.space.codebook[:12]}, which was not given (--codebook)"
        yield Attempt(attack="all", family="structural", assumes="the public codebook", skipped=why)
        return
    for attack in (_lattice, _vertex, _nearest, _oracle, _database, _clustering, _intersection, _repeat):
        name = attack.__name__.removeprefix("_")
        if only is not None and name not in only:
            continue
        progress(name)
        try:
            for attempt in attack(case):
                if name not in SHARES:
                    case.time.charge(attempt.seconds)
                yield attempt
        except VeilError as error:  # an attack that cannot work on this form says so, and the others go on
            left_out = error.features if isinstance(error, OutOfTime) else 0
            yield Attempt(attack=name, family=_FAMILY[name], assumes=NOTHING, skipped=str(error), left_out=left_out)


def _timely(
    case: _Case, attack: str, rows: Int64[np.ndarray, "wanted"], work: Callable[[Subspaces], Result]
) -> tuple[Done, list[Result]]:
    """`work` on the subspaces of as many of `rows` as there is time for. Raises OutOfTime if there is none for any."""
    with timed() as clock:
        found = case.time.run(attack, rows, lambda piece: work(case.form.take(piece)), case.effort.seed)
    if not found:
        raise OutOfTime(len(rows))
    drawn = np.concatenate([piece for piece, _ in found])
    place = np.argsort(drawn, kind="stable")
    done = Done(rows=drawn[place], place=place, left_out=len(rows) - len(drawn), seconds=clock.seconds)
    return done, [result for _, result in found]


_FAMILY: dict[str, Family] = {
    "lattice": "structural",
    "vertex": "structural",
    "nearest": "distribution",
    "oracle": "distribution",
    "database": "distribution",
    "clustering": "distribution",
    "intersection": "intersection",
    "repeat": "repeat",
}


def _lattice(case: _Case) -> Iterator[Attempt]:
    """Applies to whatever was once stored in 8 bits; its failure says less than the noise against its bound."""
    m_eff, dim = effective_dimension(case.form, case.pca), len(case.pca.mean) if case.pca else case.form.space.dim
    noise = release_noise(case.form) + case.form.space.dither_steps / np.sqrt(12)
    bound = identifiable_noise(m_eff, dim)
    words, threads = _public_decoys(case), case.effort.threads
    done, parts = _timely(
        case, "lattice", case.few, lambda part: lattice_attack(part, pca=case.pca, words=words, threads=threads)
    )
    side = "below" if noise < bound else "above"
    yield Attempt(
        attack="lattice",
        family="structural",
        assumes=NOTHING,
        estimates=done.estimates(parts),
        notes=(
            f"noise of {noise:.2g} steps is {side} the {bound:.2g} up to which an 8-bit descriptor is identifiable"
            + ("" if side == "above" else "; where it failed, a stronger lattice reduction should be expected to succeed"),
        ),
        details={"noise_steps": float(noise), "identifiable_steps": float(bound), "m_eff": float(m_eff)},
        **done.common,
    )


def _vertex(case: _Case) -> Iterator[Attempt]:
    reach = vertex_reach(case.form, pca=case.pca)
    if not reach.applies:
        yield Attempt(attack="vertex", family="structural", assumes=NOTHING, skipped=reach.reason)
        return
    words, options = _public_decoys(case), VertexOptions(threads=case.effort.threads)
    done, parts = _timely(
        case,
        "vertex",
        case.few,
        lambda part: vertex_attack(part, seed=case.effort.seed, pca=case.pca, decoys=words, options=options),
    )
    yield Attempt(
        attack="vertex",
        family="structural",
        assumes=NOTHING,
        estimates=done.estimates(parts),
        notes=(reach.reason,),
        details={"reach": reach.share},
        **done.common,
    )


def _nearest(case: _Case) -> Iterator[Attempt]:
    for name, projected in (("nearest", False), ("nearest, projected", True)):
        work = partial(nearest_neighbor, database=case.database, projected=projected, threads=case.effort.threads)
        done, parts = _timely(case, name, case.rows, work)
        yield Attempt(attack=name, family="distribution", assumes=OWN, estimates=done.estimates(parts), **done.common)


def _oracle(case: _Case) -> Iterator[Attempt]:
    count, threads = min(case.effort.oracle, len(case.database)), case.effort.threads
    work = partial(nearest_lists, database=case.database, count=count, threads=threads)
    done, parts = _timely(case, "oracle", case.rows, work)
    yield Attempt(
        attack=f"oracle of {count}",
        family="distribution",
        assumes=f"{OWN}, and a way to choose the best of {count} candidates, which nobody is known to have",
        lists=done.lists(parts),
        **done.common,
    )


def _database(case: _Case) -> Iterator[Attempt]:
    pool = case.pool
    if pool is None:
        yield Attempt(attack="database", family="distribution", assumes=POOL, skipped="the pool is secret (--secret-decoys)")
        return
    done, parts = _timely(case, "database", case.rows, lambda part: database_attack(part, pool, threads=case.effort.threads))
    seen = sum(int((decoys.count > 0).sum()) for _, decoys in parts)
    yield Attempt(
        attack="database",
        family="distribution",
        assumes=POOL,
        estimates=done.estimates(found for found, _ in parts),
        notes=(f"decoys were told from the descriptor for {seen} of {len(done.rows)} features",),
        details={"decoys_seen": seen / max(len(done.rows), 1)},
        **done.common,
    )


def _clustering(case: _Case) -> Iterator[Attempt]:
    auxiliary = _limited(case.rest, case.effort)
    if not auxiliary:
        yield Attempt(attack="clustering", family="distribution", assumes=OTHERS, skipped="there are no other subspaces")
        return
    with timed() as clock:
        options = ClusterOptions(tol=case.meet, decoys=case.decoy_count)
        found = clustering_attack(case.part, case.database, auxiliary, seed=case.effort.seed, options=options)
    yield Attempt(
        attack="clustering",
        family="distribution",
        assumes=f"{OWN} and {OTHERS}",
        rows=case.rows,
        estimates=found,
        seconds=clock.seconds,
    )


def _intersection(case: _Case) -> Iterator[Attempt]:
    with timed() as clock:
        found, lists = intersection_attack(
            case.part, case.database, _limited(case.rest, case.effort), options=MeetingOptions(tol=case.meet)
        )
    seen = sum(len(candidates) > 0 for candidates in lists.candidates)
    yield Attempt(
        attack="intersection",
        family="intersection",
        assumes=f"{OWN} and {OTHERS}",
        rows=case.rows,
        estimates=found,
        seconds=clock.seconds,
        notes=(f"{seen} of {len(case.rows)} features share a decoy with another one that the attacker has seen",),
        details={"share_a_decoy": seen / max(len(case.rows), 1)},
    )


def _repeat(case: _Case) -> Iterator[Attempt]:
    yield from repeat_attempts(
        case.message,
        case.rows,
        case.knowledge.others.values(),
        meet=case.meet,
        decoys=None if case.pool is None else case.pool.vectors.astype(np.float64),
        threads=case.effort.threads,
    )


def _limited(forms: Sequence[Subspaces], effort: Effort) -> list[Subspaces]:
    """At most `auxiliary` subspaces in all, an equal share of each form."""
    if not forms:
        return []
    each = max(1, effort.auxiliary // len(forms))
    return [form.take(np.arange(min(len(form), each))) for form in forms]


def _public_decoys(case: _Case) -> np.ndarray | None:
    """Public decoys, to be struck off the lattice attack's list: real ones are integers, as are centroids of a single one."""
    decoys = case.knowledge.decoys
    return None if decoys is None else decoys.words
