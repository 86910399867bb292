"""What an attack sees: one release, what the attacker has beside it, and how hard it tries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Int64

from veil.attacks.claims import CannotRun, Estimates
from veil.attacks.distribution.attributes import Labelled
from veil.attacks.distribution.clustering import ClusterOptions
from veil.attacks.distribution.database import AwayOptions, GapOptions
from veil.attacks.distribution.nearest import entries
from veil.attacks.intersection.shared_decoys import MeetingOptions
from veil.attacks.pieces import Done
from veil.attacks.structural.lattice import LatticeOptions
from veil.attacks.structural.vertex import VertexOptions
from veil.attacks.time_budget import TimeBudget
from veil.attacks.words.cooccurrence import NeighborModel
from veil.codebooks.codebook import Codebook
from veil.codebooks.compression import Pca
from veil.errors import RangeError
from veil.forms import Form, Lines, Points, Released, Subsets, Subspaces
from veil.geometry.camera import Camera
from veil.scene import Scene
from veil.space import Space, require_same
from veil.wire.message import LineUpload, Message

# Two dithered copies of one decoy differ by sqrt(n / 6) a / 512 (docs/theory/hardened.md); some room for the tail.
DITHER_ROOM = 1.5

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedImage:
    """What a server holds of one image: a form, and its camera with positions or lines where these are known, too."""

    form: Released
    camera: Camera | None = None
    keypoints: Float32[np.ndarray, "_ 2"] | None = None
    lines: Lines | None = None

    @staticmethod
    def of(message: Message) -> ReleasedImage:
        """All that a message holds."""
        if isinstance(message, LineUpload):
            return ReleasedImage(form=message.form, camera=message.camera, lines=message.lines)
        return ReleasedImage(form=message.form, camera=message.camera, keypoints=message.keypoints)


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """What the attacker has beside the release: always what is public, never the originals or the client's secret.

    `codebook` is the one whose PCA or words the release names, if it is at hand. `decoys` is the pool that decoys were drawn
    from, None if it is secret. `database` holds descriptors of the attacker's own photographs. `others` are other releases by
    name. `neighbors` is what its photographs taught of neighboring words. `scene` is a map of the place that the releases show.
    `labelled` are descriptors with known classes. `descriptors` are estimates of all descriptors of the release under attack,
    where another attack made some.
    """

    codebook: Codebook | None
    decoys: Codebook | Points | None
    database: Codebook | Points
    others: Mapping[str, ReleasedImage] = field(default_factory=dict)
    neighbors: NeighborModel | None = None
    scene: Scene | None = None
    labelled: Labelled | None = None
    descriptors: Estimates | None = None
    # Shared by all that `dataclasses.replace` makes of one: what differs between them is not in it.
    _mapped: dict[tuple[int, Space, str], Points] = field(default_factory=dict, repr=False)

    def database_in(self, space: Space) -> Points:
        """The attacker's own descriptors in `space`. Raises SpaceError if they cannot be brought there."""
        return self._in(space, self.database)

    def decoys_in(self, space: Space) -> Points | None:
        """The decoys' pool in `space`, None if it is secret. Raises SpaceError if it cannot be brought there."""
        return None if self.decoys is None else self._in(space, self.decoys)

    def _in(self, space: Space, words: Codebook | Points) -> Points:
        """Made once: a pool of 262,144 takes over a second, and an upload has one space for all its releases."""
        if isinstance(words, Points):
            require_same(words.space, space)
            return words
        key = id(words), space, "" if self.codebook is None else self.codebook.digest
        if key not in self._mapped:
            self._mapped[key] = entries(words, space, codebook=self.codebook)
        return self._mapped[key]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much of a release is attacked: at most `features`, drawn by `seed`; `structural` of them where the structural attacks
    have to search behind a compression, which takes them hundreds of times as long. `oracle` is the length of the oracle's
    lists, `auxiliary` the number of other subspaces that the clustering attack compares with, `pictured` that of features of a
    picture: as many as networks were trained on, and as lattice attacks manage in a minute. `releases` are attacked in all."""

    features: int = 400
    structural: int = 60
    seed: int = 0
    oracle: int = 100
    auxiliary: int = 4000
    pictured: int = 700
    threads: int = 1
    releases: int = 1

    def __post_init__(self) -> None:
        for name in ("features", "structural", "oracle", "auxiliary", "pictured", "threads", "releases"):
            if not getattr(self, name) >= 1:
                raise RangeError(f"{name} must be at least 1, got {getattr(self, name)!r}")

    def rows(self, total: int, name: str) -> Int64[np.ndarray, "drawn"]:
        """The features of one release that are attacked, in ascending order."""
        if total <= self.features:
            return np.arange(total)
        drawn = np.random.default_rng([self.seed, *name.encode()]).permutation(total)[: self.features]
        return np.sort(drawn)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Options of single attacks where a study wants others than an audit's (None); `least_shared` of the intersection attack,
    `projected_oracle` whether the oracle's lists are of points of the subspace."""

    lattice: LatticeOptions | None = None
    vertex: VertexOptions | None = None
    gap: GapOptions | None = None
    away: AwayOptions | None = None
    clusters: ClusterOptions | None = None
    meeting: MeetingOptions | None = None
    least_shared: int | None = None
    projected_oracle: bool = True


class Clock:
    """Processor seconds that a block took."""

    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """One release under attack: the features `rows` of it, and all that the attacker knows, may do and has time for."""

    image: ReleasedImage
    rows: Int64[np.ndarray, "_"]
    knowledge: Knowledge
    effort: Effort = field(default_factory=Effort)
    tuning: Tuning = field(default_factory=Tuning)
    time: TimeBudget = field(default_factory=lambda: TimeBudget(math.inf, turns=1, shares={}))
    shared: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what several attacks compute alike

    @cached_property
    def form(self) -> Subspaces:
        """What was released in place of descriptors.

        Raises CannotRun if that is no subspace, or behind a codebook that the attacker lacks.
        """
        form, book = self.image.form, self.knowledge.codebook
        if not isinstance(form, Subspaces):
            raise CannotRun("the release holds no subspaces")
        if form.space.codebook and (book is None or book.digest != form.space.codebook):
            why = f"the release names the codebook {form.space.codebook[:12]}, which was not given (--codebook)"
            raise CannotRun(why)
        return form

    @cached_property
    def words(self) -> tuple[Subsets, Codebook]:
        """What was released in words, and their dictionary. Raises CannotRun without either."""
        form, book = self.image.form, self.knowledge.codebook
        if not isinstance(form, Subsets):
            raise CannotRun("the release holds no words")
        if book is None or book.digest != form.dictionary:
            raise CannotRun(f"the release names the dictionary {form.dictionary[:12]}, which was not given (--codebook)")
        return form, book

    @property
    def lines(self) -> tuple[Lines, Camera]:
        """The lines that hide positions, and their camera. Raises CannotRun where positions are sent as they are."""
        if self.image.lines is None or self.image.camera is None:
            raise CannotRun("positions are not hidden in lines: they are sent as they are")
        return self.image.lines, self.image.camera

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
    def kin(self) -> list[tuple[ReleasedImage, Subspaces]]:
        """Other releases in the same space and of the same dimension, with their forms."""
        return [
            (other, other.form)
            for other in self.knowledge.others.values()
            if isinstance(other.form, Subspaces) and other.form.space == self.form.space and other.form.m == self.form.m
        ]

    @cached_property
    def rest(self) -> list[Subspaces]:
        """All other subspaces at hand that can be compared, of this release and of others, an equal share of each, at most
        `effort.auxiliary` in all."""
        left = np.setdiff1d(np.arange(len(self.form)), self.rows)
        forms = [*([self.form.take(left)] if len(left) else []), *(form for _, form in self.kin)]
        each = max(1, self.effort.auxiliary // max(1, len(forms)))
        return [form.take(np.arange(min(len(form), each))) for form in forms]

    @cached_property
    def pca(self) -> Pca | None:
        """The public compression, if the form is behind one and it is known."""
        return pca_of(self.image.form, self.knowledge)

    @property
    def database(self) -> Points:
        """The attacker's own descriptors in the form's space."""
        return self.knowledge.database_in(self.form.space)

    @property
    def pool(self) -> Points | None:
        """The decoys' pool in the form's space, if it is known."""
        return self.knowledge.decoys_in(self.form.space)

    @property
    def raw_decoys(self) -> np.ndarray | None:
        """Public decoys, which structural attacks strike off: real ones are integers, as are centroids of a single one."""
        decoys = self.knowledge.decoys
        return decoys.vectors if isinstance(decoys, Codebook) else None if decoys is None else decoys.vectors

    @property
    def decoy_count(self) -> int:
        """Decoys in each subspace, which the profile's name tells: all m, or half of them."""
        return self.form.m if self.form.profile == "hardened" else max(1, self.form.m // 2)

    @property
    def meet(self) -> float:
        """Within this, two subspaces count as meeting in a decoy: rounding, or two draws of a dither."""
        dither = self.form.space.dither_steps
        return max(2e-3, DITHER_ROOM * np.sqrt(self.form.space.dim / 6) * dither / 512)

    @contextmanager
    def timer(self) -> Iterator[Clock]:
        """`with target.timer() as clock: ...`, then `clock.seconds`."""
        clock, start = Clock(), time.process_time()
        yield clock
        clock.seconds = time.process_time() - start

    def timely(
        self, attack: str, rows: Int64[np.ndarray, "wanted"], work: Callable[[Subspaces], Result]
    ) -> tuple[Done, list[Result]]:
        """`work` on the subspaces of as many of `rows` as there is time for. Raises CannotRun if there is none for any."""
        with self.timer() as clock:
            found = self.time.run(attack, rows, lambda piece: work(self.form.take(piece)), self.effort.seed)
        if not found:
            raise CannotRun("there was no time left for it (--seconds)", len(rows))
        drawn = np.concatenate([piece for piece, _ in found])
        place = np.argsort(drawn, kind="stable")
        done = Done(rows=drawn[place], place=place, left_out=len(rows) - len(drawn), seconds=clock.seconds)
        return done, [result for _, result in found]


def pca_of(form: Form, knowledge: Knowledge) -> Pca | None:
    """The PCA that a form's descriptors went through, if any and if it is known."""
    book = knowledge.codebook
    return book.compression.pca if form.space.codebook and book is not None else None
