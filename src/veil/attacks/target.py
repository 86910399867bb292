"""Types of what an attack is given: one release, the attacker's knowledge beside it, and how much effort it spends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.attacks.claims import CannotRun, Estimates
from veil.attacks.distribution.attributes import Labelled
from veil.attacks.distribution.clustering import ClusteringOptions
from veil.attacks.distribution.database import AwayOptions, GapOptions
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.distribution.nearest import entries
from veil.attacks.intersection.shared_decoys import MeetingOptions
from veil.attacks.pieces import AttackedRows
from veil.attacks.positions.pair_network import PairNetwork
from veil.attacks.structural.lattice import LatticeOptions
from veil.attacks.structural.vertex import VertexOptions
from veil.attacks.time_budget import TimeBudget
from veil.attacks.words.cooccurrence import NeighborModel
from veil.codebooks.codebook import Codebook
from veil.codebooks.compression import Pca
from veil.errors import RangeError, Remedy
from veil.forms import Form, Lines, Points, Released, Subsets, Subspaces
from veil.geometry.camera import Camera
from veil.scene import Scene
from veil.space import Space, require_same
from veil.wire.message import LineUpload, Message

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedImage:
    """Data that a server holds of one image: its form, and its camera with keypoint positions (pixels) or lines where known.

    `gravity` is that sent beside positions, a unit vector of down in the camera frame; None if none was.
    """

    form: Released
    camera: Camera | None = None
    keypoints: Float32[np.ndarray, "_ 2"] | None = None
    lines: Lines | None = None
    gravity: Float64[np.ndarray, "3"] | None = None

    @staticmethod
    def of(message: Message) -> ReleasedImage:
        """Image data of one message: everything that the message holds."""
        if isinstance(message, LineUpload):
            return ReleasedImage(form=message.form, camera=message.camera, lines=message.lines)
        return ReleasedImage(form=message.form, camera=message.camera, keypoints=message.keypoints, gravity=message.gravity)


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicPhotograph:
    """Raw descriptors of a photograph, public ones or the attacker's own, and their positions in pixels."""

    points: Points
    keypoints: Float32[np.ndarray, "_ 2"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """Knowledge of the attacker beside the release: what is public and what is its own, never originals or the client's secret.

    `codebook` is the one whose PCA or words the release names, None if it is not at hand. `decoys` is the pool that decoys were
    drawn from, None if it is secret. `database` holds descriptors of the attacker's own photographs. `others` are other
    releases by name. `place` holds raw photographs of the place that the releases show, and `scene` is a map of it.
    `neighbors` is the model of neighboring words that was learned from its photographs, `pairs` the network that tells from two
    raw descriptors how far apart they lie, and `learned` what the attacks on hardened subspaces learned. `labelled` holds
    descriptors with known classes. `descriptors` are estimates of all descriptors of the release under attack, where another
    attack made some.
    """

    codebook: Codebook | None
    decoys: Codebook | Points | None
    database: Codebook | Points
    others: Mapping[str, ReleasedImage] = field(default_factory=dict)
    place: Mapping[str, PublicPhotograph] = field(default_factory=dict)
    neighbors: NeighborModel | None = None
    pairs: PairNetwork | None = None
    learned: LearnedModel | None = None
    scene: Scene | None = None
    labelled: Labelled | None = None
    descriptors: Estimates | None = None
    # All copies that `dataclasses.replace` makes share these dictionaries; the keys name all that the values depend on.
    shared: dict[str, Any] = field(default_factory=dict, repr=False)
    _mapped: dict[tuple[int, Space, str], Points] = field(default_factory=dict, repr=False)

    def database_in(self, space: Space) -> Points:
        """Descriptors of the attacker's own photographs in `space`. Raises SpaceError if they cannot be brought there."""
        return self._brought_into(space, self.database)

    def decoys_in(self, space: Space) -> Points | None:
        """Pool of the decoys in `space`, None if it is secret. Raises SpaceError if it cannot be brought there."""
        return None if self.decoys is None else self._brought_into(space, self.decoys)

    def _brought_into(self, space: Space, words: Codebook | Points) -> Points:
        """Points of `words` in `space`, computed once for each space.

        A pool of 262,144 words takes over a second, and all releases of an upload share one space.
        """
        if isinstance(words, Points):
            require_same(words.space, space)
            return words
        key = id(words), space, "" if self.codebook is None else self.codebook.digest
        if key not in self._mapped:
            self._mapped[key] = entries(words, space, codebook=self.codebook)
        return self._mapped[key]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Limits on how much of a release is attacked.

    At most `features` features are attacked, drawn by `seed`; of these at most `structural` by structural attacks where they
    have to search behind a compression, which takes them hundreds of times as long. `oracle` is the length of the oracle's
    lists. `auxiliary` is the number of other subspaces that the clustering and intersection attacks compare with. `pictured` is
    the number of features of a picture: as many as networks were trained on, and as lattice attacks manage in a minute.
    `releases` is the number of releases that the audit attacks in all.
    """

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
        """Rows of the attacked features of the release called `name`, which has `total` features, in ascending order."""
        if total <= self.features:
            return np.arange(total)
        drawn = np.random.default_rng([self.seed, *name.encode()]).permutation(total)[: self.features]
        return np.sort(drawn)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Options of single attacks, for studies; None stands for the options that an audit uses.

    `least_shared` is `least` of `intersection_attack`: the fewest known decoys of a decided feature. `projected_oracle` says
    whether the oracle's candidates are projected on the subspace.
    """

    lattice: LatticeOptions | None = None
    vertex: VertexOptions | None = None
    gap: GapOptions | None = None
    away: AwayOptions | None = None
    clusters: ClusteringOptions | None = None
    meeting: MeetingOptions | None = None
    least_shared: int | None = None
    projected_oracle: bool = True


class Clock:
    """Stopwatch of one block; `seconds` of processor time are set when the block ends."""

    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """Release under attack: the features `rows` of one image, with all that the attacker knows, may do and has time for."""

    image: ReleasedImage
    rows: Int64[np.ndarray, "_"]
    knowledge: Knowledge
    effort: Effort = field(default_factory=Effort)
    tuning: Tuning = field(default_factory=Tuning)
    time: TimeBudget = field(default_factory=lambda: TimeBudget(math.inf, turns=1, shares={}))
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # results that several attacks use

    @cached_property
    def form(self) -> Subspaces:
        """Subspaces that were released in place of descriptors.

        Raises CannotRun if the form holds no subspaces, or lies behind a codebook that the attacker lacks.
        """
        form, book = self.image.form, self.knowledge.codebook
        if not isinstance(form, Subspaces):
            raise CannotRun("the release holds no subspaces")
        if form.space.codebook and (book is None or book.digest != form.space.codebook):
            why = f"the release names the codebook {form.space.codebook[:12]}, which was not given"
            raise CannotRun(why, remedy=Remedy("give", "Attacker.codebook"))
        return form

    @cached_property
    def words(self) -> tuple[Subsets, Codebook]:
        """Subsets of words that were released in place of descriptors, and their dictionary.

        Raises CannotRun if the form holds no words, or the attacker lacks their dictionary.
        """
        form, book = self.image.form, self.knowledge.codebook
        if not isinstance(form, Subsets):
            raise CannotRun("the release holds no words")
        if book is None or book.digest != form.dictionary:
            why = f"the release names the dictionary {form.dictionary[:12]}, which was not given"
            raise CannotRun(why, remedy=Remedy("give", "Attacker.codebook"))
        return form, book

    @property
    def lines(self) -> tuple[Lines, Camera]:
        """Lines that hide the positions, and their camera. Raises CannotRun where positions are sent as they are."""
        if self.image.lines is None or self.image.camera is None:
            raise CannotRun("positions are not hidden in lines: they are sent as they are")
        return self.image.lines, self.image.camera

    @cached_property
    def attacked_subspaces(self) -> Subspaces:
        """Subspaces of the features `rows`."""
        return self.form.take(self.rows)

    @cached_property
    def structural_rows(self) -> Int64[np.ndarray, "_"]:
        """Rows that structural attacks are tried on: all of `rows`, or at most `effort.structural` behind a compression."""
        most = self.effort.structural if self.form.space.codebook else len(self.rows)
        return self.rows[np.sort(np.random.default_rng(self.effort.seed).permutation(len(self.rows))[:most])]

    @cached_property
    def comparable_releases(self) -> list[tuple[ReleasedImage, Subspaces]]:
        """Other releases whose subspaces have the space and the dimension of this one's, with their forms."""
        return [
            (other, other.form)
            for other in self.knowledge.others.values()
            if isinstance(other.form, Subspaces) and other.form.space == self.form.space and other.form.m == self.form.m
        ]

    @cached_property
    def other_subspaces(self) -> list[Subspaces]:
        """Subspaces that the attacked ones can be compared with: features of this release not in `rows`, and other releases.

        Each release gives at most an equal share of `effort.auxiliary`.
        """
        left = np.setdiff1d(np.arange(len(self.form)), self.rows)
        forms = [*([self.form.take(left)] if len(left) else []), *(form for _, form in self.comparable_releases)]
        count = max(1, self.effort.auxiliary // max(1, len(forms)))
        return [form.take(np.arange(min(len(form), count))) for form in forms]

    @cached_property
    def pca(self) -> Pca | None:
        """PCA that compressed the form's descriptors; None if there was none, or the attacker does not know it."""
        return pca_of(self.image.form, self.knowledge)

    @property
    def database(self) -> Points:
        """Descriptors of the attacker's own photographs in the form's space."""
        return self.knowledge.database_in(self.form.space)

    @property
    def pool(self) -> Points | None:
        """Pool of the decoys in the form's space; None if it is secret."""
        return self.knowledge.decoys_in(self.form.space)

    @property
    def raw_decoys(self) -> np.ndarray | None:
        """Vectors of the decoy pool as given, before any PCA; None if the pool is secret.

        Structural attacks strike them off their candidates: decoys that are real descriptors are integers, as the descriptor in
        demand is, and so are centroids of a single descriptor.
        """
        decoys = self.knowledge.decoys
        return decoys.vectors if isinstance(decoys, Codebook) else None if decoys is None else decoys.vectors

    @property
    def decoy_count(self) -> int:
        """Number of decoys in each subspace, which the profile's name tells: m if "hardened", else m // 2 and at least 1."""
        return self.form.m if self.form.profile == "hardened" else max(1, self.form.m // 2)

    @property
    def meeting_distance(self) -> float:
        """Largest distance at which two subspaces count as meeting in a decoy: wire rounding, or two draws of a dither."""
        return self.form.space.decoy_distance

    @contextmanager
    def timer(self) -> Iterator[Clock]:
        """Context manager that measures processor time: `with target.timer() as clock: ...`, then `clock.seconds`."""
        clock, start = Clock(), time.process_time()
        yield clock
        clock.seconds = time.process_time() - start

    def run_in_time(
        self, attack: str, rows: Int64[np.ndarray, "wanted"], work: Callable[[Subspaces], Result]
    ) -> tuple[AttackedRows, list[Result]]:
        """Rows of `rows` that there is time to attack, and the results of `work` on the subspaces of each piece of them.

        `attack` is the name under which the time is accounted. Raises CannotRun if there is no time for any row.
        """
        with self.timer() as clock:
            results = self.time.run(attack, rows, lambda piece: work(self.form.take(piece)), self.effort.seed)
        if not results:
            raise CannotRun("there was no time left for it", len(rows), remedy=Remedy("raise", "AuditOptions.seconds"))
        drawn = np.concatenate([piece for piece, _ in results])
        order = np.argsort(drawn, kind="stable")
        done = AttackedRows(rows=drawn[order], order=order, left_out=len(rows) - len(drawn), seconds=clock.seconds)
        return done, [result for _, result in results]


def pca_of(form: Form, knowledge: Knowledge) -> Pca | None:
    """PCA that a form's descriptors went through; None if there was none, or the attacker does not know it."""
    book = knowledge.codebook
    return book.compression.pca if form.space.codebook and book is not None else None
