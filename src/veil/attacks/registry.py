"""List of every attack that veil knows.

The audit tries all of them on a release, or says why it cannot; studies pick from them by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from veil.attacks.attack import Attack, Attempt, run_attack
from veil.attacks.claims import CannotRun, Classes, Estimates, Lists
from veil.attacks.distribution.attributes import infer
from veil.attacks.on_lines import LINE_ATTACKS, ORDER_ATTACK
from veil.attacks.on_positions import POSITIONS_ATTACK
from veil.attacks.on_subspaces import SUBSPACE_ATTACKS
from veil.attacks.on_words import WORD_ATTACKS
from veil.attacks.target import ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.errors import InputError
from veil.forms import Subsets, Subspaces


def _attributes(target: Target) -> Attempt:
    labelled = target.knowledge.labelled
    if labelled is None:
        raise CannotRun("no descriptors with known labels were given")
    form = target.image.form.take(target.rows)
    with target.timer() as clock:
        inferred = infer(form, labelled, dictionary=target.knowledge.codebook)
    claim = Classes(labels=inferred.labels, names=labelled.classes)
    return Attempt(label="attributes", rows=target.rows, claim=claim, seconds=clock.seconds)


ATTRIBUTE_ATTACK = Attack(
    name="attributes",
    surface="faces",
    family="distribution",
    assumes="descriptors of other people's faces, with labels",
    units="class",
    modules=("distribution.attributes",),
    _run=_attributes,
)

ATTACKS: tuple[Attack, ...] = (
    *SUBSPACE_ATTACKS,
    *WORD_ATTACKS,
    *LINE_ATTACKS,
    POSITIONS_ATTACK,
    ORDER_ATTACK,
    ATTRIBUTE_ATTACK,
)
"""Every attack that veil knows, in the order in which an audit runs them: on subspaces, words, lines, positions, order,
and faces."""
# Weight of each attack in the time of one release (`TimeBudget`): attacks that search have more than those that look up.
TIME_SHARES = {attack.name: attack.time_share for attack in ATTACKS if attack.time_share}
# A value of `Effort.auxiliary` that no number of other subspaces reaches: attacks compare with all of them.
ALL_AUXILIARY = 1 << 40


def named(*names: str) -> tuple[Attack, ...]:
    """Attacks on subspaces with the given names, in their order. Raises KeyError for a name that no such attack has."""
    known = {attack.name: attack for attack in SUBSPACE_ATTACKS}
    return tuple(known[name] for name in names)


def chosen(names: Sequence[str]) -> tuple[Attack, ...]:
    """All attacks with one of the given names, on whatever they look at, in the list's order.

    Raises InputError for a name that no attack has.
    """
    known = list(dict.fromkeys(attack.name for attack in ATTACKS))
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"there is no attack {unknown[0]!r}; there are: {', '.join(known)}")
    return tuple(attack for attack in ATTACKS if attack.name in names)


def estimated(name: str, target: Target) -> tuple[Estimates, Lists | None]:
    """Estimates that the attack on subspaces called `name` makes of `target`, and the decoys that it names, if it names any.

    Raises KeyError for an unknown name, TypeError for an attack that does not estimate descriptors, and what the attack raises.
    """
    (attack,) = named(name)
    attempt = run_attack(attack, target)
    if attempt.estimates is None:
        raise TypeError(f"the attack {name!r} does not estimate descriptors")
    return attempt.estimates, attempt.decoys


def unbounded() -> TimeBudget:
    """Time budget that cuts no attack."""
    return TimeBudget(math.inf, turns=1, shares=TIME_SHARES)


def inapplicable(attack: Attack, image: ReleasedImage) -> str:
    """Reason why an attack has nothing to look at in a release; empty if it has something."""
    lacks = {
        "subspaces": "" if isinstance(image.form, Subspaces) else "the release holds no subspaces",
        "words": "" if isinstance(image.form, Subsets) else "the release holds no words",
        "lines": "" if image.lines is not None else "positions are sent as they are, not hidden in lines",
        "positions": "positions are hidden in lines" if image.keypoints is None else "",
        "order": "",
        "faces": "the release is of a photograph of a place, not of faces",
    }
    return lacks[attack.surface]
