"""One attack's answer on one release before anybody has looked at the truth, and what attackers are taken to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from veil.attacks.attack import Estimates, Lists
from veil.attacks.nearest import entries
from veil.audit.finding import Family
from veil.codebook import Codebook
from veil.errors import RangeError
from veil.forms import Points
from veil.space import Space
from veil.wire.message import Message

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """What the attacker has besides the release: always what is public, never the originals or the client's secret.

    `codebook` is the one whose PCA or words the release names, if it is at hand. `decoys` is the pool that decoys were drawn
    from, None if it is secret. `database` holds descriptors of the attacker's own photographs. `others` are other releases by
    name.
    """

    codebook: Codebook | None
    decoys: Codebook | None
    database: Codebook
    others: Mapping[str, Message] = field(default_factory=dict)
    _mapped: dict[tuple[int, Space], Points] = field(default_factory=dict, init=False, repr=False)

    def database_in(self, space: Space) -> Points:
        """The attacker's own descriptors in `space`. Raises SpaceError if they cannot be brought there."""
        return self._in(space, self.database)

    def decoys_in(self, space: Space) -> Points | None:
        """The decoys' pool in `space`, None if it is secret. Raises SpaceError if it cannot be brought there."""
        return None if self.decoys is None else self._in(space, self.decoys)

    def _in(self, space: Space, words: Codebook) -> Points:
        """Made once: a pool of 262,144 takes over a second, and an upload has one space for all its releases."""
        key = id(words), space
        if key not in self._mapped:
            self._mapped[key] = entries(words, space, codebook=self.codebook)
        return self._mapped[key]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much of a release is attacked: at most `features`, drawn by `seed`; `structural` of them where the structural attacks
    have to search behind a compression, which takes them hundreds of times as long. `oracle` is the length of the oracle's
    lists, `auxiliary` the number of other subspaces that the clustering attack compares with, `pictured` that of features of a
    picture: as many as networks were trained on, and as lattice attacks manage in a minute."""

    features: int = 400
    structural: int = 60
    seed: int = 0
    oracle: int = 100
    auxiliary: int = 4000
    pictured: int = 700
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("features", "structural", "oracle", "auxiliary", "pictured", "threads"):
            if not getattr(self, name) >= 1:
                raise RangeError(f"{name} must be at least 1, got {getattr(self, name)!r}")

    def rows(self, total: int, name: str) -> Int64[np.ndarray, "drawn"]:
        """The features of one release that are attacked, in ascending order."""
        if total <= self.features:
            return np.arange(total)
        drawn = np.random.default_rng([self.seed, *name.encode()]).permutation(total)[: self.features]
        return np.sort(drawn)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attempt:
    """What an attack claims about the features `rows` of a release: `estimates`, or `lists` for an oracle to pick from.

    `unit` says what is estimated; `named` are word ids (-1: none) where it is words. `skipped` says why nothing was tried.
    `left_out` features were to be attacked too, but time was short. `seconds` are the processor's.
    """

    attack: str
    family: Family
    assumes: str
    unit: str = "descriptor"
    rows: Int64[np.ndarray, "_"] = field(default_factory=lambda: np.arange(0))
    estimates: Estimates | None = None
    lists: Lists | None = None
    named: Int64[np.ndarray, "_"] | None = None
    left_out: int = 0
    seconds: float = 0.0
    skipped: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)


class Clock:
    """Processor seconds that a block took."""

    seconds: float = 0.0


@contextmanager
def timed() -> Iterator[Clock]:
    """`with timed() as clock: ...`, then `clock.seconds`."""
    clock, start = Clock(), time.process_time()
    yield clock
    clock.seconds = time.process_time() - start
